// Package audit writes down who did what, when, from where and why. It owns
// audit_log. A command writes its row in its own transaction.
package audit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

// Entry is what was done. Target names the object, such as "replay/12" or
// "user/ada"; Detail is anything that marshals to a JSON object, without payloads.
type Entry struct {
	Action string // verb.noun in the past: replay.started, user.created
	Target string
	Detail any
}

const sqlWrite = `
INSERT INTO audit_log (actor, via, from_addr, action, target, reason, detail)
VALUES (@actor, @via, @from, @action, @target, @reason, @detail)`

// Write adds one row in the caller's transaction.
func Write(ctx context.Context, tx pgx.Tx, actor access.Actor, e Entry) error {
	detail := []byte("{}")
	if e.Detail != nil {
		b, err := json.Marshal(e.Detail)
		if err != nil {
			return fmt.Errorf("audit %s: marshal detail: %w", e.Action, err)
		}
		detail = b
	}
	_, err := tx.Exec(ctx, sqlWrite, pgx.NamedArgs{
		"actor": actor.User, "via": actor.Via, "from": actor.From,
		"action": e.Action, "target": e.Target, "reason": actor.Reason, "detail": detail,
	})
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.Action, err)
	}
	return nil
}
