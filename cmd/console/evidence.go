package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"oncemore/dlq"
	"oncemore/internal/config"
)

type recordsCmd struct {
	Find evidenceFindCmd `cmd:"" help:"Look for tables that look like consume records, and print the config for them."`
	Ask  evidenceAskCmd  `cmd:"" help:"Look an event up in the evidence of a group, as a verdict does."`
}

type evidenceFindCmd struct {
	configFlag
	Connection string `help:"Name of the connection in the config." required:"" placeholder:"NAME"`
}

// Run prints the proposals, likeliest first. It only reads.
func (c evidenceFindCmd) Run(e *edge) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	business := newConnections(conf.Connections)
	defer business.close()
	found, err := findEvidence(e.ctx, conf, business, c.Connection)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		fmt.Fprintf(e.out, "No table of connection %s looks like consume records: none has a text column called event_id, message_id or the like with a unique key on it.\n", c.Connection)
		return nil
	}
	for _, p := range found {
		printProposal(e.out, p)
	}
	return nil
}

// findEvidence looks at the schema of one connection.
func findEvidence(ctx context.Context, conf *config.Config, business *connections, name string) ([]dlq.EvidenceProposal, error) {
	if conf.Connection(name) == nil {
		return nil, fmt.Errorf("there is no connection %q under connections in %s", name, conf.File)
	}
	from, err := business.evidence(ctx, config.Evidence{Connection: name})
	if err != nil {
		return nil, err
	}
	return dlq.FindEvidence(ctx, *from)
}

func printProposal(out io.Writer, p dlq.EvidenceProposal) {
	fmt.Fprintf(out, "# %s: about %d rows. %s\n", p.Table, p.Rows, uniqueWords(p))
	switch {
	case p.Sample == "":
		fmt.Fprintln(out, "# The table is empty: nothing was looked up.")
	case p.Answer.Failed != nil:
		fmt.Fprintln(out, "# A look-up failed:", p.Answer.Failed.Text)
	default:
		fmt.Fprintf(out, "# A look-up of %q found it in %s.\n", p.Sample, p.Answer.Took.Round(time.Millisecond))
	}
	fmt.Fprintln(out, p.YAML(time.Now()))
}

func uniqueWords(p dlq.EvidenceProposal) string {
	if p.Unique {
		return "A unique key covers the event id."
	}
	return "No unique key covers the event id: a duplicate may take effect although a record is there."
}

type evidenceAskCmd struct {
	configFlag
	Group string `help:"Consumer group whose evidence is asked." required:"" placeholder:"GROUP"`
	Event string `arg:"" help:"Event id." name:"event-id"`
}

// errNotAsked ends a look-up that gave no answer.
var errNotAsked = errors.New("the evidence could not be asked")

// Run prints what the evidence says.
func (c evidenceAskCmd) Run(e *edge) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	declared := conf.Group(c.Group)
	if declared == nil || declared.Evidence == nil {
		return fmt.Errorf("%s declares no evidence for group %s", conf.File, c.Group)
	}
	business := newConnections(conf.Connections)
	defer business.close()
	evidence, err := business.evidence(e.ctx, *declared.Evidence)
	if err != nil {
		return err
	}
	switch a := evidence.Ask(e.ctx, c.Event, c.Group); {
	case a.Failed != nil:
		return fmt.Errorf("%w: %s", errNotAsked, a.Failed.Text)
	case !a.Found:
		_, err = fmt.Fprintf(e.out, "No record of %q in %s. (%s)\n", c.Event, c.Group, a.Took.Round(time.Millisecond))
	case !a.Exact:
		_, err = fmt.Fprintf(e.out, "No record of just %q, but of %q, which the database takes for the same: a replay would be acknowledged without effect. (%s)\n", c.Event, a.EventID, a.Took.Round(time.Millisecond))
	case a.ConsumedAt == nil:
		_, err = fmt.Fprintf(e.out, "Record found. (%s)\n", a.Took.Round(time.Millisecond))
	default:
		_, err = fmt.Fprintf(e.out, "Record of %s. (%s)\n", a.ConsumedAt.UTC().Format(time.RFC3339Nano), a.Took.Round(time.Millisecond))
	}
	return err
}

// strangersIn looks what else the evidence of a group holds, for the check; nil where the connection is bad.
func strangersIn(ctx context.Context, business *connections, g config.Group) func(context.Context) []string {
	evidence, err := business.evidence(ctx, *g.Evidence)
	if err != nil {
		return nil // the connection's own check says it
	}
	return func(ctx context.Context) []string { return evidence.Strangers(ctx, g.Name) }
}

// tryEvidence looks up an event that there is not.
func tryEvidence(ctx context.Context, business *connections, g config.Group) func(context.Context) error {
	evidence, err := business.evidence(ctx, *g.Evidence)
	if err != nil {
		return nil // the connection's own check says it
	}
	return func(ctx context.Context) error {
		if a := evidence.Ask(ctx, "oncemore-check", g.Name); a.Failed != nil {
			return errors.New(a.Failed.Text)
		}
		return nil
	}
}
