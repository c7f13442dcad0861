package config

import (
	"regexp"
	"strings"
)

// groupName is what both brokers and the consume record's column take.
var groupName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// topicName is Kafka's rule.
var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// check looks at what refers to what.
func (c *Config) check(bad *problems) {
	for _, s := range c.Sources {
		c.needCluster(bad, s.Pos, s.Cluster)
		if cl := c.Cluster(s.Cluster); cl != nil && cl.Kafka != nil && s.EventID.MessageID {
			bad.Add(s.Pos.Problemf("event_id.message_id is for RabbitMQ: Kafka's messages have no such property"))
		}
		if s.Group != "" && c.Cluster(s.Cluster) != nil && c.Cluster(s.Cluster).Kafka != nil {
			bad.Add(s.Pos.Problemf("group is for queues: a Kafka dead letter names its own"))
		}
		c.checkQueueSource(bad, s)
	}
	for _, g := range c.Groups {
		c.checkGroup(bad, g)
	}
	c.checkRecords(bad)
	for i := range c.Outbox {
		c.checkOutbox(bad, i)
	}
	for i, consumer := range c.Consumers {
		c.checkConsumer(bad, consumer)
		c.checkFilter(bad, i)
		for _, other := range c.Consumers[:i] {
			if other.Group == consumer.Group {
				bad.Add(consumer.Pos.Problemf("group %s stands at line %d as well", consumer.Group, other.Pos.Line))
			}
		}
	}
}

// checkQueueSource looks at what only sources of RabbitMQ have.
func (c *Config) checkQueueSource(bad *problems, s Source) {
	switch cl := c.Cluster(s.Cluster); {
	case cl == nil: // said already
	case cl.Kafka != nil && s.KeepExpiration != nil:
		bad.Add(s.Pos.Problemf("keep_expiration is for queues: a record of Kafka has no expiration"))
	case cl.Kafka != nil && s.Copy:
		bad.Add(s.Pos.Problemf("mode: copy is for queues: reading a topic takes nothing out of it"))
	case cl.Rabbit != nil && strings.ContainsAny(s.Pattern, "*?") && !cl.Rabbit.ManagementURL.Set():
		bad.Add(s.Pos.Problemf("a pattern needs clusters.%s.rabbit.management_url to list queues: set it, or name the queue in full", cl.Name))
	case cl.Rabbit != nil && s.Copy && !cl.Rabbit.ManagementURL.Set():
		bad.Add(s.Pos.Problemf("mode: copy needs clusters.%s.rabbit.management_url: whether giving messages back uses up a delivery limit is not known without it", cl.Name))
	}
}

func (c *Config) needCluster(bad *problems, at Pos, name string) {
	if c.Cluster(name) == nil {
		bad.Add(at.Problemf("there is no cluster %q under clusters", name))
	}
}

func (c *Config) needConnection(bad *problems, at Pos, name string) {
	if c.Connection(name) == nil {
		bad.Add(at.Problemf("there is no connection %q under connections", name))
	}
}

func (c *Config) checkGroup(bad *problems, g Group) {
	if !groupName.MatchString(g.Name) {
		bad.Add(g.Pos.Problemf("a group's name is 1 to 249 letters, digits, dots, dashes and underscores"))
	}
	if g.Cluster != "" {
		c.needCluster(bad, g.Pos, g.Cluster)
	}
	if g.Evidence != nil {
		c.needConnection(bad, g.Evidence.Pos, g.Evidence.Connection)
	}
	if g.Window != 0 && g.Effect != "external" {
		bad.Add(g.Pos.Problemf("idempotency_window is only for effect: external"))
	}
}

