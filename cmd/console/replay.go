package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"oncemore/dlq"
)

type replayCmd struct {
	Plan  replayPlanCmd  `cmd:"" help:"Freeze a set of letters and say what a replay would send, and what would stay and why."`
	Start replayStartCmd `cmd:"" help:"Start a planned replay. Role jobs of console serve sends it."`
	Show  replayShowCmd  `cmd:"" help:"Show a replay with what it did."`
}

type replayPlanCmd struct {
	configFlag
	Letter []uuid.UUID `help:"Id of a letter; may be given several times." placeholder:"ID"`
	Fault  int32       `help:"Number of a fault: its open letters." placeholder:"N"`
	Group  string      `help:"Consumer group: its open letters." placeholder:"GROUP"`
	Source string      `help:"Dead-letter topic: its open letters." placeholder:"TOPIC"`
	Target string      `help:"group (only the letter's own group), origin (every group of the topic), or safe: the narrowest, sent at once, and only what is safe." default:"group" enum:"group,origin,safe"`
	Reason string      `help:"Why; goes into the audit." required:""`
	DryRun bool        `help:"Only say what would happen."`
}

// Run prints the plan.
func (c replayPlanCmd) Run(e *edge) error {
	sel, err := c.selection()
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
	made, err := plan(e.ctx, operator(c.Reason), dlq.PlanRequest{Selection: sel, Target: targetNames[c.Target]})
	if err != nil {
		return err
	}
	return printPlan(e.out, made)
}

var targetNames = map[string]dlq.Target{"group": dlq.ToGroup, "origin": dlq.ToOrigin, "safe": dlq.ToSafe}

func (c replayPlanCmd) selection() (dlq.Selection, error) {
	sel := dlq.Selection{LetterIDs: c.Letter, FaultID: c.Fault}
	if c.Group != "" || c.Source != "" {
		sel.Filter = &dlq.LetterFilter{State: dlq.Open, Group: c.Group, Source: c.Source}
	}
	ways := 0
	for _, given := range []bool{len(c.Letter) > 0, c.Fault != 0, sel.Filter != nil} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return sel, fmt.Errorf("name the letters in one way: --letter, --fault, or --group and --source")
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
	for _, o := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(w, "%s\t%d\n", o, r.Outcomes[o])
	}
	return w.Flush()
}
