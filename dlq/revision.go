package dlq

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/dlq/dialect"
	"oncemore/dlq/payload"
	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// MaxRevisionBytes is the longest value that an edit may have.
const MaxRevisionBytes = 10 << 20

// Revision is an edited form of a letter, with the letter's event id. It is
// written once; a correction is another revision.
type Revision struct {
	LetterID  uuid.UUID
	No        int // from 1
	Base      int // the revision that it was made from; 0: the letter as it arrived
	Sensitive bool
	Digest    []byte // SHA-256 of key, value and headers
	Reason    string
	CreatedBy string
	CreatedAt time.Time
}

// Edit is what a letter shall carry instead: the whole message. Nil is null, not
// empty. Headers are those of the form that was edited, in their order.
type Edit struct {
	Base      int // the form that was edited; 0: as it arrived
	Seen      int // the newest revision that the editor saw
	Key       []byte
	Value     []byte
	Document  []byte // of a framed value: its JSON, which takes the place of Value; nil: Value
	Headers   []Header
	Sensitive bool // the editor means the changes to sensitive headers
	AsIs      bool // the value may stop being JSON
}

// Revisions edits letters.
type Revisions struct {
	pool     *pgxpool.Pool
	letters  *Letters
	judge    Judging
	origins  OriginReading
	dialects *dialect.Set
	schemas  map[string]*payload.Registry // by cluster
}

// NewRevisions edits letters of the console's database. dialects says which
// headers are whose, schemas by which framed values are read and written, by
// cluster; nil where there are none.
func NewRevisions(pool *pgxpool.Pool, judge Judging, origins OriginReading, dialects *dialect.Set, schemas map[string]*payload.Registry) *Revisions {
	return &Revisions{pool: pool, letters: NewLetters(pool), judge: judge, origins: origins, dialects: dialects, schemas: schemas}
}

// ErrBadEdit says why an edit cannot become a revision.
type ErrBadEdit struct {
	Field  string // value | key | header | revision
	Reason Reason
}

func (e *ErrBadEdit) Error() string { return "dlq: edit of " + e.Field + ": " + e.Reason.Text }

func badEdit(field, key string, pairs ...any) error {
	return &ErrBadEdit{Field: field, Reason: replayReason(key, pairs...)}
}

// Form is one form of a letter, as it would be sent.
type Form struct {
	No     int
	From   string // letter | origin | revision
	Body   Body
	Fields []FormHeader // of Body.Headers, in order
	EditAs EditKind

	left []Header // that a replay leaves out; a broker's dialect may still read them

	Document []byte // of a framed value, where its schema is known: what is edited in its place
	Why      string // why a framed value has none
}

// Form reads a form of a letter to be edited: a revision, or for 0 what a replay
// would send: the origin's bytes where they can be read, else the letter's own.
// Headers that a replay leaves out are not part of it. Errors: access.ErrForbidden,
// ErrNotFound.
func (r *Revisions) Form(ctx context.Context, actor access.Actor, letter uuid.UUID, no int) (Form, error) {
	if err := mayEdit(actor); err != nil {
		return Form{}, err
	}
	l, err := r.letters.Get(ctx, letter)
	if err != nil {
		return Form{}, err
	}
	return r.form(ctx, l.Letter, no)
}

func mayEdit(actor access.Actor) error {
	return errors.Join(actor.Check(access.EditLetter), actor.Check(access.ReadPayload))
}

func (r *Revisions) form(ctx context.Context, l Letter, no int) (Form, error) {
	f := Form{No: no, From: fromRevision.String()}
	var err error
	if no > 0 {
		f.Body, err = r.body(ctx, l.ID, no)
	} else {
		f.Body, f.From, err = r.arrived(ctx, l.ID)
	}
	if err != nil {
		return f, err
	}
	if f.Body.Headers, f.left, err = r.split(l, f.Body.Headers); err != nil {
		return f, err
	}
	f.Fields = classify(l, f.Body.Headers)
	if f.EditAs = editKind(l, f.Body.Value); f.EditAs == EditFramed {
		f.Document, _, err = payload.Document(ctx, r.schemas[l.Cluster], f.Body.Value)
		if err != nil {
			f.Document, f.Why = nil, err.Error()
		}
	}
	return f, nil
}

