package kafka

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// childEnv holds the spec of a child process: this binary, run as a consumer
// that stops for ever at a chosen point, to be killed there.
const childEnv = "ONCEMORE_TEST_CHILD"

const (
	stopAfterCommit     = "after the database's commit"
	stopAfterDeadLetter = "after the dead letter's confirmation"
	stopNowhere         = "" // works, slowly, until it is killed
)

// child is what a child process does.
type child struct {
	Addr, Database, Topic, Group string
	StopAt                       string
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
	cfg := shopConfig(c.Group, pool)
	switch c.StopAt {
	case stopAfterCommit:
		cfg.Store = stoppingStore{cfg.Store}
	case stopAfterDeadLetter:
		cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error {
			return consumer.Permanent(errors.New("no such order"))
		}
		cfg.Logger = slog.New(stoppingLog{slog.DiscardHandler})
	case stopNowhere:
		cfg.BatchSize = 10
		cfg.Handler = slowly
	}
	runner, err := New(cfg, options(c.Addr, c.Topic))
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(runner.Run(context.Background()))
}

// stopForEver tells the parent and never returns.
func stopForEver() {
	fmt.Println("stopped")
	select {}
}

// stoppingStore stops once a commit has succeeded.
type stoppingStore struct{ consumer.Store[pgstore.Tx] }

func (s stoppingStore) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[pgstore.Tx], error) {
	c, err := s.Store.Claim(ctx, group, ids)
	return stoppingClaim{c}, err
}

type stoppingClaim struct{ consumer.Claim[pgstore.Tx] }

func (c stoppingClaim) Commit(ctx context.Context) error {
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

func slowly(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.01)`); err != nil {
		return err
	}
	return addPoints(ctx, tx, ev)
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

func TestKilledBetweenCommitAndOffset(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 1)
		s.publish(payment(10001))
		killAt(t, child{addr, s.url, s.topic, s.group, stopAfterCommit})
		if s.points(10001) != 100 || s.records() != 1 || s.acked() != 0 {
			t.Fatalf("points %d, records %d, acknowledged %d: the child was killed elsewhere", s.points(10001), s.records(), s.acked())
		}
		m := s.run(s.config())
		s.settled(1)
		if got := s.points(10001); got != 100 || s.records() != 1 {
			t.Errorf("points %d, records %d after the restart", got, s.records())
		}
		if st := m.Status(); st.Consumed != 0 || st.Duplicates != 1 {
			t.Errorf("consumed %d, duplicates %d after the restart", st.Consumed, st.Duplicates)
		}
	})
}

func TestKilledBetweenDeadLetterAndOffset(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 1)
		s.publish(payment(10001))
		killAt(t, child{addr, s.url, s.topic, s.group, stopAfterDeadLetter})
		if got := s.letters(); len(got) != 1 || s.acked() != 0 {
			t.Fatalf("%d letters, acknowledged %d: the child was killed elsewhere", len(got), s.acked())
		}
		cfg := s.config()
		cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error {
			return consumer.Permanent(errors.New("no such order"))
		}
		s.run(cfg)
		s.settled(1)
		letters := s.letters()
		if len(letters) != 2 {
			t.Fatalf("%d letters, want the same one twice", len(letters))
		}
		a, b := letterOf(letters[0]), letterOf(letters[1])
		if a.Topic != b.Topic || a.OriginPartition != b.OriginPartition || a.Offset != b.Offset || a.Group != b.Group || a.EventID != b.EventID {
			t.Errorf("two copies differ in what identifies the letter: %+v, %+v", a, b)
		}
		if s.points(10001) != 0 || s.records() != 0 {
			t.Error("a dead letter left an effect or a record")
		}
	})
}

// Members are killed in the middle of their work, over and over; each takes its
// uncommitted transactions with it, and none of its committed ones runs twice.
func TestMembersAreKilled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		const n, partitions, kills = 900, 4, 4
		s := openShop(t, addr, partitions)
		for i := range n {
			s.publish(paymentOn(i, i%partitions))
		}
		spec := child{addr, s.url, s.topic, s.group, stopNowhere}
		var running []*exec.Cmd
		start := func() {
			cmd := command(context.Background(), t, spec)
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
		start()
		for i := range kills {
			want := n * (i + 1) / (kills + 2)
			s.await("some progress", func() bool { return s.records() >= want })
			kill()
			start()
		}
		s.settled(n)
		wrong := s.count(`SELECT count(*)::int FROM generate_series(0, $1 - 1) o LEFT JOIN user_points ON order_id = o::text WHERE points IS DISTINCT FROM 100`, n)
		if wrong != 0 || s.records() != n || len(s.letters()) != 0 {
			t.Errorf("%d orders without exactly 100 points, %d records, %d letters", wrong, s.records(), len(s.letters()))
		}
	})
}

// session is the shortest time-out that the broker at addr allows: 6 s on a real
// one with its defaults, less on those of fake.
func session(addr string) time.Duration {
	if addr == os.Getenv("ONCEMORE_KAFKA") {
		return 6 * time.Second
	}
	return 2 * time.Second
}

func options(addr, topic string) Options {
	return Options{Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(addr)},
		SessionTimeout: session(addr), RebalanceTimeout: 8 * time.Second, FinishTimeout: 2 * time.Second}
}
