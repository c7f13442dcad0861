package views

import (
	"context"
	"fmt"
	"time"

	"oncemore/views/locale"
)

// Chart is letters arrived (up) and resolved (down) per hour.
type Chart struct {
	Hours []ChartHour
}

// ChartHour is one pair of bars.
type ChartHour struct {
	At                time.Time
	Arrived, Resolved int
}

func (c Chart) arrived() int {
	n := 0
	for _, h := range c.Hours {
		n += h.Arrived
	}
	return n
}

func (c Chart) resolved() int {
	n := 0
	for _, h := range c.Hours {
		n += h.Resolved
	}
	return n
}

// The drawing is 190 high: bars between top and bottom, the hours below.
const (
	chartTop    = 10.0
	chartBottom = 166.0
)

type chartBar struct{ class, x, y, width, height string }
type chartLine struct{ path, x, y, label string }
type chartLabel struct{ x, text string }

// tops are the largest values upwards and downwards, of nothing 1 and 0.
func (c Chart) tops() (up, down int) {
	for _, h := range c.Hours {
		up, down = max(up, h.Arrived), max(down, h.Resolved)
	}
	return max(up, 1), down
}

// scale gives the zero line and the height of one letter.
func (c Chart) scale() (zero, unit float64) {
	up, down := c.tops()
	unit = (chartBottom - chartTop - 2) / float64(up+down)
	return chartTop + float64(up)*unit, unit
}

// left is where the bars begin: behind the longest number of the axis.
func (c Chart) left() float64 {
	up, down := c.tops()
	return max(34, 7*float64(len(locale.Number(int64(round(max(up, down))))))+10)
}

func (c Chart) step(width int) float64 {
	return (float64(width) - c.left()) / float64(max(len(c.Hours), 1))
}

func (c Chart) bars(_ context.Context, width int) []chartBar {
	zero, unit := c.scale()
	step := c.step(width)
	var bars []chartBar
	for i, h := range c.Hours {
		x := c.left() + float64(i)*step + step*0.12
		if h.Arrived > 0 {
			height := float64(h.Arrived) * unit
			bars = append(bars, newBar("fink op", x, zero-height, step*0.76, height))
		}
		if h.Resolved > 0 {
			bars = append(bars, newBar("fgo", x, zero+2, step*0.76, float64(h.Resolved)*unit))
		}
	}
	return bars
}

func newBar(class string, x, y, width, height float64) chartBar {
	return chartBar{class, fix(x), fix(y), fix(width), fix(max(height, 1.5))}
}

// grid draws the zero line and one round number in each direction.
func (c Chart) grid(width int) []chartLine {
	zero, unit := c.scale()
	up, down := c.tops()
	lines := []chartLine{c.gridLine(zero+1, "0", width)}
	if n := round(up); n > 0 {
		lines = append(lines, c.gridLine(zero-float64(n)*unit, locale.Number(int64(n)), width))
	}
	if n := round(down); n > 0 && float64(n)*unit > 16 {
		lines = append(lines, c.gridLine(zero+2+float64(n)*unit, locale.Number(int64(n)), width))
	}
	return lines
}

func (c Chart) gridLine(y float64, label string, width int) chartLine {
	return chartLine{fmt.Sprintf("M%.0f %.1fH%d", c.left(), y, width), fix(c.left() - 7), fix(y + 4), label}
}

// round is the largest of 1, 2, 5, 10, 20, … that is not above n.
func round(n int) int {
	best := 0
	for base := 1; base <= n; base *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*base <= n {
				best = m * base
			}
		}
	}
	return best
}

// labels names every third hour, every sixth where it is narrow.
func (c Chart) labels(ctx context.Context, width int) []chartLabel {
	every := 3
	if width < 500 {
		every = 6
	}
	step := c.step(width)
	var labels []chartLabel
	for i, h := range c.Hours {
		at := h.At.In(locale.From(ctx).Zone)
		if at.Hour()%every == 0 {
			labels = append(labels, chartLabel{fix(c.left() + (float64(i)+0.5)*step), at.Format("15:04")})
		}
	}
	return labels
}

func fix(f float64) string { return fmt.Sprintf("%.1f", f) }
