package consumer

import (
	"context"
	"sync"
)

// Gate holds workers back between transactions while it is closed. Its zero
// value is open.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // nil while open; closed when it opens again
}

// Close holds workers back from now on.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
}

// Open lets them go on.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

// Closed reports whether workers are held back.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open != nil
}

// Wait waits until the gate is open. Its error is that of ctx.
func (g *Gate) Wait(ctx context.Context) error { return g.pass(ctx, nil) }

// pass waits until the gate is open. It returns ErrStopped or the context's
// error when either ends first, and also when the gate is open.
func (g *Gate) pass(ctx context.Context, stop <-chan struct{}) error {
	for {
		if err := over(ctx, stop); err != nil {
			return err
		}
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if open == nil {
			return nil
		}
		select {
		case <-open:
		case <-stop:
		case <-ctx.Done():
		}
	}
}

func over(ctx context.Context, stop <-chan struct{}) error {
	select {
	case <-stop:
		return ErrStopped
	default:
		return ctx.Err()
	}
}
