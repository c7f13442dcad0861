package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const sqlWaiting = `
SELECT no, seg_from, seg_to, tries FROM reconcile_segment
WHERE run_id = @run AND state = 0 ORDER BY no LIMIT @limit`

// todo is a segment to compare.
type todo struct {
	No       int
	From, To time.Time
	Tries    int
}

func (t todo) interval() interval { return interval{t.From.UnixMicro(), t.To.UnixMicro()} }

func (s *step) waiting(ctx context.Context) ([]todo, error) {
	rows, err := s.r.pool.Query(ctx, sqlWaiting, pgx.NamedArgs{"run": s.id, "limit": s.job.Limits.Parallel})
	if err != nil {
		return nil, fmt.Errorf("query segments of run %d: %w", s.id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[todo])
	if err != nil {
		return nil, fmt.Errorf("read segments of run %d: %w", s.id, err)
	}
	return all, nil
}

// compareAll compares segments side by side. An error of one is that segment's;
// what is returned is of the console's own database, or the end of ctx.
func (s *step) compareAll(ctx context.Context, segments []todo) error {
	most, err := s.room(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, seg := range segments {
		group.Go(func() error { return s.compare(ctx, seg, most/len(segments)) })
	}
	return group.Wait()
}

const sqlRoom = `SELECT count(*) FROM reconcile_run_break WHERE run_id = @run AND what <> 3`

// room is how many more breaks the run may find.
func (s *step) room(ctx context.Context) (int, error) {
	var have int
	if err := s.r.pool.QueryRow(ctx, sqlRoom, pgx.NamedArgs{"run": s.id}).Scan(&have); err != nil {
		return 0, fmt.Errorf("count breaks of run %d: %w", s.id, err)
	}
	return max(s.job.Limits.Breaks-have, 0), nil
}

// mostTries is how often a segment is read before it is given up: a query that
// a replica cancels is nothing to worry about, one that always fails is.
const mostTries = 3

var errRunTime = errors.New("the run has taken longer than limits.run")

func (s *step) compare(ctx context.Context, seg todo, most int) error {
	began := time.Now()
	within, cancel := context.WithDeadlineCause(ctx, s.started.Add(s.job.Limits.Run), errRunTime)
	defer cancel()
	o, err := s.c.assess(within, seg.interval(), s.r.opts.Clock(), most)
	took := time.Since(began)
	s.took(took)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && within.Err() != nil:
		return s.giveUp(ctx, seg, errRunTime, true)
	case err != nil && tooSlow(err, took, s.job.Limits.Statement) && seg.divisible():
		return s.split(ctx, seg, err)
	case err != nil:
		return s.giveUp(ctx, seg, err, seg.Tries+1 >= mostTries)
	}
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		if err := s.bookSegment(ctx, tx, seg, o, took); err != nil {
			return fmt.Errorf("book segment %d of run %d: %w", seg.No, s.id, err)
		}
		return nil
	})
	if errors.Is(err, errUnkept) {
		return s.giveUp(ctx, seg, err, true)
	}
	return err
}

const sqlGiveUp = `
UPDATE reconcile_segment SET tries = tries + 1, error = @error, state = CASE WHEN @final THEN 2 ELSE 0 END
WHERE run_id = @run AND no = @no`

func (s *step) giveUp(ctx context.Context, seg todo, why error, final bool) error {
	return s.fenced(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlGiveUp, pgx.NamedArgs{"run": s.id, "no": seg.No, "error": why.Error(), "final": final})
		if err != nil {
			return err
		}
		return note(ctx, tx, s.id, fmt.Sprintf("segment %s to %s could not be compared: %v", seg.From.UTC().Format(time.RFC3339), seg.To.UTC().Format(time.RFC3339), why))
	})
}

const sqlSegmentDone = `
UPDATE reconcile_segment SET state = 1, tally = @tally, cut = @cut, error = NULL, done_at = now(), took_ms = @took
WHERE run_id = @run AND no = @no AND state = 0`

// bookSegment keeps what a segment came to, with its breaks: both or neither.
func (s *step) bookSegment(ctx context.Context, tx pgx.Tx, seg todo, o *outcome, took time.Duration) error {
	if err := s.spend(ctx, tx, o); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, sqlSegmentDone, pgx.NamedArgs{"run": s.id, "no": seg.No, "tally": o.tally, "cut": o.more, "took": took.Milliseconds()})
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	if err := alone(ctx, tx, s.job.Name); err != nil {
		return err
	}
	return newBooking(s.id, s.job.Name, s.job.Key).book(ctx, tx, o.findings)
}

const sqlSpared = `
SELECT s.key, sum(s.value::numeric)::text FROM reconcile_segment, jsonb_each_text(tally->'Spared') s
WHERE run_id = @run AND state = 1 GROUP BY 1`

// spend lets small differences pass within what the run's cap has left. The fence
// holds the run's row, so segments are booked one after another.
func (s *step) spend(ctx context.Context, tx pgx.Tx, o *outcome) error {
	spent := map[string]Amount{}
	rows, err := tx.Query(ctx, sqlSpared, pgx.NamedArgs{"run": s.id})
	if err != nil {
		return fmt.Errorf("query what tolerances let pass: %w", err)
	}
	var currency string
	var amount Amount
	_, err = pgx.ForEachRow(rows, []any{&currency, &amount}, func() error {
		spent[currency] = amount
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what tolerances let pass: %w", err)
	}
	o.spend(s.job.Tolerance.RunTotalCap, spent)
	return nil
}
