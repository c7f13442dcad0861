package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"oncemore/dlq"
)

type replayCmd struct {
	Plan   replayPlanCmd   `cmd:"" help:"Freeze a set of letters and say what a replay would send, and what would stay and why."`
	Start  replayStartCmd  `cmd:"" help:"Start a planned replay. Role jobs of console serve sends it."`
	Pause  replayPauseCmd  `cmd:"" help:"Stop sending; what was sent is still watched."`
	Resume replayResumeCmd `cmd:"" help:"Go on with a paused replay, or with the next rung of its ladder."`
	Cancel replayCancelCmd `cmd:"" help:"Give up what was not sent."`
	Show   replayShowCmd   `cmd:"" help:"Show a replay with what it did."`
}

type replayPlanCmd struct {
	configFlag
	Letter []uuid.UUID `help:"Id of a letter; may be given several times." placeholder:"ID"`
	Fault  int32       `help:"Number of a fault: its open letters." placeholder:"N"`
	Redo   int64       `help:"Number of a replay: the letters of its items that failed, were lost, not sent or not seen." placeholder:"N"`
	Group  string      `help:"Consumer group: its open letters." placeholder:"GROUP"`
	Source string      `help:"Dead-letter topic: its open letters." placeholder:"TOPIC"`
	Target string      `help:"group (only the letter's own group), origin (every group of the topic), or safe: the narrowest, sent at once, and only what is safe." default:"group" enum:"group,origin,safe"`
	Reason string      `help:"Why; goes into the audit." required:""`
	DryRun bool        `help:"Only say what would happen."`
	paceFlags
}

// paceFlags are how fast a replay goes, when it may, and when it stops by itself.
type paceFlags struct {
	Ladder    []int     `help:"Items per rung, such as 1,5,25,100; all others come after the last. Each rung waits for console replay resume." placeholder:"N,…"`
	Automatic bool      `help:"Climb the ladder by itself while the outcomes of each rung are good."`
	Rate      int       `help:"Items per second; 0 is no limit." placeholder:"N"`
	StopShare int       `help:"Stop when this many percent of the items tried have failed; 0 is never." placeholder:"PERCENT"`
	Window    string    `help:"Hours in which to send, such as 22:00-06:00." placeholder:"FROM-TO"`
	Zone      string    `help:"Time zone of the window." default:"UTC" placeholder:"ZONE"`
	At        time.Time `help:"Do not begin before this time, such as 2026-12-01T02:00:00Z." placeholder:"TIME"`
}

func (f paceFlags) pace() (dlq.Pace, error) {
	p := dlq.Pace{Ladder: f.Ladder, Automatic: f.Automatic, Rate: f.Rate, StopShare: f.StopShare}
	if !f.At.IsZero() {
		p.StartAt = &f.At
	}
	if f.Window == "" {
		return p, nil
	}
	from, to, _ := strings.Cut(f.Window, "-")
	var err error
	p.Window, err = dlq.ParseWindow(from, to, f.Zone)
	return p, err
}

// Run prints the plan.
func (c replayPlanCmd) Run(e *edge) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	pace, err := c.pace()
	if err != nil {
		return err
	}
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	plan := a.replays.Plan
	if c.DryRun {
		plan = a.replays.DryRun
	}
	made, err := plan(e.ctx, operator(c.Reason), dlq.PlanRequest{Selection: sel, Target: targetNames[c.Target], Pace: pace})
	if err != nil {
		return err
	}
	return printPlan(e.out, made)
}

var targetNames = map[string]dlq.Target{"group": dlq.ToGroup, "origin": dlq.ToOrigin, "safe": dlq.ToSafe}

func (c replayPlanCmd) selection() (dlq.Selection, error) {
	sel := dlq.Selection{LetterIDs: c.Letter, FaultID: c.Fault, RedoOf: c.Redo}
	if c.Group != "" || c.Source != "" {
		sel.Filter = &dlq.LetterFilter{State: dlq.Open, Group: c.Group, Source: c.Source}
	}
	ways := 0
	for _, given := range []bool{len(c.Letter) > 0, c.Fault != 0, c.Redo != 0, sel.Filter != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return sel, fmt.Errorf("name the letters in one way: --letter, --fault, --redo, or --group and --source")
	}
	return sel, nil
}

