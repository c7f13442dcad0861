package reconcile

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// ledgerSide is one side's table: its engine, the key's columns, and the types of
// amount and time where they are not the usual ones.
type ledgerSide struct {
	engine, key, amount, at string
	zone                    string   // of a clock without one
	rows                    []string // key, amount, time after noon or in full: "'a' | 1.00 | 1m"
}

// identityCase is two tables and what is wrong between them.
type identityCase struct {
	consumed, effect ledgerSide
	keys             string // names of the key's columns; empty: id
	mode             Mode
	want             map[string]Type // by the key's parts with commas; all others match
	matched          int64
}

const (
	utf8CI   = " character set utf8mb4 collate utf8mb4_general_ci"
	latin1   = " character set latin1 collate latin1_swedish_ci"
	asciiBin = " character set ascii collate ascii_bin"
)

func sideOf(engine, key string, rows ...string) ledgerSide {
	return ledgerSide{engine: engine, key: key, rows: rows}
}

func (s ledgerSide) typed(amount, at string) ledgerSide {
	s.amount, s.at = amount, at
	return s
}

func (s ledgerSide) in(zone string) ledgerSide {
	s.zone = zone
	return s
}

// each gives every key a row of 1.00 in its own minute.
func each(keys ...string) (rows []string) {
	for i, key := range keys {
		rows = append(rows, fmt.Sprintf("%s | 1.00 | %dm", key, i+1))
	}
	return rows
}

var (
	lookalikes = each("'a-b'", "'ab'", "'a_b'", "'EVT'", "'evt'", "'\u00e9'", "'e'", "'e\u0301'", "'\u6d88\u606f'", "'\U0001F600'", "'tab\t'", "'trail '", "'trail'", "'%'")
	plain      = each("'a-b'", "'EVT'", "'\u00e9'", "'ab'")
	uuids      = []string{"00000000-0000-4000-8000-000000000001", "f47ac10b-58cc-4372-a567-0e02b2c3d479", "80000000-0000-4000-8000-0000000000ff"}
)

func uuidRows(form string) (rows []string) {
	for i, id := range uuids {
		literal := map[string]string{
			"lower": "'" + id + "'", "upper": "'" + strings.ToUpper(id) + "'", "mixed": "'" + strings.ToUpper(id[:9]) + id[9:] + "'",
			"mysql": "unhex('" + strings.ReplaceAll(id, "-", "") + "')", "postgres": `'\x` + strings.ReplaceAll(id, "-", "") + "'",
		}[form]
		rows = append(rows, fmt.Sprintf("%s | 1.00 | %dm", literal, i+1))
	}
	return rows
}

func pairOfUUIDs(a, b string) string { return "'" + a + "', '" + b + "'" }

