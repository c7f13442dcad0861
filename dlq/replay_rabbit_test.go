package dlq

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/amqpform"
	"oncemore/internal/testkit"
)

// One click sends the message to the queue that failed, and to no other, as its
// producer published it; the record proves that it took effect.
func TestReplayToTheQueueThatFailed(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		s := newRabbitShop(t, server)
		s.rabbitBench.drain()
		exchange, other := s.home+".x", s.home+".stock"
		s.exchange(exchange, amqp.ExchangeFanout)
		s.declare(other, nil)
		s.bind(exchange, "", s.home, other)
		sent := order("e-1")
		sent.Headers, sent.Expiration, sent.ReplyTo, sent.UserId = everyType(), "600000", "answers", "console"
		sent.Headers["CC"] = []any{other}
		s.publish(exchange, "paid", sent)
		s.got(other)
		s.reject()
		s.wantLetters(1)
		id := s.letter("e-1", s.group)

		if j := judgeOne(t, s, id, ToSafe); j.Headline != Safe || j.Route == nil || *j.Route != (Route{Cluster: "shop", Topic: s.home, Group: s.group}) {
			t.Fatalf("judged %+v", j)
		}
		p := s.plan(ada, PlanRequest{Selection: ids(id), Target: ToSafe})
		s.workWhile(p.ID, func() {
			got := s.got(s.home)
			if len(got) == 0 {
				return
			}
			wantOriginal(t, got[0], sent, p.ID)
			s.consumed("e-1", s.group)
		})
		if r := s.get(p.ID); outcomes(r) != "applied 1" || s.letterState(id) != Resolved {
			t.Errorf("outcomes %s, letter %s", outcomes(r), s.letterState(id))
		}
		if n := s.ready(other); n != 0 {
			t.Errorf("%d copies reached the other queue", n)
		}
		again := s.plan(ada, PlanRequest{Selection: ids(id), Target: ToSafe}) // a record is there: harmless
		s.workWhile(again.ID)
		if r := s.get(again.ID); outcomes(r) != "duplicate_expected 1" {
			t.Errorf("a second replay: %s", outcomes(r))
		}
	})
}

// wantOriginal compares a replayed message with what its producer published.
func wantOriginal(t *testing.T, got amqp.Delivery, sent amqp.Publishing, replay int64) {
	t.Helper()
	want := amqp.Table{}
	for name, value := range sent.Headers {
		if name != "CC" && name != "BCC" {
			want[name] = value
		}
	}
	want[HeaderReplay], want[HeaderItem] = fmt.Sprint(replay), "1"
	for name, value := range got.Headers {
		if at, ok := value.(time.Time); ok {
			got.Headers[name] = at.UTC()
		}
	}
	if !reflect.DeepEqual(got.Headers, want) {
		t.Errorf("headers %#v\nwant %#v", got.Headers, want)
	}
	if string(got.Body) != string(sent.Body) || got.MessageId != sent.MessageId || got.ReplyTo != sent.ReplyTo || got.ContentType != sent.ContentType ||
		!got.Timestamp.Equal(sent.Timestamp) || got.DeliveryMode != amqp.Persistent {
		t.Errorf("message %+v", got)
	}
	if got.Expiration != "" || got.UserId != "" {
		t.Errorf("expiration %q and user_id %q were sent again", got.Expiration, got.UserId)
	}
}

func judgeOne(t *testing.T, s *rabbitShop, id uuid.UUID, target Target) Judged {
	t.Helper()
	s.judge.topo.mu.Lock()
	clear(s.judge.topo.views) // a queue may be new
	s.judge.topo.mu.Unlock()
	judged, err := s.judge.JudgeLetters(t.Context(), []uuid.UUID{id}, target)
	if err != nil || len(judged) != 1 {
		t.Fatal(judged, err)
	}
	return judged[0]
}

func (b *rabbitBench) exchange(name, kind string) {
	b.t.Helper()
	if err := b.ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = rabbitChannel(b.t, b.server.URL).ExchangeDelete(name, false, false) })
}

