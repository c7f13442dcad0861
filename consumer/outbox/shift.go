package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"oncemore/consumer"
)

const (
	sessionTimeout = 10 * time.Second // for one question to the database
	lease          = 5 * time.Second  // how long after an answer the locks are taken as held
	heartbeat      = time.Second      // how often an otherwise silent session is asked
	gather         = 3 * time.Millisecond
	maxPerKey      = 256 // rows of one key that are taken at once
	maxError       = 2000
)

// shift is a relay's work under one session. All that it knows ends with it: the
// next one reads anew. Rows of a key go one after the other, each when the one
// before is confirmed; keys go side by side.
//
// A relay that lost its session may still have rows on their way, and its
// successor publishes them again. Each of the two begins with the first row of a
// key that was not marked, and goes in order, so the first arrivals of a key's
// rows are in order whatever the two do.
type shift struct {
	r *Relay
	s session

	owned   map[int16]bool // true: being given away
	flights map[string]*flight
	bytes   int // of the rows on their way
	depth   int // how many candidates of a shard are looked at
	balance time.Time
	marked  time.Time
	outage  outage

	mu     sync.Mutex
	proven time.Time // when the session last showed that it is alive
	over   bool      // nothing more is published
	out    []*flight // whose next row is to be published
	landed []landing
	wakeUp chan struct{} // something landed
	send   chan struct{} // something is to be published
}

// flight is a key with rows on their way. It ends when none is, and everything
// of it is marked: until then no later row of the key is taken.
type flight struct {
	key   string
	shard int16
	rows  []Row
	next  int // the row that is on its way
}

// landing is what became of a row.
type landing struct {
	f    *flight
	row  Row
	err  error
	last bool // of its flight
}

// outage is something that is nobody's row's fault.
type outage struct {
	err   error
	until time.Time
	pause time.Duration
}

var (
	errFenced = consumer.Unavailable(errors.New("the session is lost, or was not heard of for too long"))
	errOver   = consumer.Unavailable(errors.New("the relay is stopping"))
)

func newShift(r *Relay, s session, began time.Time) *shift {
	return &shift{
		r: r, s: s, owned: map[int16]bool{}, flights: map[string]*flight{}, depth: minDepth, proven: began,
		wakeUp: make(chan struct{}, 1), send: make(chan struct{}, 1),
	}
}

