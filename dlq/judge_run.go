package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	judgeLock     = 7_113_204_102    // one process at a time judges in the background
	judgeBatch    = 500              // letters judged together
	judgeTick     = time.Second      // between rounds that had nothing to do
	unsettledWait = 30 * time.Second // how soon a verdict that passes by itself is asked again
)

// RunJudge judges new letters within about two seconds, letters that were
// Unknown or InFlight again after half a minute, and all other open ones when
// their verdict is older than olderThan. One process of several does the work.
func (j *Judge) RunJudge(ctx context.Context, log *slog.Logger, olderThan time.Duration) {
	failing := false
	for ctx.Err() == nil {
		err := j.judgeWhileLocked(ctx, olderThan)
		if err != nil && !failing && ctx.Err() == nil { // once per outage, not each second
			log.WarnContext(ctx, "letters not judged", "error", err)
		}
		failing = err != nil
		wait(ctx, judgeTick)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// judgeWhileLocked works as long as this process holds the lock, which ends
// with the connection. It returns at once when another process has it.
func (j *Judge) judgeWhileLocked(ctx context.Context, olderThan time.Duration) error {
	conn, err := j.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to judge: %w", err)
	}
	defer conn.Release()
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", judgeLock).Scan(&mine); err != nil || !mine {
		return err
	}
	defer unlock(ctx, conn)
	s := sweep{judge: j, origins: NewOrigins(j.pool, j.topo), olderThan: olderThan}
	for ctx.Err() == nil {
		if err := conn.Ping(ctx); err != nil {
			return fmt.Errorf("hold the judge's lock: %w", err)
		}
		busy, err := s.round(ctx)
		if err != nil {
			return err
		}
		if !busy {
			wait(ctx, judgeTick)
		}
	}
	return nil
}

func unlock(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", judgeLock); err != nil {
		_ = conn.Conn().Close(ctx) // the lock goes with the connection
	}
}

// sweep is the background work of one lock holder.
type sweep struct {
	judge     *Judge
	origins   *Origins
	olderThan time.Duration
	unsettled time.Time // when letters that were not settled were last looked for
	after     uuid.UUID // how far the walk over all open letters is
}

// round judges one batch of each kind. busy means that new letters still wait.
func (s *sweep) round(ctx context.Context) (busy bool, err error) {
	fresh, err := s.byVerdict(ctx, []Verdict{0}, s.judge.clock())
	if err != nil {
		return false, err
	}
	if err := s.judgeAndSave(ctx, fresh, true); err != nil {
		return false, err
	}
	if len(fresh) == judgeBatch {
		return true, nil
	}
	if now := s.judge.clock(); now.Sub(s.unsettled) >= unsettledWait/6 {
		s.unsettled = now
		again, err := s.byVerdict(ctx, []Verdict{Unknown, InFlight}, now.Add(-unsettledWait))
		if err != nil {
			return false, err
		}
		if err := s.judgeAndSave(ctx, again, false); err != nil {
			return false, err
		}
	}
	old, err := s.nextOld(ctx)
	if err != nil {
		return false, err
	}
	return false, s.judgeAndSave(ctx, old, false)
}

// sqlByVerdict lets the counters say which faults have such letters, so that the
// many settled ones are not read.
const sqlByVerdict = `
WITH c AS (
  SELECT fault_id, sum(n) AS n FROM (
    SELECT fault_id, n FROM fault_count WHERE state = 1 AND verdict = ANY(@verdicts) AND n <> 0
    UNION ALL SELECT fault_id, n FROM fault_delta WHERE state = 1 AND verdict = ANY(@verdicts)) u
  GROUP BY fault_id HAVING sum(n) > 0)
SELECT l.id FROM c CROSS JOIN LATERAL (
  SELECT d.id FROM dead_letter d
  WHERE d.fault_id = c.fault_id AND d.state = 1 AND d.verdict = ANY(@verdicts)
    AND (d.verdict_at IS NULL OR d.verdict_at < @before)
  ORDER BY d.id DESC LIMIT least(c.n, @batch)) l
LIMIT @batch`

func (s *sweep) byVerdict(ctx context.Context, verdicts []Verdict, before time.Time) ([]uuid.UUID, error) {
	values := make([]int16, len(verdicts))
	for i, v := range verdicts {
		values[i] = int16(v)
	}
	rows, err := s.judge.pool.Query(ctx, sqlByVerdict, pgx.NamedArgs{"verdicts": values, "before": before, "batch": judgeBatch})
	if err != nil {
		return nil, fmt.Errorf("query letters to judge: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read letters to judge: %w", err)
	}
	return ids, nil
}

const sqlNextOpen = `
SELECT id, verdict_at < @before FROM dead_letter
WHERE state = 1 AND id > @after ORDER BY id LIMIT @batch`

// nextOld takes the next part of the walk over all open letters and gives those
// whose verdict is old.
func (s *sweep) nextOld(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := s.judge.pool.Query(ctx, sqlNextOpen, pgx.NamedArgs{
		"after": s.after, "before": s.judge.clock().Add(-s.olderThan), "batch": judgeBatch})
	if err != nil {
		return nil, fmt.Errorf("query open letters: %w", err)
	}
	var ids []uuid.UUID
	var id uuid.UUID
	var old *bool
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &old}, func() error {
		n++
		s.after = id
		if old != nil && *old {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read open letters: %w", err)
	}
	if n < judgeBatch {
		s.after = uuid.Nil // from the start again
	}
	return ids, nil
}

// judgeAndSave judges letters. New ones of unknown time are looked up at their
// origin first, since evidence can only be trusted for a known time.
func (s *sweep) judgeAndSave(ctx context.Context, ids []uuid.UUID, fresh bool) error {
	if len(ids) == 0 {
		return nil
	}
	subjects, err := s.judge.Subjects(ctx, ids)
	if err != nil {
		return err
	}
	if fresh {
		if err := s.dateByOrigin(ctx, subjects); err != nil {
			return err
		}
	}
	judged, err := s.judge.Judge(ctx, subjects, ToSafe)
	if err != nil {
		return err
	}
	return s.judge.Save(ctx, judged)
}

// dateByOrigin gives subjects without a time that of their origin record.
func (s *sweep) dateByOrigin(ctx context.Context, subjects []Subject) error {
	var undated []Subject
	for _, subject := range subjects {
		if _, _, named := subject.place(); named && subject.EventTime == nil {
			undated = append(undated, subject)
		}
	}
	if len(undated) == 0 {
		return nil
	}
	found, err := s.origins.Originals(ctx, undated)
	if err != nil {
		return err
	}
	for i := range subjects {
		if o := found[subjects[i].LetterID]; subjects[i].EventTime == nil && o.Usable() {
			subjects[i].EventTime = &o.Timestamp
			subjects[i].Flags &^= FlagEventTimeFuture
		}
	}
	return s.origins.save(ctx, found)
}
