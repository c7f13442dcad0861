// Command participant is a service that takes part in sagas of Oncemore: it
// reserves points, makes a reservation final, and releases it. Calls may come
// twice, late, or in the wrong order; each has its effect once.
//
//	DATABASE_URL=postgres://… go run ./examples/participant
//	curl -i -d '{"account":"ada","points":5}' -H 'Idempotency-Key: C-1:reserve' \
//	  -H 'Oncemore-Saga: C-1' -H 'Oncemore-Step: reserve' -H 'Oncemore-Op: try' http://127.0.0.1:8090/reserve
//
// The action that calls it is in participant.yaml.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/barrier"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		err = migrate(ctx, pool)
	}
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8090", handler(pool)))
}

const sqlSchema = `
CREATE TABLE IF NOT EXISTS account (name text PRIMARY KEY, points int NOT NULL CHECK (points >= 0), reserved int NOT NULL DEFAULT 0)`

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := barrier.Migrate(ctx, pool); err != nil { // console migrate --target does it, too
		return err
	}
	_, err := pool.Exec(ctx, sqlSchema)
	return err
}

// reservation is the body of every call.
type reservation struct {
	Account string `json:"account"`
	Points  int    `json:"points"`
}

// effects are what the operations do. Without the barrier a second try would
// reserve twice, and a cancel before its try would release what is not reserved.
var effects = map[barrier.Op]string{
	barrier.Try:     `UPDATE account SET points = points - $2, reserved = reserved + $2 WHERE name = $1 AND points >= $2`,
	barrier.Confirm: `UPDATE account SET reserved = reserved - $2 WHERE name = $1`,
	barrier.Cancel:  `UPDATE account SET points = points + $2, reserved = reserved - $2 WHERE name = $1`,
}

// errShort is an answer that no repetition would change: 422.
var errShort = errors.New("the account has too few points")

func handler(pool *pgxpool.Pool) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"POST /reserve", "POST /confirm", "POST /release"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var body reservation
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				http.Error(w, "the body has to be JSON with account and points", http.StatusBadRequest)
				return
			}
			decision, err := take(r.Context(), pool, r.Header, body)
			if errors.Is(err, errShort) {
				http.Error(w, err.Error(), http.StatusUnprocessableEntity)
				return
			}
			barrier.Answer(w, decision, err)
		})
	}
	return mux
}

// take is one call: barrier and effect in one transaction.
func take(ctx context.Context, pool *pgxpool.Pool, h http.Header, body reservation) (decision barrier.Decision, err error) {
	mark, err := barrier.FromHeader(h)
	if err != nil {
		return "", err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if decision, err = barrier.Enter(ctx, tx, mark); err != nil || !decision.Applies() {
			return err
		}
		tag, err := tx.Exec(ctx, effects[mark.Op], body.Account, body.Points)
		if err != nil {
			return fmt.Errorf("%s: %w", mark, err)
		}
		if tag.RowsAffected() == 0 {
			return errShort // rolls the barrier back as well: nothing happened
		}
		return nil
	})
	return decision, err
}