// run works until ctx ends, then finishes what is on its way. An error is one of
// the session's, which is lost then.
func (sh *shift) run(ctx context.Context) error {
	publishing, end := context.WithCancel(context.WithoutCancel(ctx))
	var sender sync.WaitGroup
	sender.Go(func() { sh.publish(publishing) })
	defer func() {
		sh.stop()
		end()
		sender.Wait()
	}()
	for ctx.Err() == nil {
		if err := sh.turn(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return sh.finish(context.WithoutCancel(ctx))
}

// turn marks what has landed, takes what there is room for, and waits.
func (sh *shift) turn(ctx context.Context) error {
	if err := sh.rebalance(ctx); err != nil {
		return err
	}
	if err := sh.settle(ctx); err != nil {
		return err
	}
	more, err := sh.refill(ctx)
	if err != nil {
		return err
	}
	sh.r.tell(func(s *Status) { s.Shards, s.OnTheWay = len(sh.owned), sh.onTheWay() })
	if len(sh.flights) > 0 {
		return sh.await(ctx)
	}
	if more {
		return nil
	}
	return sh.idle(ctx)
}

// finish waits for the rows on their way, without taking new ones.
func (sh *shift) finish(ctx context.Context) error {
	sh.stop()
	ctx, cancel := context.WithTimeout(ctx, sh.r.opts.FinishTimeout)
	defer cancel()
	for len(sh.flights) > 0 && ctx.Err() == nil {
		if err := sh.await(ctx); err != nil {
			return err
		}
		if err := sh.settle(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// stop lets no further row begin.
func (sh *shift) stop() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.over = true
	signal(sh.send)
}

// ask puts a question to the session. An answer shows that the locks were held
// when it was put.
func (sh *shift) ask(ctx context.Context, what string, question func(context.Context) error) error {
	began := sh.r.opts.Now()
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionTimeout) // cut off, it would cost the session
	defer cancel()
	if err := question(asking); err != nil {
		return fmt.Errorf("%s of %s: %w", what, sh.r.box.table, err)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.proven = began
	return nil
}

// publish sends what is ready until ctx ends. It may block on the broker.
func (sh *shift) publish(ctx context.Context) {
	for {
		sh.mu.Lock()
		ready := sh.out
		sh.out = nil
		sh.mu.Unlock()
		for _, f := range ready {
			sh.publishNext(ctx, f)
		}
		if len(ready) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-sh.send:
		}
	}
}

func (sh *shift) publishNext(ctx context.Context, f *flight) {
	if err := sh.fence(); err != nil {
		sh.land(f, err)
		return
	}
	ctx, done := sending(ctx, sh.r.opts.Traces, f.rows[f.next], func(err error) { sh.land(f, err) })
	sh.r.to.Publish(ctx, f.rows[f.next], done)
}

// fence refuses to publish without locks.
func (sh *shift) fence() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.over:
		return errOver
	case sh.r.opts.Now().Sub(sh.proven) > lease:
		return errFenced
	}
	return nil
}

// land notes what became of a flight's row, and lets its next one go.
func (sh *shift) land(f *flight, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := landing{f: f, row: f.rows[f.next], err: err}
	f.rows[f.next] = Row{} // its contents are no longer needed
	f.next++
	if l.last = err != nil || f.next == len(f.rows); !l.last {
		sh.out = append(sh.out, f)
		signal(sh.send)
	}
	sh.landed = append(sh.landed, l)
	signal(sh.wakeUp)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// settle marks what has landed.
func (sh *shift) settle(ctx context.Context) error {
	sh.mu.Lock()
	landed := sh.landed
	sh.landed = nil
	sh.mu.Unlock()
	if len(landed) == 0 {
		return nil
	}
	var sent []int64
	var failed []failure
	for _, l := range landed {
		switch {
		case l.err == nil:
			sent = append(sent, l.row.ID)
		case consumer.OutcomeOf(l.err) == consumer.OutcomeUnavailable:
			sh.meet(ctx, l.err)
		default:
			failed = append(failed, sh.refusal(ctx, l))
		}
	}
	slices.Sort(sent) // neighbours in the table
	if len(sent)+len(failed) > 0 {
		err := sh.ask(ctx, "mark rows", func(ctx context.Context) error { return sh.s.mark(ctx, sent, failed) })
		if err != nil {
			return err
		}
	}
	if len(sent) > 0 {
		sh.outage.over(ctx, sh.r)
	}
	sh.forget(landed)
	sh.count(sent, failed)
	return nil
}

// forget ends the flights whose last row was marked.
func (sh *shift) forget(landed []landing) {
	sh.marked = sh.r.opts.Now()
	for _, l := range landed {
		sh.bytes -= l.row.bytes()
		if !l.last {
			continue
		}
		for _, left := range l.f.rows[l.f.next:] {
			sh.bytes -= left.bytes()
		}
		delete(sh.flights, l.f.key)
	}
}

func (sh *shift) count(sent []int64, failed []failure) {
	died := int64(0)
	for _, f := range failed {
		if f.state == Dead {
			died++
		}
	}
	sh.r.tell(func(s *Status) {
		s.Sent += int64(len(sent))
		s.Refused += int64(len(failed))
		s.Died += died
	})
}

// refusal is the failed attempt of a row.
func (sh *shift) refusal(ctx context.Context, l landing) failure {
	attempt := l.row.Attempts + 1
	f := failure{id: l.row.ID, state: Failing, after: sh.r.opts.backoff(attempt), err: storable(l.err.Error())}
	sh.r.noteError(l.err)
	if attempt >= sh.r.opts.Attempts {
		f.state = Dead
		sh.r.opts.Logger.ErrorContext(ctx, "outbox row is dead and holds back its key", "table", sh.r.box.table, "id", l.row.ID,
			"event_id", l.row.EventID, "target", l.row.Target, "attempt", attempt, "error", l.err)
	}
	return f
}

// storable is text that databases take.
func storable(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError], "")
	}
	return s
}

// Pauses while nothing can be sent.
const (
	firstOutage = 200 * time.Millisecond
	lastOutage  = 10 * time.Second
)

// meet notes an outage; it is logged once.
func (sh *shift) meet(ctx context.Context, err error) {
	now := sh.r.opts.Now()
	if now.Before(sh.outage.until) || errors.Is(err, errOver) {
		return // the same one
	}
	if sh.outage.err == nil {
		sh.r.opts.Logger.WarnContext(ctx, "outbox relay waits: nothing can be sent", "table", sh.r.box.table, "error", err)
	}
	sh.r.noteError(err)
	sh.outage.err = err
	sh.outage.pause = min(max(2*sh.outage.pause, firstOutage), lastOutage)
	sh.outage.until = now.Add(sh.outage.pause)
}

func (o *outage) over(ctx context.Context, r *Relay) {
	if o.err != nil {
		r.opts.Logger.InfoContext(ctx, "outbox relay sends again", "table", r.box.table)
	}
	*o = outage{}
}

// await waits for rows to land, a moment longer for others to join them.
func (sh *shift) await(ctx context.Context) error {
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-beat.C:
		return sh.ask(ctx, "heartbeat", func(ctx context.Context) error { return sh.s.ping(ctx) })
	case <-sh.wakeUp:
	}
	if since := sh.r.opts.Now().Sub(sh.marked); since < gather && !sh.allLanded() {
		sleep(ctx, gather-since)
	}
	return nil
}

func (sh *shift) allLanded() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	last := 0
	for _, l := range sh.landed {
		if l.last {
			last++
		}
	}
	return last == len(sh.flights)
}

// idle waits for a hint, or for the next look.
func (sh *shift) idle(ctx context.Context) error {
	pause := sh.r.opts.Poll
	if left := sh.outage.until.Sub(sh.r.opts.Now()); left > 0 {
		pause = min(left, heartbeat) // a hint mends nothing, but a lost session is noticed
	}
	if err := sh.s.wait(ctx, min(pause, heartbeat)); err != nil {
		return fmt.Errorf("wait for rows of %s: %w", sh.r.box.table, err)
	}
	return nil
}
