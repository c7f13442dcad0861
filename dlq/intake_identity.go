package dlq

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	sqlClaimIdentities = `
INSERT INTO letter_identity (bucket, hash, letter_id)
SELECT b, h, l FROM unnest(@buckets::int[], @hashes::uuid[], @letters::uuid[]) u(b, h, l)
ON CONFLICT (bucket, hash) DO NOTHING RETURNING bucket, hash`
	sqlIdentities = `
SELECT i.bucket, i.hash, i.letter_id FROM unnest(@buckets::int[], @hashes::uuid[]) u(b, h)
JOIN letter_identity i ON i.bucket = u.b AND i.hash = u.h`
)

// claimIdentities splits arrivals into new letters and, by letter and in order of
// arrival, occurrences. Rows are inserted sorted, so that drains cannot deadlock.
func claimIdentities(ctx context.Context, tx pgx.Tx, arrivals []*arrival) (fresh []*arrival, again map[uuid.UUID][]*arrival, err error) {
	same := map[identity][]*arrival{}
	for _, a := range arrivals {
		same[a.identity] = append(same[a.identity], a)
	}
	keys := sortedIdentities(same)
	letters := make([][16]byte, len(keys))
	for i, k := range keys {
		letters[i] = same[k][0].letter()
	}
	owners, err := insertIdentities(ctx, tx, keys, letters)
	if err != nil {
		return nil, nil, err
	}
	again = map[uuid.UUID][]*arrival{}
	for _, k := range keys {
		list := same[k]
		owner, taken := owners[k]
		if !taken && list[0].lineage == uuid.Nil {
			fresh, owner, list = append(fresh, list[0]), list[0].id, list[1:]
		} else if !taken {
			owner = list[0].lineage
		}
		for _, a := range list {
			a.reopens = a.lineage == owner && owner != uuid.Nil
		}
		if len(list) > 0 {
			again[owner] = append(again[owner], list...)
		}
	}
	for _, list := range again {
		slices.SortStableFunc(list, func(a, b *arrival) int { return bytes.Compare(a.id[:], b.id[:]) })
	}
	return fresh, again, nil
}

// letter is the letter that the arrival's identity stands for if it is a new one.
func (a *arrival) letter() uuid.UUID {
	if a.lineage != uuid.Nil {
		return a.lineage
	}
	return a.id
}

func sortedIdentities(same map[identity][]*arrival) []identity {
	keys := make([]identity, 0, len(same))
	for k := range same {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), bytes.Compare(a.hash[:], b.hash[:]))
	})
	return keys
}

// insertIdentities returns the letters of those that were there before.
func insertIdentities(ctx context.Context, tx pgx.Tx, keys []identity, letters [][16]byte) (map[identity]uuid.UUID, error) {
	args := identityArgs(keys)
	args["letters"] = letters
	rows, err := tx.Query(ctx, sqlClaimIdentities, args)
	if err != nil {
		return nil, fmt.Errorf("claim identities: %w", err)
	}
	isNew := make(map[identity]bool, len(keys))
	var k identity
	if _, err := pgx.ForEachRow(rows, []any{&k.bucket, (*[16]byte)(&k.hash)}, func() error { isNew[k] = true; return nil }); err != nil {
		return nil, fmt.Errorf("claim identities: %w", err)
	}
	if len(isNew) == len(keys) {
		return nil, nil
	}
	old := slices.DeleteFunc(slices.Clone(keys), func(k identity) bool { return isNew[k] })
	return findIdentities(ctx, tx, old)
}

func findIdentities(ctx context.Context, tx pgx.Tx, keys []identity) (map[identity]uuid.UUID, error) {
	rows, err := tx.Query(ctx, sqlIdentities, identityArgs(keys))
	if err != nil {
		return nil, fmt.Errorf("query identities: %w", err)
	}
	owners := make(map[identity]uuid.UUID, len(keys))
	var k identity
	var letter uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&k.bucket, (*[16]byte)(&k.hash), (*[16]byte)(&letter)}, func() error { owners[k] = letter; return nil }); err != nil {
		return nil, fmt.Errorf("read identities: %w", err)
	}
	return owners, nil
}

// identityArgs passes ids as plain bytes: pgx would ask uuid.UUID for its text and
// parse it again.
func identityArgs(keys []identity) pgx.NamedArgs {
	buckets, hashes := make([]int32, len(keys)), make([][16]byte, len(keys))
	for i, k := range keys {
		buckets[i], hashes[i] = k.bucket, k.hash
	}
	return pgx.NamedArgs{"buckets": buckets, "hashes": hashes}
}
