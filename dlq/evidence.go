package dlq

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	evidenceTimeout = 5 * time.Second
	evidencePairs   = 10_000 // pairs in one statement
)

// question asks for the consume record of one event in one group.
type question struct{ event, group string }

// record is a consume record that was found.
type record struct {
	found string     // its event id, as stored
	at    *time.Time // nil where no column says
	exact bool       // the same bytes; false: equal to the database's collation only
}

// answers are what one evidence table said. failed is set instead when it could
// not be asked.
type answers struct {
	records map[question]record
	failed  *Reason
}

// evidencePlace is what makes two groups' evidence one statement.
type evidencePlace struct {
	pool                                      *pgxpool.Pool // exactly one of pool and mysql is set
	mysql                                     *sql.DB
	connection, table, event, group, consumed string
	value                                     string // stands in the group column; "": the group's name
	where                                     string // further condition on the rows; "": none
}

func (e Evidence) place() evidencePlace {
	return evidencePlace{e.Pool, e.MySQL, e.Connection, e.Table, e.EventID, e.ConsumerGroup, e.ConsumedAt, e.GroupValue, e.Where}
}

// inColumn is what the group column of the question's rows holds.
func (p evidencePlace) inColumn(q question) string {
	if p.value != "" {
		return p.value
	}
	return q.group
}

// columnNames are the columns that a look-up reads.
func (p evidencePlace) columnNames() []string {
	return slices.DeleteFunc([]string{p.event, p.group, p.consumed}, func(name string) bool { return name == "" })
}

// lookUp asks every evidence table, side by side, each in as few statements as
// the number of questions allows. It returns when all have answered or failed.
func lookUp(ctx context.Context, asked map[evidencePlace]map[question]bool, clock func() time.Time) map[evidencePlace]answers {
	out := make(map[evidencePlace]answers, len(asked))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for place, questions := range asked {
		wg.Go(func() {
			a := place.ask(ctx, questions, clock)
			mu.Lock()
			out[place] = a
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (p evidencePlace) ask(ctx context.Context, questions map[question]bool, clock func() time.Time) answers {
	a := answers{records: map[question]record{}}
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	err := errNoPool
	switch {
	case p.pool != nil:
		err = p.askPostgres(ctx, questions, a.records)
	case p.mysql != nil:
		err = p.askMySQL(ctx, questions, a.records)
	}
	if err != nil {
		r := p.failure(ctx, err, clock())
		a.failed = &r
	}
	return a
}

var (
	errNoPool     = errors.New("dlq: evidence connection is not open")
	errReplica    = errors.New("dlq: evidence connection is a replica that has not caught up")
	errNoTable    = errors.New("table does not exist")
	errNoColumn   = errors.New("column does not exist")
	errColumnType = errors.New("column type cannot hold an event id")
)

// failure is the reason for a verdict of unknown.
func (p evidencePlace) failure(ctx context.Context, err error, at time.Time) Reason {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.Is(err, errReplica):
		return reason("reason.unknown.evidence_replica", "connection", p.connection, "at", instant(at))
	case errors.Is(err, errNoTable), errors.Is(err, errNoColumn), errors.Is(err, errColumnType):
		return reason("reason.unknown.evidence_table", "table", p.table, "connection", p.connection, "at", instant(at), "error", err.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &pg) && pg.Code == "57014", errors.As(err, &my) && slices.Contains(mysqlTimedOut, my.Number):
		return reason("reason.unknown.evidence_timeout", "connection", p.connection, "seconds", int(evidenceTimeout.Seconds()), "at", instant(at))
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42"):
		return reason("reason.unknown.evidence_table", "table", p.table, "connection", p.connection, "at", instant(at), "error", pg.Message)
	case errors.As(err, &my) && !slices.Contains(mysqlAway, my.Number):
		return reason("reason.unknown.evidence_table", "table", p.table, "connection", p.connection, "at", instant(at), "error", my.Message)
	}
	return reason("reason.unknown.evidence", "connection", p.connection, "at", instant(at))
}

// Errors of MySQL and MariaDB that do not speak of the table: the statement took
// too long, or the server is busy, going or refuses the account.
var (
	mysqlTimedOut = []uint16{1969, 3024, 1205, 1317}
	mysqlAway     = []uint16{1040, 1045, 1053, 1129, 1130, 1203, 1226}
)

// EvidenceAnswer is what one look-up said, for people who try a configuration.
type EvidenceAnswer struct {
	Found      bool
	EventID    string     // as stored, where one was found
	Exact      bool       // the same bytes; false: equal by the column's collation only
	ConsumedAt *time.Time // nil where no column says
	Failed     *Reason    // why it could not be asked
	Took       time.Duration
}

// Ask looks one event of a group up, as a verdict does.
func (e Evidence) Ask(ctx context.Context, event, group string) EvidenceAnswer {
	began := time.Now()
	q := question{event, group}
	a := e.place().ask(ctx, map[question]bool{q: true}, time.Now)
	r, found := a.records[q]
	return EvidenceAnswer{Found: found, EventID: r.found, Exact: r.exact, ConsumedAt: r.at, Failed: a.failed, Took: time.Since(began)}
}
