package reconcile

import "fmt"

// The plans by which a window may be compared.
const (
	PlanMerge = "merge" // both sides stream in the order of their keys
	PlanJoin  = "join"  // one database joins them itself
)

// choosePlan takes the plan that was asked for, or the best that fits, and says
// why.
func choosePlan(job *Job, asked string, databases map[string]Database) (plan, reason string, err error) {
	fits, why := joinFits(job, databases)
	switch {
	case asked == PlanJoin && !fits:
		return "", "", fmt.Errorf("%w: join needs all sides in one PostgreSQL database, and %s", ErrPlan, why)
	case asked == PlanJoin, asked == PlanMerge:
		return asked, "asked for", nil
	case asked != "":
		return "", "", fmt.Errorf("%w: %q; there are %s and %s", ErrPlan, asked, PlanMerge, PlanJoin)
	case fits:
		return PlanJoin, why, nil
	}
	return PlanMerge, why, nil
}

// joinFits reports whether one PostgreSQL database has all sides.
func joinFits(job *Job, databases map[string]Database) (bool, string) {
	name := job.Consumed.Connection
	for _, p := range job.parties() {
		if other := job.side(p).Connection; other != name {
			return false, fmt.Sprintf("%s is on %s and %s on %s", Consumed, name, p, other)
		}
	}
	if job.Outbox != nil {
		return false, "there are three sides"
	}
	if job.Match.Mode == OneToMany {
		return false, "a key may have several effects"
	}
	if databases[name].MySQL != nil {
		return false, name + " is MySQL, which has no full join"
	}
	return true, "all sides are on " + name
}
