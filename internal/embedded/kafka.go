package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

// ErrPortTaken means that another process listens on the wanted port.
var ErrPortTaken = errors.New("port is taken by another process")

// Kafka is a broker inside this process that keeps its data on disk. Any client
// on the machine may use it; topics are made when they are first named.
type Kafka struct {
	Addr    string
	cluster *kfake.Cluster
}

// StartKafka starts a broker on the loopback address with its data in dir. The
// port is the preferred one where it is free.
func StartKafka(dir string, port int, log *slog.Logger) (*Kafka, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of Kafka: %w", err)
	}
	for try := 1; ; try++ {
		free, err := usablePort(port)
		if err != nil {
			return nil, err
		}
		k, err := startKafka(dir, free, log)
		if !errors.Is(err, ErrPortTaken) || try == portTries {
			return k, err
		}
	}
}

// portTries is how often a port is chosen anew: another process may take it
// between looking and listening.
const portTries = 5

func startKafka(dir string, port int, log *slog.Logger) (*Kafka, error) {
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(filepath.Clean(dir)),
		kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1),
		kfake.ClusterID("oncemore-demo"), kfake.WithLogger(kafkaLog{log}),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "10485760"}),
	)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("Kafka: %w: %d", ErrPortTaken, port)
	}
	if err != nil {
		return nil, fmt.Errorf("start Kafka on %s: %w", dir, err)
	}
	return &Kafka{Addr: fmt.Sprintf("127.0.0.1:%d", port), cluster: cluster}, nil
}

// CreateTopic makes a topic where it is missing.
func (k *Kafka) CreateTopic(name string, partitions int32) error {
	if k.cluster.TopicInfo(name) != nil {
		return nil
	}
	if err := k.cluster.CreateTopic(name, partitions, nil); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// Stop writes what is left to disk and ends the broker.
func (k *Kafka) Stop() { k.cluster.Close() }

// kafkaLog passes the broker's errors on; the rest is of no use to a reader.
type kafkaLog struct{ log *slog.Logger }

func (l kafkaLog) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	if level == kfake.LogLevelError {
		to = slog.LevelError
	}
	if l.log.Enabled(context.Background(), to) {
		l.log.Log(context.Background(), to, "kafka", "says", fmt.Sprintf(format, args...))
	}
}
