package dlq

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// SavedSearch is the address of a list under a name.
type SavedSearch struct {
	ID     int64
	Owner  string // account
	Name   string
	Page   string // letters | faults
	Query  string // as in the list's address, without the question mark
	Shared bool   // everybody sees it
}

// ErrSearchExists is returned for a name that this owner already uses.
var ErrSearchExists = errors.New("dlq: a saved search of that name exists")

// maxSearches bounds what one account keeps.
const maxSearches = 200

// Searches keeps saved searches.
type Searches struct{ pool *pgxpool.Pool }

// NewSearches keeps them in the console's database.
func NewSearches(pool *pgxpool.Pool) *Searches { return &Searches{pool: pool} }

const sqlSearches = `
SELECT id, owner, name, page, query, shared FROM saved_search
WHERE (owner = @owner OR shared) AND (@page = '' OR page = @page)
ORDER BY owner <> @owner, lower(name), id`

// List gives the actor's own searches and those that others share, own ones
// first. page "" is both.
func (s *Searches) List(ctx context.Context, actor access.Actor, page string) ([]SavedSearch, error) {
	if page != "" && page != "letters" && page != "faults" {
		return nil, &ErrBadFilter{Field: "page", Reason: "must be one of letters, faults"}
	}
	rows, err := s.pool.Query(ctx, sqlSearches, pgx.NamedArgs{"owner": actor.User, "page": page})
	if err != nil {
		return nil, fmt.Errorf("query saved searches: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SavedSearch])
	if err != nil {
		return nil, fmt.Errorf("read saved searches: %w", err)
	}
	return all, nil
}

const sqlSaveSearch = `
INSERT INTO saved_search (owner, name, page, query, shared)
SELECT @owner, @name, @page, @query, @shared
WHERE (SELECT count(*) FROM saved_search WHERE owner = @owner) < @most RETURNING id`

// Save keeps a search for the actor. Whether its query means anything is the
// list's to say; a cursor is left out. Errors: access.ErrForbidden, *ErrBadTriage,
// ErrSearchExists.
func (s *Searches) Save(ctx context.Context, actor access.Actor, search SavedSearch) (SavedSearch, error) {
	search.Owner, search.Name = actor.User, strings.TrimSpace(search.Name)
	if err := search.check(actor); err != nil {
		return search, err
	}
	values, err := url.ParseQuery(search.Query)
	if err != nil {
		return search, &ErrBadTriage{Field: "query", Reason: "cannot be read"}
	}
	values.Del("cursor")
	search.Query = values.Encode()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlSaveSearch, pgx.NamedArgs{"owner": search.Owner, "name": search.Name, "page": search.Page,
			"query": search.Query, "shared": search.Shared, "most": maxSearches}).Scan(&search.ID)
		if errors.Is(err, pgx.ErrNoRows) {
			return &ErrBadTriage{Field: "name", Reason: fmt.Sprintf("is one too many: %d searches are kept", maxSearches)}
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
			return ErrSearchExists
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "search.saved", Target: fmt.Sprintf("search/%d", search.ID),
			Detail: map[string]any{"name": search.Name, "page": search.Page, "shared": search.Shared}})
	})
	if err != nil {
		return search, fmt.Errorf("save search: %w", err)
	}
	return search, nil
}

func (s SavedSearch) check(actor access.Actor) error {
	act := access.SaveSearch
	if s.Shared {
		act = access.ShareSearch
	}
	if err := actor.Check(act); err != nil {
		return err
	}
	switch {
	case s.Name == "" || len(s.Name) > 100 || filterText("name", s.Name) != nil:
		return &ErrBadTriage{Field: "name", Reason: "has 1 to 100 bytes of text"}
	case s.Page != "letters" && s.Page != "faults":
		return &ErrBadTriage{Field: "page", Reason: "must be one of letters, faults"}
	case len(s.Query) > 4000 || filterText("query", s.Query) != nil:
		return &ErrBadTriage{Field: "query", Reason: "has at most 4,000 bytes of text"}
	}
	return nil
}

const sqlDropSearch = `DELETE FROM saved_search WHERE id = @id AND (owner = @owner OR @admin) RETURNING name`

// Delete removes one's own search; an admin removes anybody's. Errors:
// access.ErrForbidden, ErrNotFound.
func (s *Searches) Delete(ctx context.Context, actor access.Actor, id int64) error {
	if err := actor.Check(access.SaveSearch); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		var name string
		err := tx.QueryRow(ctx, sqlDropSearch, pgx.NamedArgs{"id": id, "owner": actor.User, "admin": actor.Role == access.Admin}).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "search.deleted", Target: fmt.Sprintf("search/%d", id), Detail: map[string]any{"name": name}})
	})
	if err != nil {
		return fmt.Errorf("delete search %d: %w", id, err)
	}
	return nil
}
