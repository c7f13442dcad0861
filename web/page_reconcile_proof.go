package web

import (
	"maps"
	"slices"
	"strconv"

	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// currencies are all that occur in maps by currency, sorted; "" where there is none.
func currencies[V any](all ...map[string]V) []string {
	seen := map[string]bool{}
	for _, m := range all {
		for c := range m {
			seen[c] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// parties are the sides that a job has.
func parties(job *reconcile.Job) []reconcile.Party {
	if job.Outbox == nil {
		return []reconcile.Party{reconcile.Consumed, reconcile.Effect}
	}
	return []reconcile.Party{reconcile.Outbox, reconcile.Consumed, reconcile.Effect}
}

func sideWord(here locale.Locale, p reconcile.Party) string { return here.Text("side." + p.String()) }

// proofLines are the lines of a proof between difference and sum, in order.
var proofLines = []string{
	string(reconcile.PublishedNotConsumed), string(reconcile.MissingEffect), string(reconcile.EffectWithoutRecord), string(reconcile.AmountMismatch),
	string(reconcile.DuplicateEffect), string(reconcile.Timing), reconcile.LineTolerated, reconcile.LineUnpublished, reconcile.LineEdge,
}

// proofView is the proof of a run: sides, difference, what makes it up, and
// whether anything is left.
func proofView(here locale.Locale, f runFacts) *views.Proof {
	t := f.run.Tally
	p := &views.Proof{Currencies: t.Currencies(), Foots: t.Foots()}
	if len(p.Currencies) == 0 {
		p.Currencies = []string{""}
	}
	for _, party := range parties(f.job) {
		p.Rows = append(p.Rows, sideRow(here, f, party, p.Currencies))
	}
	if t.Upstream != nil {
		p.Rows = append(p.Rows, step{"run.difference_upstream", reconcile.Outbox, reconcile.Consumed, t.Upstream, t.UpstreamUnexplained}.rows(here, t, p.Currencies)...)
	}
	p.Rows = append(p.Rows, step{"run.difference", reconcile.Consumed, reconcile.Effect, effectLines(t), t.Unexplained}.rows(here, t, p.Currencies)...)
	p.Says, p.Hue = proofSays(here, f.run, p.Foots), "go"
	switch {
	case !p.Foots:
		p.Hue = "bad"
	case f.run.State == reconcile.Partial:
		p.Hue = "hold"
	}
	return p
}

func sideRow(here locale.Locale, f runFacts, party reconcile.Party, of []string) views.ProofRow {
	row := views.ProofRow{Label: sideWord(here, party), Sub: f.job.Side(party).Connection}
	for _, c := range of {
		total := f.run.Tally.Control[party][c]
		row.Cells = append(row.Cells, views.ProofCell{N: locale.Number(total.Rows), Amount: amountText(total.Amount, c)})
	}
	return row
}

// step is the proof of two sides that follow each other.
type step struct {
	label       string
	left, right reconcile.Party
	lines       reconcile.Lines
	unexplained func(currency string) reconcile.Amount
}

// effectLines are the lines of consumed and effect: what was published and not
// consumed is told where it makes a difference.
func effectLines(t *reconcile.Tally) reconcile.Lines {
	if t.Upstream[string(reconcile.PublishedNotConsumed)] == nil {
		return t.Lines
	}
	shown := maps.Clone(t.Lines)
	delete(shown, string(reconcile.PublishedNotConsumed))
	return shown
}

// rows are the difference, what makes it up, their sum, and what is left of it.
func (s step) rows(here locale.Locale, t *reconcile.Tally, of []string) []views.ProofRow {
	difference := views.ProofRow{Label: here.Text(s.label), Sum: true}
	sum := views.ProofRow{Sign: "=", Label: here.Text("run.explained_sum"), Sum: true}
	left, foots := views.ProofRow{Label: here.Text("run.unaccounted"), Sum: true, Bad: true}, true
	for _, c := range of {
		l, r, rest := t.Control[s.left][c], t.Control[s.right][c], s.unexplained(c)
		apart := l.Amount.Sub(r.Amount)
		difference.Cells = append(difference.Cells, views.ProofCell{N: locale.Number(l.Rows - r.Rows), Amount: amountText(apart, c)})
		sum.Cells = append(sum.Cells, views.ProofCell{Amount: amountText(apart.Sub(rest), c)})
		left.Cells = append(left.Cells, views.ProofCell{Amount: amountText(rest, c)})
		foots = foots && rest.IsZero()
	}
	rows := []views.ProofRow{difference}
	for _, line := range proofLines {
		if row, ok := lineRow(here, s.lines, line, of); ok {
			rows = append(rows, row)
		}
	}
	if rows = append(rows, sum); !foots {
		rows = append(rows, left)
	}
	return rows
}

// lineRow is one line of the proof; false: nothing falls under it.
func lineRow(here locale.Locale, lines reconcile.Lines, line string, of []string) (views.ProofRow, bool) {
	row, any := views.ProofRow{Label: lineWord(here, line)}, false
	for _, c := range of {
		l, ok := lines[line][c]
		cell := views.ProofCell{}
		if ok && (l.Keys != 0 || !l.Amount.IsZero()) {
			any = true
			cell = views.ProofCell{N: locale.Number(l.Keys), Amount: amountText(l.Amount, c)}
			if l.Amount.IsZero() {
				cell.Amount = "" // of two sides elsewhere
			}
		}
		row.Cells = append(row.Cells, cell)
	}
	return row, any
}

func lineWord(here locale.Locale, line string) string {
	if line == reconcile.LineTolerated || line == reconcile.LineEdge || line == reconcile.LineUnpublished {
		return here.Text("run.line." + line)
	}
	return here.Text("break.type." + line)
}

// proofSays is whether the proof foots, in one sentence: of what was compared.
func proofSays(here locale.Locale, r *reconcile.Run, foots bool) string {
	of := r.Tally.Currencies()
	left := map[string]reconcile.Line{}
	for _, c := range of {
		u := r.Tally.Unexplained(c)
		if u.IsZero() {
			u = r.Tally.UpstreamUnexplained(c)
		}
		if !u.IsZero() {
			left[c] = reconcile.Line{Amount: u}
		}
	}
	switch {
	case !foots:
		return here.Text("run.foots_not", "amounts", moneyList(here, left))
	case r.State == reconcile.Partial:
		return here.Text("run.foots_partial")
	}
	if len(of) == 2 {
		return here.Text("run.foots_both")
	}
	return here.Text("run.foots", "n", max(len(of), 1))
}

// rollSigns stand before a movement's line; what closes is told without its minus.
var rollSigns = map[reconcile.Movement]string{
	reconcile.MovedOpened: "+", reconcile.MovedReopened: "+", reconcile.MovedChanged: "±",
	reconcile.MovedAutoClosed: "−", reconcile.MovedCompensated: "−", reconcile.MovedExplained: "−",
}

// rollView is opening + movements = closing.
func rollView(here locale.Locale, f runFacts) *views.Roll {
	roll := f.run.Roll
	if roll == nil {
		return nil
	}
	v := &views.Roll{Since: here.Text("run.roll_first"), Currencies: currencies(roll.Currencies)}
	if f.before != nil {
		id := strconv.FormatInt(f.before.ID, 10)
		v.Since, v.SinceHref = here.Text("run.roll_since", "id", id, "state", here.Inside(here.Text("state.run."+runStateWord(*f.before)))), runHref(f.before.ID)
	}
	if len(v.Currencies) == 0 {
		v.Currencies = []string{""}
	}
	v.Rows = append(v.Rows, rollEdge(here.Text("run.moved.opening"), "", roll, v.Currencies, func(c reconcile.RollCurrency) reconcile.Line { return c.Opening }))
	for _, movement := range reconcile.Movements {
		if row, ok := rollRow(here, roll, movement, v.Currencies); ok {
			v.Rows = append(v.Rows, row)
		}
	}
	v.Rows = append(v.Rows, rollEdge(here.Text("run.moved.closing"), "=", roll, v.Currencies, func(c reconcile.RollCurrency) reconcile.Line { return c.Closing }))
	v.Rows[len(v.Rows)-1].Sum = true
	return v
}

func rollEdge(label, sign string, roll *reconcile.Roll, of []string, line func(reconcile.RollCurrency) reconcile.Line) views.ProofRow {
	row := views.ProofRow{Sign: sign, Label: label}
	if sign == "" {
		row.Sign = " "
	}
	for _, c := range of {
		l := line(roll.Currencies[c])
		row.Cells = append(row.Cells, views.ProofCell{N: locale.Number(l.Keys), Amount: amountText(l.Amount, c)})
	}
	return row
}

// rollRow is one movement. The usual ones are told even where nothing moved.
func rollRow(here locale.Locale, roll *reconcile.Roll, movement reconcile.Movement, of []string) (views.ProofRow, bool) {
	row := views.ProofRow{Sign: rollSigns[movement], Label: here.Text("run.moved." + string(movement))}
	any := movement != reconcile.MovedReopened && movement != reconcile.MovedChanged
	for _, c := range of {
		l, ok := roll.Currencies[c].Moved[movement]
		cell := views.ProofCell{}
		if ok {
			any = true
			if row.Sign == "−" {
				l.Keys, l.Amount = -l.Keys, l.Amount.Neg()
			}
			cell = views.ProofCell{N: locale.Number(l.Keys), Amount: amountText(l.Amount, c)}
		}
		row.Cells = append(row.Cells, cell)
	}
	return row, any
}
