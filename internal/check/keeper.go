package check

import (
	"context"

	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
)

// keeper checks that records can be dropped as the config says, by the user that
// consumers write with.
func (r *run) keeper(ctx context.Context, c Connection, db database) {
	if !c.Drops && !c.Archive {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	subject, v := "connection/"+c.Name, values{"name": c.Name}
	var err error
	if db.mysql != nil {
		err = mysqlstore.CheckKeeper(ctx, db.mysql, c.Archive)
	} else {
		err = pgstore.CheckKeeper(ctx, db.postgres, c.Archive)
	}
	if err != nil {
		r.say("retention.keeper.bad", subject, v, reason(err))
		return
	}
	r.say("retention.keeper.ok", subject, v)
}
