package check

import "context"

// redis checks that each Redis answers: consumers go on without, and slower.
func (r *run) redis(ctx context.Context) {
	for _, one := range r.in.Redis {
		subject, v := "redis/"+one.Name, values{"name": one.Name}
		asking, cancel := context.WithTimeout(ctx, lookTime)
		err := one.Ask(asking)
		cancel()
		if err != nil {
			r.say("redis.reach.down", subject, v, reason(err))
			continue
		}
		r.say("redis.reach.ok", subject, v)
	}
}
