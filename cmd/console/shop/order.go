package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// order is the payload of order.paid.
type order struct {
	EventID  string    `json:"eventId,omitempty"`
	OrderID  string    `json:"orderId"`
	UserID   string    `json:"userId"`
	Tier     string    `json:"tier"` // PLATINUM: the coupon service's mail call times out
	Phone    string    `json:"phone"`
	Points   int64     `json:"points"`
	Amount   string    `json:"amount"`
	Currency string    `json:"currency"`
	PaidAt   time.Time `json:"paidAt"`
}

// troubled is the tier whose coupons fail after they were granted.
const troubled = "PLATINUM"

const sqlNextOrder = `select nextval('order_number')`

// newOrder numbers an order that was paid just now and is worth 100 points.
func (s *Shop) newOrder(ctx context.Context) (order, error) {
	var n int64
	if err := s.pool.QueryRow(ctx, sqlNextOrder).Scan(&n); err != nil {
		return order{}, fmt.Errorf("next order: %w", err)
	}
	id := strconv.FormatInt(n, 10)
	return order{
		EventID: "payment-success-" + id, OrderID: id, UserID: fmt.Sprintf("U-%04d", 2000+rand.IntN(400)), Tier: "GOLD",
		Phone: fmt.Sprintf("+86138%08d", rand.IntN(100_000_000)), Points: 100,
		Amount: fmt.Sprintf("%d.%02d", 20+rand.IntN(900), rand.IntN(100)), Currency: "CNY", PaidAt: time.Now().UTC().Truncate(time.Millisecond),
	}, nil
}

// sendNew publishes n new orders.
func (s *Shop) sendNew(ctx context.Context, n int) error {
	orders := make([]order, n)
	for i := range orders {
		var err error
		if orders[i], err = s.newOrder(ctx); err != nil {
			return err
		}
	}
	return s.send(ctx, orders...)
}

// send publishes orders as they stand; the record's time is when they were paid.
func (s *Shop) send(ctx context.Context, orders ...order) error {
	if err := s.pay(ctx, orders); err != nil {
		return err
	}
	records := make([]*kgo.Record, len(orders))
	for i, o := range orders {
		value, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("order %s: %w", o.OrderID, err)
		}
		headers := []kgo.RecordHeader{{Key: systemHeader, Value: []byte("shop-checkout")}}
		if o.EventID != "" {
			headers = append(headers, kgo.RecordHeader{Key: eventHeader, Value: []byte(o.EventID)})
		}
		records[i] = &kgo.Record{Topic: Topic, Key: []byte(o.OrderID), Value: value, Headers: headers, Timestamp: o.PaidAt}
	}
	if err := s.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("publish orders: %w", err)
	}
	return nil
}

// The trickle keeps the numbers alive without filling a disk: an order every
// few seconds, and none beyond a total.
const (
	trickleEvery = 3 * time.Second
	mostOrders   = 50_000
	troubleEvery = 40 // one in so many orders is of the troubled tier
)

const sqlOrders = `select last_value from order_number`

// trickle sends an order every few seconds until ctx ends.
func (s *Shop) trickle(ctx context.Context) error {
	tick := time.NewTicker(trickleEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.tricklet(ctx, n%troubleEvery == 0); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "no order was placed", "error", err)
		}
	}
}

func (s *Shop) tricklet(ctx context.Context, trouble bool) error {
	var last int64
	if err := s.pool.QueryRow(ctx, sqlOrders).Scan(&last); err != nil || last > mostOrders {
		return err
	}
	o, err := s.newOrder(ctx)
	if err != nil {
		return err
	}
	if trouble {
		o.Tier = troubled
	}
	return s.send(ctx, o)
}
