package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"oncemore/dlq"
	"oncemore/internal/alert"
	"oncemore/internal/check"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
	"oncemore/views/locale"
)

// How far back rules look at what happened once.
const (
	recentFault = 24 * time.Hour
	recentLoss  = 7 * 24 * time.Hour
)

// usualLimits are what is too much where the config does not say. What is too much
// money nobody knows but the config.
var usualLimits = map[string]config.AlertRule{
	"age":          {OlderThan: 24 * time.Hour},
	"outbox_age":   {OlderThan: 5 * time.Minute},
	"drain_lag":    {Above: 1000},
	"run_overdue":  {OlderThan: 15 * time.Minute},
	"break_age":    {OlderThan: 7 * 24 * time.Hour},
	"approval_age": {OlderThan: 4 * time.Hour},
}

// newAlerts makes the engine of the config's channels and rules.
func (a *app) newAlerts() (*alert.Engine, error) {
	conf := a.conf.Alerts
	o := alert.Options{
		Environment: a.conf.Environment, ConsoleURL: conf.ConsoleURL, Throttle: conf.Throttle, Repeat: conf.Repeat,
		Words: alertWords, Clock: a.clock, Log: a.log, Rules: a.alertRules(),
	}
	for _, c := range conf.Channels {
		o.Channels = append(o.Channels, alertChannel(c, a.clock))
	}
	return alert.New(a.pool, o)
}

// alertWords are the catalog's, with every value as it is read: age is a whole
// number of seconds, state a consumer's, and says_key the key of the sentence says.
func alertWords(language, key string, args map[string]any) string {
	here := locale.Locale{Tag: locale.Tag(language)}
	var pairs []any
	for _, name := range slices.Sorted(maps.Keys(args)) {
		pairs = append(pairs, name, alertValue(here, name, args[name]))
	}
	if says, ok := args["says_key"].(string); ok {
		pairs = append(pairs, "says", here.Text(says, pairs...))
	}
	return here.Text(key, pairs...)
}

func alertValue(here locale.Locale, name string, value any) any {
	switch v := value.(type) {
	case int64:
		if name == "age" {
			return here.Duration(time.Duration(v) * time.Second)
		}
	case string:
		if name == "state" {
			return here.Text("state.consumer." + v)
		}
		if key := "alert.missing." + name; v == missing && locale.Has(key) {
			return here.Text(key)
		}
	}
	return value
}

func alertChannel(c config.AlertChannel, clock func() time.Time) alert.Channel {
	made := alert.Channel{Name: c.Name, Type: alert.Type(c.Type), Language: c.Language, Rules: c.Rules, Clock: clock}
	if c.Severity != "" {
		made.Least, _ = alert.ParseSeverity(c.Severity) // the config was checked
	}
	if c.URL.Set() {
		made.URL = c.URL.Value
	}
	if c.Secret.Set() {
		made.Secret = c.Secret.Value
	}
	if m := c.Mail; m != nil {
		made.Mail = &alert.Mail{Server: m.Server, TLS: m.TLS, From: m.From, To: m.To}
		if m.User.Set() {
			made.Mail.User, made.Mail.Password = m.User.Value, m.Password.Value
		}
	}
	return made
}

// ruleOf is what the config says of a rule.
func (a *app) ruleOf(name string) config.AlertRule {
	if r, ok := a.conf.Alerts.Rules[name]; ok {
		return r
	}
	return config.AlertRule{Above: -1}
}

func (a *app) olderThan(name string) time.Duration {
	return cmp.Or(a.ruleOf(name).OlderThan, usualLimits[name].OlderThan)
}

func (a *app) above(name string) int64 {
	if n := a.ruleOf(name).Above; n >= 0 {
		return int64(n)
	}
	return int64(usualLimits[name].Above)
}

