package web

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
)

// decode reads a JSON object strictly: names as spelled, each once, none that is
// unknown, no text that PostgreSQL could not store. Every error names the field.
func decode(c echo.Context, into any) error {
	body, err := jsonBody(c)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return &fieldError{Field: "body", Text: "is empty"}
	}
	return decodeBytes(body, into)
}

// decodeOptional is decode where the body may be left out.
func decodeOptional(c echo.Context, into any) error {
	body, err := jsonBody(c)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return decodeBytes(body, into)
}

// reasonJSON is the body of a command.
type reasonJSON struct {
	Reason string `json:"reason"`
}

// commander reads a command that takes nothing but a reason, which may be left
// out: who gives it, and why.
func commander(c echo.Context) (access.Actor, error) {
	if err := noQuery(c); err != nil {
		return access.Actor{}, err
	}
	var body reasonJSON
	if err := decodeOptional(c, &body); err != nil {
		return access.Actor{}, err
	}
	return actorBecause(c, body.Reason), nil
}

func jsonBody(c echo.Context) ([]byte, error) {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if len(body) == 0 {
		return nil, nil
	}
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || media != "application/json" {
		return nil, errMediaType
	}
	return body, nil
}

func decodeBytes(body []byte, into any) error {
	if err := checkTexts(body); err != nil {
		return err
	}
	return asFieldError(json.Unmarshal(body, into, json.RejectUnknownMembers(true)))
}

// checkTexts walks all texts of the document, wherever they stand.
func checkTexts(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return asFieldError(err)
		}
		if token.Kind() != '"' {
			continue
		}
		if why := badText(token.String()); why != "" {
			return &fieldError{Field: fieldName(dec.StackPointer()), Text: why}
		}
	}
}

func asFieldError(err error) error {
	if err == nil {
		return nil
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return &fieldError{Field: fieldName(semantic.JSONPointer), Text: semanticText(semantic)}
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		text := fmt.Sprintf("is not valid JSON at byte %d", syntactic.ByteOffset)
		if errors.Is(err, jsontext.ErrDuplicateName) {
			text = "is given more than once"
		}
		return &fieldError{Field: fieldName(syntactic.JSONPointer), Text: text}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &fieldError{Field: "body", Text: "ends too early"}
	}
	return &fieldError{Field: "body", Text: "is not a JSON object"}
}

func semanticText(e *json.SemanticError) string {
	switch {
	case errors.Is(e.Err, json.ErrUnknownName):
		return "is not a field of this request"
	case e.JSONKind != 0:
		return "cannot be a JSON " + kindName(e.JSONKind)
	}
	return "cannot be read"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	case '"':
		return "text"
	case '0':
		return "number with that value"
	case '{':
		return "object"
	}
	return "array"
}

// fieldName is a JSON pointer without its first slash; the whole document is the body.
func fieldName(p jsontext.Pointer) string {
	if p == "" {
		return "body"
	}
	return printable(strings.TrimPrefix(string(p), "/"))
}
