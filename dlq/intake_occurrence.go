package dlq

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// heldLetter is a letter that gets further arrivals, locked or made in this
// transaction.
type heldLetter struct {
	id      uuid.UUID
	state   State
	stateAt time.Time
	verdict int16
	faultID int32
	first   logPlace // of its first arrival
	body    bodyDigest
}

// logPlace is where an arrival was read.
type logPlace struct {
	source    int32
	partition int32
	offset    int64
}

func (a *arrival) place() logPlace { return logPlace{a.sourceID, a.from.partition, a.from.offset} }

// known holds where a broker has positions; in a queue no two arrivals are told
// to be one by their place.
func (p logPlace) known() bool { return p.partition >= 0 }

// bodyDigest tells bodies apart without moving them.
type bodyDigest struct {
	key, value, headers, envelope [sha256.Size]byte
	keyNull, valueNull            bool
}

func (a *arrival) digest() bodyDigest {
	m := a.message
	return bodyDigest{sha256.Sum256(m.Key), sha256.Sum256(m.Value), sha256.Sum256(a.headers), sha256.Sum256(a.envelope), m.Key == nil, m.Value == nil}
}

// Rows are locked in id order, as every command on letters does.
const (
	sqlHoldLetters = `
SELECT id, state, state_at, verdict, fault_id, source_id, coalesce(drain_partition, -1), coalesce(drain_offset, -1)
FROM dead_letter WHERE id = ANY(@ids) ORDER BY id FOR NO KEY UPDATE`
	sqlBodyDigests = `
SELECT id, sha256(coalesce(key, '')), sha256(coalesce(value, '')), sha256(headers), sha256(coalesce(amqp, '')), key IS NULL, value IS NULL
FROM dead_letter_body WHERE id = ANY(@ids)`
	sqlMoveIdentity = `UPDATE letter_identity SET letter_id = @to WHERE letter_id = @from AND bucket = @bucket AND hash = @hash`
)

// holdLetters locks the letters of again, and knows those of fresh. A letter that
// is not there any more was dropped by retention: its first arrival becomes a
// letter of its own, marked as a possible copy, and is returned as an orphan.
func holdLetters(ctx context.Context, tx pgx.Tx, fresh []*arrival, again map[uuid.UUID][]*arrival) (map[uuid.UUID]*heldLetter, []*arrival, error) {
	held := map[uuid.UUID]*heldLetter{}
	if len(again) == 0 {
		return held, nil, nil
	}
	for _, a := range fresh {
		if len(again[a.id]) > 0 {
			held[a.id] = a.held()
		}
	}
	var old []uuid.UUID
	for id := range again {
		if held[id] == nil {
			old = append(old, id)
		}
	}
	if err := lockHeld(ctx, tx, old, held); err != nil {
		return nil, nil, err
	}
	var orphans []*arrival
	for _, id := range old {
		if held[id] != nil {
			continue
		}
		a := again[id][0]
		if _, err := tx.Exec(ctx, sqlMoveIdentity, pgx.NamedArgs{"from": id, "to": a.id, "bucket": a.bucket(), "hash": a.hash}); err != nil {
			return nil, nil, fmt.Errorf("move identity of dropped letter %s: %w", id, err)
		}
		a.flags |= FlagPossibleCopy
		orphans = append(orphans, a)
		held[a.id], again[a.id] = a.held(), again[id][1:]
		delete(again, id)
	}
	return held, orphans, nil
}

// held is a letter that this transaction makes of the arrival.
func (a *arrival) held() *heldLetter {
	return &heldLetter{id: a.id, state: Open, faultID: a.faultID, first: a.place(), body: a.digest()}
}

func lockHeld(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, into map[uuid.UUID]*heldLetter) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, sqlHoldLetters, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return fmt.Errorf("lock letters: %w", err)
	}
	var h heldLetter
	columns := []any{&h.id, &h.state, &h.stateAt, &h.verdict, &h.faultID, &h.first.source, &h.first.partition, &h.first.offset}
	if _, err := pgx.ForEachRow(rows, columns, func() error { copied := h; into[h.id] = &copied; return nil }); err != nil {
		return fmt.Errorf("lock letters: %w", err)
	}
	return readDigests(ctx, tx, ids, into)
}

func readDigests(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, into map[uuid.UUID]*heldLetter) error {
	rows, err := tx.Query(ctx, sqlBodyDigests, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return fmt.Errorf("query bodies: %w", err)
	}
	var id uuid.UUID
	var key, value, headers, envelope []byte
	var d bodyDigest
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &value, &headers, &envelope, &d.keyNull, &d.valueNull}, func() error {
		copy(d.key[:], key)
		copy(d.value[:], value)
		copy(d.headers[:], headers)
		copy(d.envelope[:], envelope)
		if h := into[id]; h != nil {
			h.body = d
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read bodies: %w", err)
	}
	return nil
}

