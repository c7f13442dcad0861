package web

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"oncemore/dlq"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// runTiles are the figures over the proof. Nothing is green where a part is
// missing, and what nobody knows is a word.
func runTiles(here locale.Locale, f runFacts) []views.RunTile {
	t := f.run.Tally
	return []views.RunTile{matchedTile(here, f.run), toleratedTile(here, t), newTile(here, f), riskTile(here, f), timingTile(here, t), skippedTile(here, t)}
}

func matchedTile(here locale.Locale, r *reconcile.Run) views.RunTile {
	keys := r.Tally.Matched + r.Tally.Wrong()
	tile := views.RunTile{Hue: "go", Icon: "circle-check", Label: here.Text("run.matched"), Value: locale.Share(r.Tally.Matched, keys),
		Sub: here.Text("run.matched_of", "matched", locale.Number(r.Tally.Matched), "n", keys)}
	if r.State == reconcile.Partial {
		tile.Hue, tile.Icon, tile.Sub = "hold", "help", here.Text("run.matched_so_far", "matched", locale.Number(r.Tally.Matched), "n", keys)
	}
	if keys == 0 {
		tile.Hue, tile.Icon, tile.Value, tile.Sub = "mute", "circle-dashed", "–", here.Text("run.no_events")
	}
	return tile
}

func toleratedTile(here locale.Locale, t *reconcile.Tally) views.RunTile {
	lines := t.Lines[reconcile.LineTolerated]
	tile := views.RunTile{Hue: "mute", Icon: "equal", Label: here.Text("run.tolerated"), Value: locale.Number(keysOf(lines)), Sub: here.Text("run.tolerated_none")}
	if len(lines) > 0 {
		tile.Sub = here.Text("run.tolerated_sum", "amounts", moneyList(here, lines))
	}
	return tile
}

func keysOf(lines map[string]reconcile.Line) (n int64) {
	for _, l := range lines {
		n += l.Keys
	}
	return n
}

// fresh are the breaks that a run found new or back, timing left out.
func (f runFacts) fresh() (n, back int64, gross, net map[string]reconcile.Line) {
	gross, net = map[string]reconcile.Line{}, map[string]reconcile.Line{}
	for _, g := range f.figures {
		if g.Type == reconcile.Timing || g.What != reconcile.SaidNew && g.What != reconcile.SaidBack {
			continue
		}
		n += g.Items
		if g.What == reconcile.SaidBack {
			back += g.Items
		}
		gross[g.Currency] = reconcile.Line{Keys: gross[g.Currency].Keys + g.Items, Amount: gross[g.Currency].Amount.Add(g.Gross)}
		net[g.Currency] = reconcile.Line{Keys: net[g.Currency].Keys + g.Items, Amount: net[g.Currency].Amount.Add(g.Net)}
	}
	return n, back, gross, net
}

func newTile(here locale.Locale, f runFacts) views.RunTile {
	n, back, _, _ := f.fresh()
	tile := views.RunTile{Hue: "ask", Icon: "alert-triangle", Label: here.Text("run.new"), Value: locale.Number(n), Sub: here.Text("run.new_sub")}
	if n == 0 {
		tile.Hue, tile.Icon = "mute", "circle-dashed"
	}
	if back > 0 {
		tile.Sub = here.Text("run.new_back", "n", back)
	}
	return tile
}

// riskTile shows the first currency large; the others are never added to it.
func riskTile(here locale.Locale, f runFacts) views.RunTile {
	_, _, gross, net := f.fresh()
	tile := views.RunTile{Hue: "ask", Icon: "scale", Label: here.Text("run.at_risk"), Value: "0", Sub: here.Text("run.at_risk_none")}
	of := currencies(gross)
	if len(of) == 0 {
		tile.Hue = "mute"
		return tile
	}
	tile.Value, tile.Unit = amountText(gross[of[0]].Amount, of[0]), of[0]
	tile.Sub = here.Text("run.at_risk_sub", "net", amountText(net[of[0]].Amount, of[0]))
	for _, c := range of[1:] {
		tile.Sub += here.Text("list.clause") + here.Text("run.at_risk_more", "gross", money(gross[c].Amount, c), "net", amountText(net[c].Amount, c))
	}
	return tile
}

