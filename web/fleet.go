package web

import (
	"context"

	"oncemore/internal/fleet"
)

// Fleet tells of the consumer groups.
type Fleet interface {
	// Groups lists all groups that are known, worst state first.
	Groups(ctx context.Context) ([]fleet.Group, error)
}
