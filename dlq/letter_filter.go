package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// maxFaultBranches is how many faults a list merges before one index with a
// condition is cheaper.
const maxFaultBranches = 200

// check refuses values that no letter can have.
func (f LetterFilter) check() error {
	if f.State < 0 || f.State > Discarded {
		return &ErrBadFilter{Field: "state", Reason: "must be one of open, replaying, resolved, discarded"}
	}
	if f.FaultID < 0 {
		return &ErrBadFilter{Field: "fault_id", Reason: "must be a positive integer"}
	}
	for _, v := range [][2]string{
		{"cluster", f.Cluster}, {"source", f.Source}, {"dialect", f.Dialect}, {"event_id", f.EventID},
		{"consumer_group", f.Group}, {"error_class", f.ErrorClass}, {"origin_topic", f.OriginTopic},
		{"owner", f.Owner}, {"q", f.Search}, {"text", f.Text},
	} {
		if err := filterText(v[0], v[1]); err != nil {
			return err
		}
	}
	if f.Sort != "" && f.Sort != SortNewest && f.Sort != SortOldest {
		return &ErrBadFilter{Field: "sort", Reason: "must be one of -drained_at, drained_at"}
	}
	return f.checkCompared()
}

// The orders of a list of letters.
const (
	SortNewest = "-drained_at" // newest arrival first
	SortOldest = "drained_at"
)

// checkCompared looks at the filters that are compared letter by letter.
func (f LetterFilter) checkCompared() error {
	switch {
	case f.Verdict != NotJudged && f.Verdict != 0 && f.Verdict.String() == "":
		return &ErrBadFilter{Field: "verdict", Reason: "is not one of the verdicts"}
	case f.AttemptsMin < 0:
		return &ErrBadFilter{Field: "attempts_min", Reason: "must not be negative"}
	case f.AttemptsMax < 0:
		return &ErrBadFilter{Field: "attempts_max", Reason: "must not be negative"}
	case f.AttemptsMax > 0 && f.AttemptsMax < f.AttemptsMin:
		return &ErrBadFilter{Field: "attempts_max", Reason: "must not be below attempts_min"}
	case f.AnyCase && f.Text == "":
		return &ErrBadFilter{Field: "text_case", Reason: "says how text is looked for: give text"}
	case f.Text != "" && f.FaultID == 0 && f.Since.IsZero():
		return &ErrBadFilter{Field: "text", Reason: "is looked for inside a fault or a time range only: give fault_id or since"}
	}
	_, err := ParseTerms(f.Search)
	return err
}

// Compared reports whether the list compares letter by letter, so that it may
// stop before its end and its count is "at least".
func (f LetterFilter) Compared() bool {
	return f.Verdict != 0 || f.AttemptsMin > 0 || f.AttemptsMax > 0 || f.Owner != "" || f.Search != "" || f.Text != ""
}

// byFault reports whether counters alone know how many letters match.
func (f LetterFilter) byFault() bool {
	return f.EventID == "" && f.Since.IsZero() && f.Until.IsZero() && !f.Compared()
}

// letterQuery is a filter whose names are looked up: what one statement needs.
type letterQuery struct {
	state  State
	where  string // conditions on dead_letter's columns; "" for all
	faults []int32
	via    bool // through faults
	event  bool // by event id, which few letters share
	none   bool // nothing can match

	unindexed bool // no index finds where: a page compares letter by letter, within its time

	first byte // the direction that the list is read in: older unless sorted otherwise
	args  pgx.NamedArgs
	lower uuid.UUID // exclusive
	upper uuid.UUID // exclusive
}

// dimension is a filter that the fault determines.
type dimension struct {
	column  string // in fault and in dead_letter alike, but for fault_id
	arg     string
	value   any
	indexed bool // dead_letter has an index (column, state, id)
}

const sqlFilterNames = `
SELECT
  (SELECT array_agg(id ORDER BY id) FROM letter_source WHERE (@cluster = '' OR cluster = @cluster) AND (@source = '' OR name = @source)),
  (SELECT id FROM letter_name WHERE kind = 1 AND name = @group),
  (SELECT id FROM letter_name WHERE kind = 2 AND name = @class),
  (SELECT id FROM letter_name WHERE kind = 3 AND name = @origin),
  (SELECT id FROM letter_name WHERE kind = 5 AND name = @dialect)`

