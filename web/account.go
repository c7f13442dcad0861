package web

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// What the accounts and tokens refuse.
var (
	ErrNoAccount     = errors.New("web: no such account")
	ErrAccountExists = errors.New("web: an account of that name exists")
	ErrLastAdmin     = errors.New("web: the last admin that can sign in stays one")
	ErrBadName       = errors.New("web: a name is 1 to 64 of a-z, 0-9, dot, dash, underscore and @, beginning with a letter or digit")
	ErrBadPassword   = errors.New("web: a password has 8 to 128 characters")
	ErrBadRole       = errors.New("web: no such role")
)

// Account is a person who may sign in.
type Account struct {
	ID          int64
	Name        string
	Role        access.Role
	CreatedAt   time.Time
	DisabledAt  *time.Time // nil: may sign in
	LastLoginAt *time.Time // nil: never did
}

// Accounts keeps the local accounts: app_user.
type Accounts struct{ pool *pgxpool.Pool }

// NewAccounts returns the accounts kept in pool's database.
func NewAccounts(pool *pgxpool.Pool) *Accounts { return &Accounts{pool: pool} }

const sqlAccountCreate = `
INSERT INTO app_user (name, password_hash, role)
VALUES (@name, @hash, @role)
RETURNING id, name, role, created_at, disabled_at, last_login_at`

// Create adds an account. The name is lower-cased. Errors: access.ErrForbidden,
// ErrBadName, ErrBadPassword, ErrBadRole, ErrAccountExists.
func (a *Accounts) Create(ctx context.Context, actor access.Actor, name, password string, role access.Role) (Account, error) {
	if err := actor.Check(access.ManageUsers); err != nil {
		return Account{}, err
	}
	name = strings.ToLower(name)
	if err := errors.Join(checkName(name), checkPassword(password), checkRole(role)); err != nil {
		return Account{}, err
	}
	hash, err := hashPassword(password)
	if err != nil {
		return Account{}, err
	}
	var made Account
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlAccountCreate, pgx.NamedArgs{"name": name, "hash": hash, "role": role})
		if err != nil {
			return err
		}
		if made, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Account]); err != nil {
			return existing(err)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "user.created", Target: "user/" + name, Detail: map[string]any{"role": role}})
	})
	if err != nil {
		return Account{}, fmt.Errorf("create account %s: %w", name, err)
	}
	return made, nil
}

const sqlAccountList = `
SELECT id, name, role, created_at, disabled_at, last_login_at
FROM app_user
ORDER BY name`

// List returns all accounts by name, the disabled ones included.
func (a *Accounts) List(ctx context.Context, actor access.Actor) ([]Account, error) {
	if err := actor.Check(access.ManageUsers); err != nil {
		return nil, err
	}
	rows, err := a.pool.Query(ctx, sqlAccountList)
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Account])
}

const sqlAccountDisable = `
UPDATE app_user SET disabled_at = now(), session_epoch = session_epoch + 1
WHERE name = @name AND disabled_at IS NULL`

// Disable ends the account's sessions and tokens at once and lets nobody sign in
// with it. Disabling twice changes nothing. Errors: ErrNoAccount, ErrLastAdmin.
func (a *Accounts) Disable(ctx context.Context, actor access.Actor, name string) error {
	return a.change(ctx, actor, name, "user.disabled", nil, func(tx pgx.Tx, was Account) error {
		if err := keepAnAdmin(ctx, tx, was, ""); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlAccountDisable, pgx.NamedArgs{"name": was.Name})
		return err
	})
}

const sqlAccountEnable = `UPDATE app_user SET disabled_at = NULL WHERE name = @name`

// Enable lets a disabled account sign in again, with its old password and role.
func (a *Accounts) Enable(ctx context.Context, actor access.Actor, name string) error {
	return a.change(ctx, actor, name, "user.enabled", nil, func(tx pgx.Tx, was Account) error {
		_, err := tx.Exec(ctx, sqlAccountEnable, pgx.NamedArgs{"name": was.Name})
		return err
	})
}

