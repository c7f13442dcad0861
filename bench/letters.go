package bench

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"oncemore/dlq"
	"oncemore/internal/embedded"
	"oncemore/migrations"
)

const (
	lettersDays    = 180 // over which the letters arrived
	lettersPart    = 50_000
	lettersWriters = 2
	lettersFull    = 0.1 // share of letters with a whole body, in the months before the newest
)

// Letters fills the console's tables with so many letters and measures pages for
// twenty people, and a drain next to COPY into the same tables. A database that
// is named stays, and is filled only once.
func (e Env) Letters(ctx context.Context, letters int, keep string, open Open) error {
	pool, end, err := e.kept(ctx, keep)
	if err != nil {
		return err
	}
	defer end()
	if err := e.fill(ctx, pool, letters); err != nil {
		return err
	}
	if err := e.pages(ctx, pool, open); err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	return e.drainInto(ctx, pool)
}

// kept is migrated, or the database of that name, which stays.
func (e Env) kept(ctx context.Context, name string) (*pgxpool.Pool, func(), error) {
	if name == "" {
		return e.migrated(ctx)
	}
	url, err := embedded.EnsureDatabase(ctx, e.Postgres, name)
	if err != nil {
		return nil, nil, err
	}
	pool, err := openPool(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, pool.Close, nil
}

const sqlFilled = `select coalesce(sum(n), 0) from fault_count`

// fill fills an empty database; one that is full already stays as it is.
func (e Env) fill(ctx context.Context, pool *pgxpool.Pool, letters int) error {
	var there int
	if err := pool.QueryRow(ctx, sqlFilled).Scan(&there); err != nil {
		return fmt.Errorf("count the letters that are there: %w", err)
	}
	began, did := time.Now(), "found"
	if there == 0 {
		if err := fillLetters(ctx, pool, letters); err != nil {
			return err
		}
		there, did = letters, "filled"
	}
	_, err := fmt.Fprintf(e.Out, "letters: %d %s in %s\n", there, did, time.Since(began).Round(time.Second))
	return err
}

// Two thousand faults of 60 sources, 40 groups, 300 classes and 6 dialects.
const (
	sqlFillSources = `insert into letter_source (cluster, broker, name) select 'bench', 1, 'order.paid.' || n || '.DLT' from generate_series(1, 60) n`
	sqlFillNames   = `
insert into letter_name (kind, name)
select kind, prefix || n from (values (1, 'group-', 40), (2, 'com.shop.points.RuleException', 300), (3, 'order.paid.', 60), (5, 'dialect-', 6)) k(kind, prefix, most)
cross join lateral generate_series(1, most) n order by kind, n`
	sqlFillFaults = `
with name as (select kind, id, row_number() over (partition by kind order by id) - 1 as no from letter_name)
insert into fault (fingerprint, source_id, origin_id, group_id, class_id, dialect_id, message, first_seen, last_seen)
select md5(f::text)::uuid, 1 + f * 7 % 60, o.id, g.id, c.id, d.id, 'Could not apply points for order #: account # is locked by another transaction, variant ' || f, now(), now()
from generate_series(1, 2000) f
join name o on o.kind = 3 and o.no = f * 7 % 60 join name g on g.kind = 1 and g.no = f * 11 % 40
join name c on c.kind = 2 and c.no = f * 13 % 300 join name d on d.kind = 5 and d.no = f % 6 order by f`
	sqlFillMonth = `call letter_add_month(now() - make_interval(months => $1))`
)

// What the counters would hold.
const (
	sqlFillCounts = `insert into fault_count select fault_id, state, verdict, count(*) from dead_letter group by 1, 2, 3`
	sqlFillHours  = `
insert into fault_hour (fault_id, hour, n) select fault_id, date_trunc('hour', failed_at), count(*) from dead_letter
where id > letter_month(now() - interval '3 days') group by 1, 2`
	sqlFillTotals = `
update fault f set first_seen = d.first, last_seen = d.last, open_n = d.o, replaying_n = d.p, resolved_n = d.r, discarded_n = d.x
from (select fault_id, min(failed_at) as first, max(failed_at) as last, count(*) filter (where state = 1) as o, count(*) filter (where state = 2) as p,
  count(*) filter (where state = 3) as r, count(*) filter (where state = 4) as x from dead_letter group by 1) d where d.fault_id = f.id`
	sqlFillTokens = `
insert into letter_token_position (last_id, moved_at) select id, now() from (select id from dead_letter order by id desc limit 1) d
on conflict (one) do update set last_id = excluded.last_id, moved_at = excluded.moved_at`
)

//go:embed letters_fill.sql
var sqlFillPart string

func fillLetters(ctx context.Context, pool *pgxpool.Pool, letters int) error {
	for _, sql := range []string{sqlFillSources, sqlFillNames, sqlFillFaults} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	for back := range lettersDays/28 + 1 {
		if _, err := pool.Exec(ctx, sqlFillMonth, back); err != nil {
			return fmt.Errorf("fill: make a month: %w", err)
		}
	}
	parts, partsCtx := errgroup.WithContext(ctx)
	parts.SetLimit(lettersWriters)
	for from := 0; from < letters; from += lettersPart {
		parts.Go(func() error { return fillPart(partsCtx, pool, from, min(from+lettersPart, letters), letters) })
	}
	if err := parts.Wait(); err != nil {
		return err
	}
	for _, sql := range []string{sqlFillCounts, sqlFillHours, sqlFillTotals, sqlFillTokens, "vacuum analyze"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

func fillPart(ctx context.Context, pool *pgxpool.Pool, from, to, letters int) error {
	args := pgx.NamedArgs{"from": from, "to": to, "total": letters, "days": lettersDays, "full": lettersFull,
		"headers": storedHeaders(""), "stack": storedHeaders(deadStack)}
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for sql := range strings.SplitSeq(sqlFillPart, ";\n") {
			if _, err := tx.Exec(ctx, sql, args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill letters %d to %d: %w", from, to, err)
	}
	return nil
}

// storedHeaders are as the drain stores those of Spring Kafka.
func storedHeaders(stack string) []byte {
	headers := []dlq.Header{
		{Name: "kafka_dlt-exception-fqcn", Value: []byte("org.springframework.kafka.listener.ListenerExecutionFailedException")},
		{Name: "kafka_dlt-original-topic", Value: []byte("order.paid.1")},
		{Name: "kafka_dlt-original-consumer-group", Value: []byte("group-1")},
		{Name: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")},
	}
	if stack != "" {
		headers = append(headers, dlq.Header{Name: "kafka_dlt-exception-stacktrace", Value: []byte(stack)})
	}
	return dlq.EncodeHeaders(headers)
}
