package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// look asks for topics and for the groups that read them. Half an answer counts
// as none: a group that is missing would be replayed to unjudged.
func (b kafkaBroker) look(ctx context.Context, _ []string) *clusterView {
	c := b.Cluster
	v := &clusterView{Topics: map[string]topicView{}, Readers: map[string][]string{}}
	if v.Err = v.loadTopics(ctx, c); v.Err != nil {
		return v
	}
	v.Err = v.loadReaders(ctx, c)
	return v
}

func (v *clusterView) loadTopics(ctx context.Context, c *Cluster) error {
	req := kmsg.NewPtrMetadataRequest() // all topics; creating some by asking is off
	resp, err := req.RequestWith(ctx, c.Producer)
	if err != nil {
		return fmt.Errorf("topics of cluster %s: %w", c.Name, err)
	}
	for _, topic := range resp.Topics {
		if topic.Topic == nil || topic.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			continue
		}
		tv := topicView{ID: topic.TopicID}
		for _, p := range topic.Partitions {
			tv.Partitions = append(tv.Partitions, p.Partition)
		}
		slices.Sort(tv.Partitions)
		v.Topics[*topic.Topic] = tv
	}
	return nil
}

// readerSets collects topic → groups.
type readerSets map[string]map[string]bool

func (r readerSets) add(topic, group string) {
	if r[topic] == nil {
		r[topic] = map[string]bool{}
	}
	r[topic][group] = true
}

func (v *clusterView) loadReaders(ctx context.Context, c *Cluster) error {
	listed, err := c.Admin.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("groups of cluster %s: %w", c.Name, err)
	}
	var classic, modern, share, committing []string
	for name, g := range listed {
		if strings.HasPrefix(name, drainGroupPrefix) {
			continue
		}
		switch strings.ToLower(g.GroupType) {
		case "share":
			share = append(share, name)
			continue
		case "consumer":
			modern = append(modern, name)
		case "", "classic":
			classic = append(classic, name)
		}
		committing = append(committing, name)
	}
	readers := readerSets{}
	for _, ask := range []struct {
		groups []string
		of     func(context.Context, *Cluster, []string, readerSets) error
	}{{classic, classicMembers}, {modern, v.modernMembers}, {share, shareMembers}, {committing, committed}} {
		if len(ask.groups) == 0 {
			continue
		}
		if err := ask.of(ctx, c, ask.groups, readers); err != nil {
			return fmt.Errorf("readers of cluster %s: %w", c.Name, err)
		}
	}
	for topic, groups := range readers {
		v.Readers[topic] = slices.Sorted(maps.Keys(groups))
	}
	return nil
}

// gone reports whether a group vanished between listing and asking.
func gone(err error) bool {
	return errors.Is(err, kerr.GroupIDNotFound)
}

func classicMembers(ctx context.Context, c *Cluster, groups []string, readers readerSets) error {
	described, err := c.Admin.DescribeGroups(ctx, groups...)
	if err != nil {
		return err
	}
	for name, g := range described {
		if g.Err != nil && !gone(g.Err) {
			return fmt.Errorf("describe group %s: %w", name, g.Err)
		}
		for _, m := range g.Members {
			if join, ok := m.Join.AsConsumer(); ok {
				for _, topic := range join.Topics {
					readers.add(topic, name)
				}
			}
		}
		for topic := range g.AssignedPartitions() {
			readers.add(topic, name)
		}
	}
	return nil
}

func (v *clusterView) modernMembers(ctx context.Context, c *Cluster, groups []string, readers readerSets) error {
	described, err := c.Admin.DescribeConsumerGroups(ctx, groups...)
	if err != nil {
		return err
	}
	for name, g := range described {
		if g.Err != nil && !gone(g.Err) {
			return fmt.Errorf("describe group %s: %w", name, g.Err)
		}
		for topic := range g.AssignedPartitions() {
			readers.add(topic, name)
		}
		for _, topic := range g.SubscribedTopics() {
			readers.add(topic, name)
		}
		for _, m := range g.Members {
			if m.SubscribedTopicRegex != nil {
				v.addMatching(*m.SubscribedTopicRegex, name, readers)
			}
		}
	}
	return nil
}

// addMatching adds the topics that a subscription by expression names. The
// broker's expressions are RE2, as Go's are, and match the whole name.
func (v *clusterView) addMatching(expression, group string, readers readerSets) {
	re, err := regexp.Compile("^(?:" + expression + ")$")
	if err != nil {
		return // the broker would have refused it
	}
	for topic := range v.Topics {
		if re.MatchString(topic) {
			readers.add(topic, group)
		}
	}
}

func shareMembers(ctx context.Context, c *Cluster, groups []string, readers readerSets) error {
	described, err := c.Admin.DescribeShareGroups(ctx, groups...)
	if err != nil {
		return err
	}
	for name, g := range described {
		if g.Err != nil && !gone(g.Err) {
			return fmt.Errorf("describe share group %s: %w", name, g.Err)
		}
		for _, topic := range g.SubscribedTopics() {
			readers.add(topic, name)
		}
	}
	return nil
}

func committed(ctx context.Context, c *Cluster, groups []string, readers readerSets) error {
	for name, r := range c.Admin.FetchManyOffsets(ctx, groups...) {
		if r.Err != nil && !gone(r.Err) {
			return fmt.Errorf("offsets of group %s: %w", name, r.Err)
		}
		r.Fetched.Each(func(o kadm.OffsetResponse) {
			if o.At >= 0 {
				readers.add(o.Topic, name)
			}
		})
	}
	return nil
}
