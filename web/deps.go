package web

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"oncemore/compensate"
	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/dlq/payload"
	"oncemore/internal/alert"
	"oncemore/internal/fleet"
	"oncemore/internal/outboxes"
)

// Deps is everything the server needs. Nil is allowed only where said.
type Deps struct {
	Pool *pgxpool.Pool // the console's own database

	Letters   *dlq.Letters
	Faults    *dlq.Faults
	Judge     *dlq.Judge
	Origins   *dlq.Origins
	Replays   *dlq.Replays
	Revisions *dlq.Revisions
	Bulks     *dlq.Bulks
	Searches  *dlq.Searches
	Overview  *dlq.Overviews
	Fleet     *fleet.Fleet
	Outboxes  *outboxes.Outboxes        // nil: none is configured
	Dialects  *dialect.Set              // how headers are read; nil: the embedded ones
	Drained   func() []dlq.SourceStatus // how far this process's drains are; nil: it has none

	Reconcile     Reconciliation
	Compensations *compensate.Compensations

	Retention *dlq.Retention // of letters
	Links     []Link         // to traces and logs; may be empty

	Registries map[string]*payload.Registry // schema registries by cluster; may be empty
	Alerts     *alert.Engine                // nil: nothing is looked for

	RunChecks    func(ctx context.Context) error                                              // looks at everything and keeps the findings; nil: this process cannot
	Groups       dlq.GroupBook                                                                // what is known of consumer groups
	Connections  []string                                                                     // names of the business databases
	FindEvidence func(ctx context.Context, connection string) ([]dlq.EvidenceProposal, error) // nil only without connections

	Environment string   // shown on every page, such as "shop production"
	Clusters    []string // names of the configured clusters
	Version     string

	Secure         bool           // reached over TLS, by us or by a proxy before us: Secure cookies and HSTS
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed; empty: nobody's

	Logger   *slog.Logger
	Clock    func() time.Time
	Registry *prometheus.Registry            // served at /metrics; the parts register their collectors here
	Ready    func(ctx context.Context) error // asked by /readyz besides the database; nil: nothing more
	Try      Try                             // nil: not the demo, no Try it page
	Setup    Setup                           // the first run; nil: the config is not a file of this process
}
