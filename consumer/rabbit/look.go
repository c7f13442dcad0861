package rabbit

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Dial connects to the first node that answers, within bounds: no write, sign-in
// or farewell hangs for ever, and the client's own recovery is off. name is shown
// in the broker's list of connections.
func Dial(ctx context.Context, urls []string, conf *tls.Config, name string) (*amqp.Connection, error) {
	return Options{URLs: urls, TLS: conf, Heartbeat: 10 * time.Second}.dial(ctx, name)
}

// HangUp says goodbye to a connection, within bounds.
func HangUp(conn *amqp.Connection) { hangUp(conn) }

// ErrNoManagement is returned for a broker whose management API is not configured.
var ErrNoManagement = errors.New("rabbit: no management URL is configured")

// Management looks at a broker through its HTTP API; it changes nothing.
type Management struct{ api *management }

// NewManagement asks the API at url, as the user in it or else as that of the
// first of urls, and about that one's virtual host. Errors: ErrNoManagement, or
// that an address is malformed.
func NewManagement(managementURL string, conf *tls.Config, urls ...string) (*Management, error) {
	if managementURL == "" {
		return nil, ErrNoManagement
	}
	o := Options{Queue: "any", DeadLetterQueue: "other", URLs: urls, TLS: conf, ManagementURL: managementURL}
	if err := o.validate(); err != nil {
		return nil, err
	}
	api, err := newManagement(o)
	if err != nil {
		return nil, err
	}
	return &Management{api}, nil
}

// Close ends idle connections.
func (m *Management) Close() { m.api.close() }

// Major is the broker's major version.
func (m *Management) Major(ctx context.Context) (int, error) { return m.api.major(ctx) }

// Queue is what the API says of a queue. Its counts are a few seconds old.
type Queue struct {
	queueInfo
	Ready     int64 `json:"messages_ready"`
	Unacked   int64 `json:"messages_unacknowledged"`
	Consumers int   `json:"consumers"`
}

// queueColumns is what is asked of a queue; the rest of its statistics is costly.
const queueColumns = "columns=name,type,arguments,effective_policy_definition,messages_ready,messages_unacknowledged,consumers"

// Queues lists the queues of the virtual host.
func (m *Management) Queues(ctx context.Context) (all []Queue, err error) {
	err = m.api.get(ctx, "/api/queues/"+url.PathEscape(m.api.vhost)+"?"+queueColumns, &all)
	return all, err
}

// Taker is somebody who takes messages out of a queue.
type Taker struct {
	Tag   string `json:"consumer_tag"`
	Queue struct {
		Name string `json:"name"`
	} `json:"queue"`
}

// Takers lists the consumers of the virtual host's queues.
func (m *Management) Takers(ctx context.Context) (all []Taker, err error) {
	err = m.api.get(ctx, "/api/consumers/"+url.PathEscape(m.api.vhost)+"?columns=consumer_tag,queue.name", &all)
	return all, err
}

// Setting is what a queue's declaration or policy says, such as
// "dead-letter-exchange".
func (q Queue) Setting(name string) (any, bool) { return q.setting(name) }

// IsStream reports a stream: reading one takes nothing out of it.
func (q Queue) IsStream() bool { return q.Type == amqp.QueueTypeStream }

// DeliveryLimit is how often a message may be given back before the broker drops
// or dead-letters it; -1: no limit.
func (q Queue) DeliveryLimit(major int) int { return int(q.deliveryLimit(major)) }

// Drops says how the queue may lose messages that nobody has handled.
func (q Queue) Drops(major int) []string { return q.drops(major) }

// Exchange is what the API says of an exchange.
type Exchange struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Arguments map[string]any `json:"arguments"`
}

// Exchanges lists the exchanges of the virtual host; the default one is "".
func (m *Management) Exchanges(ctx context.Context) (all []Exchange, err error) {
	err = m.api.get(ctx, "/api/exchanges/"+url.PathEscape(m.api.vhost)+"?columns=name,type,arguments", &all)
	return all, err
}

// Binding is what carries messages of an exchange to a queue or to another exchange.
type Binding struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Kind        string `json:"destination_type"` // queue | exchange
	RoutingKey  string `json:"routing_key"`
}

// Bindings lists the bindings of the virtual host.
func (m *Management) Bindings(ctx context.Context) (all []Binding, err error) {
	err = m.api.get(ctx, "/api/bindings/"+url.PathEscape(m.api.vhost)+"?columns=source,destination,destination_type,routing_key", &all)
	return all, err
}
