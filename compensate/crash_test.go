package compensate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/testkit"
)

// crashEnv holds a crashChild as JSON: the test binary is then that process.
const crashEnv = "ONCEMORE_COMPENSATION_CRASH"

// shortLease is how soon a dead process is overtaken in these tests.
const shortLease = time.Second

// crashChild is a process that works one compensation and stops for good at a
// moment.
type crashChild struct {
	Console, Business, Reading, API string
	Compensation                    int64
	Now                             time.Time
	At                              moment
}

func init() {
	text := os.Getenv(crashEnv)
	if text == "" {
		return
	}
	var c crashChild
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run(context.Background())
	}
	fmt.Println("ended:", err)
	os.Exit(1)
}

func (c crashChild) run(ctx context.Context) error {
	var pools []*pgxpool.Pool
	for _, url := range []string{c.Console, c.Business, c.Reading} {
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		pools = append(pools, pool)
	}
	engine, err := assemble(pools[0], pools[1], pools[2], c.API, func() time.Time { return c.Now }, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	engine.Lease = shortLease
	engine.reached = func(at moment) {
		if at == c.At {
			fmt.Println("reached", at)
			select {} // until it is killed
		}
	}
	_, err = engine.step(ctx, c.Compensation, -1)
	return err
}

// crash lets a process of its own work the compensation, and kills it when it
// reaches the moment.
func (b *bank) crash(id int64, at moment) {
	b.Helper()
	reading := b.reading.Config().ConnConfig
	c := crashChild{
		Console: b.console.Config().ConnString(), Business: b.business.Config().ConnString(), API: b.Bases["points-api"].URL, Compensation: id, Now: b.clock(), At: at,
		Reading: fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=%s", reading.Host, reading.Port, reading.Database, reading.User, reading.Password),
	}
	text, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n') //nolint:errcheck // what was read decides
	killed := cmd.Process.Kill()                     // SIGKILL
	_ = cmd.Wait()                                   // killed
	if killed != nil || line != "reached "+string(at)+"\n" {
		b.Fatalf("the child says %q, %v", line, killed)
	}
}

// overtake carries on what a dead process held, once its lease is over.
func (b *bank) overtake(id int64) *Compensation {
	b.Helper()
	testkit.Eventually(b.T, 20*time.Second, func() bool {
		_, err := b.step(b.Context(), id, 0) // as the job that is rescued: of an old epoch
		if err != nil && !errors.Is(err, errFenced) {
			b.Fatal(err)
		}
		return err == nil
	}, "nobody overtakes compensation %d", id)
	return b.get(id)
}

// A process is killed between the intent and the call, and between the call and
// its record: the effect is there once, and each attempt has its answer.
func TestKilledBetweenCallAndRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action string
		at     moment
		posts  int64 // seen by the service, of kind http
	}{
		"http, before the call": {probedCredit, momentIntended, 1},
		"http, after the call":  {probedCredit, momentAnswered, 1},
		"sql, before":           {strings.Replace(sqlCredit, "action: credit", "action: probed", 1), momentIntended, 0},
		"sql, after":            {strings.Replace(sqlCredit, "action: credit", "action: probed", 1), momentAnswered, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBank(t)
			b.Lease = shortLease
			b.define(c.action)
			var posts atomic.Int64
			b.answers(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					posts.Add(1)
					b.credit(r)
				case posts.Load() == 0:
					w.WriteHeader(http.StatusNotFound)
				}
			})
			comp := b.approved("probed", b.missing("e-1", 100))
			b.crash(comp.ID, c.at)
			if _, err := b.step(t.Context(), comp.ID, -1); !errors.Is(err, errFenced) {
				t.Errorf("the dead process's lease does not hold: %v", err)
			}
			comp = b.overtake(comp.ID)
			if comp.State == Running { // it was not done: it is tried again
				b.pass(time.Minute)
				comp = b.do(comp.ID)
			}
			var effects int
			if err := b.business.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&effects); err != nil {
				t.Fatal(err)
			}
			if comp.State != Verified || effects != 1 || posts.Load() != c.posts {
				t.Errorf("%s, %d effects, %d calls: %s", comp.State, effects, posts.Load(), text(comp.Why, ""))
			}
			attempts, err := b.Attempts(t.Context(), comp.ID)
			for _, a := range attempts {
				if a.Outcome == nil {
					t.Errorf("attempt %d has no answer", a.ID)
				}
			}
			if want := map[moment]int{momentIntended: 2, momentAnswered: 1}[c.at]; err != nil || len(attempts) != want {
				t.Errorf("%d attempts, %v", len(attempts), err)
			}
		})
	}
}

// A process that was silent for longer than its lease and comes back changes
// nothing any more: what it heard is not recorded, and nobody repeats the call.
func TestAnOvertakenStepChangesNothing(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(probedCredit)
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b.credit(r)
		}
	})
	comp := b.approved("probed", b.missing("e-1", 100))
	slow, heard, goOn := b.replica(), make(chan struct{}), make(chan struct{})
	slow.Lease = shortLease
	slow.reached = func(at moment) {
		if at == momentAnswered {
			close(heard)
			<-goOn
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := slow.step(context.WithoutCancel(t.Context()), comp.ID, -1)
		ended <- err
	}()
	<-heard
	comp = b.overtake(comp.ID)
	close(goOn)
	if err := <-ended; !errors.Is(err, errFenced) {
		t.Errorf("the slow process ends with %v", err)
	}
	posts := 0
	for _, call := range b.called() {
		if strings.HasPrefix(call, http.MethodPost) {
			posts++
		}
	}
	if comp.State != Verified || posts != 1 {
		t.Errorf("%s after %v", comp.State, b.called())
	}
	if got := b.get(comp.ID); got.State != Verified || *got.VerifyRun != *comp.VerifyRun {
		t.Errorf("afterwards it is %s by run %d", got.State, *got.VerifyRun)
	}
}
