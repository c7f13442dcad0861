package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// exportPage is how many letters are read at a time.
const exportPage = 1000

// Export gives every letter of a list in its order, and leaves one audit row
// before the first. format is for that row. Letters that arrive meanwhile are not
// in it. Errors: access.ErrForbidden, *ErrBadFilter, or take's.
func (l *Letters) Export(ctx context.Context, actor access.Actor, f LetterFilter, format string, take func(Letter) error) error {
	if err := actor.Check(access.Read); err != nil {
		return err
	}
	n, bounded, err := l.Count(ctx, f)
	if err != nil {
		return err
	}
	if f.Until.IsZero() {
		if f.Until, err = l.present(ctx); err != nil {
			return err
		}
	}
	detail := map[string]any{"filter": f, "format": format, "letters": n, "at_least": bounded}
	if err := noteExport(ctx, l.pool, actor, "letters.exported", "letters", detail); err != nil {
		return err
	}
	for cursor := ""; ; {
		page, err := l.list(ctx, f, cursor, exportPage)
		if err != nil {
			return err
		}
		for _, letter := range page.Items {
			if err := take(letter); err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// present is the database's, one millisecond on: letters of this one are in.
func (l *Letters) present(ctx context.Context) (now time.Time, err error) {
	if err := l.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return now, fmt.Errorf("read the database's clock: %w", err)
	}
	return now.Add(time.Millisecond), nil
}

func noteExport(ctx context.Context, pool *pgxpool.Pool, actor access.Actor, action, target string, detail any) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return audit.Write(ctx, tx, actor, audit.Entry{Action: action, Target: target, Detail: detail})
	})
}

// Export gives every fault of a list in its order, with an audit row before the
// first. Errors as of Letters.Export.
func (f *Faults) Export(ctx context.Context, actor access.Actor, filter FaultFilter, format string, take func(Fault) error) error {
	if err := actor.Check(access.Read); err != nil {
		return err
	}
	if _, err := filter.normal(); err != nil {
		return err
	}
	if err := noteExport(ctx, f.pool, actor, "faults.exported", "faults", map[string]any{"filter": filter, "format": format}); err != nil {
		return err
	}
	for p := (Page{Limit: 200}); ; {
		page, err := f.List(ctx, filter, p)
		if err != nil {
			return err
		}
		for _, fault := range page.Items {
			if err := take(fault); err != nil {
				return err
			}
		}
		if p.Cursor = page.Next; p.Cursor == "" {
			return nil
		}
	}
}
