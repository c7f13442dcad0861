package dlq

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/payload"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

// revisions edits the shop's letters.
func (s *replayShop) revisions() *Revisions {
	return NewRevisions(s.pool, s.judge, NewOrigins(s.pool, s.judge.Topology()), s.dialects, nil)
}

// edited is the edit of a letter's newest form.
func (s *replayShop) edited(letter uuid.UUID, change func(*Edit)) Edit {
	s.t.Helper()
	r := s.revisions()
	list, err := r.List(s.t.Context(), letter)
	s.must(nil, err)
	form, err := r.Form(s.t.Context(), ada, letter, len(list))
	s.must(nil, err)
	e := Edit{Base: len(list), Seen: len(list), Key: form.Body.Key, Value: form.Body.Value, Headers: slices.Clone(form.Body.Headers)}
	change(&e)
	return e
}

// revise makes a revision with another amount.
func (s *replayShop) revise(letter uuid.UUID, event, amount string) Revision {
	s.t.Helper()
	rev, err := s.revisions().Create(s.t.Context(), ada, letter, s.edited(letter, func(e *Edit) {
		e.Value = []byte(`{"eventId":"` + event + `","amount":` + amount + `}`)
	}))
	s.must(nil, err)
	return rev
}

func (s *replayShop) sentValues(topic string) []string {
	s.t.Helper()
	var values []string
	for _, rec := range s.sent(topic) {
		values = append(values, string(rec.Value))
	}
	return values
}

func newRevised(t *testing.T) (s *replayShop, points string, letter uuid.UUID) {
	t.Helper()
	s = newReplayShop(t, testkit.FakeKafkaAddr(t))
	points = s.ours("points")
	return s, points, s.failed("payment-1", points)
}

func TestTheSecondEditIsTheOneSent(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		letter := s.failed("payment-1", points)
		s.consume(points, applies, s.topic, points+".replay")
		first, second := s.revise(letter, "payment-1", "10.10"), s.revise(letter, "payment-1", "20.20")
		if first.No != 1 || second.No != 2 || second.Base != 1 {
			t.Fatalf("%+v, %+v", first, second)
		}
		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToSafe})
		if plan.Total != 1 {
			t.Fatalf("%+v", plan)
		}
		s.work(plan.ID)
		want := []string{`{"eventId":"payment-1","amount":20.20}`}
		if got := s.sentValues(points + ".replay"); !slices.Equal(got, want) {
			t.Errorf("sent %q", got)
		}
		if p := s.get(plan.ID); outcomes(p) != "applied 1" {
			t.Error(outcomes(p))
		}
		rec := s.sent(points + ".replay")[0]
		if header(rec, "event-id") != "payment-1" || string(rec.Key) != "key-payment-1" || len(rec.Headers) != 3 {
			t.Errorf("key %q, headers %v", rec.Key, rec.Headers)
		}
		items, err := s.replays.Items(t.Context(), plan.ID, ItemFilter{}, Page{})
		s.must(nil, err)
		if it := items.Items[0]; it.BytesFrom != "revision" || it.Revision != 2 {
			t.Errorf("%+v", it)
		}
	})
}

func TestAChosenFormIsSent(t *testing.T) {
	t.Parallel()
	s, points, letter := newRevised(t)
	s.revise(letter, "payment-1", "1")
	s.revise(letter, "payment-1", "2")
	for form, want := range map[int]string{0: `{"eventId":"payment-1"}`, 1: `{"eventId":"payment-1","amount":1}`} {
		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Revisions: map[uuid.UUID]int{letter: form}})
		s.must(s.pool.Exec(t.Context(), `UPDATE replay SET state = 4 WHERE id = $1`, plan.ID))
		st := &step{r: s.replays, id: plan.ID, log: testLog()}
		_, err := st.standing(t.Context())
		s.must(nil, err)
		c, err := st.prepare(t.Context(), st.reach(0))
		s.must(nil, err)
		if got := c.items[0]; got.leftOut.Key != "" || !strings.Contains(want, string(got.message.record.Value)) {
			t.Errorf("form %d: %+v", form, got.leftOut)
		}
		s.must(s.pool.Exec(t.Context(), `UPDATE replay SET state = 7 WHERE id = $1`, plan.ID))
	}
	_, err := s.replays.Plan(t.Context(), ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Revisions: map[uuid.UUID]int{letter: 3}})
	var bad *ErrBadFilter
	if !errors.As(err, &bad) || bad.Field != "revisions" {
		t.Errorf("a revision that is not there: %v", err)
	}
	_ = points
}