const sqlAccountRole = `
UPDATE app_user SET role = @role, session_epoch = session_epoch + 1
WHERE name = @name AND role <> @role`

// SetRole changes the role and ends the account's sessions. Its tokens stay, with
// at most the new role. Errors: ErrNoAccount, ErrBadRole, ErrLastAdmin.
func (a *Accounts) SetRole(ctx context.Context, actor access.Actor, name string, role access.Role) error {
	if err := checkRole(role); err != nil {
		return err
	}
	detail := map[string]any{"role": role}
	return a.change(ctx, actor, name, "user.role_set", detail, func(tx pgx.Tx, was Account) error {
		if err := keepAnAdmin(ctx, tx, was, role); err != nil {
			return err
		}
		detail["was"] = was.Role
		_, err := tx.Exec(ctx, sqlAccountRole, pgx.NamedArgs{"name": was.Name, "role": role})
		return err
	})
}

const sqlAccountPassword = `
UPDATE app_user SET password_hash = @hash, session_epoch = session_epoch + 1
WHERE name = @name`

// SetPassword replaces the password and ends the account's sessions. Errors:
// ErrNoAccount, ErrBadPassword.
func (a *Accounts) SetPassword(ctx context.Context, actor access.Actor, name, password string) error {
	if err := checkPassword(password); err != nil {
		return err
	}
	hash, err := hashPassword(password)
	if err != nil {
		return err
	}
	return a.change(ctx, actor, name, "user.password_set", nil, func(tx pgx.Tx, was Account) error {
		_, err := tx.Exec(ctx, sqlAccountPassword, pgx.NamedArgs{"name": was.Name, "hash": hash})
		return err
	})
}

// change runs one command on one account: check, lock, do, write down.
func (a *Accounts) change(ctx context.Context, actor access.Actor, name, action string, detail map[string]any, do func(pgx.Tx, Account) error) error {
	if err := actor.Check(access.ManageUsers); err != nil {
		return err
	}
	name = strings.ToLower(name)
	err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		was, err := lockAccount(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := do(tx, was); err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: action, Target: "user/" + name, Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, name, err)
	}
	return nil
}

const sqlAccountLock = `
SELECT id, name, role, created_at, disabled_at, last_login_at
FROM app_user
WHERE name = @name
FOR UPDATE`

func lockAccount(ctx context.Context, tx pgx.Tx, name string) (Account, error) {
	rows, err := tx.Query(ctx, sqlAccountLock, pgx.NamedArgs{"name": name})
	if err != nil {
		return Account{}, err
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Account])
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, ErrNoAccount
	}
	return found, err
}

// sqlAdmins locks all admins in one order, so that two of them cannot take each
// other's role at once.
const sqlAdmins = `
SELECT id FROM app_user
WHERE role = 'admin' AND disabled_at IS NULL
ORDER BY id
FOR UPDATE`

// keepAnAdmin refuses to take the role from the last admin that can sign in.
func keepAnAdmin(ctx context.Context, tx pgx.Tx, was Account, becomes access.Role) error {
	if was.Role != access.Admin || was.DisabledAt != nil || becomes == access.Admin {
		return nil
	}
	rows, err := tx.Query(ctx, sqlAdmins)
	if err != nil {
		return err
	}
	admins, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	if len(admins) < 2 {
		return ErrLastAdmin
	}
	return nil
}

var accountName = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`)

func checkName(name string) error {
	if !accountName.MatchString(name) {
		return fmt.Errorf("%w: %.80q", ErrBadName, name)
	}
	return nil
}

func checkPassword(password string) error {
	if n := utf8.RuneCountInString(password); n < 8 || n > 128 {
		return ErrBadPassword
	}
	return nil
}

func checkRole(role access.Role) error {
	if !slices.Contains(access.Roles, role) {
		return fmt.Errorf("%w: %.80q", ErrBadRole, role)
	}
	return nil
}

func existing(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" {
		return ErrAccountExists
	}
	return err
}
