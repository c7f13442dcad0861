package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"oncemore/reconcile"
	"oncemore/web"
)

type reconcileCmd struct {
	Run     reconcileRunCmd     `cmd:"" help:"Compare a window, or single keys, and say what does not agree. Ends with 0: all agrees, 1: there are breaks, or rows that the proof does not account for, 2: partial or failed."`
	Preview reconcilePreviewCmd `cmd:"" help:"Say what a job's file would read: columns, the database's plan, warnings. Nothing is kept."`
	Jobs    reconcileJobsCmd    `cmd:"" help:"Read every job of the config's folder and say what is wrong with it."`
}

type reconcileRunCmd struct {
	configFlag
	Job  string   `arg:"" help:"Name of the job."`
	From string   `help:"Where the window begins: 2026-11-01 or 2026-11-01T08:00:00Z. A day begins at midnight of the job's zone." placeholder:"TIME"`
	To   string   `help:"Where the window ends; not in it." placeholder:"TIME"`
	Key  []string `help:"Read only this key again; a key of several columns is written with commas. May be given several times." placeholder:"KEY" sep:"none"`
	Plan string   `help:"merge or join; by itself the best that fits." placeholder:"PLAN"`
	JSON bool     `help:"Print the run as JSON." name:"json"`
}

// Run carries the run out in this process. What went wrong before there is a run
// says as little about the books as a failed one.
func (c reconcileRunCmd) Run(e *edge) error {
	err := c.carryOut(e)
	var told exitCode
	if err == nil || errors.As(err, &told) {
		return err
	}
	return failure{err, exitUntrue}
}

func (c reconcileRunCmd) carryOut(e *edge) error {
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	q, err := c.request(e, a)
	if err != nil {
		return err
	}
	id, err := a.reconcile.runs.Ask(e.ctx, operator(""), q)
	if err != nil {
		return err
	}
	run, err := a.reconcile.runs.Do(e.ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(e.out).Encode(web.RunJSON(*run))
	} else {
		err = printRun(e.out, run)
	}
	if err != nil {
		return err
	}
	open, err := anyOpen(e.ctx, a, run)
	if err != nil {
		return err
	}
	return ended(run, open)
}

// What reconcile run ends with.
const (
	exitBreaks exitCode = 1
	exitUntrue exitCode = 2 // partial or failed: nothing may be concluded from it
)

// ended is what the process ends with. Rows that the proof cannot account for
// agree with nothing, whether or not there is a break for them.
func ended(run *reconcile.Run, open bool) error {
	switch {
	case run.State != reconcile.Complete:
		return exitUntrue
	case open, !run.Tally.Whole():
		return exitBreaks
	}
	return nil
}

// anyOpen reports whether breaks of the job are open; after a run of single keys,
// whether those of its keys are.
func anyOpen(ctx context.Context, a *app, run *reconcile.Run) (bool, error) {
	if run.Kind != reconcile.OfKeys {
		return len(run.AtRisk) > 0, nil
	}
	figures, err := a.reconcile.breaks.Figures(ctx, run.ID)
	return slices.ContainsFunc(figures, func(f reconcile.RunFigure) bool {
		return f.Type != reconcile.Timing && f.What != reconcile.SaidWhole && f.What != reconcile.SaidExplained
	}), err
}

func (c reconcileRunCmd) request(e *edge, a *app) (q reconcile.Request, err error) {
	def, err := a.reconcile.jobs.Current(e.ctx, c.Job)
	if err != nil {
		return q, err
	}
	job, err := def.Parse()
	if err != nil {
		return q, err
	}
	q = reconcile.Request{Job: c.Job, Plan: c.Plan}
	for _, key := range c.Key {
		parts := []string{key}
		if len(job.Key) > 1 {
			parts = strings.Split(key, ",")
		}
		q.Keys = append(q.Keys, parts)
	}
	if len(q.Keys) > 0 {
		return q, nil
	}
	if q.From, err = instant("--from", c.From, job.Zone); err == nil {
		q.To, err = instant("--to", c.To, job.Zone)
	}
	return q, err
}

// instant reads a day of the zone, or a time.
func instant(flag, text string, zone *time.Location) (time.Time, error) {
	if t, err := time.ParseInLocation(time.DateOnly, text, zone); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s has to be a day or a time such as 2026-11-01 or 2026-11-01T08:00:00Z, not %q", flag, text)
}

