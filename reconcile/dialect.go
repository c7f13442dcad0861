package reconcile

import (
	"fmt"
	"strings"
)

// dialect is the SQL of a database.
type dialect int

const (
	postgres dialect = iota
	mysql
)

func (d dialect) quote(name string) string {
	if d == mysql {
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// order writes a key's column so that the database sorts it by the bytes that
// it is encoded to here.
func (d dialect) order(c column, k kind) string {
	if d == mysql && k == kindText {
		return "cast(convert(side." + d.quote(c.name) + " using utf8mb4) as binary)"
	}
	return d.part(c, k)
}

// part writes a key's column so that it can be encoded. MySQL sends text as
// UTF-8, whatever it is kept in.
func (d dialect) part(c column, k kind) string {
	name := "side." + d.quote(c.name)
	if d == mysql {
		if k == kindUUID && c.class == classText {
			return "unhex(replace(" + name + ", '-', ''))"
		}
		return name
	}
	switch {
	case k == kindText:
		return name + `::text collate "C"`
	case k == kindInt:
		return name + "::bigint"
	case k == kindUUID && c.class == classBytes:
		return "encode(" + name + ", 'hex')::uuid"
	case k == kindUUID:
		return name + "::uuid"
	}
	return name
}

// currency writes the currency so that it is grouped and compared by its bytes,
// whatever the column's collation takes for equal; a CHAR's padding is none of them.
func (d dialect) currency(c column) string {
	if c.name == "" {
		return "''"
	}
	name := "side." + d.quote(c.name)
	if d == mysql {
		return "coalesce(cast(convert(" + name + " using utf8mb4) as binary), '')"
	}
	return "coalesce(" + name + `::text collate "C", '')`
}

// sent is a column, or nothing, where nothing is done with it but reading.
func (d dialect) sent(c column) string {
	if c.name == "" {
		return "null"
	}
	return "side." + d.quote(c.name)
}

// ordered selects a side's rows in the order of their keys. Rows that lack a
// part of it are left out: they are counted apart.
func (d dialect) ordered(query string, s shape, kinds []kind) string {
	var columns, order []string
	for i, c := range s.key {
		columns = append(columns, d.part(c, kinds[i]))
		order = append(order, d.order(c, kinds[i]))
	}
	present, _ := d.keys(s)
	return "select " + strings.Join(columns, ", ") + ", " + d.sent(s.amount) + ", " + d.sent(s.currency) + ", " + d.sent(s.time) +
		" from (" + query + ") side where " + present + " order by " + strings.Join(order, ", ")
}

// totals sums a side up per currency.
func (d dialect) totals(query string, s shape) string {
	name, by := d.grouped(s.currency)
	return "select " + name + ", " + d.sums(s, "") + " from (" + query + ") side group by " + by
}

// grouped writes the currency to group by, and how a group is named. PostgreSQL
// gives NULL and an empty one two groups of one name: a conversion per group costs
// less than one per row.
func (d dialect) grouped(c column) (name, by string) {
	if d == mysql || c.name == "" {
		return d.currency(c), "1"
	}
	by = "side." + d.quote(c.name) + ` collate "C"`
	return "coalesce(" + by + ", '')::text", by
}

// oneTotal counts and adds up a side whose rows seem to be of one currency, and
// tells whether they are and all have their keys: grouping rows and telling them
// apart takes MySQL twice as long as adding them up.
func (d dialect) oneTotal(query string, s shape) string {
	amount, all := "null", []string{}
	for _, c := range s.key {
		all = append(all, "count("+d.sent(c)+") = count(*)")
	}
	if s.amount.name != "" {
		amount = "sum(" + d.sent(s.amount) + ")"
	}
	if s.currency.name != "" {
		currency := d.sent(s.currency)
		all = append(all, "count("+currency+") in (0, count(*))", "coalesce(min(cast("+currency+" as binary)) = max(cast("+currency+" as binary)), 1)")
	}
	return "select count(*), " + amount + ", " + strings.Join(all, " and ") + " from (" + query + ") side"
}

// sums counts and adds up the rows that have a key, and apart those that lack a
// part of it: four columns, as Tally.control reads them. among begins a condition
// of all of them; empty: none. A planner knows how many currencies there are, and
// would sort all rows were they grouped by their keys as well.
func (d dialect) sums(s shape, among string) string {
	present, missing := d.keys(s)
	columns := "count(case when %[1]s%[2]s then 1 end), null"
	if s.amount.name != "" {
		columns = "count(case when %[1]s%[2]s then 1 end), sum(case when %[1]s%[2]s then %[3]s end)"
	}
	return fmt.Sprintf(columns, among, present, d.sent(s.amount)) + ", " + fmt.Sprintf(columns, among, missing, d.sent(s.amount))
}

// keys are the conditions that a row has its whole key, and that it has not.
func (d dialect) keys(s shape) (present, missing string) {
	var has, lacks []string
	for _, c := range s.key {
		name := "side." + d.quote(c.name)
		has, lacks = append(has, name+" is not null"), append(lacks, name+" is null")
	}
	return strings.Join(has, " and "), "(" + strings.Join(lacks, " or ") + ")"
}
