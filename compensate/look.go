package compensate

import (
	"context"
	"sync"

	"oncemore/reconcile"
)

// looks reads keys again for many repairs at once: those who ask while others are
// being answered are answered together. A read begins after whoever it is for has
// asked, never before.
type looks struct {
	states  func(ctx context.Context, job string, breaks []reconcile.Break) ([]reconcile.Finding, error)
	mu      sync.Mutex
	waiting map[string][]*look // by job
	busy    map[string]bool    // somebody reads for the job
}

type look struct {
	b     reconcile.Break
	found reconcile.Finding
	err   error
	done  chan struct{}
}

// state is what a break's key is now.
func (l *looks) state(ctx context.Context, b reconcile.Break) (reconcile.Finding, error) {
	mine := &look{b: b, done: make(chan struct{})}
	l.mu.Lock()
	if l.waiting == nil {
		l.waiting, l.busy = map[string][]*look{}, map[string]bool{}
	}
	l.waiting[b.Job] = append(l.waiting[b.Job], mine)
	read := !l.busy[b.Job]
	l.busy[b.Job] = true
	l.mu.Unlock()
	if read {
		go l.read(context.WithoutCancel(ctx), b.Job)
	}
	select {
	case <-mine.done:
		return mine.found, mine.err
	case <-ctx.Done():
		return reconcile.Finding{}, ctx.Err()
	}
}

// read answers until nobody is waiting.
func (l *looks) read(ctx context.Context, job string) {
	for {
		l.mu.Lock()
		all := l.waiting[job]
		delete(l.waiting, job)
		if len(all) == 0 {
			delete(l.busy, job)
		}
		l.mu.Unlock()
		if len(all) == 0 {
			return
		}
		l.answer(ctx, job, all)
	}
}

// answer reads for all of them. What fails is read one by one, so that a key which
// cannot be read holds up no other.
func (l *looks) answer(ctx context.Context, job string, all []*look) {
	breaks := make([]reconcile.Break, len(all))
	for i, one := range all {
		breaks[i] = one.b
	}
	reading, cancel := context.WithTimeout(ctx, mostStep)
	found, err := l.states(reading, job, breaks)
	cancel()
	if err != nil && len(all) > 1 {
		for _, one := range all {
			l.answer(ctx, job, []*look{one})
		}
		return
	}
	for i, one := range all {
		if one.err = err; err == nil {
			one.found = found[i]
		}
		close(one.done)
	}
}
