package redisfilter

import (
	"context"
	"errors"
	"time"
)

// probeTimeout bounds what happens in the background: connecting, which with TLS
// takes longer than a look-up may, and the question whether Redis is back.
const probeTimeout = 2 * time.Second

// longest is the longest pause between two questions, in times of CoolDown.
const longest = 32

// watch connects, and again after each failure, so that no batch pays for it.
func (f *Filter) watch(ctx context.Context) {
	for pause := time.Duration(0); ; pause = f.o.CoolDown {
		if !f.connect(ctx, pause) {
			return
		}
		f.up.Store(true)
		f.o.Logger.Debug("redis filter is up")
		select {
		case <-f.down:
		case <-ctx.Done():
			return
		}
	}
}

// connect asks Redis, after a pause, until it answers. It returns false when ctx ended.
func (f *Filter) connect(ctx context.Context, pause time.Duration) bool {
	for {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
		err := f.ping(ctx)
		if err == nil {
			return true
		}
		f.o.Logger.Debug("redis is still down", "error", err)
		pause = min(max(2*pause, f.o.CoolDown), longest*f.o.CoolDown)
	}
}

func (f *Filter) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return f.client.Ping(ctx).Err()
}

// failed stops asking, unless the caller was cut off.
func (f *Filter) failed(err error) {
	if errors.Is(err, context.Canceled) || !f.up.CompareAndSwap(true, false) {
		return
	}
	f.o.Logger.Warn("redis failed, asking the database alone", "error", err, "again_after", f.o.CoolDown)
	f.down <- struct{}{}
}
