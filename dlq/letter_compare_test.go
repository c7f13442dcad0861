package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// indexAll indexes what is there, without the usual distance.
func (s *seed) indexAll() {
	s.t.Helper()
	for {
		n, err := IndexTokens(context.Background(), s.pool, -time.Second)
		if err != nil {
			s.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// patient looks through a whole list, however slow the machine is.
func patient(s *seed) *Letters {
	l := NewLetters(s.pool)
	l.budgets = budgets{columns: time.Hour, bytes: time.Hour}
	return l
}

type comparedShelf struct {
	*seed
	all   []seedLetter // oldest first
	start time.Time
}

func setupCompared(t *testing.T, n int) comparedShelf {
	t.Helper()
	s := comparedShelf{seed: newSeed(t), start: time.Now().Add(-time.Hour).Truncate(time.Millisecond)}
	for i := range n {
		tries := int32(i % 6)
		l := seedLetter{
			source: rotate(i/2, 2, "a.DLT", "b.DLT"), event: fmt.Sprintf("e-%d", i%41), group: rotate(i/5, 2, "points", "stock"),
			class: rotate(i/7, 2, "com.shop.Boom", "com.shop.Bang"), message: rotate(i/3, 2, "Connection refused by ledger", "余额不足"),
			state: State(1 + i%9%4), verdict: Verdict(i % 5), at: s.start.Add(time.Duration(i) * 10 * time.Millisecond),
			owner: rotate(i/4, 3, "", "ada", "bob"), key: fmt.Appendf(nil, "customer-%d", i%13),
			value:   fmt.Appendf(nil, `{"orderId":%d,"status":"%s","items":[{"sku":"A-%d"}],"备注":"第%d号订单已取消"}`, 1000+i%50, rotate(i/2, 3, "PAID", "NEW", "GONE"), i%7, i),
			headers: []Header{{Name: "trace", Value: fmt.Appendf(nil, "trace-%d", i%17)}},
		}
		if tries > 0 {
			l.attempts = &tries
		}
		l.fill()
		s.all = append(s.all, l)
	}
	s.add(s.all...)
	s.fold()
	s.indexAll()
	return s
}

// naive says in memory what comparedFilter asks for.
func (s comparedShelf) naive(f LetterFilter) []uuid.UUID {
	var out []uuid.UUID
	for i, l := range s.all {
		tries := int32(0)
		if l.attempts != nil {
			tries = *l.attempts
		}
		body := string(l.key) + string(l.value) + l.message + l.event
		ok := (f.State == 0 || f.State == l.state) && (f.Group == "" || f.Group == l.group) && (f.Source == "" || f.Source == l.source) &&
			(f.Verdict == 0 || f.Verdict == NotJudged && l.verdict == 0 || f.Verdict == l.verdict) &&
			(f.AttemptsMin == 0 || tries >= f.AttemptsMin) && (f.AttemptsMax == 0 || tries > 0 && tries <= f.AttemptsMax) &&
			(f.Owner == "" || f.Owner == l.owner || f.Owner == OwnerNone && l.owner == "") &&
			(f.Text == "" || strings.Contains(body, f.Text)) && (f.Since.IsZero() || !arrived(l.id).Before(f.Since))
		switch f.Search {
		case "":
		case "json.orderId:1007":
			ok = ok && i%50 == 7
		case "header.trace:trace-3 key:customer-5":
			ok = ok && i%17 == 3 && i%13 == 5
		case "error:refused":
			ok = ok && strings.Contains(l.message, "refused")
		case "A-4 PAID":
			ok = ok && i%7 == 4 && strings.Contains(string(l.value), "PAID")
		case "json.status:trace-3": // known, but of another field
			ok = false
		}
		if ok {
			out = append(out, l.id)
		}
	}
	if f.Sort != SortOldest {
		slices.Reverse(out)
	}
	return out
}

func TestComparedFiltersGiveWhatANaiveQueryGives(t *testing.T) {
	t.Parallel()
	s := setupCompared(t, 2500)
	letters := patient(s.seed)
	rapid.Check(t, func(t *rapid.T) {
		f := LetterFilter{
			State:       State(rapid.IntRange(0, 4).Draw(t, "state")),
			Group:       rapid.SampledFrom([]string{"", "", "points", "nobody"}).Draw(t, "group"),
			Source:      rapid.SampledFrom([]string{"", "", "a.DLT"}).Draw(t, "source"),
			Verdict:     rapid.SampledFrom([]Verdict{0, 0, NotJudged, NoEventID, Collides, AlreadyApplied}).Draw(t, "verdict"),
			AttemptsMin: rapid.SampledFrom([]int32{0, 0, 2, 9}).Draw(t, "min"),
			Owner:       rapid.SampledFrom([]string{"", "", "ada", OwnerNone, "nobody"}).Draw(t, "owner"),
			Search: rapid.SampledFrom([]string{"", "", "json.orderId:1007", "header.trace:trace-3 key:customer-5",
				"error:refused", "A-4 PAID", "json.status:trace-3"}).Draw(t, "search"),
			Sort: rapid.SampledFrom([]string{"", SortOldest, SortNewest}).Draw(t, "sort"),
		}
		if rapid.Bool().Draw(t, "at most") {
			f.AttemptsMax = f.AttemptsMin + 2
		}
		if rapid.Bool().Draw(t, "text") {
			f.Since = s.start.Add(2 * time.Second)
			f.Text = rapid.SampledFrom([]string{"7号订单", "余额", "GONE", `"sku":"A-3"`}).Draw(t, "needle")
		}
		want := s.naive(f)
		got := listAll(t, letters, f, rapid.SampledFrom([]int{7, 50, 200}).Draw(t, "limit"))
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d letters, want %d", f, len(got), len(want))
		}
		n, bounded, err := letters.Count(context.Background(), f)
		if err != nil || bounded || n != int64(len(want)) {
			t.Fatalf("count %+v: %d %v %v, want %d", f, n, bounded, err, len(want))
		}
	})
}

func TestComparedPagesLeadBackAndKnowTheirNeighbours(t *testing.T) {
	t.Parallel()
	s := setupCompared(t, 600)
	letters := patient(s.seed)
	for _, sort := range []string{SortNewest, SortOldest} {
		f := LetterFilter{Verdict: Collides, Sort: sort}
		want := s.naive(f)
		first, err := letters.List(t.Context(), f, Page{Limit: 30})
		if err != nil || first.Prev != "" || first.Next == "" || !slices.Equal(idsOf(first.Items), want[:30]) {
			t.Fatalf("%s: first page %d letters, prev %q, %v", sort, len(first.Items), first.Prev, err)
		}
		second, err := letters.List(t.Context(), f, Page{Limit: 30, Cursor: first.Next})
		if err != nil || !slices.Equal(idsOf(second.Items), want[30:60]) {
			t.Fatalf("%s: second page: %d letters, %v", sort, len(second.Items), err)
		}
		back, err := letters.List(t.Context(), f, Page{Limit: 30, Cursor: second.Prev})
		if err != nil || !slices.Equal(idsOf(back.Items), want[:30]) {
			t.Fatalf("%s: back: %d letters, %v", sort, len(back.Items), err)
		}
		before, after, err := letters.Neighbours(t.Context(), want[10], f)
		if err != nil || before != want[9] || after != want[11] {
			t.Errorf("%s: neighbours %s and %s, %v", sort, before, after, err)
		}
	}
}

func TestAListThatStopsSaysHowFarItLookedAndGoesOn(t *testing.T) {
	t.Parallel()
	s := setupCompared(t, 6000)
	letters := NewLetters(s.pool)
	letters.budgets = budgets{columns: 1, bytes: 1} // one part of the list each time
	f := LetterFilter{Verdict: Collides, AttemptsMin: 5}
	for i := range s.all {
		if s.all[i].verdict == Collides && s.all[i].attempts != nil && *s.all[i].attempts == 5 && i > 600 {
			s.exec("UPDATE dead_letter SET attempts = 1 WHERE id = $1", s.all[i].id)
			s.all[i].attempts = ptr(int32(1))
		}
	}
	want := s.naive(f)
	var got []uuid.UUID
	stops, p := 0, Page{Limit: 200}
	for {
		page, err := letters.List(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, idsOf(page.Items)...)
		if page.Stopped != nil {
			stops++
			if page.Next == "" || page.Stopped.Before(s.start.Add(-time.Second)) {
				t.Fatalf("stopped at %s with next %q", page.Stopped, page.Next)
			}
		}
		if p.Cursor = page.Next; p.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) || stops == 0 {
		t.Errorf("%d letters, want %d; stopped %d times", len(got), len(want), stops)
	}
	n, bounded, err := letters.Count(t.Context(), f)
	if err != nil || !bounded {
		t.Errorf("counted %d, bounded %v, %v: a count that stopped must say so", n, bounded, err)
	}
}

func TestBadSearchesNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	letters := NewLetters(newSeed(t).pool)
	for field, f := range map[string]LetterFilter{
		"text":         {Text: "x"},
		"q":            {Search: `"unfinished`},
		"sort":         {Sort: "event_id"},
		"verdict":      {Verdict: 77},
		"attempts_max": {AttemptsMin: 5, AttemptsMax: 2},
		"owner":        {Owner: "a\x00b"},
	} {
		_, err := letters.List(t.Context(), f, Page{})
		bad, ok := errors.AsType[*ErrBadFilter](err)
		if !ok || bad.Field != field {
			t.Errorf("%+v: %v, want a bad %s", f, err, field)
		}
	}
}

var strangeIDs = []string{`a/b\c%d+e"f'g`, `%25`, `"quoted"`, `\`, `'`, "订单-42", "🎉🎉", `a"b`, `x:y`, `http://h/p?q=1&r=2`, "a+b", `100%`, "e1", "_", "%", "Ünïcode", "c:\\temp"}

func TestStrangeIDsAreFound(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	var all []seedLetter
	for _, id := range strangeIDs {
		value, err := json.Marshal(map[string]string{"orderId": "order " + id})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seedLetter{event: id, value: value, key: []byte("k " + id)})
	}
	ids := s.add(all...)
	s.indexAll()
	letters := patient(s)
	for i, id := range strangeIDs {
		for name, f := range map[string]LetterFilter{
			"event_id":   {EventID: id},
			"chip":       {Search: Term{Field: "event_id", Value: id}.String()},
			"key":        {Search: Term{Field: "key", Value: "k " + id}.String()},
			"json":       {Search: Term{Field: "json", Name: "orderId", Value: "order " + id}.String()},
			"any field":  {Search: Term{Value: "k " + id}.String()},
			"as a text":  {Text: "order " + id, Since: time.Now().Add(-time.Hour)},
			"both at it": {EventID: id, Search: Term{Field: "key", Value: "k " + id}.String()},
		} {
			page, err := letters.List(t.Context(), f, Page{})
			if err != nil || len(page.Items) == 0 || !slices.Contains(idsOf(page.Items), ids[i]) {
				t.Errorf("%s %q (%+v): %d letters, %v", name, id, f, len(page.Items), err)
			}
			if name != "as a text" && len(page.Items) > 1 {
				t.Errorf("%s %q: %d letters, want one", name, id, len(page.Items))
			}
		}
	}
}

func TestChineseTextIsFoundHoweverItIsEscaped(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(
		seedLetter{event: "plain", value: []byte(`{"备注":"客户余额不足，已退款"}`)},
		seedLetter{event: "lower", value: []byte(`{"note":"\u4f59\u989d\u4e0d\u8db3"}`)},
		seedLetter{event: "upper", value: []byte(`{"note":"\u4F59\u989D\u4E0D\u8DB3"}`)},
		seedLetter{event: "header", headers: []Header{{Name: "原因", Value: []byte("余额不足")}}},
		seedLetter{event: "error", message: "扣款失败：余额不足"},
		seedLetter{event: "other", value: []byte(`{"备注":"余额充足"}`)},
	)
	got := listAll(t, patient(s), LetterFilter{Text: "余额不足", Since: time.Now().Add(-time.Hour), Sort: SortOldest}, 50)
	if !slices.Equal(got, ids[:5]) {
		t.Errorf("%d letters, want the first five: %v", len(got), got)
	}
}

func TestTextIsFoundInAnyCase(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(
		seedLetter{event: "mixed", value: []byte(`{"name":"Ünsal MÜLLER"}`)},
		seedLetter{event: "zero", value: []byte("\x00\xff\xfeMÜLLER\x00")},
		seedLetter{event: "escaped", value: []byte(`{"name":"m\u00fcller"}`)},
		seedLetter{event: "header", headers: []Header{{Name: "customer", Value: []byte("Müller")}}},
		seedLetter{event: "error", message: "no such customer: müller"},
		seedLetter{event: "other", value: []byte(`mu\303\274ller`)},
		seedLetter{event: "backslash", value: []byte(`C:\\Temp\Bob`)},
		seedLetter{event: "a\\303", value: []byte{'\\', '3', '0', '3', 'x'}},
	)
	all := func(text string) []uuid.UUID {
		return listAll(t, patient(s), LetterFilter{Text: text, AnyCase: true, Since: time.Now().Add(-time.Hour), Sort: SortOldest}, 50)
	}
	if got := all("müller"); !slices.Equal(got, ids[:5]) {
		t.Errorf("müller: %d letters, want the first five", len(got))
	}
	if got := all(`c:\\TEMP`); !slices.Equal(got, ids[6:7]) {
		t.Errorf("a path: %v, want %v", got, ids[6])
	}
	if got := all("\u00c3"); len(got) != 0 { // its first byte is 0o303
		t.Errorf("written octal digits pass for a byte: %v", got)
	}
	exact := LetterFilter{Text: "müller", Since: time.Now().Add(-time.Hour), Sort: SortOldest}
	if got := listAll(t, patient(s), exact, 50); slices.Contains(got, ids[0]) {
		t.Error("without the option, case counts")
	}
}

func TestTheIndexStaysBehindAndSaysHowFar(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := time.Now()
	s.add(seedLetter{event: "old", at: now.Add(-10 * time.Minute)}, seedLetter{event: "young", at: now})
	if n, err := IndexTokens(t.Context(), s.pool, TokenLag); err != nil || n != 1 {
		t.Fatalf("indexed %d, %v: want only what is old enough to be whole", n, err)
	}
	letters := NewLetters(s.pool)
	index, err := letters.TokenIndex(t.Context())
	if err != nil || index.Lag < 9*time.Minute || index.Until.After(now.Add(-9*time.Minute)) {
		t.Errorf("%+v, %v", index, err)
	}
	if page, err := letters.List(t.Context(), LetterFilter{Search: "young"}, Page{}); err != nil || len(page.Items) != 0 {
		t.Errorf("found %d letters before they were indexed, %v", len(page.Items), err)
	}
	s.indexAll()
	if page, err := letters.List(t.Context(), LetterFilter{Search: "young"}, Page{}); err != nil || len(page.Items) != 1 {
		t.Errorf("found %d letters, %v", len(page.Items), err)
	}
	if index, err := letters.TokenIndex(t.Context()); err != nil || index.Lag != 0 {
		t.Errorf("%+v, %v: nothing waits", index, err)
	}
}

func TestAWalkSeesEachLetterOnceWhileMoreArrive(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	const n = 50_000
	start := time.Now().Add(-time.Hour)
	letters := make([]seedLetter, n)
	for i := range letters {
		letters[i] = seedLetter{event: fmt.Sprint(i), group: "points", at: start.Add(time.Duration(i/3) * time.Millisecond), state: State(1 + i%4)}
	}
	ids := s.add(letters...)
	for sort, f := range map[string]LetterFilter{"newest": {Group: "points"}, "oldest, compared": {Owner: OwnerNone, Group: "points", Sort: SortOldest}} {
		seen := map[uuid.UUID]int{}
		page, p := LetterPage{}, Page{Limit: 200}
		for i := 0; ; i++ {
			var err error
			if page, err = NewLetters(s.pool).List(t.Context(), f, p); err != nil {
				t.Fatal(err)
			}
			for _, l := range page.Items {
				seen[l.ID]++
			}
			if i%25 == 0 {
				s.add(seedLetter{event: fmt.Sprint(sort, i), group: "points", at: time.Now()})
			}
			if p.Cursor = page.Next; p.Cursor == "" {
				break
			}
		}
		for _, id := range ids {
			if seen[id] != 1 {
				t.Fatalf("%s: letter %s seen %d times", sort, id, seen[id])
			}
		}
	}
}

func TestTermsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []Term
		var words []string
		for range rapid.IntRange(1, 5).Draw(t, "terms") {
			term := Term{Field: rapid.SampledFrom([]string{"event_id", "key", "header", "json"}).Draw(t, "field"),
				Value: rapid.StringMatching(`[a-zA-Z0-9 "\\:/%+'余🎉]{3,20}`).Draw(t, "value")}
			if term.Field == "header" || term.Field == "json" {
				term.Name = rapid.StringMatching(`[a-z][a-z.-]{0,8}`).Draw(t, "name")
			}
			want, words = append(want, term), append(words, term.String())
		}
		got, err := ParseTerms(strings.Join(words, "  "))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: %v %v, want %v", words, got, err, want)
		}
	})
}
