package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// FaultNames are the names that filters offer, each sorted.
type FaultNames struct{ Sources, Groups, Classes []string }

// sqlFaultNames takes the names of the faults with the most open letters: a
// choice of thousands would be none. 1 is a group, 2 an error class.
const sqlFaultNames = `
WITH f AS (SELECT source_id, group_id, class_id FROM fault ORDER BY open_n DESC, id DESC LIMIT @faults)
SELECT 0::smallint AS kind, name FROM letter_source WHERE id IN (SELECT source_id FROM f)
UNION
SELECT kind, name FROM letter_name WHERE id IN (SELECT group_id FROM f UNION ALL SELECT class_id FROM f)
ORDER BY 1, 2`

// Names gives the sources, groups and error classes of the 200 faults with the
// most open letters.
func (f *Faults) Names(ctx context.Context) (names FaultNames, err error) {
	rows, err := f.pool.Query(ctx, sqlFaultNames, pgx.NamedArgs{"faults": 200})
	if err != nil {
		return names, fmt.Errorf("query names of faults: %w", err)
	}
	lists := []*[]string{&names.Sources, &names.Groups, &names.Classes}
	var kind int16
	var name string
	_, err = pgx.ForEachRow(rows, []any{&kind, &name}, func() error {
		*lists[kind] = append(*lists[kind], name)
		return nil
	})
	if err != nil {
		return names, fmt.Errorf("read names of faults: %w", err)
	}
	return names, nil
}
