package web

import (
	"encoding/hex"
	"slices"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"oncemore/reconcile"
	"oncemore/views"
)

// columnValues are the values of amount and currency by column and side, written
// so that equal ones look equal.
func columnValues(sides []reconcile.SideRows, job *reconcile.Job) map[string][]map[string]bool {
	values := map[string][]map[string]bool{}
	for _, name := range []string{job.Match.Amount, job.Match.Currency} {
		if name == "" {
			continue
		}
		for _, side := range sides {
			have := map[string]bool{}
			if at := slices.Index(side.Columns, name); at >= 0 {
				for _, row := range side.Rows {
					have[plainValue(row[at])] = true
				}
			}
			values[name] = append(values[name], have)
		}
	}
	return values
}

// plainValue writes 100.00 and 100 alike.
func plainValue(v *string) string {
	if v == nil {
		return "NULL"
	}
	if a, err := reconcile.ParseAmount(*v); err == nil {
		return a.String()
	}
	return *v
}

func (s *Server) liveSide(c echo.Context, side reconcile.SideRows, job *reconcile.Job, values map[string][]map[string]bool, masked bool) views.LiveSide {
	here := localeOf(c)
	v := views.LiveSide{Name: sideWord(here, side.Party), Connection: job.Side(side.Party).Connection}
	if side.Err != nil {
		v.Error = s.rowsTrouble(c, side.Err)
		return v
	}
	for i, name := range side.Columns {
		v.Columns = append(v.Columns, views.LiveColumn{Name: name, Compared: side.Compared[i]})
	}
	for _, row := range side.Rows {
		cells := make([]views.LiveCell, len(row))
		for i, value := range row {
			cells[i] = liveCell(value, masked && !side.Compared[i])
			cells[i].Differs = differs(values[side.Columns[i]], value)
		}
		v.Rows = append(v.Rows, cells)
	}
	if side.More {
		v.More = here.Text("break.rows_more", "n", reconcile.MostRows)
	}
	return v
}

func liveCell(value *string, masked bool) views.LiveCell {
	switch {
	case masked:
		return views.LiveCell{Masked: true}
	case value == nil:
		return views.LiveCell{Null: true}
	case !utf8.ValidString(*value) || hasControl(*value):
		return views.LiveCell{Text: hex.EncodeToString([]byte(*value))}
	}
	return views.LiveCell{Text: *value}
}

// differs reports whether some side that has rows does not have the value.
func differs(sides []map[string]bool, value *string) bool {
	for _, have := range sides {
		if len(have) > 0 && !have[plainValue(value)] {
			return true
		}
	}
	return false
}
