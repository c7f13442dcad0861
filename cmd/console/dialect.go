package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
)

type dialectCmd struct {
	Test dialectTestCmd `cmd:"" help:"Read a message by a dialect file and say all that is found, and what a replay would send."`
	List dialectListCmd `cmd:"" help:"List the dialects."`
}

// builtinDialects stands for no file of one's own.
const builtinDialects = "builtin"

func dialectSet(file string) (*dialect.Set, error) {
	if file == builtinDialects {
		return dialect.Load()
	}
	return dialect.Load(file)
}

type dialectListCmd struct {
	File string `arg:"" optional:"" help:"Dialect file to list with the built-in ones." default:"builtin"`
}

// Run prints one line for each, in the order in which they are tried.
func (c dialectListCmd) Run(e *edge) error {
	set, err := dialectSet(c.File)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BROKER\tPRIORITY\tID\tNAME\tFILE")
	for _, d := range set.List() {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", d.Broker, d.Priority, d.ID, d.Name, orElse(d.File, builtinDialects))
	}
	return w.Flush()
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

type dialectTestCmd struct {
	File    string `arg:"" help:"Dialect file; builtin for the built-in dialects alone."`
	Message string `arg:"" help:"File with a message, or several, as JSON or YAML in the form of the samples in the built-in file; - for standard input."`

	EventIDHeader string `name:"event-id-header" help:"Header with the event id, as in a source's event_id." placeholder:"NAME"`
	EventIDJSON   string `name:"event-id-json" help:"Path to the event id in a JSON body, such as $.eventId." placeholder:"PATH"`
	Group         string `help:"Consumer group, as in a source's group." placeholder:"NAME"`
}

// Run exits 1 where a message is not what its expect and absent say.
func (c dialectTestCmd) Run(e *edge) error {
	if c.EventIDJSON != "" {
		if err := dialect.CheckPath(c.EventIDJSON); err != nil {
			return fmt.Errorf("--event-id-json: %w", err)
		}
	}
	set, err := dialectSet(c.File)
	if err != nil {
		return err
	}
	samples, err := c.samples()
	if err != nil {
		return err
	}
	conf := dialect.Configured{EventIDHeader: c.EventIDHeader, EventIDJSON: c.EventIDJSON, Group: c.Group}
	wrong := 0
	for i, s := range samples {
		if i > 0 {
			fmt.Fprintln(e.out)
		}
		wrong += printSample(e.out, set, s, conf)
	}
	if wrong > 0 {
		return exitCode(1)
	}
	return nil
}

func (c dialectTestCmd) samples() ([]dialect.Sample, error) {
	var text []byte
	var err error
	name := c.Message
	if name == "-" {
		name = "standard input"
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	samples, err := dialect.ReadSamples(name, text)
	if err == nil && len(samples) == 0 {
		err = fmt.Errorf("%s: holds no message", name)
	}
	return samples, err
}

// printSample prints all of one message and returns how many expectations fail.
func printSample(out io.Writer, set *dialect.Set, s dialect.Sample, conf dialect.Configured) int {
	r := set.Read(s.Message, conf)
	if s.Name != "" {
		fmt.Fprintln(out, "message:", s.Name)
	}
	shown := map[string]bool{}
	for i, layer := range set.Layers(s.Message, conf) {
		title := "dialect:"
		if i > 0 {
			title = "also:"
		}
		shown[layer.Dialect] = true
		fmt.Fprintf(out, "%s %s (%s)\n", title, layer.Dialect, layer.Name)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, f := range layer.Fields {
			fmt.Fprintf(w, "  %s\t%s\n", f.Name, fieldLine(f.Value))
		}
		if layer.Stack != "" {
			fmt.Fprintf(w, "  exception_stack\t%s\n", fieldLine(layer.Stack))
		}
		w.Flush() //nolint:errcheck // the next line's error is the command's
	}
	for _, id := range r.AlsoSeen {
		if !shown[id] {
			fmt.Fprintf(out, "also: %s, which says nothing else\n", id)
		}
	}
	printIdentity(out, r)
	printReplay(out, set, s, r)
	return printExpectations(out, s, r)
}

const longestLine = 120

// fieldLine is a value on one line; a long one is cut.
func fieldLine(v any) string {
	switch t := v.(type) {
	case nil:
		return "void"
	case time.Time:
		return t.Format("2006-01-02T15:04:05.999Z07:00")
	case string:
		if len(t) <= longestLine {
			return strconv.Quote(t)
		}
		cut := longestLine
		for cut > 0 && !utf8.RuneStart(t[cut]) {
			cut--
		}
		return fmt.Sprintf("%q… (%d bytes)", t[:cut], len(t))
	}
	return fmt.Sprint(v)
}

func printIdentity(out io.Writer, r *dialect.Reading) {
	switch {
	case r.EventID != nil && r.EventIDAlt != nil:
		fmt.Fprintf(out, "event id: %q, on the wire %q\n", *r.EventID, *r.EventIDAlt)
	case r.EventID != nil:
		fmt.Fprintf(out, "event id: %q\n", *r.EventID)
	case r.PositionID != nil:
		fmt.Fprintf(out, "event id: none; %q is made of topic, partition or offset\n", *r.PositionID)
	default:
		fmt.Fprintln(out, "event id: none")
	}
	if !r.CarriesValue {
		fmt.Fprintln(out, "value: not carried; null is no tombstone")
	}
}

func printReplay(out io.Writer, set *dialect.Set, s dialect.Sample, r *dialect.Reading) {
	fmt.Fprintln(out, "replay:", targetLine(r, s.Message.Broker))
	if s.Message.Broker == dialect.Kafka {
		printHeaders(out, set, s, r)
		return
	}
	sent, err := set.Resend(r.Dialect, s.Delivery, dialect.ResendOptions{})
	if refusal, ok := errors.AsType[*dialect.Refusal](err); ok {
		fmt.Fprintln(out, "  refused:", refusal.Text)
		return
	}
	body := "body: the letter's"
	if string(sent.Publishing.Body) != string(s.Delivery.Body) {
		body = "body: " + fieldLine(string(sent.Publishing.Body))
	}
	fmt.Fprintf(out, "  %s, %d bytes\n", body, len(sent.Publishing.Body))
	again := dialect.FromAMQP("", sent.Delivery())
	for _, h := range again.Headers {
		fmt.Fprintf(out, "  sends header %s: %s\n", h.Name, fieldLine(h.Typed))
	}
	for _, name := range slices.Sorted(maps.Keys(again.Properties)) {
		fmt.Fprintf(out, "  sends property %s: %s\n", name, fieldLine(again.Properties[name]))
	}
	for _, name := range sent.LeftOut {
		printLeftOut(out, set, r.Dialect, name)
	}
	for _, n := range sent.Notes {
		fmt.Fprintln(out, "  note:", n.Text)
	}
}

func targetLine(r *dialect.Reading, broker string) string {
	guess := ""
	if r.OriginGuessed {
		guess = ", a guess by the name of the source"
	}
	switch {
	case broker == dialect.Kafka && r.OriginTopic != nil:
		return "to topic " + *r.OriginTopic + guess
	case broker == dialect.RabbitMQ && r.OriginQueue != nil && *r.OriginQueue != "":
		return "to queue " + *r.OriginQueue + guess
	case r.OriginExchange != nil && r.OriginRoutingKey != nil:
		return fmt.Sprintf("to exchange %q with routing key %q; the queue is not known", *r.OriginExchange, *r.OriginRoutingKey)
	}
	return "nowhere: the message does not say where it came from"
}

func printHeaders(out io.Writer, set *dialect.Set, s dialect.Sample, r *dialect.Reading) {
	headers := make([]dlq.Header, len(s.Message.Headers))
	for i, h := range s.Message.Headers {
		headers[i] = dlq.Header{Name: h.Name, Value: h.Value}
	}
	kept, err := dlq.KeptHeaders(set, r.Dialect, headers)
	if err != nil {
		return // the set has just read by it
	}
	for i, h := range headers {
		if kept[i] {
			fmt.Fprintf(out, "  sends header %s: %s\n", h.Name, fieldLine(string(h.Value)))
		} else {
			printLeftOut(out, set, r.Dialect, h.Name)
		}
	}
}

func printLeftOut(out io.Writer, set *dialect.Set, id, name string) {
	if why := set.StripReason(id, name); why != "" {
		fmt.Fprintf(out, "  leaves out %s: %s\n", name, why)
		return
	}
	fmt.Fprintf(out, "  leaves out %s\n", name)
}

func printExpectations(out io.Writer, s dialect.Sample, r *dialect.Reading) int {
	if s.Dialect == "" && len(s.Expect)+len(s.Absent) == 0 {
		return 0
	}
	wrong := s.Check(r)
	for _, sentence := range wrong {
		fmt.Fprintln(out, "not as expected:", sentence)
	}
	if len(wrong) == 0 {
		fmt.Fprintln(out, "as expected")
	}
	return len(wrong)
}
