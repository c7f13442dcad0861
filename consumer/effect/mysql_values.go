package effect

import (
	"encoding/json"
	"regexp"
	"strings"

	"oncemore/consumer"
)

// mysql writes the statement for one event: numbers into the text, all else as
// arguments of its question marks.
func (st statement) mysql(ev consumer.Event, more map[string]any) (string, []any, error) {
	f := fields{ev: ev}
	values := make([]mysqlValue, len(st.params))
	for i, name := range st.params {
		value, given := more[name]
		if given {
			values[i] = mysqlValue{arg: asText(value)}
			continue
		}
		var err error
		if values[i], err = f.mysqlValue(name); err != nil {
			return "", nil, err
		}
	}
	var text strings.Builder
	var args []any
	for i, part := range st.parts {
		text.WriteString(part)
		if i == len(st.order) {
			break
		}
		if value := values[st.order[i]]; value.literal != "" {
			text.WriteString(value.literal)
		} else {
			text.WriteByte('?')
			args = append(args, value.arg)
		}
	}
	return text.String(), args, nil
}

// asText makes text of bytes, which a driver would send as binary.
func asText(value any) any {
	if b, ok := value.([]byte); ok {
		return string(b)
	}
	return value
}

// mysqlValue is a parameter's value: written into the statement, or bound.
type mysqlValue struct {
	literal string
	arg     any
}

// exact is a number that MySQL reads as an integer or a decimal: it has up to 65
// digits. With an exponent it would be a float.
var exact = regexp.MustCompile(`^-?[0-9]{1,35}(\.[0-9]{1,30})?$`)

func (f *fields) mysqlValue(name string) (v mysqlValue, _ error) {
	raw, err := f.raw(name)
	if err != nil {
		return v, err
	}
	switch text := string(raw); {
	case exact.MatchString(text):
		return mysqlValue{literal: asLiteral(raw)}, nil
	case text == "true" || text == "false":
		return mysqlValue{arg: text == "true"}, nil
	}
	text, err := f.text(name)
	if err == nil && text != nil {
		v.arg = *text
	}
	return v, err
}

// asLiteral keeps a number apart from the word or the minus before it.
func asLiteral(number json.RawMessage) string {
	if number[0] == '-' {
		return " (" + string(number) + ")"
	}
	return " " + string(number)
}
