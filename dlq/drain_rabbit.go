package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// RabbitDrainer moves the dead letters of one RabbitMQ cluster into the tables.
// Any number of processes may drain one queue: they compete for its messages. A
// message is acknowledged after its letter is committed; one that comes again all
// the same is recognised.
type RabbitDrainer struct {
	conf    DrainerConfig
	broker  *rabbitBroker
	intake  *intake
	sources []sourcePattern
	invalid error // of the sources

	dialing sync.Mutex
	conn    *amqp.Connection

	mu      sync.Mutex
	running map[string]bool
	status  map[string]*SourceStatus
	queues  sync.WaitGroup

	reached func(moment) // for tests that stop a drain between its commits
}

// NewRabbitDrainer prepares a drain; nothing is connected before Run.
func NewRabbitDrainer(conf DrainerConfig) *RabbitDrainer {
	if conf.Clock == nil {
		conf.Clock = time.Now
	}
	sources, err := compileSources(conf.Sources)
	return &RabbitDrainer{
		conf: conf, broker: conf.Cluster.rabbit, sources: sources, invalid: err,
		intake:  newIntake(conf.Pool, conf.Cluster.Name, conf.Dialects, conf.Log),
		running: map[string]bool{}, status: map[string]*SourceStatus{}, reached: func(moment) {},
	}
}

// Run drains until ctx ends, then finishes the batches in hand, at most 10 s. It
// returns nil then. Unreachable brokers and databases are waited for. Errors:
// ErrBadPattern.
func (d *RabbitDrainer) Run(ctx context.Context) error {
	if d.invalid != nil {
		return d.invalid
	}
	failing := false
	for ctx.Err() == nil {
		err := d.discover(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once per outage
			d.conf.Log.WarnContext(ctx, "queues of dead letters not listed", "cluster", d.broker.name, "error", err)
		}
		failing = err != nil
		pause(ctx, newTopicsIn)
	}
	d.queues.Wait()
	d.hangUp()
	return nil
}

// errPattern is shown for a pattern that cannot be resolved.
var errPattern = errors.New("a pattern needs the management API to list queues: configure management_url, or name the queue in full")

// discover starts to drain queues that match and are not drained yet.
func (d *RabbitDrainer) discover(ctx context.Context) error {
	if d.broker.api == nil {
		for _, s := range d.sources {
			if !s.exact() {
				d.failed(s.Pattern, errPattern)
				continue
			}
			d.start(ctx, rabbit.Queue{}, s.Pattern, s.DrainSource)
		}
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, brokerTime)
	defer cancel()
	queues, err := d.broker.api.Queues(asking)
	if err != nil {
		return fmt.Errorf("management API of cluster %s: %w", d.broker.name, err)
	}
	major, err := d.broker.api.Major(asking)
	if err != nil {
		return fmt.Errorf("management API of cluster %s: %w", d.broker.name, err)
	}
	for _, q := range queues {
		source, ok := matchQueue(d.sources, q.Name)
		if !ok {
			continue
		}
		d.noteUnacked(q)
		if err := mayDrain(q, source, major); err != nil {
			d.failed(q.Name, err)
			continue
		}
		d.start(ctx, q, q.Name, source)
	}
	return nil
}

// matchQueue is match for queues. Names that begin with amq. are the broker's.
func matchQueue(sources []sourcePattern, queue string) (DrainSource, bool) {
	if strings.HasPrefix(queue, "amq.") {
		return DrainSource{}, false
	}
	for _, s := range sources {
		if s.re.MatchString(queue) {
			return s.DrainSource, true
		}
	}
	return DrainSource{}, false
}

var (
	errStream = errors.New("it is a stream: reading takes nothing out of it, so it would be drained again and again. " +
		"Point the dead-letter exchange to a classic or quorum queue")
	errCopyBlind = errors.New("copying needs the management API: whether giving messages back would use up a delivery limit is not known")
)

// mayDrain says why a queue is left alone.
func mayDrain(q rabbit.Queue, source DrainSource, major int) error {
	switch limit := q.DeliveryLimit(major); {
	case q.IsStream():
		return errStream
	case source.Copy && limit >= 0:
		return fmt.Errorf("it has a delivery limit of %d: a message that is copied so often would be dropped. Drain it, or lift the limit", limit)
	}
	return nil
}

// start drains a queue in the background, unless it is drained already.
func (d *RabbitDrainer) start(ctx context.Context, q rabbit.Queue, name string, source DrainSource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[name] || ctx.Err() != nil {
		return
	}
	d.running[name] = true
	d.statusOf(name).Copies = source.Copy
	drain := &queueDrain{d: d, name: name, source: source, typed: q.Type != "", log: d.conf.Log.With("cluster", d.broker.name, "queue", name)}
	d.queues.Go(func() {
		drain.run(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, name)
	})
}

// connection is shared by the queues; each has a channel of its own on it.
func (d *RabbitDrainer) connection(ctx context.Context) (*amqp.Connection, error) {
	d.dialing.Lock()
	defer d.dialing.Unlock()
	if d.conn != nil && !d.conn.IsClosed() {
		return d.conn, nil
	}
	conn, err := d.broker.dial(ctx, "drain")
	if err != nil {
		return nil, err
	}
	d.conn = conn
	return conn, nil
}

func (d *RabbitDrainer) hangUp() {
	d.dialing.Lock()
	defer d.dialing.Unlock()
	if d.conn != nil {
		rabbit.HangUp(d.conn)
		d.conn = nil
	}
}

// Status says how far each queue is that this process drains or has drained, by
// name.
func (d *RabbitDrainer) Status() []SourceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]SourceStatus, 0, len(d.status))
	for _, s := range d.status {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b SourceStatus) int { return cmp.Compare(a.Source, b.Source) })
	return list
}

// statusOf needs the lock.
func (d *RabbitDrainer) statusOf(queue string) *SourceStatus {
	s := d.status[queue]
	if s == nil {
		s = &SourceStatus{Cluster: d.broker.name, Source: queue}
		d.status[queue] = s
	}
	return s
}

func (d *RabbitDrainer) failed(queue string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.statusOf(queue)
	s.LastError, s.LastErrorAt = err.Error(), d.conf.Clock()
}

func (d *RabbitDrainer) noteUnacked(q rabbit.Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.statusOf(q.Name).Unacked = &q.Unacked
}

// drained counts what was stored, and shows what waits; ready is -1 where that is
// not known.
func (d *RabbitDrainer) drained(queue string, letters int, ready int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.statusOf(queue)
	s.LastError, s.LastErrorAt = "", time.Time{}
	if letters > 0 {
		s.Drained, s.LastArrival = s.Drained+int64(letters), d.conf.Clock()
	}
	if ready >= 0 {
		s.Waiting = ready
	}
}
