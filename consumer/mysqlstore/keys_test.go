package mysqlstore_test

import (
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// A key is given back whatever ends the transaction, also when the client is gone.
func TestKeysAreGivenBack(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	other := db.store(t, mysqlstore.Options{LockTimeout: 10 * time.Second})
	for name, end := range map[string]func(*mysqlstore.Store, consumer.Claim[mysqlstore.Tx]){
		"commit":   func(_ *mysqlstore.Store, c consumer.Claim[mysqlstore.Tx]) { c.Commit(t.Context()) },   //nolint:errcheck // told by the next claim
		"rollback": func(_ *mysqlstore.Store, c consumer.Claim[mysqlstore.Tx]) { c.Rollback(t.Context()) }, //
		"cut": func(_ *mysqlstore.Store, c consumer.Claim[mysqlstore.Tx]) {
			db.cut(t)
			c.Rollback(t.Context())
		},
	} {
		store := db.store(t, mysqlstore.Options{MaxConns: 1})
		held, err := store.ClaimKeys(t.Context(), "g", []string{"held " + name}, []string{"user/7", "User/7"})
		if err != nil {
			t.Fatal(err)
		}
		end(store, held)
		again, err := other.ClaimKeys(t.Context(), "g", []string{"again " + name}, []string{"user/7"})
		for err != nil && consumer.OutcomeOf(err) == consumer.OutcomeUnavailable { // the cut had its connection, too
			again, err = other.ClaimKeys(t.Context(), "g", []string{"again " + name}, []string{"user/7"})
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again.Rollback(t.Context())
	}
}

// The lock is that of the documented statement, so that other programs can take
// it, and that of this database alone. Upper case makes another key.
func TestKeysOfOtherPrograms(t *testing.T) {
	t.Parallel()
	db, elsewhere := prepared(t), prepared(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got int
	if err := conn.QueryRowContext(t.Context(), `SELECT GET_LOCK(SHA2(CONCAT(DATABASE(), '/', 'user/7'), 256), 3)`).Scan(&got); err != nil || got != 1 {
		t.Fatalf("got %d: %v", got, err)
	}
	store := db.store(t, mysqlstore.Options{LockTimeout: time.Second})
	_, err = store.ClaimKeys(t.Context(), "g", []string{"a"}, []string{"user/7"})
	wantOutcome(t, err, consumer.OutcomeContention)
	for s, key := range map[*mysqlstore.Store]string{store: "USER/7", elsewhere.store(t, mysqlstore.Options{}): "user/7"} {
		c, err := s.ClaimKeys(t.Context(), "g", []string{"a"}, []string{key})
		if err != nil {
			t.Fatal(err)
		}
		c.Rollback(t.Context())
	}
}
