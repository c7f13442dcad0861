package reconcile

import (
	"context"
)

// chunkSize is how many records travel at once from the goroutine that reads a
// side to the one that compares.
const chunkSize = 1024

// chunk is a number of records and the bytes they point into.
type chunk struct {
	records []record
	bytes   []byte
}

// take copies a record.
func (c *chunk) take(r record) {
	start := len(c.bytes)
	c.bytes = append(c.bytes, r.key...)
	middle := len(c.bytes)
	c.bytes = append(c.bytes, r.amount...)
	kept := record{key: c.bytes[start:middle:middle], currency: r.currency, at: r.at}
	if r.amount != nil {
		kept.amount = c.bytes[middle:len(c.bytes):len(c.bytes)]
	}
	c.records = append(c.records, kept)
}

func (c *chunk) full() bool { return len(c.records) == chunkSize }

func (c *chunk) reset() { c.records, c.bytes = c.records[:0], c.bytes[:0] }

// pump reads a side ahead of its reader, by a bounded number of records.
type pump struct {
	full chan *chunk
	free chan *chunk
	err  chan error

	current *chunk
	at      int
}

// newPump starts scan, which calls emit for each row. emit copies what it gets;
// its error is that of ctx.
func newPump(ctx context.Context, scan func(ctx context.Context, emit func(record) error) error) *pump {
	const ahead = 4
	p := &pump{full: make(chan *chunk, ahead), free: make(chan *chunk, ahead+1), err: make(chan error, 1)}
	for range ahead {
		p.free <- &chunk{}
	}
	go p.run(ctx, scan)
	return p
}

func (p *pump) run(ctx context.Context, scan func(context.Context, func(record) error) error) {
	defer close(p.full)
	current := <-p.free
	send := func() error {
		select {
		case p.full <- current:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case current = <-p.free:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := scan(ctx, func(r record) error {
		current.take(r)
		if !current.full() {
			return nil
		}
		return send()
	})
	if err == nil && len(current.records) > 0 {
		err = send()
	}
	p.err <- err
}

// next gives the records in turn; each is valid until the next call.
func (p *pump) next(ctx context.Context) (*record, error) {
	if p.current != nil && p.at < len(p.current.records) {
		p.at++
		return &p.current.records[p.at-1], nil
	}
	if p.current != nil {
		p.current.reset()
		p.free <- p.current
		p.current = nil
	}
	select {
	case c, ok := <-p.full:
		if !ok {
			err := <-p.err
			p.err <- err
			return nil, err
		}
		p.current, p.at = c, 0
		return p.next(ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