func (b *rabbitBench) bind(exchange, key string, queues ...string) {
	b.t.Helper()
	for _, q := range queues {
		if err := b.ch.QueueBind(q, key, exchange, false, nil); err != nil {
			b.t.Fatal(err)
		}
	}
}

// The origin exchange reaches every bound queue: each counts, and one that nobody
// vouches for keeps the event back.
func TestReplayToTheOriginExchange(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		s := newRabbitShop(t, server)
		s.rabbitBench.drain()
		exchange, stock, audit := s.home+".x", s.home+".stock", s.home+".audit"
		s.exchange(exchange, amqp.ExchangeTopic)
		s.declare(stock, nil)
		s.declare(audit, nil)
		s.bind(exchange, "order.*", s.home)
		s.bind(exchange, "order.#", stock)
		stockGroup := testkit.Name("stock")
		s.know(stockGroup, stock, s.evidence())
		s.connect()
		s.publish(exchange, "order.paid", order("e-1"))
		s.got(stock)
		s.reject()
		s.wantLetters(1)
		id := s.letter("e-1", s.group)
		j := judgeOne(t, s, id, ToOrigin)
		if j.Headline != Safe || len(j.Groups) != 2 || j.Route == nil || *j.Route != (Route{Cluster: "shop", Exchange: exchange, Topic: "order.paid"}) {
			t.Fatalf("two groups: %+v", j)
		}
		s.bind(exchange, "order.paid", audit)
		j = judgeOne(t, s, id, ToOrigin)
		if v, ok := verdictOf(j, audit); j.Headline != Unprotected || !ok || !v.Reached {
			t.Errorf("a queue without a group: %+v", j)
		}
		p := s.plan(ada, PlanRequest{Selection: ids(id), Target: ToOrigin})
		if p.Total != 0 || p.RefusedN != 1 {
			t.Errorf("plan %+v", p)
		}
		if err := s.ch.QueueUnbind(audit, "order.paid", exchange, nil); err != nil {
			t.Fatal(err)
		}
		judgeOne(t, s, id, ToOrigin) // looks anew
		p = s.plan(ada, PlanRequest{Selection: ids(id), Target: ToOrigin})
		s.start(ada, p.ID)
		s.workWhile(p.ID, func() {
			for queue, group := range map[string]string{s.home: s.group, stock: stockGroup} {
				for range s.got(queue) {
					s.consumed("e-1", group)
				}
			}
		})
		if r := s.get(p.ID); outcomes(r) != "applied 2" || s.letterState(id) != Resolved {
			t.Errorf("outcomes %s, letter %s", outcomes(r), s.letterState(id))
		}
	})
}

