package rabbit

import "sync"

// token is the right to acknowledge one delivery. Delivery tags start anew with
// each channel, so a tag is worth something only in the generation of its own.
type token struct {
	generation uint64
	tag        uint64
}

// acker is the channel as acks need it.
type acker interface {
	Ack(tag uint64, multiple bool) error
}

// acks acknowledges on the channel of the present generation, and on no other.
type acks struct {
	mu         sync.Mutex
	generation uint64
	channel    acker  // nil between generations
	last       uint64 // tag acknowledged last in this generation
	stale      int64
}

// open begins a generation with its channel.
func (a *acks) open(channel acker) (generation uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generation++
	a.channel, a.last = channel, 0
	return a.generation
}

// close ends a generation; its tokens are stale from now on.
func (a *acks) close(generation uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.generation == generation {
		a.channel = nil
	}
}

// ack acknowledges deliveries. Those of another generation are counted and left:
// the broker delivers them again.
func (a *acks) ack(tokens []token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.followOn(tokens) {
		a.send(tokens[len(tokens)-1], true, len(tokens))
		return
	}
	for _, t := range tokens {
		a.send(t, false, 1)
	}
}

// followOn reports whether several tokens are exactly those after the last one
// acknowledged: only then does "this and all before" mean no other delivery.
func (a *acks) followOn(tokens []token) bool {
	for i, t := range tokens {
		if t.generation != a.generation || t.tag != a.last+1+uint64(i) {
			return false
		}
	}
	return len(tokens) > 1
}

func (a *acks) send(t token, multiple bool, deliveries int) {
	if a.channel == nil || t.generation != a.generation || a.channel.Ack(t.tag, multiple) != nil {
		a.stale += int64(deliveries)
		return
	}
	a.last = max(a.last, t.tag)
}

func (a *acks) staleCount() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stale
}
