// Package shop is the demo's business: orders that are paid, consumers that give
// points, send notifications, keep a ledger and grant coupons, and what goes
// wrong with them. Its messages and tables are those of a real shop; only the
// failures are made on purpose.
package shop

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// Names that the shop's config and its messages agree on.
const (
	Topic        = "order.paid"
	DeadLetters  = "order.paid.DLT" // of our runtime
	LegacyTopic  = "order.paid-dlt" // of the coupon service, which is not ours
	Partitions   = 4
	PointsGroup  = "points-consumer-group"
	NoticeGroup  = "notification-consumer-group"
	LedgerGroup  = "ledger-consumer-group"
	LegacyGroup  = "legacy-coupon-group"
	Job          = "points-vs-paid" // over the points ledger
	eventHeader  = "event-id"
	systemHeader = "source"
)

// Shop is the running business.
type Shop struct {
	pool    *pgxpool.Pool
	client  *kgo.Client // producer
	admin   *kadm.Client
	brokers string
	log     *slog.Logger
	gateway net.Listener

	Since time.Time // when the shop opened, the first time

	ordered  chan struct{} // closed once the orders of the first start were sent
	sentOnce sync.Once
}

// Ordered is closed once the orders that a newcomer finds were sent, by this start
// or by an earlier one.
func (s *Shop) Ordered() <-chan struct{} { return s.ordered }

// Open connects to the shop's database and broker, makes its tables and binds
// its notification gateway.
func Open(ctx context.Context, databaseURL, brokers string, log *slog.Logger) (*Shop, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the shop's database: %w", err)
	}
	s := &Shop{pool: pool, brokers: brokers, log: log, ordered: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Shop) open(ctx context.Context) (err error) {
	if err := prepare(ctx, s.pool); err != nil {
		return err
	}
	opened, err := s.once(ctx, "opened", time.Now().UTC().Format(time.RFC3339))
	if err != nil {
		return err
	}
	if s.Since, err = time.Parse(time.RFC3339, opened); err != nil {
		return fmt.Errorf("shop state opened: %w", err)
	}
	if err := s.makeHistory(ctx); err != nil {
		return err
	}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(s.brokers), kgo.ClientID("shop")); err != nil {
		return fmt.Errorf("connect to the shop's broker: %w", err)
	}
	s.admin = kadm.NewClient(s.client)
	if s.gateway, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("listen for notifications: %w", err)
	}
	return nil
}

// GatewayURL is the base of the notification gateway.
func (s *Shop) GatewayURL() string { return "http://" + s.gateway.Addr().String() }

// Run does business until ctx ends: orders come in, the gateway answers, the
// coupon service consumes. The first time it also makes the failures that a
// newcomer finds.
func (s *Shop) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error { return s.serveGateway(running) })
	g.Go(func() error { return s.runLegacy(running) })
	g.Go(func() error {
		if err := s.seed(running); err != nil {
			return err
		}
		return s.trickle(running)
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // also when it was told to stop in the middle of something
}

// Close lets go of everything.
func (s *Shop) Close() {
	if s.gateway != nil {
		s.gateway.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
	s.pool.Close()
}
