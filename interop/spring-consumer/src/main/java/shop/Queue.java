package shop;

import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.RetryInterceptorBuilder;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.retry.RepublishMessageRecoverer;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.stereotype.Component;
import tools.jackson.databind.json.JsonMapper;

/** With --queue=NAME: RabbitMQ, two retries, then NAME.error with the exception in the headers. */
@Configuration
@ConditionalOnProperty("queue")
public class Queue {

  @Bean
  SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(
      ConnectionFactory connections, RabbitTemplate template, @Value("${queue}") String queue) {
    SimpleRabbitListenerContainerFactory factory = new SimpleRabbitListenerContainerFactory();
    factory.setConnectionFactory(connections);
    factory.setAdviceChain(RetryInterceptorBuilder.stateless().maxRetries(2)
        .recoverer(new RepublishMessageRecoverer(template, "", queue + ".error")).build());
    return factory;
  }

  @Component
  @ConditionalOnProperty("queue")
  public static class Listener {

    private final JsonMapper json = JsonMapper.builder().build();
    private final PointsHandler handler;
    private final String group;

    Listener(PointsHandler handler, @Value("${group}") String group) {
      this.handler = handler;
      this.group = group;
    }

    @RabbitListener(queues = "${queue}")
    void on(Message message) {
      handler.handle(group, json.readValue(message.getBody(), OrderPaid.class));
    }
  }
}
