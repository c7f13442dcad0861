package reconcile

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Errors of commands on breaks.
var (
	// ErrNoBreak is returned for a break that does not exist.
	ErrNoBreak = errors.New("reconcile: no such break")
	// ErrBreakState is returned for a break that is closed, or being compensated.
	ErrBreakState = errors.New("reconcile: the break is in another state")
	// ErrReasonCode is returned for a reason code that is not in ReasonCodes.
	ErrReasonCode = errors.New("reconcile: unknown reason code")
	// ErrFile is returned for evidence that is too large or of a type that is not taken.
	ErrFile = errors.New("reconcile: the file cannot be kept")
)

// ReasonCodes are why a break may be explained.
var ReasonCodes = []string{"timing", "known_defect", "manual_booking", "test_data", "rounding", "accepted_loss", "other"}

// Breaks are the differences and what people do with them.
type Breaks struct{ pool *pgxpool.Pool }

// NewBreaks makes the book of breaks.
func NewBreaks(pool *pgxpool.Pool) *Breaks { return &Breaks{pool} }

const sqlLockBreaks = `
SELECT id, job, state, currency, amount::text, owner FROM reconcile_break WHERE id = ANY(@ids) ORDER BY id FOR UPDATE`

type lockedBreak struct {
	ID       int64
	Job      string
	State    BreakState
	Currency string
	Amount   Amount
	Owner    *string
}

const sqlAloneOf = lockOfJob + `
FROM (SELECT DISTINCT job FROM reconcile_break WHERE id = ANY(@ids) ORDER BY job) jobs`

// each does one command on breaks in one transaction, with one audit row.
func (b *Breaks) each(ctx context.Context, actor access.Actor, act access.Act, ids []int64, e audit.Entry, do func(*pgx.Batch, lockedBreak) error) error {
	if err := actor.Check(act); err != nil {
		return err
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if act == access.ExplainBreak { // it moves money
			if _, err := tx.Exec(ctx, sqlAloneOf, pgx.NamedArgs{"ids": ids}); err != nil {
				return fmt.Errorf("wait for bookings of %d breaks: %w", len(ids), err)
			}
		}
		locked, err := lockBreaks(ctx, tx, ids)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, l := range locked {
			if err := do(batch, l); err != nil {
				return err
			}
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("%s of %d breaks: %w", e.Action, len(ids), err)
		}
		e.Target, e.Detail = frozen(ids, e.Detail)
		return audit.Write(ctx, tx, actor, e)
	})
}

func lockBreaks(ctx context.Context, tx pgx.Tx, ids []int64) ([]lockedBreak, error) {
	rows, err := tx.Query(ctx, sqlLockBreaks, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query breaks: %w", err)
	}
	locked, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lockedBreak])
	if err != nil {
		return nil, fmt.Errorf("read breaks: %w", err)
	}
	if len(locked) != len(ids) || len(ids) == 0 {
		return nil, fmt.Errorf("%w: %d of %d", ErrNoBreak, len(ids)-len(locked), len(ids))
	}
	return locked, nil
}

// frozen names what a command was given: one break, or the number and digest of
// many.
func frozen(ids []int64, detail any) (string, any) {
	if len(ids) == 1 {
		return fmt.Sprintf("break/%d", ids[0]), detail
	}
	b, _ := json.Marshal(ids) //nolint:errchkjson // integers always marshal
	return fmt.Sprintf("breaks/%x", sha256.Sum256(b)), map[string]any{"count": len(ids), "ids": ids, "detail": detail}
}

const (
	sqlAssign = `UPDATE reconcile_break SET owner = @owner, state = CASE WHEN state IN (1, 7) THEN 2 ELSE state END WHERE id = @id`
	sqlRemark = `INSERT INTO reconcile_note (break_id, by, kind, text, detail) VALUES (@id, @by, @kind, @text, @detail)`
)

func remark(batch *pgx.Batch, id int64, actor access.Actor, kind, text string, detail any) {
	batch.Queue(sqlRemark, pgx.NamedArgs{"id": id, "by": actor.User, "kind": kind, "text": text, "detail": detail})
}

// Assign gives breaks to somebody. Error: ErrNoBreak, ErrBreakState for one that
// is done with.
func (b *Breaks) Assign(ctx context.Context, actor access.Actor, ids []int64, owner string) error {
	e := audit.Entry{Action: "break.assigned", Detail: map[string]any{"owner": owner}}
	return b.each(ctx, actor, access.RunJob, ids, e, func(batch *pgx.Batch, l lockedBreak) error {
		if l.State.Done() {
			return fmt.Errorf("%w: %d is %s", ErrBreakState, l.ID, l.State)
		}
		batch.Queue(sqlAssign, pgx.NamedArgs{"id": l.ID, "owner": owner})
		remark(batch, l.ID, actor, "assigned", owner, nil)
		return nil
	})
}

// Comment adds to a break's timeline.
func (b *Breaks) Comment(ctx context.Context, actor access.Actor, id int64, text string) error {
	if strings.TrimSpace(text) == "" {
		return access.ErrReasonRequired
	}
	return b.each(ctx, actor, access.RunJob, []int64{id}, audit.Entry{Action: "break.commented"}, func(batch *pgx.Batch, l lockedBreak) error {
		remark(batch, l.ID, actor, "comment", text, nil)
		return nil
	})
}

