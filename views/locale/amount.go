package locale

import (
	"strings"

	"golang.org/x/text/currency"
)

// Amount writes a plain decimal such as -1284.5 with thousands separators and
// at least the digits of its currency: −1,284.50. It never rounds. A currency
// that ISO 4217 does not know, and "", leave the digits as they are.
func Amount(digits, code string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		sign, digits = "−", rest
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	for len(fraction) < minorDigits(code) {
		fraction += "0"
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction == "" {
		return sign + whole
	}
	return sign + whole + "." + fraction
}

func minorDigits(code string) int {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return 0
	}
	scale, _ := currency.Standard.Rounding(unit)
	return scale
}

// Money is an Amount with its currency after it: 253.12 CNY.
func Money(digits, code string) string {
	if code == "" {
		return Amount(digits, code)
	}
	return Amount(digits, code) + " " + code
}

// Share is part of whole in percent, cut to two digits and never rounded up:
// 99.99% while one of a million is missing. Of nothing it is "".
func Share(part, whole int64) string {
	switch {
	case whole <= 0:
		return ""
	case part >= whole:
		return "100%"
	case part > 0 && part*10_000 < whole:
		return "< 0.01%"
	}
	hundredths := part * 10_000 / whole
	return Number(hundredths/100) + "." + string([]byte{'0' + byte(hundredths/10%10), '0' + byte(hundredths%10)}) + "%"
}
