package dlq

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
)

// drainEnd is where a dead-letter partition ended at some time. A group that has
// passed an event has published its dead letter before, so once the drain is
// beyond that end, an event without a letter did not come back.
type drainEnd struct {
	Cluster   string `json:"cluster"`
	TopicID   string `json:"topic_id"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	End       int64  `json:"end"`
}

const sqlDrainedToMark = `
SELECT r.drain_mark IS NOT NULL AND NOT EXISTS (
  SELECT FROM jsonb_to_recordset(r.drain_mark) m(cluster text, topic_id uuid, partition int, "end" bigint)
  JOIN drain_position p ON p.cluster = m.cluster AND p.topic_id = m.topic_id AND p.partition = m.partition
  WHERE p.next_offset < m."end")
FROM replay r WHERE r.id = @id`

func (s *step) drainedToMark(ctx context.Context) (drained bool, err error) {
	if err := s.r.pool.QueryRow(ctx, sqlDrainedToMark, pgx.NamedArgs{"id": s.id}).Scan(&drained); err != nil {
		return false, fmt.Errorf("compare drain with mark: %w", err)
	}
	return drained, nil
}

const sqlMark = `
UPDATE replay SET drain_mark = @mark, drain_mark_at = now() WHERE id = @id`

const sqlMarkStands = `SELECT drain_mark IS NOT NULL FROM replay WHERE id = @id`

// mark notes where the dead-letter topics end now, when a group was seen beyond
// its offset after the last mark. A mark that the drain has yet to reach stays:
// on a busy topic a newer one would never be reached.
func (w *watch) mark(ctx context.Context) error {
	if len(w.marking) == 0 {
		return nil
	}
	var stands bool
	if err := w.r.pool.QueryRow(ctx, sqlMarkStands, pgx.NamedArgs{"id": w.id}).Scan(&stands); err != nil {
		return fmt.Errorf("read drain mark: %w", err)
	}
	if stands && !w.drained {
		return nil
	}
	ends := []drainEnd{}
	for _, cluster := range w.marking {
		of, err := w.drainEnds(ctx, cluster)
		if err != nil {
			w.log.Warn("ends of dead-letter topics could not be read", slog.String("cluster", cluster), slog.Any("error", err))
			return nil // asked again at the next look
		}
		ends = append(ends, of...)
	}
	return w.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		_, err := tx.Exec(ctx, sqlMark, pgx.NamedArgs{"id": w.id, "mark": ends})
		return err
	})
}

// sqlDrainTopics are the dead-letter topics of a cluster where failures of the
// replay's groups have been seen, or that are named after its targets.
const sqlDrainTopics = `
SELECT DISTINCT ON (p.topic, p.partition) p.topic_id::text, p.topic, p.partition
FROM drain_position p
WHERE p.cluster = @cluster AND (
  EXISTS (SELECT FROM letter_source s JOIN fault f ON f.source_id = s.id
    WHERE s.cluster = p.cluster AND s.name = p.topic
      AND f.group_id IN (SELECT unnest(t.groups) FROM replay_target t WHERE t.replay_id = @id))
  OR EXISTS (SELECT FROM replay_target t WHERE t.replay_id = @id AND strpos(p.topic, t.topic) > 0))
ORDER BY p.topic, p.partition, p.drained_at DESC`

func (w *watch) drainEnds(ctx context.Context, cluster string) ([]drainEnd, error) {
	rows, err := w.r.pool.Query(ctx, sqlDrainTopics, pgx.NamedArgs{"id": w.id, "cluster": cluster})
	if err != nil {
		return nil, fmt.Errorf("query drained topics: %w", err)
	}
	ends := []drainEnd{}
	topics := map[string]bool{}
	d := drainEnd{Cluster: cluster}
	_, err = pgx.ForEachRow(rows, []any{&d.TopicID, &d.Topic, &d.Partition}, func() error {
		ends, topics[d.Topic] = append(ends, d), true
		return nil
	})
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	listed, err := w.endsOf(ctx, cluster, topics)
	if err != nil {
		return nil, err
	}
	for i, d := range ends {
		if o, ok := listed.Lookup(d.Topic, d.Partition); ok && o.Err == nil {
			ends[i].End = o.Offset
		} else if ok && !topicGone(o.Err) {
			return nil, fmt.Errorf("end offset of %s: %w", d.Topic, o.Err)
		}
	}
	return ends, nil
}

func (w *watch) endsOf(ctx context.Context, cluster string, topics map[string]bool) (kadm.ListedOffsets, error) {
	on := w.r.clusters[cluster]
	if on == nil {
		return nil, fmt.Errorf("cluster %s is not configured", cluster)
	}
	ctx, cancel := context.WithTimeout(ctx, brokerAnswers)
	defer cancel()
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	return on.Admin.ListEndOffsets(ctx, names...)
}