// dimensions looks up the names of a filter. ok is false when one of them is
// unknown, so that nothing matches.
func (l *Letters) dimensions(ctx context.Context, f LetterFilter) (dims []dimension, ok bool, err error) {
	return lookUpDimensions(ctx, l.pool, f)
}

func lookUpDimensions(ctx context.Context, db querier, f LetterFilter) ([]dimension, bool, error) {
	var dims []dimension
	if f.FaultID != 0 {
		dims = append(dims, dimension{"fault_id", "fault", f.FaultID, true})
	}
	if f.Cluster+f.Source+f.Group+f.ErrorClass+f.OriginTopic+f.Dialect == "" {
		return dims, true, nil
	}
	var sources []int32
	var group, class, origin, dialect *int32
	err := db.QueryRow(ctx, sqlFilterNames, pgx.NamedArgs{
		"cluster": f.Cluster, "source": f.Source, "group": f.Group,
		"class": f.ErrorClass, "origin": f.OriginTopic, "dialect": f.Dialect,
	}).Scan(&sources, &group, &class, &origin, &dialect)
	if err != nil {
		return nil, false, fmt.Errorf("look up filter names: %w", err)
	}
	if f.Cluster != "" || f.Source != "" {
		if len(sources) == 0 {
			return nil, false, nil
		}
		dims = append(dims, sourceDimension(sources))
	}
	for _, n := range []struct {
		asked   string
		id      *int32
		column  string
		indexed bool
	}{
		{f.Group, group, "group_id", true}, {f.ErrorClass, class, "class_id", true},
		{f.OriginTopic, origin, "origin_id", false}, {f.Dialect, dialect, "dialect_id", false},
	} {
		switch {
		case n.asked == "":
		case n.id == nil:
			return nil, false, nil
		default:
			dims = append(dims, dimension{n.column, n.column, *n.id, n.indexed})
		}
	}
	return dims, true, nil
}

// sourceDimension: a cluster, or a topic that was created anew, is several sources.
func sourceDimension(ids []int32) dimension {
	if len(ids) == 1 {
		return dimension{"source_id", "source", ids[0], true}
	}
	return dimension{"source_id", "source", ids, false}
}

// condition compares the dimension's column in a table that is named alias.
func (d dimension) condition(alias string) string {
	column := d.column
	if alias == "f" && column == "fault_id" {
		column = "id"
	}
	if _, many := d.value.([]int32); many {
		return alias + "." + column + " = ANY(@" + d.arg + ")"
	}
	return alias + "." + column + " = @" + d.arg
}

func conditions(dims []dimension, alias string) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = d.condition(alias)
	}
	return strings.Join(parts, " AND ")
}

func dimensionArgs(dims []dimension) pgx.NamedArgs {
	args := pgx.NamedArgs{}
	for _, d := range dims {
		args[d.arg] = d.value
	}
	return args
}

// query chooses how to find the letters of a filter: by event id, by one index,
// or through the faults that match.
func (l *Letters) query(ctx context.Context, f LetterFilter) (letterQuery, error) {
	if err := f.check(); err != nil {
		return letterQuery{}, err
	}
	dims, ok, err := l.dimensions(ctx, f)
	if err != nil {
		return letterQuery{}, err
	}
	q := letterQuery{state: f.State, none: !ok, first: f.direction(), args: dimensionArgs(dims), lower: idFloor(f.Since), upper: idCeiling(f.Until)}
	switch {
	case q.none || len(dims) == 0 && f.EventID == "" && f.Verdict == 0:
	case f.EventID != "":
		q.event, q.args["event"] = true, f.EventID
		q.where = strings.Join(append([]string{"d.event_id = @event"}, nonEmpty(conditions(dims, "d"))...), " AND ")
	case len(dims) == 1 && dims[0].indexed && f.Verdict == 0:
		q.where = conditions(dims, "d")
	default:
		err = l.queryByFaults(ctx, &q, dims, f)
	}
	return q, err
}

