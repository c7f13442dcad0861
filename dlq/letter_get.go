package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Occurrence is one arrival of a letter's failure after the first.
type Occurrence struct {
	At           time.Time // drained at, by our database's clock
	Cluster      string
	Source       string
	Partition    *int32
	Offset       *int64
	OwnBody      *uuid.UUID // its own bytes, where they differ from the letter's
	ErrorMessage *string
	ReplayID     *int64 // the replay that brought it, nil: came by itself
	ItemNo       *int32
}

// LetterReplay is a replay that a letter was part of.
type LetterReplay struct {
	ReplayID  int64
	State     ReplayState
	CreatedBy string
	CreatedAt time.Time
	ItemNo    int32
	ItemState string // waiting | sending | sent | left_out | not_sent | unconfirmed
	SentAt    *time.Time
	Topic     string
	Partition *int32
	Offset    *int64
	BytesFrom string // letter | origin | "" not sent yet
	Reason    Reason
	Outcomes  []ItemGroup
}

// LetterDetail is one letter with what its page shows, without its body.
type LetterDetail struct {
	Letter
	EventIDAlt   *string        // trimmed or unquoted form of the event id, where it differs
	FaultMessage string         // normalised message of its fault
	FaultOpen    int64          // open letters in its fault
	FaultPlace   int            // of an open letter among those, newest is 1; 0 beyond CountLimit or not open
	BodySize     int            // of the value, in bytes
	KeyPreview   []byte         // first 128 bytes of the key; nil is null
	KeySize      int            // in bytes
	Occurrences  []Occurrence   // oldest first, at most 200; Letter.Occurrences counts all, the first arrival included
	Replays      []LetterReplay // newest first, at most 50
	Revisions    []Revision     // oldest first
	Verdicts     []GroupVerdict // as last judged for the narrowest target, the letter's own group first
}

const sqlLetter = `SELECT` + letterSelect + `, d.event_id_alt, f.message,
  f.open_n + coalesce((SELECT sum(n) FROM fault_delta x WHERE x.fault_id = f.id AND x.state = 1), 0)::bigint,
  (SELECT count(*) FROM (SELECT 1 FROM dead_letter n
    WHERE d.state = 1 AND n.fault_id = d.fault_id AND n.state = 1 AND n.id >= d.id LIMIT @bound) x),
  coalesce(octet_length(b.value), 0), substring(b.key FROM 1 FOR 128), coalesce(octet_length(b.key), 0)
FROM dead_letter d` + letterNames + `
LEFT JOIN dead_letter_body b ON b.id = d.id
WHERE d.id = @id`

const sqlOccurrences = `
SELECT o.at, s.cluster, s.name, o.partition, o."offset", o.body_id, o.error_message, o.replay_id, o.item_no
FROM letter_occurrence o JOIN letter_source s ON s.id = o.source_id
WHERE o.letter_id = @id ORDER BY o.at, o."offset" LIMIT 200`

const sqlLetterReplays = `
SELECT r.id, r.state, r.created_by, r.created_at, i.no, i.state, i.sent_at, coalesce(CASE WHEN t.exchange = '' THEN t.topic ELSE t.exchange || ' → ' || t.topic END, ''),
  i.sent_partition, i.sent_offset, i.bytes_from, i.reason, i.reason_key, i.reason_args
FROM replay_item_letter l
JOIN replay_item i ON i.replay_id = l.replay_id AND i.no = l.no
JOIN replay r ON r.id = l.replay_id
LEFT JOIN replay_target t ON t.id = i.target_id
WHERE l.letter_id = @id ORDER BY r.id DESC LIMIT 50`

const sqlLetterOutcomes = `
SELECT o.replay_id, o.item_no, coalesce(g.name, ''), o.verdict, o.outcome, o.at, o.reason, o.reason_key, o.reason_args
FROM replay_item_letter l
JOIN replay_outcome o ON o.replay_id = l.replay_id AND o.item_no = l.no
LEFT JOIN letter_name g ON g.id = o.group_id
WHERE l.letter_id = @id ORDER BY o.replay_id DESC, g.name`