func timingTile(here locale.Locale, t *reconcile.Tally) views.RunTile {
	lines := t.Lines[string(reconcile.Timing)]
	tile := views.RunTile{Hue: "mute", Icon: "clock", Label: here.Text("run.timing"), Value: locale.Number(keysOf(lines)), Sub: here.Text("run.timing_none")}
	if len(lines) > 0 {
		tile.Sub = here.Text("run.timing_some")
	}
	if some := nonZero(lines); len(some) > 0 {
		tile.Sub = here.Text("run.timing_sum", "amounts", moneyList(here, some))
	}
	return tile
}

func nonZero(lines map[string]reconcile.Line) map[string]reconcile.Line {
	some := map[string]reconcile.Line{}
	for c, l := range lines {
		if !l.Amount.IsZero() {
			some[c] = l
		}
	}
	return some
}

// skippedTile counts rows without a key: nobody knows what they belong to.
func skippedTile(here locale.Locale, t *reconcile.Tally) views.RunTile {
	tile := views.RunTile{Hue: "mute", Icon: "circle-dashed", Label: here.Text("run.skipped"), Sub: here.Text("run.skipped_none")}
	n, amounts := int64(0), []string{}
	for p := range t.Keyless {
		for _, c := range currencies(t.Keyless[p]) {
			n += t.Keyless[p][c].Rows
			amounts = append(amounts, sideWord(here, reconcile.Party(p))+" "+money(t.Keyless[p][c].Amount, c))
		}
	}
	if tile.Value = locale.Number(n); n > 0 {
		tile.Hue, tile.Icon, tile.Sub = "ask", "alert-triangle", here.Text("run.skipped_sum", "amounts", strings.Join(amounts, here.Text("list.comma")))
	}
	return tile
}

// ages are the buckets of aging as an address names them.
var breakAges = []string{"0-1", "1-3", "3-7", "7-30", "30-"}

// agingView is a run's aging, as it was sealed.
func agingView(here locale.Locale, f runFacts, q runQuery) *views.Aging {
	if f.run.Roll == nil {
		return nil
	}
	v := &views.Aging{}
	for _, age := range breakAges {
		v.Heads = append(v.Heads, ageHead(here, age))
	}
	of := map[string][]reconcile.Bucket{}
	for _, b := range f.run.Roll.Aging {
		of[b.Currency] = append(of[b.Currency], b)
	}
	for _, currency := range currencies(of) {
		v.Rows = append(v.Rows, agingRow(here, currency, of[currency], q))
	}
	return v
}

func ageHead(here locale.Locale, age string) string {
	from, to, _ := strings.Cut(age, "-")
	if to == "" {
		return here.Text("run.age_over", "from", from)
	}
	return here.Text("run.age", "from", from, "to", to)
}

func agingRow(here locale.Locale, currency string, buckets []reconcile.Bucket, q runQuery) views.AgingRow {
	row := views.AgingRow{Currency: currency}
	for i, age := range breakAges {
		cell := views.AgingCell{Amount: amountText(reconcile.Amount{}, currency), Current: q.age == age}
		for _, b := range buckets {
			if bucketNo(b.UpTo) == i {
				q := q
				q.age, q.what, q.kind = age, "open", ""
				cell = views.AgingCell{Amount: amountText(b.Amount, currency), Items: here.Text("run.breaks_count", "n", b.Items), Href: q.address("") + "#breaks", Heat: min(i, 2) + 1, Current: cell.Current}
			}
		}
		row.Cells = append(row.Cells, cell)
	}
	return row
}

func bucketNo(upTo time.Duration) int {
	for i, a := range reconcile.Ages {
		if a == upTo {
			return i
		}
	}
	return len(reconcile.Ages)
}

