package ui

import (
	"fmt"
	"strconv"
)

// Count is how many have a verdict or an outcome.
type Count struct {
	Name string
	N    int
}

// Sum adds up counts.
func Sum(counts []Count) int {
	n := 0
	for _, c := range counts {
		n += c.N
	}
	return n
}

type segment struct {
	class, x, width string
}

// hueOrder is the order of every bar.
var hueOrder = []string{"go", "noop", "ask", "bad", "hold", "mute"}

// segments turns counts into one segment per hue, of at least a visible width,
// with a gap between two.
func segments(counts []Count, looks map[string]look, whole int) []segment {
	byHue := map[string]int{}
	for _, c := range counts {
		byHue[looks[c.Name].hue] += c.N
	}
	var bar []segment
	at := 0
	for _, hue := range hueOrder {
		n := byHue[hue]
		if n == 0 || whole == 0 || hue == "mute" {
			continue
		}
		bar = append(bar, segment{
			class: "f" + hue,
			x:     percent(float64(at), whole),
			width: percent(max(float64(n), 0.007*float64(whole)), whole),
		})
		at += n
	}
	return bar
}

func percent(n float64, whole int) string {
	return strconv.FormatFloat(100*n/float64(whole), 'f', 2, 64) + "%"
}

// Spark is the path of a small line of values, 76 × 22.
func sparkLine(values []int) string {
	if len(values) < 2 {
		return ""
	}
	top := 1
	for _, v := range values {
		top = max(top, v)
	}
	path := make([]byte, 0, 16*len(values))
	for i, v := range values {
		command := byte('L')
		if i == 0 {
			command = 'M'
		}
		x := 76 * float64(i) / float64(len(values)-1)
		y := 20 - 18*float64(v)/float64(top)
		path = fmt.Appendf(path, "%c%.1f %.1f", command, x, y)
	}
	return string(path)
}

func sparkArea(values []int) string {
	line := sparkLine(values)
	if line == "" {
		return ""
	}
	return "M0 22L" + line[1:] + "L76 22Z"
}

// growing reports whether the last quarter holds more than half of all.
func growing(values []int) bool {
	if len(values) < 8 {
		return false
	}
	all, last := 0, 0
	for i, v := range values {
		all += v
		if i >= len(values)*3/4 {
			last += v
		}
	}
	return all >= 4 && last*2 > all
}
