// Package export writes tables as CSV, JSON lines and XLSX, row by row, so that
// a list of any length takes little memory. Texts come out as they are: ids never
// become numbers, and nothing that a spreadsheet would take for a formula is one.
package export

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Format is a file format by its API name.
type Format string

// The formats.
const (
	CSV   Format = "csv"
	JSONL Format = "jsonl"
	XLSX  Format = "xlsx"
)

// ErrFormat is returned for a format that does not exist.
var ErrFormat = errors.New("export: the format is one of csv, jsonl, xlsx")

// MediaType is the format's, for the answer's header.
func (f Format) MediaType() string {
	switch f {
	case CSV:
		return "text/csv; charset=utf-8"
	case JSONL:
		return "application/x-ndjson"
	}
	return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
}

// Writer takes the rows of one table. A cell is a string, an int64, a time.Time
// (written in UTC, RFC 3339) or nil, which is not known. Close writes what is
// left; without it the file is not whole.
type Writer interface {
	Write(cells []any) error
	Close() error
}

// New writes a table with these column names to w. Errors: ErrFormat, or w's.
func New(f Format, w io.Writer, columns []string) (Writer, error) {
	switch f {
	case CSV:
		return newCSV(w, columns)
	case JSONL:
		return &jsonlWriter{w: w, columns: columns}, nil
	case XLSX:
		return newXLSX(w, columns)
	}
	return nil, fmt.Errorf("%w, not %q", ErrFormat, string(f))
}

type csvWriter struct{ w *csv.Writer }

func newCSV(w io.Writer, columns []string) (Writer, error) {
	c := &csvWriter{csv.NewWriter(w)}
	return c, c.w.Write(columns)
}

func (c *csvWriter) Write(cells []any) error {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = plain(cell)
		if _, text := cell.(string); text {
			row[i] = harmless(row[i])
		}
	}
	return c.w.Write(row)
}

// harmless puts an apostrophe before what a spreadsheet would take for a formula:
// CSV has no types, so that is the only way to say that it is text. JSON lines
// and XLSX need none.
func harmless(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

func (c *csvWriter) Close() error {
	c.w.Flush()
	return c.w.Error()
}

func plain(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	panic(fmt.Sprintf("export: a cell cannot be a %T", cell))
}

type jsonlWriter struct {
	w       io.Writer
	columns []string
}

func (j *jsonlWriter) Write(cells []any) error {
	var b strings.Builder
	b.WriteByte('{')
	for i, cell := range cells {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(j.columns[i])
		if err != nil {
			return err
		}
		value := []byte("null")
		switch v := cell.(type) {
		case nil:
		case int64:
			value = strconv.AppendInt(nil, v, 10)
		default:
			if value, err = json.Marshal(plain(cell)); err != nil {
				return err
			}
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(j.w, b.String())
	return err
}

func (j *jsonlWriter) Close() error { return nil }