func printRun(out io.Writer, run *reconcile.Run) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "run\t%d of %s, %s\n", run.ID, run.Job, run.State)
	if run.Error != nil {
		fmt.Fprintf(w, "why\t%s\n", *run.Error)
	}
	if run.Tally != nil {
		fmt.Fprintf(w, "plan\t%s: %s\nmatched\t%d keys\n", run.Plan, run.PlanReason, run.Tally.Matched)
		for _, currency := range run.Tally.Currencies() {
			printProof(w, run.Tally, currency)
		}
		printKeyless(w, run.Tally)
	}
	for _, currency := range slices.Sorted(maps.Keys(run.AtRisk)) {
		fmt.Fprintf(w, "at risk\t%s %s in %d breaks\n", run.AtRisk[currency].Amount, currency, run.AtRisk[currency].Keys)
	}
	return w.Flush()
}

func printProof(w io.Writer, t *reconcile.Tally, currency string) {
	fmt.Fprintf(w, "%s consumed\t%s\n%s effect\t%s\n", currency, t.Control[reconcile.Consumed][currency].Amount, currency, t.Control[reconcile.Effect][currency].Amount)
	for _, line := range slices.Sorted(maps.Keys(t.Lines)) {
		if l, ok := t.Lines[line][currency]; ok {
			fmt.Fprintf(w, "%s %s\t%s in %d keys\n", currency, line, l.Amount, l.Keys)
		}
	}
	fmt.Fprintf(w, "%s unexplained\t%s\n", currency, t.Unexplained(currency))
	if t.Upstream == nil {
		return
	}
	fmt.Fprintf(w, "%s published\t%s\n", currency, t.Control[reconcile.Outbox][currency].Amount)
	for _, line := range slices.Sorted(maps.Keys(t.Upstream)) {
		if l, ok := t.Upstream[line][currency]; ok {
			fmt.Fprintf(w, "%s published, %s\t%s in %d keys\n", currency, line, l.Amount, l.Keys)
		}
	}
	fmt.Fprintf(w, "%s published, unexplained\t%s\n", currency, t.UpstreamUnexplained(currency))
}

// printKeyless tells of rows that belong to no key.
func printKeyless(w io.Writer, t *reconcile.Tally) {
	for party, totals := range t.Keyless {
		for _, currency := range slices.Sorted(maps.Keys(totals)) {
			fmt.Fprintf(w, "%s %s without a key\t%s in %d rows\n", currency, reconcile.Party(party), totals[currency].Amount, totals[currency].Rows)
		}
	}
}

type reconcilePreviewCmd struct {
	configFlag
	File string `arg:"" help:"A job's file." type:"existingfile"`
}

// Run prints what the job would read.
func (c reconcilePreviewCmd) Run(e *edge) error {
	job, err := reconcile.ReadJob(c.File)
	if err != nil {
		return err
	}
	a, err := c.open(e)
	if err != nil {
		return err
	}
	defer a.close()
	p, err := a.reconcile.runs.Preview(e.ctx, job)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "plan %s: %s\n", p.Plan, p.Reason)
	for _, s := range p.Sides {
		fmt.Fprintf(e.out, "\n%s: %s; %d rows in the last window%s\n", s.Party, strings.Join(s.Columns, ", "), len(s.Rows), atLeast(len(s.Rows)))
		for _, line := range s.Explain {
			fmt.Fprintf(e.out, "  %s\n", line)
		}
		for _, warning := range s.Warnings {
			fmt.Fprintf(e.out, "  warning: %s\n", warning.Text)
		}
	}
	return nil
}

func atLeast(rows int) string {
	if rows >= 20 {
		return " or more"
	}
	return ""
}

type reconcileJobsCmd struct {
	configFlag
}

// Run reads the folder and prints what is there.
func (c reconcileJobsCmd) Run(e *edge) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	if conf.ReconcileDir == "" {
		return errors.New("the config names no reconcile_dir")
	}
	jobs, _, err := reconcile.ReadDir(conf.ReconcileFolder())
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 4, 2, ' ', 0)
	for _, j := range jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\n", j.Name, j.Schedule, j.Pos.File)
	}
	if len(jobs) == 0 {
		fmt.Fprintf(os.Stderr, "there is no job in %s\n", conf.ReconcileFolder())
	}
	return w.Flush()
}
