package redisfilter

// Key is the key of an event.
func (f *Filter) Key(group, id string) string { return f.key(group, id) }
