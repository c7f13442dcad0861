package config

import "time"

// Records says how long the consume records of our consumers are kept, and where.
type Records struct {
	Pos     Pos
	Keep    time.Duration // 0: as long as is computed to be needed
	Forever bool          // none is dropped
	Archive bool          // older than Hot: in the archive, by months
	Hot     time.Duration // 0 without an archive
}

// defaultHot is how long records stay in the table where the archive says no more.
const defaultHot = 30 * 24 * time.Hour

// RecordsOf is what holds for a connection: its own, or that of the whole file.
func (c *Config) RecordsOf(connection string) Records {
	if conn := c.Connection(connection); conn != nil && conn.Records != nil {
		return *conn.Records
	}
	return c.Retention.Records
}

// recordFields are the keys that retention and connections.NAME.retention share.
func recordFields(r *Records) fields {
	return fields{
		"consume_records": func(n node) { readKeep(n, r) },
		"archive": func(n node) {
			var by string
			n.OneOf(&by, "monthly")
			r.Archive = true
			if r.Hot == 0 {
				r.Hot = defaultHot
			}
		},
		"hot": func(n node) {
			if n.Duration(&r.Hot); r.Hot <= 0 {
				n.Fail("has to be more than 0")
			}
		},
	}
}

func readKeep(n node, r *Records) {
	switch n.Value {
	case "computed":
	case "keep":
		r.Forever = true
	default:
		if n.Duration(&r.Keep); r.Keep == 0 {
			n.Fail("has to be computed, keep or a duration such as 90d")
		}
	}
}

func readRecords(n node) *Records {
	r := &Records{Pos: n.Pos()}
	n.Object(recordFields(r))
	return r
}

// checkRecords looks at the archives. Those of the whole file hold for each
// connection that has none of its own.
func (c *Config) checkRecords(bad *problems) {
	for _, r := range c.allRecords() {
		if r.Hot != 0 && !r.Archive {
			bad.Add(r.Pos.Problemf("hot is for archive: monthly: without an archive all records are in the table"))
		}
	}
}

func (c *Config) allRecords() []Records {
	all := []Records{c.Retention.Records}
	for _, conn := range c.Connections {
		if conn.Records != nil {
			all = append(all, *conn.Records)
		}
	}
	return all
}
