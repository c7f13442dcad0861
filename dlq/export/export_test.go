package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"
)

var columns = []string{"id", "n", "at", "message"}

// nasty is what a spreadsheet must neither compute nor change.
var nasty = []string{
	"=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "007", "1e5", "7308451300000000001", "2026-11-30", `a"b,c;d`,
	"line\nbreak", "订单-42", "🎉", " spaced ", "", "TRUE", "_x0041_", "<&>", "'quoted",
}

func write(t *testing.T, f Format, rows [][]any) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := New(f, &b, columns)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func nastyRows() [][]any {
	at := time.Date(2026, 11, 30, 13, 58, 11, 902_000_000, time.FixedZone("", 8*3600))
	var rows [][]any
	for i, text := range nasty {
		rows = append(rows, []any{text, int64(i - 3), at, nil})
	}
	return append(rows, []any{"big", int64(9007199254740993), at, "x"})
}

func TestCSVKeepsTextsAndDefusesFormulas(t *testing.T) {
	t.Parallel()
	got, err := csv.NewReader(bytes.NewReader(write(t, CSV, nastyRows()))).ReadAll()
	if err != nil || len(got) != len(nasty)+2 {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	for i, text := range nasty {
		cell := got[i+1][0]
		if strings.ContainsAny(cell[:min(1, len(cell))], "=+-@\t\r") {
			t.Errorf("%q would be computed", cell)
		}
		if strings.TrimPrefix(cell, "'") != strings.TrimPrefix(text, "'") {
			t.Errorf("%q became %q", text, cell)
		}
	}
	if row := got[1]; row[1] != "-3" || row[2] != "2026-11-30T05:58:11.902Z" || row[3] != "" {
		t.Errorf("%q", row)
	}
}

func TestJSONLinesAreExact(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSuffix(string(write(t, JSONL, nastyRows())), "\n"), "\n")
	if len(lines) != len(nasty)+1 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines[:len(nasty)] {
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil || got["id"] != nasty[i] || got["message"] != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if !strings.Contains(lines[len(nasty)], `"n":9007199254740993,`) || !strings.HasPrefix(lines[0], `{"id":`) {
		t.Errorf("%s", lines[len(nasty)])
	}
}

func TestXLSXKeepsTextsAsTexts(t *testing.T) {
	t.Parallel()
	f, err := excelize.OpenReader(bytes.NewReader(write(t, XLSX, nastyRows())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for i, text := range nasty {
		at, err := excelize.CoordinatesToCellName(1, i+2)
		if err != nil {
			t.Fatal(err)
		}
		kind, err := f.GetCellType("Sheet1", at)
		formula, formulaErr := f.GetCellFormula("Sheet1", at)
		value, valueErr := f.GetCellValue("Sheet1", at)
		if err := errors.Join(err, formulaErr, valueErr); err != nil || formula != "" || value != strings.ReplaceAll(text, "\r", "\n") && value != text {
			t.Errorf("%s %q: %q, formula %q, %v", at, text, value, formula, err)
		}
		if text != "" && kind != excelize.CellTypeInlineString && kind != excelize.CellTypeSharedString {
			t.Errorf("%s %q is of type %d", at, text, kind)
		}
	}
	if v, err := f.GetCellValue("Sheet1", "B22"); err != nil || v != "9007199254740993" {
		t.Errorf("%q, %v: a number lost digits", v, err)
	}
}

func TestXLSXGoesOnInAnotherSheetAndMarksWhatItCuts(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := newXLSX(&b, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	w.(*xlsxWriter).most = 3
	for _, text := range []string{"a", "b", "c", strings.Repeat("长", 40_000)} {
		if err := w.Write([]any{text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := excelize.OpenReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	first, err := f.GetRows("Sheet1")
	second, err2 := f.GetRows("Sheet2")
	if errors.Join(err, err2) != nil || len(first) != 3 || len(second) != 3 || second[0][0] != "id" || second[1][0] != "c" {
		t.Fatalf("%d and %d rows, %v", len(first), len(second), errors.Join(err, err2))
	}
	if last := second[2][0]; !strings.HasSuffix(last, "(cut, 40000 characters in all; JSON lines hold them)") {
		t.Errorf("a text that does not fit ends %q", last[max(0, len(last)-80):])
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := New("pdf", &bytes.Buffer{}, columns); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}
