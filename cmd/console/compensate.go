package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"oncemore/compensate"
	"oncemore/reconcile"
	"oncemore/web"
)

type compensateCmd struct {
	List    compensateListCmd    `cmd:"" help:"List compensations. Ends with 1 if any of them needs attention."`
	Show    compensateShowCmd    `cmd:"" help:"Show one with its effect, approvals, attempts and steps. Ends with 0: verified or not needed, 1: it needs attention, 2: it ended without effect, 3: it waits or runs."`
	Propose compensateProposeCmd `cmd:"" help:"Ask for a repair of breaks by an action. Somebody else approves it."`
	Approve compensateApproveCmd `cmd:"" help:"Agree to what console compensate show has shown: its hash binds the approval to it."`
	Reject  compensateRejectCmd  `cmd:"" help:"Decline one."`
	Retry   compensateRetryCmd   `cmd:"" help:"Try once more what one stopped at, with the same idempotency key."`
	Check   compensateCheckCmd   `cmd:"" help:"Ask whether a step of unknown outcome was applied; nothing is repeated unless it was not."`
	Pause   compensatePauseCmd   `cmd:"" help:"Keep one from its next step."`
	Resume  compensateResumeCmd  `cmd:"" help:"Go on with a paused one."`
	Cancel  compensateCancelCmd  `cmd:"" help:"End one; what it has done is undone."`
	Stop    compensateStopCmd    `cmd:"" help:"Kill switch: the schedule proposes and starts nothing more by itself."`
	Allow   compensateAllowCmd   `cmd:"" help:"Let the schedule go on."`
}

// What console compensate ends with.
const (
	exitAttention exitCode = 1
	exitNoEffect  exitCode = 2
	exitUnderWay  exitCode = 3
)

type compensateListCmd struct {
	configFlag
	State  []string `help:"Only these: proposed, approved, running, verifying, verified, not_needed, needs_attention, rejected, cancelled, voided, expired." placeholder:"STATE"`
	Action string   `help:"Only of this action." placeholder:"ACTION"`
	Limit  int      `help:"At most so many, newest first." default:"50"`
	JSON   bool     `help:"Print JSON." name:"json"`
}

// Run prints the list.
func (c compensateListCmd) Run(e *edge) error {
	f := compensate.Filter{Action: c.Action, Limit: max(c.Limit, 1)}
	for _, name := range c.State {
		state, err := compensationState(name)
		if err != nil {
			return err
		}
		f.States = append(f.States, state)
	}
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	all, _, err := a.compensations.List(e.ctx, f)
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(e.out).Encode(web.CompensationsJSON(all))
	} else {
		err = printCompensations(e.out, all)
	}
	for _, r := range all {
		if r.State == compensate.NeedsAttention {
			return errors.Join(err, exitAttention)
		}
	}
	return err
}

func compensationState(name string) (compensate.State, error) {
	var names []string
	for s := compensate.Proposed; s <= compensate.Expired; s++ {
		if s.String() == name {
			return s, nil
		}
		names = append(names, s.String())
	}
	return 0, fmt.Errorf("--state is one of %s, not %q", strings.Join(names, ", "), name)
}

func printCompensations(out io.Writer, all []compensate.Row) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, r := range all {
		fmt.Fprintf(w, "C-%d\t%s\t%s\t%s %s\t%s\t%d of %d\t%s\n", r.ID, r.State, r.Action, r.Amount, r.Currency, subjectText(r), r.Approvals, r.Checkers, r.AskedAt.UTC().Format(time.RFC3339))
	}
	return w.Flush()
}

func subjectText(r compensate.Row) string {
	switch {
	case r.BreakID != nil:
		return fmt.Sprintf("B-%d", *r.BreakID)
	case r.LetterID != nil:
		return r.LetterID.String()
	}
	return "–"
}

type compensateShowCmd struct {
	configFlag
	ID   int64 `arg:"" help:"Number of the compensation."`
	JSON bool  `help:"Print JSON." name:"json"`
}

