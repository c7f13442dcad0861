package effect

// Text is the statement as PostgreSQL gets it.
func Text(s *SQL) string { return s.statement.text }

// TextOfMySQL is the statement as MySQL prepares it.
func TextOfMySQL(m *MySQL) string { return m.statement.text }
