package dlq

import (
	"context"
	"time"
)

// broker is what differs between Kafka and RabbitMQ for those who judge and
// replay.
type broker interface {
	// look says which places there are and who reads them; needed are those that
	// the caller asks about. A broker that cannot be asked is clusterView.Err.
	look(ctx context.Context, needed []string) *clusterView
	// unattended lists the places that look like dead letters, hold some, and are
	// neither among drained nor read by anybody.
	unattended(ctx context.Context, view *clusterView, drained []string) ([]UnattendedSource, error)

	// compose makes an item's message, or leaves the item out with the reason.
	compose(it *sendItem, of composing)
	// places says where a target can be searched later: the end of each partition,
	// nothing for a broker that cannot be searched. there is false for a target
	// that does not exist.
	places(ctx context.Context, target sendTarget) (ends map[int32]int64, there bool, err error)
	// newSender connects for publishing. A sender is used by one step at a time.
	newSender(timeout time.Duration) (sender, error)
	// search looks for the messages of a replay that were sent to a target and not
	// confirmed.
	search(ctx context.Context, replay int64, target sendTarget, from map[int32]int64) (searched, error)

	close()
}

// sender publishes messages to one cluster.
type sender interface {
	// send publishes in order and gives every item its result before it returns,
	// at the latest when ctx ends. late: some have no answer, and nothing may leave
	// this sender any more.
	send(ctx context.Context, items []*sendItem) (late bool)
	close()
}

// searched is what a search of a target says of items without an answer.
type searched struct {
	found map[int]sendResult // by item
	// unknown: an item that is not among found may be there all the same.
	unknown bool
	// never: this broker cannot be searched at all.
	never bool
	// next: the search's time was over before its end; it goes on from there, by
	// partition. nil: it is through.
	next map[int32]int64
}