var identityCases = map[string]identityCase{
	"lookalikes stay apart, PostgreSQL and a column that ignores case": {
		consumed: sideOf("pg", "id text", lookalikes...), effect: sideOf("my", "id varchar(64)"+utf8CI, lookalikes...), matched: 14},
	"lookalikes stay apart, both ignore case": {
		consumed: sideOf("my", "id varchar(64)"+utf8CI, lookalikes...), effect: sideOf("my", "id varchar(64)"+utf8CI, lookalikes...), matched: 14},
	"lookalikes stay apart in one database": {
		consumed: sideOf("pg", "id text", lookalikes...), effect: sideOf("pg", "id varchar(64)", lookalikes...), matched: 14},
	"lookalikes are not each other's partner": {
		consumed: sideOf("pg", "id text", each("'EVT'", "'a-b'", "'\u00e9'", "'trail '")...),
		effect:   sideOf("my", "id varchar(64)"+utf8CI, each("'evt'", "'ab'", "'e'", "'trail'")...),
		want: map[string]Type{"EVT": MissingEffect, "a-b": MissingEffect, "\u00e9": MissingEffect, "trail ": MissingEffect,
			"evt": EffectWithoutRecord, "ab": EffectWithoutRecord, "e": EffectWithoutRecord, "trail": EffectWithoutRecord}},
	"latin1 is the same text": {
		consumed: sideOf("pg", "id text", plain...), effect: sideOf("my", "id varchar(64)"+latin1, plain...), matched: 4},
	"padding of CHAR is no part of a key": {
		consumed: sideOf("pg", "id char(20)", plain...), effect: sideOf("my", "id char(30)"+latin1, plain...), matched: 4},
	"padding of CHAR against VARCHAR in one database": {
		consumed: sideOf("pg", "id char(20)", plain...), effect: sideOf("pg", "id varchar(64)", plain...), matched: 4},
	"uuid and char(36) in capitals": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")...), effect: sideOf("my", "id char(36)"+asciiBin, uuidRows("upper")...), matched: 3},
	"uuid and binary(16)": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")...), effect: sideOf("my", "id binary(16)", uuidRows("mysql")...), matched: 3},
	"uuid and text in one database": {
		consumed: sideOf("pg", "id uuid", uuidRows("upper")...), effect: sideOf("pg", "id text", uuidRows("upper")...), matched: 3},
	"uuid and bytea in one database": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")...), effect: sideOf("pg", "id bytea", uuidRows("postgres")...), matched: 3},
	"uuid in capitals with another amount": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")[:1]...), effect: sideOf("my", "id char(36)"+asciiBin, strings.Replace(uuidRows("upper")[0], "1.00", "2.50", 1)),
		want: map[string]Type{uuids[0]: AmountMismatch}},
	"uuid and char(32) without hyphens, found late": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")[0]), effect: sideOf("my", "id char(32)"+asciiBin, "'"+strings.ReplaceAll(uuids[0], "-", "")+"' | 1.00 | 30h"),
		want: map[string]Type{uuids[0]: Timing}},
	"uuid in capitals as text of PostgreSQL, with another amount and found late": {
		consumed: sideOf("pg", "id uuid", uuidRows("lower")...),
		effect:   sideOf("pg", "id text", uuidRows("upper")[0], strings.Replace(uuidRows("upper")[1], "1.00", "2.50", 1), strings.Replace(uuidRows("upper")[2], "3m", "30h", 1)),
		matched:  1, want: map[string]Type{uuids[1]: AmountMismatch, uuids[2]: Timing}},
	"two uuids as text, each written in its own way, found late": {keys: "a, b",
		consumed: sideOf("pg", "a uuid, b uuid", pairOfUUIDs(uuids[1], uuids[2])+" | 1.00 | 1m"),
		effect:   sideOf("my", "a char(36)"+asciiBin+", b char(36)"+asciiBin, pairOfUUIDs(strings.ToUpper(uuids[1]), uuids[2])+" | 1.00 | 30h"),
		want:     map[string]Type{uuids[1] + "," + uuids[2]: Timing}},
	"an int column is not asked for what it cannot hold": {
		consumed: sideOf("my", "id bigint unsigned", each("7", "3000000000", "18446744073709551615")...), effect: sideOf("pg", "id int", each("7", "8")...),
		matched: 1, want: map[string]Type{"3000000000": MissingEffect, "18446744073709551615": MissingEffect, "8": EffectWithoutRecord}},
	"text that is no number beside an integer": {
		consumed: sideOf("pg", "id text", each("'7'", "'seven'", "''", "'7.0'")...), effect: sideOf("pg", "id bigint", each("7")...),
		matched: 1, want: map[string]Type{"seven": MissingEffect, "": MissingEffect, "7.0": MissingEffect}},
	"bytes, one of them zero": {
		consumed: sideOf("pg", "id bytea", each(`'\x00'`, `'\x0000'`, `'\x00ff'`, `'\xff00'`)...),
		effect:   sideOf("my", "id varbinary(8)", each("x'00'", "x'0000'", "x'00ff'", "x'ff00'")...), matched: 4},
	"64 bits, signed and unsigned": {
		consumed: sideOf("my", "id bigint unsigned", each("0", "9223372036854775807", "9223372036854775808", "18446744073709551615")...),
		effect:   sideOf("pg", "id bigint", each("0", "9223372036854775807", "-1", "-9223372036854775808")...),
		matched:  2, want: map[string]Type{"9223372036854775808": MissingEffect, "18446744073709551615": MissingEffect, "-1": EffectWithoutRecord, "-9223372036854775808": EffectWithoutRecord}},
	"integers beyond a double's 53 bits": {
		consumed: sideOf("pg", "id bigint", each("9007199254740993")...), effect: sideOf("my", "id bigint", each("9007199254740992")...),
		want: map[string]Type{"9007199254740993": MissingEffect, "9007199254740992": EffectWithoutRecord}},
	"an integer and its digits": {
		consumed: sideOf("pg", "id bigint", each("7", "10", "100", "9")...), effect: sideOf("my", "id varchar(20)", each("'7'", "'10'", "'100'", "'09'")...),
		matched: 3, want: map[string]Type{"9": MissingEffect, "09": EffectWithoutRecord}},
	"an integer of MySQL and its digits": {
		consumed: sideOf("my", "id bigint", each("7", "10", "100")...), effect: sideOf("pg", "id text", each("'7'", "'10'", "'100'")...), matched: 3},
	"pairs of numbers are no digits in a row": {keys: "a, b",
		consumed: sideOf("pg", "a int, b bigint", each("1, 11", "2, 22")...), effect: sideOf("my", "a int, b int", each("11, 1", "2, 22")...),
		matched: 1, want: map[string]Type{"1,11": MissingEffect, "11,1": EffectWithoutRecord}},
	"pairs of text have no separator": {keys: "a, b",
		consumed: sideOf("pg", "a text, b text", each("'a|b', 'c'", "'x', ''", "'p', 'q'")...),
		effect:   sideOf("my", "a varchar(9), b varchar(9)", each("'a', 'b|c'", "'', 'x'", "'p', 'q'")...),
		matched:  1, want: map[string]Type{"a|b,c": MissingEffect, "a,b|c": EffectWithoutRecord, "x,": MissingEffect, ",x": EffectWithoutRecord}},
	"pairs in one database": {keys: "a, b",
		consumed: sideOf("pg", "a text, b int", each("'a', 1", "'b', 2")...), effect: sideOf("pg", "a text, b bigint", each("'a', 1", "'b', 3")...),
		matched: 1, want: map[string]Type{"b,2": MissingEffect, "b,3": EffectWithoutRecord}},
	"a missing amount agrees with nothing": {
		consumed: sideOf("pg", "id text", "'a' | null | 1m", "'b' | null | 2m", "'c' | 1 | 3m"),
		effect:   sideOf("my", "id varchar(9)", "'a' | null | 1m", "'b' | 0 | 2m", "'c' | 1 | 3m"),
		matched:  1, want: map[string]Type{"a": AmountMismatch, "b": AmountMismatch}},
	"a missing amount in one database": {
		consumed: sideOf("pg", "id text", "'a' | null | 1m", "'b' | null | 2m", "'c' | 1 | 3m"),
		effect:   sideOf("pg", "id text", "'a' | null | 1m", "'b' | 0 | 2m", "'c' | 1 | 3m"),
		matched:  1, want: map[string]Type{"a": AmountMismatch, "b": AmountMismatch}},
	"rows without a key match nothing": {
		consumed: sideOf("pg", "id text", "null | 1 | 1m", "'a' | 1 | 2m"), effect: sideOf("my", "id varchar(9)", "null | 1 | 1m", "'a' | 1 | 2m"), matched: 1},
	"rows without a part of their key in one database": {keys: "a, b",
		consumed: sideOf("pg", "a text, b text", "'a', null | 1 | 1m", "'a', 'b' | 1 | 2m"), effect: sideOf("pg", "a text, b text", "null, 'b' | 1 | 1m", "'a', 'b' | 1 | 2m"), matched: 1},
	"equal rows on one side": {
		consumed: sideOf("pg", "id text", "'a' | 1 | 1m", "'b' | 1 | 1m", "'b' | 1 | 1m"),
		effect:   sideOf("my", "id varchar(9)", "'a' | 1 | 1m", "'a' | 1 | 1m", "'b' | 1 | 1m"),
		want:     map[string]Type{"a": DuplicateEffect, "b": MissingEffect}},
	"equal rows on one side in one database": {
		consumed: sideOf("pg", "id text", "'a' | 1 | 1m", "'b' | 1 | 1m", "'b' | 1 | 1m"),
		effect:   sideOf("pg", "id text", "'a' | 1 | 1m", "'a' | 1 | 1m", "'b' | 1 | 1m"),
		want:     map[string]Type{"a": DuplicateEffect, "b": MissingEffect}},
	"equal rows on both sides": {
		consumed: sideOf("pg", "id text", "'a' | 1 | 1m", "'a' | 1 | 1m"), effect: sideOf("my", "id varchar(9)", "'a' | 1 | 1m", "'a' | 1 | 1m"), matched: 1},
	"equal rows on both sides in one database": {
		consumed: sideOf("pg", "id text", "'a' | 1 | 1m", "'a' | 1 | 1m"), effect: sideOf("pg", "id text", "'a' | 1 | 1m", "'a' | 1 | 1m"), matched: 1},
	"a thousand tenths are a hundred": {mode: OneToMany,
		consumed: sideOf("pg", "id text", "'a' | 100.00 | 1m", "'b' | 100.00 | 1m"),
		effect:   sideOf("my", "id varchar(9)", append(tenths("'a'", 1000), tenths("'b'", 999)...)...),
		matched:  1, want: map[string]Type{"b": AmountMismatch}},
	"a numeric without a scale": {
		consumed: sideOf("pg", "id text", "'a' | 100 | 1m", "'b' | 100.000 | 1m", "'c' | 1e2 | 1m", "'d' | 0.000000000000000000001 | 1m").typed("numeric", ""),
		effect:   sideOf("my", "id varchar(9)", "'a' | 100 | 1m", "'b' | 100 | 1m", "'c' | 100 | 1m", "'d' | 0 | 1m"),
		matched:  3, want: map[string]Type{"d": AmountMismatch}},
	"amounts of 38 digits": {
		consumed: sideOf("pg", "id text", "'a' | 99999999999999999999999999999999999.99 | 1m", "'b' | 99999999999999999999999999999999999.99 | 1m").typed("numeric(38,2)", ""),
		effect:   sideOf("my", "id varchar(9)", "'a' | 99999999999999999999999999999999999.99 | 1m", "'b' | 99999999999999999999999999999999999.98 | 1m").typed("decimal(38,2)", ""),
		matched:  1, want: map[string]Type{"b": AmountMismatch}},
	"microseconds and milliseconds at the window's edge": {
		consumed: sideOf("pg", "id text", "'in' | 1 | 59m59.999999s", "'out' | 1 | 60m").typed("", "timestamptz(6)"),
		effect:   sideOf("my", "id varchar(9)", "'in' | 1 | 60m", "'out' | 1 | 60m").typed("", "datetime(3)"), matched: 1},
	"clocks of two zones": {
		consumed: sideOf("pg", "id text", "'a' | 1 | 2026-11-30 20:00:00", "'b' | 1 | 2026-11-30 20:59:59.999999", "'c' | 1 | 2026-11-30 19:59:59.999999").typed("", "timestamp").in("Asia/Shanghai"),
		effect:   sideOf("my", "id varchar(9)", "'a' | 1 | 2026-11-30 07:00:00", "'b' | 1 | 2026-11-30 07:59:59.999999", "'c' | 1 | 2026-11-30 06:59:59.999999").typed("", "datetime(6)").in("America/New_York"),
		matched:  2},
	"a clock and an instant": {
		consumed: sideOf("my", "id varchar(9)", "'a' | 1 | 0s", "'b' | 1 | 59m").typed("", "timestamp(6) null"),
		effect:   sideOf("pg", "id text", "'a' | 1 | 2026-11-30 13:00:00", "'b' | 1 | 2026-11-30 13:59:00").typed("", "timestamp").in("Europe/Berlin"),
		matched:  2},
}

