package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

const (
	memoryBytes      = 1024 // of one value
	memoryPartitions = 4
	memoryGoal       = 150 // MB
)

// Memory measures the most that the process holds while a consumer works off a
// backlog of so many records, which is many times larger, and prints one MEMORY line.
func (e Env) Memory(ctx context.Context, records int) error {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return err
	}
	defer drop()
	topic := unique("bench-memory")
	remove, err := e.backlog(ctx, topic, records)
	if err != nil {
		return err
	}
	defer remove()
	member, err := e.member(pool, topic, func(c *consumer.Config[pgstore.Tx]) { c.Handler = addPoints })
	if err != nil {
		return err
	}
	if err := resetPeak(); err != nil {
		return err
	}
	if _, err := timeMember(ctx, member, int64(records)); err != nil {
		return err
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	mb := peak >> 20
	if _, err := fmt.Fprintf(e.Out, "MEMORY consume_backlog %d MB of %d MB waiting, goal <= %d\n", mb, records*memoryBytes>>20, memoryGoal); err != nil {
		return err
	}
	if mb > memoryGoal {
		return fmt.Errorf("a consumer held %d MB, goal is %d", mb, memoryGoal)
	}
	return nil
}

// backlog fills a topic piece by piece, so that the peak is not its own.
func (e Env) backlog(ctx context.Context, topic string, records int) (func(), error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, memoryPartitions, 1, nil, topic); err != nil {
		return nil, fmt.Errorf("create topic %s: %w", topic, err)
	}
	remove := func() { e.deleteTopic(context.WithoutCancel(ctx), topic) }
	value := bytes.Repeat([]byte{'x'}, memoryBytes)
	for from := 0; from < records; from += 5000 {
		piece := make([]*kgo.Record, min(5000, records-from))
		for i := range piece {
			n := from + i
			piece[i] = &kgo.Record{Topic: topic, Partition: int32(n % memoryPartitions), Key: []byte(user(n)), Value: value,
				Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(eventID(n))}}}
		}
		if err := client.ProduceSync(ctx, piece...).FirstErr(); err != nil {
			remove()
			return nil, fmt.Errorf("fill topic %s: %w", topic, err)
		}
	}
	return remove, nil
}

func (e Env) deleteTopic(ctx context.Context, topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka))
	if err == nil {
		defer client.Close()
		_, err = kadm.NewClient(client).DeleteTopics(ctx, topic)
	}
	if err != nil {
		fmt.Fprintln(e.Out, "left behind:", err)
	}
}

// cpuTime is what this process has spent so far.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // it knows itself
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// resetPeak gives unused memory back and lets Linux count the peak anew.
func resetPeak() error {
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of memory, which needs Linux: %w", err)
	}
	return nil
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemory is the most that was resident since resetPeak, in bytes.
func peakMemory() (int64, error) { return memoryOf("self", highWater) }

// memoryOf reads a line of what Linux says of a process, in bytes.
func memoryOf(pid string, line *regexp.Regexp) (int64, error) {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	m := line.FindSubmatch(status)
	if m == nil {
		return 0, fmt.Errorf("no %s in /proc/%s/status", line, pid)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10, err
}
