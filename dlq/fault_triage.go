package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// maxNote is the longest note or comment, in bytes.
const maxNote = 2000

// ErrBadTriage says which field of a triage command cannot be taken, and why.
type ErrBadTriage struct {
	Field  string // API name
	Reason string // English
}

// Error is "dlq: <field>: <reason>".
func (e *ErrBadTriage) Error() string { return "dlq: " + e.Field + ": " + e.Reason }

// Mute hides faults from the open ones until then; nil ends it. New letters are
// stored and counted all the same. Errors: access.ErrForbidden, *ErrBadTriage,
// ErrNotFound.
func (f *Faults) Mute(ctx context.Context, actor access.Actor, ids []int32, until *time.Time) error {
	if until != nil && !until.After(f.clock()) {
		return &ErrBadTriage{Field: "until", Reason: "lies in the past"}
	}
	did := "faults.muted"
	if until == nil {
		did = "faults.unmuted"
	}
	return f.triage(ctx, actor, ids, did, "mute_until = @until", pgx.NamedArgs{"until": until}, map[string]any{"until": until})
}

// Assign makes faults somebody's, with their letters that are nobody's own; "" and
// OwnerNone make them nobody's. Whether such an account exists is the caller's to
// know. Errors: access.ErrForbidden, ErrNotFound.
func (f *Faults) Assign(ctx context.Context, actor access.Actor, ids []int32, owner string) error {
	if owner == OwnerNone {
		owner = ""
	}
	if err := actor.Check(access.TriageFaults); err != nil {
		return err
	}
	id, err := ownerID(ctx, f.pool, owner)
	if err != nil {
		return err
	}
	return f.triage(ctx, actor, ids, "faults.assigned", "owner_id = @owner", pgx.NamedArgs{"owner": id}, map[string]any{"owner": owner})
}

// Note replaces a fault's note; "" removes it. Errors: access.ErrForbidden,
// *ErrBadTriage, ErrNotFound.
func (f *Faults) Note(ctx context.Context, actor access.Actor, id int32, note string) error {
	if err := checkNote("note", note); err != nil {
		return err
	}
	return f.triage(ctx, actor, []int32{id}, "faults.noted", "note = nullif(@note, '')", pgx.NamedArgs{"note": note}, nil)
}

func checkNote(field, text string) error {
	if len(text) > maxNote {
		return &ErrBadTriage{Field: field, Reason: fmt.Sprintf("is longer than %d bytes", maxNote)}
	}
	if err := filterText(field, text); err != nil {
		return &ErrBadTriage{Field: field, Reason: "must be UTF-8 text without zero bytes"}
	}
	return nil
}

// triage changes faults and leaves one audit row. Rows are locked in id order.
func (f *Faults) triage(ctx context.Context, actor access.Actor, ids []int32, did, set string, args pgx.NamedArgs, detail map[string]any) error {
	if err := actor.Check(access.TriageFaults); err != nil {
		return err
	}
	if len(ids) == 0 {
		return ErrBadSelection
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	args["ids"] = ids
	sql := `
WITH pick AS MATERIALIZED (SELECT id FROM fault WHERE id = ANY(@ids) ORDER BY id FOR NO KEY UPDATE)
UPDATE fault SET changed_at = now(), ` + set + ` FROM pick WHERE fault.id = pick.id`
	err := pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, args)
		if err != nil {
			return err
		}
		if int(tag.RowsAffected()) != len(ids) {
			return ErrNotFound
		}
		entry := audit.Entry{Action: did, Target: faultTarget(ids), Detail: map[string]any{"faults": ids}}
		for k, v := range detail {
			entry.Detail.(map[string]any)[k] = v
		}
		return audit.Write(ctx, tx, actor, entry)
	})
	if err != nil {
		return fmt.Errorf("%s %v: %w", did, ids, err)
	}
	return nil
}

func faultTarget(ids []int32) string {
	if len(ids) == 1 {
		return fmt.Sprintf("fault/%d", ids[0])
	}
	return fmt.Sprintf("faults/%d", len(ids))
}

// Comment is what somebody said about a fault or a letter.
type Comment struct {
	Text string
	By   string
	At   time.Time
}

const sqlAddComment = `
INSERT INTO letter_comment (fault_id, letter_id, text, created_by)
SELECT f.id, NULL, @text, @by FROM fault f WHERE f.id = @fault
UNION ALL SELECT NULL, d.id, @text, @by FROM dead_letter d WHERE d.id = @letter`

// Comment adds to what is said about a fault. Errors: access.ErrForbidden,
// *ErrBadTriage, ErrNotFound.
func (f *Faults) Comment(ctx context.Context, actor access.Actor, id int32, text string) error {
	return comment(ctx, f.pool, actor, text, &id, nil)
}

// Comments lists what was said about a fault, oldest first, at most 200.
func (f *Faults) Comments(ctx context.Context, id int32) ([]Comment, error) {
	return comments(ctx, f.pool, "fault_id = @id", pgx.NamedArgs{"id": id})
}

// Comment adds to what is said about a letter. Errors as of Faults.Comment.
func (l *Letters) Comment(ctx context.Context, actor access.Actor, id uuid.UUID, text string) error {
	return comment(ctx, l.pool, actor, text, nil, &id)
}

// Comments lists what was said about a letter, oldest first, at most 200.
func (l *Letters) Comments(ctx context.Context, id uuid.UUID) ([]Comment, error) {
	return comments(ctx, l.pool, "letter_id = @id", pgx.NamedArgs{"id": id})
}

// beginner starts transactions.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

func comment(ctx context.Context, db beginner, actor access.Actor, text string, fault *int32, letter *uuid.UUID) error {
	if err := actor.Check(access.Comment); err != nil {
		return err
	}
	text = strings.TrimSpace(text)
	if err := checkNote("text", text); err != nil {
		return err
	}
	if text == "" {
		return &ErrBadTriage{Field: "text", Reason: "is empty"}
	}
	target := ""
	if fault != nil {
		target = fmt.Sprintf("fault/%d", *fault)
	} else {
		target = fmt.Sprintf("letter/%s", letter)
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlAddComment, pgx.NamedArgs{"text": text, "by": actor.User, "fault": fault, "letter": letter})
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "comment.added", Target: target})
	})
	if err != nil {
		return fmt.Errorf("comment on %s: %w", target, err)
	}
	return nil
}

func comments(ctx context.Context, db querier, where string, args pgx.NamedArgs) ([]Comment, error) {
	rows, err := db.Query(ctx, "SELECT text, created_by, created_at FROM letter_comment WHERE "+where+" ORDER BY id LIMIT 200", args)
	if err != nil {
		return nil, fmt.Errorf("query comments: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Comment])
	if err != nil {
		return nil, fmt.Errorf("read comments: %w", err)
	}
	return all, nil
}

const sqlFaultsChanged = `SELECT count(*) FROM (SELECT FROM fault WHERE changed_at > @since LIMIT 1000) x`

// Changed counts the faults that changed after since, at most 1,000: arrivals,
// states, owners, notes. It may be a second behind.
func (f *Faults) Changed(ctx context.Context, since time.Time) (int, error) {
	var n int
	err := f.pool.QueryRow(ctx, sqlFaultsChanged, pgx.NamedArgs{"since": since}).Scan(&n)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("count changed faults: %w", err)
	}
	return n, nil
}
