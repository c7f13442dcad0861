package web

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncemore/internal/check"
)

var (
	alertsDesc   = prometheus.NewDesc("oncemore_alerts", "Alerts that last, by rule and severity; 0 where a rule finds nothing.", []string{"rule", "severity"}, nil)
	blindDesc    = prometheus.NewDesc("oncemore_alert_rule_blind", "1 where a rule could not look at its last try: what it would find is not known.", []string{"rule"}, nil)
	lookDesc     = prometheus.NewDesc("oncemore_alert_rule_look_age_seconds", "Time since a rule last looked at everything.", []string{"rule"}, nil)
	findingsDesc = prometheus.NewDesc("oncemore_check_findings", "Latest answers of the checks by severity, those that somebody has muted left out.", []string{"severity"}, nil)
)

// alerts says for each rule what it finds, and whether it can look at all.
func (c collector) alerts(ctx context.Context, out chan<- prometheus.Metric) {
	if c.s.Alerts == nil {
		return
	}
	counts, err := c.s.Alerts.CountByRule(ctx)
	if err != nil {
		c.s.Logger.Warn("alerts not counted for the metrics", "error", err)
		return
	}
	looks, err := c.s.Alerts.Looks(ctx)
	if err != nil {
		c.s.Logger.Warn("looks not read for the metrics", "error", err)
		return
	}
	for _, r := range c.s.Alerts.Rules() {
		l, looked := looks[r.Name]
		if !looked {
			continue // not known yet, which is not zero
		}
		found := false
		for _, n := range counts {
			if n.Rule == r.Name {
				found = true
				gauge(out, alertsDesc, n.N, n.Rule, n.Severity.String())
			}
		}
		if !found {
			gauge(out, alertsDesc, 0, r.Name, r.Severity.String())
		}
		blind := int64(0)
		if l.Error != "" {
			blind = 1
		}
		gauge(out, blindDesc, blind, r.Name)
		gauge(out, lookDesc, int64(c.s.Clock().Sub(l.At)/time.Second), r.Name)
	}
}

func (c collector) findings(ctx context.Context, out chan<- prometheus.Metric) {
	findings, err := check.NewStore(c.s.Pool).Findings(ctx)
	if err != nil || len(findings) == 0 {
		return // not checked yet
	}
	n, now := map[check.Severity]int64{}, c.s.Clock()
	for _, f := range findings {
		if !f.Muted(now) {
			n[f.Severity]++
		}
	}
	for s := check.Critical; s <= check.Passed; s++ {
		gauge(out, findingsDesc, n[s], s.String())
	}
}
