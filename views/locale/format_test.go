package locale_test

import (
	"testing"
	"time"

	"oncemore/views/locale"
)

var (
	shanghai = time.FixedZone("CST", 8*3600)
	now      = time.Date(2026, 11, 30, 14, 32, 8, 0, shanghai)
	english  = locale.Locale{Tag: locale.English, Zone: shanghai, Now: now}
	chinese  = locale.Locale{Tag: locale.Chinese, Zone: shanghai, Now: now}
)

func TestRelative(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		age    time.Duration
		en, zh string
	}{
		{0, "just now", "刚刚"},
		{4 * time.Second, "just now", "刚刚"},
		{59 * time.Second, "59 s ago", "59 秒前"},
		{time.Minute, "1 min ago", "1 分钟前"},
		{59*time.Minute + 59*time.Second, "59 min ago", "59 分钟前"},
		{time.Hour, "1 h ago", "1 小时前"},
		{24 * time.Hour, "1 d ago", "1 天前"},
		{7*24*time.Hour - time.Second, "6 d ago", "6 天前"},
		{7 * 24 * time.Hour, "23 Nov, 14:32", "11月23日 14:32"},
		{-time.Second, "30 Nov, 14:32", "11月30日 14:32"}, // of another clock: the future has no age
		{400 * 24 * time.Hour, "26 Oct 2025, 14:32", "2025-10-26 14:32"},
	} {
		at := now.Add(-c.age).UTC()
		if got := english.Relative(at); got != c.en {
			t.Errorf("%s ago: %q, want %q", c.age, got, c.en)
		}
		if got := chinese.Relative(at); got != c.zh {
			t.Errorf("%s ago: %q, want %q", c.age, got, c.zh)
		}
	}
}

func TestClocks(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 5, 58, 11, 902e6, time.UTC)
	yesterday := at.Add(-24 * time.Hour)
	for name, c := range map[string][2]string{
		"exact":           {english.Exact(at), "2026-11-30 13:58:11.902 +08:00"},
		"clock":           {english.Clock(at), "13:58:11"},
		"clock yesterday": {english.Clock(yesterday), "29 Nov, 13:58"},
		"moment":          {english.Moment(at), "13:58:11.902"},
		"since":           {english.Since(at), "13:58"},
		"since yesterday": {chinese.Since(yesterday), "11月29日"},
		"day":             {english.Day(yesterday), "29 Nov"},
		"zone":            {english.ZoneName(), "CST, UTC+8"},
		"utc":             {locale.Locale{Now: now}.ZoneName(), "UTC"},
		"half hours":      {locale.Locale{Now: now, Zone: time.FixedZone("NST", -9000)}.ZoneName(), "NST, UTC−2:30"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %q, want %q", name, c[0], c[1])
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 12846: "12,846", -1234567: "−1,234,567", -9223372036854775808: "−9,223,372,036,854,775,808"} {
		if got := locale.Number(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestDurationsAndSizes(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration][2]string{
		0:                                {"0.0 s", "0.0 秒"},
		8240 * time.Millisecond:          {"8.2 s", "8.2 秒"},
		130 * time.Second:                {"2 min 10 s", "2 分 10 秒"},
		2 * time.Hour:                    {"2 h", "2 小时"},
		74*time.Hour + 5*time.Minute:     {"3 d 2 h", "3 天 2 小时"},
		-time.Second:                     {"0.0 s", "0.0 秒"},
		90*24*time.Hour + 30*time.Minute: {"90 d", "90 天"},
	} {
		if got := english.Duration(d); got != want[0] {
			t.Errorf("%s: %q, want %q", d, got, want[0])
		}
		if got := chinese.Duration(d); got != want[1] {
			t.Errorf("%s: %q, want %q", d, got, want[1])
		}
	}
	for n, want := range map[int]string{0: "0 bytes", 1: "1 byte", 9999: "9,999 bytes", 10000: "10 KB", 999999: "999 KB", 1048576: "1.0 MB"} {
		if got := english.Bytes(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}

func TestAccept(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]locale.Tag{
		"": locale.English, "zh-CN,zh;q=0.9,en;q=0.8": locale.Chinese, "en-GB,zh;q=0.5": locale.English,
		"fr, zh-Hant;q=0.4": locale.Chinese, "fr": locale.English, "*": locale.English, ",;,": locale.English,
	} {
		if got := locale.Accept(header); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	if got := english.List(names); got != "a, b and c" {
		t.Errorf("%q", got)
	}
	if got := chinese.List([]string{"操作员", "管理员"}); got != "操作员和管理员" {
		t.Errorf("%q", got)
	}
	if got := english.List([]string{"积分", "发票"}); got != "积分 and 发票" {
		t.Errorf("%q", got)
	}
	if got := chinese.List(names[:2]); got != "a 和 b" {
		t.Errorf("%q", got)
	}
	if english.List(nil) != "" || english.List(names[:1]) != "a" {
		t.Error("short lists")
	}
}
