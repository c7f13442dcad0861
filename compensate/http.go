package compensate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"oncemore/consumer/barrier"
)

// call is a rendered request. shown is its address as people may see it.
type call struct {
	method, url, shown, body string
	headers                  map[string]string
}

// errBase is returned for an address that does not begin with a base of the config.
var errBase = errors.New("compensate: the url has to begin with {{name}} of a base under urls in the config")

// call renders a request. The base's name is the first part of its address; the
// rest is escaped as a path.
func (c *Compensations) call(r *Request, in Inputs) (call, error) {
	m := placeholder.FindStringSubmatchIndex(r.URL)
	if m == nil || m[0] != 0 {
		return call{}, fmt.Errorf("%w: %s", errBase, r.URL)
	}
	base, ok := c.Bases[r.URL[m[2]:m[3]]]
	if !ok {
		return call{}, fmt.Errorf("%w: there is no %s", errBase, r.URL[m[2]:m[3]])
	}
	rest, err := render(r.URL[m[1]:], in, url.PathEscape)
	if err != nil {
		return call{}, err
	}
	out := call{method: r.Method, url: strings.TrimRight(base.URL, "/") + rest, headers: maps.Clone(base.Headers)}
	if out.headers == nil {
		out.headers = map[string]string{}
	}
	out.shown = r.URL[m[2]:m[3]] + ":" + rest // a base may hold credentials
	if out.body, err = bodyJSON(r.Body, in); err != nil {
		return call{}, err
	}
	for key, text := range r.Headers {
		if out.headers[key], err = render(text, in, plain); err != nil {
			return call{}, err
		}
	}
	return out, nil
}

// answer is what came of a call.
type answer struct {
	Status  int    `json:"status,omitempty"`
	Body    string `json:"body,omitempty"` // the first bytes
	Error   string `json:"error,omitempty"`
	Rows    *int64 `json:"rows,omitempty"`
	Barrier string `json:"barrier,omitempty"` // what the participant's barrier decided
	outcome outcome
	wait    time.Duration // asked for by the other side; 0: nothing
}

// outcome is what an answer means for the step.
type outcome string

const (
	done    outcome = "done"
	retry   outcome = "retry"   // it was surely not done
	refused outcome = "refused" // it was not done and will not be
	unknown outcome = "unknown" // it may have been done
	already outcome = "already" // it had been done before
	waiting outcome = "waiting" // it is being done elsewhere; no attempt
)

const shownBody = 2048

// send makes the call once.
func (c *Compensations) send(ctx context.Context, r *Request, out call, key string, limit time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, out.method, out.url, strings.NewReader(out.body))
	if err != nil {
		return answer{Error: err.Error(), outcome: refused}
	}
	if out.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range out.headers {
		req.Header.Set(name, value)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		return answer{Error: unwrapURL(err), outcome: failed(err)}
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, shownBody))
	a := answer{Status: resp.StatusCode, Body: strings.ToValidUTF8(string(body), "\uFFFD"), outcome: r.meaning(resp.StatusCode), wait: retryAfter(resp.Header)}
	if err != nil && a.outcome != done {
		a.Error, a.outcome = unwrapURL(err), unknown
	}
	a.heed(barrier.Decision(resp.Header.Get(barrier.DecisionHeader)))
	return a
}

// heed takes over what the participant's barrier has decided, if it says so.
func (a *answer) heed(d barrier.Decision) {
	switch d {
	case barrier.Applied, barrier.Empty:
	case barrier.Duplicate, barrier.Suspended:
		if a.outcome == done || d == barrier.Suspended {
			a.outcome = heldAs(d)
		}
	default:
		return // it keeps none, or says something else by this header
	}
	a.Barrier = string(d)
}

// meaning is what a status says. Without a word in the file, a redirect or a 401
// is refused: the address or the credential has to be mended first.
func (r *Request) meaning(status int) outcome {
	for _, c := range r.Success {
		if c.hold(status) {
			return done
		}
	}
	for _, c := range r.Retry {
		if c.hold(status) {
			return retry
		}
	}
	return refused
}

// mostRetryAfter bounds what the other side may ask for.
const mostRetryAfter = 10 * time.Minute

// retryAfter is how long the other side wants to be left alone, in seconds; a
// date is not taken, for its clock is not ours.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, mostRetryAfter)
}

// failed tells a call that was never sent from one that may have arrived.
func failed(err error) outcome {
	var dns *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return refused
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
		return retry // no connection: nothing was sent
	}
	return unknown
}

// unwrapURL leaves the address out of an error: it may hold credentials.
func unwrapURL(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err.Error()
	}
	return err.Error()
}
