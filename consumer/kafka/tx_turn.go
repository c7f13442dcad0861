package kafka

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// pipeRun is a Pipe within one session.
type pipeRun struct {
	*Pipe
	session *kgo.GroupTransactSession

	// cut ends the handlers of the turn under way when a partition was revoked:
	// its transaction cannot be committed any more.
	mu  sync.Mutex
	cut context.CancelFunc

	// What is known of records whose turn was aborted and that come again.
	attempts map[recordID]int
	faults   map[recordID]fault
	oneByOne bool // output is sent one at a time
}

type recordID struct {
	topic     string
	partition int32
	offset    int64
}

func idOf(r *kgo.Record) recordID { return recordID{r.Topic, r.Partition, r.Offset} }

// fault is why the output of a record cannot be sent.
type fault struct {
	err error
	cut bool // its dead letter was refused as well: leave out the stack trace
}

// result is what a record of the input leads to.
type result struct {
	in     *kgo.Record
	out    []*kgo.Record
	letter bool
}

// revoked runs on the client's goroutine; the session itself remembers to abort.
func (r *pipeRun) revoked(_ context.Context, _ *kgo.Client, which map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(which) > 0 && r.cut != nil {
		r.cut()
	}
}

// handling is the context of a turn's handlers. It begins before the poll: no
// revocation is missed.
func (r *pipeRun) handling(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, r.cut = context.WithCancel(ctx)
	return ctx, r.cut
}

// turn handles what one poll brings, and then sends it in a transaction, which
// is short for that: however long handlers take, the broker does not time it out.
func (r *pipeRun) turn(ctx context.Context) (committed bool, _ error) {
	handling, done := r.handling(ctx)
	defer done()
	fetches := r.session.PollRecords(ctx, r.cfg.BatchSize)
	fetches.EachError(func(topic string, partition int32, err error) {
		if ctx.Err() == nil {
			r.cfg.Logger.Warn("fetch failed", "consumer_group", r.cfg.Group, "topic", topic, "partition", partition, "error", err)
		}
	})
	if fetches.NumRecords() == 0 || ctx.Err() != nil {
		return false, nil
	}
	results, err := r.handleAll(handling, fetches.Records())
	if err != nil {
		return false, r.abandon(ctx)
	}
	return r.send(ctx, results)
}

// abandon ends the turn without a trace. Its records come again to their owner.
func (r *pipeRun) abandon(ctx context.Context) error {
	if err := r.session.Begin(); err != nil {
		return err
	}
	_, err := r.end(ctx, kgo.TryAbort)
	return err
}

func (r *pipeRun) end(ctx context.Context, how kgo.TransactionEndTry) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return r.session.End(ctx, how)
}

// send produces the results and commits them with the offsets of their input.
func (r *pipeRun) send(ctx context.Context, results []result) (committed bool, _ error) {
	if err := r.session.Begin(); err != nil {
		return false, err
	}
	err := r.produce(ctx, results)
	if err == nil {
		committed, err = r.end(ctx, kgo.TryCommit)
		if committed {
			clear(r.attempts)
			clear(r.faults)
			r.oneByOne = false
		}
		return committed, err
	}
	if isFenced(err) {
		return false, err
	}
	if _, aborting := r.end(ctx, kgo.TryAbort); aborting != nil {
		return false, aborting
	}
	if errors.Is(err, errRepeat) {
		return false, nil // the next turn knows what to do
	}
	return false, err
}

// errRepeat says that the turn is repeated, with what is now known.
var errRepeat = errors.New("kafka: an output was refused")

// produce sends all output. The broker refuses a whole batch for one record in
// it, so after a refusal the repeated turn sends one at a time, to know which.
func (r *pipeRun) produce(ctx context.Context, results []result) error {
	if r.oneByOne {
		return r.produceOneByOne(ctx, results)
	}
	var all []*kgo.Record
	for _, res := range results {
		all = append(all, res.out...)
	}
	err := r.session.ProduceSync(ctx, all...).FirstErr()
	if refused(err) {
		r.oneByOne = true
		return errRepeat
	}
	return err
}

