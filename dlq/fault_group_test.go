package dlq

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestFaultsAreGroupedByWhatTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	var letters []seedLetter
	for i := range 60 {
		letters = append(letters, seedLetter{event: fmt.Sprint(i), source: rotate(i, 2, "a.DLT", "b.DLT"), group: rotate(i, 3, "points", "stock", ""),
			class: rotate(i, 4, "A", "B", "C", "A"), message: rotate(i, 5, "one", "two", "one", "one", "one"),
			value: []byte(rotate(i, 4, `{"orderId":1,"at":"x"}`, `{"at":"y","orderId":2}`, `[1]`, "<xml/>")), key: []byte(rotate(i, 2, "com.shop.Pay.run", "com.shop.Stock.take"))})
	}
	letters = append(letters, seedLetter{event: "closed", source: "c.DLT", state: Resolved})
	s.add(letters...)
	faults := NewFaults(s.pool)
	frame := func(_ LetterDetail, b Body) string { return string(b.Key) }
	for by, want := range map[GroupKey]map[string]int64{
		BySource:  {"a.DLT": 30, "b.DLT": 30},
		ByGroup:   {"points": 20, "stock": 20, "": 20},
		ByClass:   {"A": 30, "B": 15, "C": 15},
		ByMessage: {"one": 48, "two": 12},
		ByDialect: {"spring-kafka-dlpr": 60},
		ByShape:   {"{at: text, orderId: number}": 30, "list": 15, "other text": 15},
		ByFrame:   {"A com.shop.Pay.run": 15, "A com.shop.Stock.take": 15, "B com.shop.Stock.take": 15, "C com.shop.Pay.run": 15},
	} {
		g, err := faults.GroupBy(t.Context(), FaultFilter{}, by, frame)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, one := range g.Groups {
			name := one.Value
			if one.Class != "" {
				name = one.Class + " " + one.Value
			}
			got[name] = one.Open
			if time.Since(one.LastSeen) > time.Hour || (one.Letter == nil) == (g.Sampled > 0) {
				t.Errorf("%s: %+v", by, one)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || g.More {
			t.Errorf("%s: %v, want %v", by, got, want)
		}
		if (by == ByShape || by == ByFrame) != (g.Sampled == 60 && g.Of == 60) {
			t.Errorf("%s: %d of %d letters were looked at", by, g.Sampled, g.Of)
		}
	}
	var bad *ErrBadFilter
	if _, err := faults.GroupBy(t.Context(), FaultFilter{}, "colour", nil); !errors.As(err, &bad) || bad.Field != "by" {
		t.Errorf("an unknown grouping: %v", err)
	}
}
