package main

import (
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/cmd/console/shop"
	"oncemore/internal/testkit"
)

type breakItem struct {
	ID      int64
	Type    string
	State   string
	Amount  string
	EventID string `json:"event_id"`
}

func (r *running) breaks(query string) []breakItem {
	r.Helper()
	var page struct{ Items []breakItem }
	r.get("/api/v1/breaks?limit=100"+query, &page)
	return page.Items
}

// wantLedger waits for the ledger's first run: it found what is wrong, and only
// that, and the dead letters of the points consumers are breaks too.
func wantLedger(d *running, data string) {
	d.Helper()
	var page struct {
		Items []struct {
			State   string
			AskedBy string `json:"asked_by"`
		}
	}
	testkit.Eventually(d, 60*time.Second, func() bool {
		d.get("/api/v1/reconciliations/"+shop.Job+"/runs", &page)
		return len(page.Items) > 0 && page.Items[len(page.Items)-1].State == "complete"
	}, "the ledger's first run")
	if by := page.Items[len(page.Items)-1].AskedBy; by != demoPreparer {
		d.Errorf("prepared by %s", by)
	}
	found := map[string]string{}
	stuck := 0
	for _, b := range d.breaks("") {
		if b.Type == "published_not_consumed" {
			stuck++
			continue
		}
		found[b.EventID] = b.Type + " " + b.State + " " + b.Amount
	}
	want := map[string]string{
		"payment-success-9030": "duplicate_effect open -505.7", "payment-success-9074": "missing_effect open 390.06", "payment-success-9091": "amount_mismatch open -27",
	}
	for event, text := range want {
		if found[event] != text {
			d.Errorf("%s: %q, want %q", event, found[event], text)
		}
	}
	if len(found) != len(want) { // what was late has closed by itself
		d.Errorf("breaks %v", found)
	}
	if stuck == 0 {
		d.Error("no dead letter of the points consumers is a break")
	}
	wantReadOnly(d, data)
}

// wantReadOnly: the role that reconciles could not change the ledger if it wanted to.
func wantReadOnly(d *running, data string) {
	d.Helper()
	files := demoFiles{data}
	for path, may := range map[string]bool{files.reader(): false, files.writer(): true} {
		url, err := os.ReadFile(path)
		if err != nil {
			d.Fatal(err)
		}
		conn, err := pgx.Connect(d.Context(), string(url))
		if err != nil {
			d.Fatal(err)
		}
		_, err = conn.Exec(d.Context(), "begin; insert into points_ledger (event_id, amount, currency, booked_by) values ('x', 1, 'CNY', 'x'); rollback")
		conn.Close(d.Context())
		if (err == nil) != may {
			d.Errorf("%s writes: %v", path, err)
		}
	}
}