// Without the management API nobody knows what an exchange reaches.
func TestUnknownBindingsAreNoPermission(t *testing.T) {
	t.Parallel()
	s := newRabbitShop(t, testkit.Rabbit4(t))
	s.rabbitBench.drain()
	s.exchange(s.home+".x", amqp.ExchangeDirect)
	s.bind(s.home+".x", "paid", s.home)
	s.publish(s.home+".x", "paid", order("e-1"))
	s.reject()
	s.wantLetters(1)
	id := s.letter("e-1", s.group)
	blind, err := NewRabbitCluster("shop", RabbitOptions{URLs: []string{s.server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(blind.Close)
	s.replayShop.cluster = blind
	s.connect()
	if j := judgeOne(t, s, id, ToOrigin); j.Headline != Unknown || j.Groups[0].Reason.Key != "reason.unknown.bindings" {
		t.Errorf("the exchange: %+v", j)
	}
	if j := judgeOne(t, s, id, ToSafe); j.Headline != Safe {
		t.Errorf("the queue: %+v", j)
	}
}

// The expiration goes again only where the config says so.
func TestExpirationIsKeptOnPurpose(t *testing.T) {
	t.Parallel()
	set := loadDialects(t)
	dead := amqp.Delivery{MessageId: "e-1", Headers: amqp.Table{"x-first-death-queue": "q", "x-death": []any{amqp.Table{
		"count": int64(1), "reason": "rejected", "queue": "q", "exchange": "", "routing-keys": []any{"q"}, "original-expiration": "60000"}}}}
	fields, err := amqpform.Fields(dead.Headers)
	if err != nil {
		t.Fatal(err)
	}
	body := Body{Value: []byte("{}"), Headers: typedHeaders(fields), AMQP: amqpform.Envelope(dead)}
	for keep, want := range map[bool]string{false: "", true: "60000"} {
		b, err := newRabbitBroker("shop", RabbitOptions{URLs: []string{"amqp://u:p@h/"}, KeepExpiration: keep})
		if err != nil {
			t.Fatal(err)
		}
		it := &sendItem{no: 1}
		b.compose(it, composing{dialects: set, replay: 7, target: sendTarget{Topic: "q"}, stored: storedBody{body: body, dialect: "rabbitmq-xdeath"}, body: body, from: fromLetter})
		if it.message == nil || it.message.rabbit.publishing.Expiration != want {
			t.Errorf("kept %v: %+v, %+v", keep, it.leftOut, it.message)
		}
	}
	b, err := newRabbitBroker("shop", RabbitOptions{URLs: []string{"amqp://u:p@h/"}, Expirations: []Expiration{{"quotes.*", true}, {"*.dlq", false}}, KeepExpiration: true})
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]bool{"quotes.dlq": true, "orders.dlq": false, "orders.parked": true} {
		if b.keepsExpiration(queue) != want {
			t.Errorf("%s keeps its expiration: %v", queue, !want)
		}
	}
}

// What the broker does not take stays open as not sent, with its reason.
func TestQueuesThatDoNotTake(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		s := newRabbitShop(t, server)
		s.rabbitBench.drain()
		full := s.home + ".full"
		s.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		s.publish("", full, order("first"))
		nacked := s.failed(order("e-nacked"))
		for name, c := range map[string]struct {
			letter uuid.UUID
			target string // group_target
			before func()
			want   string
		}{
			"nacked":   {nacked, full, nil, "nacked by the broker"},
			"no queue": {nacked, s.home + ".gone", func() { s.declare(s.home+".gone", nil) }, "NO_ROUTE"},
		} {
			if c.before != nil {
				c.before()
			}
			for i := range s.replayShop.groups {
				s.replayShop.groups[i].Target = c.target
			}
			s.connect()
			if name == "no queue" {
				s.replays.reached = func(m moment) {
					if m == momentClaimed {
						_, _ = s.ch.QueueDelete(c.target, false, false, false)
					}
				}
			}
			p := s.plan(ada, PlanRequest{Selection: ids(c.letter), Target: ToSafe})
			if p.Total != 1 {
				t.Fatalf("%s: %+v", name, p.Refused)
			}
			s.workWhile(p.ID)
			items, err := s.replays.Items(t.Context(), p.ID, ItemFilter{}, Page{})
			if err != nil || len(items.Items) != 1 {
				t.Fatal(items, err)
			}
			it := items.Items[0]
			if it.State != "not_sent" || !strings.Contains(it.Reason.Text, c.want) || s.letterState(c.letter) != Open || outcomes(s.get(p.ID)) != "not_sent 1" {
				t.Errorf("%s: %s, %q, letter %s", name, it.State, it.Reason.Text, s.letterState(c.letter))
			}
		}
	})
}

// An exchange leads to several queues. When one refuses, the others have the
// message all the same: nobody may say that it was not sent.
func TestANackOfSeveralQueuesIsUnconfirmed(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		s := newRabbitShop(t, server)
		s.rabbitBench.drain()
		exchange, full := s.home+".x", s.home+".full"
		if err := s.ch.ExchangeDeclare(exchange, amqp.ExchangeFanout, false, true, false, false, nil); err != nil {
			t.Fatal(err)
		}
		s.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		s.publish("", full, order("first"))
		if err := s.ch.QueueBind(s.home, "", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
		s.publish(exchange, "order.paid", order("e-1"))
		s.reject()
		s.wantLetters(1)
		if err := s.ch.QueueBind(full, "", exchange, false, nil); err != nil {
			t.Fatal(err)
		}
		s.know(s.group+"-full", full, s.evidence())
		s.connect()
		id := s.letter("e-1", s.group)
		p := s.plan(ada, PlanRequest{Selection: ids(id), Target: ToOrigin})
		if p.Total != 1 {
			t.Fatalf("%+v", p.Refused)
		}
		s.must(nil, s.replays.Start(t.Context(), ada, p.ID))
		s.workWhile(p.ID)
		items, err := s.replays.Items(t.Context(), p.ID, ItemFilter{}, Page{})
		if err != nil || len(items.Items) != 1 {
			t.Fatal(items, err)
		}
		it := items.Items[0]
		if it.State != "unconfirmed" || !strings.Contains(it.Reason.Text, "others may have it") || s.letterState(id) != Open || outcomes(s.get(p.ID)) != "unconfirmed 2" {
			t.Errorf("%s, %q, letter %s, %s", it.State, it.Reason.Text, s.letterState(id), outcomes(s.get(p.ID)))
		}
		if n := s.ready(s.home); n != 1 {
			t.Errorf("the queue that has room got %d messages", n)
		}
	})
}

