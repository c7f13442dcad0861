package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// lookTime bounds each look at a database or broker.
const lookTime = 5 * time.Second

// Run makes every check and returns what was found, worst first. It does not
// fail: what could not be looked at is a finding of its own. now is the clock.
func Run(ctx context.Context, in Input, now func() time.Time) []Finding {
	r := &run{in: in, at: now().UTC()}
	r.console(ctx)
	pools := r.connections(ctx)
	r.redis(ctx)
	clusters := r.clusters(ctx)
	for _, e := range in.Evidence {
		r.evidence(ctx, e, pools.read)
	}
	for _, s := range in.Sources {
		r.source(s, clusters)
	}
	for _, c := range in.Consumers {
		r.consumer(ctx, c, pools.write, clusters)
	}
	r.httpKeys()
	r.acks(clusters)
	r.retention(clusters)
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Area, b.Area), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Code, b.Code))
	})
	return r.findings
}

// run collects findings.
type run struct {
	in       Input
	at       time.Time
	findings []Finding
}

// say adds the answer of that code. The finding's own code leaves the variant
// out: one check on one object has one answer at a time.
func (r *run) say(code, subject string, v values, evidence ...string) {
	m, ok := messages[code]
	if !ok {
		panic(fmt.Sprintf("check: no message %s", code))
	}
	if evidence == nil {
		evidence = []string{}
	}
	r.findings = append(r.findings, Finding{
		Code: code[:strings.LastIndexByte(code, '.')], Area: m.area, Subject: subject, Severity: m.severity,
		Sentence: v.text(code, "sentence", m.sentence), Meaning: v.text(code, "meaning", m.meaning), Mend: v.text(code, "mend", m.mend),
		Evidence: evidence, CheckedAt: r.at, Since: r.at,
	})
}

// reason is an error as a line of evidence.
func reason(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "�"), "\x00", "�")
	return strings.Join(strings.Fields(text), " ")
}
