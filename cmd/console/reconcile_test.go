package main

import "testing"

func (c *clerk) sells(sql string) {
	c.Helper()
	if _, err := c.shop.Exec(c.Context(), sql); err != nil {
		c.Fatalf("%s: %v", sql, err)
	}
}

// A script reads nothing but the code: 0 only where everything was looked at and
// agrees, 1 where something does not, 2 where nobody knows.
func TestReconcileEndsWithItsVerdict(t *testing.T) {
	c := newClerk(t)
	hour := []string{"reconcile", "run", "points", "--from", "2026-09-01T12:00:00Z", "--to", "2026-09-01T13:00:00Z"}
	for says, args := range map[string][]string{
		"no such job: none":                   {"reconcile", "run", "none", "--from", "2026-09-01", "--to", "2026-09-02"},
		"it ends at .* and begins at":         {"reconcile", "run", "points", "--from", "2026-09-02", "--to", "2026-09-01"},
		"--from has to be a day or a time":    {"reconcile", "run", "points", "--from", "yesterday", "--to", "2026-09-01"},
		"may be looked at from 2999-09-02T":   {"reconcile", "run", "points", "--from", "2026-09-01", "--to", "2999-09-02"},
		`"buckets"; there are merge and join`: append(hour, "--plan", "buckets"),
	} {
		c.does(2, says, args...)
	}
	c.does(1, "missing_effect +27.5 in 2 keys", hour...)
	c.does(1, "complete", "reconcile", "run", "points", "--key", "e-1")
	c.sells("INSERT INTO effect VALUES ('e-1', 7.50, '2026-09-01 12:30Z')")
	c.does(0, "complete", "reconcile", "run", "points", "--key", "e-1") // another break is open
	c.does(1, "complete", hour...)
	c.sells("INSERT INTO effect VALUES ('e-2', 20, '2026-09-01 12:30Z')")
	c.does(0, "matched +2 keys", hour...)
	c.sells("INSERT INTO consumed VALUES (NULL, 3, '2026-09-01 12:30Z')")
	c.does(1, "consumed without a key +3 in 1 rows", hour...)
}