func tenths(key string, n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = key + " | 0.10 | 1m"
	}
	return rows
}

// Whatever the columns are: what is the same key matches, and what is not does
// not, by every plan.
func TestIdentityOfKeysAndAmounts(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	n := 0
	for name, c := range identityCases {
		n++
		t.Run(name, func(t *testing.T) {
			job := b.identityJob(t, n, c)
			b.readable()
			plans := []string{PlanMerge}
			if fits, _ := joinFits(job, b.named); fits {
				plans = append(plans, PlanJoin)
			}
			for _, plan := range plans {
				c.check(t, b, job, plan)
			}
		})
	}
}

func (c identityCase) check(t *testing.T, b *books, job *Job, plan string) {
	found, err := Compare(t.Context(), job, b.named, plan, noon, noon.Add(time.Hour), noon.Add(1000*time.Hour), 1000)
	if err != nil {
		t.Fatalf("%s: %v", plan, err)
	}
	got := map[string]Type{}
	for _, f := range found.Findings {
		got[strings.Join(f.Key, ",")] = f.Type
	}
	if !maps.Equal(got, c.want) || found.Tally.Matched != c.matched || !found.Tally.Foots() {
		t.Errorf("%s: %d match and %v are wrong; want %d and %v; unexplained %s", plan, found.Tally.Matched, got, c.matched, c.want, found.Tally.Unexplained("CNY"))
	}
	for p := range found.Tally.Totals {
		if fmt.Sprint(found.Tally.Totals[p]) != fmt.Sprint(found.Tally.Control[p]) {
			t.Errorf("%s: %s: compared %v, the database has %v", plan, Party(p), found.Tally.Totals[p], found.Tally.Control[p])
		}
	}
}

