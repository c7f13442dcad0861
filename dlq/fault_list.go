package dlq

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sqlFaultCounted is every fault with its counters, what is not folded yet
// included; %s is a condition on fault f.
const sqlFaultCounted = `
WITH waiting AS (
  SELECT fault_id, max(seen_at) AS seen,
    coalesce(sum(n) FILTER (WHERE state = 1), 0)::bigint AS open_n,
    coalesce(sum(n) FILTER (WHERE state = 2), 0)::bigint AS replaying_n,
    coalesce(sum(n) FILTER (WHERE state = 3), 0)::bigint AS resolved_n,
    coalesce(sum(n) FILTER (WHERE state = 4), 0)::bigint AS discarded_n
  FROM fault_delta GROUP BY fault_id),
x AS (
  SELECT f.id, f.source_id, f.dialect_id, f.origin_id, f.group_id, f.class_id, f.message,
    f.first_seen, greatest(f.last_seen, w.seen) AS last_seen,
    f.open_n + coalesce(w.open_n, 0) AS open_n, f.replaying_n + coalesce(w.replaying_n, 0) AS replaying_n,
    f.resolved_n + coalesce(w.resolved_n, 0) AS resolved_n, f.discarded_n + coalesce(w.discarded_n, 0) AS discarded_n,
    f.owner_id, f.mute_until, f.note, f.came_back_at
  FROM fault f LEFT JOIN waiting w ON w.fault_id = f.id
  WHERE %s)`

const sqlFaultColumns = `
SELECT x.id, s.cluster, s.broker, s.name, n.name, o.name, g.name, c.name, x.message, x.first_seen, x.last_seen,
  x.open_n, x.replaying_n, x.resolved_n, x.discarded_n, w.name, x.mute_until, x.note, x.came_back_at
FROM x
JOIN letter_source s ON s.id = x.source_id
JOIN letter_name n ON n.id = x.dialect_id
LEFT JOIN letter_name o ON o.id = x.origin_id
LEFT JOIN letter_name g ON g.id = x.group_id
LEFT JOIN letter_name c ON c.id = x.class_id
LEFT JOIN letter_name w ON w.id = x.owner_id`

// tabConditions say which faults stand in a tab.
var tabConditions = map[FaultTab]string{
	TabOpen:      "x.open_n > 0 AND NOT coalesce(x.mute_until > @now, false)",
	TabReplaying: "x.replaying_n > 0",
	TabMuted:     "coalesce(x.mute_until > @now, false)",
	TabResolved:  "x.open_n = 0 AND x.replaying_n = 0 AND x.resolved_n > 0 AND NOT coalesce(x.mute_until > @now, false)",
	TabDiscarded: "x.open_n = 0 AND x.replaying_n = 0 AND x.resolved_n = 0 AND x.discarded_n > 0 AND NOT coalesce(x.mute_until > @now, false)",
	TabAll:       "x.open_n + x.replaying_n + x.resolved_n + x.discarded_n > 0", // retention may have taken all letters
}

// faultSort is an order of the list: the value that sorts, as a bigint, and the
// direction of value and id alike.
type faultSort struct{ value, order, beyond string }

var faultSorts = map[string]faultSort{
	"-open":       {"x.open_n", "DESC", "<"},
	"open":        {"x.open_n", "ASC", ">"},
	"-last_seen":  {"(extract(epoch from x.last_seen) * 1000000)::bigint", "DESC", "<"},
	"last_seen":   {"(extract(epoch from x.last_seen) * 1000000)::bigint", "ASC", ">"},
	"-first_seen": {"(extract(epoch from x.first_seen) * 1000000)::bigint", "DESC", "<"},
	"first_seen":  {"(extract(epoch from x.first_seen) * 1000000)::bigint", "ASC", ">"},
}

// normal fills in the defaults. Errors: *ErrBadFilter.
func (f FaultFilter) normal() (FaultFilter, error) {
	if f.Tab == "" {
		f.Tab = TabOpen
	}
	if f.Sort == "" {
		f.Sort = "-open"
	}
	if _, ok := tabConditions[f.Tab]; !ok {
		return f, &ErrBadFilter{Field: "state", Reason: "must be one of open, replaying, muted, resolved, discarded, all"}
	}
	if _, ok := faultSorts[f.Sort]; !ok {
		return f, &ErrBadFilter{Field: "sort", Reason: "must be one of -open, open, -last_seen, last_seen, first_seen, -first_seen"}
	}
	for field, text := range map[string]string{"owner": f.Owner, "q": f.Search} {
		if err := filterText(field, text); err != nil {
			return f, err
		}
	}
	return f, f.letters().check()
}

