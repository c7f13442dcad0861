package dlq

import "time"

// Topology answers, per cluster, which topics there are and which groups read
// them. Answers are kept for a few seconds and carry their time.
type Topology struct {
	clusters map[string]*Cluster
	clock    func() time.Time
}

// NewTopology asks the given clusters, by name.
func NewTopology(clusters map[string]*Cluster, clock func() time.Time) *Topology {
	return &Topology{clusters: clusters, clock: clock}
}