func (b *books) identityJob(t *testing.T, n int, c identityCase) *Job {
	t.Helper()
	keys := c.keys
	if keys == "" {
		keys = "id"
	}
	mode := c.mode
	if mode == "" {
		mode = OneToOne
	}
	text := "job: identity\nwindow: {size: 1h, overlap: 10m, grace: 5m}\nkey: [" + keys + "]\n" +
		"match: {mode: " + string(mode) + ", amount: amount, currency: currency, consumed_time: at, effect_time: at}\n"
	for name, side := range map[string]ledgerSide{"consumed": c.consumed, "effect": c.effect} {
		text += name + ":\n" + b.ledger(fmt.Sprintf("%s_%d", name, n), keys, side)
	}
	return parseJob(t, text)
}

// ledger makes a side's table and gives its part of the job.
func (b *books) ledger(table, keys string, s ledgerSide) string {
	b.Helper()
	exec, at, amount := b.exec, "timestamptz", "numeric(20,2)"
	if s.engine == "my" {
		exec, at = b.execMySQL, "timestamp(6) null"
	}
	if s.at != "" {
		at = s.at
	}
	if s.amount != "" {
		amount = s.amount
	}
	exec(fmt.Sprintf("CREATE TABLE %s (%s, amount %s, currency char(3), at %s)", table, s.key, amount, at))
	values := make([]string, len(s.rows))
	for i, row := range s.rows {
		f := strings.Split(row, " | ")
		when := f[2]
		if d, err := time.ParseDuration(when); err == nil {
			when = noon.Add(d).Format("2006-01-02 15:04:05.999999")
		}
		if at == "timestamptz" || at == "timestamptz(6)" {
			when += "+00"
		}
		values[i] = fmt.Sprintf("(%s, %s, 'CNY', '%s')", f[0], f[1], when)
	}
	exec("INSERT INTO " + table + " VALUES " + strings.Join(values, ", "))
	columns := keys
	if strings.Contains(keys, ",") {
		columns = "(" + keys + ")"
	}
	side := fmt.Sprintf(`  connection: %[1]s
  query: select %[2]s, amount, currency, at from %[3]s where at >= :from and at < :to
  lookup: select %[2]s, amount, currency, at from %[3]s where %[4]s in (:keys)
`, s.engine, keys, table, columns)
	if s.zone != "" {
		side += "  timezone: " + s.zone + "\n"
	}
	return side
}

