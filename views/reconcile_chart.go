package views

import (
	"fmt"
	"strings"
)

// Trend is one line over a job's runs, oldest first.
type Trend struct {
	Title  string
	Top    string // what the highest grid line stands for
	Bottom string
	Last   string // the newest value
	Points []TrendPoint
	Low    float64 // values are drawn between these
	High   float64
}

// TrendPoint is one run.
type TrendPoint struct {
	Value   float64
	Text    string // the value, written
	Window  string
	Run     string // "2841"
	Href    string
	Partial bool
	Unknown bool // there was nothing to measure
}

// The drawing is 120 high, the line between top and bottom.
const (
	trendTop    = 12.0
	trendBottom = 104.0
	trendLeft   = 8.0
)

type trendDot struct{ class, x, y string }

// place is where a point stands in a drawing of that width.
func (t Trend) place(i, width int) (x, y float64) {
	step := (float64(width) - 2*trendLeft) / float64(max(len(t.Points)-1, 1))
	share := 1.0
	if t.High > t.Low {
		share = (t.Points[i].Value - t.Low) / (t.High - t.Low)
	}
	if len(t.Points) == 1 {
		return float64(width) / 2, trendBottom - share*(trendBottom-trendTop)
	}
	return trendLeft + float64(i)*step, trendBottom - share*(trendBottom-trendTop)
}

// line joins the points that are known; a gap stays one.
func (t Trend) line(width int) string {
	var path strings.Builder
	command := 'M'
	for i, p := range t.Points {
		if p.Unknown {
			command = 'M'
			continue
		}
		x, y := t.place(i, width)
		fmt.Fprintf(&path, "%c%.1f %.1f", command, x, y)
		command = 'L'
	}
	return path.String()
}

// dots mark every run where there are few, else the last and the partial ones.
func (t Trend) dots(width int) []trendDot {
	var dots []trendDot
	for i, p := range t.Points {
		if p.Unknown || len(t.Points) > 30 && !p.Partial && i < len(t.Points)-1 {
			continue
		}
		x, y := t.place(i, width)
		class := "dot-at"
		if p.Partial {
			class = "dot-at partial"
		}
		dots = append(dots, trendDot{class, fix(x), fix(y)})
	}
	return dots
}
