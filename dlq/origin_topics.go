package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// OriginTopic is a topic that drained letters came from, as far as their
// dialects say.
type OriginTopic struct{ Cluster, Name string }

const sqlOriginTopics = `
SELECT DISTINCT s.cluster, o.name
FROM fault f
JOIN letter_source s ON s.id = f.source_id
JOIN letter_name o ON o.id = f.origin_id
WHERE s.broker = @kafka
ORDER BY s.cluster, o.name`

// OriginTopics lists the topics that letters of any state came from.
func (s *Faults) OriginTopics(ctx context.Context) ([]OriginTopic, error) {
	rows, _ := s.pool.Query(ctx, sqlOriginTopics, pgx.NamedArgs{"kafka": brokerKafka}) // its error comes with the rows
	topics, err := pgx.CollectRows(rows, pgx.RowToStructByPos[OriginTopic])
	if err != nil {
		return nil, fmt.Errorf("read origin topics: %w", err)
	}
	return topics, nil
}
