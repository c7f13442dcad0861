package web

import (
	"slices"
	"strings"

	"oncemore/views"
	"oncemore/views/locale"
)

// letterColumn is a column that a list of letters can show beside the event id,
// which is always there.
type letterColumn struct {
	name   string   // in the address
	label  string   // catalog key
	export []string // columns of a file that it stands for
}

// letterColumnsKnown are in the order in which they are shown, however they are asked for.
var letterColumnsKnown = []letterColumn{
	{"state", "letter.state", []string{"state", "state_at"}},
	{"consumer_group", "columns.consumer_group", []string{"consumer_group"}},
	{"source", "columns.source", []string{"cluster", "broker", "source"}},
	{"dialect", "columns.dialect", []string{"dialect"}},
	{"origin", "columns.origin", []string{"origin_topic", "origin_partition", "origin_offset"}},
	{"error_class", "columns.error_class", []string{"error_class"}},
	{"error_message", "columns.error_message", []string{"error_message"}},
	{"verdict", "letter.verdict", []string{"verdict", "verdict_at"}},
	{"attempts", "letter.attempts", []string{"attempts"}},
	{"occurrences", "columns.occurrences", []string{"occurrences"}},
	{"replay_count", "columns.replay_count", []string{"replay_count"}},
	{"owner", "filter.owner", []string{"owner"}},
	{"event_time", "columns.event_time", []string{"event_time"}},
	{"failed_at", "columns.failed_at", []string{"failed_at"}},
	{"drained_at", "letter.arrived", []string{"drained_at"}},
}

// columns reads which columns a list shows: names with commas between them, or
// from a form one each. Nil: the usual ones.
func (q *query) columns() []string {
	given := q.values["columns"]
	q.values.Del("columns")
	q.asked = append(q.asked, "columns")
	asked := map[string]bool{}
	for _, name := range strings.Split(strings.Join(given, ","), ",") {
		if name != "" {
			asked[name] = true
		}
	}
	var chosen []string
	for _, column := range letterColumnsKnown {
		if asked[column.name] {
			chosen = append(chosen, column.name)
			delete(asked, column.name)
		}
	}
	if len(asked) > 0 {
		var names []string
		for _, column := range letterColumnsKnown {
			names = append(names, column.name)
		}
		q.fail("columns", "are names with commas between them, of "+strings.Join(names, ", "))
	}
	return chosen
}

// exportColumns are the columns of a file, by their place among all: those that
// the list shows, and always which letter it is.
func exportColumns(chosen []string) (names []string, places []int) {
	want := map[string]bool{"id": true, "event_id": true}
	for _, column := range letterColumnsKnown {
		for _, name := range column.export {
			want[name] = len(chosen) == 0 || slices.Contains(chosen, column.name)
		}
	}
	for i, name := range letterColumns {
		if len(chosen) == 0 || want[name] {
			names, places = append(names, name), append(places, i)
		}
	}
	return names, places
}

// picked are the cells at places.
func picked(cells []any, places []int) []any {
	out := make([]any, len(places))
	for i, at := range places {
		out[i] = cells[at]
	}
	return out
}

// usualColumns are what the usual list shows, in fewer columns.
var usualColumns = []string{"consumer_group", "source", "dialect", "error_class", "error_message", "verdict", "attempts", "drained_at"}

// columnMenu offers the columns; the list's filter stays as it is.
func columnMenu(here locale.Locale, q letterQuery) views.ColumnMenu {
	without := q
	without.columns = nil
	m := views.ColumnMenu{Action: "/letters", Hidden: params(without.pairs()...)}
	if len(q.columns) > 0 {
		m.Usual = without.address("")
	}
	for _, column := range letterColumnsKnown {
		chosen := slices.Contains(q.columns, column.name) || len(q.columns) == 0 && slices.Contains(usualColumns, column.name)
		m.Columns = append(m.Columns, views.Column{Name: column.name, Label: here.Text(column.label), Chosen: chosen})
	}
	return m
}