// A message that fails and is replayed over and over keeps its size: no header of a
// framework, the broker or a replay piles up.
func TestSizesStayFlatOverTwentyCycles(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		s := newRabbitShop(t, server, func(o *ReplayOptions) { o.ReplayCap = 100 })
		s.rabbitBench.drain()
		s.consume(givesUp)
		s.publish("", s.home, order("e-1"))
		s.wantLetters(1)
		id := s.letter("e-1", s.group)
		size := func() int {
			return one[int](t, s.db(), `SELECT octet_length(b.headers) + octet_length(b.amqp) FROM letter_occurrence o JOIN dead_letter_body b ON b.id = o.body_id ORDER BY o.at DESC LIMIT 1`)
		}
		var first int
		for cycle := range 20 {
			p := s.plan(ada, PlanRequest{Selection: ids(id), Target: ToSafe})
			if p.Total != 1 {
				t.Fatalf("cycle %d: %+v", cycle, p.Refused)
			}
			s.workWhile(p.ID)
			if r := s.get(p.ID); outcomes(r) != "failed_again 1" {
				t.Fatalf("cycle %d: %s", cycle, outcomes(r))
			}
			if cycle == 0 {
				first = size()
			} else if n := size(); n > first+2 { // the replay's number grows by a digit
				t.Fatalf("cycle %d: %d bytes of headers, %d at first", cycle, n, first)
			}
		}
		d, body := loadBody(t, s.db(), "e-1")
		if d.State != Open || d.Letter.Occurrences != 21 || len(body.Headers) == 0 {
			t.Errorf("%s, %d occurrences", d.State, d.Letter.Occurrences)
		}
	})
}

// A process that dies between the broker's confirmation and the commit leaves an
// item that may be in the queue: it is sent again only where that is safe.
func TestKilledBetweenConfirmAndCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at    moment
		known bool   // the message was handled meanwhile
		over  bool   // sent by override
		want  string // outcomes
		sent  int    // copies that reached the queue
	}{
		"before the send, safe":    {momentClaimed, false, false, "applied 1", 1},
		"after the confirm, safe":  {momentPublished, false, false, "applied 1", 2},
		"after it took effect":     {momentPublished, true, false, "applied 1", 1},
		"after the confirm, blind": {momentPublished, false, true, "unconfirmed 1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRabbitShop(t, testkit.Rabbit(t), quickRecovery)
			s.rabbitBench.drain()
			if c.over {
				s.replayShop.groups[0].Evidence = nil
				s.connect(quickRecovery)
			}
			id := s.failed(order("e-1"))
			req := PlanRequest{Selection: ids(id), Target: ToGroup}
			if c.over {
				req.Overrides = []Override{{LetterID: id, Group: s.group, Verdict: Unprotected, Reason: "seen by hand"}}
			}
			p := s.plan(ada, req)
			if c.over {
				s.must(nil, s.replays.Approve(t.Context(), eve, p.ID))
			}
			s.start(ada, p.ID)
			s.crash(p.ID, c.at)
			copies := 0
			if c.known {
				copies = len(s.got(s.home))
				s.consumed("e-1", s.group)
			}
			s.workWhile(p.ID, func() {
				if n := len(s.got(s.home)); n > 0 {
					copies += n
				}
				if !c.over && copies == c.sent {
					s.consumed("e-1", s.group)
				}
			})
			if r := s.get(p.ID); outcomes(r) != c.want || copies != c.sent {
				t.Errorf("%s, %d copies; want %s, %d", outcomes(r), copies, c.want, c.sent)
			}
		})
	}
}

