package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// candidate is a key that is worth a second look, with how many rows of it the
// sides' queries gave in the window and its overlap.
type candidate struct {
	key  []byte
	rows [3]int
}

func candidateOf(key []byte, g *groups) candidate {
	c := candidate{key: bytes.Clone(key)}
	for p := range g {
		c.rows[p] = g[p].rows
	}
	return c
}

func keysOf(seen []candidate) [][]byte {
	keys := make([][]byte, len(seen))
	for i, c := range seen {
		keys[i] = c.key
	}
	return keys
}

var errBlindLookup = errors.New("the look-up has to give every row that the query gives, without the window")

// foundAgain refuses look-ups that give less than the queries did: a key would
// pass for whole because nobody sees what is wrong with it. A row that was
// deleted between the two is not there when the segment is read again.
func (c *comparison) foundAgain(seen []candidate, found []Finding) error {
	rows := map[string][3]int{}
	for _, s := range seen {
		n := rows[string(s.key)]
		for p := range n {
			n[p] += s.rows[p]
		}
		rows[string(s.key)] = n
	}
	for _, f := range found {
		for p, n := range rows[string(f.Encoded)] {
			if f.Sides[p].Rows < n {
				return fmt.Errorf("%s: %w: of key %s it finds %d, and the query gave %d", c.sides[Party(p)].Pos, errBlindLookup, strings.Join(f.Key, ", "), f.Sides[p].Rows, n)
			}
		}
	}
	return nil
}
