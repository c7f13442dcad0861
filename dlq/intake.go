package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/dlq/dialect"
)

// intake stores dead letters: what a drain does after the fetch.
type intake struct {
	pool     *pgxpool.Pool
	cluster  string
	dialects *dialect.Set
	names    *names
	log      *slog.Logger
	pause    func() // before the commit; for crash tests
}

func newIntake(pool *pgxpool.Pool, cluster string, dialects *dialect.Set, log *slog.Logger) *intake {
	return &intake{pool: pool, cluster: cluster, dialects: dialects, names: newNames(pool), log: log, pause: func() {}}
}

// taking is the first part of a commit: it takes hold of what was read, and says
// by the database's clock when, and which arrivals are to be stored.
type taking func(ctx context.Context, tx pgx.Tx, arrivals []*arrival) (now time.Time, keep []*arrival, err error)

// commit stores the arrivals that take keeps, in one transaction with it. A month
// that is missing is made.
func (in *intake) commit(ctx context.Context, arrivals []*arrival, take taking) error {
	err := in.commitOnce(ctx, arrivals, take)
	if monthMissing(err) {
		if err := EnsureMonths(ctx, in.pool); err != nil {
			return err
		}
		err = in.commitOnce(ctx, arrivals, take)
	}
	return err
}

func (in *intake) commitOnce(ctx context.Context, arrivals []*arrival, take taking) error {
	if err := in.names.resolve(ctx, arrivals); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, in.pool, func(tx pgx.Tx) error {
		now, arrivals, err := take(ctx, tx, arrivals)
		if err != nil || len(arrivals) == 0 {
			return err
		}
		ids := newIDSource(now)
		for _, a := range arrivals {
			a.id = ids.next()
		}
		if err := in.write(ctx, tx, arrivals, now, ids); err != nil {
			return err
		}
		in.pause()
		return nil
	})
}

// write splits the arrivals into new letters and occurrences, and stores both.
func (in *intake) write(ctx context.Context, tx pgx.Tx, arrivals []*arrival, now time.Time, ids *idSource) error {
	if err := joinLineage(ctx, tx, in.cluster, arrivals); err != nil {
		return err
	}
	fresh, again, err := claimIdentities(ctx, tx, arrivals)
	if err != nil {
		return err
	}
	held, orphans, err := holdLetters(ctx, tx, fresh, again)
	if err != nil {
		return err
	}
	fresh = append(fresh, orphans...)
	if err := copyLetters(ctx, tx, fresh, now); err != nil {
		return err
	}
	deltas := newDeltas(now)
	for _, a := range fresh {
		deltas.add(a.faultID, Open, 0, 1, true)
	}
	occ := &occurrences{now: now, ids: ids, held: held, deltas: deltas}
	if err := occ.store(ctx, tx, again); err != nil {
		return err
	}
	return deltas.write(ctx, tx)
}

// letterColumns and bodyColumns are what COPY fills; the rest has defaults.
var (
	letterColumns = []string{"id", "fault_id", "source_id", "group_id", "class_id", "origin_id", "origin_partition", "origin_offset",
		"drain_partition", "drain_offset", "event_time", "failed_at", "key_hash", "attempts", "dialect_id", "flags",
		"event_id", "event_id_alt", "error_message", "state_at"}
	bodyColumns = []string{"id", "key", "value", "headers", "amqp", "origin_exchange", "origin_key"}
)

func (a *arrival) letterRow(now time.Time) []any {
	r := a.read
	at := a.eventTime(now) // may set a flag
	return []any{[16]byte(a.id), a.faultID, a.sourceID, a.groupID, a.classID, a.originID, r.OriginPartition, r.OriginOffset,
		orNull(a.from.partition), orNull(a.from.offset), at, r.FailedAt, keyHash(a.message.Key), r.Attempts, a.dialectID, int32(a.flags),
		r.EventID, r.EventIDAlt, a.errorMessage(), now}
}

// orNull makes a place that a queue does not have null.
func orNull[T int32 | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

// published is where the event was published, as the letter says; nil for Kafka,
// whose letters have it in their rows.
func (a *arrival) published() (exchange, key *string) {
	if a.from.broker != brokerRabbit || a.read.OriginExchange == nil || a.read.OriginRoutingKey == nil {
		return nil, nil
	}
	e, k := storable(*a.read.OriginExchange), storable(*a.read.OriginRoutingKey)
	return &e, &k
}

// copyLetters writes new letters with their bodies, in id order.
func copyLetters(ctx context.Context, tx pgx.Tx, fresh []*arrival, now time.Time) error {
	if len(fresh) == 0 {
		return nil
	}
	slices.SortFunc(fresh, func(a, b *arrival) int { return bytes.Compare(a.id[:], b.id[:]) })
	rows := pgx.CopyFromSlice(len(fresh), func(i int) ([]any, error) { return fresh[i].letterRow(now), nil })
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"dead_letter"}, letterColumns, rows); err != nil {
		return fmt.Errorf("copy letters: %w", err)
	}
	return copyBodies(ctx, tx, fresh, func(a *arrival) uuid.UUID { return a.id })
}

func copyBodies(ctx context.Context, tx pgx.Tx, arrivals []*arrival, id func(*arrival) uuid.UUID) error {
	rows := pgx.CopyFromSlice(len(arrivals), func(i int) ([]any, error) {
		a := arrivals[i]
		exchange, key := a.published()
		return []any{[16]byte(id(a)), a.message.Key, a.message.Value, a.headers, a.envelope, exchange, key}, nil
	})
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"dead_letter_body"}, bodyColumns, rows); err != nil {
		return fmt.Errorf("copy bodies: %w", err)
	}
	return nil
}

// dataFault reports that the database refuses what it was given, rather than being
// away, busy or in conflict: SQLSTATE classes 22 (data), 23 (constraint) and 54
// (limits).
func dataFault(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	class := pg.Code[:2]
	return class == "22" || class == "23" || class == "54"
}

// monthMissing reports a row whose month has no partition yet, which PostgreSQL
// calls a check violation.
func monthMissing(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}
