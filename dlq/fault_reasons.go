package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ReasonSample is how many of a fault's newest open letters its reasons are
// counted in.
const ReasonSample = 200

// FaultReason is why letters of a fault may not be sent: the most frequent reason
// of one verdict.
type FaultReason struct {
	Verdict Verdict
	Reason  Reason // of the newest letter that has it
	Varies  bool   // other letters have it with other values, such as their times
	N       int64  // letters of the sample that have it
}

// FaultReasons are counted among the newest open letters of a fault.
type FaultReasons struct {
	Sample int64         // letters looked at, ReasonSample at most
	Items  []FaultReason // the most frequent first, one of each verdict that MaySend refuses
}

// sqlFaultReasons explains each letter by the group whose verdict it bears. The
// sample is cut before anything is joined, so that the size of the fault does not
// matter. Rows are compared and ordered as dead_letter_fault has them: of
// fault_id = @fault the planner walks all letters from the newest, and finds those
// of a fault that ended long ago after millions of others.
const sqlFaultReasons = `
WITH newest AS MATERIALIZED (
  SELECT d.id, d.verdict FROM dead_letter d
  WHERE (d.fault_id, d.state) >= (@fault::int, 1::smallint) AND (d.fault_id, d.state) <= (@fault::int, 1::smallint)
  ORDER BY d.fault_id DESC, d.state DESC, d.id DESC LIMIT @sample),
why AS (
  SELECT DISTINCT ON (n.id) n.id, n.verdict, v.reason, v.reason_key, v.reason_args
  FROM newest n JOIN letter_verdict v ON v.letter_id = n.id AND v.verdict = n.verdict
  ORDER BY n.id, v.reached DESC, v.group_id),
counted AS (
  SELECT verdict, reason_key, count(*) AS n, min(reason) <> max(reason) AS varies,
    (array_agg(reason ORDER BY id DESC))[1] AS reason, (array_agg(reason_args ORDER BY id DESC))[1] AS args
  FROM why GROUP BY verdict, reason_key)
SELECT * FROM (
  SELECT DISTINCT ON (verdict) (SELECT count(*) FROM newest), verdict, n, varies, reason, reason_key, args
  FROM counted ORDER BY verdict, n DESC, reason_key) x
ORDER BY n DESC, verdict`

// Reasons says why letters of a fault may not be sent, as the kept verdicts tell.
func (f *Faults) Reasons(ctx context.Context, id int32) (FaultReasons, error) {
	var all FaultReasons
	rows, err := f.pool.Query(ctx, sqlFaultReasons, pgx.NamedArgs{"fault": id, "sample": ReasonSample})
	if err != nil {
		return all, fmt.Errorf("query reasons of fault %d: %w", id, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r FaultReason, err error) {
		var text, key *string
		var args []byte
		err = row.Scan(&all.Sample, &r.Verdict, &r.N, &r.Varies, &text, &key, &args)
		r.Reason = loadReason(text, key, args)
		return r, err
	})
	if err != nil {
		return all, fmt.Errorf("read reasons of fault %d: %w", id, err)
	}
	for _, r := range found {
		if !r.Verdict.MaySend() {
			all.Items = append(all.Items, r)
		}
	}
	return all, nil
}
