import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.*;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import reactor.core.publisher.Flux;

/**
 * Checks what a Cosmos account promises with Azure's own client for Java, unmodified, in gateway
 * mode. Prints a line for each check, and exits with 1 if one failed.
 *
 * Environment: ENDPOINT, KEY; CONTROL (address of the control endpoint).
 */
public final class Checks {
    interface Check {
        void run() throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();
    static int checks, failures;
    static CosmosClient client;
    static CosmosDatabase database;

    public static void main(String[] args) {
        client = new CosmosClientBuilder().endpoint(System.getenv("ENDPOINT")).key(System.getenv("KEY")).gatewayMode()
            .consistencyLevel(ConsistencyLevel.SESSION).contentResponseOnWriteEnabled(true).buildClient();
        client.createDatabaseIfNotExists("java");
        database = client.getDatabase("java");
        check("databases and containers", Checks::containers);
        check("items", Checks::items);
        check("etags", Checks::etags);
        check("keys of every type", Checks::keys);
        check("hierarchical keys", Checks::hierarchical);
        check("queries", Checks::queries);
        check("queries with ORDER BY", Checks::orderBy);
        check("aggregates", Checks::aggregates);
        check("paging with continuation tokens", Checks::paging);
        check("readMany", Checks::readMany);
        check("feed ranges", Checks::feedRanges);
        check("transactional batch", Checks::batch);
        check("bulk", Checks::bulk);
        check("bulk over a split", Checks::bulkSplit);
        check("throughput", Checks::throughput);
        check("time to live and unique keys", Checks::policies);
        check("a recreated container", Checks::recreated);
        check("refusals", Checks::refusals);
        client.close();
        System.out.println(failures == 0 ? "all " + checks + " checks passed" : failures + " of " + checks + " checks failed");
        System.exit(failures == 0 ? 0 : 1);
    }

    static void check(String name, Check f) {
        checks++;
        long began = System.nanoTime();
        String verdict = "ok  ", reason = "";
        try {
            f.run();
        } catch (Throwable e) {
            failures++;
            verdict = "FAIL";
            StackTraceElement at = java.util.Arrays.stream(e.getStackTrace()).filter(s -> s.getClassName().equals("Checks")).findFirst().orElse(null);
            reason = "\n" + e.toString().lines().limit(3).collect(Collectors.joining(" ")).substring(0, Math.min(600, e.toString().length() > 600 ? 600 : e.toString().lines().limit(3).collect(Collectors.joining(" ")).length())) + " at " + at;
        }
        System.out.println(verdict + " " + name + " (" + (System.nanoTime() - began) / 1_000_000 + " ms)" + reason);
    }