// alertRules are all rules that are not off. What later parts watch is one more
// entry here and one sentence in each catalog.
func (a *app) alertRules() []alert.Rule {
	c := a.concerns()
	all := []alert.Rule{
		{Name: "gap", Severity: alert.Critical, Momentary: true, Look: a.lookForGaps(c)},
		{Name: "swallowed", Severity: alert.Critical, Momentary: true, Look: a.lookForSwallowed(c)},
		{Name: "count_drift", Severity: alert.Critical, Look: a.lookForDrift(c)},
		{Name: "rival", Severity: alert.Critical, Look: lookForRivals(c)},
		{Name: "unattended", Severity: alert.Warning, Look: lookForUnattended(c)},
		{Name: "drain_lag", Severity: alert.Warning, Look: a.lookForLag(c)},
		{Name: "new_fault", Severity: alert.Note, Momentary: true, Look: a.lookForNewFaults(c)},
		{Name: "growth", Severity: alert.Warning, Look: lookForGrowth(c)},
		{Name: "age", Severity: alert.Warning, Look: a.lookForAge(c)},
		{Name: "consumer_state", Severity: alert.Warning, Look: a.lookAtConsumers},
		{Name: "outbox_age", Severity: alert.Warning, Look: a.lookAtOutboxes},
		{Name: "outbox_dead", Severity: alert.Warning, Look: a.lookForDeadRows},
		{Name: "check", Severity: alert.Critical, Look: a.lookAtChecks},
		{Name: "run_failed", Severity: alert.Critical, Look: a.lookForFailedRuns},
		{Name: "run_overdue", Severity: alert.Warning, Look: a.lookForOverdueRuns},
		{Name: "at_risk", Severity: alert.Warning, Look: a.lookAtRisk},
		{Name: "break_age", Severity: alert.Warning, Look: a.lookForOldBreaks},
		{Name: "needs_attention", Severity: alert.Critical, Look: a.lookForAttention},
		{Name: "approval_age", Severity: alert.Warning, Look: a.lookForApprovals},
		{Name: "kill_switch", Severity: alert.Warning, Look: a.lookAtSwitch},
		{Name: "day_limit", Severity: alert.Warning, Look: a.lookAtDayLimits},
	}
	return slices.DeleteFunc(a.asConfigured(all), func(r alert.Rule) bool { return a.ruleOf(r.Name).Off })
}

func (a *app) asConfigured(all []alert.Rule) []alert.Rule {
	for i := range all {
		if name := a.ruleOf(all[i].Name).Severity; name != "" {
			all[i].Severity, _ = alert.ParseSeverity(name) // the config was checked
		}
		all[i].OlderThan, all[i].Above, all[i].Amounts = a.olderThan(all[i].Name), a.above(all[i].Name), a.ruleOf(all[i].Name).Amounts
	}
	return all
}

// concerns reads what should be told of; which queues are drained only the config
// knows.
func (a *app) concerns() *dlq.Concerns {
	c := dlq.NewConcerns(a.pool, a.overview, a.clock)
	for name, cluster := range a.clusters {
		if sources := a.drainSources(name); cluster.Admin == nil && len(sources) > 0 {
			if err := c.WatchQueues(name, sources); err != nil {
				a.log.Warn("queues are not watched", "cluster", name, "error", err) // the drain ends by the same error
			}
		}
	}
	return c
}

type look = func(context.Context) ([]alert.Condition, error)

func faultCondition(f dlq.Fault, n int64) alert.Condition {
	id := strconv.Itoa(int(f.ID))
	return alert.Condition{Key: "fault/" + id, Href: "/faults/" + id, Args: map[string]any{
		"id": id, "n": n, "source": f.Cluster + "/" + f.Source, "group": orMissing(f.Group), "class": orMissing(f.ErrorClass),
	}}
}

// missing stands for a value that a condition does not have; its words come
// with the language.
const missing = "–"

func orMissing(s *string) string {
	if s == nil || *s == "" {
		return missing
	}
	return *s
}

func (a *app) lookForNewFaults(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		faults, err := c.NewFaults(ctx, a.clock().Add(-recentFault))
		for _, f := range faults {
			out = append(out, faultCondition(f, f.Open))
		}
		return out, err
	}
}

func lookForGrowth(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		faults, err := c.Growing(ctx)
		for _, f := range faults {
			out = append(out, faultCondition(f, f.LastHour))
		}
		return out, err
	}
}

func (a *app) lookForAge(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		now := a.clock()
		letters, err := c.OlderThan(ctx, now.Add(-a.olderThan("age")))
		for _, l := range letters {
			out = append(out, alert.Condition{Key: "source/" + l.Cluster + "/" + l.Source, Href: "/letters/" + l.Letter.String(),
				Args: map[string]any{"source": l.Cluster + "/" + l.Source, "age": int64(now.Sub(l.At).Seconds())}})
		}
		return out, err
	}
}

func lookForUnattended(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		sources, err := c.Unattended(ctx)
		for _, s := range sources {
			out = append(out, alert.Condition{Key: "source/" + s.Cluster + "/" + s.Topic, Href: "/sources",
				Args: map[string]any{"source": s.Cluster + "/" + s.Topic, "n": s.Records}})
		}
		return out, err
	}
}

func (a *app) lookForLag(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		drains, err := c.Drains(ctx, false)
		for _, d := range drains {
			if d.Waiting > a.above("drain_lag") {
				out = append(out, drainCondition(d, d.Waiting))
			}
		}
		return out, err
	}
}

func lookForRivals(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		rivals, err := c.Rivals(ctx)
		for _, r := range rivals {
			out = append(out, alert.Condition{Key: "source/" + r.Cluster + "/" + r.Source, Href: "/sources", Args: map[string]any{"source": r.Cluster + "/" + r.Source, "n": r.Consumers}})
		}
		return out, err
	}
}

