package locale_test

import (
	"testing"

	"oncemore/views/locale"
)

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ digits, code, want string }{
		{"0", "CNY", "0.00"}, {"7.5", "CNY", "7.50"}, {"1284310.5", "CNY", "1,284,310.50"}, {"-45", "CNY", "−45.00"}, {"-0.005", "USD", "−0.005"},
		{"100", "JPY", "100"}, {"1.5", "JPY", "1.5"}, {"1.5", "KWD", "1.500"}, {"12.3400", "", "12.3400"}, {"12", "POINTS", "12"},
		{"123456789012345678901234567890.123456789", "CNY", "123,456,789,012,345,678,901,234,567,890.123456789"}, {"999", "", "999"}, {"1000", "", "1,000"},
	} {
		if got := locale.Amount(c.digits, c.code); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.digits, c.code, got, c.want)
		}
	}
	if got := locale.Money("253.12", "CNY"); got != "253.12 CNY" {
		t.Error(got)
	}
	if got := locale.Money("3", ""); got != "3" {
		t.Error(got)
	}
}

func TestSharesAreNeverRoundedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, whole int64
		want        string
	}{
		{0, 0, ""}, {0, 5, "0.00%"}, {5, 5, "100%"}, {12828, 12846, "99.85%"}, {999_999, 1_000_000, "99.99%"}, {99_999_999, 100_000_000, "99.99%"},
		{1, 1_000_000, "< 0.01%"}, {1, 10_000, "0.01%"}, {1, 3, "33.33%"},
	} {
		if got := locale.Share(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}