func (f LetterFilter) direction() byte {
	if f.Sort == SortOldest {
		return newer
	}
	return older
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// queryByFaults resolves the dimensions to faults. Where there are too many, the
// rarest index is walked with the rest as conditions.
func (l *Letters) queryByFaults(ctx context.Context, q *letterQuery, dims []dimension, f LetterFilter) error {
	where, args := orTrue(conditions(dims, "f")), dimensionArgs(dims)
	if f.Verdict != 0 {
		where += " AND " + sqlFaultHasVerdict
		args["verdict"], args["state"] = max(int16(f.Verdict), 0), int16(f.State)
	}
	sql := "SELECT f.id FROM fault f WHERE " + where + fmt.Sprintf(" LIMIT %d", maxFaultBranches+1)
	rows, err := l.pool.Query(ctx, sql, args)
	if err != nil {
		return fmt.Errorf("query faults of a filter: %w", err)
	}
	q.faults, err = pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return fmt.Errorf("read faults of a filter: %w", err)
	}
	q.none = len(q.faults) == 0
	q.via = len(q.faults) <= maxFaultBranches
	if !q.via && len(dims) > 0 {
		q.unindexed = !slices.ContainsFunc(dims, func(d dimension) bool { return d.indexed })
		q.where, err = l.rarest(ctx, dims)
	}
	return err
}

// sqlFaultHasVerdict asks the counters, so that a verdict that no letter has is
// answered at once.
const sqlFaultHasVerdict = `(
  EXISTS (SELECT FROM fault_count c WHERE c.fault_id = f.id AND c.verdict = @verdict AND (@state = 0 OR c.state = @state) AND c.n > 0)
  OR EXISTS (SELECT FROM fault_delta x WHERE x.fault_id = f.id AND x.verdict = @verdict AND (@state = 0 OR x.state = @state) AND x.n > 0))`

// rarest writes the conditions so that only the rarest indexed column can be
// found by its index: a column in an expression is invisible to one.
func (l *Letters) rarest(ctx context.Context, dims []dimension) (string, error) {
	best, bestN := -1, int64(0)
	for i, d := range dims {
		if !d.indexed {
			continue
		}
		var n int64
		sql := "SELECT coalesce(sum(open_n + replaying_n + resolved_n + discarded_n), 0)::bigint FROM fault f WHERE " + d.condition("f")
		if err := l.pool.QueryRow(ctx, sql, pgx.NamedArgs{d.arg: d.value}).Scan(&n); err != nil {
			return "", fmt.Errorf("count letters of a filter: %w", err)
		}
		if best < 0 || n < bestN {
			best, bestN = i, n
		}
	}
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = d.condition("d")
		if i != best {
			parts[i] = strings.Replace(parts[i], " = ", " + 0 = ", 1)
		}
	}
	return strings.Join(parts, " AND "), nil
}

// ids is the statement that yields so many ids, in the asked direction. The number
// is in the text: a generic plan for any number would sort all letters, since it
// expects a tenth of them to be asked for.
func (q letterQuery) ids(direction byte, rows int) string {
	order, states := "DESC", []State{Open, Replaying, Resolved, Discarded}
	if direction == newer {
		order = "ASC"
	}
	if q.state != 0 {
		states = []State{q.state}
	}
	if q.via {
		return q.idsViaFaults(order, states, rows)
	}
	if q.event {
		return q.idsByEvent(order, rows)
	}
	if q.where == "" && q.state == 0 {
		return fmt.Sprintf(`SELECT d.id FROM dead_letter d WHERE true%s ORDER BY d.id %s LIMIT %d`, q.between(), order, rows)
	}
	branches := make([]string, len(states))
	for i, s := range states {
		cond := fmt.Sprintf("d.state = %d", s)
		if q.where != "" {
			cond = q.where + " AND " + cond
		}
		branches[i] = fmt.Sprintf(`(SELECT d.id FROM dead_letter d WHERE %s%s ORDER BY d.id %s LIMIT %d)`, cond, q.between(), order, rows)
	}
	if len(branches) == 1 {
		return branches[0][1 : len(branches[0])-1]
	}
	return strings.Join(branches, " UNION ALL ") + fmt.Sprintf(" ORDER BY id %s LIMIT %d", order, rows)
}

