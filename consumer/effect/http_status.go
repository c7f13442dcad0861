package effect

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"oncemore/consumer"
)

// maxExcerpt is how much of an answer an error quotes, in bytes.
const maxExcerpt = 300

// maxRetryAfter bounds what a service may ask for.
const maxRetryAfter = 15 * time.Minute

// StatusError is an answer that is not "done".
type StatusError struct {
	Status     int
	Excerpt    string        // first 300 bytes of the body, control characters replaced
	RetryAfter time.Duration // what the service asked for, at most 15 min; 0: nothing
}

// Error says the status and what the service wrote.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("service answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Excerpt == "" {
		return text
	}
	return text + ": " + e.Excerpt
}

// Class names the error in a dead letter: http.503.
func (e *StatusError) Class() string { return "http." + strconv.Itoa(e.Status) }

// judge turns an answer into an outcome and tells the breaker.
func (h *HTTP) judge(resp *http.Response) error {
	status := resp.StatusCode
	if status/100 == 2 && (status != http.StatusAccepted || h.done202) {
		h.breaker.accepted()
		return nil
	}
	err := &StatusError{Status: status, Excerpt: excerpt(resp.Body), RetryAfter: retryAfter(resp.Header.Get("Retry-After"), h.now())}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound:
		if h.breaker.refused(err) {
			return consumer.Unavailable(err)
		}
		return err
	case mayPass(status):
		h.breaker.unknown()
		return retry(err)
	default:
		h.breaker.accepted() // the service knows us and looked at the request
		return consumer.Permanent(err)
	}
}

// mayPass reports whether the same request may succeed later. Redirects are
// here too: they are mended in the config or at the service, not in the event.
func mayPass(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status < 400 || status >= 500
}

func retry(err *StatusError) error {
	if err.RetryAfter > 0 {
		return consumer.RetryAfter(err, err.RetryAfter)
	}
	return err
}

// retryAfter reads seconds or a date; 0 where there is neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// excerpt is what people get to see of an answer: one line of valid text.
func excerpt(body io.Reader) string {
	b, _ := io.ReadAll(io.LimitReader(body, maxExcerpt)) //nolint:errcheck // what was read is the excerpt
	text := strings.Map(printable, strings.ToValidUTF8(string(b), "�"))
	return cut(strings.TrimSpace(text), maxExcerpt)
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

// cut shortens s to at most n bytes without splitting a character: replaced
// bytes may have made it longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
