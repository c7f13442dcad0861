package export

import (
	"fmt"
	"io"
	"time"
	"unicode/utf16"

	"github.com/xuri/excelize/v2"
)

const (
	sheetRows = excelize.TotalRows      // of one sheet, its head included
	cellUnits = excelize.TotalCellChars // UTF-16 units of one cell
	exactInt  = 1 << 53                 // spreadsheets compute with floats
)

// xlsxWriter goes on in a further sheet when one is full. Rows wait in a
// temporary file.
type xlsxWriter struct {
	out     io.Writer
	file    *excelize.File
	sheet   *excelize.StreamWriter
	columns []string
	sheets  int
	row     int // the last one written
	most    int
}

func newXLSX(w io.Writer, columns []string) (Writer, error) {
	x := &xlsxWriter{out: w, file: excelize.NewFile(), columns: columns, most: sheetRows}
	return x, x.begin()
}

// begin starts the next sheet with the names of the columns.
func (x *xlsxWriter) begin() error {
	x.sheets++
	name := fmt.Sprintf("Sheet%d", x.sheets)
	if x.sheets > 1 {
		if _, err := x.file.NewSheet(name); err != nil {
			return fmt.Errorf("export: add sheet: %w", err)
		}
	}
	var err error
	if x.sheet, err = x.file.NewStreamWriter(name); err != nil {
		return fmt.Errorf("export: open sheet: %w", err)
	}
	head := make([]any, len(x.columns))
	for i, c := range x.columns {
		head[i] = c
	}
	x.row = 0
	return x.put(head)
}

func (x *xlsxWriter) put(cells []any) error {
	x.row++
	at, err := excelize.CoordinatesToCellName(1, x.row)
	if err != nil {
		return fmt.Errorf("export: row %d: %w", x.row, err)
	}
	if err := x.sheet.SetRow(at, cells); err != nil {
		return fmt.Errorf("export: row %d: %w", x.row, err)
	}
	return nil
}

func (x *xlsxWriter) Write(cells []any) error {
	if x.row == x.most {
		if err := x.sheet.Flush(); err != nil {
			return fmt.Errorf("export: close sheet: %w", err)
		}
		if err := x.begin(); err != nil {
			return err
		}
	}
	row := make([]any, len(cells))
	for i, cell := range cells {
		row[i] = typed(cell)
	}
	return x.put(row)
}

// typed is a cell as a spreadsheet keeps it: text stays text, whatever it looks
// like, and a number that would lose digits becomes text.
func typed(cell any) any {
	switch v := cell.(type) {
	case nil:
		return nil
	case string:
		return fitting(v)
	case int64:
		if v < exactInt && v > -exactInt {
			return v
		}
		return plain(v)
	case time.Time:
		return plain(v)
	}
	panic(fmt.Sprintf("export: a cell cannot be a %T", cell))
}

// fitting cuts a text that no cell can hold, and says so in it.
func fitting(text string) string {
	if len(text) <= cellUnits {
		return text
	}
	units := utf16.Encode([]rune(text))
	if len(units) <= cellUnits {
		return text
	}
	mark := fmt.Sprintf("… (cut, %d characters in all; JSON lines hold them)", len(units))
	return string(utf16.Decode(units[:cellUnits-len(mark)])) + mark
}

func (x *xlsxWriter) Close() error {
	defer func() { _ = x.file.Close() }() // removes the temporary files
	if err := x.sheet.Flush(); err != nil {
		return fmt.Errorf("export: close sheet: %w", err)
	}
	if err := x.file.Write(x.out); err != nil {
		return fmt.Errorf("export: write: %w", err)
	}
	return nil
}