// An edit after the plan leaves the item out: what was planned, and perhaps
// approved, is not what would be sent.
func TestAnEditAfterThePlanLeavesTheItemOut(t *testing.T) {
	t.Parallel()
	s, points, letter := newRevised(t)
	s.consume(points, applies, s.topic, points+".replay")
	plain := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.revise(letter, "payment-1", "1")
	s.start(ada, plain.ID)
	s.work(plain.ID)
	if p := s.get(plain.ID); p.LeftOut != 1 || p.Sent != 0 {
		t.Fatalf("sent %d, left out %d", p.Sent, p.LeftOut)
	}
	items, err := s.replays.Items(t.Context(), plain.ID, ItemFilter{}, Page{})
	s.must(nil, err)
	if why := items.Items[0].Reason; why.Key != "reason.revision.newer" {
		t.Errorf("%+v", why)
	}
	if n := len(s.sent(points + ".replay")); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

func TestEditedAndOriginalAreNeverBothSent(t *testing.T) {
	t.Parallel()
	s, points, letter := newRevised(t)
	original := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.skipTo(points, points+".replay") // it subscribes, and is down
	s.start(ada, original.ID)
	s.stepOnce(s.replays, original.ID)
	if p := s.get(original.ID); p.Sent != 1 {
		t.Fatalf("sent %d", p.Sent)
	}
	if _, err := s.revisions().Create(t.Context(), ada, letter, Edit{}); !isBadEdit(err) {
		t.Errorf("edited while it is replayed: %v", err)
	}
	// Nobody saw it within the settling time: it may still arrive.
	s.must(s.pool.Exec(t.Context(), `UPDATE replay_item SET sent_at = now() - interval '1 hour' WHERE replay_id = $1`, original.ID))
	s.work(original.ID)
	if p := s.get(original.ID); outcomes(p) != "not_seen 1" {
		t.Fatal(outcomes(p))
	}
	s.revise(letter, "payment-1", "5")
	refusedAs(t, s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup}), Altered, alteredUnsettledOriginal)
	if plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToSafe}); plan.Total != 0 {
		t.Errorf("one click sends it: %+v", plan)
	}
	// In spite of that, with a reason and a second person; but never over a record.
	override := []Override{{LetterID: letter, Group: points, Verdict: Altered, Reason: "the consumer was reset"}}
	forced := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Overrides: override})
	if forced.State != AwaitingApproval || forced.Total != 1 {
		t.Fatalf("%+v", forced)
	}
	s.must(nil, s.replays.Approve(t.Context(), eve, forced.ID))
	s.consumed("payment-1", points) // the original is applied after all
	s.start(ada, forced.ID)
	s.work(forced.ID)
	if p := s.get(forced.ID); p.Sent != 0 || p.LeftOut != 1 {
		t.Errorf("over a record: sent %d, left out %d", p.Sent, p.LeftOut)
	}
	if got := s.sentValues(points + ".replay"); len(got) != 1 {
		t.Errorf("both were sent: %q", got)
	}
	refusedAs(t, s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup}), Altered, "reason.altered.record")
	_, err := s.replays.Plan(t.Context(), ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Overrides: override})
	if p, planErr := err.(*ErrBadOverride); planErr {
		t.Logf("refused: %v", p)
	} else if n := s.count(`SELECT count(*) FROM replay_override`); n != 1 {
		t.Errorf("an override over a record was kept: %v, %d", err, n)
	}
}

func refusedAs(t *testing.T, plan Plan, verdict Verdict, key string) {
	t.Helper()
	if plan.Total != 0 || plan.RefusedN != 1 || plan.Refused[0].Verdict != verdict || plan.Refused[0].Reason.Key != key {
		t.Errorf("%+v", plan)
	}
}

func isBadEdit(err error) bool {
	_, ok := errors.AsType[*ErrBadEdit](err)
	return ok
}

// The other way round: once the edited form was sent and is not settled, the
// original is held back.
func TestTheOriginalIsHeldBackAfterAnEdit(t *testing.T) {
	t.Parallel()
	s, points, letter := newRevised(t)
	s.revise(letter, "payment-1", "5")
	s.skipTo(points, points+".replay")
	edited := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.start(ada, edited.ID)
	s.stepOnce(s.replays, edited.ID)
	s.must(s.pool.Exec(t.Context(), `UPDATE replay_item SET sent_at = now() - interval '1 hour' WHERE replay_id = $1`, edited.ID))
	s.work(edited.ID)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Revisions: map[uuid.UUID]int{letter: 0}})
	refusedAs(t, plan, Altered, alteredUnsettledRevision)
}

