package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// pausedBy is replay.paused_by.
const (
	pausedByUser int16 = iota + 1
	pausedByStopRule
	pausedByRung
)

// failureOutcomes are those that the stop rule counts: what came back, was lost
// or did not arrive, and what nobody saw.
var failureOutcomes = []int16{int16(FailedAgain), int16(Swallowed), int16(NotSeen), int16(NotSent), int16(Unconfirmed)}

// onLadder pauses a replay whose failures reach the stop share, or that has come
// to the end of a rung, and passes a rung whose outcomes are good. held: nothing
// is sent in this round.
func (s *step) onLadder(ctx context.Context, st standing) (held bool, p progress, err error) {
	if st.pace.StopShare > 0 {
		if stopped, err := s.stopRule(ctx, st); stopped || err != nil {
			return true, progress{moved: true}, err
		}
	}
	if end := st.pace.rungEnd(st.rung, st.total); st.nextNo <= end {
		return false, progress{}, nil
	}
	if !st.pace.Automatic {
		return true, progress{moved: true}, s.pauseBy(ctx, pausedByRung, replayReason("reason.wait.rung_pause", "rung", st.rung+1))
	}
	return s.judgeRung(ctx, st)
}

const sqlFailures = `
SELECT count(DISTINCT item_no), count(DISTINCT item_no) FILTER (WHERE outcome IN (9, 10))
FROM replay_outcome WHERE replay_id = @id AND outcome IN (5, 6, 7, 9, 10)`

// stopRule pauses when the failures among the items tried, since a person last
// went on in spite of them, reach the share.
func (s *step) stopRule(ctx context.Context, st standing) (bool, error) {
	bad, tried, err := s.r.failed(ctx, s.id, st.sent)
	if err != nil {
		return false, err
	}
	bad, tried = bad-st.stopBad, tried-st.stopTried
	if bad <= 0 || bad*100 < st.pace.StopShare*tried {
		return false, nil
	}
	why := replayReason("reason.wait.stopped", "bad", bad, "tried", max(bad, tried), "share", st.pace.StopShare)
	return true, s.pauseBy(ctx, pausedByStopRule, why)
}

// failed counts the items that failed, and all that were tried: sent, or refused
// by the broker.
func (r *Replays) failed(ctx context.Context, id int64, sent int) (bad, tried int, err error) {
	var unsent int
	if err := r.pool.QueryRow(ctx, sqlFailures, pgx.NamedArgs{"id": id}).Scan(&bad, &unsent); err != nil {
		return 0, 0, fmt.Errorf("count failures of replay %d: %w", id, err)
	}
	return bad, sent + unsent, nil
}

const sqlRung = `
SELECT
  (SELECT count(*) FROM replay_item i WHERE i.replay_id = @id AND i.no BETWEEN @from AND @to AND i.state IN (2, 4, 5)),
  (SELECT count(DISTINCT c.item_no) FROM event_claim c WHERE c.kind = 1 AND c.holder_id = @id AND c.item_no BETWEEN @from AND @to),
  (SELECT count(DISTINCT o.item_no) FROM replay_outcome o WHERE o.replay_id = @id AND o.item_no BETWEEN @from AND @to
     AND o.outcome NOT IN (2, 3, 4) AND NOT (o.outcome = 8 AND EXISTS (
       SELECT FROM replay_override v JOIN replay_item_letter l ON l.replay_id = v.replay_id AND l.letter_id = v.letter_id
       WHERE v.replay_id = @id AND l.no = o.item_no AND v.group_id = o.group_id)))`

const sqlPassRung = `
UPDATE replay SET rung = rung + 1, wait_key = NULL, wait_text = NULL, wait_args = NULL, wait_since = NULL
WHERE id = @id AND rung = @rung`

// judgeRung waits for the outcomes of a rung, and then passes it or pauses. Good
// is applied or a duplicate; what is left without evidence counts as good only
// where a person overrode that there is none.
func (s *step) judgeRung(ctx context.Context, st standing) (held bool, p progress, err error) {
	from, to := 1, st.pace.rungEnd(st.rung, st.total)
	if st.rung > 0 {
		from = st.pace.rungEnd(st.rung-1, st.total) + 1
	}
	var tried, pending, bad int
	if err := s.r.pool.QueryRow(ctx, sqlRung, pgx.NamedArgs{"id": s.id, "from": from, "to": to}).Scan(&tried, &pending, &bad); err != nil {
		return true, p, fmt.Errorf("read rung %d: %w", st.rung+1, err)
	}
	switch {
	case pending > 0:
		why := replayReason("reason.wait.rung", "rung", st.rung+1, "n", pending)
		return true, progress{due: s.r.opts.Clock().Add(s.r.opts.Poll)}, s.noteWait(ctx, why)
	case tried == 0:
		return true, progress{moved: true}, s.pauseBy(ctx, pausedByRung, replayReason("reason.wait.rung_empty", "rung", st.rung+1))
	case bad > 0 && bad*100 >= st.pace.StopShare*tried:
		why := replayReason("reason.wait.rung_bad", "rung", st.rung+1, "bad", bad, "tried", tried)
		return true, progress{moved: true}, s.pauseBy(ctx, pausedByRung, why)
	}
	err = s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		_, err := tx.Exec(ctx, sqlPassRung, pgx.NamedArgs{"id": s.id, "rung": st.rung})
		return err
	})
	return true, progress{moved: true}, err
}

