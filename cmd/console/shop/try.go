package shop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/views"
	"oncemore/web"
)

// Console is what the Try it page needs of the console: nothing that its pages
// cannot do.
type Console struct {
	Pool    *pgxpool.Pool
	Letters *dlq.Letters
	Faults  *dlq.Faults
	Replays *dlq.Replays
	// Pause stops or resumes the consumers of a group, as the Consumers page does.
	Pause func(ctx context.Context, actor access.Actor, group string, paused bool) error
	// Paused reports whether the group's consumers have stopped.
	Paused func(ctx context.Context, group string) (bool, error)
	Paths  Paths
}

// Paths is what the page tells a newcomer.
type Paths struct {
	Kafka    string
	Accounts []views.Account
}

// Try is the Try it page's hands in the shop.
type Try struct {
	shop    *Shop
	console Console

	mu     sync.Mutex
	twice  order // the last one that was delivered twice
	held   bool
	replay int64 // started while held
}

// NewTry lets the page act in the shop.
func (s *Shop) NewTry(c Console) *Try { return &Try{shop: s, console: c} }

var _ web.Try = (*Try)(nil)

// Do carries out one button and returns the event that it sent, "" for none.
// Errors: access.ErrForbidden, web.ErrNoSuchButton.
func (t *Try) Do(ctx context.Context, actor access.Actor, button string) (string, error) {
	if err := actor.Check(access.ControlTry); err != nil {
		return "", err
	}
	actor.Reason = "Try it: " + button
	err := pgx.BeginFunc(ctx, t.console.Pool, func(tx pgx.Tx) error {
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "demo." + button, Target: "demo"})
	})
	if err != nil {
		return "", err
	}
	switch button {
	case "twice":
		return t.deliverTwice(ctx)
	case "break":
		return "", t.breakHandler(ctx)
	case "repair":
		return "", t.repairHandler(ctx)
	case "legacy":
		return t.legacyTwice(ctx)
	case "expire":
		return t.expire(ctx)
	case "hold":
		return "", t.hold(ctx, actor)
	case "release":
		return "", t.release(ctx, actor)
	case "over":
		return "", t.startOver(ctx, actor)
	}
	return "", fmt.Errorf("%w: %.40q", web.ErrNoSuchButton, button)
}

func (t *Try) deliverTwice(ctx context.Context) (string, error) {
	o, err := t.shop.newOrder(ctx)
	if err != nil {
		return "", err
	}
	if err := t.shop.send(ctx, o, o); err != nil {
		return "", err
	}
	t.mu.Lock()
	t.twice = o
	t.mu.Unlock()
	return o.EventID, nil
}

const sqlBreak = `insert into broken_handler (name) values ('points') on conflict do nothing`

// breakHandler makes the points rules reject everything, and sends what they reject.
func (t *Try) breakHandler(ctx context.Context) error {
	if _, err := t.shop.pool.Exec(ctx, sqlBreak); err != nil {
		return fmt.Errorf("break the points rules: %w", err)
	}
	return t.shop.sendNew(ctx, Partitions)
}

const sqlRepair = `delete from broken_handler`

func (t *Try) repairHandler(ctx context.Context) error {
	if _, err := t.shop.pool.Exec(ctx, sqlRepair); err != nil {
		return fmt.Errorf("repair the points rules: %w", err)
	}
	return nil
}

// legacyTwice delivers one order twice; the coupon service grants two coupons.
func (t *Try) legacyTwice(ctx context.Context) (string, error) {
	o, err := t.shop.newOrder(ctx)
	if err != nil {
		return "", err
	}
	o.Tier = troubled
	return o.EventID, t.shop.send(ctx, o, o)
}

// expiredAge is older than the consume records of the demo.
const expiredAge = 200 * 24 * time.Hour

// expire sends an order that was paid long ago and that the points rules reject
// until it is a letter: whether it took effect then, nobody can tell any more.
func (t *Try) expire(ctx context.Context) (string, error) {
	o, err := t.shop.newOrder(ctx)
	if err != nil {
		return "", err
	}
	o.PaidAt = o.PaidAt.Add(-expiredAge)
	before, err := t.shop.letters(ctx, DeadLetters)
	if err != nil {
		return "", err
	}
	if err := errors.Join(t.shop.stick(ctx, o), t.shop.send(ctx, o)); err != nil {
		return "", err
	}
	go t.shop.unstickLater(context.WithoutCancel(ctx), o, before+1)
	return o.EventID, nil
}

// unstickLater lets the order through once it has become a letter.
func (s *Shop) unstickLater(ctx context.Context, o order, letters int64) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := s.waitLetters(ctx, DeadLetters, letters, 30*time.Second)
	if err = errors.Join(err, s.unstick(ctx, o)); err != nil {
		s.log.WarnContext(ctx, "the order stays stuck", "order", o.OrderID, "error", err)
	}
}

// hold pauses the points consumers and replays one of their safe letters, which
// then stays in flight.
func (t *Try) hold(ctx context.Context, actor access.Actor) error {
	if err := t.console.Pause(ctx, actor, PointsGroup, true); err != nil {
		return err
	}
	if err := t.untilPaused(ctx); err != nil {
		return err
	}
	replay, err := t.replayOne(ctx, actor)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held, t.replay = true, replay
	return nil
}

// pauseTakes is how long the consumers are given to notice a pause, of which
// they hear within two seconds.
const pauseTakes = 15 * time.Second

