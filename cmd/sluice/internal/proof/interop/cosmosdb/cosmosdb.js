// Checks what a Cosmos account promises with Azure's own client for JavaScript,
// unmodified. Prints a line for each check, and exits with 1 if one failed.
//
// Environment: ENDPOINT, KEY; CONTROL (address of the control endpoint).
"use strict";

const assert = require("node:assert/strict");
const { CosmosClient } = require("@azure/cosmos");

const { ENDPOINT, KEY, CONTROL } = process.env;
const patience = { connectionPolicy: { retryOptions: { maxRetryAttemptCount: 100, maxWaitTimeInSeconds: 60 } } };
const client = new CosmosClient({ endpoint: ENDPOINT, key: KEY, ...patience });

let checks = 0;
let failures = 0;

async function check(name, f) {
  checks++;
  const began = Date.now();
  try {
    await f();
    console.log(`ok   ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    failures++;
    console.log(`FAIL ${name} (${Date.now() - began} ms)\n${e.stack ?? e} ${JSON.stringify(e.body ?? "")}`);
  }
}

const control = async (path, body) => {
  const res = await fetch(CONTROL + path, { method: "POST", body: JSON.stringify(body) });
  if (!res.ok) throw new Error(await res.text());
};

const code = (want) => (e) => (assert.equal(e.code, want, `${e.code}: ${e.message}`), true);

async function collection(name, more = {}) {
  const { database } = await client.databases.createIfNotExists({ id: "checked" });
  const { container } = await database.containers.createIfNotExists({ id: name, partitionKey: { paths: ["/key"], version: 2 }, ...more });
  return container;
}

(async () => {
  await check("account", async () => {
    const { resource } = await client.getDatabaseAccount();
    assert.equal(resource.writableLocations.length, 1);
    assert.equal(await client.getWriteEndpoint(), ENDPOINT);
  });

  await check("databases and containers", async () => {
    const { database } = await client.databases.create({ id: "made" });
    await assert.rejects(client.databases.create({ id: "made" }), code(409));
    const { container, resource } = await database.containers.create({ id: "c", partitionKey: "/pk", throughput: 22000 });
    assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
    const ranges = (await container.readPartitionKeyRanges().fetchAll()).resources;
    assert.equal(ranges.length, 3);
    assert.equal((await container.readOffer()).resource.content.offerThroughput, 22000);
    const offer = (await container.readOffer()).resource;
    offer.content.offerThroughput = 30000;
    await client.offer(offer.id).replace(offer);
    assert.equal((await container.readOffer()).resource.content.offerThroughput, 30000);
    assert.deepEqual((await database.containers.readAll().fetchAll()).resources.map((c) => c.id), ["c"]);
    assert.equal((await client.databases.query({ query: "SELECT * FROM d WHERE d.id = @id", parameters: [{ name: "@id", value: "made" }] }).fetchAll()).resources.length, 1);
    await container.replace({ id: "c", partitionKey: resource.partitionKey, indexingPolicy: { indexingMode: "none", automatic: false } });
    await database.delete();
    await assert.rejects(database.read(), code(404));
  });

  await check("items", async () => {
    const c = await collection("items");
    const { resource, requestCharge, statusCode, etag } = await c.items.create({ id: "1", key: "a", text: "ü\n\u{1F600}\"" });
    assert.equal(statusCode, 201);
    assert.ok(requestCharge > 5 && requestCharge < 8, `${requestCharge} RU`);
    for (const p of ["_rid", "_self", "_etag", "_attachments", "_ts"]) assert.ok(p in resource, p);
    assert.equal(resource._etag, etag);
    await assert.rejects(c.items.create({ id: "1", key: "a" }), code(409));
    const read = await c.item("1", "a").read();
    assert.deepEqual(read.resource, resource);
    assert.ok(Math.abs(read.requestCharge - 1) < 0.01);
    assert.equal((await c.item("1", "b").read()).statusCode, 404);
    const again = await c.items.upsert({ ...resource, n: 1 });
    assert.equal(again.statusCode, 200);
    assert.equal(again.resource._rid, resource._rid);
    await assert.rejects(c.item("1", "a").replace({ id: "1", key: "a" }, { accessCondition: { type: "IfMatch", condition: etag } }), code(412));
    await c.item("1", "a").replace({ id: "1", key: "a", n: 2 }, { accessCondition: { type: "IfMatch", condition: again.etag } });
    assert.equal((await c.item("1", "a").read({ accessCondition: { type: "IfNoneMatch", condition: (await c.item("1", "a").read()).etag } })).statusCode, 304);
    for (const id of ["", "a/b", "a?b", "a#b"]) await assert.rejects(c.items.create({ id, key: "a" }, { disableAutomaticIdGeneration: true }), (e) => e.code === 400 || /Id/.test(e.message));
    await assert.rejects(c.items.create({ id: "big", key: "a", x: "x".repeat(2 << 20) }), code(413));
    await c.item("1", "a").delete();
    await assert.rejects(c.item("1", "a").delete(), code(404));
  });

  await check("ids of every kind", async () => {
    const c = await collection("ids");
    for (const id of ["a b", "ü日本", "a%41b", "a+b", "a'b\"c", "\u{1F600}", "x".repeat(255), "a&b=c;d", "dbs"]) {
      await c.items.create({ id, key: "ü%" });
      assert.equal((await c.item(id, "ü%").read()).resource.id, id);
      await c.item(id, "ü%").replace({ id, key: "ü%", n: 1 });
      await c.item(id, "ü%").delete();
    }
  });

  await check("keys of every type", async () => {
    const c = await collection("types");
    const keys = ["text", "", "日本語", 0, -0.5, 1e21, true, false, null, undefined];
    for (const key of keys) await c.items.create({ id: "same", key });
    for (const key of keys) {
      const { resource, statusCode } = await c.item("same", key).read();
      assert.equal(statusCode, 200, String(key));
      assert.equal(resource.key, key);
    }
    assert.deepEqual((await c.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [keys.length]);
  });

  await check("hierarchical and old keys", async () => {
    const deep = await collection("deep", { partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 2 }, throughput: 30000 });
    for (let i = 0; i < 20; i++) await deep.items.create({ id: `${i}`, a: `a${i % 4}`, b: i % 2 });
    assert.equal((await deep.item("7", ["a3", 1]).read()).resource.id, "7");
    assert.equal((await deep.items.query("SELECT * FROM c", { partitionKey: ["a3", 1] }).fetchAll()).resources.length, 5);
    const old = await collection("old", { partitionKey: { paths: ["/key"], version: 1 }, throughput: 30000 });
    const operations = [];
    for (let i = 0; i < 300; i++) operations.push({ operationType: "Upsert", partitionKey: `k${i}`, resourceBody: { id: `${i}`, key: `k${i}` } });
    for (const r of await old.items.executeBulkOperations(operations)) assert.equal(r.response?.statusCode, 201, JSON.stringify(r.error));
  });

  await check("queries", async () => {
    const c = await collection("queries", { throughput: 30000 });
    for (let i = 0; i < 250; i++) await c.items.create({ id: `id${i}`, key: `k${i % 9}`, n: i, sub: { even: i % 2 === 0 } });
    const all = async (query, options) => (await c.items.query(query, options).fetchAll()).resources;
    assert.equal((await c.items.readAll().fetchAll()).resources.length, 250);
    assert.equal(new Set((await all("SELECT * FROM c", { maxItemCount: 11 })).map((d) => d.id)).size, 250);
    assert.deepEqual(await all("SELECT VALUE COUNT(1) FROM c"), [250]);
    assert.deepEqual(await all("SELECT VALUE COUNT(1) FROM c", { forceQueryPlan: true }), [250]);
    assert.deepEqual(await all("SELECT VALUE SUM(c.n) FROM c WHERE c.n < 10", { forceQueryPlan: true }), [45]);
    assert.deepEqual(await all("SELECT VALUE MAX(c.n) FROM c"), [249]);
    assert.equal((await all("SELECT * FROM c WHERE c.sub.even", { forceQueryPlan: true, maxItemCount: 7 })).length, 125);
    assert.deepEqual(await all("SELECT VALUE COUNT(1) FROM c", { partitionKey: "k3" }), [28]);
    assert.deepEqual(await all({ query: "SELECT c.id, c.n FROM c WHERE c.n = @n AND c.key = @k", parameters: [{ name: "@n", value: 12 }, { name: "@k", value: "k3" }] }), [{ id: "id12", n: 12 }]);
    assert.deepEqual((await all("SELECT VALUE c.n FROM c WHERE c.n < 5 ORDER BY c.n DESC")), [4, 3, 2, 1, 0]);
    let pages = 0;
    const seen = new Set();
    for await (const page of c.items.query("SELECT VALUE c.id FROM c", { maxItemCount: 60 }).getAsyncIterator()) {
      pages++;
      for (const id of page.resources) seen.add(id);
    }
    assert.equal(seen.size, 250);
    assert.equal(pages, 5);
    await assert.rejects(all("SELECT * FROM c WHERE"), code(400));
  });

  await check("transactional batch", async () => {
    const c = await collection("batches");
    const batch = (operations) => c.items.batch(operations, "a");
    let res = await batch([
      { operationType: "Create", resourceBody: { id: "1", key: "a" } }, { operationType: "Upsert", resourceBody: { id: "2", key: "a" } },
      { operationType: "Replace", id: "1", resourceBody: { id: "1", key: "a", n: 1 } }, { operationType: "Read", id: "1" },
    ]);
    assert.deepEqual(res.result.map((r) => r.statusCode), [201, 201, 200, 200]);
    assert.equal(res.result[3].resourceBody.n, 1);
    res = await batch([{ operationType: "Delete", id: "1" }, { operationType: "Create", resourceBody: { id: "2", key: "a" } }, { operationType: "Delete", id: "2" }]);
    assert.equal(res.code, 207);
    assert.deepEqual(res.result.map((r) => r.statusCode), [424, 409, 424]);
    assert.equal((await c.item("1", "a").read()).resource.n, 1);
  });

  await check("bulk", async () => {
    const c = await collection("bulk", { throughput: 50000 });
    const operations = [];
    for (let i = 0; i < 1000; i++) operations.push({ operationType: "Upsert", partitionKey: `k${i % 70}`, resourceBody: { id: `${i}`, key: `k${i % 70}`, payload: "x".repeat(100) } });
    operations.push({ operationType: "Read", id: "5", partitionKey: "k5" }, { operationType: "Delete", id: "6", partitionKey: "k6" },
      { operationType: "Create", partitionKey: "k7", resourceBody: { id: "7", key: "k7" } }, { operationType: "Upsert", partitionKey: "k7", resourceBody: { id: "x", key: "k8" } });
    const results = await c.items.executeBulkOperations(operations);
    assert.equal(results.filter((r) => r.response?.statusCode === 201).length, 1000);
    assert.deepEqual(results.slice(1000).map((r) => r.response?.statusCode ?? r.error.code), [200, 204, 409, 400]);
    assert.ok(results[3].response.eTag && results[3].response.requestCharge > 5);
    assert.deepEqual((await c.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [999]);
    const old = await c.items.bulk([{ operationType: "Create", partitionKey: "k1", resourceBody: { id: "new", key: "k1" } }]);
    assert.equal(old[0].statusCode, 201);
  });

  await check("bulk over a split", async () => {
    const c = await collection("splits", { throughput: 20000 });
    const operations = (from) => Array.from({ length: 300 }, (_, i) => ({ operationType: "Upsert", partitionKey: `k${i}`, resourceBody: { id: `${from + i}`, key: `k${i}` } }));
    await c.items.executeBulkOperations(operations(0));
    await control("/split", { database: "checked", container: "splits", range: "0" });
    for (const r of await c.items.executeBulkOperations(operations(1000))) assert.equal(r.response?.statusCode, 201, JSON.stringify(r.error));
    assert.equal((await c.items.readAll({ maxItemCount: 37 }).fetchAll()).resources.length, 600);
    assert.deepEqual((await c.items.query("SELECT VALUE COUNT(1) FROM c", { forceQueryPlan: true }).fetchAll()).resources, [600]);
  });

  await check("queries in order, of feed ranges, and of plans", async () => {
    const c = await collection("ordered", { throughput: 30000 });
    const operations = Array.from({ length: 90 }, (_, i) => ({ operationType: "Upsert", partitionKey: `k${i % 13}`, resourceBody: { id: `${i}`, key: `k${i % 13}`, n: (i * 7) % 90 } }));
    for (const r of await c.items.executeBulkOperations(operations)) assert.equal(r.response?.statusCode, 201);
    for (const forceQueryPlan of [false, true]) {
      const numbers = (text) => c.items.query(text, { forceQueryPlan, maxItemCount: 8 }).fetchAll().then((r) => r.resources);
      assert.deepEqual(await numbers("SELECT VALUE c.n FROM c ORDER BY c.n"), Array.from({ length: 90 }, (_, i) => i));
      assert.deepEqual(await numbers("SELECT VALUE c.n FROM c WHERE c.n > 3 ORDER BY c.n DESC OFFSET 2 LIMIT 3"), [87, 86, 85]);
      assert.deepEqual(await numbers("SELECT VALUE AVG(c.n) FROM c"), [44.5]);
      assert.deepEqual(await numbers("SELECT VALUE MAX(c.n) FROM c"), [89]);
    }
    await assert.rejects(c.items.query("SELECT DISTINCT c.key FROM c").fetchAll(), /emulator/);
  });

  await check("time to live and unique keys", async () => {
    const c = await collection("policies", { defaultTtl: 1, uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/mail"] }] } });
    await c.items.create({ id: "1", key: "a", mail: "x", ttl: -1 });
    await assert.rejects(c.items.create({ id: "2", key: "a", mail: "x" }), code(409));
    await c.items.create({ id: "3", key: "a", mail: "y" });
    const until = Date.now() + 10000;
    while ((await c.items.readAll().fetchAll()).resources.length !== 1) assert.ok(Date.now() < until);
    const { resource: patched } = await c.item("1", "a").patch([{ op: "add", path: "/n", value: 1 }, { op: "incr", path: "/n", value: 2 }]);
    assert.equal(patched.n, 3);
    await assert.rejects(c.item("1", "a").patch({ condition: "from c where c.n = 4", operations: [{ op: "set", path: "/n", value: 9 }] }), code(412));
    await assert.rejects(c.item("1", "a").patch([{ op: "move", from: "/n", path: "/m" }]), code(400));
  });

  await check("throttling", async () => {
    const c = await collection("small", { throughput: 400 });
    const operations = Array.from({ length: 200 }, (_, i) => ({ operationType: "Upsert", partitionKey: `k${i}`, resourceBody: { id: `${i}`, key: `k${i}` } }));
    const began = Date.now();
    for (const r of await c.items.executeBulkOperations(operations)) assert.equal(r.response?.statusCode, 201, JSON.stringify(r.error));
    assert.ok(Date.now() - began > 1500, "200 documents took more than 1,200 RU at 400 RU/s");
    const hasty = new CosmosClient({ endpoint: ENDPOINT, key: KEY, connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 } } }).database("checked").container("small");
    await control("/throughput", { database: "checked", container: "small", ru: 5 }); // however slow this machine is
    const refused = [];
    await Promise.all(Array.from({ length: 150 }, (_, i) => hasty.items.create({ id: `x${i}`, key: "a" }).catch((e) => refused.push(e))));
    assert.ok(refused.length > 20, `${refused.length} were refused`);
    for (const e of refused) assert.ok(e.code === 429 && e.substatus === 3200 && e.retryAfterInMs > 0, JSON.stringify(e));
  });

  await check("a revoked key", async () => {
    const c = await collection("items");
    await control("/key/revoke", {});
    await assert.rejects(c.item("1", "a").read(), code(401));
    await control("/key/restore", {});
    await c.item("1", "a").read();
  });

  console.log(failures === 0 ? `all ${checks} checks passed` : `${failures} of ${checks} checks failed`);
  process.exit(failures === 0 ? 0 : 1);
})();
