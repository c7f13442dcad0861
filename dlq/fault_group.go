package dlq

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// GroupKey is what faults, or letters, are gathered by.
type GroupKey string

// The groupings. The first five are exact, from the counters of faults. Frame
// and shape are read off the newest letters, GroupSample of them at most.
const (
	BySource  GroupKey = "source"
	ByGroup   GroupKey = "group"
	ByClass   GroupKey = "class"
	ByMessage GroupKey = "message" // normalised
	ByDialect GroupKey = "dialect"
	ByFrame   GroupKey = "frame" // class and first own stack frame
	ByShape   GroupKey = "shape" // of the payload: names and kinds of its fields
)

// GroupKeys lists the groupings by their API names.
var GroupKeys = []GroupKey{BySource, ByGroup, ByClass, ByMessage, ByDialect, ByFrame, ByShape}

// GroupSample is how many letters the groupings by frame and shape look at.
const GroupSample = 2000

// FaultGroup is what has one thing in common.
type FaultGroup struct {
	Value    string // "" not known
	Cluster  string // of a source
	Class    string // with a frame
	Faults   int64  // 0 where letters are grouped
	Open     int64  // open letters; of a sample: letters in it
	LastSeen time.Time
	Letter   *uuid.UUID // the newest one, where letters are grouped
}

// Grouping is the groups of a list, largest first.
type Grouping struct {
	Groups  []FaultGroup // at most 200
	More    bool         // there are smaller ones
	Sampled int          // letters looked at; 0: the counts are exact
	Of      int64        // letters that match, where Sampled is not 0
	Bounded bool         // Of is "at least"
}

// groupNamed are the groupings that the fault determines: the value, and what it
// is grouped by.
var groupNamed = map[GroupKey]struct{ value, cluster, join string }{
	BySource:  {"s.name", "s.cluster", "JOIN letter_source s ON s.id = x.source_id"},
	ByGroup:   {"coalesce(n.name, '')", "''", "LEFT JOIN letter_name n ON n.id = x.group_id"},
	ByClass:   {"coalesce(n.name, '')", "''", "LEFT JOIN letter_name n ON n.id = x.class_id"},
	ByDialect: {"coalesce(n.name, '')", "''", "LEFT JOIN letter_name n ON n.id = x.dialect_id"},
	ByMessage: {"x.message", "''", ""},
}

// maxGroups is how many groups a page shows.
const maxGroups = 200

// GroupBy gathers the faults of a filter. frame names the first own frame of a
// letter's stack trace; it is asked for ByFrame only. Errors: *ErrBadFilter.
func (f *Faults) GroupBy(ctx context.Context, filter FaultFilter, by GroupKey, frame func(LetterDetail, Body) string) (Grouping, error) {
	filter, err := filter.normal()
	if err != nil {
		return Grouping{}, err
	}
	named, ok := groupNamed[by]
	switch {
	case by == ByFrame || by == ByShape:
		return f.groupSample(ctx, filter, by, frame)
	case !ok:
		return Grouping{}, &ErrBadFilter{Field: "by", Reason: "must be one of " + joinKeys(GroupKeys)}
	}
	dims, ok, err := lookUpDimensions(ctx, f.pool, filter.letters())
	if err != nil || !ok {
		return Grouping{}, err
	}
	args := dimensionArgs(dims)
	args["now"], args["rows"] = f.clock(), maxGroups+1
	sql := fmt.Sprintf(sqlFaultCounted, filter.condition(dims, args)) + fmt.Sprintf(`
SELECT %s, %s, '', count(*), sum(x.open_n)::bigint, max(x.last_seen), NULL::uuid
FROM x %s WHERE %s GROUP BY 1, 2 ORDER BY 5 DESC, 4 DESC, 1 LIMIT @rows`, named.value, named.cluster, named.join, tabConditions[filter.Tab])
	rows, err := f.pool.Query(ctx, sql, args)
	if err != nil {
		return Grouping{}, fmt.Errorf("group faults: %w", err)
	}
	var g Grouping
	if g.Groups, err = pgx.CollectRows(rows, pgx.RowToStructByPos[FaultGroup]); err != nil {
		return Grouping{}, fmt.Errorf("read groups of faults: %w", err)
	}
	return g.cut(), nil
}

func joinKeys(keys []GroupKey) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

