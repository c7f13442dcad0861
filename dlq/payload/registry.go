package payload

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

// RegistryOptions is how to reach a schema registry that speaks Confluent's API.
type RegistryOptions struct {
	URLs           []string // tried in turn
	User, Password string
	Token          string // bearer; in place of User
	TLS            *tls.Config
	Timeout        time.Duration // for one schema with all it refers to; 0 is 3 s
	Now            func() time.Time
}

const (
	registryTimeout = 3 * time.Second
	mostSchemas     = 1000             // kept at a time
	schemaBytes     = 4 << 20          // of one answer
	mostReferences  = 100              // of one schema, all in all
	askAgain        = time.Minute      // after a schema was not there
	retryAfter      = 10 * time.Second // after the registry did not answer
)

// Registry asks a schema registry and keeps what it said: a schema never changes
// under its id. It is safe for concurrent use.
type Registry struct {
	client  *sr.Client
	timeout time.Duration
	now     func() time.Time

	mu    sync.Mutex
	known map[string]*entry
}

// entry is one schema, or why there is none, until when.
type entry struct {
	ready  chan struct{} // closed once it is settled
	schema *schema
	why    *Why
	until  time.Time // zero: for ever
}

// NewRegistry asks nothing yet.
func NewRegistry(o RegistryOptions) (*Registry, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("payload: a schema registry needs a URL")
	}
	r := &Registry{timeout: o.Timeout, now: o.Now, known: map[string]*entry{}}
	if r.timeout <= 0 {
		r.timeout = registryTimeout
	}
	if r.now == nil {
		r.now = time.Now
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.TLS
	opts := []sr.ClientOpt{
		sr.URLs(o.URLs...), sr.UserAgent("oncemore"),
		sr.HTTPClient(&http.Client{Timeout: r.timeout, Transport: bounded{transport}, CheckRedirect: noRedirect}),
	}
	switch {
	case o.Token != "":
		opts = append(opts, sr.BearerToken(o.Token))
	case o.User != "":
		opts = append(opts, sr.BasicAuth(o.User, o.Password))
	}
	client, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("schema registry: %w", err)
	}
	r.client = client
	return r, nil
}

// noRedirect keeps credentials where they were meant for.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// bounded cuts answers that are too large to be schemas.
type bounded struct{ next http.RoundTripper }

// RoundTrip is part of http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, schemaBytes), resp.Body}
	}
	return resp, err
}

// schema gives a compiled schema. Those who ask for one at the same time share an
// answer.
func (r *Registry) schema(ctx context.Context, id string) (*schema, *Why) {
	e, first := r.entry(id)
	if first {
		r.settle(context.WithoutCancel(ctx), id, e)
	}
	select {
	case <-e.ready:
		return e.schema, e.why
	case <-ctx.Done():
		return nil, why("payload.why.registry", "schema", id, "error", ctx.Err().Error())
	}
}

// entry reports whether the caller is to settle it.
func (r *Registry) entry(id string) (*entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.known[id]; ok && (e.until.IsZero() || r.now().Before(e.until)) {
		return e, false
	}
	if len(r.known) >= mostSchemas { // ids are data: anyone may send a thousand
		r.known = map[string]*entry{}
	}
	e := &entry{ready: make(chan struct{})}
	r.known[id] = e
	return e, true
}

func (r *Registry) settle(ctx context.Context, id string, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	s, w, pause := r.fetch(ctx, id)
	r.mu.Lock()
	e.schema, e.why = s, w
	if w != nil && pause > 0 {
		e.until = r.now().Add(pause)
	}
	r.mu.Unlock()
	close(e.ready)
}

// fetch reads and compiles a schema; pause is how long a failure holds, 0 for ever.
func (r *Registry) fetch(ctx context.Context, id string) (*schema, *Why, time.Duration) {
	text, err := r.text(ctx, id)
	switch answer, _ := errors.AsType[*sr.ResponseError](err); {
	case answer != nil && answer.StatusCode == http.StatusNotFound:
		return nil, why("payload.why.schema_missing", "schema", id), askAgain
	case err != nil:
		return nil, why("payload.why.registry", "schema", id, "error", plainError(ctx, err)), retryAfter
	}
	refs := &references{client: r.client, seen: map[string]bool{}}
	if err := refs.collect(ctx, text.References); err != nil {
		return nil, why("payload.why.registry", "schema", id, "error", plainError(ctx, err)), retryAfter
	}
	s, err := compile(ctx, id, text, refs.all)
	if err != nil {
		return nil, why("payload.why.schema_bad", "schema", id, "error", oneLine(err)), askAgain
	}
	return s, nil, 0
}

// text asks for a schema by its number, or by its GUID.
func (r *Registry) text(ctx context.Context, id string) (sr.Schema, error) {
	if n, err := strconv.Atoi(id); err == nil {
		return r.client.SchemaByID(ctx, n)
	}
	found, err := r.client.SchemaByGUID(ctx, id)
	return found.Schema, err
}

// plainError leaves out addresses, which are no business of a payload's reader.
func plainError(ctx context.Context, err error) string {
	var answer *sr.ResponseError
	switch {
	case errors.As(err, &answer):
		return fmt.Sprintf("it said %d", answer.StatusCode)
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	}
	return "it cannot be reached"
}

// reference is a schema that another one imports, under the name that it uses.
type reference struct {
	name string
	text sr.Schema
}

// references gathers what a schema refers to, the deepest first.
type references struct {
	client *sr.Client
	seen   map[string]bool // by subject and version
	all    []reference
}

var errReferences = fmt.Errorf("it refers to more than %d others", mostReferences)

func (r *references) collect(ctx context.Context, list []sr.SchemaReference) error {
	for _, ref := range list {
		key := fmt.Sprintf("%s\x00%s\x00%d", ref.Name, ref.Subject, ref.Version)
		if r.seen[key] {
			continue
		}
		if r.seen[key] = true; len(r.seen) > mostReferences {
			return errReferences
		}
		found, err := r.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
		if err != nil {
			return err
		}
		if err := r.collect(ctx, found.References); err != nil {
			return err
		}
		r.all = append(r.all, reference{ref.Name, found.Schema})
	}
	return nil
}