func drainCondition(d dlq.DrainState, n int64) alert.Condition {
	return alert.Condition{Key: "source/" + d.Cluster + "/" + d.Source, Href: "/sources", Args: map[string]any{"source": d.Cluster + "/" + d.Source, "n": n}}
}

// driftEvery is how often the letters of sources are counted: it reads an index
// for each.
const driftEvery = 10 * time.Minute

// lookForDrift keeps what it saw until it is time to count again.
func (a *app) lookForDrift(c *dlq.Concerns) look {
	var at time.Time
	var kept []alert.Condition
	return func(ctx context.Context) ([]alert.Condition, error) {
		if now := a.clock(); now.Sub(at) >= driftEvery {
			drains, err := c.Drains(ctx, true)
			if err != nil {
				return nil, err
			}
			at, kept = now, nil
			for _, d := range drains {
				if d.Missing() > a.above("count_drift") {
					kept = append(kept, drainCondition(d, d.Missing()))
				}
			}
		}
		return kept, nil
	}
}

func (a *app) lookForGaps(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		gaps, err := c.Gaps(ctx, a.clock().Add(-recentLoss))
		for _, g := range gaps {
			out = append(out, alert.Condition{Key: fmt.Sprintf("gap/%d", g.ID), Href: "/sources",
				Args: map[string]any{"source": g.Cluster + "/" + g.Source, "partition": int64(g.Partition), "n": g.To - g.From}})
		}
		return out, err
	}
}

func (a *app) lookForSwallowed(c *dlq.Concerns) look {
	return func(ctx context.Context) (out []alert.Condition, err error) {
		items, err := c.Swallowed(ctx, a.clock().Add(-recentLoss))
		for _, s := range items {
			id := strconv.FormatInt(s.Replay, 10)
			out = append(out, alert.Condition{Key: "replay/" + id + "/" + s.Group, Href: "/replays/" + id, Args: map[string]any{"id": id, "n": s.Items, "group": s.Group}})
		}
		return out, err
	}
}

// lookAtConsumers finds our own groups that do not run though nobody paused them.
func (a *app) lookAtConsumers(ctx context.Context) (out []alert.Condition, err error) {
	groups, err := a.fleet.Groups(ctx)
	for _, g := range groups {
		if !g.Ours || g.State != fleet.Failed && g.State != fleet.Stale && g.State != fleet.Waiting && g.State != fleet.Stopped {
			continue
		}
		c := alert.Condition{Key: "group/" + g.Name, Href: "/consumers/" + url.PathEscape(g.Name), Args: map[string]any{"group": g.Name, "state": g.State.String(), "why": orMissing(&g.StateReason)}}
		if g.State == fleet.Failed {
			c.Severity = alert.Critical
		}
		out = append(out, c)
	}
	return out, err
}

func (a *app) lookAtOutboxes(ctx context.Context) (out []alert.Condition, err error) {
	for _, box := range a.outboxes.All() {
		stats, err := box.Read.Stats(ctx)
		if err != nil {
			return nil, fmt.Errorf("outbox %s: %w", box.Name(), err)
		}
		if stats.Pending > 0 && stats.Oldest > a.olderThan("outbox_age") {
			out = append(out, alert.Condition{Key: "outbox/" + box.Name(), Href: "/outbox?outbox=" + url.QueryEscape(box.Name()),
				Args: map[string]any{"outbox": box.Name(), "n": stats.Pending, "age": int64(stats.Oldest.Seconds())}})
		}
	}
	return out, nil
}

func (a *app) lookForDeadRows(ctx context.Context) (out []alert.Condition, err error) {
	for _, box := range a.outboxes.All() {
		n, err := box.Read.Dead(ctx)
		if err != nil {
			return nil, fmt.Errorf("outbox %s: %w", box.Name(), err)
		}
		if n > 0 {
			out = append(out, alert.Condition{Key: "outbox/" + box.Name(), Href: "/outbox?state=dead&outbox=" + url.QueryEscape(box.Name()), Args: map[string]any{"outbox": box.Name(), "n": n}})
		}
	}
	return out, nil
}

// lookAtChecks tells of critical findings that nobody has muted.
func (a *app) lookAtChecks(ctx context.Context) (out []alert.Condition, err error) {
	findings, err := check.NewStore(a.pool).Findings(ctx)
	for _, f := range findings {
		if f.Severity == check.Critical && !f.Muted(a.clock()) {
			args := map[string]any{"says_key": f.Sentence.Key}
			for name, value := range f.Sentence.Args {
				args[name] = value
			}
			out = append(out, alert.Condition{Key: "check/" + f.Code + "/" + f.Subject, Href: "/checks", Args: args})
		}
	}
	return out, err
}
