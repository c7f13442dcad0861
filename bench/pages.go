package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	pageUsers     = 20
	pageRequests  = 500                    // of all users together, for one kind of page
	pageThink     = 250 * time.Millisecond // on average, between an answer and the next request
	pageGoal      = 50                     // ms, 99th percentile
	pageSlowGoal  = 300                    // where no index helps
	pageLargeGoal = 1000                   // a fault of a hundred thousand letters and more
	pagesMemory   = 300                    // MB
)

// Open serves a console's pages on a database until stop, and says where, and who
// may sign in.
type Open func(ctx context.Context, database string) (site Site, stop func(), err error)

// Site is a console that is served.
type Site struct{ URL, User, Password string }

// sample is one letter from which filters are made.
type sample struct {
	ID, Source, Group, Class, Dialect, Event string
	Fault, LargestFault                      int32
}

// page is one kind of page: its address for a letter of the sample.
type page struct {
	name string
	goal int
	at   func(s sample) string
}

func filtered(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "/letters?" + q.Encode()
}

var pageKinds = []page{
	{"faults", pageGoal, func(sample) string { return "/faults" }},
	{"letters", pageGoal, func(sample) string { return "/letters" }},
	{"letters_by_state", pageGoal, func(sample) string { return filtered("state", "open") }},
	{"letters_by_source", pageGoal, func(s sample) string { return filtered("source", s.Source) }},
	{"letters_by_group", pageGoal, func(s sample) string { return filtered("consumer_group", s.Group) }},
	{"letters_by_class", pageGoal, func(s sample) string { return filtered("error_class", s.Class) }},
	{"letters_by_fault", pageGoal, func(s sample) string { return filtered("fault_id", fmt.Sprint(s.Fault)) }},
	{"letters_by_fault_open", pageGoal, func(s sample) string { return filtered("fault_id", fmt.Sprint(s.Fault), "state", "open") }},
	{"letters_by_group_and_class", pageGoal, func(s sample) string {
		return filtered("consumer_group", s.Group, "error_class", s.Class, "state", "open")
	}},
	{"letters_by_event", pageGoal, func(s sample) string { return filtered("event_id", s.Event) }},
	{"letter", pageGoal, func(s sample) string { return "/letters/" + s.ID }},
	{"fault", pageGoal, func(s sample) string { return fmt.Sprintf("/faults/%d", s.Fault) }},
	{"largest_fault", pageLargeGoal, func(s sample) string { return fmt.Sprintf("/faults/%d", s.LargestFault) }},
	{"letters_by_verdict", pageSlowGoal, func(sample) string { return filtered("verdict", "unprotected", "state", "open") }},
	{"letters_by_attempts", pageSlowGoal, func(sample) string { return filtered("attempts_min", "5", "state", "open") }},
	{"letters_by_owner", pageSlowGoal, func(sample) string { return filtered("owner", "none", "state", "open") }},
	{"letters_by_dialect", pageSlowGoal, func(s sample) string { return filtered("dialect", s.Dialect) }},
}

// pages measures each kind of page, asked for by twenty people at once.
func (e Env) pages(ctx context.Context, pool *pgxpool.Pool, open Open) error {
	samples, err := sampleLetters(ctx, pool)
	if err != nil {
		return err
	}
	if err := resetPeak(); err != nil {
		return err
	}
	site, stop, err := open(ctx, pool.Config().ConnString())
	if err != nil {
		return err
	}
	defer stop()
	client, err := signIn(ctx, site)
	if err != nil {
		return err
	}
	if err := e.emptyPage(ctx, client, site.URL); err != nil {
		return err
	}
	for _, p := range pageKinds {
		took, cpu, err := p.measure(ctx, client, site.URL, samples)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		_, err = fmt.Fprintf(e.Out, "RATIO page_%s_p99_ms %.0f goal <= %d (p50 %.0f ms, CPU of console and client %.1f ms, %d requests of %d users)\n",
			p.name, ms(took[len(took)*99/100]), p.goal, ms(took[len(took)/2]), ms(cpu), len(took), pageUsers)
		if err != nil {
			return err
		}
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Out, "MEMORY pages %d MB, goal <= %d\n", peak>>20, pagesMemory)
	return err
}

// emptyPage prints what the same people wait for an answer without content, and how
// busy the machine is with other things: the pages wait for those as well.
func (e Env) emptyPage(ctx context.Context, client *http.Client, base string) error {
	empty := page{name: "empty", at: func(sample) string { return "/healthz" }}
	took, _, err := empty.measure(ctx, client, base, []sample{{}})
	if err != nil {
		return fmt.Errorf("%s: %w", empty.name, err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return fmt.Errorf("how busy the machine is, which needs Linux: %w", err)
	}
	_, err = fmt.Fprintf(e.Out, "page without content: p50 %.1f ms, p99 %.1f ms; load of the machine: %s", ms(took[len(took)/2]), ms(took[len(took)*99/100]), load)
	return err
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

const sqlSamples = `
select d.id::text, s.name, g.name, c.name, n.name, d.event_id, d.fault_id,
  (select id from fault order by open_n + replaying_n + resolved_n + discarded_n desc, id limit 1)
from dead_letter d tablesample bernoulli (0.5) join letter_source s on s.id = d.source_id join letter_name g on g.id = d.group_id
join letter_name c on c.id = d.class_id join letter_name n on n.id = d.dialect_id limit 2000`

func sampleLetters(ctx context.Context, pool *pgxpool.Pool) ([]sample, error) {
	rows, err := pool.Query(ctx, sqlSamples)
	if err != nil {
		return nil, fmt.Errorf("sample letters: %w", err)
	}
	samples, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sample])
	if err == nil && len(samples) == 0 {
		err = errors.New("there are too few letters")
	}
	if err != nil {
		return nil, fmt.Errorf("sample letters: %w", err)
	}
	return samples, nil
}

func signIn(ctx context.Context, site Site) (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: pageUsers}}
	form := url.Values{"user": {site.User}, "password": {site.Password}, "return": {"/faults"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL+"/login", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = send(client, req)
	return client, err
}

// send reads the whole answer and says how long it took.
func send(client *http.Client, req *http.Request) (time.Duration, error) {
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK || resp.Request.URL.Path == "/login" {
		return 0, fmt.Errorf("%s: %s", req.URL.RequestURI(), resp.Status)
	}
	return time.Since(began), nil
}

// measure gives the times of all requests, shortest first, and the CPU time that
// this process spent on each. Each user's first one warms up.
func (p page) measure(ctx context.Context, client *http.Client, base string, samples []sample) ([]time.Duration, time.Duration, error) {
	took := make([][]time.Duration, pageUsers)
	began := cpuTime()
	g, ctx := errgroup.WithContext(ctx)
	for user := range pageUsers {
		g.Go(func() error {
			for n := range pageRequests/pageUsers + 1 {
				wait(ctx, rand.N(2*pageThink))
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+p.at(samples[rand.IntN(len(samples))]), nil)
				if err != nil {
					return err
				}
				d, err := send(client, req)
				if err != nil {
					return err
				}
				if n > 0 {
					took[user] = append(took[user], d)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	cpu := (cpuTime() - began) / (pageRequests + pageUsers)
	all := slices.Concat(took...)
	slices.Sort(all)
	return all, cpu, nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
