package dlq

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	originalTimeout  = 3 * time.Second  // one letter, somebody waits
	originalsTimeout = 10 * time.Second // a chunk
	originReaders    = 4                // clients that read originals at a time
)

// OriginalState is what became of the record that a letter came from.
type OriginalState int16

// The states of an original.
const (
	OriginalNotNamed OriginalState = iota + 1 // the letter does not name an origin record
	OriginalGone                              // not retained any more, or something else stands there; Reason says which
	OriginalUnread                            // the broker could not be asked now; Reason
	OriginalEqual                             // key and value are the letter's, byte for byte
	OriginalDiffers                           // key or value differ
)

// Original is the record that a letter came from, if it is still there.
type Original struct {
	State     OriginalState
	Reason    Reason    // for NotNamed, Gone, Unread
	Body      Body      // for Equal and Differs: the origin record's own bytes
	Timestamp time.Time // of the origin record
	Letter    Body      // the dead letter's bytes, for Equal and Differs

	KeyDiffers, ValueDiffers bool // for Differs
}

// Usable reports whether a replay may use the origin's bytes.
func (o Original) Usable() bool { return o.State == OriginalEqual || o.State == OriginalDiffers }

// Origins reads the records that letters came from.
type Origins struct {
	pool  *pgxpool.Pool
	topo  *Topology
	slots chan struct{} // taken while a client reads
}

// NewOrigins reads through the topology's clusters.
func NewOrigins(pool *pgxpool.Pool, topo *Topology) *Origins {
	return &Origins{pool: pool, topo: topo, slots: make(chan struct{}, originReaders)}
}

// Original reads one letter's original, bounded by 3 s, and saves what it found:
// the flags and, where the record is there, the event's time. Errors: ErrNotFound.
func (o *Origins) Original(ctx context.Context, letterID uuid.UUID) (Original, error) {
	subjects, err := loadSubjects(ctx, o.pool, []uuid.UUID{letterID})
	if err != nil {
		return Original{}, err
	}
	if len(subjects) == 0 {
		return Original{}, fmt.Errorf("original of letter %s: %w", letterID, ErrNotFound)
	}
	found, err := o.read(ctx, subjects, originalTimeout)
	if err != nil {
		return Original{}, err
	}
	return found[letterID], o.save(ctx, found)
}

// Originals reads those of many letters, each partition in one pass, bounded by
// 10 s. Each subject has an answer. Nothing is saved.
func (o *Origins) Originals(ctx context.Context, subjects []Subject) (map[uuid.UUID]Original, error) {
	return o.read(ctx, subjects, originalsTimeout)
}

// OriginalsOf is Originals for letters whose bodies the caller has.
func (o *Origins) OriginalsOf(ctx context.Context, subjects []Subject, letters map[uuid.UUID]Body) (map[uuid.UUID]Original, error) {
	return o.compare(ctx, subjects, letters, originalsTimeout)
}

const sqlLetterBodies = `SELECT id, key, value, headers FROM dead_letter_body WHERE id = ANY(@ids)`

