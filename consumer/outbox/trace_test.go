package outbox

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/consumer"
)

// caught is a transaction that keeps what is written.
type caught struct{ args []any }

func (c *caught) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	c.args = args
	return pgconn.CommandTag{}, nil
}

// What is traced where the event arises goes on where it is consumed; headers that
// the caller gave stay as they are.
func TestAddKeepsTheTrace(t *testing.T) {
	t.Parallel()
	const here, own = "00-0000000000000000000000000000000a-000000000000000b-01", "00-0000000000000000000000000000000c-000000000000000d-01"
	ctx := consumer.Remote(t.Context(), []consumer.Header{{Name: "traceparent", Value: []byte(here)}})
	for _, c := range []struct {
		ctx     context.Context
		headers []consumer.Header
		want    string
	}{
		{ctx, nil, "traceparent=" + here},
		{ctx, []consumer.Header{{Name: "a", Value: []byte("1")}}, "a=1 traceparent=" + here},
		{ctx, []consumer.Header{{Name: "traceparent", Value: []byte(own)}}, "traceparent=" + own},
		{t.Context(), []consumer.Header{{Name: "a", Value: []byte("1")}}, "a=1"},
	} {
		tx := &caught{}
		if err := Add(c.ctx, tx, Message{EventID: "e-1", Target: "t", Headers: c.headers}); err != nil {
			t.Fatal(err)
		}
		headers, err := decodeHeaders(tx.args[7].(string))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range headers {
			got = append(got, h.Name+"="+string(h.Value))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("headers %v, want %s", got, c.want)
		}
	}
}
