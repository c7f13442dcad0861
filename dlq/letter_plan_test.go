package dlq

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// TestPagesReadWhatTheyShow: the plans of lists are generic, and one that sorts
// what it found reads the whole of a large fault or of all letters.
func TestPagesReadWhatTheyShow(t *testing.T) {
	t.Parallel()
	const rows = 51
	s := manyLetters(t, 20_000)
	letters := NewLetters(s.pool)
	for name, f := range map[string]LetterFilter{
		"all": {}, "state": {State: Open}, "source": {Source: "topic-3.DLT"}, "group": {Group: "group-4"}, "class": {ErrorClass: "class-110"},
		"the largest fault": {FaultID: 1}, "its open ones": {FaultID: 1, State: Open}, "event": {EventID: "payment-777"},
		"oldest first": {FaultID: 1, Sort: SortOldest}, "the largest fault since": {FaultID: 1, Since: time.Now().Add(-24 * time.Hour)},
		"group and class": {Group: "group-1", ErrorClass: "class-100", State: Open},
	} {
		q, err := letters.query(t.Context(), f)
		if err != nil || q.none {
			t.Fatalf("%s: none %v, %v", name, q.none, err)
		}
		place := startOf(f)
		if f.FaultID != 0 { // a later page, which has a bound besides
			place.id = s.somewhere(t)
		}
		q.place(place)
		limit := 8 * rows // four states, and each merge's look at the next
		if q.via {
			limit = 8 * rows * len(q.faults)
		}
		if read := s.rowsRead(t, q.settings(), q.ids(place.direction, rows), q.named()); read > limit {
			t.Errorf("%s: %d rows are read for a page of %d", name, read, rows)
		}
	}
}

// somewhere is a letter in the middle.
func (s *seed) somewhere(t *testing.T) (id uuid.UUID) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), "SELECT id FROM dead_letter ORDER BY id OFFSET 10000 LIMIT 1").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// planNode is a node of EXPLAIN's JSON.
type planNode struct {
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Loops    float64    `json:"Actual Loops"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) read() float64 {
	sum := 0.0
	if strings.HasPrefix(n.Relation, "dead_letter") {
		sum = (n.Rows + n.Removed) * n.Loops
	}
	for _, p := range n.Plans {
		sum += p.read()
	}
	return sum
}

// rowsRead runs a statement by its generic plan and counts the letters that it
// came across.
func (s *seed) rowsRead(t *testing.T, settings, sql string, named pgx.NamedArgs) int {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	sql, args, err := named.RewriteQuery(t.Context(), tx.Conn(), sql, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(args))
	for i, a := range args {
		values[i] = "'" + strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(a)) + "'"
	}
	execute := "EXECUTE page"
	if len(values) > 0 {
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	for _, do := range []string{settings, "PREPARE page AS " + sql} {
		if _, err := tx.Exec(t.Context(), do); err != nil {
			t.Fatalf("%s: %v", do, err)
		}
	}
	defer func() { _, _ = tx.Exec(t.Context(), "DEALLOCATE page") }()
	var text string
	if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatalf("%s: %v", execute, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return int(plans[0].Plan.read())
}
