package rabbit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// management asks RabbitMQ's HTTP API, only to look.
type management struct {
	client         *http.Client
	base           string
	user, password string
	vhost          string
}

func newManagement(o Options) (*management, error) {
	at, err := url.Parse(o.ManagementURL)
	if err != nil {
		return nil, errors.New("management URL is malformed")
	}
	node, err := amqp.ParseURI(o.URLs[0])
	if err != nil {
		return nil, errors.New("URL is malformed")
	}
	m := &management{user: node.Username, password: node.Password, vhost: node.Vhost,
		client: &http.Client{Timeout: askTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS.Clone()}}}
	if at.User != nil {
		m.user = at.User.Username()
		m.password, _ = at.User.Password()
	}
	at.User = nil
	m.base = strings.TrimSuffix(at.String(), "/")
	return m, nil
}

func (m *management) close() { m.client.CloseIdleConnections() }

var errNoQueue = errors.New("no such queue")

func (m *management) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+path, nil)
	if err != nil {
		return err
	}
	req.SetBasicAuth(m.user, m.password)
	resp, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return json.NewDecoder(resp.Body).Decode(into)
	case http.StatusNotFound:
		return errNoQueue
	}
	return fmt.Errorf("management API answers %s", resp.Status)
}

// major is the broker's major version.
func (m *management) major(ctx context.Context) (int, error) {
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	if err := m.get(ctx, "/api/overview", &overview); err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(overview.Version, ".")
	return strconv.Atoi(text)
}

func (m *management) queue(ctx context.Context, name string) (q queueInfo, err error) {
	err = m.get(ctx, "/api/queues/"+url.PathEscape(m.vhost)+"/"+url.PathEscape(name), &q)
	return q, err
}

// queueInfo is what the API says of a queue. Arguments are those of its
// declaration, Policy what operators have set; names there lack the x-.
type queueInfo struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Arguments map[string]any `json:"arguments"`
	Policy    policy         `json:"effective_policy_definition"`
}

// policy is an object; without one some versions say [].
type policy map[string]any

// UnmarshalJSON takes anything but an object as no policy.
func (p *policy) UnmarshalJSON(b []byte) error {
	m := map[string]any{}
	if json.Unmarshal(b, &m) == nil {
		*p = m
	}
	return nil
}

// setting looks in the declaration and in the policy; of numbers the smaller
// holds, as in the broker.
func (q queueInfo) setting(name string) (any, bool) {
	declared, a := q.Arguments["x-"+name]
	set, b := q.Policy[name]
	x, xNumber := declared.(float64)
	y, yNumber := set.(float64)
	switch {
	case a && b && xNumber && yNumber:
		return min(x, y), true
	case a:
		return declared, true
	}
	return set, b
}

func (q queueInfo) consumerTimeout() (time.Duration, bool) {
	v, _ := q.setting("consumer-timeout")
	ms, ok := v.(float64)
	return time.Duration(ms) * time.Millisecond, ok
}

// quorumLimit is the delivery limit that quorum queues have since RabbitMQ 4.0
// unless they say otherwise.
const quorumLimit = 20

// drops says how the queue may lose messages that nobody has handled.
func (q queueInfo) drops(major int) []string {
	if _, kept := q.setting("dead-letter-exchange"); kept {
		return nil
	}
	var why []string
	if n := q.deliveryLimit(major); n >= 0 {
		why = append(why, fmt.Sprintf("it has a delivery limit of %g and no dead-letter exchange: a message given back more often is gone", n))
	}
	if ttl, ok := q.setting("message-ttl"); ok {
		why = append(why, fmt.Sprintf("its messages expire after %v ms and it has no dead-letter exchange", ttl))
	}
	_, count := q.setting("max-length")
	_, size := q.setting("max-length-bytes")
	overflow, _ := q.setting("overflow")
	if (count || size) && (overflow == nil || overflow == amqp.QueueOverflowDropHead) {
		why = append(why, "its length is limited, the oldest messages make room for new ones, and it has no dead-letter exchange")
	}
	return why
}

// deliveryLimit is -1 for none.
func (q queueInfo) deliveryLimit(major int) float64 {
	if q.Type != amqp.QueueTypeQuorum {
		return -1
	}
	v, _ := q.setting("delivery-limit")
	if n, ok := v.(float64); ok {
		return n
	}
	if major >= 4 {
		return quorumLimit
	}
	return -1
}