func (o *Origins) bodies(ctx context.Context, subjects []Subject) (map[uuid.UUID]Body, error) {
	ids := make([]uuid.UUID, len(subjects))
	for i, s := range subjects {
		ids[i] = s.LetterID
	}
	rows, err := o.pool.Query(ctx, sqlLetterBodies, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query bodies: %w", err)
	}
	defer rows.Close()
	out := make(map[uuid.UUID]Body, len(subjects))
	for rows.Next() {
		var id uuid.UUID
		var b Body
		var headers []byte
		if err := rows.Scan(&id, &b.Key, &b.Value, &headers); err != nil {
			return nil, fmt.Errorf("read bodies: %w", err)
		}
		b.Headers, _ = DecodeHeaders(headers) // damaged ones hinder sending, not comparing
		out[id] = b
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	return out, nil
}

func (o *Origins) read(ctx context.Context, subjects []Subject, within time.Duration) (map[uuid.UUID]Original, error) {
	letters, err := o.bodies(ctx, subjects)
	if err != nil {
		return nil, err
	}
	return o.compare(ctx, subjects, letters, within)
}

// compare answers for every subject, cluster by cluster side by side.
func (o *Origins) compare(ctx context.Context, subjects []Subject, letters map[uuid.UUID]Body, within time.Duration) (map[uuid.UUID]Original, error) {
	out := make(map[uuid.UUID]Original, len(subjects))
	named := map[string][]Subject{}
	for _, s := range subjects {
		if _, _, ok := s.place(); !ok {
			out[s.LetterID] = Original{State: OriginalNotNamed, Reason: reason("reason.original.not_named")}
			continue
		}
		named[s.Cluster] = append(named[s.Cluster], s)
	}
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for cluster, of := range named {
		wg.Go(func() {
			answers := o.readCluster(bounded, cluster, of)
			mu.Lock()
			defer mu.Unlock()
			for _, s := range of {
				out[s.LetterID] = answers[s.LetterID].original(s, letters[s.LetterID], o.topo.clock())
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read %d originals: %w", len(subjects), err)
	}
	return out, nil
}

// originAnswer is what a broker said of one origin record.
type originAnswer struct {
	record *kgo.Record
	gone   string // catalog key; "" not gone
	unread string // catalog key; "" read
}

func (o *Origins) readCluster(ctx context.Context, cluster string, subjects []Subject) map[uuid.UUID]originAnswer {
	out := make(map[uuid.UUID]originAnswer, len(subjects))
	all := func(a originAnswer) map[uuid.UUID]originAnswer {
		for _, s := range subjects {
			out[s.LetterID] = a
		}
		return out
	}
	c := o.topo.clusters[cluster]
	if c == nil {
		return all(originAnswer{unread: "reason.original.no_cluster"})
	}
	view, err := o.topo.view(ctx, cluster)
	if err != nil || view.Err != nil {
		return all(originAnswer{unread: "reason.original.unread"})
	}
	select {
	case o.slots <- struct{}{}:
		defer func() { <-o.slots }()
	case <-ctx.Done():
		return all(originAnswer{unread: "reason.original.unread"})
	}
	wanted := map[partitionOf][]int64{}
	for _, s := range subjects {
		p, offset, _ := s.place()
		if !view.has(p.topic) {
			out[s.LetterID] = originAnswer{gone: "reason.original.no_topic"}
			continue
		}
		of := partitionOf{p.topic, p.partition}
		wanted[of] = append(wanted[of], offset)
	}
	records := c.fetch(ctx, wanted)
	for _, s := range subjects {
		p, offset, _ := s.place()
		if out[s.LetterID].gone == "" {
			out[s.LetterID] = records.answer(partitionOf{p.topic, p.partition}, offset)
		}
	}
	return out
}

// original compares what stands at the origin with the letter.
func (a originAnswer) original(s Subject, letter Body, now time.Time) Original {
	p, offset, _ := s.place()
	say := func(key string) Reason {
		return reason(key, "topic", p.topic, "partition", p.partition, "offset", offset, "cluster", s.Cluster, "at", instant(now))
	}
	switch {
	case a.gone != "":
		return Original{State: OriginalGone, Reason: say(a.gone)}
	case a.record == nil:
		return Original{State: OriginalUnread, Reason: say(a.unread)}
	case !sameEvent(s, letter, a.record):
		return Original{State: OriginalGone, Reason: say("reason.original.other")}
	}
	o := Original{State: OriginalEqual, Body: bodyOf(a.record), Timestamp: a.record.Timestamp, Letter: letter,
		KeyDiffers: !sameBytes(a.record.Key, letter.Key), ValueDiffers: !sameBytes(a.record.Value, letter.Value)}
	if o.KeyDiffers || o.ValueDiffers {
		o.State = OriginalDiffers
	}
	return o
}

// sameEvent guards against a topic that was created anew: the offset may hold
// another event now. The record is the letter's when it carries its event id, or
// its bytes, or has the very time that the letter names as the origin's.
func sameEvent(s Subject, letter Body, r *kgo.Record) bool {
	for _, id := range s.ids() {
		if carries(r, []byte(id)) {
			return true
		}
	}
	if letter.Value != nil && sameBytes(r.Value, letter.Value) && sameBytes(r.Key, letter.Key) {
		return true
	}
	return s.EventTime != nil && s.EventTime.UnixMilli() == r.Timestamp.UnixMilli()
}

func carries(r *kgo.Record, id []byte) bool {
	for _, h := range r.Headers {
		if bytes.Contains(h.Value, id) {
			return true
		}
	}
	return bytes.Contains(r.Value, id)
}

// sameBytes compares bytes where null is not empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func bodyOf(r *kgo.Record) Body {
	b := Body{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		b.Headers = append(b.Headers, Header{Name: h.Key, Value: h.Value})
	}
	return b
}

// sqlSaveOriginal marks a letter whose original was read. The origin record's
// time is the event's, unless it lies in the future.
const sqlSaveOriginal = `
UPDATE dead_letter d SET
  flags = (d.flags & ~(@differs::int | @future::int)) | u.flags,
  event_time = u.event_time
FROM unnest(@ids::uuid[], @flags::int[], @times::timestamptz[]) AS u(id, flags, event_time)
WHERE d.id = u.id AND d.id = ANY(@ids)`

// save keeps what was learnt of originals that are there.
func (o *Origins) save(ctx context.Context, found map[uuid.UUID]Original) error {
	var ids []uuid.UUID
	var flags []int32
	var times []time.Time
	latest := o.topo.clock().Add(evidenceMargin)
	for id, original := range found {
		if !original.Usable() {
			continue
		}
		f := FlagOriginRead
		if original.State == OriginalDiffers {
			f |= FlagCopyDiffers
		}
		if original.Timestamp.After(latest) {
			f |= FlagEventTimeFuture
		}
		ids, flags, times = append(ids, id), append(flags, int32(f)), append(times, original.Timestamp)
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := o.pool.Exec(ctx, sqlSaveOriginal, pgx.NamedArgs{"ids": ids, "flags": flags, "times": times,
		"differs": int32(FlagCopyDiffers), "future": int32(FlagEventTimeFuture)})
	if err != nil {
		return fmt.Errorf("save originals of %d letters: %w", len(ids), err)
	}
	return nil
}
