package amqpform

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// Text shows a value to people: strings as they are, numbers in full, times in
// RFC 3339, bytes in base64, arrays and tables as JSON. Bytes that are not what
// the type says are shown in base64.
func (f Field) Text() string {
	value, err := f.Decode()
	if err != nil {
		return base64.StdEncoding.EncodeToString(f.Value)
	}
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case amqp.Table, []any:
		text, err := json.Marshal(shown(v))
		if err != nil {
			return base64.StdEncoding.EncodeToString(f.Value)
		}
		return string(text)
	}
	return fmt.Sprint(shown(value))
}

// JSON is the value in terms of JSON, for the API: nil, bool, json.Number, string,
// []any and map[string]any.
func (f Field) JSON() any {
	value, err := f.Decode()
	if err != nil {
		return base64.StdEncoding.EncodeToString(f.Value)
	}
	return shown(value)
}

func shown(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		m := make(map[string]any, len(v))
		for name, item := range v {
			m[name] = shown(item)
		}
		return m
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = shown(item)
		}
		return items
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Decimal:
		return json.Number(rabbit.DecimalText(v))
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float32:
		return float(float64(v), 32)
	case float64:
		return float(v, 64)
	case int8, byte, int16, uint16, int32, uint32, int64:
		return json.Number(fmt.Sprint(v))
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	}
	return value
}

// float is a number, or a text for what JSON has no number for.
func float(v float64, bits int) any {
	text := strconv.FormatFloat(v, 'g', -1, bits)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return text
	}
	return json.Number(text)
}
