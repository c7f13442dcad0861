package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrBadCursor is returned for a cursor that List did not give.
var ErrBadCursor = errors.New("audit: bad cursor")

// Row is one entry as it was written.
type Row struct {
	ID     int64
	At     time.Time
	Actor  string
	Via    string // session, token:<name>, cli, system
	From   string // address; "" by the console itself
	Action string
	Target string
	Reason string
	Detail json.RawMessage // an object
}

// Filter narrows the list. Zero values do not filter.
type Filter struct {
	Actor  string
	Action string
	Target string
	Since  time.Time // at >= Since
	Until  time.Time // at < Until
}

// Page is a part of the list, newest first.
type Page struct {
	Items []Row
	Next  string // cursor; "" at the end
}

// MaxLimit is the longest page.
const MaxLimit = 200

const sqlList = `
SELECT id, at, actor, via, from_addr AS "from", action, target, reason, detail
FROM audit_log
WHERE (@before::bigint = 0 OR id < @before)
  AND (@actor::text = '' OR actor = @actor)
  AND (@action::text = '' OR action = @action)
  AND (@target::text = '' OR target = @target)
  AND (@since::timestamptz IS NULL OR at >= @since)
  AND (@until::timestamptz IS NULL OR at < @until)
ORDER BY id DESC
LIMIT @limit_plus_one`

// List gives one page of entries, newest first. limit 0 is 50, and never more
// than MaxLimit. Errors: ErrBadCursor.
func List(ctx context.Context, pool *pgxpool.Pool, f Filter, limit int, cursor string) (Page, error) {
	before, err := decodeCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	if limit <= 0 {
		limit = 50
	}
	limit = min(limit, MaxLimit)
	rows, err := pool.Query(ctx, sqlList, pgx.NamedArgs{
		"before": before, "actor": f.Actor, "action": f.Action, "target": f.Target,
		"since": optional(f.Since), "until": optional(f.Until), "limit_plus_one": limit + 1,
	})
	if err != nil {
		return Page{}, fmt.Errorf("list audit: %w", err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByName[Row])
	if err != nil {
		return Page{}, fmt.Errorf("list audit: %w", err)
	}
	page := Page{Items: items}
	if len(items) > limit {
		page.Items = items[:limit]
		page.Next = encodeCursor(items[limit-1].ID)
	}
	return page, nil
}

func encodeCursor(id int64) string { return strconv.FormatInt(id, 36) }

// decodeCursor takes back exactly what encodeCursor wrote, nothing that merely
// means the same.
func decodeCursor(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(cursor, 36, 64)
	if err != nil || id <= 0 || encodeCursor(id) != cursor {
		return 0, ErrBadCursor
	}
	return id, nil
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
