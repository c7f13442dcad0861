package locale

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Number writes a whole number with thousands separators: 12,846 in both languages.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Bytes writes a size exactly below 10,000 bytes, else in KB or MB, cut.
func (l Locale) Bytes(n int) string {
	switch {
	case n < 10_000:
		return l.Text("size.bytes", "n", n)
	case n < 1_000_000:
		return l.Text("size.kb", "n", Number(int64(n/1000)))
	}
	return l.Text("size.mb", "n", fmt.Sprintf("%d.%d", n/1_000_000, n/100_000%10))
}

const week = 7 * 24 * time.Hour

// Relative writes an instant of the last seven days as an age ("6 min ago"),
// any other as Short does.
func (l Locale) Relative(t time.Time) string {
	age := l.Now.Sub(t)
	switch {
	case age < 0 || age >= week:
		return l.Short(t)
	case age < 5*time.Second:
		return l.Text("time.now")
	case age < time.Minute:
		return l.Text("time.seconds_ago", "n", int(age/time.Second))
	case age < time.Hour:
		return l.Text("time.minutes_ago", "n", int(age/time.Minute))
	case age < 24*time.Hour:
		return l.Text("time.hours_ago", "n", int(age/time.Hour))
	}
	return l.Text("time.days_ago", "n", int(age/(24*time.Hour)))
}

// Short writes "30 Nov, 14:32", with the year where it is another one.
func (l Locale) Short(t time.Time) string {
	t = t.In(l.zone())
	if t.Year() != l.Now.In(l.zone()).Year() {
		return t.Format(l.Text("time.layout.year"))
	}
	return t.Format(l.Text("time.layout.short"))
}

// Day writes "30 Nov", with the year where it is another one.
func (l Locale) Day(t time.Time) string {
	t = t.In(l.zone())
	if t.Year() != l.Now.In(l.zone()).Year() {
		return t.Format(l.Text("time.layout.day_year"))
	}
	return t.Format(l.Text("time.layout.day"))
}

// Clock writes "14:32:08"; for an instant of another day, Short.
func (l Locale) Clock(t time.Time) string {
	if !sameDay(t.In(l.zone()), l.Now.In(l.zone())) {
		return l.Short(t)
	}
	return t.In(l.zone()).Format("15:04:05")
}

// Since writes "14:32" for an instant of today, the day for an older one.
func (l Locale) Since(t time.Time) string {
	if !sameDay(t.In(l.zone()), l.Now.In(l.zone())) {
		return l.Day(t)
	}
	return t.In(l.zone()).Format("15:04")
}

// Exact writes the instant with milliseconds and offset.
func (l Locale) Exact(t time.Time) string {
	return t.In(l.zone()).Format("2006-01-02 15:04:05.000 -07:00")
}

// ZoneName names the zone with its present offset: "Asia/Shanghai, UTC+8".
func (l Locale) ZoneName() string {
	_, offset := l.Now.In(l.zone()).Zone()
	if name := l.zone().String(); name != "UTC" {
		return name + ", UTC" + offsetText(offset)
	}
	return "UTC"
}

func offsetText(seconds int) string {
	sign := "+"
	if seconds < 0 {
		sign, seconds = "−", -seconds
	}
	text := sign + strconv.Itoa(seconds/3600)
	if minutes := seconds / 60 % 60; minutes != 0 {
		text += fmt.Sprintf(":%02d", minutes)
	}
	return text
}

// Duration writes the two largest units: "2 min 10 s", "3 d 2 h".
func (l Locale) Duration(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < 10*time.Second {
		tenths := d / (100 * time.Millisecond)
		return l.Text("duration.s", "n", fmt.Sprintf("%d.%d", tenths/10, tenths%10))
	}
	units := []struct {
		key  string
		size time.Duration
	}{{"duration.d", 24 * time.Hour}, {"duration.h", time.Hour}, {"duration.min", time.Minute}, {"duration.s", time.Second}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		parts := []string{l.Text(u.key, "n", int(d/u.size))}
		if i+1 < len(units) && d%u.size/units[i+1].size > 0 {
			parts = append(parts, l.Text(units[i+1].key, "n", int(d%u.size/units[i+1].size)))
		}
		return strings.Join(parts, " ")
	}
	return l.Text("duration.s", "n", 0)
}

// List joins names: "a, b and c".
func (l Locale) List(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	last := len(names) - 1
	before, and := strings.Join(names[:last], l.Text("list.comma")), l.Text("list.and")
	if end, _ := utf8.DecodeLastRuneInString(before); l.Tag == Chinese && unicode.Is(unicode.Han, end) {
		and = strings.TrimPrefix(and, " ") // Chinese sets spaces only beside Latin and digits
	}
	if begin, _ := utf8.DecodeRuneInString(names[last]); l.Tag == Chinese && unicode.Is(unicode.Han, begin) {
		and = strings.TrimSuffix(and, " ")
	}
	return before + and + names[last]
}

func (l Locale) zone() *time.Location {
	if l.Zone == nil {
		return time.UTC
	}
	return l.Zone
}

func sameDay(a, b time.Time) bool {
	return a.Year() == b.Year() && a.YearDay() == b.YearDay()
}

// Moment writes "14:32:08.416" for an instant of today, Short for an older one.
func (l Locale) Moment(t time.Time) string {
	if !sameDay(t.In(l.zone()), l.Now.In(l.zone())) {
		return l.Short(t)
	}
	return t.In(l.zone()).Format("15:04:05.000")
}

// Plain writes a number that is no count, such as an id: without separators.
func Plain(n int64) string { return strconv.FormatInt(n, 10) }

// Inside writes a label as it stands inside a sentence: without its capital.
func (l Locale) Inside(label string) string {
	if l.Tag != English || label == "" {
		return label
	}
	return strings.ToLower(label[:1]) + label[1:]
}
