package dlq

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	copyEvery = 30 * time.Second // between passes over a queue that is copied
	copyMost  = 50_000           // deliveries that one pass may hold
	copyQuiet = 2 * time.Second  // without a delivery: the rest is in other hands
)

const (
	sqlCopied = `SELECT hashes FROM drain_unacked WHERE cluster = @cluster AND queue = @queue AND copied AND session <> @session`
	// A pass that has seen the whole queue knows what is left in it.
	sqlReplaceCopied = `DELETE FROM drain_unacked WHERE cluster = @cluster AND queue = @queue AND copied AND session <> @session`
)

// copyAgain copies the queue pass by pass, for those who may not move messages: a
// pass takes everything, stores what it has not stored before, and gives it back.
// Whether a message is known is told by its bytes, so one that somebody else has
// moved out and in again, or whose headers were changed, is stored twice.
func (q *queueDrain) copyAgain(ctx context.Context) error {
	if q.d.broker.api == nil {
		return errCopyBlind
	}
	for ctx.Err() == nil {
		if err := q.copyPass(ctx); err != nil {
			return err
		}
		pause(ctx, copyEvery)
	}
	return nil
}

// copyPass is one pass, of one console at a time: two would each see a part.
func (q *queueDrain) copyPass(ctx context.Context) error {
	conn, mine, err := q.copyLock(ctx)
	if err != nil || !mine {
		return err
	}
	defer unlockCopy(ctx, conn)
	s, err := q.open(ctx)
	if err != nil {
		return err
	}
	defer s.channel.Close() // gives everything back
	ready, err := s.confirmAcks()
	if err != nil {
		return err
	}
	known, err := s.copied(ctx)
	if err != nil {
		return err
	}
	seen, err := s.copyAll(ctx, ready, known)
	if err != nil {
		return err
	}
	if seen < ready || ctx.Err() != nil { // some are in other hands: what is known of them stays
		s.d.drained(s.name, 0, ready)
		return nil
	}
	if _, err := q.d.conf.Pool.Exec(ctx, sqlReplaceCopied, s.args()); err != nil {
		return fmt.Errorf("forget what has left queue %s: %w", q.name, err)
	}
	s.d.drained(s.name, 0, ready)
	return nil
}

// copied counts the messages of the queue that are stored, by their hashes.
func (s *queueSession) copied(ctx context.Context) (map[messageHash]int, error) {
	rows, err := s.d.conf.Pool.Query(ctx, sqlCopied, s.args())
	if err != nil {
		return nil, fmt.Errorf("query copied messages of %s: %w", s.name, err)
	}
	known := map[messageHash]int{}
	var hashes []byte
	_, err = pgx.ForEachRow(rows, []any{&hashes}, func() error {
		for h := hashes; len(h) >= len(messageHash{}); h = h[len(messageHash{}):] {
			known[messageHash(h)]++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read copied messages of %s: %w", s.name, err)
	}
	return known, nil
}

// copyAll takes what is ready and returns how much that was.
func (s *queueSession) copyAll(ctx context.Context, ready int64, known map[messageHash]int) (seen int64, err error) {
	most := min(ready, copyMost)
	if most == 0 {
		return 0, nil
	}
	if err := s.consume(0); err != nil { // nothing is acknowledged, so nothing may wait for that
		return 0, err
	}
	for seen < most && ctx.Err() == nil {
		batch, err := s.gatherCopies(ctx, int(most-seen))
		if err != nil || len(batch) == 0 {
			return seen, err
		}
		seen += int64(len(batch))
		if err := s.storeCopies(ctx, batch, known); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// gatherCopies waits no longer than copyQuiet.
func (s *queueSession) gatherCopies(ctx context.Context, most int) (batch []amqp.Delivery, err error) {
	quiet := time.After(copyQuiet)
	for len(batch) < min(most, queueBatch) {
		select {
		case d, open := <-s.deliveries:
			if !open {
				return batch, s.reason()
			}
			batch = append(batch, d)
		case <-quiet:
			return batch, nil
		case <-ctx.Done():
			return batch, nil
		}
	}
	return batch, nil
}

// storeCopies stores those that are not known, and notes all of them as seen by
// this pass.
func (s *queueSession) storeCopies(ctx context.Context, batch []amqp.Delivery, known map[messageHash]int) error {
	arrivals := s.read(ctx, batch)
	for _, a := range arrivals {
		if a.redelivered = known[a.hash] > 0; a.redelivered {
			known[a.hash]--
		}
	}
	letters := 0
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := s.d.intake.commit(ctx, arrivalsOf(arrivals), func(ctx context.Context, tx pgx.Tx, _ []*arrival) (now time.Time, keep []*arrival, err error) {
			now, keep, err = s.noteCopies(ctx, tx, arrivals)
			letters = len(keep)
			return now, keep, err
		})
		if dataFault(err) && len(arrivals) > 1 {
			return s.copySingly(ctx, arrivals)
		}
		if dataFault(err) {
			arrivals[0].forget()
			continue
		}
		if err == nil {
			s.d.drained(s.name, letters, -1)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		s.log.ErrorContext(ctx, "dead letters not stored, trying again", "error", err)
		pause(ctx, wait)
	}
}

func (s *queueSession) noteCopies(ctx context.Context, tx pgx.Tx, arrivals []*queueArrival) (now time.Time, keep []*arrival, err error) {
	if err := tx.QueryRow(ctx, sqlClock).Scan(&now); err != nil {
		return now, nil, err
	}
	hashes := make([]byte, 0, len(arrivals)*len(messageHash{}))
	for _, a := range arrivals {
		hashes = append(hashes, a.hash[:]...)
		if !a.redelivered {
			keep = append(keep, a.arrival)
		}
	}
	args := s.args()
	args["hashes"], args["copied"] = hashes, true
	var row int64
	if err := tx.QueryRow(ctx, sqlAddUnacked, args).Scan(&row); err != nil {
		return now, nil, fmt.Errorf("note copies of %s: %w", s.name, err)
	}
	return now, keep, nil
}

func (s *queueSession) copySingly(ctx context.Context, arrivals []*queueArrival) error {
	for _, a := range arrivals {
		for tries := 0; ; tries++ {
			err := s.d.intake.commit(ctx, []*arrival{a.arrival}, func(ctx context.Context, tx pgx.Tx, _ []*arrival) (time.Time, []*arrival, error) {
				return s.noteCopies(ctx, tx, []*queueArrival{a})
			})
			if err == nil {
				break
			}
			if !dataFault(err) || tries > 0 {
				return err
			}
			a.forget()
		}
		if !a.redelivered {
			s.d.drained(s.name, 1, -1)
		}
	}
	return nil
}

// copyLock takes the queue for one pass, for as long as the connection lasts.
func (q *queueDrain) copyLock(ctx context.Context) (conn *pgxpool.Conn, mine bool, err error) {
	if conn, err = q.d.conf.Pool.Acquire(ctx); err != nil {
		return nil, false, fmt.Errorf("connect to copy queue %s: %w", q.name, err)
	}
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", copyKey(q.d.broker.name, q.name)).Scan(&mine); err != nil || !mine {
		conn.Release()
		return nil, false, err
	}
	return conn, true, nil
}

func unlockCopy(ctx context.Context, conn *pgxpool.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock_all()"); err != nil {
		_ = conn.Conn().Close(ctx) // the lock goes with the connection
	}
	conn.Release()
}

// copyKey is the advisory lock of a queue that is copied.
func copyKey(cluster, queue string) int64 {
	h := fnv.New64a()
	h.Write([]byte("copy\x00" + cluster + "\x00" + queue))
	return int64(h.Sum64())
}
