import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.messaging.eventhubs.EventData;
import com.azure.messaging.eventhubs.EventDataBatch;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClient;
import com.azure.messaging.eventhubs.EventHubBufferedProducerClientBuilder;
import com.azure.messaging.eventhubs.EventHubClientBuilder;
import com.azure.messaging.eventhubs.EventHubConsumerAsyncClient;
import com.azure.messaging.eventhubs.EventHubConsumerClient;
import com.azure.messaging.eventhubs.EventHubProducerClient;
import com.azure.messaging.eventhubs.EventHubProperties;
import com.azure.messaging.eventhubs.EventProcessorClient;
import com.azure.messaging.eventhubs.EventProcessorClientBuilder;
import com.azure.messaging.eventhubs.LoadBalancingStrategy;
import com.azure.messaging.eventhubs.PartitionProperties;
import com.azure.messaging.eventhubs.checkpointstore.blob.BlobCheckpointStore;
import com.azure.messaging.eventhubs.models.CreateBatchOptions;
import com.azure.messaging.eventhubs.models.EventPosition;
import com.azure.messaging.eventhubs.models.PartitionEvent;
import com.azure.messaging.eventhubs.models.ReceiveOptions;
import com.azure.messaging.eventhubs.models.SendOptions;
import com.azure.storage.blob.BlobContainerAsyncClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.Disposable;

/**
 * Checks what an event hub promises with Azure's own client for Java, unmodified. Prints a line for
 * each check, and exits with 1 if one failed.
 *
 * Environment: HUBS (names of event hubs with 4 partitions, empty, and the consumer group audit), ALL,
 * LISTEN and SEND (connection strings with these rights), TLS (one for the TLS port, which Java
 * trusts), CONTROL (address of the control endpoint), STORAGE (connection string of Azurite).
 */
