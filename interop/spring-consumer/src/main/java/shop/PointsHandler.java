package shop;

import java.util.concurrent.atomic.AtomicLong;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/** The business: consume record and points in one transaction. */
@Component
public class PointsHandler {

  private static final String RECORD =
      "insert into mq_consume_record (event_id, consumer_group, consumed_at) values (?, ?, now()) on conflict do nothing";
  private static final String POINTS =
      "insert into user_points (user_id, points) values (?, ?) "
          + "on conflict (user_id) do update set points = user_points.points + excluded.points";

  private final JdbcTemplate jdbc;
  private final TransactionTemplate transaction;
  private final long expect;
  private final AtomicLong count = new AtomicLong();
  private volatile long began;

  PointsHandler(JdbcTemplate jdbc, PlatformTransactionManager manager, @Value("${expect}") long expect) {
    this.jdbc = jdbc;
    this.transaction = new TransactionTemplate(manager);
    this.expect = expect;
  }

  void handle(String group, OrderPaid order) {
    if (began == 0) began = System.nanoTime();
    transaction.executeWithoutResult(status -> {
      if (jdbc.update(RECORD, order.eventId(), group) == 1) {
        jdbc.update(POINTS, order.userId(), order.points());
      }
    });
    if (count.incrementAndGet() == expect) report();
  }

  private void report() {
    double seconds = (System.nanoTime() - began) / 1e9;
    System.out.printf("DONE %d records in %.3f s%n", expect, seconds);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
