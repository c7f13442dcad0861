package web

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

func overviewView(here locale.Locale, o dlq.Overview, f finance, actor access.Actor) views.Overview {
	mine, tasks := waitingFor(o, actor), financeTasks(here, f, actor)
	v := views.Overview{
		Headline: headline(here, o, f, len(mine)+len(tasks)), At: o.At, OpenNow: int(o.Open), FaultsN: int(o.OpenFaults),
		Answers: []views.Answer{
			lostAnswer(here, o), stuckAnswer(here, o), growingAnswer(here, o), unattendedAnswer(here, o), unreconciledAnswer(here, f), waitingAnswer(here, o, f, mine),
		},
		Calm: here.Text("overview.calm"), NoFaults: here.Text("overview.none_open"), Ages: ageRows(o.Ages), Jobs: jobCard(here, f),
	}
	if o.Sources == 0 {
		v.NoFaults = here.Text("faults.none_yet")
	}
	for _, h := range o.Hours {
		v.Chart.Hours = append(v.Chart.Hours, views.ChartHour{At: h.Hour, Arrived: int(h.Arrived), Resolved: int(h.Resolved)})
	}
	for _, f := range o.NeedSomeone {
		v.Faults = append(v.Faults, faultRow(here, f))
	}
	for _, r := range o.Replays {
		v.Replays = append(v.Replays, replayRow(here, r))
	}
	for _, r := range mine {
		v.Waiting = append(v.Waiting, approvalTask(here, r))
	}
	v.Waiting = append(v.Waiting, tasks...)
	return v
}

// waitingFor is what this person may decide: nobody decides about their own.
func waitingFor(o dlq.Overview, actor access.Actor) []dlq.Replay {
	if !actor.May(access.ApproveReplay) {
		return nil
	}
	var mine []dlq.Replay
	for _, r := range o.Waiting {
		if r.CreatedBy != actor.User {
			mine = append(mine, r)
		}
	}
	return mine
}

func approvalTask(here locale.Locale, r dlq.Replay) views.Task {
	id := strconv.FormatInt(r.ID, 10)
	return views.Task{
		Icon: "user-check", Title: here.Text("overview.approve", "id", id), Href: "/replays/" + id + "/plan", Link: here.Text("overview.review"),
		Detail: here.Text("overview.approve_detail", "letters", replayWhat(here, r), "by", r.CreatedBy, "time", here.Relative(r.CreatedAt)),
	}
}

// headline is the verdict in words. It says "all quiet" only when every answer is
// known and good.
func headline(here locale.Locale, o dlq.Overview, f finance, mine int) string {
	if o.Sources == 0 && o.Open == 0 {
		return here.Text("overview.first")
	}
	var parts []string
	add := func(key string, n int) {
		if n > 0 {
			parts = append(parts, here.Text(key, "n", n))
		}
	}
	add("overview.head_lost", int(o.Lost))
	add("overview.head_growing", len(o.Growing))
	add("overview.head_unattended", len(o.Unattended))
	if len(parts) == 0 {
		add("overview.head_open", int(o.Open))
	}
	add("overview.head_breaks", int(f.open))
	add("overview.head_waiting", mine)
	switch {
	case len(parts) > 0:
		return upperFirst(strings.Join(parts, here.Text("list.clause")))
	case o.UnattendedErr != "" || f.notKnown(here) > 0:
		return here.Text("overview.partial")
	}
	return here.Text("overview.quiet")
}

func upperFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// lostAnswer is green only where something is drained and no gap was found.
func lostAnswer(here locale.Locale, o dlq.Overview) views.Answer {
	a := views.Answer{Label: here.Text("overview.lost"), Href: "/sources", Hue: "go", Icon: "circle-check", Value: here.Text("overview.lost_none")}
	switch {
	case o.Gaps > 0:
		a.Hue, a.Icon, a.Value, a.Unit = "bad", "alert-triangle", locale.Number(o.Lost), here.Text("overview.records", "n", o.Lost)
		a.Evidence = here.Text("overview.lost_gaps", "n", o.Gaps, "time", here.Short(deref(o.LastGapAt)))
	case o.Sources == 0:
		a.Hue, a.Icon, a.Value, a.Evidence = "hold", "help", here.Text("overview.lost_yet"), here.Text("overview.connect")
	case o.LastDrainAt == nil:
		a.Hue, a.Icon, a.Value, a.Evidence = "hold", "help", here.Text("overview.lost_unknown"), here.Text("overview.connect")
	default:
		a.Evidence = here.Text("overview.lost_evidence", "sources", o.Sources, "n", o.Sources, "time", here.Clock(*o.LastDrainAt))
	}
	return a
}