public final class EventHubs {
    static final String ALL = System.getenv("ALL"), LISTEN = System.getenv("LISTEN"), SEND = System.getenv("SEND"), TLS = System.getenv("TLS");
    static final String GROUP = EventHubClientBuilder.DEFAULT_CONSUMER_GROUP_NAME;
    static final String[] HUBS = System.getenv("HUBS").split(" ");
    static final AmqpRetryOptions ONCE = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(30));
    static final AmqpRetryOptions PATIENT = new AmqpRetryOptions().setMaxRetries(20).setDelay(Duration.ofMillis(50)).setTryTimeout(Duration.ofSeconds(3));
    static int used;

    public static void main(String[] args) {
        Check.check("properties of hub and partitions", EventHubs::properties);
        Check.check("events come as they were sent", EventHubs::asSent);
        Check.check("sending to the hub, by key, to a partition", EventHubs::routing);
        Check.check("batches are filled up to the limit", EventHubs::batches);
        Check.check("what is too large is refused", EventHubs::tooLarge);
        Check.check("a buffered producer", EventHubs::buffered);
        Check.check("every kind of start position", EventHubs::positions);
        Check.check("owner levels", EventHubs::ownerLevels);
        Check.check("the partition's last event, with each event", EventHubs::lastEnqueued);
        Check.check("rights of keys", EventHubs::rights);
        Check.check("what isn't there", EventHubs::absent);
        Check.check("dropped connections, detached links and throttling", EventHubs::faults);
        Check.check("over TLS", () -> over(AmqpTransportType.AMQP));
        Check.check("over WebSockets", () -> over(AmqpTransportType.AMQP_WEB_SOCKETS));
        Check.check("two processors share the partitions", EventHubs::processors);
        Check.check("a processor goes on at its checkpoints", EventHubs::checkpoints);
        Check.finish();
    }

    static synchronized String hub() {
        return HUBS[used++];
    }

    static EventHubClientBuilder builder(String connection, String hub, AmqpRetryOptions retries) {
        return new EventHubClientBuilder().connectionString(connection, hub).consumerGroup(GROUP).retryOptions(retries);
    }

    static EventHubProducerClient producer(String hub) {
        return Check.opened(builder(ALL, hub, ONCE).buildProducerClient());
    }

    static EventHubConsumerClient consumer(String hub) {
        return Check.opened(builder(ALL, hub, ONCE).buildConsumerClient());
    }

    static List<EventData> events(String... bodies) {
        return Arrays.stream(bodies).map(EventData::new).collect(Collectors.toList());
    }

    static SendOptions to(String partition) {
        return new SendOptions().setPartitionId(partition);
    }

    static List<PartitionEvent> take(EventHubConsumerClient c, String partition, int n, EventPosition from) {
        return c.receiveFromPartition(partition, n, from, Duration.ofSeconds(20)).stream().collect(Collectors.toList());
    }

    static List<String> bodies(List<PartitionEvent> events) {
        return events.stream().map(e -> e.getData().getBodyAsString()).collect(Collectors.toList());
    }

    static void properties() {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        EventHubProperties h = p.getEventHubProperties();
        Check.equal(h.getName(), hub);
        Check.equal(h.getPartitionIds().stream().collect(Collectors.toList()), List.of("0", "1", "2", "3"));
        Check.holds(Duration.between(h.getCreatedAt(), Instant.now()).toMinutes() < 10, h.getCreatedAt());
        PartitionProperties empty = p.getPartitionProperties("1");
        Check.equal(List.of(empty.isEmpty(), empty.getLastEnqueuedSequenceNumber(), empty.getLastEnqueuedOffset()), List.of(true, -1L, "-1"));
        p.send(events("a", "b"), to("1"));
        PartitionProperties full = p.getPartitionProperties("1");
        Check.equal(List.of(full.isEmpty(), full.getBeginningSequenceNumber(), full.getLastEnqueuedSequenceNumber(), full.getId(), full.getEventHubName()), List.of(false, 0L, 1L, "1", hub));
        PartitionEvent last = take(consumer(hub), "1", 2, EventPosition.earliest()).get(1);
        Check.equal(full.getLastEnqueuedOffset(), last.getData().getOffsetString());
        Check.equal(full.getLastEnqueuedTime(), last.getData().getEnqueuedTime());
    }

    static void asSent() {
        String hub = hub();
        EventData sent = new EventData("ü\n\uD83D\uDE00").setContentType("text/plain").setCorrelationId("correlation").setMessageId("id");
        Date now = new Date();
        UUID uuid = UUID.randomUUID();
        Map<String, Object> properties = Map.of("text", "ü", "int", 1, "long", 1L << 40, "double", 1.5, "bool", true, "byte", (byte) 1, "short", (short) 2, "float", 0.5f,
            "char", 'x', "uuid", uuid);
        sent.getProperties().putAll(properties);
        sent.getProperties().put("date", now);
        producer(hub).send(List.of(sent, new EventData(new byte[0]), new EventData(new byte[] {0, -1})), to("2"));
        List<PartitionEvent> got = take(consumer(hub), "2", 3, EventPosition.earliest());
        EventData first = got.get(0).getData();
        Check.equal(first.getBodyAsString(), sent.getBodyAsString());
        Check.equal(List.of(first.getContentType(), first.getCorrelationId(), first.getMessageId()), List.of("text/plain", "correlation", "id"));
        for (Map.Entry<String, Object> p : sent.getProperties().entrySet()) {
            Check.equal(first.getProperties().get(p.getKey()), p.getValue());
        }
        Check.equal(first.getProperties().size(), sent.getProperties().size());
        Check.equal(first.getPartitionKey(), null);
        Check.equal(got.stream().map(e -> e.getData().getSequenceNumber()).collect(Collectors.toList()), List.of(0L, 1L, 2L));
        Check.equal(got.get(1).getData().getBody().length, 0);
        Check.holds(Arrays.equals(got.get(2).getData().getBody(), new byte[] {0, -1}), "bytes");
    }

    static void routing() {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        for (String key : List.of("a", "ü", "key 3", "x".repeat(128))) {
            for (int i = 0; i < 3; i++) {
                p.send(events(key), new SendOptions().setPartitionKey(key));
            }
        }
        for (int i = 0; i < 12; i++) {
            p.send(events("any"));
        }
        Set<String> places = new TreeSet<>();
        EventHubConsumerClient c = consumer(hub);
        for (String id : p.getPartitionIds()) {
            PartitionProperties at = p.getPartitionProperties(id);
            for (PartitionEvent e : at.isEmpty() ? List.<PartitionEvent>of() : take(c, id, (int) at.getLastEnqueuedSequenceNumber() + 1, EventPosition.earliest())) {
                Check.equal(e.getData().getPartitionKey(), e.getData().getBodyAsString().equals("any") ? null : e.getData().getBodyAsString());
                places.add(e.getData().getBodyAsString() + "@" + id);
            }
        }
        Check.equal(places.stream().filter(at -> at.startsWith("any@")).count(), 4L); // in turn
        Check.equal(places.stream().filter(at -> !at.startsWith("any@")).count(), 4L); // one partition for each key
    }

    static void batches() {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        EventDataBatch batch = p.createBatch(new CreateBatchOptions().setPartitionId("0"));
        Check.equal(batch.getMaxSizeInBytes(), 1 << 20);
        int n = 0;
        while (batch.tryAdd(new EventData("x".repeat(10_000)))) {
            n++;
        }
        Check.holds(n > 100 && batch.getCount() == n, n);
        p.send(batch);
        Check.equal(take(consumer(hub), "0", n, EventPosition.earliest()).size(), n);
        EventDataBatch keyed = p.createBatch(new CreateBatchOptions().setPartitionKey("k").setMaximumSizeInBytes(1000));
        while (keyed.tryAdd(new EventData("x".repeat(100)))) { // until it is full
        }
        Check.holds(keyed.getCount() > 2 && keyed.getSizeInBytes() <= 1000, keyed.getCount());
        p.send(keyed);
    }

    static void tooLarge() {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        AmqpException e = Check.refused(AmqpException.class, "", () -> p.send(List.of(new EventData(new byte[(1 << 20) + 1]))));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED);
        p.send(events("small"), to("0"));
        Check.equal(bodies(take(consumer(hub), "0", 1, EventPosition.earliest())), List.of("small"));
    }

    static void buffered() throws Exception {
        String hub = hub();
        List<Throwable> failed = new CopyOnWriteArrayList<>();
        Map<String, Integer> sent = new ConcurrentHashMap<>();
        EventHubBufferedProducerClient p = Check.opened(new EventHubBufferedProducerClientBuilder().connectionString(ALL, hub).maxWaitTime(Duration.ofMillis(200))
            .onSendBatchFailed(f -> failed.add(f.getThrowable()))
            .onSendBatchSucceeded(s -> s.getEvents().forEach(e -> sent.merge(s.getPartitionId(), 1, Integer::sum))).buildClient());
        for (int i = 0; i < 200; i++) {
            p.enqueueEvent(new EventData("event " + i), i % 2 == 0 ? new SendOptions().setPartitionKey("key " + i) : new SendOptions());
        }
        p.flush();
        Check.until(() -> sent.values().stream().mapToInt(n -> n).sum() >= 200 || !failed.isEmpty());
        Check.equal(failed, List.of());
        EventHubConsumerClient c = consumer(hub);
        int there = 0;
        for (String id : c.getPartitionIds()) {
            there += (int) c.getPartitionProperties(id).getLastEnqueuedSequenceNumber() + 1;
        }
        Check.equal(there, 200);
    }

    static void positions() throws Exception {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        for (String body : List.of("a", "b", "c", "d")) {
            p.send(events(body), to("3"));
            Thread.sleep(20); // so that their times differ
        }
        EventHubConsumerClient c = consumer(hub);
        List<PartitionEvent> all = take(c, "3", 4, EventPosition.earliest());
        EventData second = all.get(1).getData();
        Check.equal(bodies(all), List.of("a", "b", "c", "d"));
        Check.equal(bodies(take(c, "3", 2, EventPosition.fromSequenceNumber(1))), List.of("c", "d"));
        Check.equal(bodies(take(c, "3", 3, EventPosition.fromSequenceNumber(1, true))), List.of("b", "c", "d"));
        Check.equal(bodies(take(c, "3", 2, EventPosition.fromOffsetString(second.getOffsetString()))), List.of("c", "d"));
        Check.equal(bodies(take(c, "3", 2, EventPosition.fromEnqueuedTime(second.getEnqueuedTime()))), List.of("c", "d"));
        Check.equal(bodies(take(c, "3", 4, EventPosition.fromEnqueuedTime(Instant.now().minusSeconds(3600)))), List.of("a", "b", "c", "d"));
        Reading latest = new Reading(hub, "3", EventPosition.latest(), null);
        Check.until(() -> { // the client doesn't say when it listens
            p.send(events("e"), to("3"));
            return !latest.got.isEmpty();
        });
        Check.equal(Set.copyOf(bodies(latest.got)), Set.of("e"));
        AmqpException e = Check.refused(AmqpException.class, "is invalid", () -> Check.opened(builder(ALL, hub, ONCE).buildAsyncConsumerClient())
            .receiveFromPartition("3", EventPosition.fromSequenceNumber(1000)).blockFirst(Duration.ofSeconds(20)));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.ARGUMENT_ERROR);
    }

    /** Reading receives the events of a partition until the check ends. */
    static final class Reading {
        final List<PartitionEvent> got = new CopyOnWriteArrayList<>();
        final AtomicReference<Throwable> ended = new AtomicReference<>();
        final EventHubConsumerAsyncClient client;
        final String partition;

        Reading(String hub, String partition, EventPosition from, Long level) {
            client = Check.opened(builder(ALL, hub, ONCE).buildAsyncConsumerClient());
            this.partition = partition;
            Disposable running = client.receiveFromPartition(partition, from, new ReceiveOptions().setOwnerLevel(level)).subscribe(got::add, ended::set);
            Check.opened(running::dispose);
        }
    }

    static void ownerLevels() throws Exception {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        p.send(events("a"), to("0"));
        Reading plain = new Reading(hub, "0", EventPosition.earliest(), null);
        Check.until(() -> !plain.got.isEmpty());
        Reading low = new Reading(hub, "0", EventPosition.earliest(), 1L);
        Check.until(() -> !low.got.isEmpty() && plain.ended.get() != null);
        Reading high = new Reading(hub, "0", EventPosition.earliest(), 2L);
        Check.until(() -> !high.got.isEmpty() && low.ended.get() != null);
        Reading late = new Reading(hub, "0", EventPosition.earliest(), 1L);
        Check.until(() -> late.ended.get() != null);
        for (Reading r : List.of(plain, low, late)) {
            Check.holds(r.ended.get() instanceof AmqpException && ((AmqpException) r.ended.get()).getErrorCondition() == AmqpErrorCondition.LINK_STOLEN, r.ended.get());
        }
        p.send(events("b"), to("0"));
        Check.until(() -> high.got.size() == 2);
        Check.equal(high.ended.get(), null);
    }

    static void lastEnqueued() {
        String hub = hub();
        producer(hub).send(events("a", "b", "c"), to("0"));
        PartitionEvent first = consumer(hub).receiveFromPartition("0", 1, EventPosition.earliest(), Duration.ofSeconds(20), new ReceiveOptions().setTrackLastEnqueuedEventProperties(true))
            .stream().findFirst().get();
        Check.equal(first.getLastEnqueuedEventProperties().getSequenceNumber(), 2L);
        Check.holds(first.getLastEnqueuedEventProperties().getRetrievalTime() != null && first.getLastEnqueuedEventProperties().getEnqueuedTime() != null, first.getLastEnqueuedEventProperties());
    }

    static void rights() {
        String hub = hub();
        Check.opened(builder(SEND, hub, ONCE).buildProducerClient()).send(events("a"), to("0"));
        Check.equal(bodies(take(Check.opened(builder(LISTEN, hub, ONCE).buildConsumerClient()), "0", 1, EventPosition.earliest())), List.of("a"));
        Check.refused(AmqpException.class, "'Send' claim(s) are required", () -> Check.opened(builder(LISTEN, hub, ONCE).buildProducerClient()).send(events("b")));
        Check.refused(AmqpException.class, "'Listen' claim(s) are required", () -> Check.opened(builder(SEND, hub, ONCE).buildAsyncConsumerClient())
            .receiveFromPartition("0", EventPosition.earliest()).blockFirst(Duration.ofSeconds(20)));
        String wrong = ALL.replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=");
        AmqpException e = Check.refused(AmqpException.class, "", () -> Check.opened(builder(wrong, hub, ONCE).buildProducerClient()).send(events("c")));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.UNAUTHORIZED_ACCESS);
    }

    static void absent() {
        AmqpException e = Check.refused(AmqpException.class, "could not be found", () -> producer("nowhere").send(events("a")));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.NOT_FOUND);
        String hub = hub();
        Check.refused(AmqpException.class, "could not be found", () -> Check.opened(new EventHubClientBuilder().connectionString(ALL, hub).consumerGroup("none").retryOptions(ONCE)
            .buildAsyncConsumerClient()).receiveFromPartition("0", EventPosition.earliest()).blockFirst(Duration.ofSeconds(20)));
        e = Check.refused(AmqpException.class, "The specified partition is invalid", () -> producer(hub).send(events("a"), to("4")));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.ARGUMENT_OUT_OF_RANGE_ERROR);
        Check.refused(AmqpException.class, "could not be found", () -> producer(hub).getPartitionProperties("4"));
    }

    /** A consumer of the client ends when its link does; a processor opens another. */
    static void faults() throws Exception {
        String hub = hub();
        EventHubProducerClient p = Check.opened(builder(ALL, hub, PATIENT).buildProducerClient());
        Processor reading = new Processor(hub, container());
        p.send(events("a"), to("0"));
        Check.until(() -> reading.got.contains("a"));
        Check.control("/connections/drop", "{}");
        p.send(events("b"), to("0"));
        Check.until(() -> reading.got.contains("b"));
        Check.control("/links/detach", "{\"hub\": \"" + hub + "\"}");
        p.send(events("c"), to("0"));
        Check.until(() -> reading.got.contains("c"));
        Check.control("/faults", "{\"kind\": \"server-busy\", \"on\": \"send\", \"hub\": \"" + hub + "\", \"times\": 1}");
        AmqpException e = Check.refused(AmqpException.class, "", () -> producer(hub).send(events("busy")));
        Check.equal(e.getErrorCondition(), AmqpErrorCondition.SERVER_BUSY_ERROR);
        p.send(events("d"), to("0"));
        Check.until(() -> reading.got.contains("d"));
        Check.equal(reading.got.stream().distinct().collect(Collectors.toList()), List.of("a", "b", "c", "d"));
    }

    static void over(AmqpTransportType transport) {
        String hub = hub();
        EventHubProducerClient p = Check.opened(builder(TLS, hub, ONCE).transportType(transport).buildProducerClient());
        p.send(events("x".repeat(300_000), "y"), to("0"));
        EventHubConsumerClient c = Check.opened(builder(TLS, hub, ONCE).transportType(transport).buildConsumerClient());
        Check.equal(take(c, "0", 2, EventPosition.earliest()).stream().map(e -> e.getData().getBody().length).collect(Collectors.toList()), List.of(300_000, 1));
        Check.equal(c.getPartitionProperties("0").getLastEnqueuedSequenceNumber(), 1L);
    }

    static BlobContainerAsyncClient container() {
        BlobContainerAsyncClient c = new BlobContainerClientBuilder().connectionString(System.getenv("STORAGE")).containerName("java" + UUID.randomUUID()).buildAsyncClient();
        c.create().block();
        return c;
    }

    /** Processor has a checkpoint after each event, and keeps in order what it got. */
    static final class Processor {
        final List<String> got = new CopyOnWriteArrayList<>();
        final Set<String> partitions = ConcurrentHashMap.newKeySet();
        final List<Throwable> errors = new CopyOnWriteArrayList<>();
        final EventProcessorClient client;

        Processor(String hub, BlobContainerAsyncClient container) {
            client = new EventProcessorClientBuilder().connectionString(ALL, hub).consumerGroup("audit").checkpointStore(new BlobCheckpointStore(container))
                .retryOptions(PATIENT).loadBalancingStrategy(LoadBalancingStrategy.GREEDY).loadBalancingUpdateInterval(Duration.ofSeconds(1))
                .partitionOwnershipExpirationInterval(Duration.ofSeconds(10))
                .initialPartitionEventPosition(partition -> EventPosition.earliest())
                .processPartitionInitialization(i -> partitions.add(i.getPartitionContext().getPartitionId()))
                .processPartitionClose(c -> partitions.remove(c.getPartitionContext().getPartitionId()))
                .processEvent(e -> {
                    e.updateCheckpoint();
                    got.add(e.getEventData().getBodyAsString());
                })
                .processError(e -> errors.add(e.getThrowable())).buildEventProcessorClient();
            client.start();
            Check.opened(() -> client.stop());
        }
    }

    static void processors() throws Exception {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        BlobContainerAsyncClient container = container();
        Processor first = new Processor(hub, container);
        Check.until(() -> first.partitions.size() == 4);
        Processor second = new Processor(hub, container);
        Check.until(() -> first.partitions.size() == 2 && second.partitions.size() == 2);
        Set<String> want = new TreeSet<>();
        for (int i = 0; i < 40; i++) {
            p.send(events("event " + i), to(String.valueOf(i % 4)));
            want.add("event " + i);
        }
        Check.until(() -> first.got.size() + second.got.size() >= 40);
        Set<String> got = new TreeSet<>(first.got);
        got.addAll(second.got);
        Check.equal(got, want);
        Check.equal(List.of(first.got.size(), second.got.size()), List.of(20, 20));
        second.client.stop();
        Check.until(() -> first.partitions.size() == 4);
        p.send(events("late"), to("0"));
        p.send(events("late"), to("1"));
        p.send(events("late"), to("2"));
        p.send(events("late"), to("3"));
        Check.until(() -> first.got.stream().filter("late"::equals).count() == 4);
    }

    static void checkpoints() throws Exception {
        String hub = hub();
        EventHubProducerClient p = producer(hub);
        BlobContainerAsyncClient container = container();
        p.send(events("a", "b"), to("0"));
        Processor first = new Processor(hub, container);
        Check.until(() -> first.got.size() == 2);
        first.client.stop();
        Processor second = new Processor(hub, container);
        Check.until(() -> { // the first may get some, since stop waits for ten seconds only
            p.send(events("c"), to("0"));
            return !second.got.isEmpty();
        });
        Check.equal(Set.copyOf(second.got), Set.of("c"));
    }
}
