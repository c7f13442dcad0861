package strictyaml

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

var days = regexp.MustCompile(`^(\d+)d(.*)$`)

// ParseDuration reads Go's durations and days: 10s, 1h30m, 90d, 1d12h. It is
// never negative.
func ParseDuration(s string) (time.Duration, error) {
	var whole time.Duration
	rest := s
	if m := days.FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n > 100_000 {
			return 0, fmt.Errorf("duration %q is too long", s)
		}
		whole, rest = time.Duration(n)*24*time.Hour, m[2]
		if rest == "" {
			return whole, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("read duration %q: %w", s, err)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q is negative", s)
	}
	return whole + d, nil
}
