package outbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"oncemore/consumer"
)

// Headers are stored as JSON that people can read: [["trace","abc"],["raw",{"base64":"/w=="}],["none",null]].

type binary struct {
	Base64 string `json:"base64"`
}

func encodeHeaders(headers []consumer.Header) (string, error) {
	pairs := make([][2]any, 0, len(headers))
	for _, h := range headers {
		pairs = append(pairs, [2]any{text([]byte(h.Name)), text(h.Value)})
	}
	b, err := json.Marshal(pairs)
	return string(b), err
}

func text(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return binary{base64.StdEncoding.EncodeToString(b)}
}

func decodeHeaders(stored string) ([]consumer.Header, error) {
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal([]byte(stored), &pairs); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	headers := make([]consumer.Header, 0, len(pairs))
	for _, p := range pairs {
		name, err := bytesOf(p[0])
		if err != nil {
			return nil, err
		}
		value, err := bytesOf(p[1])
		if err != nil {
			return nil, err
		}
		headers = append(headers, consumer.Header{Name: string(name), Value: value})
	}
	return headers, nil
}

func bytesOf(raw json.RawMessage) ([]byte, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return []byte(s), err
	}
	var b binary
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	return base64.StdEncoding.DecodeString(b.Base64)
}