    static void equal(Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    static CosmosException refused(int status, Callable<?> f) throws Exception {
        try {
            f.call();
        } catch (CosmosException e) {
            equal(e.getStatusCode(), status);
            return e;
        }
        throw new AssertionError("not refused with " + status);
    }

    static ObjectNode item(String id, String key) {
        return JSON.createObjectNode().put("id", id).put("key", key);
    }

    static CosmosContainer container(String name, int ru) {
        database.createContainerIfNotExists(new CosmosContainerProperties(name, "/key"), ThroughputProperties.createManualThroughput(ru));
        return database.getContainer(name);
    }

    static CosmosAsyncContainer async(String name) {
        return new CosmosClientBuilder().endpoint(System.getenv("ENDPOINT")).key(System.getenv("KEY")).gatewayMode().buildAsyncClient().getDatabase("java").getContainer(name);
    }

    static List<JsonNode> query(CosmosContainer c, String text, CosmosQueryRequestOptions options) {
        return c.queryItems(text, options, JsonNode.class).stream().collect(Collectors.toList());
    }

    static void control(String path, String body) throws Exception {
        HttpResponse<String> res = HttpClient.newHttpClient().send(
            HttpRequest.newBuilder(URI.create(System.getenv("CONTROL") + path)).POST(HttpRequest.BodyPublishers.ofString(body)).build(), HttpResponse.BodyHandlers.ofString());
        equal(res.statusCode(), 200);
    }

    static void containers() throws Exception {
        equal(client.createDatabaseIfNotExists("made").getStatusCode(), 201);
        CosmosDatabase made = client.getDatabase("made");
        equal(made.createContainer("c", "/pk").getProperties().getPartitionKeyDefinition().getPaths(), List.of("/pk"));
        refused(409, () -> made.createContainer("c", "/pk"));
        equal(made.readAllContainers().stream().map(CosmosContainerProperties::getId).collect(Collectors.toList()), List.of("c"));
        made.getContainer("c").delete();
        refused(404, () -> made.getContainer("c").read());
        made.delete();
        refused(404, made::read);
    }

    static void items() throws Exception {
        CosmosContainer c = container("items", 400);
        CosmosItemResponse<ObjectNode> made = c.createItem(item("1", "a").put("text", "ü\n\uD83D\uDE00\""), new PartitionKey("a"), null);
        equal(made.getStatusCode(), 201);
        equal(made.getRequestCharge() > 5 && made.getRequestCharge() < 8, true);
        refused(409, () -> c.createItem(item("1", "a"), new PartitionKey("a"), null));
        equal(c.readItem("1", new PartitionKey("a"), JsonNode.class).getItem().get("text").asText(), "ü\n\uD83D\uDE00\"");
        equal(c.upsertItem(item("1", "a").put("n", 2)).getItem().get("n").asInt(), 2);
        equal(c.replaceItem(item("1", "a").put("n", 3), "1", new PartitionKey("a"), null).getItem().get("n").asInt(), 3);
        refused(404, () -> c.readItem("1", new PartitionKey("b"), JsonNode.class));
        for (String id : List.of("a b", "ü日本", "a%41b", "a+b", "a'b", "a&b=c;d")) {
            c.createItem(item(id, "%"));
            equal(c.readItem(id, new PartitionKey("%"), JsonNode.class).getItem().get("id").asText(), id);
            c.deleteItem(id, new PartitionKey("%"), null);
        }
        refused(413, () -> c.createItem(item("big", "a").put("x", "x".repeat(2 << 20))));
        equal(c.deleteItem("1", new PartitionKey("a"), null).getStatusCode(), 204);
        refused(404, () -> c.deleteItem("1", new PartitionKey("a"), null));
    }

    static void etags() throws Exception {
        CosmosContainer c = container("etags", 400);
        String etag = c.createItem(item("1", "a")).getETag();
        String next = c.upsertItem(item("1", "a").put("n", 1)).getETag();
        refused(412, () -> c.replaceItem(item("1", "a"), "1", new PartitionKey("a"), new CosmosItemRequestOptions().setIfMatchETag(etag)));
        equal(c.replaceItem(item("1", "a"), "1", new PartitionKey("a"), new CosmosItemRequestOptions().setIfMatchETag(next)).getStatusCode(), 200);
        String last = c.readItem("1", new PartitionKey("a"), JsonNode.class).getETag();
        equal(c.readItem("1", new PartitionKey("a"), new CosmosItemRequestOptions().setIfNoneMatchETag(last), JsonNode.class).getStatusCode(), 304);
        equal(c.upsertItem(item("new", "a"), new PartitionKey("a"), new CosmosItemRequestOptions().setIfMatchETag(etag)).getStatusCode(), 201);
    }

    static void keys() throws Exception {
        CosmosContainer c = container("keys", 400);
        c.createItem(JSON.createObjectNode().put("id", "1").put("key", 1.5), new PartitionKey(1.5), null);
        c.createItem(JSON.createObjectNode().put("id", "1").put("key", true), new PartitionKey(true), null);
        c.createItem(JSON.createObjectNode().put("id", "1").putNull("key"), new PartitionKeyBuilder().addNullValue().build(), null);
        c.createItem(JSON.createObjectNode().put("id", "1"), PartitionKey.NONE, null);
        for (PartitionKey k : List.of(new PartitionKey(1.5), new PartitionKey(true), new PartitionKeyBuilder().addNullValue().build(), PartitionKey.NONE)) {
            equal(c.readItem("1", k, JsonNode.class).getStatusCode(), 200);
        }
        equal(query(c, "SELECT VALUE COUNT(1) FROM c", null).get(0).asInt(), 4);
    }

    static void hierarchical() throws Exception {
        PartitionKeyDefinition key = new PartitionKeyDefinition();
        key.setPaths(List.of("/a", "/b"));
        key.setKind(PartitionKind.MULTI_HASH);
        key.setVersion(PartitionKeyDefinitionVersion.V2);
        database.createContainerIfNotExists(new CosmosContainerProperties("deep", key), ThroughputProperties.createManualThroughput(30000));
        CosmosContainer c = database.getContainer("deep");
        for (int i = 0; i < 24; i++) {
            c.createItem(JSON.createObjectNode().put("id", "" + i).put("a", "a" + i % 3).put("b", i % 4));
        }
        equal(c.readItem("7", new PartitionKeyBuilder().add("a1").add(3).build(), JsonNode.class).getItem().get("b").asInt(), 3);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("a1").build())).size(), 8);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("a1").add(3).build())).size(), 2);
    }

    static CosmosContainer filled(String name, int n) {
        CosmosContainer c = container(name, 30000);
        List<CosmosItemOperation> operations = IntStream.range(0, n)
            .mapToObj(i -> CosmosBulkOperations.getUpsertItemOperation(item("id" + i, "k" + i % 17).put("n", (i * 7) % n), new PartitionKey("k" + i % 17))).collect(Collectors.toList());
        c.executeBulkOperations(operations).forEach(r -> equal(r.getResponse().isSuccessStatusCode(), true));
        return c;
    }

    static void queries() throws Exception {
        CosmosContainer c = filled("queries", 200);
        equal(query(c, "SELECT * FROM c", null).size(), 200);
        SqlQuerySpec spec = new SqlQuerySpec("SELECT c.n FROM c WHERE c.n >= @n", new SqlParameter("@n", 190));
        equal(c.queryItems(spec, null, JsonNode.class).stream().count(), 10L);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("k3"))).size(), 12);
        equal(query(c, "SELECT TOP 7 * FROM c", null).size(), 7);
        equal(query(c, "SELECT * FROM c OFFSET 5 LIMIT 9", null).size(), 9);
        equal(c.readAllItems(new PartitionKey("k3"), JsonNode.class).stream().count(), 12L);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setQueryMetricsEnabled(true)).size(), 200);
    }

    static void orderBy() throws Exception {
        CosmosContainer c = filled("ordered", 200);
        for (boolean descending : new boolean[] {false, true}) {
            List<JsonNode> list = query(c, "SELECT * FROM c WHERE c.n < 150 ORDER BY c.n" + (descending ? " DESC" : ""), null);
            equal(list.size(), 150);
            for (int i = 0; i < list.size(); i++) {
                equal(list.get(i).get("n").asInt(), descending ? 149 - i : i);
            }
        }
        equal(query(c, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 3", null).toString(), "[10, 11, 12]");
        equal(query(c, "SELECT TOP 3 c.n AS m FROM c ORDER BY c.n DESC", null).toString(), "[{\"m\":199}, {\"m\":198}, {\"m\":197}]");
        List<Integer> paged = new ArrayList<>();
        String token = null;
        do {
            FeedResponse<JsonNode> page = c.queryItems("SELECT * FROM c ORDER BY c.n", null, JsonNode.class).iterableByPage(token, 30).iterator().next();
            page.getResults().forEach(d -> paged.add(d.get("n").asInt()));
            token = page.getContinuationToken();
        } while (token != null);
        equal(paged, IntStream.range(0, 200).boxed().collect(Collectors.toList()));
    }

    static void aggregates() throws Exception {
        CosmosContainer c = filled("aggregates", 100);
        equal(query(c, "SELECT VALUE COUNT(1) FROM c", null).get(0).asInt(), 100);
        equal(query(c, "SELECT VALUE SUM(c.n) FROM c", null).get(0).asInt(), 4950);
        equal(query(c, "SELECT VALUE AVG(c.n) FROM c", null).get(0).asDouble(), 49.5);
        equal(query(c, "SELECT VALUE MIN(c.n) FROM c WHERE c.n > 3", null).get(0).asInt(), 4);
        equal(query(c, "SELECT VALUE MAX(c.n) FROM c", null).get(0).asInt(), 99);
    }

    static void paging() throws Exception {
        CosmosContainer c = filled("pages", 150);
        Set<String> seen = new HashSet<>();
        int pages = 0;
        String token = null;
        do {
            FeedResponse<JsonNode> page = c.queryItems("SELECT * FROM c", null, JsonNode.class).iterableByPage(token, 20).iterator().next();
            for (JsonNode d : page.getResults()) {
                equal(seen.add(d.get("id").asText()), true);
            }
            token = page.getContinuationToken();
            pages++;
        } while (token != null);
        equal(seen.size(), 150);
        equal(pages >= 8, true);
    }

    static void readMany() throws Exception {
        CosmosContainer c = filled("many", 300);
        List<CosmosItemIdentity> wanted = IntStream.range(0, 200).mapToObj(i -> new CosmosItemIdentity(new PartitionKey("k" + i % 17), "id" + i)).collect(Collectors.toList());
        wanted.add(new CosmosItemIdentity(new PartitionKey("none"), "none"));
        equal(c.readMany(wanted, JsonNode.class).getResults().size(), 200);
        equal(c.readMany(wanted.subList(0, 1), JsonNode.class).getResults().size(), 1);
    }

    static void feedRanges() throws Exception {
        CosmosContainer c = filled("ranges", 170);
        List<FeedRange> ranges = c.getFeedRanges();
        equal(ranges.size(), 3);
        int total = 0;
        for (FeedRange r : ranges) {
            total += query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(r)).size();
        }
        equal(total, 170);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(FeedRange.forLogicalPartition(new PartitionKey("k1")))).size(), 10);
        equal(query(c, "SELECT * FROM c", new CosmosQueryRequestOptions().setFeedRange(FeedRange.forFullRange())).size(), 170);
    }

    static void batch() throws Exception {
        CosmosContainer c = container("batch", 400);
        CosmosBatch good = CosmosBatch.createCosmosBatch(new PartitionKey("a"));
        good.createItemOperation(item("1", "a"));
        good.upsertItemOperation(item("2", "a"));
        good.readItemOperation("1");
        CosmosBatchResponse done = c.executeCosmosBatch(good);
        equal(done.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).collect(Collectors.toList()), List.of(201, 201, 200));
        CosmosBatch bad = CosmosBatch.createCosmosBatch(new PartitionKey("a"));
        bad.deleteItemOperation("1");
        bad.createItemOperation(item("2", "a"));
        done = c.executeCosmosBatch(bad);
        equal(done.isSuccessStatusCode(), false);
        equal(done.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).collect(Collectors.toList()), List.of(424, 409));
        equal(c.readItem("1", new PartitionKey("a"), JsonNode.class).getStatusCode(), 200);
    }

    static void bulk() throws Exception {
        CosmosContainer c = filled("bulk", 3000);
        equal(query(c, "SELECT VALUE COUNT(1) FROM c", null).get(0).asInt(), 3000);
        List<CosmosItemOperation> mixed = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            mixed.add(CosmosBulkOperations.getDeleteItemOperation("id" + i, new PartitionKey("k" + i % 17)));
            mixed.add(CosmosBulkOperations.getReadItemOperation("none" + i, new PartitionKey("k" + i % 17)));
        }
        int deleted = 0, missing = 0;
        for (CosmosBulkOperationResponse<Object> r : c.executeBulkOperations(mixed)) {
            int status = r.getResponse() != null ? r.getResponse().getStatusCode() : ((CosmosException) r.getException()).getStatusCode();
            deleted += status == 204 ? 1 : 0;
            missing += status == 404 ? 1 : 0;
        }
        equal(deleted + " " + missing, "100 100");
    }

    static void bulkSplit() throws Exception {
        container("split", 30000);
        CosmosAsyncContainer c = async("split");
        Flux<CosmosItemOperation> operations = Flux.range(0, 2000).map(i -> {
            if (i == 700) {
                try {
                    control("/split", "{\"database\":\"java\",\"container\":\"split\"}");
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            }
            return CosmosBulkOperations.getUpsertItemOperation(item("id" + i, "k" + i), new PartitionKey("k" + i));
        });
        List<CosmosBulkOperationResponse<Object>> done = c.executeBulkOperations(operations).collectList().block();
        equal(done.stream().filter(r -> r.getResponse() != null && r.getResponse().isSuccessStatusCode()).count(), 2000L);
        equal(query(database.getContainer("split"), "SELECT VALUE COUNT(1) FROM c", null).get(0).asInt(), 2000);
    }

    static void throughput() throws Exception {
        CosmosContainer c = container("offer", 12000);
        equal(c.readThroughput().getProperties().getManualThroughput(), 12000);
        c.replaceThroughput(ThroughputProperties.createManualThroughput(15000));
        equal(c.readThroughput().getProperties().getManualThroughput(), 15000);
    }

    static void policies() throws Exception {
        CosmosContainerProperties p = new CosmosContainerProperties("policies", "/key");
        p.setDefaultTimeToLiveInSeconds(1);
        p.setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/mail")))));
        database.createContainer(p);
        CosmosContainer c = database.getContainer("policies");
        equal(c.read().getProperties().getDefaultTimeToLiveInSeconds(), 1);
        c.createItem(item("1", "a").put("mail", "x").put("ttl", -1));
        refused(409, () -> c.createItem(item("2", "a").put("mail", "x")));
        c.createItem(item("3", "a").put("mail", "y"));
        for (long until = System.currentTimeMillis() + 5000; query(c, "SELECT * FROM c", null).size() != 1;) {
            equal(System.currentTimeMillis() < until, true);
            Thread.sleep(50);
        }
    }

    static void recreated() throws Exception {
        CosmosContainer c = filled("recreated", 50);
        CosmosClient other = new CosmosClientBuilder().endpoint(System.getenv("ENDPOINT")).key(System.getenv("KEY")).gatewayMode().buildClient();
        other.getDatabase("java").getContainer("recreated").delete();
        other.getDatabase("java").createContainer("recreated", "/key");
        other.close();
        c.upsertItem(item("1", "a"));
        equal(query(c, "SELECT * FROM c", null).size(), 1);
    }

    static void refusals() throws Exception {
        CosmosContainer c = container("items", 400);
        for (String text : List.of("SELECT DISTINCT c.key FROM c", "SELECT c.key FROM c GROUP BY c.key", "SELECT * FROM c JOIN x IN c.list")) {
            equal(refused(400, () -> query(c, text, null)).getMessage().contains("emulator"), true);
        }
        c.upsertItem(item("1", "a"));
        equal(refused(400, () -> c.patchItem("1", new PartitionKey("a"), CosmosPatchOperations.create().add("/n", 1), JsonNode.class)).getMessage().contains("PATCH"), true);
        refused(400, () -> c.queryChangeFeed(CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(FeedRange.forFullRange()), JsonNode.class).stream().count());
    }
}