// An hour that a clock shows twice, and one that it skips, belong to one window
// each, on both engines.
func TestClocksOnDaylightSavingDays(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	var rows []string
	for i, at := range []string{"2026-11-01 00:59:59.999999", "2026-11-01 01:00:00", "2026-11-01 01:30:00", "2026-11-01 01:59:59.999999", "2026-11-01 02:00:00",
		"2026-03-08 01:59:59.999999", "2026-03-08 03:00:00", "2026-03-08 03:30:00"} {
		rows = append(rows, fmt.Sprintf("'e%d' | 1.00 | %s", i, at))
	}
	for n, c := range []identityCase{
		{consumed: sideOf("pg", "id text", rows...).typed("", "timestamp").in("America/New_York"), effect: sideOf("my", "id varchar(9)", rows...).typed("", "datetime(6)").in("America/New_York")},
		{consumed: sideOf("pg", "id text", rows...).typed("", "timestamp").in("America/New_York"), effect: sideOf("pg", "id text", rows...).typed("", "timestamp").in("America/New_York")},
	} {
		job := b.identityJob(t, n, c)
		job.Window.Overlap = 0
		b.readable()
		total := newTally()
		for _, day := range []time.Time{time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)} {
			for h := range 24 {
				from := day.Add(time.Duration(h) * time.Hour)
				found, err := Compare(t.Context(), job, b.named, "", from, from.Add(time.Hour), noon.Add(1000*time.Hour), 1000)
				if err != nil {
					t.Fatalf("%s: %v", from, err)
				}
				if len(found.Findings) > 0 {
					t.Errorf("%s: %+v", from, found.Findings)
				}
				total.Plus(found.Tally)
			}
		}
		want := Total{int64(len(rows)), amountOf(int64(len(rows)))}
		same(t, "matched", total.Matched, len(rows))
		for _, p := range []Party{Consumed, Effect} {
			same(t, p.String(), total.Control[p]["CNY"], want)
		}
	}
}
