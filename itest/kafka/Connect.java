import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter;
import org.apache.kafka.connect.storage.*;
import org.apache.kafka.connect.util.TopicAdmin;

/** What Kafka Connect's own classes make of our topics; started from its source by a test. */
public class Connect {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "dlq" -> deadLetters(args[1], args[2]);
            case "offset" -> offset(args[1], args[2], args[3], pairs(args[4]), args.length > 5 ? pairs(args[5]) : null);
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static Map<String, String> pairs(String text) {
        Map<String, String> m = new LinkedHashMap<>();
        for (String pair : text.split(";")) {
            String[] kv = pair.split("=", 2);
            m.put(kv[0], kv[1]);
        }
        return m;
    }

    static JsonConverter converter(boolean key) {
        JsonConverter c = new JsonConverter();
        c.configure(Map.of("schemas.enable", "false"), key);
        return c;
    }

    /** Reads the offset of a partition through Connect's store, or writes it. */
    static void offset(String bootstrap, String topic, String connector, Map<String, String> partition, Map<String, String> write) throws Exception {
        Map<String, String> p = new HashMap<>();
        p.put("bootstrap.servers", bootstrap);
        p.put("group.id", "connect-cluster");
        p.put("config.storage.topic", "connect-configs");
        p.put("status.storage.topic", "connect-status");
        p.put("offset.storage.topic", topic);
        p.put("offset.storage.replication.factor", "1");
        p.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
        p.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        DistributedConfig config = new DistributedConfig(p);
        TopicAdmin admin = new TopicAdmin(Map.of("bootstrap.servers", bootstrap));
        KafkaOffsetBackingStore store = new KafkaOffsetBackingStore(() -> admin, () -> "test", converter(true));
        store.configure(config);
        store.start();
        if (write != null) {
            OffsetStorageWriter w = new OffsetStorageWriter(store, connector, converter(true), converter(false));
            w.offset(partition, write);
            w.beginFlush();
            w.doFlush((e, r) -> { if (e != null) e.printStackTrace(); }).get();
        }
        OffsetStorageReaderImpl r = new OffsetStorageReaderImpl(store, connector, converter(true), converter(false));
        Map<String, Object> found = r.offset(partition);
        if (found != null) new TreeMap<>(found).forEach((k, v) -> System.out.println(k + "=" + v));
        System.out.println("partitions=" + store.connectorPartitions(connector).size());
        store.stop();
        admin.close();
    }

    /** Prints the headers of the first dead letter under the names of Connect's constants. */
    static void deadLetters(String bootstrap, String topic) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        p.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(p)) {
            TopicPartition tp = new TopicPartition(topic, 0);
            c.assign(List.of(tp));
            c.seekToBeginning(List.of(tp));
            for (int i = 0; i < 50; i++) {
                for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(200))) {
                    System.out.println("key=" + r.key());
                    System.out.println("value=" + r.value());
                    for (String name : List.of(
                            DeadLetterQueueReporter.ERROR_HEADER_ORIG_TOPIC, DeadLetterQueueReporter.ERROR_HEADER_ORIG_PARTITION,
                            DeadLetterQueueReporter.ERROR_HEADER_ORIG_OFFSET, DeadLetterQueueReporter.ERROR_HEADER_CONNECTOR_NAME,
                            DeadLetterQueueReporter.ERROR_HEADER_TASK_ID, DeadLetterQueueReporter.ERROR_HEADER_STAGE,
                            DeadLetterQueueReporter.ERROR_HEADER_EXECUTING_CLASS, DeadLetterQueueReporter.ERROR_HEADER_EXCEPTION,
                            DeadLetterQueueReporter.ERROR_HEADER_EXCEPTION_MESSAGE,
                            DeadLetterQueueReporter.ERROR_HEADER_EXCEPTION_STACK_TRACE)) {
                        Header h = r.headers().lastHeader(name);
                        System.out.println(name + "=" + (h == null ? "MISSING" : new String(h.value(), StandardCharsets.UTF_8)));
                    }
                    org.apache.kafka.connect.runtime.errors.Stage.valueOf(
                        new String(r.headers().lastHeader(DeadLetterQueueReporter.ERROR_HEADER_STAGE).value(), StandardCharsets.UTF_8));
                    return;
                }
            }
            throw new IllegalStateException("no dead letter came");
        }
    }
}
