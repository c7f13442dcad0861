package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/rabbit"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/web"
)

// setupTime bounds each question of the first run.
const setupTime = 10 * time.Second

// setup is the first run: a draft of what the config lacks.
type setup struct {
	app     *app
	restart func() // serves again with the file that was written; nil: nobody can

	mu       sync.Mutex
	draft    web.SetupDraft
	broker   web.SetupBroker   // with its secrets
	database web.SetupDatabase // with its address
	later    bool
}

var _ web.Setup = (*setup)(nil)

// Needed is part of web.Setup.
func (s *setup) Needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.app.conf.Sources) == 0 && len(s.app.conf.Consumers) == 0 && !s.later
}

// Later is part of web.Setup.
func (s *setup) Later() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = true
}

// Draft is part of web.Setup.
func (s *setup) Draft() web.SetupDraft {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draft
}

// Connect is part of web.Setup.
func (s *setup) Connect(ctx context.Context, b web.SetupBroker) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if !configName.MatchString(b.Name) {
		return &web.SetupTrouble{Words: b.Name, Hint: "setup.hint.name"}
	}
	places, err := findPlaces(ctx, b)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = b
	s.draft = web.SetupDraft{Broker: shownBroker(b), Connected: true, Places: places, Database: s.draft.Database, Looked: s.draft.Looked, Tables: s.draft.Tables}
	return nil
}

// shownBroker leaves out what only the console may know.
func shownBroker(b web.SetupBroker) web.SetupBroker {
	b.Password, b.URL, b.ManagementURL = "", "", ""
	return b
}

func findPlaces(ctx context.Context, b web.SetupBroker) ([]dlq.DeadPlace, error) {
	cluster, err := setupCluster(b)
	if err != nil {
		return nil, brokerTrouble(err)
	}
	defer cluster.Close()
	places, err := cluster.FindPlaces(ctx)
	if err != nil {
		return nil, brokerTrouble(err)
	}
	return places, nil
}

func setupCluster(b web.SetupBroker) (*dlq.Cluster, error) {
	if b.Kind == "rabbitmq" {
		return dlq.NewRabbitCluster(b.Name, dlq.RabbitOptions{URLs: []string{b.URL}, ManagementURL: b.ManagementURL})
	}
	k := &config.Kafka{Brokers: splitBrokers(b.Brokers)}
	if b.TLS {
		k.TLS = &config.TLS{}
	}
	if b.Mechanism != "" {
		k.SASL = &config.SASL{Mechanism: b.Mechanism, User: config.Secret{Given: b.User}, Password: config.Secret{Given: b.Password}}
	}
	opts, err := kafkaOptions(k)
	if err != nil {
		return nil, err
	}
	return dlq.NewCluster(b.Name, append(opts, kgo.RequestRetries(1), kgo.RetryTimeout(setupTime/2), kgo.DialTimeout(setupTime/3))...)
}

func splitBrokers(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' })
}

// brokerTrouble gives the broker's words and one hint.
func brokerTrouble(err error) *web.SetupTrouble {
	words := cause(err).Error()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		words = op.Error() // with the address
	}
	var dns *net.DNSError
	var refused *amqp.Error
	switch said := strings.ToLower(err.Error()); {
	case errors.Is(err, rabbit.ErrNoManagement):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.management"}
	case strings.Contains(said, "management"):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.management_failed"}
	case errors.As(err, &dns):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.host"}
	case errors.As(err, &refused) && refused.Code == amqp.AccessRefused, strings.Contains(said, "sasl"), strings.Contains(said, "authentication"), strings.Contains(said, "access_refused"), strings.Contains(said, "username or password"):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.sign_in"}
	case strings.Contains(said, "connection refused"):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.refused"}
	case strings.Contains(said, "tls"), strings.Contains(said, "certificate"), strings.Contains(said, "eof"):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.tls"}
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return &web.SetupTrouble{Words: words, Hint: "setup.hint.silent"}
	}
	return &web.SetupTrouble{Words: words, Hint: "setup.hint.broker"}
}

// Choose is part of web.Setup. Names that were not found are left out.
func (s *setup) Choose(chosen web.SetupSources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen.Names = slices.DeleteFunc(slices.Clone(chosen.Names), func(name string) bool {
		return !slices.ContainsFunc(s.draft.Places, func(p dlq.DeadPlace) bool { return p.Name == name })
	})
	s.draft.Sources = chosen
}

// Look is part of web.Setup.
func (s *setup) Look(ctx context.Context, d web.SetupDatabase) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if !configName.MatchString(d.Name) {
		return &web.SetupTrouble{Words: d.Name, Hint: "setup.hint.name"}
	}
	found, err := s.lookAt(ctx, d)
	if err != nil {
		return &web.SetupTrouble{Words: cause(err).Error(), Hint: "setup.hint.database"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.database = d
	d.URL = ""
	s.draft.Database, s.draft.Looked, s.draft.Tables, s.draft.Evidence, s.draft.Skipped = d, true, found, nil, false
	return nil
}

func (s *setup) lookAt(ctx context.Context, d web.SetupDatabase) ([]dlq.EvidenceProposal, error) {
	business := newConnections([]config.Connection{setupConnection(d)})
	defer business.close()
	from, err := business.evidence(ctx, config.Evidence{Connection: d.Name})
	if err != nil {
		return nil, err
	}
	found, err := dlq.FindEvidence(ctx, *from)
	for i := range found { // their pools end here
		found[i].Pool, found[i].MySQL = nil, nil
	}
	return found, err
}

func setupConnection(d web.SetupDatabase) config.Connection {
	url := config.Secret{Given: d.URL}
	return config.Connection{Name: d.Name, Kind: d.Kind, URL: url, Writer: url}
}

// Try is part of web.Setup: an event that is there is looked for as its evidence
// is mapped, so that a wrong column is found now.
func (s *setup) Try(ctx context.Context, e web.SetupEvidence) (answer dlq.EvidenceAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	s.mu.Lock()
	d, tables := s.database, s.draft.Tables
	s.mu.Unlock()
	business := newConnections([]config.Connection{setupConnection(d)})
	defer business.close()
	evidence, err := business.evidence(ctx, config.Evidence{Connection: d.Name, Table: e.Table, EventID: e.EventID, ConsumerGroup: e.GroupColumn, ConsumedAt: e.ConsumedAt})
	if err != nil {
		return answer, &web.SetupTrouble{Words: cause(err).Error(), Hint: "setup.hint.database"}
	}
	sample := ""
	for _, t := range tables {
		if t.Table == e.Table {
			sample = t.Sample
		}
	}
	answer = evidence.Ask(ctx, sample, e.Group)
	if answer.Failed != nil {
		return answer, &web.SetupTrouble{Words: answer.Failed.Text, Hint: "setup.hint.columns"}
	}
	answer.EventID = sample
	return answer, nil
}

// Judge is part of web.Setup.
func (s *setup) Judge(evidence []web.SetupEvidence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draft.Evidence, s.draft.Skipped = evidence, len(evidence) == 0
}

// Save is part of web.Setup. The audit's row and the file go together as far as
// that can be: a file that cannot be written leaves no row.
func (s *setup) Save(ctx context.Context, actor access.Actor) error {
	if err := actor.Check(access.Configure); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	made, err := s.compose()
	if err != nil {
		return err
	}
	if err := s.write(ctx, actor, made); err != nil {
		return &web.SetupTrouble{Words: cause(err).Error(), Hint: "setup.hint.write"}
	}
	if s.restart == nil {
		return fmt.Errorf("%s is written, but this process cannot start again by itself", made.path)
	}
	s.restart()
	return nil
}
