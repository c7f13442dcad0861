package effect

// Text is the statement as PostgreSQL gets it.
func Text(s *SQL) string { return s.statement.text }
