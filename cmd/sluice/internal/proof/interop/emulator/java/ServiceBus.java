import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpPipelinePosition;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.MalformedURLException;
import java.net.URI;
import java.net.URL;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Mono;

/**
 * Checks what queues, topics and subscriptions promise with Azure's own client for Java, unmodified.
 * Prints a line for each check, and exits with 1 if one failed.
 *
 * Environment: ALL, LISTEN and SEND (connection strings with these rights), ADMIN and READER
 * (connection strings of the administration API, with all rights and with the right to listen), TLS
 * (one for the TLS port; Java trusts it and the API), CONTROL (address of the control endpoint).
 */
public final class ServiceBus {
    static final String ALL = System.getenv("ALL"), LISTEN = System.getenv("LISTEN"), SEND = System.getenv("SEND"), TLS = System.getenv("TLS");
    static final AmqpRetryOptions ONCE = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(30));
    static final AmqpRetryOptions PATIENT = new AmqpRetryOptions().setMaxRetries(20).setDelay(Duration.ofMillis(50)).setTryTimeout(Duration.ofSeconds(5));
    static final Duration SOON = Duration.ofSeconds(20);
    static ServiceBusAdministrationClient admin;
    static int queues;

    public static void main(String[] args) {
        admin = admin(System.getenv("ADMIN"));
        Check.check("a message comes as it was sent", ServiceBus::asSent);
        Check.check("a batch, full to the limit of 256 KiB", ServiceBus::batches);
        Check.check("what is too large is refused", ServiceBus::tooLarge);
        Check.check("peek", ServiceBus::peek);
        Check.check("complete, abandon, dead-letter", ServiceBus::settle);
        Check.check("defer", ServiceBus::defer);
        Check.check("receive and delete", ServiceBus::receiveAndDelete);
        Check.check("locks are renewed, and expire", ServiceBus::locks);
        Check.check("messages that are too old", ServiceBus::expiry);
        Check.check("scheduled messages", ServiceBus::scheduled);
        Check.check("sessions", ServiceBus::sessions);
        Check.check("a processor", ServiceBus::processor);
        Check.check("a processor of sessions", ServiceBus::sessionProcessor);
        Check.check("topics and subscriptions", ServiceBus::topics);
        Check.check("rights of keys", ServiceBus::rights);
        Check.check("lost connections, detached links and throttling", ServiceBus::faults);
        Check.check("over TLS", () -> over(AmqpTransportType.AMQP));
        Check.check("over WebSockets", () -> over(AmqpTransportType.AMQP_WEB_SOCKETS));
        Check.check("administration: queues", ServiceBus::adminQueues);
        Check.check("administration: topics, subscriptions, rules", ServiceBus::adminTopics);
        Check.check("administration: lists", ServiceBus::adminLists);
        Check.check("administration: the namespace, and keys", ServiceBus::adminNamespace);
        Check.check("transactions are refused", ServiceBus::transactions);
        Check.finish();
    }

    /** Makes a client of the administration API. The builder leaves out the port, so a policy sets it. */
    static ServiceBusAdministrationClient admin(String connection) {
        int port = URI.create(connection.substring(connection.indexOf("sb://"), connection.indexOf(';'))).getPort();
        return new ServiceBusAdministrationClientBuilder().connectionString(connection).addPolicy(new HttpPipelinePolicy() {
            @Override
            public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
                URL url = context.getHttpRequest().getUrl();
                try {
                    context.getHttpRequest().setUrl(new URL(url.getProtocol(), url.getHost(), port, url.getFile()));
                } catch (MalformedURLException e) {
                    return Mono.error(e);
                }
                return next.process();
            }

            @Override
            public HttpPipelinePosition getPipelinePosition() {
                return HttpPipelinePosition.PER_CALL;
            }
        }).buildClient();
    }

    static ServiceBusClientBuilder builder(String connection, AmqpRetryOptions retries) {
        return new ServiceBusClientBuilder().connectionString(connection).retryOptions(retries);
    }

    static ServiceBusSenderClient sender(String queue) {
        return Check.opened(builder(ALL, ONCE).sender().queueName(queue).buildClient());
    }

    static ServiceBusReceiverClient receiver(String queue) {
        return receiver(ALL, queue, SubQueue.NONE);
    }

    static ServiceBusReceiverClient receiver(String connection, String queue, SubQueue sub) {
        return Check.opened(builder(connection, ONCE).receiver().queueName(queue).subQueue(sub).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    static String queue() {
        return queue(new CreateQueueOptions());
    }

    /** Creates a queue of the check's own. */
    static String queue(CreateQueueOptions options) {
        return admin.createQueue("java/queue" + queues++, options).getName();
    }

    static List<ServiceBusMessage> texts(String... bodies) {
        return Arrays.stream(bodies).map(ServiceBusMessage::new).collect(Collectors.toList());
    }

    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient r, int n) {
        List<ServiceBusReceivedMessage> all = new ArrayList<>();
        while (all.size() < n) {
            int before = all.size();
            r.receiveMessages(n - before, SOON).forEach(all::add);
            Check.holds(all.size() > before, before + " messages came, not " + n);
        }
        return all;
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> list = new ArrayList<>();
        messages.forEach(m -> list.add(m.getBody().toString()));
        return list;
    }

    /** Returns how many active, dead-lettered and scheduled messages a queue has. */
    static List<Integer> counts(String queue) {
        QueueRuntimeProperties p = admin.getQueueRuntimeProperties(queue);
        return List.of(p.getActiveMessageCount(), p.getDeadLetterMessageCount(), p.getScheduledMessageCount());
    }

    static void refused(ServiceBusFailureReason reason, String words, Check.Body body) {
        Check.equal(Check.refused(ServiceBusException.class, words, body).getReason(), reason);
    }

    static void asSent() {
        String name = queue();
        ServiceBusMessage sent = new ServiceBusMessage("ü\n\uD83D\uDE00").setMessageId("id").setCorrelationId("correlation").setContentType("text/plain").setSubject("subject")
            .setSessionId("session").setPartitionKey("session").setReplyTo("reply").setReplyToSessionId("reply session").setTo("to").setTimeToLive(Duration.ofHours(1));
        Map<String, Object> properties = Map.of("text", "ü", "int", 1, "long", 1L << 40, "double", 1.5, "bool", true);
        sent.getApplicationProperties().putAll(properties);
        sender(name).sendMessage(sent);
        ServiceBusReceivedMessage got = take(receiver(name), 1).get(0);
        Check.equal(got.getBody().toString(), "ü\n\uD83D\uDE00");
        Check.equal(List.of(got.getMessageId(), got.getCorrelationId(), got.getContentType(), got.getSubject(), got.getSessionId(), got.getPartitionKey(), got.getReplyTo(),
            got.getReplyToSessionId(), got.getTo(), got.getTimeToLive()),
            List.of("id", "correlation", "text/plain", "subject", "session", "session", "reply", "reply session", "to", Duration.ofHours(1)));
        Check.equal(got.getApplicationProperties(), properties);
        Check.equal(List.of(got.getSequenceNumber(), got.getDeliveryCount(), got.getState()), List.of(1L, 0L, ServiceBusMessageState.ACTIVE));
        Check.equal(got.getExpiresAt(), got.getEnqueuedTime().plusHours(1));
        Duration lock = Duration.between(OffsetDateTime.now(), got.getLockedUntil());
        Check.holds(lock.toSeconds() > 20 && lock.toSeconds() <= 60, lock);
    }

    static void batches() {
        String name = queue();
        ServiceBusSenderClient s = sender(name);
        ServiceBusMessageBatch batch = s.createMessageBatch();
        Check.equal(batch.getMaxSizeInBytes(), 256 << 10);
        int n = 0;
        while (batch.tryAddMessage(new ServiceBusMessage("x".repeat(5000)))) {
            n++;
        }
        Check.holds(n > 40, n);
        s.sendMessages(batch);
        Check.equal(take(receiver(name), n).size(), n);
    }

    static void tooLarge() {
        String name = queue();
        ServiceBusSenderClient s = sender(name);
        refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED, "", () -> s.sendMessage(new ServiceBusMessage(new byte[(256 << 10) + 1])));
        s.sendMessage(new ServiceBusMessage("small"));
        Check.equal(bodies(take(receiver(name), 1)), List.of("small"));
    }

    static void peek() {
        String name = queue();
        sender(name).sendMessages(texts("a", "b", "c"));
        ServiceBusReceiverClient r = receiver(name);
        Check.equal(r.peekMessage().getBody().toString(), "a");
        Check.equal(bodies(r.peekMessages(5)), List.of("b", "c"));
        Check.equal(r.peekMessage(), null);
        Check.equal(bodies(r.peekMessages(2, 2)), List.of("b", "c"));
        Check.equal(counts(name), List.of(3, 0, 0));
    }

    static void settle() {
        String name = queue();
        sender(name).sendMessages(texts("a", "b", "c"));
        ServiceBusReceiverClient r = receiver(name);
        List<ServiceBusReceivedMessage> got = take(r, 3);
        r.complete(got.get(0));
        r.abandon(got.get(1), new AbandonOptions().setPropertiesToModify(Map.of("tried", "once")));
        r.deadLetter(got.get(2), new DeadLetterOptions().setDeadLetterReason("bad").setDeadLetterErrorDescription("very bad").setPropertiesToModify(Map.of("seen", true)));
        ServiceBusReceivedMessage again = take(r, 1).get(0);
        Check.equal(List.of(again.getBody().toString(), again.getDeliveryCount(), again.getApplicationProperties().get("tried")), List.of("b", 1L, "once"));
        r.complete(again);
        ServiceBusReceiverClient dead = receiver(ALL, name, SubQueue.DEAD_LETTER_QUEUE);
        ServiceBusReceivedMessage letter = take(dead, 1).get(0);
        Check.equal(List.of(letter.getBody().toString(), letter.getDeadLetterReason(), letter.getDeadLetterErrorDescription(), letter.getApplicationProperties().get("seen")),
            List.of("c", "bad", "very bad", true));
        Check.equal(counts(name), List.of(0, 1, 0));
        dead.complete(letter);
        Check.equal(counts(name), List.of(0, 0, 0));
    }

    static void defer() {
        String name = queue();
        sender(name).sendMessages(texts("a", "b"));
        ServiceBusReceiverClient r = receiver(name);
        ServiceBusReceivedMessage a = take(r, 1).get(0);
        r.defer(a);
        Check.equal(bodies(take(r, 1)), List.of("b"));
        Check.equal(r.peekMessage().getState(), ServiceBusMessageState.DEFERRED);
        ServiceBusReceivedMessage deferred = r.receiveDeferredMessage(a.getSequenceNumber());
        Check.equal(deferred.getBody().toString(), "a");
        r.complete(deferred);
        Check.refused(ServiceBusException.class, "", () -> r.receiveDeferredMessage(a.getSequenceNumber()));
    }

    static void receiveAndDelete() {
        String name = queue();
        sender(name).sendMessages(texts("a", "b"));
        ServiceBusReceiverClient r = Check.opened(builder(ALL, ONCE).receiver().queueName(name).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        Check.equal(bodies(take(r, 2)), List.of("a", "b"));
        Check.equal(counts(name), List.of(0, 0, 0));
    }

    static void locks() throws Exception {
        String name = queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5)).setMaxDeliveryCount(2));
        sender(name).sendMessage(new ServiceBusMessage("a"));
        ServiceBusReceiverClient r = receiver(name);
        ServiceBusReceivedMessage first = take(r, 1).get(0);
        Thread.sleep(3000);
        Check.holds(r.renewMessageLock(first).isAfter(first.getLockedUntil().minusSeconds(1)), "renewed");
        Thread.sleep(3000);
        Check.equal(r.peekMessages(1).stream().count(), 1L);
        ServiceBusReceivedMessage second = take(r, 1).get(0); // when the renewed lock has expired
        Check.equal(second.getDeliveryCount(), 1L);
        refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, "", () -> r.renewMessageLock(first));
        ServiceBusReceivedMessage letter = take(receiver(ALL, name, SubQueue.DEAD_LETTER_QUEUE), 1).get(0);
        Check.equal(letter.getDeadLetterReason(), "MaxDeliveryCountExceeded");
    }

    static void expiry() throws Exception {
        String name = queue(new CreateQueueOptions().setDeadLetteringOnMessageExpiration(true));
        sender(name).sendMessage(new ServiceBusMessage("old").setTimeToLive(Duration.ofMillis(500)));
        ServiceBusReceivedMessage letter = take(receiver(ALL, name, SubQueue.DEAD_LETTER_QUEUE), 1).get(0);
        Check.equal(List.of(letter.getBody().toString(), letter.getDeadLetterReason()), List.of("old", "TTLExpiredException"));
    }

    static void scheduled() {
        String name = queue();
        ServiceBusSenderClient s = sender(name);
        Long later = s.scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1));
        s.sendMessage(new ServiceBusMessage("soon").setScheduledEnqueueTime(OffsetDateTime.now().plusSeconds(2)));
        List<Long> both = new ArrayList<>();
        s.scheduleMessages(texts("x", "y"), OffsetDateTime.now().plusHours(1)).forEach(both::add);
        Check.equal(both.size(), 2);
        Check.equal(counts(name), List.of(0, 0, 4));
        ServiceBusReceiverClient r = receiver(name);
        Check.equal(r.peekMessage(later).getState(), ServiceBusMessageState.SCHEDULED);
        s.cancelScheduledMessage(later);
        s.cancelScheduledMessages(both);
        s.cancelScheduledMessage(later); // the client takes "not found" as success
        Check.equal(bodies(take(r, 1)), List.of("soon"));
    }

    static ServiceBusMessage inSession(String session, String body) {
        return new ServiceBusMessage(body).setSessionId(session);
    }

    static void sessions() {
        String name = queue(new CreateQueueOptions().setSessionRequired(true));
        ServiceBusSenderClient s = sender(name);
        s.sendMessages(List.of(inSession("red", "r1"), inSession("red", "r2")));
        s.sendMessage(inSession("blue", "b1"));
        refused(ServiceBusFailureReason.GENERAL_ERROR, "SessionId", () -> s.sendMessage(new ServiceBusMessage("none")));
        ServiceBusSessionReceiverClient all = Check.opened(builder(ALL, ONCE).sessionReceiver().queueName(name).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        ServiceBusReceiverClient red = all.acceptSession("red");
        Check.equal(red.getSessionId(), "red");
        List<ServiceBusReceivedMessage> got = take(red, 2);
        Check.equal(bodies(got), List.of("r1", "r2"));
        ServiceBusSessionReceiverClient others = Check.opened(builder(ALL, ONCE).sessionReceiver().queueName(name).buildClient());
        AmqpException locked = Check.refused(AmqpException.class, "may be locked by another receiver", () -> others.acceptSession("red"));
        Check.equal(locked.getErrorCondition(), AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED);
        Check.equal(red.getSessionState(), null);
        red.setSessionState("half-way".getBytes());
        Check.holds(red.renewSessionLock().isAfter(OffsetDateTime.now()), "renewed");
        red.complete(got.get(0));
        red.close();
        ServiceBusReceiverClient again = all.acceptSession("red");
        Check.equal(new String(again.getSessionState()), "half-way");
        Check.equal(bodies(take(again, 1)), List.of("r2"));
        ServiceBusReceiverClient next = all.acceptNextSession();
        Check.equal(next.getSessionId(), "blue");
        Check.equal(bodies(next.peekMessages(5)), List.of("b1"));
        again.close();
        next.close();
        Check.refused(ServiceBusException.class, "requires sessions", () -> builder(ALL, ONCE).receiver().queueName(name).buildAsyncClient().receiveMessages().blockFirst(SOON));
    }

    static void processor() throws Exception {
        String name = queue();
        List<String> got = new CopyOnWriteArrayList<>();
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient p = Check.opened(builder(ALL, ONCE).processor().queueName(name).maxConcurrentCalls(5).prefetchCount(20)
            .processMessage(m -> got.add(m.getMessage().getBody().toString())).processError(e -> errors.add(e.getException())).buildProcessorClient());
        p.start();
        Set<String> want = IntStream.range(0, 200).mapToObj(i -> "message " + i).collect(Collectors.toCollection(TreeSet::new));
        sender(name).sendMessages(want.stream().map(ServiceBusMessage::new).collect(Collectors.toList()));
        Check.until(() -> counts(name).get(0) == 0 || !errors.isEmpty()); // the client completes them
        Check.equal(errors, List.of());
        Check.equal(got.size(), 200);
        Check.equal(new TreeSet<>(got), want);
    }

    static void sessionProcessor() throws Exception {
        String name = queue(new CreateQueueOptions().setSessionRequired(true));
        Map<String, List<String>> got = new ConcurrentHashMap<>();
        List<Throwable> errors = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient p = Check.opened(builder(ALL, ONCE).sessionProcessor().queueName(name).maxConcurrentSessions(2).sessionIdleTimeout(Duration.ofSeconds(1))
            .processMessage(m -> got.computeIfAbsent(m.getMessage().getSessionId(), s -> new CopyOnWriteArrayList<>()).add(m.getMessage().getBody().toString()))
            .processError(e -> errors.add(e.getException())).buildProcessorClient());
        ServiceBusSenderClient s = sender(name);
        List<String> want = List.of("0", "1", "2", "3", "4");
        for (String session : List.of("red", "green", "blue", "black")) {
            s.sendMessages(want.stream().map(body -> inSession(session, body)).collect(Collectors.toList()));
        }
        p.start();
        Check.until(() -> counts(name).get(0) == 0);
        Check.equal(got, Map.of("red", want, "green", want, "blue", want, "black", want));
        Check.equal(errors, List.of());
    }

    static void topics() {
        admin.createTopic("java-news");
        for (String sub : List.of("one", "two")) {
            admin.createSubscription("java-news", sub);
        }
        Check.opened(builder(ALL, ONCE).sender().topicName("java-news").buildClient()).sendMessages(texts("a", "b"));
        ServiceBusReceiverClient one = subscription("one", SubQueue.NONE);
        List<ServiceBusReceivedMessage> got = take(one, 2);
        one.complete(got.get(0));
        one.deadLetter(got.get(1));
        Check.equal(admin.getSubscriptionRuntimeProperties("java-news", "one").getDeadLetterMessageCount(), 1);
        Check.equal(bodies(take(subscription("one", SubQueue.DEAD_LETTER_QUEUE), 1)), List.of("b"));
        Check.equal(bodies(take(subscription("two", SubQueue.NONE), 2)), List.of("a", "b"));
    }

    static ServiceBusReceiverClient subscription(String name, SubQueue sub) {
        return Check.opened(builder(ALL, ONCE).receiver().topicName("java-news").subscriptionName(name).subQueue(sub).buildClient());
    }

    static void rights() {
        String name = queue();
        Check.opened(builder(SEND, ONCE).sender().queueName(name).buildClient()).sendMessage(new ServiceBusMessage("a"));
        Check.equal(bodies(take(receiver(LISTEN, name, SubQueue.NONE), 1)), List.of("a"));
        refused(ServiceBusFailureReason.UNAUTHORIZED, "'Send' claim(s) are required",
            () -> Check.opened(builder(LISTEN, ONCE).sender().queueName(name).buildClient()).sendMessage(new ServiceBusMessage("b")));
        refused(ServiceBusFailureReason.UNAUTHORIZED, "'Listen' claim(s) are required",
            () -> Check.opened(builder(SEND, ONCE).receiver().queueName(name).buildAsyncClient()).receiveMessages().blockFirst(SOON));
        String wrong = ALL.replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=");
        refused(ServiceBusFailureReason.UNAUTHORIZED, "", () -> Check.opened(builder(wrong, ONCE).sender().queueName(name).buildClient()).sendMessage(new ServiceBusMessage("c")));
        refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, "could not be found", () -> sender("nowhere").sendMessage(new ServiceBusMessage("d")));
    }

    static void faults() throws Exception {
        String name = queue();
        ServiceBusSenderClient s = Check.opened(builder(ALL, PATIENT).sender().queueName(name).buildClient());
        List<String> got = new CopyOnWriteArrayList<>();
        ServiceBusProcessorClient p = Check.opened(builder(ALL, PATIENT).processor().queueName(name).processMessage(m -> got.add(m.getMessage().getBody().toString()))
            .processError(e -> { }).buildProcessorClient());
        p.start();
        s.sendMessage(new ServiceBusMessage("a"));
        Check.until(() -> got.contains("a"));
        Check.control("/connections/drop", "{}");
        s.sendMessage(new ServiceBusMessage("b"));
        Check.until(() -> got.contains("b"));
        Check.control("/links/detach", "{\"hub\": \"" + name + "\"}");
        s.sendMessage(new ServiceBusMessage("c"));
        Check.until(() -> got.contains("c"));
        Check.control("/faults", "{\"kind\": \"server-busy\", \"on\": \"send\", \"hub\": \"" + name + "\", \"times\": 1}");
        AmqpException busy = Check.refused(AmqpException.class, "", () -> sender(name).sendMessage(new ServiceBusMessage("busy")));
        Check.equal(busy.getErrorCondition(), AmqpErrorCondition.SERVER_BUSY_ERROR);
        s.sendMessage(new ServiceBusMessage("d"));
        Check.until(() -> got.contains("d") && counts(name).get(0) == 0);
        Check.equal(got.stream().distinct().collect(Collectors.toList()), List.of("a", "b", "c", "d"));
    }

    static void over(AmqpTransportType transport) {
        String name = queue();
        Check.opened(builder(TLS, ONCE).transportType(transport).sender().queueName(name).buildClient()).sendMessages(texts("x".repeat(200_000), "y"));
        List<ServiceBusReceivedMessage> got = take(Check.opened(builder(TLS, ONCE).transportType(transport).receiver().queueName(name).buildClient()), 2);
        Check.equal(got.stream().map(m -> m.getBody().toBytes().length).collect(Collectors.toList()), List.of(200_000, 1));
    }

    static void adminQueues() {
        String name = queue(new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(4).setUserMetadata("mine").setMaxSizeInMegabytes(2048));
        QueueProperties q = admin.getQueue(name);
        Check.equal(List.of(q.getName(), q.getLockDuration(), q.getMaxDeliveryCount(), q.getUserMetadata(), q.getMaxSizeInMegabytes(), q.isSessionRequired(), q.getStatus(), q.isPartitioningEnabled()),
            List.of(name, Duration.ofSeconds(30), 4, "mine", 2048L, false, EntityStatus.ACTIVE, false));
        Check.equal(List.of(admin.getQueueExists(name), admin.getQueueExists("nowhere")), List.of(true, false));
        Check.refused(ResourceNotFoundException.class, "", () -> admin.getQueue("nowhere"));
        Check.refused(ResourceExistsException.class, "", () -> admin.createQueue(name));
        Check.refused(HttpResponseException.class, "RequiresDuplicateDetection", () -> admin.createQueue("q", new CreateQueueOptions().setDuplicateDetectionRequired(true)));
        Check.equal(admin.updateQueue(q.setStatus(EntityStatus.SEND_DISABLED)).getStatus(), EntityStatus.SEND_DISABLED);
        refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, "", () -> sender(name).sendMessage(new ServiceBusMessage("a")));
        QueueRuntimeProperties n = admin.getQueueRuntimeProperties(name);
        Check.equal(List.of(n.getTotalMessageCount(), n.getSizeInBytes()), List.of(0L, 0L));
        Check.holds(!n.getUpdatedAt().isBefore(n.getCreatedAt()) && n.getCreatedAt().isAfter(OffsetDateTime.now().minusMinutes(5)), n.getCreatedAt());
        admin.deleteQueue(name);
        Check.refused(ResourceNotFoundException.class, "", () -> admin.deleteQueue(name));
    }

    static void adminTopics() {
        admin.createTopic("java-board");
        Check.equal(admin.getTopic("java-board").getName(), "java-board");
        admin.createSubscription("java-board", "all", new CreateSubscriptionOptions().setLockDuration(Duration.ofSeconds(45)));
        Check.equal(admin.getSubscription("java-board", "all").getLockDuration(), Duration.ofSeconds(45));
        Check.equal(admin.updateSubscription(admin.getSubscription("java-board", "all").setStatus(EntityStatus.DISABLED)).getStatus(), EntityStatus.DISABLED);
        Check.equal(admin.listRules("java-board", "all").stream().map(RuleProperties::getName).collect(Collectors.toList()), List.of("$Default"));
        Check.refused(HttpResponseException.class, "Rules are not supported here",
            () -> admin.createRule("java-board", "big", "all", new CreateRuleOptions(new SqlRuleFilter("size > 10"))));
        Check.equal(admin.getTopicRuntimeProperties("java-board").getSubscriptionCount(), 1);
        admin.deleteSubscription("java-board", "all");
        Check.equal(admin.getSubscriptionExists("java-board", "all"), false);
        admin.deleteTopic("java-board");
        Check.equal(admin.getTopicExists("java-board"), false);
    }

    static void adminLists() {
        admin.createTopic("java-lists");
        List<String> want = IntStream.range(0, 110).mapToObj(i -> String.format("list%03d", i)).collect(Collectors.toList());
        want.forEach(name -> admin.createSubscription("java-lists", name));
        Check.equal(admin.listSubscriptions("java-lists").stream().map(s -> s.getSubscriptionName()).collect(Collectors.toList()), want);
        Check.holds(admin.listQueues().stream().map(QueueProperties::getName).filter(name -> name.startsWith("java/")).count() > 10, "queues");
        Check.equal(admin.listTopics().stream().map(t -> t.getName()).filter("java-lists"::equals).count(), 1L);
        admin.deleteTopic("java-lists");
    }

    static void adminNamespace() {
        Check.equal(admin.getNamespaceProperties().getMessagingSku().toString().toLowerCase(), "standard");
        Check.refused(ClientAuthenticationException.class, "EntityRead claims required", () -> admin(System.getenv("READER")).getQueue("java/queue0"));
    }

    static void transactions() {
        ServiceBusSenderClient s = sender(queue());
        Check.refused(ServiceBusException.class, "transactions are not supported", s::createTransaction);
    }
}