// untilPaused waits for the consumers to stop: they would apply the replay else.
func (t *Try) untilPaused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pauseTakes)
	defer cancel()
	for {
		if paused, err := t.console.Paused(ctx, PointsGroup); paused || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not pause: %w", PointsGroup, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// replayOne starts a replay of one safe letter; 0 when there is none.
func (t *Try) replayOne(ctx context.Context, actor access.Actor) (int64, error) {
	page, err := t.console.Letters.List(ctx, dlq.LetterFilter{State: dlq.Open, Group: PointsGroup}, dlq.Page{Limit: 100})
	if err != nil {
		return 0, err
	}
	for _, l := range page.Items {
		if l.Verdict != dlq.Safe {
			continue
		}
		plan, err := t.console.Replays.Plan(ctx, actor, dlq.PlanRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{l.ID}}, Target: dlq.ToSafe})
		if err != nil {
			return 0, err
		}
		if plan.Total > 0 {
			return plan.ID, nil
		}
	}
	return 0, nil
}

func (t *Try) release(ctx context.Context, actor access.Actor) error {
	if err := t.console.Pause(ctx, actor, PointsGroup, false); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = false
	return nil
}

const sqlUnstickAll = `delete from stuck_order`

// startOver repairs and releases everything and makes a fresh set of failures.
// What happened stays in the lists: a console does not forget.
func (t *Try) startOver(ctx context.Context, actor access.Actor) error {
	if err := errors.Join(t.repairHandler(ctx), t.release(ctx, actor)); err != nil {
		return err
	}
	if _, err := t.shop.pool.Exec(ctx, sqlUnstickAll); err != nil {
		return fmt.Errorf("let all orders through: %w", err)
	}
	t.mu.Lock()
	t.twice, t.replay = order{}, 0
	t.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if err := t.shop.makeFailures(ctx); err != nil {
			t.shop.log.WarnContext(ctx, "no fresh failures", "error", err)
		}
	}()
	return nil
}

// Show is the page's figures. The frame and what depends on the user are the
// caller's.
func (t *Try) Show(ctx context.Context) (views.Try, error) {
	t.mu.Lock()
	twice, replay := t.twice, t.replay
	v := views.Try{Held: t.held, HeldGroup: PointsGroup, HeldReplay: replay, Kafka: t.console.Paths.Kafka, Accounts: t.console.Paths.Accounts}
	t.mu.Unlock()
	err := errors.Join(
		t.showTwice(ctx, twice, &v), t.showPoints(ctx, &v), t.showLegacy(ctx, &v), t.showExpired(ctx, &v), t.showHeld(ctx, replay, &v),
	)
	return v, err
}

const sqlPoints = `select coalesce(sum(points), 0)::text from user_points where order_id = $1`

func (t *Try) showTwice(ctx context.Context, o order, v *views.Try) error {
	if o.EventID == "" {
		return nil
	}
	v.TwiceEvent, v.TwiceDeliveries = o.EventID, 2
	at, err := pgstore.Find(ctx, t.shop.pool, PointsGroup, o.EventID)
	if err != nil {
		return err
	}
	if at != nil {
		v.TwiceRecords, v.TwiceDuplicates = 1, 1
	}
	if err := t.shop.pool.QueryRow(ctx, sqlPoints, o.OrderID).Scan(&v.TwicePoints); err != nil {
		return fmt.Errorf("points of order %s: %w", o.OrderID, err)
	}
	return nil
}

const sqlBroken = `select exists (select from broken_handler where name = 'points')`

func (t *Try) showPoints(ctx context.Context, v *views.Try) (err error) {
	if err := t.shop.pool.QueryRow(ctx, sqlBroken).Scan(&v.Broken); err != nil {
		return fmt.Errorf("state of the points rules: %w", err)
	}
	if v.BrokenLetters, err = t.open(ctx, PointsGroup); err != nil {
		return err
	}
	page, err := t.console.Faults.List(ctx, dlq.FaultFilter{Tab: dlq.TabOpen, Group: PointsGroup}, dlq.Page{Limit: 1})
	if err == nil && len(page.Items) > 0 {
		v.BrokenFault = int(page.Items[0].ID)
	}
	return err
}

// Only orders that were delivered twice count: of the others each has a coupon.
const sqlTwiceGranted = `
select count(*), coalesce(sum(n), 0) from (
  select count(*) as n from coupon_grant where event_id is not null group by event_id having count(*) > 1) granted`

func (t *Try) showLegacy(ctx context.Context, v *views.Try) (err error) {
	if err := t.shop.pool.QueryRow(ctx, sqlTwiceGranted).Scan(&v.LegacyEvents, &v.LegacyCredits); err != nil {
		return fmt.Errorf("coupons: %w", err)
	}
	v.LegacyLetters, err = t.open(ctx, LegacyGroup)
	return err
}

func (t *Try) showExpired(ctx context.Context, v *views.Try) error {
	page, err := t.console.Letters.List(ctx, dlq.LetterFilter{State: dlq.Open, Group: PointsGroup}, dlq.Page{Limit: 200})
	for _, l := range page.Items {
		if l.Verdict == dlq.Expired {
			v.ExpiredLetters++
		}
	}
	return err
}

func (t *Try) showHeld(ctx context.Context, replay int64, v *views.Try) error {
	if replay == 0 {
		return nil
	}
	r, err := t.console.Replays.Get(ctx, replay)
	if err != nil {
		return err
	}
	v.InFlight = r.Outcomes[dlq.Pending]
	return nil
}

func (t *Try) open(ctx context.Context, group string) (int, error) {
	n, _, err := t.console.Letters.Count(ctx, dlq.LetterFilter{State: dlq.Open, Group: group})
	if err != nil {
		return 0, fmt.Errorf("open letters of %s: %w", group, err)
	}
	return int(n), nil
}
