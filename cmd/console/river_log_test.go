package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRiverLogSaysThingsOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	at := time.Unix(1_000_000, 0)
	log := riverLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return at }).With("queue", "replay")
	log.Info("counts")
	for range 5 {
		log.Error("no database")
	}
	at = at.Add(repeatAfter)
	log.Error("no database")
	if got := strings.Count(out.String(), "no database"); got != 2 || strings.Contains(out.String(), "counts") {
		t.Errorf("%d times: %s", got, out.String())
	}
}