// refusalsShown keeps a terminal readable; the pages list all.
const refusalsShown = 20

func printPlan(out io.Writer, p dlq.Plan) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if p.ID != 0 {
		fmt.Fprintf(w, "replay\tR-%d, %s\n", p.ID, p.State)
	}
	if p.State == dlq.Planning {
		fmt.Fprintf(w, "in steps\tconsole replay show %d follows it; role jobs of console serve judges the letters\n", p.ID)
		return w.Flush()
	}
	fmt.Fprintf(w, "will be sent\t%d\n", p.Total)
	for _, v := range slices.Sorted(maps.Keys(p.Verdicts)) {
		fmt.Fprintf(w, "%s\t%d\n", v, p.Verdicts[v])
	}
	for i, r := range p.Refused {
		if i == refusalsShown {
			fmt.Fprintf(w, "stays\tand %d more\n", len(p.Refused)-i)
			break
		}
		fmt.Fprintf(w, "stays\t%s in %s: %s (%s)\n", r.LetterID, r.Group, r.Reason.Text, r.Verdict)
	}
	return w.Flush()
}

type replayStartCmd struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the replay."`
	Reason string `help:"Why; goes into the audit." required:""`
}

// Run starts the replay and returns at once.
func (c replayStartCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.replays.Start(e.ctx, operator(c.Reason), c.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.out, "R-%d is started; console replay show %d follows it\n", c.ID, c.ID)
	return err
}

type replayResumeCmd struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the replay."`
	Reason string `help:"Why; goes into the audit."`
}

// Run goes on with a paused replay: with the next rung, where a rung was sent.
func (c replayResumeCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	return a.replays.Resume(e.ctx, operator(c.Reason), c.ID)
}

type replayPauseCmd struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the replay."`
	Reason string `help:"Why; goes into the audit."`
}

// Run stops sending; what was sent is still watched.
func (c replayPauseCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	return a.replays.Pause(e.ctx, operator(c.Reason), c.ID)
}

type replayCancelCmd struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the replay."`
	Reason string `help:"Why; goes into the audit."`
}

// Run gives up what was not sent.
func (c replayCancelCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	return a.replays.Cancel(e.ctx, operator(c.Reason), c.ID)
}

type replayShowCmd struct {
	configFlag
	ID int64 `arg:"" help:"Number of the replay."`
}

// Run prints the replay's state and outcomes.
func (c replayShowCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	r, err := a.replays.Get(e.ctx, c.ID)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "replay\tR-%d\nstate\t%s\nplanned\t%s by %s: %s\nsent\t%d of %d\n",
		r.ID, r.State, r.CreatedAt.UTC().Format(time.RFC3339), r.CreatedBy, r.Reason, r.Sent, r.Total)
	if r.State == dlq.Planning {
		fmt.Fprintf(w, "judged\t%d of %d letters\n", r.Letters, r.PlanTotal)
	}
	if r.Wait.Text != "" {
		fmt.Fprintf(w, "waits\t%s\n", r.Wait.Text)
	}
	if r.Elders > 0 {
		fmt.Fprintf(w, "elders\t%d items have an open elder of the same key outside the set\n", r.Elders)
	}
	if err := showLadder(e.ctx, w, a.replays, r); err != nil {
		return err
	}
	for _, o := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(w, "%s\t%d\n", o, r.Outcomes[o])
	}
	return w.Flush()
}

func showLadder(ctx context.Context, w io.Writer, replays *dlq.Replays, r dlq.Replay) error {
	rungs, err := replays.Ladder(ctx, r)
	if err != nil {
		return err
	}
	for i, rung := range rungs {
		fmt.Fprintf(w, "rung %d\titems %d to %d: %s, %d sent, %d not well, %d pending\n", i+1, rung.From, rung.To, rung.State, rung.Sent, rung.Bad, rung.Pending)
	}
	return nil
}
