package web_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/web"
)

// firstRun is a first run of which everything but the file was done.
type firstRun struct{ needed bool }

func (f *firstRun) Needed() bool                                   { return f.needed }
func (f *firstRun) Later()                                         { f.needed = false }
func (f *firstRun) Connect(context.Context, web.SetupBroker) error { return nil }
func (f *firstRun) Choose(web.SetupSources)                        {}
func (f *firstRun) Judge([]web.SetupEvidence)                      {}
func (f *firstRun) Save(_ context.Context, a access.Actor) error   { return a.Check(access.Configure) }
func (f *firstRun) Look(context.Context, web.SetupDatabase) error {
	return &web.SetupTrouble{Words: "password authentication failed", Hint: "setup.hint.database"}
}

func (f *firstRun) Try(context.Context, web.SetupEvidence) (dlq.EvidenceAnswer, error) {
	return dlq.EvidenceAnswer{}, nil
}

func (f *firstRun) Draft() web.SetupDraft {
	oldest := time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC)
	record := dlq.EvidenceProposal{Unique: true, Rows: 1200, Groups: []string{"points"}, Oldest: &oldest, Sample: "e-1"}
	record.Table, record.EventID, record.ConsumerGroup, record.ConsumedAt = "mq_consume_record", "event_id", "consumer_group", "consumed_at"
	return web.SetupDraft{Connected: true, Broker: web.SetupBroker{Kind: "rabbitmq", Name: "pay"}, Sources: web.SetupSources{Names: []string{"order.paid.dlq"}},
		Places: []dlq.DeadPlace{{Name: "order.paid.dlq", Messages: 12480, Likely: true}, {Name: "order.paid", Messages: 3}}, Looked: true, Tables: []dlq.EvidenceProposal{record}}
}

func (f *firstRun) File() (web.SetupFile, error) {
	return web.SetupFile{Path: "/etc/oncemore/console.yaml", Text: "environment: shop\n", Secrets: []string{"/etc/oncemore/secrets/pay.amqp"}}, nil
}

// An admin is led to the first run until it is put off; nobody else is, or may.
func TestTheFirstRunIsForAdmins(t *testing.T) {
	t.Parallel()
	s := setupShop(t, func(d *web.Deps) { d.Setup = &firstRun{needed: true} })
	admin, operator := s.signIn(t, access.Admin), s.signIn(t, access.Operator)
	if r := s.get(t, admin, "/"); r.status != http.StatusSeeOther || r.header.Get("Location") != "/setup" {
		t.Errorf("an admin lands on %d %q", r.status, r.header.Get("Location"))
	}
	contains(t, s.get(t, operator, "/"), http.StatusOK)
	for _, path := range []string{"/setup", "/setup/first"} {
		contains(t, s.get(t, operator, path), http.StatusForbidden)
	}
	for _, path := range []string{"broker", "sources", "database", "evidence", "save", "later"} {
		if r := s.post(t, operator, "/setup/"+path, url.Values{"kind": {"kafka"}}); r.status != http.StatusForbidden {
			t.Errorf("an operator may post to %s: %d", path, r.status)
		}
	}
	contains(t, s.get(t, admin, "/setup?step=fifth"), http.StatusBadRequest, "step")
	contains(t, s.post(t, admin, "/setup/broker", url.Values{"kind": {"pulsar"}}), http.StatusUnprocessableEntity, "kafka or rabbitmq")
	database := url.Values{"kind": {"postgres"}, "name": {"shop"}, "url": {"postgres://reader@<db>/shop"}}
	contains(t, s.post(t, admin, "/setup/database", database), http.StatusUnprocessableEntity, "password authentication failed", "Check the address", "postgres://reader@&lt;db&gt;/shop")
	contains(t, s.post(t, admin, "/setup/save", nil), http.StatusOK, "The console starts again")
	s.post(t, admin, "/setup/later", nil)
	contains(t, s.get(t, admin, "/"), http.StatusOK)
}
