package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// rabbitView is what a cluster of RabbitMQ said besides its queues' names.
type rabbitView struct {
	asked     map[string]bool // the queues that were asked about one by one; nil: all are known
	queues    map[string]rabbit.Queue
	exchanges map[string]rabbit.Exchange
	bindings  map[string][]rabbit.Binding // by source
}

// look lists queues, exchanges and bindings by the management API; without it
// only whether those queues exist that somebody has asked about.
func (b *rabbitBroker) look(ctx context.Context, needed []string) *clusterView {
	v := &clusterView{Topics: map[string]topicView{}, Readers: map[string][]string{}, Rabbit: &rabbitView{}}
	if b.api == nil {
		v.Err = b.lookOneByOne(ctx, v, needed)
		return v
	}
	v.Err = v.Rabbit.load(ctx, b.api)
	if v.Err != nil {
		v.Err = fmt.Errorf("management API of cluster %s: %w", b.name, v.Err)
	}
	for name := range v.Rabbit.queues {
		v.Topics[name] = topicView{}
	}
	return v
}

func (v *rabbitView) load(ctx context.Context, api *rabbit.Management) error {
	queues, err := api.Queues(ctx)
	if err != nil {
		return err
	}
	exchanges, err := api.Exchanges(ctx)
	if err != nil {
		return err
	}
	bindings, err := api.Bindings(ctx)
	if err != nil {
		return err
	}
	v.queues, v.exchanges, v.bindings = map[string]rabbit.Queue{}, map[string]rabbit.Exchange{}, map[string][]rabbit.Binding{}
	for _, q := range queues {
		v.queues[q.Name] = q
	}
	for _, x := range exchanges {
		v.exchanges[x.Name] = x
	}
	for _, bound := range bindings {
		v.bindings[bound.Source] = append(v.bindings[bound.Source], bound)
	}
	return nil
}

// mostAsked bounds the queues that are looked up one by one.
const mostAsked = 1000

func (b *rabbitBroker) lookOneByOne(ctx context.Context, v *clusterView, needed []string) error {
	v.Rabbit.asked = b.remember(needed)
	for _, name := range slices.Sorted(maps.Keys(v.Rabbit.asked)) {
		there, err := b.queueThere(ctx, name)
		if err != nil {
			return err
		}
		if there {
			v.Topics[name] = topicView{}
		}
	}
	return nil
}

// remember adds queues to those that are looked up, and returns all of them.
func (b *rabbitBroker) remember(names []string) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.asked) > mostAsked {
		clear(b.asked)
	}
	for _, name := range names {
		b.asked[name] = true
	}
	return maps.Clone(b.asked)
}

// queueThere asks without creating.
func (b *rabbitBroker) queueThere(ctx context.Context, name string) (bool, error) {
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	return isThere(err, "queue "+name)
}

func (b *rabbitBroker) exchangeThere(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return true, nil
	}
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil) // its kind is not compared
	})
	return isThere(err, "exchange "+name)
}

func isThere(err error, what string) (bool, error) {
	var refused *amqp.Error
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &refused) && refused.Code == amqp.NotFound:
		return false, nil
	case errors.As(err, &refused) && refused.Code == amqp.ResourceLocked: // another connection's own
		return true, nil
	}
	return false, fmt.Errorf("look up %s: %w", what, err)
}

// errNoBindings is returned where the bindings of an exchange are not known.
var errNoBindings = errors.New("dlq: bindings are not known")

// reach lists the queues that a message to an exchange with a routing key gets
// to, sorted. Errors: errNoBindings where that cannot be told.
func (v *rabbitView) reach(exchange, key string) ([]string, error) {
	if exchange == "" {
		return []string{key}, nil
	}
	queues, seen := map[string]bool{}, map[string]bool{}
	if err := v.follow(exchange, key, queues, seen); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(queues)), nil
}

func (v *rabbitView) follow(exchange, key string, queues, seen map[string]bool) error {
	x, known := v.exchanges[exchange]
	if !known {
		return errNoBindings
	}
	if seen[exchange] {
		return nil
	}
	seen[exchange] = true
	for _, b := range v.bindings[exchange] {
		fits, err := routesBy(x.Type, b.RoutingKey, key)
		switch {
		case err != nil:
			return err
		case !fits:
		case b.Kind == "queue":
			queues[b.Destination] = true
		default:
			if err := v.follow(b.Destination, key, queues, seen); err != nil {
				return err
			}
		}
	}
	return nil
}

// routesBy reports whether a binding takes a key. A kind of exchange that routes by
// something else is errNoBindings.
func routesBy(kind, bound, key string) (bool, error) {
	switch kind {
	case amqp.ExchangeFanout:
		return true, nil
	case amqp.ExchangeDirect:
		return bound == key, nil
	case amqp.ExchangeTopic:
		return topicMatches(strings.Split(bound, "."), strings.Split(key, ".")), nil
	}
	return false, errNoBindings
}

// topicMatches: * stands for one word, # for any number of them.
func topicMatches(pattern, words []string) bool {
	switch {
	case len(pattern) == 0:
		return len(words) == 0
	case pattern[0] == "#":
		return topicMatches(pattern[1:], words) || len(words) > 0 && topicMatches(pattern, words[1:])
	case len(words) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == words[0]) && topicMatches(pattern[1:], words[1:])
}

// deadTargets are the queues that the dead-letter arguments of others lead to. A
// queue that sends its own dead letters back is a place to wait in.
func (v *rabbitView) deadTargets() map[string]bool {
	targets := map[string]bool{}
	for _, q := range v.queues {
		exchange, has := q.Setting("dead-letter-exchange")
		x, isText := exchange.(string)
		if !has || !isText {
			continue
		}
		set, _ := q.Setting("dead-letter-routing-key")
		key, fixed := set.(string)
		if !fixed {
			key = q.Name // most often the key that it came by
		}
		queues, err := v.reach(x, key)
		if err != nil {
			continue
		}
		for _, to := range queues {
			if _, waits := v.queues[to].Setting("dead-letter-exchange"); !waits {
				targets[to] = true
			}
		}
	}
	return targets
}

// unattended: queues that look like dead letters, hold some, have no consumer and
// were never drained by us.
func (b *rabbitBroker) unattended(_ context.Context, view *clusterView, drained []string) ([]UnattendedSource, error) {
	var out []UnattendedSource
	dead := view.Rabbit.deadTargets()
	for _, name := range slices.Sorted(maps.Keys(view.Rabbit.queues)) {
		q := view.Rabbit.queues[name]
		if q.Consumers == 0 && q.Ready > 0 && !slices.Contains(drained, name) && (dead[name] || deadLetterName.MatchString(name)) {
			out = append(out, UnattendedSource{Cluster: b.name, Topic: name, Records: q.Ready})
		}
	}
	return out, nil
}