const sqlLetterVerdicts = `
SELECT coalesce(g.name, ''), v.verdict, v.reason, v.reason_key, v.reason_args, v.consumed_at, v.asked_at, v.reached
FROM letter_verdict v LEFT JOIN letter_name g ON g.id = v.group_id
WHERE v.letter_id = @id
ORDER BY v.group_id <> (SELECT group_id FROM dead_letter WHERE id = @id), g.name`

// Get reads one letter. Errors: ErrNotFound.
func (l *Letters) Get(ctx context.Context, id uuid.UUID) (LetterDetail, error) {
	var d LetterDetail
	err := snapshot(ctx, l.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		args := pgx.NamedArgs{"id": id, "bound": CountLimit + 1}
		found := false
		b.Queue(sqlLetter, args).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				found = true
				if err := d.scan(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		queueRows(b, sqlOccurrences, args, scanOccurrence, &d.Occurrences)
		queueRows(b, sqlLetterReplays, args, scanLetterReplay, &d.Replays)
		b.Queue(sqlLetterOutcomes, args).Query(d.scanOutcomes)
		queueRows(b, sqlLetterVerdicts, args, scanGroupVerdict, &d.Verdicts)
		queueRows(b, sqlRevisionList, pgx.NamedArgs{"letter": id}, pgx.RowToStructByPos[Revision], &d.Revisions)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("letter %s: %w", id, err)
		}
		if !found {
			return fmt.Errorf("letter %s: %w", id, ErrNotFound)
		}
		return nil
	})
	return d, err
}

// queueRows adds a query whose rows are read into out.
func queueRows[T any](b *pgx.Batch, sql string, args pgx.NamedArgs, scan pgx.RowToFunc[T], out *[]T) {
	b.Queue(sql, args).Query(func(rows pgx.Rows) (err error) {
		*out, err = pgx.CollectRows(rows, scan)
		return err
	})
}

func (d *LetterDetail) scan(row pgx.CollectableRow) (err error) {
	d.Letter, err = scanLetter(row, &d.EventIDAlt, &d.FaultMessage, &d.FaultOpen, &d.FaultPlace, &d.BodySize, &d.KeyPreview, &d.KeySize)
	if d.FaultPlace > CountLimit {
		d.FaultPlace = 0
	}
	return err
}

func scanOccurrence(row pgx.CollectableRow) (o Occurrence, err error) {
	err = row.Scan(&o.At, &o.Cluster, &o.Source, &o.Partition, &o.Offset, &o.OwnBody, &o.ErrorMessage, &o.ReplayID, &o.ItemNo)
	return o, err
}

// itemStates are the names of replay_item.state.
var itemStates = [...]string{"waiting", "sending", "sent", "left_out", "not_sent", "unconfirmed"}

func scanLetterReplay(row pgx.CollectableRow) (r LetterReplay, err error) {
	var state int16
	var from *bytesFrom
	var text, key *string
	var args []byte
	err = row.Scan(&r.ReplayID, &r.State, &r.CreatedBy, &r.CreatedAt, &r.ItemNo, &state, &r.SentAt, &r.Topic,
		&r.Partition, &r.Offset, &from, &text, &key, &args)
	if err != nil {
		return r, err
	}
	if int(state) < len(itemStates) {
		r.ItemState = itemStates[state]
	}
	if from != nil {
		r.BytesFrom = from.String()
	}
	r.Reason = loadReason(text, key, args)
	return r, nil
}

func (d *LetterDetail) scanOutcomes(rows pgx.Rows) error {
	for rows.Next() {
		var replay int64
		var item int32
		var g ItemGroup
		var at time.Time
		var text, key *string
		var args []byte
		if err := rows.Scan(&replay, &item, &g.Group, &g.Verdict, &g.Outcome, &at, &text, &key, &args); err != nil {
			return err
		}
		g.At, g.Reason = &at, loadReason(text, key, args)
		for i := range d.Replays {
			if r := &d.Replays[i]; r.ReplayID == replay && r.ItemNo == item {
				r.Outcomes = append(r.Outcomes, g)
			}
		}
	}
	return rows.Err()
}

func scanGroupVerdict(row pgx.CollectableRow) (v GroupVerdict, err error) {
	var text, key *string
	var args []byte
	err = row.Scan(&v.Group, &v.Verdict, &text, &key, &args, &v.ConsumedAt, &v.AskedAt, &v.Reached)
	v.Reason = loadReason(text, key, args)
	return v, err
}
