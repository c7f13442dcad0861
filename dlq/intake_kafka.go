package dlq

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// fenced takes hold of partitions by moving their positions.
func (in *intake) fenced(parts []*partitionBatch) taking {
	return func(ctx context.Context, tx pgx.Tx, arrivals []*arrival) (time.Time, []*arrival, error) {
		now, err := fence(ctx, tx, in.cluster, parts)
		return now, arrivals, err
	}
}

// store commits the letters of all parts and their new positions in one
// transaction; arrivals is what read made of them. If the data is at fault, it goes
// record by record, so that one cannot hold up the others. Errors: errStale, or the
// database's; what was not stored then has to be given again.
func (in *intake) store(ctx context.Context, parts []*partitionBatch, arrivals []*arrival) error {
	err := in.commit(ctx, arrivals, in.fenced(parts))
	if !dataFault(err) {
		return err
	}
	in.log.WarnContext(ctx, "batch of dead letters refused, storing one by one", "records", len(arrivals), "error", err)
	for _, p := range parts {
		if err := in.storeSingly(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (in *intake) read(parts []*partitionBatch) []*arrival {
	var arrivals []*arrival
	for _, p := range parts {
		for _, r := range p.Records {
			arrivals = append(arrivals, arrive(in.dialects, p, r, in.log))
		}
	}
	return arrivals
}

// storeSingly stores a part's records one by one. What is refused even so is
// stored as unknown, with nothing but its bytes. part.From follows, so that a
// later try goes on from there.
func (in *intake) storeSingly(ctx context.Context, part *partitionBatch) error {
	end := part.Next
	for len(part.Records) > 0 {
		one := *part
		one.Records = part.Records[:1]
		if one.Next = end; len(part.Records) > 1 {
			one.Next = part.Records[1].Offset
		}
		if err := in.storeOne(ctx, &one); err != nil {
			return err
		}
		part.From, part.Records = one.Next, part.Records[1:]
	}
	return nil
}

func (in *intake) storeOne(ctx context.Context, one *partitionBatch) error {
	arrivals, parts := in.read([]*partitionBatch{one}), []*partitionBatch{one}
	err := in.commit(ctx, arrivals, in.fenced(parts))
	if !dataFault(err) {
		return err
	}
	in.log.ErrorContext(ctx, "dead letter refused, stored as unknown", "topic", one.Topic, "partition", one.Partition,
		"offset", one.Records[0].Offset, "error", err)
	arrivals[0].forget()
	return in.commit(ctx, arrivals, in.fenced(parts))
}
