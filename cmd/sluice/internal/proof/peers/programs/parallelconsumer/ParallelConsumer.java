import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.postgresql.PGConnection;

/**
 * Writes events to PostgreSQL with Confluent's parallel consumer: each batch by
 * COPY, in a transaction of its own. Batches of many records need the order
 * UNORDERED: in the others a batch has one record of a partition, or of a key.
 */
class ParallelConsumer {
  static final int BATCH = 1000;
  static final int CONCURRENCY = 4;

  public static void main(String[] args) throws Exception {
    var env = System.getenv();
    var consumer =
        new KafkaConsumer<byte[], byte[]>(
            Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, env.get("KAFKA_BROKERS"),
                ConsumerConfig.GROUP_ID_CONFIG, env.get("KAFKA_GROUP"),
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, CONCURRENCY * BATCH,
                ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6000,
                ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 2000,
                ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
                ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class));
    var processor =
        ParallelStreamProcessor.createEosStreamProcessor(
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .consumer(consumer)
                .ordering(ProcessingOrder.UNORDERED)
                .maxConcurrency(CONCURRENCY)
                .batchSize(BATCH)
                .build());
    processor.subscribe(List.of(env.get("KAFKA_TOPIC")));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> processor.closeDontDrainFirst(Duration.ofSeconds(10))));

    var connection = ThreadLocal.withInitial(() -> connect(env));
    processor.poll(
        batch -> {
          try {
            copy(connection.get(), batch.getConsumerRecordsFlattened());
          } catch (Exception e) {
            throw new RuntimeException(e);
          }
        });
  }

  static Connection connect(Map<String, String> env) {
    try {
      var login = new Properties();
      login.setProperty("user", env.get("DATABASE_USER"));
      login.setProperty("password", env.get("DATABASE_PASSWORD"));
      return DriverManager.getConnection(env.get("DATABASE_JDBC"), login);
    } catch (Exception e) {
      throw new RuntimeException(e);
    }
  }

  /** One statement, which commits by itself. */
  static void copy(Connection connection, List<ConsumerRecord<byte[], byte[]>> records) throws Exception {
    var text = new ByteArrayOutputStream(records.size() * 1100);
    for (var r : records) {
      text.writeBytes((r.partition() + "\t" + r.offset() + "\t").getBytes(StandardCharsets.US_ASCII));
      escape(text, r.value());
      text.write('\n');
    }
    connection
        .unwrap(PGConnection.class)
        .getCopyAPI()
        .copyIn("COPY events (hub_partition, sequence_number, body) FROM STDIN", new ByteArrayInputStream(text.toByteArray()));
  }

  /** Writes a value as COPY's text format has it. */
  static void escape(ByteArrayOutputStream to, byte[] value) {
    int from = 0;
    for (int i = 0; i < value.length; i++) {
      char as =
          switch (value[i]) {
            case '\\' -> '\\';
            case '\n' -> 'n';
            case '\r' -> 'r';
            case '\t' -> 't';
            default -> 0;
          };
      if (as != 0) {
        to.write(value, from, i - from);
        to.write('\\');
        to.write(as);
        from = i + 1;
      }
    }
    to.write(value, from, value.length - from);
  }
}
