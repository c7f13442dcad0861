package rabbit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// childEnv holds the spec of a child process: this binary, run as a consumer
// that stops for ever at a chosen point, to be killed there.
const childEnv = "ONCEMORE_TEST_CHILD"

const (
	stopBeforeCommit    = "before the database's commit"
	stopAfterCommit     = "after the database's commit"
	stopAfterDeadLetter = "after the dead letter's confirmation"
	stopNowhere         = "" // works, slowly, until it is killed
)

// child is what a child process does.
type child struct {
	URL, Database, Queue, Group string
	StopAt                      string
}

func runChild(spec string) {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		log.Fatal(err)
	}
	pool, err := pgxpool.New(context.Background(), c.Database)
	if err != nil {
		log.Fatal(err)
	}
	cfg := consumer.Config[pgstore.Tx]{
		Group: c.Group, Store: pgstore.New(pool, pgstore.Options{}), Handler: addPoints, BatchSize: 10,
		EventID: consumer.EventIDSource{JSON: "$.eventId"}, Logger: slog.New(slog.DiscardHandler),
	}
	switch c.StopAt {
	case stopBeforeCommit, stopAfterCommit:
		cfg.Store = stoppingStore{cfg.Store, c.StopAt}
	case stopAfterDeadLetter:
		cfg.Handler = refuse
		cfg.Logger = slog.New(stoppingLog{slog.DiscardHandler})
	case stopNowhere:
		cfg.Handler = slowly
	}
	runner, err := New(cfg, Options{Queue: c.Queue, URLs: []string{c.URL}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(runner.Run(context.Background()))
}

func refuse(context.Context, pgstore.Tx, consumer.Event) error { return consumer.Permanent(errBoom) }

func slowly(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.01)`); err != nil {
		return err
	}
	return addPoints(ctx, tx, ev)
}

// stopForEver tells the parent and never returns.
func stopForEver() {
	fmt.Println("stopped")
	select {}
}

// stoppingStore stops before or after a commit.
type stoppingStore struct {
	consumer.Store[pgstore.Tx]
	at string
}

func (s stoppingStore) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[pgstore.Tx], error) {
	c, err := s.Store.Claim(ctx, group, ids)
	return stoppingClaim{c, s.at}, err
}

type stoppingClaim struct {
	consumer.Claim[pgstore.Tx]
	at string
}

func (c stoppingClaim) Commit(ctx context.Context) error {
	if c.at == stopBeforeCommit {
		stopForEver()
	}
	if err := c.Claim.Commit(ctx); err != nil {
		return err
	}
	stopForEver()
	return nil
}

// stoppingLog stops at the line that follows a dead letter's confirmation.
type stoppingLog struct{ slog.Handler }

func (stoppingLog) Enabled(context.Context, slog.Level) bool { return true }
func (h stoppingLog) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (stoppingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "event dead-lettered" {
		stopForEver()
	}
	return nil
}

// child is this shop's, and goes straight to the broker.
func (s *shop) child(stopAt string) child {
	return child{s.URL, s.pool.Config().ConnString(), s.name, s.group, stopAt}
}

// command is a child process that is ready to start; it dies with ctx.
func command(ctx context.Context, t *testing.T, c child) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	return cmd
}

// killAt runs a child until it stops at its point, and kills it there.
func killAt(t *testing.T, c child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := command(ctx, t, c)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "stopped\n" {
		t.Errorf("child said %q: %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("child ended by itself: %v", cmd.ProcessState)
	}
}

// Killed before the commit, nothing is left and the delivery comes again; killed
// after it, what comes again is a duplicate.
func TestKilledAroundTheCommit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		for stopAt, want := range map[string]int{stopBeforeCommit: 0, stopAfterCommit: 1} {
			s := openShop(t, b)
			s.pay(1)
			killAt(t, s.child(stopAt))
			s.await("the broker has it again", func() bool { return s.ready(s.name) == 1 })
			if s.records() != want || s.points(1) != 100*want {
				t.Fatalf("%s: %d records, %d points: the child was killed elsewhere", stopAt, s.records(), s.points(1))
			}
			m := s.run(s.config(addPoints), s.opts())
			s.settled(1)
			s.effectsOnce(1)
			if st := m.Status(); st.Consumed != int64(1-want) || st.Duplicates != int64(want) || st.DeadLettered != 0 {
				t.Errorf("%s: consumed %d, duplicates %d, letters %d after the restart", stopAt, st.Consumed, st.Duplicates, st.DeadLettered)
			}
		}
	})
}

// Killed between the letter's confirmation and the acknowledgement, the letter comes
// twice rather than never.
func TestKilledBetweenDeadLetterAndAck(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		s.pay(1)
		killAt(t, s.child(stopAfterDeadLetter))
		s.await("the broker has it again", func() bool { return s.ready(s.name) == 1 && s.ready(s.dead) == 1 })
		s.run(s.config(refuse), s.opts())
		s.settled(1)
		letters := s.Letters(t, s.name)
		if len(letters) != 2 || letters[0].EventID != paymentID(1) || letters[1].EventID != paymentID(1) || letters[0].Topic != letters[1].Topic || letters[0].Group != letters[1].Group {
			t.Errorf("letters %+v, want the same one twice", letters)
		}
		if s.points(1) != 0 || s.records() != 0 {
			t.Error("a dead letter left an effect or a record")
		}
	})
}

// Consumers that compete for a queue are killed in the middle of their work, over
// and over; each takes its uncommitted transactions with it, and none of its
// committed ones takes effect twice.
func TestConsumersAreKilled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n, kills = 300, 3
		s := openShop(t, b)
		s.pay(n)
		var running []*exec.Cmd
		start := func() {
			cmd := command(context.Background(), t, s.child(stopNowhere))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running = append(running, cmd)
		}
		kill := func() {
			_ = running[0].Process.Signal(syscall.SIGKILL)
			_ = running[0].Wait() // always an error: it was killed
			running = running[1:]
		}
		defer func() {
			for len(running) > 0 {
				kill()
			}
		}()
		start()
		start()
		for i := range kills {
			want := n * (i + 1) / (kills + 2)
			s.await("some progress", func() bool { return s.records() >= want })
			kill()
			start()
		}
		s.await("all is consumed", func() bool { return s.records() == n && s.ready(s.name) == 0 })
		for len(running) > 0 {
			kill()
		}
		m := s.run(s.config(addPoints), s.opts()) // for what the killed ones had not acknowledged
		s.await("nothing is left", func() bool { return s.ready(s.name) == 0 && m.Status().State == consumer.Running })
		s.effectsOnce(n)
		if letters := s.Letters(t, s.name); len(letters) != 0 {
			t.Errorf("letters %+v", letters)
		}
	})
}
