package outbox

import (
	"context"
	"math/rand/v2"
	"time"
)

// balanceEvery is how soon a share that became free is taken.
const balanceEvery = time.Second

// rebalance keeps this relay at its share of the shards: all of them divided by
// the relays that have a session now.
func (sh *shift) rebalance(ctx context.Context) error {
	now := sh.r.opts.Now()
	if now.Before(sh.balance) {
		return sh.giveAway(ctx)
	}
	sh.balance = now.Add(balanceEvery)
	members := 0
	err := sh.ask(ctx, "count relays", func(ctx context.Context) (err error) {
		members, err = sh.s.members(ctx)
		return err
	})
	if err != nil {
		return err
	}
	share := (Shards + max(members, 1) - 1) / max(members, 1)
	if len(sh.owned) < share {
		return sh.claim(ctx, share-len(sh.owned))
	}
	sh.leave(len(sh.kept()) - share)
	return sh.giveAway(ctx)
}

// claim takes shards that nobody has.
func (sh *shift) claim(ctx context.Context, most int) error {
	var free, got []int16
	for shard := range int16(Shards) {
		if _, ours := sh.owned[shard]; !ours {
			free = append(free, shard)
		}
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	err := sh.ask(ctx, "lock shards", func(ctx context.Context) (err error) {
		got, err = sh.s.lock(ctx, free, most)
		return err
	})
	if err != nil {
		return err
	}
	for _, shard := range got {
		sh.owned[shard] = false
	}
	sh.r.setSweeps(sh.sweeps())
	return nil
}

// leave marks shards that others shall have: none of their rows is taken from now on.
func (sh *shift) leave(n int) {
	for shard, leaving := range sh.owned {
		if n <= 0 {
			return
		}
		if !leaving {
			sh.owned[shard] = true
			n--
		}
	}
}

// giveAway unlocks marked shards with nothing on its way.
func (sh *shift) giveAway(ctx context.Context) error {
	busy := map[int16]bool{}
	for _, f := range sh.flights {
		busy[f.shard] = true
	}
	var idle []int16
	for shard, leaving := range sh.owned {
		if leaving && !busy[shard] {
			idle = append(idle, shard)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	err := sh.ask(ctx, "unlock shards", func(ctx context.Context) error { return sh.s.unlock(ctx, idle) })
	if err != nil {
		return err
	}
	for _, shard := range idle {
		delete(sh.owned, shard)
	}
	sh.r.setSweeps(sh.sweeps())
	return nil
}

// kept are the shards whose rows are taken.
func (sh *shift) kept() (shards []int16) {
	for shard, leaving := range sh.owned {
		if !leaving {
			shards = append(shards, shard)
		}
	}
	return shards
}

func (sh *shift) sweeps() bool {
	_, first := sh.owned[0]
	return first
}
