package mysqlstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// wire is a connection to the server that breaks once a COMMIT has gone through:
// the server has it, its answer never comes.
type wire struct {
	to  string
	cut atomic.Bool // the next COMMIT breaks its connection
}

func (w *wire) listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(client)
		}
	}()
	return l.Addr().String()
}

func (w *wire) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer server.Close()
	var silent atomic.Bool
	go func() {
		defer client.Close()
		answer := make([]byte, 64<<10)
		for {
			n, err := server.Read(answer)
			if err != nil || silent.Load() {
				return
			}
			client.Write(answer[:n])
		}
	}()
	request := make([]byte, 64<<10)
	for {
		n, err := client.Read(request)
		if err != nil {
			return
		}
		if bytes.HasSuffix(request[:n], []byte("\x03COMMIT")) && w.cut.CompareAndSwap(true, false) {
			silent.Store(true)
		}
		server.Write(request[:n])
	}
}

// A commit whose answer is lost is unavailable: claiming again tells the truth.
func TestLostAnswerOfACommit(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	broken := &wire{to: db.cfg.Addr}
	cfg := db.cfg.Clone()
	cfg.Addr = broken.listen(t)
	store := open(t, cfg, mysqlstore.Options{})
	c, err := store.Claim(t.Context(), "g", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tx().ExecContext(t.Context(), sqlAdd, "k", 1); err != nil {
		t.Fatal(err)
	}
	broken.cut.Store(true)
	wantOutcome(t, c.Commit(t.Context()), consumer.OutcomeUnavailable)
	c.Rollback(context.Background())
	again, err := store.Claim(t.Context(), "g", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Rollback(t.Context())
	if again.Fresh("a") || db.counter(t, "k") != 1 {
		t.Errorf("fresh again %t, effect %d", again.Fresh("a"), db.counter(t, "k"))
	}
}
