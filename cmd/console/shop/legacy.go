package shop

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runLegacy is the coupon service: an older consumer that keeps no record of
// what it consumed, so a second delivery grants a second coupon. What it cannot
// handle goes to its dead-letter topic the way Spring Kafka does it.
func (s *Shop) runLegacy(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers), kgo.ClientID("coupon-service"), kgo.ConsumerGroup(LegacyGroup),
		kgo.ConsumeTopics(Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	if err != nil {
		return fmt.Errorf("coupon service: %w", err)
	}
	defer client.Close()
	defer client.AllowRebalance()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, record := range fetches.Records() {
			if err := s.coupon(ctx, record); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "coupon service stopped at a record", "partition", record.Partition, "offset", record.Offset, "error", err)
				return fmt.Errorf("coupon service: %w", err)
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "coupon service did not commit", "error", err)
		}
		client.AllowRebalance()
	}
	return nil
}

const sqlCoupon = `insert into coupon_grant (order_id, event_id) values ($1, nullif($2, ''))`

// coupon grants and then tells the customer. When telling fails the coupon has
// been granted all the same: the letter that results must not be replayed.
func (s *Shop) coupon(ctx context.Context, record *kgo.Record) error {
	var o order
	if err := json.Unmarshal(record.Value, &o); err != nil {
		return s.giveUp(ctx, record, "org.springframework.kafka.support.serializer.DeserializationException", err.Error())
	}
	if _, err := s.pool.Exec(ctx, sqlCoupon, o.OrderID, o.EventID); err != nil {
		return fmt.Errorf("grant coupon for order %s: %w", o.OrderID, err)
	}
	if o.Tier == troubled {
		return s.giveUp(ctx, record, "java.net.SocketTimeoutException", "mail-service: Read timed out after the coupon was granted")
	}
	return nil
}

// giveUp publishes a dead letter with the headers of Spring Kafka.
func (s *Shop) giveUp(ctx context.Context, record *kgo.Record, class, message string) error {
	stack := class + ": " + message + "\n" +
		"\tat com.shop.coupon.MailClient.send(MailClient.java:88)\n" +
		"\tat com.shop.coupon.CouponListener.onOrderPaid(CouponListener.java:41)\n" +
		"\tat org.springframework.kafka.listener.KafkaMessageListenerContainer$ListenerConsumer.doInvokeRecordListener(KafkaMessageListenerContainer.java:2807)\n"
	headers := append(record.Headers[:len(record.Headers):len(record.Headers)],
		header("kafka_dlt-exception-fqcn", []byte("org.springframework.kafka.listener.ListenerExecutionFailedException")),
		header("kafka_dlt-exception-cause-fqcn", []byte(class)),
		header("kafka_dlt-exception-message", []byte(message)),
		header("kafka_dlt-exception-stacktrace", []byte(stack)),
		header("kafka_dlt-original-topic", []byte(record.Topic)),
		header("kafka_dlt-original-partition", binary.BigEndian.AppendUint32(nil, uint32(record.Partition))),
		header("kafka_dlt-original-offset", binary.BigEndian.AppendUint64(nil, uint64(record.Offset))),
		header("kafka_dlt-original-timestamp", binary.BigEndian.AppendUint64(nil, uint64(record.Timestamp.UnixMilli()))),
		header("kafka_dlt-original-timestamp-type", []byte("CreateTime")),
		header("kafka_dlt-original-consumer-group", []byte(LegacyGroup)),
	)
	dead := &kgo.Record{Topic: LegacyTopic, Key: record.Key, Value: record.Value, Headers: headers, Timestamp: time.Now()}
	if err := s.client.ProduceSync(ctx, dead).FirstErr(); err != nil {
		return fmt.Errorf("publish dead letter: %w", err)
	}
	return nil
}

func header(key string, value []byte) kgo.RecordHeader {
	return kgo.RecordHeader{Key: key, Value: value}
}
