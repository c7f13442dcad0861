package web

import (
	"context"

	"oncemore/compensate"
	"oncemore/reconcile"
)

// RunJSON is a run as the API writes it, for the command line.
func RunJSON(r reconcile.Run) any { return runOf(r) }

// CompensationsJSON are compensations as the API lists them.
func CompensationsJSON(rows []compensate.Row) any { return eachOf(rows, compensationOf) }

// PreviewsJSON is what a proposal would make, as the API's dry run writes it.
func PreviewsJSON(previews []compensate.Preview) any { return eachOf(previews, repairPreviewOf) }

// CompensationJSON is one compensation with all that happened to it, as the API
// writes it. Error: compensate.ErrNotFound.
func CompensationJSON(ctx context.Context, all *compensate.Compensations, id int64) (any, error) {
	t, err := storyOf(ctx, all, id)
	if err != nil {
		return nil, err
	}
	return t.json(), nil
}