// split tells the headers that a replay keeps from those that it leaves out.
func (r *Revisions) split(l Letter, headers []Header) (kept, left []Header, err error) {
	keeps, err := KeptHeaders(r.dialects, l.Dialect, headers)
	if err != nil {
		return nil, nil, badEdit("header", "reason.letter.dialect", "dialect", l.Dialect)
	}
	for i, h := range headers {
		if keeps[i] {
			kept = append(kept, h)
		} else {
			left = append(left, h)
		}
	}
	return kept, left, nil
}

// arrived is the message as a replay without an edit would send it.
func (r *Revisions) arrived(ctx context.Context, id uuid.UUID) (Body, string, error) {
	body, err := r.letters.Body(ctx, id)
	if err != nil {
		return body, "", err
	}
	subjects, err := r.judge.Subjects(ctx, []uuid.UUID{id})
	if err != nil || len(subjects) == 0 {
		return body, fromLetter.String(), err
	}
	originals, err := r.origins.Originals(ctx, subjects)
	if err != nil {
		return body, "", fmt.Errorf("original of letter %s: %w", id, err)
	}
	if o := originals[id]; o.Usable() {
		return o.Body, fromOrigin.String(), nil
	}
	return body, fromLetter.String(), nil
}

const sqlRevisionBody = `SELECT key, value, headers FROM letter_revision WHERE letter_id = @letter AND no = @no::bigint`

func (r *Revisions) body(ctx context.Context, letter uuid.UUID, no int) (Body, error) {
	var b Body
	var headers []byte
	err := r.pool.QueryRow(ctx, sqlRevisionBody, pgx.NamedArgs{"letter": letter, "no": no}).Scan(&b.Key, &b.Value, &headers)
	if errors.Is(err, pgx.ErrNoRows) {
		return b, fmt.Errorf("revision %d of letter %s: %w", no, letter, ErrNotFound)
	}
	if err == nil {
		b.Headers, err = DecodeHeaders(headers)
	}
	if err != nil {
		return b, fmt.Errorf("read revision %d of letter %s: %w", no, letter, err)
	}
	return b, nil
}

// Body is what a revision carries. Errors: ErrNotFound.
func (r *Revisions) Body(ctx context.Context, letter uuid.UUID, no int) (Body, error) {
	return r.body(ctx, letter, no)
}

const sqlRevisionList = `
SELECT letter_id, no, base, sensitive, digest, reason, created_by, created_at
FROM letter_revision WHERE letter_id = @letter ORDER BY no`

// List gives a letter's revisions, oldest first; none for a letter that is not
// there.
func (r *Revisions) List(ctx context.Context, letter uuid.UUID) ([]Revision, error) {
	rows, err := r.pool.Query(ctx, sqlRevisionList, pgx.NamedArgs{"letter": letter})
	if err != nil {
		return nil, fmt.Errorf("query revisions of letter %s: %w", letter, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Revision])
	if err != nil {
		return nil, fmt.Errorf("read revisions of letter %s: %w", letter, err)
	}
	return list, nil
}

// Proposal is what an edit would do.
type Proposal struct {
	Base      Form
	Changed   []string // value, key, header <name>
	Sensitive bool     // a sensitive header is among them
	Edit      Edit     // with the value as it would be kept
	Verdict   *Judged  // of the edited form, for the narrowest target; nil: it could not be judged
}

// Propose checks an edit and says what it would change and what a replay of it
// would do, and keeps nothing. Errors: as of Create, without its reason.
func (r *Revisions) Propose(ctx context.Context, actor access.Actor, letter uuid.UUID, e Edit) (Proposal, error) {
	if err := mayEdit(actor); err != nil {
		return Proposal{}, err
	}
	l, err := r.letters.Get(ctx, letter)
	if err != nil {
		return Proposal{}, err
	}
	p := Proposal{}
	if p.Base, err = r.form(ctx, l.Letter, e.Base); err != nil {
		return p, err
	}
	if e, err = r.encode(ctx, l.Letter, p.Base, e); err != nil {
		return p, err
	}
	if e.Headers, _, err = r.split(l.Letter, e.Headers); err != nil {
		return p, err
	}
	p.Edit = e
	if p.Changed, p.Sensitive, err = check(l.Letter, p.Base, e); err != nil {
		return p, err
	}
	return p, r.judgeEdit(ctx, letter, e, &p)
}