func (c *Config) checkConsumer(bad *problems, consumer Consumer) {
	if !groupName.MatchString(consumer.Group) {
		bad.Add(consumer.Pos.Problemf("a group's name is 1 to 249 letters, digits, dots, dashes and underscores"))
	}
	c.needCluster(bad, consumer.Pos, consumer.Cluster)
	c.needConnection(bad, consumer.Pos, consumer.Connection)
	c.checkBroker(bad, consumer)
	checkStrategy(bad, consumer)
	c.checkUniqueKey(bad, consumer)
	if consumer.HTTP != nil {
		if _, ok := c.URLs[consumer.HTTP.Base]; !ok {
			bad.Add(consumer.Pos.Problemf("effect.http.base: there is no %q under urls", consumer.HTTP.Base))
		}
	}
}

// checkStrategy looks at what a strategy needs. Whether the statements fit it is
// the effect's business.
func checkStrategy(bad *problems, consumer Consumer) {
	strategy := consumer.Strategy
	asks := strategy == "state" || strategy == "lock" || strategy == "version"
	switch {
	case strategy != "consume_record" && consumer.HTTP != nil:
		bad.Add(consumer.Pos.Problemf("strategy %s is for effect.sql: a call is recognised by its consume record", strategy))
	case asks && consumer.Verify == "":
		bad.Add(consumer.Pos.Problemf("strategy %s needs effect.verify, a query that says whether the event was processed", strategy))
	case !asks && consumer.Verify != "":
		bad.Add(consumer.Pos.Problemf("effect.verify is for the strategies state, lock and version"))
	}
	if strategy == "lock" && consumer.LockKeys == nil {
		bad.Add(consumer.Pos.Problemf("strategy lock needs lock_keys, such as {user: :userId}"))
	}
}

// checkUniqueKey: PostgreSQL's statement names its key itself.
func (c *Config) checkUniqueKey(bad *problems, consumer Consumer) {
	conn := c.Connection(consumer.Connection)
	if conn == nil {
		return // said already
	}
	switch unique := consumer.Strategy == "unique_key"; {
	case consumer.UniqueKey != "" && conn.Kind != "mysql":
		bad.Add(consumer.Pos.Problemf("effect.unique_key is for MySQL: in PostgreSQL the statement names the key, ON CONFLICT (…) DO NOTHING"))
	case consumer.UniqueKey != "" && !unique:
		bad.Add(consumer.Pos.Problemf("effect.unique_key is for strategy unique_key"))
	case consumer.UniqueKey == "" && unique && conn.Kind == "mysql" && consumer.HTTP == nil:
		bad.Add(consumer.Pos.Problemf("strategy unique_key needs effect.unique_key in MySQL: the name of the key whose violation is a duplicate, such as uk_event_channel or PRIMARY"))
	}
}

// checkBroker looks at what differs by broker.
func (c *Config) checkBroker(bad *problems, consumer Consumer) {
	switch cluster := c.Cluster(consumer.Cluster); {
	case cluster == nil: // said already
	case cluster.Kafka != nil && consumer.Queue != "":
		bad.Add(consumer.Pos.Problemf("queue is for RabbitMQ, and cluster %s is Kafka: name topics", cluster.Name))
	case cluster.Rabbit != nil && len(consumer.Topics) > 0:
		bad.Add(consumer.Pos.Problemf("topics are for Kafka, and cluster %s is RabbitMQ: name a queue", cluster.Name))
	case cluster.Kafka != nil && consumer.Horizon > 0:
		bad.Add(consumer.Pos.Problemf("redelivery_horizon is for RabbitMQ: Kafka's topics say how long they keep messages"))
	case cluster.Kafka != nil && consumer.EventID.MessageID:
		bad.Add(consumer.Pos.Problemf("event_id.message_id is for RabbitMQ: Kafka's messages have no such property"))
	}
	if consumer.Queue != "" {
		return // RabbitMQ takes any name
	}
	for _, topic := range append([]string{consumer.DeadLetter}, consumer.Topics...) {
		if topic != "" && !topicName.MatchString(topic) {
			bad.Add(consumer.Pos.Problemf("%q is no topic name", topic))
		}
	}
}
