package bench

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/pgstore"
	"oncemore/interop"
)

const (
	springRecords = 50_000
	springGoal    = 5
)

// Spring measures a group beside the Spring application of interop, which
// acknowledges once a poll, its faster mode: the same topic, tables and rows, one
// after the other. Each is timed from its first record to its last, so that
// neither a JVM's start nor the joining of a group counts.
func (e Env) Spring(ctx context.Context, jar string, partitions int32) error {
	rounds := e.Rounds
	if rounds == 0 {
		rounds = 3
	}
	var theirs []float64
	ours, ratios := make([][]float64, len(ways)), make([][]float64, len(ways))
	for range rounds {
		spring, own, err := e.springRound(ctx, jar, partitions)
		if err != nil {
			return fmt.Errorf("beside Spring, %d partitions: %w", partitions, err)
		}
		theirs = append(theirs, spring)
		for i, r := range own {
			ours[i], ratios[i] = append(ours[i], r), append(ratios[i], r/spring)
		}
	}
	for i, w := range ways {
		name := consumeName(w.name+"_vs_spring", partitions)
		_, err := fmt.Fprintf(e.Out, "%s: %.0f/s, Spring %.0f/s (medians of %d)\nRATIO %s %.1f goal >= %d\n",
			name, median(ours[i]), median(theirs), rounds, name, median(ratios[i]), springGoal)
		if err != nil {
			return err
		}
	}
	return nil
}

// springRound gives records per second of Spring and of each of our ways.
func (e Env) springRound(ctx context.Context, jar string, partitions int32) (spring float64, own []float64, err error) {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer drop()
	if err := openAccounts(ctx, pool); err != nil {
		return 0, nil, err
	}
	topic := unique("bench-spring")
	remove, err := e.topic(ctx, topic, partitions, orders(springRecords))
	if err != nil {
		return 0, nil, err
	}
	defer remove()
	took, err := runSpring(ctx, interop.Spring{
		Jar: jar, Kafka: e.Kafka, Postgres: pool.Config().ConnString(), Topic: topic, Group: unique("spring"),
		Concurrency: int(partitions), Expect: springRecords,
	})
	if err != nil {
		return 0, nil, err
	}
	for _, w := range ways {
		member, err := e.member(pool, topic, w.set)
		if err != nil {
			return 0, nil, err
		}
		r, err := timeMember(ctx, member, springRecords)
		if err != nil {
			return 0, nil, err
		}
		own = append(own, r.perSecond())
	}
	return rate{springRecords, took}.perSecond(), own, checkPoints(ctx, pool, 1+len(ways))
}

const sqlOpenAccounts = `insert into user_points select n::text, 0 from generate_series(0, $1 - 1) n`

// openAccounts makes the rows that all ways add to.
func openAccounts(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, sqlOpenAccounts, consumeUsers); err != nil {
		return fmt.Errorf("open accounts: %w", err)
	}
	return nil
}

const sqlPoints = `select (select count(*) from ` + pgstore.Table + `), (select sum(points) from user_points)`

// checkPoints fails a run in which somebody was fast by doing less.
func checkPoints(ctx context.Context, pool *pgxpool.Pool, groups int) error {
	var records, points int64
	if err := pool.QueryRow(ctx, sqlPoints).Scan(&records, &points); err != nil {
		return fmt.Errorf("count effects: %w", err)
	}
	if want := int64(groups * springRecords); records != want || points != 100*want {
		return fmt.Errorf("%d records and %d points, want %d and %d", records, points, want, 100*want)
	}
	return nil
}

var springDone = regexp.MustCompile(`DONE \d+ records in ([0-9.]+) s`)

// runSpring runs the application until it has its records. It says itself how
// long they took.
func runSpring(ctx context.Context, app interop.Spring) (time.Duration, error) {
	cmd, err := app.Command(ctx)
	if err != nil {
		return 0, err
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("the Spring application: %w: %s", err, log.Bytes())
	}
	m := springDone.FindSubmatch(log.Bytes())
	if m == nil {
		return 0, fmt.Errorf("the Spring application ended without a figure: %s", log.Bytes())
	}
	seconds, err := strconv.ParseFloat(string(m[1]), 64)
	return time.Duration(seconds * float64(time.Second)), err
}
