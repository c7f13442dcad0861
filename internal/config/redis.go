package config

import (
	"regexp"
	"time"
)

// Redis is a named Redis that consumers may remember consumed events in.
type Redis struct {
	Pos     Pos
	Name    string
	URL     Secret
	TTL     time.Duration // how long an event is remembered
	Timeout time.Duration // of one look-up or write
	Prefix  string        // of its keys; belongs to one business database
}

const (
	defaultRedisTTL     = 24 * time.Hour
	defaultRedisTimeout = 50 * time.Millisecond
	mostRedisTimeout    = 5 * time.Second
	defaultRedisPrefix  = "mq:consume"
)

// redisPrefix leaves out what a look at the keys would not survive.
var redisPrefix = regexp.MustCompile(`^[!-~]{1,100}$`)

func readRedis(name string, n node) Redis {
	r := Redis{Pos: n.Pos(), Name: name, TTL: defaultRedisTTL, Timeout: defaultRedisTimeout, Prefix: defaultRedisPrefix}
	f := fields{
		"ttl": func(n node) {
			if n.Duration(&r.TTL); r.TTL < time.Second {
				n.Fail("has to be at least 1s")
			}
		},
		"timeout": func(n node) {
			if n.Duration(&r.Timeout); r.Timeout <= 0 || r.Timeout > mostRedisTimeout {
				n.Fail("has to be more than 0 and at most %s: what takes longer saves nothing", mostRedisTimeout)
			}
		},
		"prefix": func(n node) {
			if n.Text(&r.Prefix); !redisPrefix.MatchString(r.Prefix) {
				n.Fail("has to be up to 100 printable ASCII characters without spaces")
			}
		},
	}
	secret(f, "url", &r.URL)
	n.Object(f)
	needSecret(n, "url", r.URL)
	return r
}

// RedisOf returns the named Redis, or nil.
func (c *Config) RedisOf(name string) *Redis {
	for i := range c.Redis {
		if c.Redis[i].Name == name {
			return &c.Redis[i]
		}
	}
	return nil
}

// checkFilter also refuses that two business databases share keys: an event
// consumed in one would be taken for consumed in the other.
func (c *Config) checkFilter(bad *problems, i int) {
	own := c.Consumers[i]
	if own.Filter == "" {
		return
	}
	r := c.RedisOf(own.Filter)
	if r == nil {
		bad.Add(own.Pos.Problemf("filter: there is no %q under redis", own.Filter))
		return
	}
	for _, other := range c.Consumers[:i] {
		if o := c.RedisOf(other.Filter); o != nil && o.Prefix == r.Prefix && o.URL.same(r.URL) && other.Connection != own.Connection {
			bad.Add(own.Pos.Problemf("filter %s has the keys of consumer %s, which is on another connection: give each connection a prefix of its own", own.Filter, other.Group))
		}
	}
}

// same reports whether both name the same place, as far as the file shows.
func (s Secret) same(o Secret) bool { return s.Env == o.Env && s.File == o.File && s.Given == o.Given }
