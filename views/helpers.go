package views

import "strconv"

// boolWord is one of two words.
func boolWord(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// itoa writes an id: without separators, unlike a count.
func itoa[I int | int32 | int64](n I) string { return strconv.FormatInt(int64(n), 10) }
