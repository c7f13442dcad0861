package rabbit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/testkit"
)

// Delivery tags start anew with each channel: tag 1 of a lost channel is another
// message on the next. Acknowledging by tag alone would lose that one.
func TestTokenOfALostChannelAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		name := testkit.Name("acks")
		b.declare(t, name, nil)
		b.add(t, name)
		b.send(t, name, payment(1))
		b.send(t, name, payment(2))
		var a acks
		first, d := getOne(t, b, name)
		old := token{a.open(first), d.DeliveryTag}
		if err := first.Close(); err != nil { // goes back to the queue
			t.Fatal(err)
		}
		a.close(old.generation)
		second, d := getOne(t, b, name)
		now := token{a.open(second), d.DeliveryTag}
		if now.tag != old.tag {
			t.Fatalf("tags %d and %d: this test needs the same", old.tag, now.tag)
		}
		a.ack([]token{old})
		if got := a.staleCount(); got != 1 {
			t.Errorf("%d stale acknowledgements, want 1", got)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 10*time.Second, func() bool { return ready(t, b.queue(name).publish, name) == 2 }, "both messages are still there")
	})
}

func getOne(t *testing.T, b *broker, name string) (*amqp.Channel, amqp.Delivery) {
	t.Helper()
	ch := b.channel(t)
	var d amqp.Delivery
	testkit.Eventually(t, 10*time.Second, func() (ok bool) {
		var err error
		if d, ok, err = ch.Get(name, false); err != nil {
			t.Fatal(err)
		}
		return ok
	}, "a message comes")
	return ch, d
}

// script notes what is acknowledged.
type script []string

func (s *script) Ack(tag uint64, multiple bool) error {
	*s = append(*s, fmt.Sprint(tag, " ", multiple))
	return nil
}

func TestAcknowledgesManyAtOnceOnlyInRow(t *testing.T) {
	t.Parallel()
	var sent script
	var a acks
	g := a.open(&sent)
	a.ack([]token{{g, 1}, {g, 2}, {g, 3}})
	a.ack([]token{{g, 4}})
	a.ack([]token{{g, 6}, {g, 7}}) // 5 is not finished: "all up to 7" would lose it
	a.ack([]token{{g - 1, 8}, {g, 8}, {g, 9}})
	if want := []string{"3 true", "4 false", "6 false", "7 false", "8 false", "9 false"}; !slices.Equal(sent, want) {
		t.Errorf("acknowledged %v, want %v", sent, want)
	}
	if got := a.staleCount(); got != 1 {
		t.Errorf("%d stale, want 1", got)
	}
	a.close(g)
	a.ack([]token{{g, 10}, {g, 11}})
	if got := a.staleCount(); got != 3 || len(sent) != 6 {
		t.Errorf("%d stale, want 3; sent %v", got, sent)
	}
}
