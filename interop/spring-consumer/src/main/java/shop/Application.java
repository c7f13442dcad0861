package shop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.ExponentialBackOffWithMaxRetries;
import org.springframework.kafka.support.serializer.DelegatingByTypeSerializer;
import org.springframework.kafka.support.serializer.ErrorHandlingDeserializer;
import org.springframework.kafka.support.serializer.JacksonJsonDeserializer;
import org.springframework.kafka.support.serializer.JacksonJsonSerializer;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** An ordinary Spring Kafka consumer, set up as its reference manual does it. */
@SpringBootApplication
@EnableKafkaRetryTopic
public class Application {

  public static void main(String[] args) {
    SpringApplication.run(Application.class, args);
  }

  @Bean
  ConsumerFactory<Object, Object> consumerFactory(@Value("${bootstrap}") String bootstrap) {
    return new DefaultKafkaConsumerFactory<>(Map.of(
        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
        ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
        ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
        ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
        ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ErrorHandlingDeserializer.class,
        ErrorHandlingDeserializer.VALUE_DESERIALIZER_CLASS, JacksonJsonDeserializer.class,
        JacksonJsonDeserializer.VALUE_DEFAULT_TYPE, OrderPaid.class.getName(),
        JacksonJsonDeserializer.USE_TYPE_INFO_HEADERS, false));
  }

  /** What could not be read is dead-lettered as it came, what could be read is written anew. */
  @Bean
  ProducerFactory<Object, Object> producerFactory(@Value("${bootstrap}") String bootstrap) {
    Map<Class<?>, Serializer<?>> values = new LinkedHashMap<>();
    values.put(byte[].class, new ByteArraySerializer());
    values.put(OrderPaid.class, new JacksonJsonSerializer<>());
    @SuppressWarnings({"unchecked", "rawtypes"})
    ProducerFactory<Object, Object> factory = new DefaultKafkaProducerFactory(
        Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap), new StringSerializer(), new DelegatingByTypeSerializer(values));
    return factory;
  }

  @Bean
  KafkaTemplate<Object, Object> kafkaTemplate(ProducerFactory<Object, Object> factory) {
    return new KafkaTemplate<>(factory);
  }

  @Bean
  DefaultErrorHandler errorHandler(KafkaTemplate<Object, Object> template, @Value("${retry}") long retry) {
    DeadLetterPublishingRecoverer recoverer = new DeadLetterPublishingRecoverer(template,
        (record, error) -> new TopicPartition(record.topic() + ".DLT", record.partition()));
    ExponentialBackOffWithMaxRetries pauses = new ExponentialBackOffWithMaxRetries(3);
    pauses.setInitialInterval(retry);
    pauses.setMultiplier(2);
    DefaultErrorHandler handler = new DefaultErrorHandler(recoverer, pauses);
    handler.setCommitRecovered(true);
    return handler;
  }

  @Bean
  ConcurrentKafkaListenerContainerFactory<Object, Object> kafkaListenerContainerFactory(
      ConsumerFactory<Object, Object> consumers, DefaultErrorHandler errors, @Value("${ack}") AckMode ack) {
    ConcurrentKafkaListenerContainerFactory<Object, Object> factory = factory(consumers, ack);
    factory.setCommonErrorHandler(errors);
    return factory;
  }

  /** The containers of retry topics bring an error handler of their own. */
  @Bean
  ConcurrentKafkaListenerContainerFactory<Object, Object> retryFactory(ConsumerFactory<Object, Object> consumers) {
    return factory(consumers, AckMode.MANUAL_IMMEDIATE);
  }

  private static ConcurrentKafkaListenerContainerFactory<Object, Object> factory(ConsumerFactory<Object, Object> consumers, AckMode ack) {
    ConcurrentKafkaListenerContainerFactory<Object, Object> factory = new ConcurrentKafkaListenerContainerFactory<>();
    factory.setConsumerFactory(consumers);
    factory.getContainerProperties().setAckMode(ack);
    return factory;
  }

  @Bean
  TaskScheduler taskScheduler() {
    return new ThreadPoolTaskScheduler();
  }
}