const sqlExplain = `
UPDATE reconcile_break SET state = 3, reason_code = @code, explanation = @text, explained_by = @by WHERE id = @id`

// Explain says why breaks are no loss: they no longer count as open money. The
// actor's reason is the explanation. Errors: ErrReasonCode, ErrBreakState,
// access.ErrReasonRequired.
func (b *Breaks) Explain(ctx context.Context, actor access.Actor, ids []int64, code string) error {
	if !slices.Contains(ReasonCodes, code) {
		return fmt.Errorf("%w: %q; there are %s", ErrReasonCode, code, strings.Join(ReasonCodes, ", "))
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return access.ErrReasonRequired
	}
	e := audit.Entry{Action: "break.explained", Detail: map[string]any{"code": code}}
	return b.each(ctx, actor, access.ExplainBreak, ids, e, func(batch *pgx.Batch, l lockedBreak) error {
		if !l.State.Outstanding() || l.State == Compensating {
			return fmt.Errorf("%w: %d is %s", ErrBreakState, l.ID, l.State)
		}
		batch.Queue(sqlExplain, pgx.NamedArgs{"id": l.ID, "code": code, "text": actor.Reason, "by": actor.User})
		moveByHand(batch, l, MovedExplained, l.Amount.Neg(), -1)
		remark(batch, l.ID, actor, "explained", actor.Reason, map[string]any{"code": code})
		return nil
	})
}

func moveByHand(batch *pgx.Batch, l lockedBreak, kind Movement, amount Amount, items int) {
	batch.Queue(sqlMove, pgx.NamedArgs{"job": l.Job, "id": l.ID, "run": nil, "kind": kind, "currency": l.Currency, "amount": amount.String(), "items": items})
}

const sqlUnexplain = `
UPDATE reconcile_break SET state = 7, reason_code = NULL, explanation = NULL, explained_by = NULL, returns = returns + 1 WHERE id = @id`

// Unexplain takes an explanation back, for a reason: the break is open again.
func (b *Breaks) Unexplain(ctx context.Context, actor access.Actor, id int64) error {
	if strings.TrimSpace(actor.Reason) == "" {
		return access.ErrReasonRequired
	}
	return b.each(ctx, actor, access.ExplainBreak, []int64{id}, audit.Entry{Action: "break.unexplained"}, func(batch *pgx.Batch, l lockedBreak) error {
		if l.State != Explained {
			return fmt.Errorf("%w: %d is %s, not explained", ErrBreakState, l.ID, l.State)
		}
		batch.Queue(sqlUnexplain, pgx.NamedArgs{"id": l.ID})
		moveByHand(batch, l, MovedReopened, l.Amount, 1)
		remark(batch, l.ID, actor, "unexplained", actor.Reason, nil)
		return nil
	})
}

// MostFile is the largest evidence file, in bytes.
const MostFile = 5 << 20

// fileTypes are what evidence may be; the content decides, not the name.
var fileTypes = []string{"application/pdf", "image/png", "image/jpeg", "text/plain; charset=utf-8", "application/zip"}

// isOfficeFile reports whether a ZIP is a document of an office program. Nothing of it is
// unpacked.
func isOfficeFile(content []byte) bool {
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	return err == nil && slices.ContainsFunc(archive.File, func(f *zip.File) bool {
		return f.Name == "[Content_Types].xml" || f.Name == "mimetype"
	})
}

const sqlAddFile = `
INSERT INTO reconcile_file (break_id, by, name, media_type, sha256, content) VALUES (@id, @by, @name, @type, @hash, @content)`

// Attach adds a file of evidence: PDF, PNG, JPEG, text, or an office document
// (which is a ZIP). Errors: ErrFile, ErrNoBreak.
func (b *Breaks) Attach(ctx context.Context, actor access.Actor, id int64, name string, content []byte) error {
	media := http.DetectContentType(content)
	name = path.Base(strings.ReplaceAll(name, `\`, "/")) // of a name alone, whatever folders it came from
	switch {
	case len(content) == 0 || len(content) > MostFile:
		return fmt.Errorf("%w: %d bytes; it may have up to %d", ErrFile, len(content), MostFile)
	case !slices.Contains(fileTypes, media), media == "application/zip" && !isOfficeFile(content):
		return fmt.Errorf("%w: it is %s; PDF, PNG, JPEG, text and office documents are taken", ErrFile, media)
	case name == "." || name == ".." || name == "/" || len(name) > 200 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: its name has to be a line of text of up to 200 bytes", ErrFile)
	}
	hash := sha256.Sum256(content)
	e := audit.Entry{Action: "break.file_added", Detail: map[string]any{"name": name, "sha256": fmt.Sprintf("%x", hash), "bytes": len(content)}}
	return b.each(ctx, actor, access.RunJob, []int64{id}, e, func(batch *pgx.Batch, l lockedBreak) error {
		batch.Queue(sqlAddFile, pgx.NamedArgs{"id": l.ID, "by": actor.User, "name": name, "type": media, "hash": hash[:], "content": content})
		remark(batch, l.ID, actor, "file", name, nil)
		return nil
	})
}