// occurrences stores further arrivals of letters.
type occurrences struct {
	now    time.Time
	ids    *idSource
	held   map[uuid.UUID]*heldLetter
	deltas *deltas
}

// occurrence is one further arrival; own is the id of its body, where that differs.
type occurrence struct {
	*arrival
	letter *heldLetter
	own    *uuid.UUID
}

func (o *occurrences) store(ctx context.Context, tx pgx.Tx, again map[uuid.UUID][]*arrival) error {
	list := o.collect(again)
	if len(list) == 0 {
		return nil
	}
	list, err := insertOccurrences(ctx, tx, list, o.now)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(list), func(x occurrence) bool { return x.own == nil })
	if len(own) > 0 {
		bodies := map[*arrival]uuid.UUID{}
		arrivals := make([]*arrival, len(own))
		for i, x := range own {
			arrivals[i], bodies[x.arrival] = x.arrival, *x.own
		}
		if err := copyBodies(ctx, tx, arrivals, func(a *arrival) uuid.UUID { return bodies[a] }); err != nil {
			return err
		}
	}
	return o.updateLetters(ctx, tx, list)
}

// collect leaves out an arrival that is the letter's first, read again.
func (o *occurrences) collect(again map[uuid.UUID][]*arrival) []occurrence {
	var list []occurrence
	for letter, arrivals := range again {
		h := o.held[letter]
		for _, a := range arrivals {
			if a.place() == h.first && h.first.known() {
				continue
			}
			x := occurrence{arrival: a, letter: h}
			if a.digest() != h.body {
				id := o.ids.next()
				x.own = &id
			}
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b occurrence) int { return bytes.Compare(a.id[:], b.id[:]) })
	return list
}

const sqlAddOccurrences = `
INSERT INTO letter_occurrence (letter_id, at, source_id, partition, "offset", body_id, error_message, replay_id, item_no)
SELECT l, @now, s, nullif(p, -1), nullif(o, -1), nullif(b, '00000000-0000-0000-0000-000000000000'), m, nullif(r, 0), CASE WHEN r <> 0 THEN i END
FROM unnest(@letters::uuid[], @sources::int[], @partitions::int[], @offsets::bigint[], @bodies::uuid[], @messages::text[],
  @replays::bigint[], @items::int[]) u(l, s, p, o, b, m, r, i)
ON CONFLICT (source_id, partition, "offset") DO NOTHING
RETURNING source_id, coalesce(partition, -1), coalesce("offset", -1)`

// insertOccurrences returns those that were not there yet.
func insertOccurrences(ctx context.Context, tx pgx.Tx, list []occurrence, now time.Time) ([]occurrence, error) {
	n := len(list)
	letters, bodies, messages := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]*string, n)
	sources, partitions, offsets := make([]int32, n), make([]int32, n), make([]int64, n)
	replays, items := make([]int64, n), make([]int32, n)
	for i, x := range list {
		at := x.place()
		letters[i], bodies[i], messages[i] = x.letter.id, deref(x.own), x.errorMessage()
		sources[i], partitions[i], offsets[i] = at.source, at.partition, at.offset
		if x.lineage == x.letter.id {
			replays[i], items[i] = x.replayID, x.itemNo
		}
	}
	rows, err := tx.Query(ctx, sqlAddOccurrences, pgx.NamedArgs{"now": now, "letters": letters, "sources": sources, "partitions": partitions,
		"offsets": offsets, "bodies": bodies, "messages": messages, "replays": replays, "items": items})
	if err != nil {
		return nil, fmt.Errorf("add occurrences: %w", err)
	}
	added := map[logPlace]bool{}
	var at logPlace
	if _, err := pgx.ForEachRow(rows, []any{&at.source, &at.partition, &at.offset}, func() error { added[at] = true; return nil }); err != nil {
		return nil, fmt.Errorf("add occurrences: %w", err)
	}
	return slices.DeleteFunc(list, func(x occurrence) bool { return !added[x.place()] }), nil
}

