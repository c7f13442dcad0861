package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"oncemore/consumer"
)

const (
	sqlFindMany   = `SELECT event_id FROM mq_consume_record WHERE consumer_group = ? AND event_id IN (?%s)`
	sqlInsertMany = `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES (?, ?, UTC_TIMESTAMP())%s`

	moreIDs  = `, ?`
	moreRows = `, (?, ?, UTC_TIMESTAMP())`
)

// perStatement is how many ids go into one statement.
const perStatement = 500

// errTaken says that some record of several was inserted by somebody else meanwhile.
var errTaken = errors.New("a record is there already")

// errArchived is errTaken by a record in the archive, which the guard has found
// for a store that does not look there.
var errArchived = fmt.Errorf("%w, in the archive", errTaken)

// insert records the sorted ids and returns the fresh ones. INSERT IGNORE would
// do in one statement, but it also cuts off ids that do not fit. So: insert all
// that are not there, and where another transaction got between, begin again and
// learn it row by row.
func (c *claim) insert(ctx context.Context, group string, ids []string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tx.limit)
	defer cancel()
	fresh, err := c.insertAll(ctx, group, ids)
	if !errors.Is(err, errTaken) {
		return fresh, err
	}
	if _, err := c.tx.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return nil, err
	}
	return c.insertEach(ctx, group, ids)
}

// insertAll inserts all ids that have no record, many per statement. In one
// order, so that two batches with the same ids wait for each other instead of
// deadlocking.
func (c *claim) insertAll(ctx context.Context, group string, ids []string) (map[string]bool, error) {
	rest, err := c.missing(ctx, group, ids)
	if err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, len(rest))
	for some := range slices.Chunk(rest, perStatement) {
		if err := c.insertSome(ctx, group, some); err != nil {
			return nil, err
		}
		for _, id := range some {
			fresh[id] = true
		}
	}
	return fresh, nil
}

// insertEach inserts the ids one by one, to know of each whether it is fresh.
func (c *claim) insertEach(ctx context.Context, group string, ids []string) (map[string]bool, error) {
	rest, err := c.missing(ctx, group, ids)
	if err != nil {
		return nil, err
	}
	fresh := make(map[string]bool, len(rest))
	var taken []string
	for i, id := range rest {
		switch err := c.insertSome(ctx, group, rest[i:i+1]); {
		case err == nil:
			fresh[id] = true
		case errors.Is(err, errArchived):
		case errors.Is(err, errTaken):
			taken = append(taken, id)
		default:
			return nil, err
		}
	}
	return fresh, c.confirm(ctx, group, taken)
}

// insertSome inserts up to perStatement records with one statement.
func (c *claim) insertSome(ctx context.Context, group string, ids []string) error {
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id, group)
	}
	result, err := c.tx.conn.ExecContext(ctx, repeat(sqlInsertMany, moreRows, len(ids)), args...)
	switch {
	case archivedRecord(err):
		return errArchived
	case takenRecord(err):
		return errTaken
	}
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n != int64(len(ids)) {
		return fmt.Errorf("%d of %d records were inserted: has %s a trigger, or is it a view?", n, len(ids), Table)
	}
	return nil
}

// confirm makes sure that the ids which the unique key refused have a record of
// just these bytes. A column whose collation takes two ids for one (EVT and evt,
// or one with a space at its end) must not swallow the second event.
func (c *claim) confirm(ctx context.Context, group string, taken []string) error {
	other, err := c.missing(ctx, group, taken)
	if err != nil {
		return err
	}
	if len(other) > 0 {
		return consumer.Permanent(fmt.Errorf("event id %q cannot be told from another one by the collation of %s.event_id", other[0], Table))
	}
	return nil
}

// missing returns those of the ids that have no record, byte by byte.
func (c *claim) missing(ctx context.Context, group string, ids []string) ([]string, error) {
	found := map[string]bool{}
	for some := range slices.Chunk(ids, perStatement) {
		if err := c.selectIDs(ctx, sqlFindMany, group, some, found); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return found[id] }), nil
}

// selectIDs adds the ids that the query finds of some to found.
func (c *claim) selectIDs(ctx context.Context, query, group string, ids []string, found map[string]bool) error {
	args := []any{group}
	for _, id := range ids {
		args = append(args, id)
	}
	rows, err := c.tx.conn.QueryContext(ctx, repeat(query, moreIDs, len(ids)), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		found[id] = true
	}
	return rows.Err()
}

// repeat completes a statement for n values, of which it has one.
func repeat(sql, more string, n int) string {
	return fmt.Sprintf(sql, strings.Repeat(more, n-1))
}