// encode writes the document of a framed value back into its frame.
func (r *Revisions) encode(ctx context.Context, l Letter, base Form, e Edit) (Edit, error) {
	if e.Document == nil {
		return e, nil
	}
	if base.Document == nil {
		return e, badEdit("value", "reason.edit.framed", "error", base.Why)
	}
	if bytes.Equal(base.Document, e.Document) {
		e.Value = base.Body.Value // the schema's encoding may write the same in other bytes
		return e, nil
	}
	value, err := payload.Encode(ctx, r.schemas[l.Cluster], base.Body.Value, e.Document)
	if err != nil {
		return e, badEdit("value", "reason.edit.schema", "error", strings.TrimSuffix(err.Error(), "."))
	}
	e.Value = value
	return e, nil
}

// judgeEdit asks what a replay of the edited form would do. Where the event has a
// record already an edited copy would change nothing: that is refused here, not
// only when it is planned.
func (r *Revisions) judgeEdit(ctx context.Context, letter uuid.UUID, e Edit, p *Proposal) error {
	subjects, err := r.judge.Subjects(ctx, []uuid.UUID{letter})
	if err != nil || len(subjects) == 0 {
		return err
	}
	subjects[0].Revision = max(e.Seen, subjects[0].Revisions) + 1
	judged, err := r.judge.Judge(ctx, subjects, ToSafe)
	if err != nil {
		return fmt.Errorf("judge edit of letter %s: %w", letter, err)
	}
	p.Verdict = &judged[0]
	if own := judged[0].Own(); own.Verdict == Altered && !own.Reason.MayOverride(Altered) {
		return &ErrBadEdit{Field: "revision", Reason: own.Reason}
	}
	return nil
}

// Refused says why a letter cannot be edited, whatever the edit: its event has a
// record. Zero: it can.
func (r *Revisions) Refused(ctx context.Context, letter uuid.UUID) (Reason, error) {
	err := r.judgeEdit(ctx, letter, Edit{}, &Proposal{})
	if bad, ok := errors.AsType[*ErrBadEdit](err); ok {
		return bad.Reason, nil
	}
	return Reason{}, err
}

// Compare gives a revision and the form that it was made from, both as they would
// be sent. Errors: access.ErrForbidden, ErrNotFound.
func (r *Revisions) Compare(ctx context.Context, actor access.Actor, letter uuid.UUID, no int) (before, after Body, err error) {
	if err := actor.Check(access.ReadPayload); err != nil {
		return before, after, err
	}
	l, err := r.letters.Get(ctx, letter)
	if err != nil {
		return before, after, err
	}
	var base int
	err = r.pool.QueryRow(ctx, `SELECT base FROM letter_revision WHERE letter_id = @letter AND no = @no`,
		pgx.NamedArgs{"letter": letter, "no": no}).Scan(&base)
	if errors.Is(err, pgx.ErrNoRows) {
		return before, after, fmt.Errorf("revision %d of letter %s: %w", no, letter, ErrNotFound)
	}
	if err != nil {
		return before, after, fmt.Errorf("read revision %d of letter %s: %w", no, letter, err)
	}
	was, err := r.form(ctx, l.Letter, base)
	if err != nil {
		return before, after, err
	}
	is, err := r.form(ctx, l.Letter, no)
	return was.Body, is.Body, err
}

