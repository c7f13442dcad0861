package reconcile

import (
	"fmt"
	"slices"
	"strings"
)

// class is what a column can be used for.
type class int

const (
	classOther class = iota
	classText
	classInt
	classUUID
	classBytes
	classDecimal
	classFloat
	classInstant // with a zone, or kept in UTC
	classLocal   // a date and time without a zone
)

// column is one of a side's result.
type column struct {
	name     string
	class    class
	declared string // its type in the database's words
}

// shape is what is known of a side's result.
type shape struct {
	key      []column
	amount   column
	currency column
	time     column
}

func find(columns []column, name string) (column, error) {
	for _, c := range columns {
		if c.name == name {
			return c, nil
		}
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.name
	}
	return column{}, fmt.Errorf("%w: gives no column %s; it gives %s", errStatement, name, strings.Join(names, ", "))
}

// shape finds a party's columns and refuses those that cannot be compared.
func (j *Job) shape(p Party, columns []column) (shape, error) {
	var s shape
	var err error
	for _, name := range j.Key {
		c, err := find(columns, name)
		if err != nil {
			return s, err
		}
		if !slices.Contains([]class{classText, classInt, classUUID, classBytes}, c.class) {
			return s, fmt.Errorf("%w: key %s is %s; cast it to text, bigint or uuid", errStatement, name, c.declared)
		}
		s.key = append(s.key, c)
	}
	if s.time, err = find(columns, j.timeColumn(p)); err != nil {
		return s, err
	}
	if s.time.class != classInstant && s.time.class != classLocal {
		return s, fmt.Errorf("%w: time %s is %s; it has to be a timestamp", errStatement, s.time.name, s.time.declared)
	}
	if j.Match.Amount == "" {
		return s, nil
	}
	if s.amount, err = find(columns, j.Match.Amount); err != nil {
		return s, err
	}
	switch s.amount.class {
	case classDecimal, classInt:
	case classFloat:
		return s, fmt.Errorf("%w: amount %s is %s, which cannot hold 0.10 exactly; store it as decimal, or cast it in the query to the digits it was written with", errStatement, s.amount.name, s.amount.declared)
	default:
		return s, fmt.Errorf("%w: amount %s is %s; it has to be a decimal or an integer", errStatement, s.amount.name, s.amount.declared)
	}
	if j.Match.Currency == "" {
		return s, nil
	}
	if s.currency, err = find(columns, j.Match.Currency); err == nil && s.currency.class != classText {
		err = fmt.Errorf("%w: currency %s is %s; it has to be text", errStatement, s.currency.name, s.currency.declared)
	}
	return s, err
}

// kinds says how the key's columns are compared: as what all sides have, else
// as UUIDs where one has UUIDs, else as text.
func (j *Job) kinds(shapes []shape) ([]kind, error) {
	kinds := make([]kind, len(j.Key))
	for i, name := range j.Key {
		classes := map[class]string{}
		for _, s := range shapes {
			classes[s.key[i].class] = s.key[i].declared
		}
		k, err := meet(classes)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", name, err)
		}
		kinds[i] = k
	}
	return kinds, nil
}

func meet(classes map[class]string) (kind, error) {
	_, text := classes[classText]
	integer, isInt := classes[classInt]
	_, id := classes[classUUID]
	raw, isRaw := classes[classBytes]
	switch {
	case isInt && (id || isRaw), isRaw && text && !id:
		other := raw
		if !isRaw {
			other = classes[classUUID]
		}
		if !isInt {
			integer = classes[classText]
		}
		return 0, fmt.Errorf("%s on one side cannot be compared with %s on another; cast one of them", integer, other)
	case id:
		return kindUUID, nil
	case text:
		return kindText, nil
	case isInt:
		return kindInt, nil
	}
	return kindBytes, nil
}