// A letter shows its latest arrival; its fault stays that of the first. One that
// reopens is judged anew: what was true of it before may not be now.
const sqlUpdateLetters = `
UPDATE dead_letter d SET occurrences = d.occurrences + u.n, state = u.state,
  state_at = CASE WHEN d.state = u.state THEN d.state_at ELSE @now END,
  verdict = CASE WHEN d.state = u.state THEN d.verdict ELSE 0 END,
  verdict_at = CASE WHEN d.state = u.state THEN d.verdict_at END,
  failed_at = CASE WHEN u.latest THEN u.failed_at ELSE d.failed_at END,
  attempts = CASE WHEN u.latest THEN nullif(u.attempts, -1) ELSE d.attempts END,
  class_id = CASE WHEN u.latest AND u.class <> 0 THEN u.class ELSE d.class_id END,
  error_message = CASE WHEN u.latest THEN u.message ELSE d.error_message END
FROM (
  SELECT x.*, coalesce(x.failed_at >= l.failed_at, true) AS latest
  FROM unnest(@ids::uuid[], @counts::int[], @states::smallint[], @failed::timestamptz[], @attempts::int[], @classes::int[], @messages::text[])
    x(id, n, state, failed_at, attempts, class, message)
  JOIN dead_letter l ON l.id = x.id AND l.id = ANY(@ids)) u
WHERE d.id = u.id AND d.id = ANY(@ids)`

func (o *occurrences) updateLetters(ctx context.Context, tx pgx.Tx, list []occurrence) error {
	byLetter := map[*heldLetter][]occurrence{}
	for _, x := range list {
		byLetter[x.letter] = append(byLetter[x.letter], x)
	}
	var ids []uuid.UUID
	var counts, attempts, classes []int32
	var states []int16
	var failed []*time.Time
	var messages []*string
	for h, arrivals := range byLetter {
		last := arrivals[len(arrivals)-1]
		ids, counts, states = append(ids, h.id), append(counts, int32(len(arrivals))), append(states, int16(o.settle(h, arrivals)))
		failed, messages, classes = append(failed, last.read.FailedAt), append(messages, last.errorMessage()), append(classes, last.classID)
		tries := int32(-1)
		if last.read.Attempts != nil {
			tries = *last.read.Attempts
		}
		attempts = append(attempts, tries)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, sqlUpdateLetters, pgx.NamedArgs{"now": o.now, "ids": ids, "counts": counts, "states": states,
		"failed": failed, "attempts": attempts, "classes": classes, "messages": messages})
	if err != nil {
		return fmt.Errorf("update letters: %w", err)
	}
	return nil
}

// settle counts the arrivals and returns the letter's state after them.
func (o *occurrences) settle(h *heldLetter, arrivals []occurrence) State {
	if !slices.ContainsFunc(arrivals, func(x occurrence) bool { return x.reopensLetter() }) {
		o.deltas.add(h.faultID, h.state, h.verdict, 0, true)
		return h.state
	}
	o.deltas.add(h.faultID, h.state, h.verdict, -1, false)
	o.deltas.add(h.faultID, Open, 0, 1, true)
	return Open
}

// reopensLetter holds for the failure of a replay, and for one that came after
// the letter was closed: a group that was set back to an older offset, say. A
// late copy of the failure that was dealt with changes nothing.
func (x occurrence) reopensLetter() bool {
	h := x.letter
	if h.state == Open {
		return false
	}
	if x.reopens {
		return true
	}
	closed := h.state == Resolved || h.state == Discarded
	return closed && x.read.FailedAt != nil && x.read.FailedAt.After(h.stateAt)
}

// deltas gathers changes of the fault counters.
type deltas struct {
	now time.Time
	n   map[deltaKey]int64
}

type deltaKey struct {
	fault   int32
	state   State
	verdict int16
	seen    bool // an arrival: moves the fault's last_seen
}

func newDeltas(now time.Time) *deltas { return &deltas{now: now, n: map[deltaKey]int64{}} }

func (d *deltas) add(fault int32, state State, verdict int16, n int64, seen bool) {
	d.n[deltaKey{fault, state, verdict, seen}] += n
}

const sqlAddDeltas = `
INSERT INTO fault_delta (fault_id, state, verdict, n, seen_at)
SELECT f, s, v, n, CASE WHEN a THEN @now::timestamptz END
FROM unnest(@faults::int[], @states::smallint[], @verdicts::smallint[], @counts::bigint[], @seen::bool[]) u(f, s, v, n, a)`

func (d *deltas) write(ctx context.Context, tx pgx.Tx) error {
	var faults []int32
	var states, verdicts []int16
	var counts []int64
	var seen []bool
	for k, n := range d.n {
		faults, states, verdicts = append(faults, k.fault), append(states, int16(k.state)), append(verdicts, k.verdict)
		counts, seen = append(counts, n), append(seen, k.seen)
	}
	_, err := tx.Exec(ctx, sqlAddDeltas, pgx.NamedArgs{"now": d.now, "faults": faults, "states": states, "verdicts": verdicts, "counts": counts, "seen": seen})
	if err != nil {
		return fmt.Errorf("count letters: %w", err)
	}
	return nil
}