const sqlPauseBy = `
UPDATE replay SET state = 5, paused_by = @by, state_by = 'system', state_at = now(),
  wait_key = @key, wait_text = @text, wait_args = @args, wait_since = now()
WHERE id = @id AND state = 4`

// pauseBy pauses a running replay by a rule of its own, with the reason.
func (s *step) pauseBy(ctx context.Context, by int16, why Reason) error {
	err := s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		args := waitArgs(s.id, why)
		args["by"] = by
		_, err := tx.Exec(ctx, sqlPauseBy, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("pause replay %d: %w", s.id, err)
	}
	s.now.waitKey, s.now.waitText = why.Key, why.Text
	return nil
}

const sqlRungs = `
WITH edge AS (SELECT * FROM unnest(@froms::int[], @tos::int[]) WITH ORDINALITY u(f, t, n)),
sent AS (SELECT e.n, count(*) AS c FROM edge e JOIN replay_item i ON i.replay_id = @id AND i.no BETWEEN e.f AND e.t AND i.state IN (2, 4, 5)
  WHERE e.t <= @counted GROUP BY e.n),
bad AS (SELECT e.n, count(DISTINCT o.item_no) AS c FROM edge e
  JOIN replay_outcome o ON o.replay_id = @id AND o.item_no BETWEEN e.f AND e.t AND o.outcome IN (5, 6, 7, 9, 10) GROUP BY e.n),
pending AS (SELECT e.n, count(DISTINCT c.item_no) AS c FROM edge e
  JOIN event_claim c ON c.kind = 1 AND c.holder_id = @id AND c.item_no BETWEEN e.f AND e.t GROUP BY e.n)
SELECT e.n::int, coalesce(s.c, 0)::int, coalesce(b.c, 0)::int, coalesce(p.c, 0)::int
FROM edge e LEFT JOIN sent s ON s.n = e.n LEFT JOIN bad b ON b.n = e.n LEFT JOIN pending p ON p.n = e.n
ORDER BY e.n`

// Ladder is a replay's rungs with what became of their items; nil without a
// ladder. The last rung's items are not counted one by one: there may be many.
func (r *Replays) Ladder(ctx context.Context, p Replay) ([]Rung, error) {
	rungs := p.Pace.rungs(p.Total)
	if len(rungs) == 0 {
		return nil, nil
	}
	froms, tos := make([]int, len(rungs)), make([]int, len(rungs))
	for i, rung := range rungs {
		froms[i], tos[i] = rung.From, rung.To
	}
	rows, err := r.pool.Query(ctx, sqlRungs, pgx.NamedArgs{"id": p.ID, "froms": froms, "tos": tos, "counted": p.Total - 1})
	if err != nil {
		return nil, fmt.Errorf("query rungs of replay %d: %w", p.ID, err)
	}
	rest := p.Tried
	var n, sent, bad, pending int
	_, err = pgx.ForEachRow(rows, []any{&n, &sent, &bad, &pending}, func() error {
		rung := &rungs[n-1]
		rung.Sent, rung.Bad, rung.Pending = sent, bad, pending
		if rung.To == p.Total {
			rung.Sent = rest
		}
		rest -= sent
		rung.State = p.rungState(n - 1)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rungs of replay %d: %w", p.ID, err)
	}
	return rungs, nil
}

func (p Replay) rungState(i int) string {
	began := p.StartedAt != nil && p.State != Scheduled
	switch {
	case i < p.Rung || p.State == Done && p.Waiting == 0:
		return "passed"
	case i > p.Rung || !began:
		return "waiting"
	case p.State == Paused || p.State == Canceled:
		return "stopped"
	}
	return "running"
}

// Speed is how fast a replay has been sending: items per second over its last
// chunks of at most a minute, and how long the waiting ones take at that. Zero:
// not known, or not sending.
type Speed struct {
	PerSecond float64
	Left      time.Duration
}

const sqlSpeed = `
SELECT coalesce(sum(to_no - from_no + 1), 0)::float8, coalesce(extract(epoch FROM now() - min(committed_at)), 0)::float8
FROM (SELECT from_no, to_no, committed_at FROM replay_chunk WHERE replay_id = @id ORDER BY from_no DESC LIMIT 200) c
WHERE c.committed_at > now() - interval '1 minute'`

// Speed measures a running replay.
func (r *Replays) Speed(ctx context.Context, p Replay) (Speed, error) {
	if p.State != Running || p.Waiting == 0 {
		return Speed{}, nil
	}
	var items, seconds float64
	if err := r.pool.QueryRow(ctx, sqlSpeed, pgx.NamedArgs{"id": p.ID}).Scan(&items, &seconds); err != nil {
		return Speed{}, fmt.Errorf("measure replay %d: %w", p.ID, err)
	}
	if items == 0 {
		return Speed{}, nil
	}
	per := items / max(seconds, 1)
	return Speed{PerSecond: per, Left: time.Duration(float64(p.Waiting) / per * float64(time.Second)).Round(time.Second)}, nil
}
