package check

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	subjectConsole = "console/database"
	oldest         = 140000 // PostgreSQL 14, as server_version_num
)

const sqlVersion = `
SELECT current_setting('server_version'), current_setting('server_version_num')::int`

// console checks the console's own database.
func (r *run) console(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var version string
	var number int
	err := errNoPool
	if r.in.Console != nil {
		err = r.in.Console.QueryRow(ctx, sqlVersion).Scan(&version, &number)
	}
	if err != nil {
		r.say("console.database.down", subjectConsole, nil, reason(err))
		r.say("console.migrations.unknown", subjectConsole, nil)
		r.say("console.months.unknown", subjectConsole, nil)
		return
	}
	r.version(version, number)
	if r.migrations(ctx, r.in.Console) {
		r.months(ctx, r.in.Console)
	} else {
		r.say("console.months.unknown", subjectConsole, nil)
	}
}

func (r *run) version(version string, number int) {
	code := "console.database.ok"
	if number < oldest {
		code = "console.database.old"
	}
	r.say(code, subjectConsole, values{"version": version})
}

func (r *run) migrations(ctx context.Context, pool *pgxpool.Pool) bool {
	if r.in.Pending == nil {
		r.say("console.migrations.unknown", subjectConsole, nil)
		return true
	}
	pending, err := r.in.Pending(ctx, pool)
	switch {
	case err != nil:
		r.say("console.migrations.unknown", subjectConsole, nil, reason(err))
		return false
	case pending > 0:
		r.say("console.migrations.pending", subjectConsole, values{"n": strconv.Itoa(pending)})
		return false
	}
	r.say("console.migrations.ok", subjectConsole, nil)
	return true
}

// partitioned are the tables with one partition a month, named <table>_YYYYMM.
var partitioned = []string{"dead_letter", "dead_letter_body"}

// This month and the next, of each table, in UTC as letter_add_month names them.
const sqlMissingMonths = `
SELECT t.name || '_' || to_char(m.month, 'YYYYMM')
FROM unnest(@tables::text[]) AS t(name),
     (VALUES (now() AT TIME ZONE 'UTC'), (now() AT TIME ZONE 'UTC' + interval '1 month')) AS m(month)
WHERE to_regclass(t.name || '_' || to_char(m.month, 'YYYYMM')) IS NULL
ORDER BY 1`

func (r *run) months(ctx context.Context, pool *pgxpool.Pool) {
	rows, _ := pool.Query(ctx, sqlMissingMonths, pgx.NamedArgs{"tables": partitioned}) // its error comes with the rows
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		r.say("console.months.unknown", subjectConsole, nil, reason(err))
	case len(missing) > 0:
		r.say("console.months.missing", subjectConsole, values{"months": strings.Join(missing, ", ")})
	default:
		r.say("console.months.ok", subjectConsole, nil)
	}
	r.keptMonths(ctx, pool)
}

// keptMonths are due to be dropped and stay, because letters of them are open.
func (r *run) keptMonths(ctx context.Context, pool *pgxpool.Pool) {
	if r.in.Kept == nil {
		return
	}
	kept, err := r.in.Kept(ctx, pool)
	switch {
	case err != nil:
		r.say("console.kept.unknown", subjectConsole, nil, reason(err))
	case len(kept) > 0:
		r.say("console.kept.open", subjectConsole, values{"months": strings.Join(kept, ", ")})
	default:
		r.say("console.kept.none", subjectConsole, nil)
	}
}

var errNoPool = errors.New("no connection is configured")

// days writes a duration as people keep records: 92 d, or 17 s below a day.
func days(d time.Duration) string {
	if d < 24*time.Hour {
		return d.Round(time.Second).String()
	}
	whole := (d + 24*time.Hour - 1) / (24 * time.Hour)
	return strconv.FormatInt(int64(whole), 10) + " d"
}
