package check

import (
	"context"

	"oncemore/consumer/barrier"
)

// repairs checks a connection as compensations use it: it answers, and holds the
// table that keeps each of their statements from being executed twice.
func (r *run) repairs(ctx context.Context, c Connection) {
	subject, v := "connection/"+c.Name+"/compensation", values{"name": c.Name}
	if err := reach(ctx, c); err != nil {
		r.say("repair.reach.down", subject, v, reason(err))
		return
	}
	r.say("repair.reach.ok", subject, v)
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var columns map[string]column
	var err error
	if c.MySQL != nil {
		columns, err = columnsOfMySQL(ctx, c.MySQL, barrier.Table)
	} else {
		columns, err = columnsOf(ctx, c.Pool, barrier.Table)
	}
	switch {
	case err != nil:
		r.say("repair.barrier.unknown", subject, v, reason(err))
	case len(columns) == 0:
		r.say("repair.barrier.missing", subject, v)
	default:
		r.say("repair.barrier.ok", subject, v)
	}
}
