package reconcile

import "time"

// Finding is a key that is not whole, with what each side has for it.
type Finding struct {
	Type       Type
	Key        []string // the key's columns as text
	Encoded    []byte   // the key as it is compared: its identity
	Currency   string
	Difference Amount // what is missing in effect; negative: too much
	Spared     Amount // of a key that is whole: the difference that a tolerance lets pass
	Sides      [3]FindingSide

	inside map[string]Amount // what it contributes to the window's difference, by currency
}

// FindingSide is what one party has for a key, windows left aside.
type FindingSide struct {
	Rows     int
	Amount   Amount
	Currency string
	First    time.Time
	Last     time.Time
	Nulls    int `json:",omitempty"` // rows without an amount
}

func findingSide(g *group) FindingSide {
	if g.rows == 0 {
		return FindingSide{}
	}
	return FindingSide{g.rows, g.sum.value(), g.currency, time.UnixMicro(g.first).UTC(), time.UnixMicro(g.last).UTC(), g.nulls}
}

// currency names what a finding's difference is in: that of the side that is
// nearest to the money.
func (g *groups) currency() string {
	for _, p := range []Party{Effect, Consumed} {
		if g[p].rows > 0 {
			return g[p].currency
		}
	}
	return g[Outbox].currency
}
