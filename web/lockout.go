package web

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lockWindow is how long failed log-ins are remembered, from the first one on,
// and so when a lock ends.
const lockWindow = 15 * time.Minute

// How many log-ins may fail within the window. The account's own limit is higher
// than that of account and address together, so that a stranger elsewhere cannot
// cheaply lock somebody out.
const (
	triesPair    = 5
	triesAccount = 50
	triesAddress = 50
)

// lockedError says until when nobody may try.
type lockedError struct{ until time.Time }

func (e *lockedError) Error() string {
	return "web: log-in locked until " + e.until.UTC().Format(time.RFC3339)
}

// logins counts the log-ins that failed: app_user_attempt.
type logins struct {
	pool *pgxpool.Pool
	now  func() time.Time
}

func newLogins(pool *pgxpool.Pool, clock func() time.Time) *logins {
	return &logins{pool: pool, now: clock}
}

// sqlAttempt counts one more try in each window, or begins a new one.
const sqlAttempt = `
INSERT INTO app_user_attempt AS a (key, failures, since)
SELECT key, 1, @now FROM unnest(@keys::text[]) AS key
ON CONFLICT (key) DO UPDATE SET
  failures = CASE WHEN a.since <= @horizon THEN 1 ELSE a.failures + 1 END,
  since    = CASE WHEN a.since <= @horizon THEN @now ELSE a.since END
RETURNING key, failures, since`

const sqlAttemptsForget = `DELETE FROM app_user_attempt WHERE since < @horizon`

// begin counts the attempt before the password is looked at, so that guesses
// sent side by side cannot pass the limit. It returns *lockedError beyond it,
// for accounts that do not exist as well.
func (l *logins) begin(ctx context.Context, name, addr string) error {
	limits := attemptKeys(name, addr)
	keys := make([]string, 0, len(limits))
	for key := range limits {
		keys = append(keys, key)
	}
	slices.Sort(keys) // one order for all: no deadlock
	now := l.now().UTC()
	horizon := now.Add(-lockWindow)
	if _, err := l.pool.Exec(ctx, sqlAttemptsForget, pgx.NamedArgs{"horizon": horizon.Add(-lockWindow)}); err != nil {
		return fmt.Errorf("forget old log-in attempts: %w", err)
	}
	rows, err := l.pool.Query(ctx, sqlAttempt, pgx.NamedArgs{"keys": keys, "now": now, "horizon": horizon})
	if err != nil {
		return fmt.Errorf("count log-in attempt: %w", err)
	}
	var locked *lockedError
	var key string
	var failures int
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &failures, &since}, func() error {
		until := since.Add(lockWindow)
		if failures > limits[key] && (locked == nil || until.After(locked.until)) {
			locked = &lockedError{until: until}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("count log-in attempt: %w", err)
	}
	if locked != nil {
		return locked
	}
	return nil
}

// sqlAttemptsLock takes the rows in the order in which begin does.
const sqlAttemptsLock = `
SELECT key FROM app_user_attempt
WHERE key = ANY(@keys)
ORDER BY key COLLATE "C"
FOR UPDATE`

const sqlAttemptsCleared = `DELETE FROM app_user_attempt WHERE key = ANY(@locked) AND key <> @address`

const sqlAttemptTakenBack = `UPDATE app_user_attempt SET failures = failures - 1 WHERE key = ANY(@locked) AND key = @address`

// succeeded forgets the account's failures and takes this one attempt off the
// address, whose other failures stay counted. It touches only rows that it has
// locked: one that another attempt has just made belongs to that one, and to
// wait for it could be a deadlock.
func (l *logins) succeeded(ctx context.Context, tx pgx.Tx, name, addr string) error {
	address := attemptKey("address", addr)
	keys := []string{attemptKey("pair", name, addr), attemptKey("account", name), address}
	rows, err := tx.Query(ctx, sqlAttemptsLock, pgx.NamedArgs{"keys": keys})
	if err != nil {
		return fmt.Errorf("lock log-in attempts: %w", err)
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("lock log-in attempts: %w", err)
	}
	for _, sql := range []string{sqlAttemptTakenBack, sqlAttemptsCleared} {
		if _, err := tx.Exec(ctx, sql, pgx.NamedArgs{"locked": locked, "address": address}); err != nil {
			return fmt.Errorf("clear log-in attempts: %w", err)
		}
	}
	return nil
}

func attemptKeys(name, addr string) map[string]int {
	return map[string]int{
		attemptKey("pair", name, addr): triesPair,
		attemptKey("account", name):    triesAccount,
		attemptKey("address", addr):    triesAddress,
	}
}

// attemptKey is a hash: the name may be a mistyped password.
func attemptKey(kind string, parts ...string) string {
	parts[len(parts)-1] = network(parts[len(parts)-1])
	return kind + ":" + hexHash(strings.Join(parts, "\x00"))
}

// network is the /64 of an IPv6 address, which one person has for themselves;
// anything else stays.
func network(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil || !ip.Is6() || ip.Is4In6() {
		return addr
	}
	net, _ := ip.Prefix(64) // 64 is in range for IPv6
	return net.String()
}

// storable keeps what PostgreSQL refuses as text out of queries; nobody's name
// looks like the result.
func storable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return ""
	}
	return name
}