// A group that did not give the event up may still apply the original from the
// origin topic.
func TestAnEditToTheOriginReachesGroupsThatMayApplyTheOriginal(t *testing.T) {
	t.Parallel()
	s, _, letter := newRevised(t)
	stock := s.foreign("stock", s.evidence())
	s.revise(letter, "payment-1", "5")
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToOrigin})
	if plan.Total != 0 || !slices.ContainsFunc(plan.Refused, func(r Refusal) bool {
		return r.Group == stock && r.Verdict == Altered && r.Reason.Key == alteredElsewhere
	}) {
		t.Errorf("%+v", plan)
	}
}

func TestEditsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	dead := func(rec *kgo.Record) uuid.UUID {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "authorization", Value: []byte("Bearer x")}, kgo.RecordHeader{Key: "shop", Value: []byte("7")})
		s.deadLetter(s.produce(rec), points)
		s.drain()
		return s.letter(eventOf(rec), points)
	}
	id := func(event string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: "event-id", Value: []byte(event)}}
	}
	letter := dead(&kgo.Record{Key: []byte("p-1"), Value: []byte(`{"n":1.50,"meta":{"eventId":"p-1"}}`), Headers: id("p-1")})
	keyed := letter
	framedOne := dead(&kgo.Record{Value: append([]byte{0, 0, 0, 0, 7}, "avro bytes"...), Headers: id("p-2")})
	setHeader := func(name, value string) func(*Edit) {
		return func(e *Edit) {
			for i := range e.Headers {
				if e.Headers[i].Name == name {
					e.Headers[i].Value = []byte(value)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		letter uuid.UUID
		change func(*Edit)
		field  string
		key    string // "" taken
	}{
		"nothing":                  {letter, func(*Edit) {}, "revision", "reason.edit.nothing"},
		"event id header":          {letter, setHeader("event-id", "p-9"), "header", "reason.edit.locked"},
		"event id header dropped":  {letter, func(e *Edit) { e.Headers = e.Headers[1:] }, "header", "reason.edit.locked"},
		"event id header doubled":  {letter, func(e *Edit) { e.Headers = append(e.Headers, e.Headers[0]) }, "header", "reason.edit.locked"},
		"a second event id":        {letter, func(e *Edit) { e.Headers = append(e.Headers, Header{Name: "Event-Id", Value: []byte("x")}) }, "header", "reason.edit.locked"},
		"event id in the value":    {letter, func(e *Edit) { e.Value = []byte(`{"n":2,"meta":{"eventId":"p-9"}}`) }, "value", "reason.edit.event_id"},
		"event id moved":           {letter, func(e *Edit) { e.Value = []byte(`{"n":2,"eventId":"p-1"}`) }, "value", "reason.edit.event_id"},
		"event id twice":           {letter, func(e *Edit) { e.Value = []byte(`{"n":1.50,"meta":{"eventId":"p-1","eventId":"p-9"}}`) }, "value", "reason.edit.event_id"},
		"event id under an object": {letter, func(e *Edit) { e.Value = []byte(`{"n":1.50,"meta":{"eventId":{"id":"p-9"},"eventId":"p-1"}}`) }, "value", "reason.edit.event_id"},
		"event id lost with null":  {letter, func(e *Edit) { e.Value = nil }, "value", "reason.edit.event_id"},
		"event id as the key":      {keyed, func(e *Edit) { e.Key = []byte("other") }, "key", "reason.edit.event_id"},
		"no JSON any more":         {letter, func(e *Edit) { e.Value = []byte(`{"n":1.50,"meta":{"eventId":"p-1"}`) }, "value", "reason.edit.event_id"},
		"sensitive unconfirmed":    {letter, setHeader("authorization", "Bearer y"), "header", "reason.edit.sensitive"},
		"sensitive confirmed":      {letter, func(e *Edit) { setHeader("authorization", "Bearer y")(e); e.Sensitive = true }, "", ""},
		"free header":              {letter, setHeader("shop", "8"), "", ""},
		"value":                    {letter, func(e *Edit) { e.Value = []byte(`{"n":2,"meta":{"eventId":"p-1"}}`) }, "", ""},
		"a header without a name":  {letter, func(e *Edit) { e.Headers = append(e.Headers, Header{}) }, "header", "reason.edit.no_name"},
		"framed":                   {framedOne, func(e *Edit) { e.Value = append(slices.Clone(e.Value), 'x') }, "value", "reason.edit.framed"},
		"a framed letter's header": {framedOne, setHeader("shop", "8"), "", ""},
		"too large":                {letter, func(e *Edit) { e.Value = make([]byte, MaxRevisionBytes+1) }, "value", "reason.edit.size"},
	} {
		_, err := s.revisions().Propose(t.Context(), ada, c.letter, s.edited(c.letter, c.change))
		bad, refused := errors.AsType[*ErrBadEdit](err)
		switch {
		case c.key == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.key != "" && (!refused || bad.Field != c.field || bad.Reason.Key != c.key):
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.count(`SELECT count(*) FROM letter_revision`); n != 0 {
		t.Errorf("proposing kept %d revisions", n)
	}
}

func TestWhoMayEdit(t *testing.T) {
	t.Parallel()
	s, points, letter := newRevised(t)
	edit := s.edited(letter, func(e *Edit) { e.Value = []byte(`{"eventId":"payment-1","x":1}`) })
	for _, role := range []access.Role{access.Viewer, access.Reviewer, access.Approver} {
		actor := access.Actor{User: "x", Role: role, Reason: "because"}
		if _, err := s.revisions().Create(t.Context(), actor, letter, edit); !errors.Is(err, access.ErrForbidden) {
			t.Errorf("%s: %v", role, err)
		}
		if _, err := s.revisions().Form(t.Context(), actor, letter, 0); !errors.Is(err, access.ErrForbidden) {
			t.Errorf("%s reads the form: %v", role, err)
		}
	}
	silent := ada
	silent.Reason = ""
	if _, err := s.revisions().Create(t.Context(), silent, letter, edit); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("without a reason: %v", err)
	}
	rev, err := s.revisions().Create(t.Context(), ada, letter, edit)
	s.must(nil, err)
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'letter.revised' AND reason = $1
		AND detail->>'digest' <> detail->>'digest_before' AND detail->'changed' = '["value"]' AND detail::text NOT LIKE '%payment-1%'`, ada.Reason); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	if _, err := s.revisions().Create(t.Context(), bob, letter, edit); !isBadEdit(err) {
		t.Errorf("an edit of what somebody else has edited meanwhile: %v", err)
	}
	s.consumed("payment-1", points)
	next := s.edited(letter, func(e *Edit) { e.Value = []byte(`{"eventId":"payment-1","x":2}`) })
	if _, err := s.revisions().Create(t.Context(), ada, letter, next); !isBadEdit(err) || !strings.Contains(err.Error(), "record") {
		t.Errorf("an edit of what was applied: %v", err)
	}
	if rev.No != 1 || rev.CreatedBy != "ada" || time.Since(rev.CreatedAt) > time.Minute {
		t.Errorf("%+v", rev)
	}
}

// A sensitive header takes a second person, in whatever revision it was changed.
func TestASensitiveRevisionNeedsAnotherPerson(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	rec := s.produce(&kgo.Record{Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("e-1")}, {Key: "X-User-Id", Value: []byte("7")}}})
	s.deadLetter(rec, points)
	s.drain()
	letter := s.letter("e-1", points)
	_, err := s.revisions().Create(t.Context(), ada, letter, s.edited(letter, func(e *Edit) { e.Headers[1].Value, e.Sensitive = []byte("8"), true }))
	s.must(nil, err)
	_, err = s.revisions().Create(t.Context(), ada, letter, s.edited(letter, func(e *Edit) { e.Value = []byte(`{"a":1}`) }))
	s.must(nil, err)
	for form, want := range map[int]ReplayState{0: Planned, 1: AwaitingApproval, 2: AwaitingApproval} {
		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup, Revisions: map[uuid.UUID]int{letter: form}})
		if plan.State != want {
			t.Errorf("form %d: %s", form, plan.State)
		}
	}
}

// Bytes that no page can show come back as they were.
func TestARevisionKeepsBytes(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	rec := s.produce(&kgo.Record{Key: []byte{}, Value: []byte("\x01\xff\x00 a"), Headers: []kgo.RecordHeader{
		{Key: "event-id", Value: []byte("b-1")}, {Key: "n", Value: nil}, {Key: "n", Value: []byte{}}, {Key: "n", Value: []byte("\xff")}}})
	s.deadLetter(rec, points)
	s.drain()
	letter := s.letter("b-1", points)
	edit := s.edited(letter, func(e *Edit) { e.Value = []byte("\x01\xfe\x00 a\r\n") })
	_, err := s.revisions().Create(t.Context(), ada, letter, edit)
	s.must(nil, err)
	body, err := s.revisions().Body(t.Context(), letter, 1)
	s.must(nil, err)
	if string(body.Value) != "\x01\xfe\x00 a\r\n" || body.Key == nil || len(body.Headers) != 4 || body.Headers[1].Value != nil || body.Headers[2].Value == nil {
		t.Errorf("%q, key %v, %v", body.Value, body.Key, body.Headers)
	}
	if _, err := s.revisions().Body(t.Context(), letter, math.MaxInt32+1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a number larger than any: %v", err)
	}
}

// Two people save an edit of one letter at once: one of them is told.
func TestTwoEditorsAtOnce(t *testing.T) {
	t.Parallel()
	s, _, letter := newRevised(t)
	edit := s.edited(letter, func(e *Edit) { e.Value = []byte(`{"eventId":"payment-1","x":1}`) })
	r := s.revisions()
	errs := make(chan error, 2)
	for _, who := range []access.Actor{ada, bob} {
		go func() {
			_, err := r.Create(context.Background(), who, letter, edit)
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if (a == nil) == (b == nil) || !isBadEdit(errors.Join(a, b)) {
		t.Errorf("%v, %v", a, b)
	}
}

// A framed value is edited as its schema's document, and written back by the same
// schema; without a registry it is refused with the reason.
func TestAFramedValueIsWrittenByItsSchema(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/schemas/ids/7") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
		_, _ = io.WriteString(w, `{"schema": "{\"type\":\"record\",\"name\":\"Paid\",\"fields\":[{\"name\":\"eventId\",\"type\":\"string\"},{\"name\":\"points\",\"type\":\"long\"}]}"}`)
	}))
	t.Cleanup(registry.Close)
	schemas, err := payload.NewRegistry(payload.RegistryOptions{URLs: []string{registry.URL}})
	if err != nil {
		t.Fatal(err)
	}
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	value := append([]byte{0, 0, 0, 0, 7}, "\x06a-1\x02"...) // eventId "a-1", points 1
	s.deadLetter(s.produce(&kgo.Record{Value: value, Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("a-1")}}}), points)
	s.drain()
	letter := s.letter("a-1", points)
	r := NewRevisions(s.pool, s.judge, NewOrigins(s.pool, s.judge.Topology()), s.dialects, map[string]*payload.Registry{"shop": schemas})
	form, err := r.Form(t.Context(), ada, letter, 0)
	s.must(nil, err)
	if form.EditAs != EditFramed || !strings.Contains(string(form.Document), `"points"`) {
		t.Fatalf("%s, %q, %s", form.EditAs, form.Document, form.Why)
	}
	edit := Edit{Key: form.Body.Key, Value: form.Body.Value, Headers: form.Body.Headers}
	for document, key := range map[string]string{
		`{"eventId":"a-2","points":2}`:      "reason.edit.event_id",
		`{"eventId":"a-1","points":"many"}`: "reason.edit.schema",
		`{"eventId":"a-1"`:                  "reason.edit.schema",
	} {
		edit.Document = []byte(document)
		_, err := r.Propose(t.Context(), ada, letter, edit)
		if bad, ok := errors.AsType[*ErrBadEdit](err); !ok || bad.Reason.Key != key {
			t.Errorf("%s: %v", document, err)
		}
	}
	edit.Document = []byte(`{"eventId":"a-1","points":2}`)
	_, err = r.Create(t.Context(), ada, letter, edit)
	s.must(nil, err)
	body, err := r.Body(t.Context(), letter, 1)
	s.must(nil, err)
	if want := append([]byte{0, 0, 0, 0, 7}, "\x06a-1\x04"...); string(body.Value) != string(want) {
		t.Errorf("%x, want %x", body.Value, want)
	}
	if _, err := s.revisions().Propose(t.Context(), ada, letter, edit); !isBadEdit(err) {
		t.Errorf("without a registry: %v", err)
	}
}