// Create keeps an edit as the letter's next revision, which a replay sends from
// now on unless another form is chosen. Errors: access.ErrForbidden,
// access.ErrReasonRequired, ErrNotFound, *ErrBadEdit (the event id or a locked
// header was changed, nothing was, the event has a record, somebody else was
// faster, …).
func (r *Revisions) Create(ctx context.Context, actor access.Actor, letter uuid.UUID, e Edit) (Revision, error) {
	p, err := r.Propose(ctx, actor, letter, e)
	if err != nil {
		return Revision{}, err
	}
	if blank(actor.Reason) {
		return Revision{}, access.ErrReasonRequired
	}
	e = p.Edit
	e.Headers = slices.Concat(e.Headers, p.Base.left) // last, as they came: a dialect may read them
	rev := Revision{LetterID: letter, No: e.Seen + 1, Base: e.Base, Sensitive: p.Sensitive,
		Digest: formDigest(e.Key, e.Value, e.Headers), Reason: storableText(actor.Reason), CreatedBy: actor.User}
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return storeRevision(ctx, tx, actor, &rev, e, p) })
	if err != nil {
		return Revision{}, fmt.Errorf("revise letter %s: %w", letter, err)
	}
	return rev, nil
}

const (
	sqlLockLetter     = `SELECT state FROM dead_letter WHERE id = @letter FOR NO KEY UPDATE`
	sqlNewestRevision = `SELECT coalesce(max(no), 0) FROM letter_revision WHERE letter_id = @letter`
	sqlInsertRevision = `
INSERT INTO letter_revision (letter_id, no, base, key, value, headers, sensitive, digest, reason, created_by)
VALUES (@letter, @no, @base, @key, @value, @headers, @sensitive, @digest, @reason, @by)
RETURNING created_at`
	// sqlJudgeAnew lets an open letter be judged at once, as another form.
	sqlJudgeAnew = `
WITH k AS (SELECT d.id, d.fault_id, d.verdict AS was FROM dead_letter d WHERE d.id = @letter AND d.state = 1 AND d.verdict <> 0),
w AS (UPDATE dead_letter d SET verdict = 0, verdict_at = NULL FROM k WHERE d.id = k.id)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT k.fault_id, 1, s.verdict, s.n FROM k CROSS JOIN LATERAL (VALUES (k.was, -1), (0::smallint, 1)) s(verdict, n)`
)

func storeRevision(ctx context.Context, tx pgx.Tx, actor access.Actor, rev *Revision, e Edit, p Proposal) error {
	var state State
	args := pgx.NamedArgs{"letter": rev.LetterID}
	if err := tx.QueryRow(ctx, sqlLockLetter, args).Scan(&state); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return fmt.Errorf("lock letter: %w", err)
	}
	if state == Replaying || state == Discarded {
		return badEdit("revision", "reason.edit.state", "state", state.String())
	}
	newest := 0
	if err := tx.QueryRow(ctx, sqlNewestRevision, args).Scan(&newest); err != nil {
		return fmt.Errorf("read newest revision: %w", err)
	}
	if newest != e.Seen {
		return badEdit("revision", "reason.edit.overtaken", "newest", newest)
	}
	err := tx.QueryRow(ctx, sqlInsertRevision, pgx.NamedArgs{
		"letter": rev.LetterID, "no": rev.No, "base": rev.Base, "key": e.Key, "value": e.Value, "headers": EncodeHeaders(e.Headers),
		"sensitive": rev.Sensitive, "digest": rev.Digest, "reason": rev.Reason, "by": rev.CreatedBy,
	}).Scan(&rev.CreatedAt)
	if err != nil {
		return fmt.Errorf("insert revision %d: %w", rev.No, err)
	}
	if _, err := tx.Exec(ctx, sqlJudgeAnew, args); err != nil {
		return fmt.Errorf("have the letter judged anew: %w", err)
	}
	return audit.Write(ctx, tx, actor, audit.Entry{Action: "letter.revised", Target: "letter/" + rev.LetterID.String(), Detail: map[string]any{
		"revision": rev.No, "base": rev.Base, "changed": p.Changed, "sensitive": rev.Sensitive,
		"digest": hex.EncodeToString(rev.Digest), "digest_before": hex.EncodeToString(formDigest(p.Base.Body.Key, p.Base.Body.Value, p.Base.Body.Headers)),
	}})
}

// formDigest is SHA-256 over key, value and headers; null is not empty.
func formDigest(key, value []byte, headers []Header) []byte {
	h := sha256.New()
	for _, part := range [][]byte{key, value, EncodeHeaders(headers)} {
		n := int64(len(part))
		if part == nil {
			n = -1
		}
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		h.Write(part)
	}
	return h.Sum(nil)
}
