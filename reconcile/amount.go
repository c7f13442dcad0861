package reconcile

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"github.com/shopspring/decimal"
)

// Amount is an exact decimal. It keeps the digits that it was written with:
// 100.00 is not shortened when StringFixed is asked for two of them.
type Amount = decimal.Decimal

var plainDecimal = regexp.MustCompile(`^[+-]?\d+(\.\d+)?$`)

// errNotDecimal is returned for what is no plain decimal: NaN, Infinity, 1e5.
var errNotDecimal = errors.New("not a decimal")

// ParseAmount reads digits with an optional sign and fraction. It refuses
// exponents, NaN and Infinity.
func ParseAmount(s string) (Amount, error) {
	if !plainDecimal.MatchString(s) {
		return Amount{}, fmt.Errorf("amount %q: %w", s, errNotDecimal)
	}
	return decimal.NewFromString(s)
}

func amountOf(n int64) Amount { return decimal.NewFromInt(n) }

// sum adds up millions of amounts without allocating: in 64 bits at one scale
// while they fit, else in a decimal.
type sum struct {
	units int64 // times 10^-scale
	scale int32
	large Amount // what did not fit
}

// value is the exact total.
func (s sum) value() Amount { return s.large.Add(decimal.New(s.units, -s.scale)) }

func (s sum) isZero() bool { return s.units == 0 && s.large.IsZero() || s.value().IsZero() }

// parseSum reads one amount from its digits.
func parseSum(digits []byte) (sum, error) {
	if units, scale, ok := parseUnits(digits); ok {
		return sum{units: units, scale: scale}, nil
	}
	a, err := ParseAmount(string(digits))
	return sum{large: a}, err
}

// plus adds another sum.
func (s *sum) plus(other sum) {
	if !s.addUnits(other.units, other.scale) {
		s.large = s.large.Add(decimal.New(other.units, -other.scale))
	}
	if !other.large.IsZero() {
		s.large = s.large.Add(other.large)
	}
}

// addUnits reports false, and changes nothing, where 64 bits do not suffice.
func (s *sum) addUnits(units int64, scale int32) bool {
	have, ok := rescale(s.units, scale-s.scale)
	if !ok {
		return false
	}
	more, ok := rescale(units, s.scale-scale)
	total := have + more
	if !ok || (total > have) != (more > 0) && more != 0 {
		return false
	}
	s.units, s.scale = total, max(scale, s.scale)
	return true
}

// rescale multiplies by 10^by, if by is positive.
func rescale(units int64, by int32) (int64, bool) {
	for ; by > 0; by-- {
		if units > math.MaxInt64/10 || units < math.MinInt64/10 {
			return 0, false
		}
		units *= 10
	}
	return units, true
}

// parseUnits reads a plain decimal of up to 18 digits.
func parseUnits(digits []byte) (units int64, scale int32, ok bool) {
	rest, negative := digits, false
	if len(rest) > 0 && rest[0] == '-' {
		rest, negative = rest[1:], true
	}
	if len(rest) == 0 || len(rest) > 19 || rest[0] == '.' || rest[len(rest)-1] == '.' {
		return 0, 0, false
	}
	point := -1
	for i, c := range rest {
		switch {
		case c == '.' && point < 0:
			point = i
		case c < '0' || c > '9' || i >= 18 && point < 0:
			return 0, 0, false
		default:
			units = units*10 + int64(c-'0')
		}
	}
	if point >= 0 {
		scale = int32(len(rest) - point - 1)
	}
	if negative {
		units = -units
	}
	return units, scale, true
}

// equal compares the values: 100.00 equals 100.
func (s sum) equal(other sum) bool {
	if s.scale == other.scale && s.large.IsZero() && other.large.IsZero() {
		return s.units == other.units
	}
	return s.value().Equal(other.value())
}