func (r *pipeRun) produceOneByOne(ctx context.Context, results []result) error {
	for _, res := range results {
		for _, out := range res.out {
			err := r.session.ProduceSync(ctx, out).FirstErr()
			if refused(err) && !r.faults[idOf(res.in)].cut {
				r.note(res, err)
				return errRepeat
			}
			if err != nil {
				return fmt.Errorf("produce to %s: %w", out.Topic, err)
			}
		}
	}
	return nil
}

// refused reports that the broker, or the client for it, will never take a record.
func refused(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.InvalidRecord)
}

func (r *pipeRun) note(res result, err error) {
	id := idOf(res.in)
	if res.letter {
		r.faults[id] = fault{err: r.faults[id].err, cut: true}
		return
	}
	r.faults[id] = fault{err: consumer.Permanent(fmt.Errorf("output refused: %w", err))}
}

func (r *pipeRun) handleAll(ctx context.Context, records []*kgo.Record) ([]result, error) {
	results := make([]result, 0, len(records))
	for _, rec := range records {
		res, err := r.handle(ctx, rec)
		if err != nil {
			return nil, err
		}
		results = append(results, res)
	}
	return results, nil
}

// handle repeats an event by the policy until it has output, is discarded or is
// given up. Its error is that of ctx.
func (r *pipeRun) handle(ctx context.Context, rec *kgo.Record) (result, error) {
	d := consumer.NewDelivery(eventOf(r.cfg.Group, rec), r.cfg.EventID)
	id := idOf(rec)
	if err := errors.Join(d.Reject, r.faults[id].err); err != nil {
		return r.giveUp(rec, d.Event, err), nil
	}
	for outages := 0; ; outages++ {
		d.Attempt = r.attempts[id] + 1
		out, err := r.call(ctx, d.Event)
		if err == nil {
			return result{in: rec, out: out}, nil
		}
		if ctx.Err() != nil {
			return result{}, ctx.Err()
		}
		pause, giveUp := r.after(err, id, outages)
		switch {
		case consumer.OutcomeOf(err) == consumer.OutcomeDiscard:
			return result{in: rec}, nil
		case giveUp:
			return r.giveUp(rec, d.Event, err), nil
		}
		r.cfg.Logger.Warn("event failed, will be retried", "consumer_group", r.cfg.Group, "event_id", d.ID,
			"topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "attempt", d.Attempt, "after", pause, "error", err)
		if err := wait(ctx, pause); err != nil {
			return result{}, err
		}
	}
}

// after is the pause before the next attempt. Outages and contention are
// nobody's attempt.
func (r *pipeRun) after(err error, id recordID, outages int) (pause time.Duration, giveUp bool) {
	switch consumer.OutcomeOf(err) {
	case consumer.OutcomeUnavailable, consumer.OutcomeContention:
		return min(r.cfg.Outage/32<<min(outages, 5), r.cfg.Outage), false
	}
	r.attempts[id]++
	return r.cfg.Retry.Next(err, r.attempts[id])
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveUp makes the dead letter, which goes into the same transaction.
func (r *pipeRun) giveUp(rec *kgo.Record, ev consumer.Event, err error) result {
	topic := r.opts.deadLetterTopic(r.cfg.Group, rec.Topic)
	letter := deadRecord(topic, rec, consumer.Letter{Event: ev, Err: err})
	letter.Timestamp = r.cfg.Now()
	if r.faults[idOf(rec)].cut {
		letter = withoutStack(letter)
	}
	r.cfg.Logger.Warn("event is dead-lettered", "consumer_group", r.cfg.Group, "event_id", ev.ID,
		"topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "attempt", ev.Attempt, "error", err)
	return result{in: rec, out: []*kgo.Record{letter}, letter: true}
}

func (r *pipeRun) call(ctx context.Context, ev consumer.Event) (out []*kgo.Record, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, &consumer.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	ctx = consumer.Remote(ctx, ev.Headers)
	out, err = r.cfg.Handler(ctx, ev)
	for _, rec := range out {
		if err == nil && (rec == nil || rec.Topic == "") {
			err = consumer.Permanent(errors.New("handler returned a record without a topic"))
		}
		if err == nil {
			trace(ctx, rec) // the output goes on with the trace of its input
		}
	}
	return out, err
}
