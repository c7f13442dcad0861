package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"oncemore/consumer"
)

var _ consumer.KeyStore[Tx] = (*Store)(nil)

// The names are hashes: a lock's name has at most 64 characters, is compared
// without regard to case and belongs to the whole server. The first lock that is
// not to be had ends the AND.
const (
	sqlLockKeys = `SELECT COALESCE(%s, 0)`
	lockKey     = `GET_LOCK(SHA2(CONCAT(DATABASE(), '/', ?), 256), %s)`

	sqlUnlockKeys = `DO RELEASE_ALL_LOCKS()`
)

// errKeyHeld is contention: another transaction has one of the keys.
var errKeyHeld = errors.New("a key is locked by another transaction for longer than the lock time-out")

// ClaimKeys is Claim behind locked keys. The locks are named ones of the server
// (GET_LOCK), taken in the order of the keys before any row is touched, and given
// back when the transaction has ended; the server does so when the connection is
// lost. Why not rows: FOR UPDATE of a row that does not exist yet locks at most
// the gap, which two transactions may have at once and then deadlock in, and at
// READ COMMITTED it locks nothing. A table of keys would need a row per key, made,
// locked and swept, or slots that unrelated keys share.
//
// They bind only those who take them: other programs that write the same rows
// have to ask for them as well, on the connection and in the order of the keys,
//
//	SELECT GET_LOCK(SHA2(CONCAT(DATABASE(), '/', 'user/7'), 256), 3)
//
// or handlers have to lock the rows, too. They belong to one server: in a
// Galera cluster or a replication group all who share keys have to write to the
// same node, and a proxy must not share sessions. MySQL 5.7 or MariaDB 10.0.2.
func (s *Store) ClaimKeys(ctx context.Context, group string, ids, keys []string) (consumer.Claim[Tx], error) {
	c, err := s.begin(ctx)
	if err != nil {
		return nil, consumer.Unavailable(fmt.Errorf("connect to claim for %s: %w", group, err))
	}
	if err := c.lock(ctx, keys, s.wait); err != nil {
		c.Rollback(ctx)
		return nil, blameClaim(fmt.Errorf("lock %d keys for %s: %w", len(keys), group, err))
	}
	if c.bare = s.bare; c.bare {
		return c, nil
	}
	if err = s.record(ctx, c, group, ids); err != nil {
		c.Rollback(ctx)
		return nil, blameClaim(fmt.Errorf("claim %d events for %s: %w", len(ids), group, err))
	}
	return c, nil
}

// record inserts the records, and looks whether they are in the archive.
func (s *Store) record(ctx context.Context, c *claim, group string, ids []string) (err error) {
	c.fresh, err = c.insert(ctx, group, slices.Sorted(slices.Values(ids)))
	if err != nil || s.archive == nil || s.archive.SkipProbe {
		return err
	}
	return c.probe(ctx, group)
}

// lock takes the keys, each within wait.
func (c *claim) lock(ctx context.Context, keys []string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.tx.limit)
	defer cancel()
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	one := fmt.Sprintf(lockKey, strconv.FormatFloat(wait.Seconds(), 'f', 3, 64))
	for some := range slices.Chunk(keys, perStatement) {
		c.locked = true
		args := make([]any, len(some))
		for i, key := range some {
			args[i] = key
		}
		var got bool
		locks := one + strings.Repeat(" AND "+one, len(some)-1)
		if err := c.tx.conn.QueryRowContext(ctx, fmt.Sprintf(sqlLockKeys, locks), args...).Scan(&got); err != nil {
			return err
		}
		if !got {
			return consumer.Contention(errKeyHeld)
		}
	}
	return nil
}

// unlock gives the keys back. A connection that cannot is closed, which does so too.
func (c *claim) unlock(ctx context.Context) {
	if !c.locked {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := c.tx.conn.ExecContext(ctx, sqlUnlockKeys); err != nil {
		c.log.Debug("keys not unlocked, closing the connection", "error", err)
		c.tx.discard()
	}
}
