package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// What the tokens refuse.
var (
	ErrNoToken      = errors.New("web: no such token")
	ErrTokenRole    = errors.New("web: a token's role is at most that of its user and of its maker")
	ErrTokenExpiry  = errors.New("web: a token's expiry lies in the past")
	ErrTokenName    = errors.New("web: a token's name has 1 to 100 characters")
	errUnknownToken = errors.New("web: the token is not known, or expired, or revoked")
)

// tokenPrefix lets secret scanners recognise a token.
const tokenPrefix = "om_"

// Token is the right to act as a user through the API. Its secret is not kept.
type Token struct {
	ID         int64
	User       string // whose it is
	Name       string
	Role       access.Role // at most the user's; a user who got less takes the token down too
	CreatedAt  time.Time
	CreatedBy  string
	ExpiresAt  *time.Time // nil: never
	RevokedAt  *time.Time
	LastUsedAt *time.Time // to the minute
}

// NewToken asks for a token.
type NewToken struct {
	User      string
	Name      string
	Role      access.Role
	ExpiresAt time.Time // zero: never
}

// Tokens keeps the API tokens: api_token.
type Tokens struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

// NewTokens returns the tokens kept in pool's database.
func NewTokens(pool *pgxpool.Pool, clock func() time.Time) *Tokens {
	return &Tokens{pool: pool, now: clock}
}

const sqlTokenCreate = `
INSERT INTO api_token (user_id, name, hash, role, created_by, expires_at)
VALUES (@user_id, @name, @hash, @role, @created_by, @expires_at)
RETURNING id, created_at`

// Create makes a token and returns its secret, which is shown this once. Errors:
// access.ErrForbidden (for others' tokens), ErrNoAccount, ErrTokenRole,
// ErrTokenExpiry, ErrTokenName, ErrBadRole.
func (t *Tokens) Create(ctx context.Context, actor access.Actor, want NewToken) (string, Token, error) {
	want.User = strings.ToLower(want.User)
	if err := errors.Join(checkOwner(actor, want.User), t.checkNew(want)); err != nil {
		return "", Token{}, err
	}
	secret := tokenPrefix + base64.RawURLEncoding.EncodeToString(randomBytes(32))
	made := Token{User: want.User, Name: want.Name, Role: want.Role, CreatedBy: actor.User, ExpiresAt: optional(want.ExpiresAt)}
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		owner, err := lockAccount(ctx, tx, want.User)
		if err != nil {
			return err
		}
		if !want.Role.AtMost(owner.Role) || !want.Role.AtMost(actor.Role) {
			return fmt.Errorf("%w: asked for %s", ErrTokenRole, want.Role)
		}
		err = tx.QueryRow(ctx, sqlTokenCreate, pgx.NamedArgs{
			"user_id": owner.ID, "name": want.Name, "hash": tokenHash(secret), "role": want.Role,
			"created_by": actor.User, "expires_at": made.ExpiresAt,
		}).Scan(&made.ID, &made.CreatedAt)
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "token.created", Target: tokenTarget(made.ID),
			Detail: map[string]any{"user": want.User, "name": want.Name, "role": want.Role, "expires_at": made.ExpiresAt}})
	})
	if err != nil {
		return "", Token{}, fmt.Errorf("create token for %s: %w", want.User, err)
	}
	return secret, made, nil
}

const sqlTokenList = `
SELECT t.id, u.name AS "user", t.name, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at
FROM api_token t
JOIN app_user u ON u.id = t.user_id
WHERE u.name = @user
ORDER BY t.id DESC`

// List returns the user's tokens, newest first, the dead ones included.
func (t *Tokens) List(ctx context.Context, actor access.Actor, user string) ([]Token, error) {
	if err := checkOwner(actor, user); err != nil {
		return nil, err
	}
	rows, err := t.pool.Query(ctx, sqlTokenList, pgx.NamedArgs{"user": user})
	if err != nil {
		return nil, fmt.Errorf("list tokens of %s: %w", user, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Token])
}

const sqlTokenOwner = `
SELECT u.name
FROM api_token t
JOIN app_user u ON u.id = t.user_id
WHERE t.id = @id`

const sqlTokenRevoke = `
UPDATE api_token SET revoked_at = @now
WHERE id = @id AND revoked_at IS NULL`

// Revoke ends a token at once. Revoking twice changes nothing. Errors:
// access.ErrForbidden (for others' tokens), ErrNoToken.
func (t *Tokens) Revoke(ctx context.Context, actor access.Actor, id int64) error {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		var owner string
		err := tx.QueryRow(ctx, sqlTokenOwner, pgx.NamedArgs{"id": id}).Scan(&owner)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoToken
		}
		if err != nil {
			return err
		}
		if err := checkOwner(actor, owner); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, sqlTokenRevoke, pgx.NamedArgs{"id": id, "now": t.now()})
		if err != nil || done.RowsAffected() == 0 {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "token.revoked", Target: tokenTarget(id), Detail: map[string]any{"user": owner}})
	})
	if err != nil {
		return fmt.Errorf("revoke token %d: %w", id, err)
	}
	return nil
}

// sqlTokenUse notes the use once a minute, so that a busy client does not write
// a row for each of its calls.
const sqlTokenUse = `
WITH found AS (
  SELECT t.id, t.name, t.role, t.last_used_at, u.name AS user_name, u.role AS user_role
  FROM api_token t
  JOIN app_user u ON u.id = t.user_id
  WHERE t.hash = @hash AND t.revoked_at IS NULL AND u.disabled_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > @now)
), used AS (
  UPDATE api_token SET last_used_at = @now
  WHERE id = (SELECT id FROM found WHERE last_used_at IS NULL OR last_used_at < @now - interval '1 minute')
)
SELECT name, role, user_name, user_role FROM found`

// actor is who stands behind a secret, with the lesser of both roles.
func (t *Tokens) actor(ctx context.Context, secret string) (access.Actor, error) {
	var name string
	var role, userRole access.Role
	var actor access.Actor
	err := t.pool.QueryRow(ctx, sqlTokenUse, pgx.NamedArgs{"hash": tokenHash(secret), "now": t.now().UTC()}).
		Scan(&name, &role, &actor.User, &userRole)
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Actor{}, errUnknownToken
	}
	if err != nil {
		return access.Actor{}, fmt.Errorf("look up token: %w", err)
	}
	actor.Role, actor.Via = role.Within(userRole), "token:"+name
	return actor, nil
}

func (t *Tokens) checkNew(want NewToken) error {
	if err := checkRole(want.Role); err != nil {
		return err
	}
	if want.Name == "" || len(want.Name) > 100 {
		return ErrTokenName
	}
	if !want.ExpiresAt.IsZero() && !want.ExpiresAt.After(t.now()) {
		return ErrTokenExpiry
	}
	return nil
}

// checkOwner lets everyone manage their own tokens and an admin everyone's.
func checkOwner(actor access.Actor, user string) error {
	if actor.User == user {
		return actor.Check(access.ManageTokens)
	}
	return actor.Check(access.ManageUsers)
}

func tokenHash(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

func tokenTarget(id int64) string { return fmt.Sprintf("token/%d", id) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return b
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