// Run prints one.
func (c compensateShowCmd) Run(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	r, err := a.compensations.Summary(e.ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printStory(e, a, c.ID)
	} else {
		err = printCompensation(e, a, r)
	}
	if code := came(r.State); code != 0 {
		err = errors.Join(err, code)
	}
	return err
}

func printStory(e *edge, a *app, id int64) error {
	told, err := web.CompensationJSON(e.ctx, a.compensations, id)
	if err != nil {
		return err
	}
	return json.NewEncoder(e.out).Encode(told)
}

// came is what a state ends the command with.
func came(s compensate.State) exitCode {
	switch {
	case s == compensate.Verified, s == compensate.NotNeeded:
		return 0
	case s == compensate.NeedsAttention:
		return exitAttention
	case s.Ended():
		return exitNoEffect
	}
	return exitUnderWay
}

func printCompensation(e *edge, a *app, r compensate.Row) error {
	approvals, err := a.compensations.Approvals(e.ctx, r.ID)
	if err != nil {
		return err
	}
	attempts, err := a.compensations.Attempts(e.ctx, r.ID)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "compensation\tC-%d, %s\naction\t%s, version %d\nfor\t%s\namount\t%s %s\nasked\t%s by %s: %s\nhash\t%x\napproved\t%d of %d\n",
		r.ID, r.State, r.Action, r.Version, subjectText(r), r.Amount, r.Currency, r.AskedAt.UTC().Format(time.RFC3339), r.AskedBy, r.Reason, r.Hash, r.Approvals, r.Checkers)
	if r.Why != nil {
		fmt.Fprintf(w, "why\t%s\n", *r.Why)
	}
	for _, step := range r.Effect {
		fmt.Fprintf(w, "effect\t%s\n", strings.Join(strings.Fields(strings.Join([]string{step.Says, step.Method, step.URL, step.Body, step.SQL}, " ")), " "))
	}
	for _, by := range approvals {
		fmt.Fprintf(w, "approval\t%s by %s: %s\n", by.At.UTC().Format(time.RFC3339), by.By, by.Reason)
	}
	for _, t := range attempts {
		outcome := "under way"
		if t.Outcome != nil {
			outcome = *t.Outcome
		}
		fmt.Fprintf(w, "attempt\t%s step %d: %s %s\n", t.At.UTC().Format(time.RFC3339), t.No+1, outcome, t.Answer)
	}
	return w.Flush()
}

type compensateProposeCmd struct {
	configFlag
	Action string  `arg:"" help:"Name of the action."`
	Break  []int64 `help:"Number of a break; may be given several times." placeholder:"N"`
	Job    string  `help:"All outstanding breaks of this job." placeholder:"JOB"`
	Type   string  `help:"With --job: only of this type, such as missing_effect." placeholder:"TYPE"`
	Reason string  `help:"Why; goes into the audit." required:""`
	DryRun bool    `help:"Only say what would be done."`
	JSON   bool    `help:"Print JSON." name:"json"`
}

// proposeMost is how many breaks one command finds.
const proposeMost = 1000

// Run prints what is proposed, or what would be done.
func (c compensateProposeCmd) Run(e *edge) error {
	if (len(c.Break) > 0) == (c.Job != "") {
		return errors.New("name the breaks in one way: --break, or --job")
	}
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	breaks, err := c.breaks(e, a)
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.tryOut(e, a, breaks)
	}
	ids, err := a.compensations.Propose(e.ctx, operator(c.Reason), c.Action, breaks)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(e.out).Encode(map[string]any{"ids": ids})
	}
	for _, id := range ids {
		fmt.Fprintf(e.out, "C-%d\n", id)
	}
	return nil
}