// opened is when a break of an age was opened, seen from an instant.
func opened(age string, at time.Time) (o reconcile.Opened) {
	from, to, _ := strings.Cut(age, "-")
	day := 24 * time.Hour
	if n, err := strconv.Atoi(from); err == nil && n > 0 {
		o.To = at.Add(-time.Duration(n) * day).Add(time.Microsecond)
	}
	if n, err := strconv.Atoi(to); err == nil {
		o.From = at.Add(-time.Duration(n) * day).Add(time.Microsecond)
	}
	return o
}

// hopViews tell where on its way each currency was lost, in what this run found
// new or still there.
func hopViews(here locale.Locale, f runFacts) []views.Hop {
	var all []views.Hop
	for _, c := range f.run.Tally.Currencies() {
		hop := views.Hop{Currency: c}
		for _, p := range parties(f.job) {
			step := views.HopStep{Name: sideWord(here, p), Amount: locale.Money(f.run.Tally.Control[p][c].Amount.String(), c)}
			if n, gross := f.lostBefore(p, c); n > 0 {
				step.Lost, step.LostAmount = here.Text("run.lost_"+p.String(), "n", n), amountText(gross, c)
			}
			hop.Steps = append(hop.Steps, step)
		}
		all = append(all, hop)
	}
	return all
}

// lostBefore sums up what this run found wrong between a side and the one before it.
func (f runFacts) lostBefore(p reconcile.Party, currency string) (n int64, gross reconcile.Amount) {
	for _, g := range f.figures {
		upstream := g.Type == reconcile.PublishedNotConsumed
		if g.Currency != currency || g.What != reconcile.SaidNew && g.What != reconcile.SaidBack || g.Type == reconcile.Timing ||
			p == reconcile.Outbox || upstream != (p == reconcile.Consumed) {
			continue
		}
		n, gross = n+g.Items, gross.Add(g.Gross)
	}
	return n, gross
}

// faultLinks name the faults that open breaks come from, the largest first, at
// most three.
func (s *Server) faultsOfRun(here locale.Locale, f runFacts) []views.FaultLink {
	risk := map[string][]reconcile.EventRisk{}
	for _, e := range f.events {
		risk[e.EventID] = append(risk[e.EventID], e)
	}
	byFault, order := map[int32]*faultShare{}, []int32{}
	for _, l := range f.letters {
		if l.State != dlq.Open && l.State != dlq.Replaying {
			continue
		}
		if byFault[l.FaultID] == nil {
			byFault[l.FaultID] = &faultShare{events: map[string]bool{}, lines: map[string]reconcile.Line{}}
			order = append(order, l.FaultID)
		}
		byFault[l.FaultID].add(l, risk[l.EventID])
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(len(byFault[b].events), len(byFault[a].events)) })
	var all []views.FaultLink
	for _, id := range order[:min(len(order), 3)] {
		share, name := byFault[id], strconv.Itoa(int(id))
		all = append(all, views.FaultLink{
			Text: here.Text("run.from_fault", "n", len(share.events), "all", locale.Number(int64(len(f.events))), "fault", "F-"+name, "amounts", moneyList(here, share.lines)) +
				here.Text("sentence.gap") + here.Text("run.from_fault_safe", "n", share.safe, "letters", locale.Number(int64(share.letters))),
			Href: "/faults/" + name, Link: here.Text("replay.plan_button")})
	}
	return all
}

// faultShare is what a fault has to do with a run's open breaks.
type faultShare struct {
	events        map[string]bool
	lines         map[string]reconcile.Line
	letters, safe int
}

func (s *faultShare) add(l dlq.EventLetter, risk []reconcile.EventRisk) {
	if s.letters++; l.Verdict == dlq.Safe {
		s.safe++
	}
	if s.events[l.EventID] {
		return
	}
	s.events[l.EventID] = true
	for _, r := range risk {
		s.lines[r.Currency] = reconcile.Line{Amount: s.lines[r.Currency].Amount.Add(r.Amount)}
	}
}
