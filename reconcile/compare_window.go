package reconcile

import (
	"context"
	"time"
)

// Compared is what a comparison that nobody keeps has found.
type Compared struct {
	Tally    *Tally
	Findings []Finding
	Cut      bool // there was more than could be listed
}

// Compare compares one window by a plan, without a run: nothing is kept. most
// bounds the keys that are read again.
func Compare(ctx context.Context, job *Job, databases map[string]Database, plan string, from, to, now time.Time, most int) (*Compared, error) {
	c, err := prepare(ctx, job, databases)
	if err != nil {
		return nil, err
	}
	if c.plan, _, err = choosePlan(job, plan, databases); err != nil {
		return nil, err
	}
	o, err := c.evaluate(ctx, interval{from.UnixMicro(), to.UnixMicro()}, now, most)
	if err != nil {
		return nil, err
	}
	return &Compared{o.tally, o.findings, o.more}, nil
}