func stuckAnswer(here locale.Locale, o dlq.Overview) views.Answer {
	a := views.Answer{Label: here.Text("overview.stuck"), Hue: "go", Icon: "circle-check", Value: "0", Unit: here.Text("overview.letters", "n", 0),
		Evidence: here.Text("overview.stuck_none"), Href: address("/letters", "state", "open", "until", rfc(o.At.Add(-ages["24h"])))}
	if o.Stuck > 0 {
		a.Hue, a.Icon, a.Value, a.Unit = "ask", "clock", locale.Number(o.Stuck), here.Text("overview.letters", "n", o.Stuck)
		if o.StuckBounded {
			a.Value += "+"
		}
		a.Evidence = here.Text("overview.stuck_evidence", "age", here.Duration(o.At.Sub(deref(o.OldestOpenAt))))
	}
	return a
}

func growingAnswer(here locale.Locale, o dlq.Overview) views.Answer {
	n := len(o.Growing)
	a := views.Answer{Label: here.Text("overview.growing"), Hue: "go", Icon: "circle-check", Value: strconv.Itoa(n),
		Unit: here.Text("overview.faults_unit", "n", n), Evidence: here.Text("overview.growing_none"), Href: "/faults?sort=-last_seen"}
	if n > 0 {
		top := o.Growing[0]
		a.Hue, a.Icon = "bad", "trending-up"
		a.Evidence = here.Text("overview.growing_evidence", "n", top.LastHour, "group", deref(top.Group))
	}
	return a
}

func unattendedAnswer(here locale.Locale, o dlq.Overview) views.Answer {
	n := len(o.Unattended)
	a := views.Answer{Label: here.Text("overview.unattended"), Hue: "go", Icon: "circle-check", Value: strconv.Itoa(n),
		Unit: here.Text("overview.sources_unit", "n", n), Evidence: here.Text("overview.unattended_none"), Href: "/sources"}
	switch {
	case n > 0:
		a.Hue, a.Icon = "ask", "eye-off"
		a.Evidence = here.Text("overview.unattended_evidence", "topic", o.Unattended[0].Topic, "n", o.Unattended[0].Records)
	case o.UnattendedErr != "":
		a.Hue, a.Icon, a.Value, a.Unit = "hold", "help", here.Text("word.unknown"), ""
		a.Evidence = here.Text("overview.unattended_unknown")
	}
	return a
}

// waitingAnswer leads to where most of it is: the list of replays, of runs, or of
// one's own breaks.
func waitingAnswer(here locale.Locale, o dlq.Overview, f finance, mine []dlq.Replay) views.Answer {
	approvals := len(mine) + len(f.props)
	n := approvals + len(f.sign) + len(f.mine)
	a := views.Answer{Label: here.Text("overview.waiting"), Hue: "mute", Icon: "user-check", Value: strconv.Itoa(n),
		Unit: here.Text("overview.items", "n", n), Evidence: here.Text("overview.waiting_none"), Href: "/replays?state=awaiting_approval"}
	var parts []string
	for _, p := range []struct {
		key, href string
		n         int
	}{{"overview.waiting_evidence", a.Href, approvals}, {"overview.waiting_signoffs", "/reconciliations", len(f.sign)}, {"overview.waiting_breaks", "/breaks", len(f.mine)}} {
		if p.n == 0 {
			continue
		}
		if parts = append(parts, here.Text(p.key, "n", p.n)); len(parts) == 1 {
			a.Href = p.href
		}
	}
	switch others := len(o.Waiting) - len(mine); {
	case n > 0:
		a.Hue, a.Evidence = "ask", strings.Join(parts, here.Text("list.comma"))
	case others > 0:
		a.Evidence = here.Text("overview.waiting_others", "n", others)
	}
	return a
}

// ageRows shades each cell by its share of the largest.
func ageRows(ages []dlq.AgeRow) []views.AgeRow {
	var top int64
	for _, a := range ages {
		top = max(top, a.Hour, a.Day, a.Older)
	}
	var rows []views.AgeRow
	for _, a := range ages {
		row := views.AgeRow{Source: a.Source, Broker: brokerNames[a.Broker]}
		for _, n := range []int64{a.Hour, a.Day, a.Older} {
			row.Cells = append(row.Cells, ageCell(n, top))
		}
		row.Href = address("/letters", "state", "open", "source", a.Source, "cluster", a.Cluster)
		rows = append(rows, row)
	}
	return rows
}

func ageCell(n, top int64) views.AgeCell {
	cell := views.AgeCell{N: locale.Number(n)}
	if n > dlq.CountLimit {
		cell.N = locale.Number(dlq.CountLimit) + "+"
	}
	switch {
	case n == 0:
	case n*3 > top*2:
		cell.Heat = 3
	case n*4 > top:
		cell.Heat = 2
	default:
		cell.Heat = 1
	}
	return cell
}
