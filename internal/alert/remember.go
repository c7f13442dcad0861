package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const sqlCouldNotLook = `
INSERT INTO alert_look AS l (rule, at, error, error_since) VALUES (@rule, @at, @error, @at)
ON CONFLICT (rule) DO UPDATE SET error = excluded.error, error_since = coalesce(l.error_since, excluded.error_since)`

const (
	sqlLooked = `
INSERT INTO alert_look (rule, at) VALUES (@rule, @at)
ON CONFLICT (rule) DO UPDATE SET at = excluded.at, error = NULL, error_since = NULL`

	sqlFound = `
INSERT INTO alert AS a (rule, key, severity, args, href, first_at, last_at)
SELECT @rule, u.key, u.severity, u.args, u.href, @at, @at
FROM unnest(@keys::text[], @severities::smallint[], @args::jsonb[], @hrefs::text[]) u(key, severity, args, href)
ORDER BY u.key
ON CONFLICT (rule, key) WHERE resolved_at IS NULL DO UPDATE SET
  severity = excluded.severity, args = excluded.args, href = excluded.href, last_at = greatest(a.last_at, excluded.last_at)`

	sqlEnded = `
UPDATE alert SET resolved_at = @at
WHERE rule = @rule AND resolved_at IS NULL AND key <> ALL(@keys::text[]) AND last_at < @at`
)

// remember makes the rule's alerts what it found: new ones begin, those that are
// not there any more end. Where the rule could not look at all of it, nothing ends.
func (e *Engine) remember(ctx context.Context, rule Rule, found []Condition, failed error, now time.Time) error {
	args, err := foundArgs(rule, found)
	if err != nil {
		return err
	}
	args["at"] = now
	statements := []string{sqlLooked, sqlFound, sqlEnded}
	if failed != nil {
		args["error"], statements = storable(failed), []string{sqlCouldNotLook, sqlFound}
	}
	err = pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		for _, sql := range statements {
			b.Queue(sql, args)
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return fmt.Errorf("keep what rule %s found: %w", rule.Name, err)
	}
	return nil
}

func foundArgs(rule Rule, found []Condition) (pgx.NamedArgs, error) {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b Condition) int { return cmp.Compare(a.Key, b.Key) })
	found = slices.CompactFunc(found, func(a, b Condition) bool { return a.Key == b.Key })
	keys, hrefs, args := make([]string, len(found)), make([]string, len(found)), make([]string, len(found))
	severities := make([]int16, len(found))
	for i, c := range found {
		values, err := json.Marshal(orEmpty(c.Args))
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", rule.Name, err)
		}
		keys[i], hrefs[i], args[i], severities[i] = c.Key, c.Href, string(values), int16(cmp.Or(c.Severity, rule.Severity))
	}
	return pgx.NamedArgs{"rule": rule.Name, "keys": keys, "hrefs": hrefs, "args": args, "severities": severities}, nil
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// sqlEndOfOthers ends what belongs to rules that are switched off or gone.
const sqlEndOfOthers = `UPDATE alert SET resolved_at = @at WHERE resolved_at IS NULL AND rule <> ALL(@rules::text[])`

func (e *Engine) endOfOthers(ctx context.Context, now time.Time) error {
	_, err := e.pool.Exec(ctx, sqlEndOfOthers, pgx.NamedArgs{"at": now, "rules": e.ruleNames(func(Rule) bool { return true })})
	if err != nil {
		return fmt.Errorf("end alerts of rules that are off: %w", err)
	}
	return nil
}

func (e *Engine) ruleNames(which func(Rule) bool) []string {
	names := []string{}
	for _, r := range e.opts.Rules {
		if which(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

const (
	sqlForgetAlerts     = `DELETE FROM alert WHERE resolved_at < @before`
	sqlForgetDeliveries = `DELETE FROM alert_delivery WHERE created_at < @before`
)

// forget drops what has been over for long.
func (e *Engine) forget(ctx context.Context, now time.Time) error {
	b := &pgx.Batch{}
	for _, sql := range []string{sqlForgetAlerts, sqlForgetDeliveries} {
		b.Queue(sql, pgx.NamedArgs{"before": now.Add(-keepFor)})
	}
	if err := e.pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("forget old alerts: %w", err)
	}
	return nil
}

// storable is an error's text as a column takes it.
func storable(err error) string {
	return cut(strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "�"), "\x00", ""), 500)
}

// cut keeps at most n bytes, of whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