// condition is what the filter asks of fault f beyond its dimensions.
func (f FaultFilter) condition(dims []dimension, args pgx.NamedArgs) string {
	all := nonEmpty(conditions(dims, "f"))
	if f.Verdict != 0 {
		all = append(all, sqlFaultHasVerdict)
		args["verdict"], args["state"] = max(int16(f.Verdict), 0), int16(Open)
	}
	switch f.Owner {
	case "":
	case OwnerNone:
		all = append(all, "f.owner_id IS NULL")
	default:
		all = append(all, "f.owner_id = (SELECT id FROM letter_name WHERE kind = 4 AND name = @owner)")
		args["owner"] = f.Owner
	}
	if !f.Before.IsZero() {
		all = append(all, "f.first_seen < @before")
		args["before"] = f.Before
	}
	if f.Search != "" {
		all = append(all, "(strpos(lower(f.message), lower(@search)) > 0 OR f.class_id IN (SELECT id FROM letter_name WHERE kind = 2 AND strpos(lower(name), lower(@search)) > 0))")
		args["search"] = f.Search
	}
	return orTrue(strings.Join(all, " AND "))
}

// letters is the part of the filter that a letter's filter has too.
func (f FaultFilter) letters() LetterFilter {
	return LetterFilter{Cluster: f.Cluster, Source: f.Source, Dialect: f.Dialect,
		Group: f.Group, ErrorClass: f.ErrorClass, OriginTopic: f.OriginTopic, Verdict: f.Verdict}
}

// List gives one page of faults with their counts, unfolded changes included.
// Errors: *ErrBadFilter.
func (f *Faults) List(ctx context.Context, filter FaultFilter, p Page) (FaultPage, error) {
	filter, err := filter.normal()
	if err != nil {
		return FaultPage{}, err
	}
	rows, err := p.rows()
	if err != nil {
		return FaultPage{}, err
	}
	var place cursor
	if p.Cursor != "" {
		if place, err = decodeCursor(p.Cursor, filter); err != nil {
			return FaultPage{}, err
		}
	}
	dims, ok, err := lookUpDimensions(ctx, f.pool, filter.letters())
	if err != nil || !ok {
		return FaultPage{}, err
	}
	args := dimensionArgs(dims)
	args["now"], args["rows"] = f.clock(), rows+1
	sort := faultSorts[filter.Sort]
	where := tabConditions[filter.Tab]
	if p.Cursor != "" {
		where += fmt.Sprintf(" AND (%s, x.id) %s (@sort, @id)", sort.value, sort.beyond)
		args["sort"], args["id"] = place.sort, faultIDOf(place.id)
	}
	order := fmt.Sprintf("\nORDER BY %s %s, x.id %s", sort.value, sort.order, sort.order)
	sql := fmt.Sprintf(sqlFaultCounted, filter.condition(dims, args)) + // names are looked up for the page only
		",\npage AS (SELECT * FROM x WHERE " + where + order + " LIMIT @rows)" +
		strings.Replace(sqlFaultColumns, "FROM x", "FROM page x", 1) + order
	items, err := f.read(ctx, sql, args)
	if err != nil {
		return FaultPage{}, err
	}
	page := FaultPage{Items: items[:min(len(items), rows)]}
	if len(items) > rows {
		last := page.Items[rows-1]
		page.Next = cursor{direction: older, sort: last.sortValue(filter.Sort), id: uuidOf(last.ID)}.encode(filter)
	}
	return page, nil
}

// Get reads one fault. Errors: ErrNotFound.
func (f *Faults) Get(ctx context.Context, id int32) (Fault, error) {
	items, err := f.read(ctx, fmt.Sprintf(sqlFaultCounted, "f.id = @fault")+sqlFaultColumns, pgx.NamedArgs{"fault": id})
	if err != nil {
		return Fault{}, err
	}
	if len(items) == 0 {
		return Fault{}, fmt.Errorf("fault %d: %w", id, ErrNotFound)
	}
	return items[0], nil
}

// Counts says how many faults stand in each tab under the filter's other conditions.
func (f *Faults) Counts(ctx context.Context, filter FaultFilter) (map[FaultTab]int64, error) {
	filter, err := filter.normal()
	if err != nil {
		return nil, err
	}
	counts := map[FaultTab]int64{TabOpen: 0, TabReplaying: 0, TabMuted: 0, TabResolved: 0, TabDiscarded: 0, TabAll: 0}
	dims, ok, err := lookUpDimensions(ctx, f.pool, filter.letters())
	if err != nil || !ok {
		return counts, err
	}
	args := dimensionArgs(dims)
	args["now"] = f.clock()
	sql := fmt.Sprintf(sqlFaultCounted, filter.condition(dims, args)) + "\nSELECT count(*) FILTER (WHERE " + tabConditions[TabAll] + ")"
	tabs := []FaultTab{TabOpen, TabReplaying, TabMuted, TabResolved, TabDiscarded}
	n := make([]int64, len(tabs)+1)
	into := []any{&n[len(tabs)]}
	for i, tab := range tabs {
		sql += ", count(*) FILTER (WHERE " + tabConditions[tab] + ")"
		into = append(into, &n[i])
	}
	if err := f.pool.QueryRow(ctx, sql+" FROM x", args).Scan(into...); err != nil {
		return nil, fmt.Errorf("count faults: %w", err)
	}
	for i, tab := range tabs {
		counts[tab] = n[i]
	}
	counts[TabAll] = n[len(tabs)]
	return counts, nil
}