func (q letterQuery) idsViaFaults(order string, states []State, rows int) string {
	list := make([]string, len(states))
	for i, s := range states {
		list[i] = fmt.Sprint(int16(s))
	}
	return fmt.Sprintf(`
SELECT l.id FROM unnest(@faults::int[]) f(id)
CROSS JOIN unnest('{%[2]s}'::smallint[]) s(state)
CROSS JOIN LATERAL (
  SELECT d.id FROM dead_letter d
  WHERE d.fault_id = f.id AND d.state = s.state%[4]s
  ORDER BY d.id %[1]s LIMIT %[3]d) l
ORDER BY l.id %[1]s LIMIT %[3]d`, order, strings.Join(list, ","), rows, q.between())
}

// idsByEvent finds all letters of the event before it orders them: left to
// itself the planner walks all letters in order until enough have the event id.
func (q letterQuery) idsByEvent(order string, rows int) string {
	where := q.where
	if q.state != 0 {
		where += fmt.Sprintf(" AND d.state = %d", q.state)
	}
	return fmt.Sprintf(`
WITH e AS MATERIALIZED (SELECT d.id FROM dead_letter d WHERE %s%s)
SELECT e.id FROM e ORDER BY e.id %s LIMIT %d`, where, q.between(), order, rows)
}

// between holds only the bounds that there are: of two, a generic plan expects so
// few letters between them that it reads and sorts them all.
func (q letterQuery) between() (conditions string) {
	if q.lower != uuid.Nil {
		conditions = " AND d.id > @lower"
	}
	if q.upper != uuid.Max {
		conditions += " AND d.id < @upper"
	}
	return conditions
}

// named gives the arguments of ids.
func (q letterQuery) named() pgx.NamedArgs {
	args := pgx.NamedArgs{"lower": q.lower, "upper": q.upper}
	if q.via {
		args["faults"] = q.faults
		return args
	}
	for k, v := range q.args {
		args[k] = v
	}
	return args
}

// place narrows the query to one side of a cursor.
func (q *letterQuery) place(c cursor) {
	switch {
	case c.direction == older && lessID(c.id, q.upper):
		q.upper = c.id
	case c.direction == newer && lessID(q.lower, c.id):
		q.lower = c.id
	}
}

func lessID(a, b uuid.UUID) bool { return strings.Compare(string(a[:]), string(b[:])) < 0 }

// idAt is the smallest UUIDv7 that may name a millisecond, by letter_month's rule.
func idAt(ms int64) uuid.UUID {
	var id uuid.UUID
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// ceilMillis is the first whole millisecond at or after t; letters are dated to
// the millisecond.
func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return min(max(ms, 0), 1<<48-1)
}

// idFloor is an exclusive lower bound for letters of since or later.
func idFloor(since time.Time) uuid.UUID {
	if since.IsZero() {
		return uuid.Nil
	}
	return beforeID(idAt(ceilMillis(since)))
}

// idCeiling is an exclusive upper bound for letters before until.
func idCeiling(until time.Time) uuid.UUID {
	if until.IsZero() {
		return uuid.Max
	}
	return idAt(ceilMillis(until))
}

// arrived is the time that a letter's id names.
func arrived(id uuid.UUID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}

// Settings of a batch of list statements. They use generic plans: planning a merge
// over many months costs more than running it (schema-probe.md). Where indexes give
// the order, nothing is sorted: what looks like a few letters on average are all
// those of the largest fault.
const (
	sqlGeneric = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)`
	sqlWalking = sqlGeneric + `, set_config('enable_sort', 'off', true)`
)

// settings are those of a batch that runs ids.
func (q letterQuery) settings() string {
	if q.via || q.event {
		return sqlGeneric
	}
	return sqlWalking
}

// brokerName is the API's name of letter_source.broker.
func brokerName(kind int16) string {
	if kind == 2 {
		return "rabbitmq"
	}
	return "kafka"
}
