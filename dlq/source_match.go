package dlq

// Matches reports whether a topic belongs to the source. A pattern that cannot
// be read matches nothing.
func (s DrainSource) Matches(topic string) bool {
	compiled, err := compileSources([]DrainSource{s})
	if err != nil {
		return false
	}
	_, ok := match(compiled, topic)
	return ok
}
