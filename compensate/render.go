package compensate

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"oncemore/reconcile"
)

// ErrInput is returned for a name that the repaired thing has nothing for.
var ErrInput = errors.New("compensate: there is no such input")

var placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z0-9_.-]+)\s*\}\}`)

// render puts inputs in the place of {{names}}. escape writes a value for where
// it stands.
func render(text string, in Inputs, escape func(string) string) (string, error) {
	var bad error
	out := placeholder.ReplaceAllStringFunc(text, func(mark string) string {
		name := placeholder.FindStringSubmatch(mark)[1]
		value, ok := in[name]
		if !ok {
			bad = fmt.Errorf("%w: %s", ErrInput, name)
		}
		return escape(value)
	})
	return out, bad
}

func plain(s string) string { return s }

// renderBody renders the texts of a tree.
func renderBody(tree any, in Inputs) (any, error) {
	switch v := tree.(type) {
	case string:
		return render(v, in, plain)
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, value := range v {
			rendered, err := renderBody(value, in)
			if err != nil {
				return nil, err
			}
			object[key] = rendered
		}
		return object, nil
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			rendered, err := renderBody(value, in)
			if err != nil {
				return nil, err
			}
			list[i] = rendered
		}
		return list, nil
	}
	return tree, nil
}

func bodyJSON(tree any, in Inputs) (string, error) {
	if tree == nil {
		return "", nil
	}
	rendered, err := renderBody(tree, in)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(rendered)
	return string(b), err
}

// inputsOf are what a break gives to its repair. columns are the job's key.
func inputsOf(b reconcile.Break, columns []string) Inputs {
	in := Inputs{"job": b.Job, "break": fmt.Sprint(b.ID), "type": string(b.Type), "currency": b.Currency, "difference": b.Amount.String()}
	for i, column := range columns {
		in["key."+column] = b.Key[i]
	}
	if b.EventID != nil {
		in["event_id"] = *b.EventID
	}
	for p, side := range b.Sides {
		if side.Rows == 0 {
			continue
		}
		name := reconcile.Party(p).String()
		in[name+".amount"], in[name+".currency"], in[name+".rows"] = side.Amount.String(), side.Currency, fmt.Sprint(side.Rows)
	}
	if difference, negative := strings.CutPrefix(in["difference"], "-"); negative {
		in["excess"] = difference // what is too much, without its sign
	}
	return in
}
