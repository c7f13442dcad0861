package main

import (
	"fmt"
	"log/slog"
	"sync"

	"oncemore/consumer"
	"oncemore/consumer/redisfilter"
	"oncemore/internal/config"
)

// filters are the Redis filters of the config, each opened once.
type filters struct {
	log *slog.Logger

	mu   sync.Mutex
	made map[string]*redisfilter.Filter // by name
}

func newFilters(log *slog.Logger) *filters {
	return &filters{log: log, made: map[string]*redisfilter.Filter{}}
}

// of is the filter of a Redis. It connects by itself; until then it knows nothing.
func (f *filters) of(r config.Redis) (consumer.Filter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if made := f.made[r.Name]; made != nil {
		return made, nil
	}
	url, err := r.URL.Value()
	if err != nil {
		return nil, err
	}
	made, err := redisfilter.Open(url, redisfilter.Options{TTL: r.TTL, Timeout: r.Timeout, Prefix: r.Prefix, Logger: f.log.With("redis", r.Name)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Pos, err)
	}
	f.made[r.Name] = made
	return made, nil
}

func (f *filters) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, made := range f.made {
		made.Close() //nolint:errcheck // it is being given up
	}
}
