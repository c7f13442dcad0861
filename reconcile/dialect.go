package reconcile

import "strings"

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

// amount writes the amount as its digits.
func (d dialect) amount(c column) string {
	switch {
	case c.name == "":
		return "null"
	case d == mysql:
		return "side." + d.quote(c.name)
	}
	return "side." + d.quote(c.name) + "::text"
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

// sentCurrency is the currency where nothing is done with it but reading.
func (d dialect) sentCurrency(c column) string {
	if d == mysql && c.name != "" {
		return "side." + d.quote(c.name)
	}
	return d.currency(c)
}

// ordered selects a side's rows in the order of their keys. Rows that lack a
// part of it are left out: they are counted apart.
func (d dialect) ordered(query string, s shape, kinds []kind) string {
	var columns, order, present []string
	for i, c := range s.key {
		columns = append(columns, d.part(c, kinds[i]))
		order = append(order, d.order(c, kinds[i]))
		present = append(present, "side."+d.quote(c.name)+" is not null")
	}
	return "select " + strings.Join(columns, ", ") + ", " + d.amount(s.amount) + ", " + d.sentCurrency(s.currency) + ", side." + d.quote(s.time.name) +
		" from (" + query + ") side where " + strings.Join(present, " and ") + " order by " + strings.Join(order, ", ")
}

// totals sums a side up per currency, rows without a key apart.
func (d dialect) totals(query string, s shape) string {
	amount := "null"
	if s.amount.name != "" {
		amount = "sum(side." + d.quote(s.amount.name) + ")"
		if d == postgres {
			amount += "::text"
		}
	}
	return "select " + d.currency(s.currency) + ", " + d.keyless(s) + ", count(*), " + amount +
		" from (" + query + ") side group by 1, 2"
}

// keyless writes 1 for a row that lacks a part of its key.
func (d dialect) keyless(s shape) string {
	var missing []string
	for _, c := range s.key {
		missing = append(missing, "side."+d.quote(c.name)+" is null")
	}
	return "case when " + strings.Join(missing, " or ") + " then 1 else 0 end"
}
