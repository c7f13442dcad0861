package web

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

// editOf is the form as it stands, before anybody edits it.
func editOf(f dlq.Form) dlq.Edit {
	return dlq.Edit{Base: f.No, Key: f.Body.Key, Value: f.Body.Value, Document: f.Document, Headers: f.Body.Headers}
}

// valueKind is how the page edits a value: text whose lines end in one way, so
// that a browser gives them back, else hex.
func valueKind(f dlq.Form) string {
	if f.EditAs == dlq.EditText && !oneLineEnd(string(f.Body.Value)) {
		return string(dlq.EditBinary)
	}
	return string(f.EditAs)
}

// typeable reports whether a text field gives a value back as it is.
func typeable(b []byte) bool {
	return utf8.Valid(b) && oneLineEnd(string(b)) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' })
}

func oneLineEnd(s string) bool {
	pairs := strings.Count(s, "\r\n")
	return strings.Count(s, "\r") == pairs && (pairs == 0 || strings.Count(s, "\n") == pairs)
}

func valueText(kind string, e dlq.Edit) string {
	switch {
	case kind == string(dlq.EditBinary):
		return hexBlock(e.Value)
	case e.Document != nil:
		return string(e.Document)
	case kind == string(dlq.EditFramed):
		return ""
	}
	return string(e.Value)
}

// hexBlock is 32 bytes a line.
func hexBlock(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 32 {
		out.WriteString(hex.EncodeToString(b[at:min(at+32, len(b))]) + "\n")
	}
	return out.String()
}

// oneLine is a short value for a line of a form: text where base is text of one
// line, else hex.
func oneLine(value, base []byte) (text string, isHex bool) {
	if lineIsText(base) {
		return string(value), false
	}
	return hex.EncodeToString(value), true
}

func lineIsText(b []byte) bool {
	return utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' || r == 0x7f })
}

// oneLineBytes is the reverse of oneLine.
func oneLineBytes(text string, base []byte) ([]byte, error) {
	if lineIsText(base) {
		return []byte(text), nil
	}
	return hexBytes(text)
}

func hexBytes(text string) ([]byte, error) {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n:", r) {
			return -1
		}
		return r
	}, text)
	b, err := hex.DecodeString(clean)
	if err != nil {
		return nil, errBadHex
	}
	return b, nil
}

var errBadHex = errors.New("web: not hexadecimal")

// editOfForm reads what the form says over the form that was edited.
func editOfForm(c echo.Context, f dlq.Form) (dlq.Edit, error) {
	e := editOf(f)
	e.Sensitive, e.AsIs = c.FormValue("sensitive") != "", c.FormValue("as_is") != ""
	e.Seen, _ = strconv.Atoi(c.FormValue("seen")) // 0 is then overtaken, which is said
	if err := takeValue(c, f, &e); err != nil {
		return e, err
	}
	var err error
	switch {
	case c.FormValue("key_null") != "":
		e.Key = nil
	case hasField(c, "key") && (f.Body.Key != nil || c.FormValue("key") != ""):
		if e.Key, err = oneLineBytes(c.FormValue("key"), f.Body.Key); err != nil {
			return e, err
		}
	}
	e.Headers, err = headersOfForm(c, f)
	return e, err
}

func hasField(c echo.Context, name string) bool {
	_, there := c.Request().Form[name]
	return there
}

func takeValue(c echo.Context, f dlq.Form, e *dlq.Edit) error {
	kind := valueKind(f)
	if kind == string(dlq.EditText) && c.FormValue("as_hex") != "" {
		kind = string(dlq.EditBinary)
	}
	upload, err := uploaded(c)
	text := strings.ReplaceAll(c.FormValue("value"), "\r\n", "\n")
	switch {
	case err != nil:
		return err
	case kind == string(dlq.EditNot):
	case upload != nil && kind != string(dlq.EditFramed):
		e.Value = upload
	case c.FormValue("value_null") != "":
		e.Value = nil
	case !hasField(c, "value"):
	case kind == string(dlq.EditFramed) && f.Document != nil:
		e.Document = []byte(text)
	case kind == string(dlq.EditBinary):
		b, err := hexBytes(text)
		if err != nil {
			return err
		}
		if f.Body.Value != nil || len(b) > 0 {
			e.Value = b
		}
	case kind == string(dlq.EditText):
		if strings.Contains(string(f.Body.Value), "\r\n") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if f.Body.Value != nil || text != "" {
			e.Value = []byte(text)
		}
	}
	return nil
}

// uploaded is the file of the form; nil where none was chosen.
func uploaded(c echo.Context) ([]byte, error) {
	header, err := c.FormFile("upload")
	if errors.Is(err, http.ErrMissingFile) || errors.Is(err, http.ErrNotMultipart) || err == nil && header.Filename == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the uploaded file: %w", err)
	}
	file, err := header.Open()
	if err != nil {
		return nil, fmt.Errorf("open the uploaded file: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read the uploaded file: %w", err)
	}
	return append([]byte{}, b...), nil
}

func headersOfForm(c echo.Context, f dlq.Form) ([]dlq.Header, error) {
	var out []dlq.Header
	for i, h := range f.Fields {
		no := strconv.Itoa(i)
		if h.Class != dlq.Locked && c.FormValue("x"+no) != "" {
			continue
		}
		if h.Class != dlq.Locked && h.Value != nil && hasField(c, "h"+no) {
			value, err := oneLineBytes(c.FormValue("h"+no), h.Value)
			if err != nil {
				return nil, err
			}
			h.Value = value
		}
		out = append(out, h.Header)
	}
	if name := strings.TrimSpace(c.FormValue("new_name")); name != "" {
		out = append(out, typedAs(f.Body.Headers, dlq.Header{Name: name, Value: []byte(c.FormValue("new_value"))}))
	}
	return out, nil
}

// editDigest names what was previewed.
func editDigest(e dlq.Edit) string {
	return hexHash(fmt.Sprintf("%t%q|%t%q|%q", e.Key == nil, e.Key, e.Value == nil, e.Value, dlq.EncodeHeaders(e.Headers)))
}
