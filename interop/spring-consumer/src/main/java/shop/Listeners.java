package shop;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.retrytopic.TopicSuffixingStrategy;
import org.springframework.kafka.support.Acknowledgment;
import org.springframework.stereotype.Component;

/** The acknowledgment comes after the commit, so an event may come twice, and its effect happens once. */
public class Listeners {

  /** Blocking retries, then topic.DLT. */
  @Component
  public static class Paid {

    private final PointsHandler handler;
    private final String group;

    Paid(PointsHandler handler, @Value("${group}") String group) {
      this.handler = handler;
      this.group = group;
    }

    @KafkaListener(id = "paid", autoStartup = "${kafka}", topics = "${topic}", groupId = "${group}", concurrency = "${concurrency}")
    void on(ConsumerRecord<String, OrderPaid> record, Acknowledgment ack) {
      handler.handle(group, record.value());
      ack.acknowledge();
    }
  }

  /** With --promo=TOPIC: non-blocking retries by TOPIC-retry-0 to -2, then TOPIC-dlt. */
  @Component
  @ConditionalOnProperty("promo")
  public static class Promo {

    private final PointsHandler handler;
    private final String group;

    Promo(PointsHandler handler, @Value("${group}-promo") String group) {
      this.handler = handler;
      this.group = group;
    }

    @RetryableTopic(attempts = "4", backOff = @BackOff(delayString = "${retry}", multiplier = 2),
        topicSuffixingStrategy = TopicSuffixingStrategy.SUFFIX_WITH_INDEX_VALUE, autoStartDltHandler = "false",
        kafkaTemplate = "kafkaTemplate", listenerContainerFactory = "retryFactory")
    @KafkaListener(id = "promo", topics = "${promo}", groupId = "${group}-promo", containerFactory = "retryFactory")
    void on(ConsumerRecord<String, OrderPaid> record, Acknowledgment ack) {
      handler.handle(group, record.value());
      ack.acknowledge();
    }
  }
}