func (c compensateProposeCmd) breaks(e *edge, a *app) ([]int64, error) {
	if c.Job == "" {
		return c.Break, nil
	}
	f := reconcile.BreakFilter{Job: c.Job, Type: reconcile.Type(c.Type), States: []reconcile.BreakState{reconcile.Open, reconcile.Assigned, reconcile.Reopened}, Limit: proposeMost}
	found, more, err := a.reconcile.breaks.List(e.ctx, f, a.clock())
	switch {
	case err != nil:
		return nil, err
	case more:
		return nil, fmt.Errorf("job %s has more than %d such breaks: narrow it by --type or name them", c.Job, proposeMost)
	case len(found) == 0:
		return nil, fmt.Errorf("job %s has no such break", c.Job)
	}
	ids := make([]int64, len(found))
	for i, b := range found {
		ids[i] = b.ID
	}
	return ids, nil
}

func (c compensateProposeCmd) tryOut(e *edge, a *app, breaks []int64) error {
	previews, err := a.compensations.Preview(e.ctx, operator(c.Reason), c.Action, breaks, len(breaks))
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(e.out).Encode(web.PreviewsJSON(previews))
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	for _, p := range previews {
		says := "would be proposed"
		if p.Problem != nil {
			says = "stays: " + p.Problem.Error()
		}
		for _, n := range p.Counted {
			says += fmt.Sprintf(", %d rows of %d %s", n.Rows, n.Want, n.Error)
		}
		fmt.Fprintf(w, "B-%d\t%s %s\t%s\n", p.Break.ID, p.Amount, p.Currency, says)
	}
	return w.Flush()
}

type compensateApproveCmd struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the compensation."`
	Hash   string `help:"Hash as console compensate show prints it." required:"" placeholder:"HEX"`
	Reason string `help:"Why; goes into the audit." required:""`
}

// Run approves.
func (c compensateApproveCmd) Run(e *edge) error {
	hash, err := hex.DecodeString(c.Hash)
	if err != nil || len(hash) != 32 {
		return errors.New("--hash has to be 64 hexadecimal digits, as console compensate show prints them")
	}
	return onCompensation(e, c.configFlag, func(a *app) error {
		return a.compensations.Approve(e.ctx, operator(c.Reason), c.ID, hash)
	})
}

func onCompensation(e *edge, c configFlag, do func(*app) error) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	return do(a)
}

// oneFlags are those of the commands on one compensation.
type oneFlags struct {
	configFlag
	ID     int64  `arg:"" help:"Number of the compensation."`
	Reason string `help:"Why; goes into the audit." required:""`
}

type compensateRejectCmd struct{ oneFlags }

// Run rejects.
func (c compensateRejectCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Reject(e.ctx, operator(c.Reason), c.ID) })
}

type compensateRetryCmd struct{ oneFlags }

// Run tries again.
func (c compensateRetryCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Retry(e.ctx, operator(c.Reason), c.ID) })
}

type compensateCheckCmd struct{ oneFlags }

// Run asks for an unknown outcome.
func (c compensateCheckCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Check(e.ctx, operator(c.Reason), c.ID) })
}

type compensatePauseCmd struct{ oneFlags }

// Run pauses.
func (c compensatePauseCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Pause(e.ctx, operator(c.Reason), c.ID) })
}

type compensateResumeCmd struct{ oneFlags }

// Run goes on.
func (c compensateResumeCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Resume(e.ctx, operator(c.Reason), c.ID) })
}

type compensateCancelCmd struct{ oneFlags }

// Run cancels.
func (c compensateCancelCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Cancel(e.ctx, operator(c.Reason), c.ID) })
}

type switchFlags struct {
	configFlag
	Reason string `help:"Why; goes into the audit." required:""`
}

type compensateStopCmd struct{ switchFlags }

// Run stops what runs by itself.
func (c compensateStopCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Stop(e.ctx, operator(c.Reason)) })
}

type compensateAllowCmd struct{ switchFlags }

// Run lets it go on.
func (c compensateAllowCmd) Run(e *edge) error {
	return onCompensation(e, c.configFlag, func(a *app) error { return a.compensations.Go(e.ctx, operator(c.Reason)) })
}