func (g Grouping) cut() Grouping {
	g.More = len(g.Groups) > maxGroups
	g.Groups = g.Groups[:min(len(g.Groups), maxGroups)]
	return g
}

// tabStates are the letters that a tab is about.
var tabStates = map[FaultTab]State{TabOpen: Open, TabReplaying: Replaying, TabResolved: Resolved, TabDiscarded: Discarded}

const sqlSampleBodies = `
SELECT d.id, s.broker, s.name, coalesce(c.name, ''), d.error_message, b.key, b.value, b.headers
FROM dead_letter d JOIN dead_letter_body b ON b.id = d.id
JOIN letter_source s ON s.id = d.source_id LEFT JOIN letter_name c ON c.id = d.class_id
WHERE d.id = ANY(@ids)
ORDER BY d.id DESC`

// groupSample reads the newest letters of the filter.
func (f *Faults) groupSample(ctx context.Context, filter FaultFilter, by GroupKey, frame func(LetterDetail, Body) string) (Grouping, error) {
	letters := NewLetters(f.pool)
	wanted := filter.letters()
	wanted.State, wanted.Owner = tabStates[filter.Tab], filter.Owner
	ids, err := letters.newest(ctx, wanted, GroupSample)
	if err != nil {
		return Grouping{}, err
	}
	g := Grouping{Sampled: len(ids)}
	if g.Of, g.Bounded, err = letters.Count(ctx, wanted); err != nil {
		return g, err
	}
	found := map[[2]string]*FaultGroup{}
	for part := range slices.Chunk(ids, 200) {
		if err := f.addSample(ctx, part, by, frame, found); err != nil {
			return g, err
		}
	}
	for _, one := range found {
		g.Groups = append(g.Groups, *one)
	}
	slices.SortFunc(g.Groups, func(a, b FaultGroup) int {
		return cmp.Or(cmp.Compare(b.Open, a.Open), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Value, b.Value))
	})
	return g.cut(), nil
}

func (f *Faults) addSample(ctx context.Context, ids []uuid.UUID, by GroupKey, frame func(LetterDetail, Body) string, found map[[2]string]*FaultGroup) error {
	rows, err := f.pool.Query(ctx, sqlSampleBodies, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return fmt.Errorf("query a sample of letters: %w", err)
	}
	var l LetterDetail
	var broker int16
	var class string
	var body Body
	var headers []byte
	_, err = pgx.ForEachRow(rows, []any{&l.ID, &broker, &l.Source, &class, &l.ErrorMessage, &body.Key, &body.Value, &headers}, func() error {
		key := [2]string{"", ""}
		if by == ByShape {
			key[1] = shapeOf(body.Value)
		} else {
			l.Broker = brokerName(broker)
			body.Headers, _ = DecodeHeaders(headers) // damaged ones name no frame
			key = [2]string{class, frame(l, body)}
		}
		if found[key] == nil {
			id := l.ID
			found[key] = &FaultGroup{Class: key[0], Value: key[1], LastSeen: arrived(id), Letter: &id}
		}
		found[key].Open++
		return nil
	})
	if err != nil {
		return fmt.Errorf("read a sample of letters: %w", err)
	}
	return nil
}

// newest gives at most n letters of the filter, newest first.
func (l *Letters) newest(ctx context.Context, f LetterFilter, n int) ([]uuid.UUID, error) {
	q, err := l.query(ctx, f)
	if err != nil || q.none {
		return nil, err
	}
	if f.Compared() {
		w, err := l.comparing(ctx, f, q, older, l.budgets.bytes)
		if err != nil {
			return nil, err
		}
		found, err := w.collect(ctx, n)
		return found.ids, err
	}
	rows, err := l.pool.Query(ctx, q.ids(older, n), q.named())
	if err != nil {
		return nil, fmt.Errorf("query newest letters: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read newest letters: %w", err)
	}
	return ids, nil
}

// shapeFields is how many fields a shape names.
const shapeFields = 12

// shapeOf names the fields of a JSON object and their kinds, in order of name;
// other payloads by what they are.
func shapeOf(value []byte) string {
	switch {
	case value == nil:
		return "null"
	case len(value) == 0:
		return "empty"
	}
	fields, kind := topFields(value)
	if kind != "object" {
		return kind
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, name+": "+fields[name])
	}
	if more := len(parts) - shapeFields; more > 0 {
		parts = append(parts[:shapeFields], fmt.Sprintf("… %d more", more))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