// read runs a list of faults and adds their verdicts and hours, as of one moment.
func (f *Faults) read(ctx context.Context, sql string, args pgx.NamedArgs) (items []Fault, err error) {
	err = snapshot(ctx, f.pool, func(tx pgx.Tx) error {
		items, err = readFaults(ctx, tx, sql, args, f.clock())
		return err
	})
	return items, err
}

func readFaults(ctx context.Context, tx pgx.Tx, sql string, args pgx.NamedArgs, now time.Time) ([]Fault, error) {
	rows, err := tx.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("query faults: %w", err)
	}
	items, err := pgx.CollectRows(rows, scanFault)
	if err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	return items, addFaultCounts(ctx, tx, items, now)
}

func scanFault(row pgx.CollectableRow) (Fault, error) {
	f := Fault{Verdicts: map[Verdict]int64{}}
	var broker int16
	err := row.Scan(&f.ID, &f.Cluster, &broker, &f.Source, &f.Dialect, &f.OriginTopic, &f.Group, &f.ErrorClass, &f.Message,
		&f.FirstSeen, &f.LastSeen, &f.Open, &f.Replaying, &f.Resolved, &f.Discarded, &f.Owner, &f.MuteUntil, &f.Note, &f.CameBackAt)
	f.Broker = brokerName(broker)
	return f, err
}

const sqlFaultVerdicts = `
SELECT fault_id, verdict, sum(n)::bigint FROM (
  SELECT fault_id, verdict, n FROM fault_count WHERE fault_id = ANY(@faults) AND state = 1
  UNION ALL SELECT fault_id, verdict, n FROM fault_delta WHERE fault_id = ANY(@faults) AND state = 1) u
GROUP BY fault_id, verdict HAVING sum(n) > 0`

const sqlFaultHours = `
SELECT fault_id, hour, sum(n)::bigint FROM (
  SELECT fault_id, hour, n FROM fault_hour WHERE fault_id = ANY(@faults) AND hour >= @since
  UNION ALL SELECT fault_id, date_trunc('hour', seen_at, 'UTC'), n FROM fault_delta
  WHERE fault_id = ANY(@faults) AND state = 1 AND n > 0 AND seen_at >= @since) u
GROUP BY fault_id, hour`

func addFaultCounts(ctx context.Context, tx pgx.Tx, items []Fault, now time.Time) error {
	if len(items) == 0 {
		return nil
	}
	at := make(map[int32]*Fault, len(items))
	ids := make([]int32, len(items))
	for i := range items {
		ids[i], at[items[i].ID] = items[i].ID, &items[i]
	}
	present := now.UTC().Truncate(time.Hour)
	args := pgx.NamedArgs{"faults": ids, "since": present.Add(-23 * time.Hour)}
	b := &pgx.Batch{}
	b.Queue(sqlFaultVerdicts, args).Query(func(rows pgx.Rows) error {
		var id int32
		var v Verdict
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&id, &v, &n}, func() error { at[id].Verdicts[v] = n; return nil })
		return err
	})
	b.Queue(sqlFaultHours, args).Query(func(rows pgx.Rows) error {
		var id int32
		var hour time.Time
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&id, &hour, &n}, func() error { at[id].addHour(present, hour, n); return nil })
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("count by verdict and hour: %w", err)
	}
	return nil
}

// addHour puts an hour's arrivals into the row that ends with the present hour.
func (f *Fault) addHour(present, hour time.Time, n int64) {
	if i := hourIndex(present, hour); i >= 0 {
		f.Hours[i] += n
		if i >= 22 {
			f.LastHour += n
		}
	}
}

// hourIndex is the place of an hour among the last 24, the present one at 23; -1 outside.
func hourIndex(present, hour time.Time) int {
	i := 23 - int(present.Sub(hour)/time.Hour)
	if i < 0 || i > 23 {
		return -1
	}
	return i
}

func (f Fault) sortValue(sort string) int64 {
	switch strings.TrimPrefix(sort, "-") {
	case "last_seen":
		return f.LastSeen.UnixMicro()
	case "first_seen":
		return f.FirstSeen.UnixMicro()
	}
	return f.Open
}

func orTrue(condition string) string {
	if condition == "" {
		return "true"
	}
	return condition
}

// uuidOf and faultIDOf carry a fault's id in a cursor.
func uuidOf(id int32) (u uuid.UUID) {
	binary.BigEndian.PutUint32(u[12:], uint32(id))
	return u
}

func faultIDOf(u uuid.UUID) int32 { return int32(binary.BigEndian.Uint32(u[12:])) }