// An item without an answer whose verdict is not safe stays as it is; the search of
// a queue never says "not found".
func TestLostItemsOfAQueue(t *testing.T) {
	t.Parallel()
	groups := func(v ...Verdict) *Judged {
		j := &Judged{}
		for _, verdict := range v {
			j.Groups = append(j.Groups, GroupVerdict{Verdict: verdict, Reached: true})
		}
		j.Groups = append(j.Groups, GroupVerdict{Verdict: Unknown}) // not reached: does not count
		return j
	}
	for name, c := range map[string]struct {
		item lostItem
		now  *Judged
		want int16
	}{
		"safe":                  {lostItem{Fresh: true}, groups(Safe, Safe), itemWaiting},
		"one unprotected":       {lostItem{Fresh: true}, groups(Safe, Unprotected), itemUnconfirmed},
		"one applied":           {lostItem{Fresh: true}, groups(Safe, AlreadyApplied), itemUnconfirmed},
		"applied since":         {lostItem{Fresh: true}, groups(AlreadyApplied, AlreadyApplied), itemSent},
		"applied before":        {lostItem{}, groups(AlreadyApplied), itemUnconfirmed},
		"overridden":            {lostItem{Fresh: true, Overridden: true}, groups(Safe), itemUnconfirmed},
		"often enough":          {lostItem{Fresh: true, Tries: maxTries - 1}, groups(Safe), itemUnconfirmed},
		"nobody is reached":     {lostItem{Fresh: true}, &Judged{}, itemUnconfirmed},
		"the letter is no more": {lostItem{Fresh: true}, nil, itemUnconfirmed},
	} {
		it := &sendItem{}
		if got := c.item.settle(it, searched{never: true}, sendTarget{Topic: "q"}, c.now); got != c.want {
			t.Errorf("%s: state %d, want %d", name, got, c.want)
		}
	}
}

// The sender tells one message that the broker refuses from those around it.
func TestSenderFindsTheCulprit(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		message := func(no int, exchange, key string, body []byte) *sendItem {
			m := &rabbitMessage{exchange: exchange, key: key, publishing: amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent}}
			m.mark(7, no)
			var err error
			if m.frame, err = amqpform.HeaderFrame(m.publishing); err != nil {
				t.Fatal(err)
			}
			return &sendItem{no: no, message: &message{cluster: "shop", rabbit: m}}
		}
		var items []*sendItem
		for no := range 600 {
			items = append(items, message(no+1, "", b.home, []byte("x")))
		}
		items[300] = message(301, "", b.home+".nowhere", []byte("unroutable"))
		items[400] = message(401, b.home+".no-such-exchange", "k", []byte("refused"))
		items[500] = message(501, "", b.home, make([]byte, 2<<20))
		items[550].message.rabbit.publishing.Headers["trace"] = strings.Repeat("x", 200_000)
		items[550].message.rabbit.frame += 200_000
		snd, err := b.cluster.broker.newSender(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer snd.close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if snd.send(ctx, items) {
			t.Error("late")
		}
		for i, it := range items {
			refused := i == 300 || i == 400 || i == 550
			switch {
			case it.result == nil:
				t.Fatalf("item %d has no answer", it.no)
			case refused != it.result.refused() || !refused && it.result.err != nil:
				t.Errorf("item %d: %v", it.no, it.result.err)
			}
		}
		if text := fmt.Sprint(items[300].result.err, items[400].result.err, items[550].result.err); !strings.Contains(text, "NO_ROUTE") ||
			!strings.Contains(text, "NOT_FOUND") || !strings.Contains(text, "frame_max") {
			t.Errorf("reasons: %s", text)
		}
		if n := b.ready(b.home); n != 597 {
			t.Errorf("%d messages arrived", n)
		}
	})
}
