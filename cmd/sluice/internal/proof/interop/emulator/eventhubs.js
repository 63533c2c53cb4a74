// Checks what an event hub promises with Azure's own client for JavaScript,
// unmodified. Prints a line for each check, and exits with 1 if one failed.
//
// Environment: HUBS (names of event hubs with 4 partitions, empty, and the consumer group
// audit, separated by spaces), ALL, LISTEN and SEND (connection strings with these
// rights), TLS (one for the TLS port, trusted by way of NODE_EXTRA_CA_CERTS), IDLE
// (one for a server that cuts silent connections after 15 s), CONTROL (address of the
// control endpoint), DROPPED and DROPPED_CONTROL (a server whose connections are dropped,
// and the address of its control endpoint).
"use strict";

const assert = require("node:assert/strict");
const { createHmac } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const {
  EventHubBufferedProducerClient, EventHubConsumerClient, EventHubProducerClient, earliestEventPosition, latestEventPosition,
} = require("@azure/event-hubs");
const WebSocket = require("ws");
const { check, run, open, refused } = require("./checks.js");

const { HUBS, ALL, LISTEN, SEND, TLS, IDLE, CONTROL, DROPPED, DROPPED_CONTROL } = process.env;
const [HUB, ...others] = HUBS.split(" ");
const GROUP = "$Default";
const once = { retryOptions: { maxRetries: 0, timeoutInMs: 30_000 } };
// The client waits for its timeout where an answer is lost, and often where a connection or a link is. If the
// timeout is over before an answer that does come, it sends again, and there are more events than expected.
const patient = { retryOptions: { maxRetries: 20, retryDelayInMs: 50, timeoutInMs: 15_000 } };

function producer(connection = ALL, options = once, hub = HUB) {
  const p = new EventHubProducerClient(connection, hub, options);
  open.push(p);
  return p;
}

function consumer(connection = ALL, options = once, group = GROUP, hub = HUB) {
  const c = new EventHubConsumerClient(group, connection, hub, options);
  open.push(c);
  return c;
}

// Reading is a subscription of one partition that collects its events and errors.
class Reading {
  constructor(client, partition, options = {}) {
    this.events = [];
    this.errors = [];
    this.waiting = [];
    this.subscription = client.subscribe(partition, {
      processInitialize: async () => { this.initialized = true; },
      processEvents: async (events, context) => {
        this.events.push(...events);
        this.metrics = context.lastEnqueuedEventProperties ?? this.metrics;
        this.wake();
      },
      processError: async (e) => { this.errors.push(e); this.wake(); },
    }, { startPosition: earliestEventPosition, maxBatchSize: 100, maxWaitTimeInSeconds: 0.3, ...options });
  }

  wake() { for (const w of this.waiting.splice(0)) w(); }

  async until(met) {
    while (!met()) await new Promise((resolve) => this.waiting.push(resolve));
  }

  // take waits for n events and returns their bodies.
  async take(n) {
    await this.until(() => this.events.length >= n || this.errors.length > 0);
    if (this.errors.length > 0) throw this.errors[0];
    return this.events.splice(0, n).map((e) => e.body);
  }

  // fails is rejected with the first error.
  async fails() {
    await this.until(() => this.errors.length > 0);
    throw this.errors[0];
  }

  close() { return this.subscription.close(); }
}

// reading begins to read a partition, with a client of its own: one doesn't read
// a partition twice.
function reading(partition, { as = {}, ...options } = {}) {
  const r = new Reading(consumer(as.connection, as.options, as.group, as.hub), partition, options);
  open.unshift(r);
  return r;
}

async function control(path, body = {}, at = CONTROL) {
  const res = await fetch(at + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const answer = await res.json();
  assert.equal(res.status, 200, JSON.stringify(answer));
  return answer;
}

async function hits(id) {
  const list = await (await fetch(CONTROL + "/faults")).json();
  return list.find((f) => f.id === id).hits;
}

async function next(partition) {
  return (await producer().getPartitionProperties(partition)).lastEnqueuedSequenceNumber + 1;
}

// signed returns a connection string with a token instead of a key, which expires in so many seconds.
function signed(hub, seconds) {
  const field = Object.fromEntries(ALL.split(";").map((part) => part.split(/=(.*)/s, 2)));
  const resource = encodeURIComponent(`sb://localhost/${hub}`);
  const expiry = Math.floor(Date.now() / 1000) + seconds;
  const signature = createHmac("sha256", field.SharedAccessKey).update(`${resource}\n${expiry}`).digest("base64");
  const token = `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signature)}&se=${expiry}&skn=${field.SharedAccessKeyName}`;
  return `Endpoint=${field.Endpoint};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

// Each event must come, in order; what was sent again may come again.
async function survives(hub, disturb, connection = ALL) {
  const p = producer(connection, patient, hub);
  const r = reading("0", { as: { connection, options: patient, hub } });
  for (let i = 0; i < 30; i++) {
    await p.sendBatch([{ body: i }], { partitionId: "0" });
    if (i % 10 === 5) {
      await r.until(() => r.events.some((e) => e.body === i) || r.errors.length > 0);
      await disturb();
    }
  }
  await r.until(() => r.events.some((e) => e.body === 29) || r.errors.length > 0);
  assert.deepEqual(r.errors, []);
  r.events.forEach((e, i) => assert.equal(e.sequenceNumber, i));
  assert.deepEqual([...new Set(r.events.map((e) => e.body))], Array.from({ length: 30 }, (_, i) => i));
  return r.events.length;
}

// waiting are the checks in which the client mostly waits. They run beside the others, each with an event hub
// or a server of its own.
function waiting() {
  const begun = [];
  begun.push(check("an idle receiver stays, and gets what comes at last", async () => {
    const p = producer(IDLE);
    const { lastEnqueuedSequenceNumber: sequenceNumber } = await p.getPartitionProperties("0");
    const r = reading("0", { as: { connection: IDLE }, startPosition: { sequenceNumber }, ownerLevel: 1 });
    await sleep(35_000); // being idle is a matter of time
    assert.deepEqual(r.errors, []);
    await p.sendBatch([{ body: "at last" }], { partitionId: "0" });
    assert.deepEqual(await r.take(1), ["at last"]);
  }));

  begun.push(check("dropped connections are made again", async () => {
    let dropped = 0;
    const drop = async () => { dropped += (await control("/connections/drop", {}, DROPPED_CONTROL)).connections; };
    assert.equal(await survives(HUB, drop, DROPPED), 30);
    assert.ok(dropped >= 3, `${dropped} connections were dropped`);
  }));

  begun.push(check("detached links are made again", async () => {
    const hub = others.shift();
    let detached = 0;
    assert.equal(await survives(hub, async () => { detached += (await control("/links/detach", { hub, partition: "0" })).links; }), 30);
    assert.ok(detached >= 3, `${detached} links were detached`);
  }));

  for (const fault of [
    { kind: "server-busy", on: "send", times: 3 }, { kind: "server-busy", on: "receive", times: 1 }, { kind: "detach", on: "send", times: 1 },
    { kind: "detach", on: "receive", times: 1 },
    { kind: "drop", on: "send", times: 1 }, { kind: "drop", on: "receive", times: 1 }, { kind: "lose-answer", on: "send", times: 1 },
    { kind: "delay", on: "send", times: 1, delay: "300ms" }, { kind: "server-busy", on: "attach", times: 1 },
  ]) {
    begun.push(check(`${fault.kind} on ${fault.on} passes`, async () => {
      const hub = others.shift();
      const { id } = await control("/faults", { hub, partition: "0", ...fault });
      const n = await survives(hub, async () => {});
      assert.equal(n, fault.kind === "lose-answer" ? 31 : 30);
      assert.equal(await hits(id), fault.times);
    }));
  }
  return Promise.all(begun);
}

async function main() {
  const waited = waiting();

  await check("properties of the hub", async () => {
    const p = await producer().getEventHubProperties();
    assert.equal(p.name, HUB);
    assert.deepEqual(p.partitionIds, ["0", "1", "2", "3"]);
    assert.ok(p.createdOn instanceof Date && Math.abs(Date.now() - p.createdOn) < 600_000, `created on ${p.createdOn}`);
    assert.deepEqual(await consumer().getPartitionIds({}), p.partitionIds);
  });

  await check("properties of an empty partition", async () => {
    const p = await producer().getPartitionProperties("3");
    assert.equal(p.eventHubName, HUB);
    assert.equal(p.partitionId, "3");
    assert.equal(p.isEmpty, true);
    assert.equal(p.beginningSequenceNumber, 0);
    assert.equal(p.lastEnqueuedSequenceNumber, -1);
    assert.equal(p.lastEnqueuedOffset, "-1");
  });

  await check("send to the hub: in turn, a batch into one partition", async () => {
    const before = await Promise.all(["0", "1", "2", "3"].map(next));
    const p = producer();
    for (let i = 0; i < 8; i++) await p.sendBatch([{ body: "turn" }, { body: "turn" }]);
    const after = await Promise.all(["0", "1", "2", "3"].map(next));
    assert.deepEqual(after.map((n, i) => n - before[i]), [4, 4, 4, 4]);
  });

  await check("events come out as they went in", async () => {
    const from = await next("0");
    const sent = [
      { body: "text", contentType: "text/plain", correlationId: "c1", messageId: "m1", properties: { n: 1, s: "ü", b: true, d: new Date(1700000000123) } },
      { body: { nested: [1, null, "x"] } },
      { body: Buffer.from([0, 1, 2, 255]) },
      { body: null },
      { body: 42, messageId: 7 },
    ];
    await producer().sendBatch(sent, { partitionId: "0" });
    const r = reading("0", { startPosition: { sequenceNumber: from, isInclusive: true } });
    await r.until(() => r.events.length >= sent.length || r.errors.length > 0);
    assert.deepEqual(r.errors, []);
    r.events.forEach((e, i) => {
      assert.deepEqual(e.body, sent[i].body);
      for (const field of ["contentType", "correlationId", "messageId"]) assert.equal(e[field], sent[i][field]);
      assert.equal(e.sequenceNumber, from + i);
      assert.match(String(e.offset), /^\d+$/);
      assert.ok(Math.abs(Date.now() - e.enqueuedTimeUtc) < 60_000);
    });
    assert.deepEqual({ ...r.events[0].properties, d: +r.events[0].properties.d }, { n: 1, s: "ü", b: true, d: 1700000000123 });
  });

  await check("a key's partition is the one that the client would choose", async () => {
    const keys = ["a", "b", "c", "d", "e", "naïve café", "x".repeat(100), "flight 4711", "\u{1F600}"];
    const partitions = ["0", "1", "2", "3"];
    const from = await Promise.all(partitions.map(next));
    const chosen = {};
    const buffered = new EventHubBufferedProducerClient(ALL, HUB, {
      ...once, maxWaitTimeInMs: 10,
      onSendEventsSuccessHandler: async ({ events, partitionId }) => { for (const e of events) chosen[e.body] = partitionId; },
      onSendEventsErrorHandler: async ({ error }) => { throw error; },
    });
    for (const key of keys) await buffered.enqueueEvent({ body: key }, { partitionKey: key });
    await buffered.close({ flush: true });
    const p = producer();
    for (const key of keys) await p.sendBatch([{ body: `${key} again` }], { partitionKey: key });
    const batch = await p.createBatch({ partitionKey: keys[0] });
    assert.ok(batch.tryAdd({ body: `${keys[0]} again` }));
    await p.sendBatch(batch);
    const found = {};
    let total = 0;
    for (const [i, id] of partitions.entries()) {
      const n = (await next(id)) - from[i];
      total += n;
      if (n === 0) continue;
      const r = reading(id, { startPosition: { sequenceNumber: from[i], isInclusive: true } });
      await r.until(() => r.events.length >= n || r.errors.length > 0);
      assert.deepEqual(r.errors, []);
      for (const e of r.events) {
        found[e.body] = id;
        if (e.body.endsWith(" again")) assert.equal(`${e.partitionKey} again`, e.body);
      }
    }
    assert.equal(total, 2 * keys.length + 1);
    for (const key of keys) {
      assert.equal(found[key], chosen[key], key);
      assert.equal(found[`${key} again`], chosen[key], `${key}: the hub chose another partition`);
    }
  });

  await check("batches are filled up to the limit", async () => {
    const p = producer();
    const batch = await p.createBatch({ partitionId: "1" });
    assert.equal(batch.maxSizeInBytes, 1024 * 1024);
    let n = 0;
    while (batch.tryAdd({ body: Buffer.alloc(50_000, n) })) n++;
    assert.equal(n, 20);
    const from = await next("1");
    await p.sendBatch(batch);
    assert.equal(await next("1"), from + n);
    await assert.rejects(p.createBatch({ maxSizeInBytes: 2 * 1024 * 1024 }), /Max message size/);
  });

  await check("what is too large is refused, and the client goes on", async () => {
    const p = producer();
    const from = await next("1");
    await refused(p.sendBatch([{ body: Buffer.alloc(2 * 1024 * 1024) }], { partitionId: "1" }), "MessageTooLargeError", "exceeds the limit (1048576 bytes)");
    await refused(p.sendBatch(Array.from({ length: 3 }, () => ({ body: Buffer.alloc(500_000) })), { partitionId: "1" }), "MessageTooLargeError");
    await p.sendBatch([{ body: "small" }], { partitionId: "1" });
    assert.equal(await next("1"), from + 1);
  });

  await check("every kind of start position", async () => {
    await control("/hubs/recreate", { hub: HUB });
    const p = producer();
    for (let i = 0; i < 2; i++) await p.sendBatch([{ body: i }], { partitionId: "2" });
    await control("/faults", { kind: "delay", on: "send", hub: HUB, delay: "5ms", times: 1 }); // times have a precision of a millisecond
    await p.sendBatch([{ body: 2 }], { partitionId: "2" });
    const all = reading("2");
    assert.deepEqual(await all.take(3), [0, 1, 2]);
    await all.close();
    const whole = reading("2");
    await whole.until(() => whole.events.length === 3);
    const [first, second] = whole.events;
    await whole.close();
    for (const [name, startPosition, want] of [
      ["offset", { offset: second.offset }, [2]],
      ["offset, inclusive", { offset: second.offset, isInclusive: true }, [1, 2]],
      ["sequence number", { sequenceNumber: 0 }, [1, 2]],
      ["sequence number, inclusive", { sequenceNumber: 1, isInclusive: true }, [1, 2]],
      ["before everything", { enqueuedOn: new Date(0) }, [0, 1, 2]],
      ["just before", { enqueuedOn: first.enqueuedTimeUtc.getTime() - 1 }, [0, 1, 2]],
      ["enqueued time", { enqueuedOn: second.enqueuedTimeUtc.getTime() }, [2]],
    ]) {
      const r = reading("2", { startPosition });
      assert.deepEqual(await r.take(want.length), want, name);
      await r.close();
    }
    const latest = reading("2", { startPosition: latestEventPosition, ownerLevel: 1 });
    const future = reading("3", { startPosition: { enqueuedOn: Date.now() } });
    // The readers are there once plain ones beside the first are refused.
    for (;;) {
      const probe = reading("2");
      await probe.until(() => probe.events.length > 0 || probe.errors.length > 0);
      await probe.close();
      if (probe.errors.length > 0) break;
    }
    await p.sendBatch([{ body: "new" }], { partitionId: "2" });
    await p.sendBatch([{ body: "new" }], { partitionId: "3" });
    assert.deepEqual(await latest.take(1), ["new"]);
    assert.deepEqual(await future.take(1), ["new"]);
    await refused(reading("0", { startPosition: { sequenceNumber: 5, isInclusive: true } }).fails(), "ArgumentError",
      "The supplied sequence number '5' is invalid");
  });

  await check("epochs: a lower one and none are refused, a higher one takes over", async () => {
    const middle = reading("2", { ownerLevel: 5 });
    await middle.take(4);
    await refused(reading("2", { ownerLevel: 4 }).fails(), "ReceiverDisconnectedError", "with a higher epoch '5' already exists");
    await refused(reading("2").fails(), "ReceiverDisconnectedError", "created with epoch of '5'");
    assert.deepEqual(middle.errors, []);
    const other = reading("2", { as: { group: "audit" } }); // another group is another matter
    await other.take(4);
    const high = reading("2", { ownerLevel: 6 });
    await refused(middle.fails(), "ReceiverDisconnectedError", "New receiver", "with higher epoch of '6' is created");
    assert.deepEqual(await high.take(4), [0, 1, 2, "new"]);
    await high.close();
    assert.deepEqual(await reading("2").take(4), [0, 1, 2, "new"]); // nobody is there any more
  });

  await check("plain readers give way to an epoch", async () => {
    const plain = reading("2");
    await plain.take(4);
    await reading("2", { ownerLevel: 1 }).take(4); // the client takes 0 for none
    await refused(plain.fails(), "ReceiverDisconnectedError", "New receiver", "with higher epoch of '1' is created");
  });

  await check("five plain readers, not six", async () => {
    const five = Array.from({ length: 5 }, () => reading("2"));
    for (const r of five) await r.take(4);
    await refused(reading("2").fails(), "QuotaExceededError", "maximum number of allowed receivers", "which is 5");
    await five[0].close();
    await reading("2").take(4);
  });

  await check("receivers get the partition's last sequence number", async () => {
    const r = reading("2", { trackLastEnqueuedEventProperties: true, maxBatchSize: 1 });
    await r.take(1);
    assert.equal(r.metrics.sequenceNumber, 3);
    assert.match(String(r.metrics.offset), /^\d+$/);
    assert.ok(r.metrics.enqueuedOn instanceof Date && r.metrics.retrievedOn instanceof Date, JSON.stringify(r.metrics));
  });

  await check("a wrong key and an unknown one", async () => {
    for (const connection of [ALL.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=d3Jvbmc="), ALL.replace(/SharedAccessKeyName=[^;]*/, "SharedAccessKeyName=nobody")]) {
      await refused(producer(connection).getEventHubProperties(), "UnauthorizedError", "InvalidSignature");
      await refused(producer(connection).sendBatch([{ body: "x" }]), "UnauthorizedError", "InvalidSignature");
      await refused(reading("0", { as: { connection } }).fails(), "UnauthorizedError", "InvalidSignature");
    }
  });

  await check("a token: good, expired, for another hub", async () => {
    const good = signed(HUB, 3600);
    await producer(good).sendBatch([{ body: "signed" }], { partitionId: "1" });
    assert.equal((await producer(good).getEventHubProperties()).name, HUB);
    assert.deepEqual(await reading("1", { as: { connection: good } }).take(1), ["signed"]);
    for (const [connection, why] of [[signed(HUB, -1), "ExpiredToken"], [signed(`${HUB}x`, 3600), "InvalidAudience"]]) {
      await refused(producer(connection).getEventHubProperties(), "UnauthorizedError", why);
      await refused(producer(connection).sendBatch([{ body: "x" }]), "UnauthorizedError", why);
      await refused(reading("0", { as: { connection } }).fails(), "UnauthorizedError", why);
    }
  });

  await check("a key without the right", async () => {
    await refused(producer(LISTEN).sendBatch([{ body: "x" }]), "UnauthorizedError", "'Send' claim(s) are required to perform this operation", `/${HUB}'`);
    await refused(reading("2", { as: { connection: SEND } }).fails(), "UnauthorizedError", "'Listen' claim(s) are required to perform this operation");
    await producer(SEND).sendBatch([{ body: "sent" }], { partitionId: "2" });
    assert.equal((await reading("2", { as: { connection: LISTEN } }).take(5)).at(-1), "sent");
    assert.equal((await producer(SEND).getEventHubProperties()).name, HUB);
    assert.equal((await consumer(LISTEN).getEventHubProperties()).name, HUB);
  });

  await check("what isn't there", async () => {
    await refused(producer(ALL, once, "none").getEventHubProperties(), "MessagingEntityNotFoundError", "could not be found");
    await refused(producer(ALL, once, "none").sendBatch([{ body: "x" }]), "MessagingEntityNotFoundError", "could not be found");
    await refused(producer().getPartitionProperties("4"), "MessagingEntityNotFoundError", "could not be found");
    await refused(producer().sendBatch([{ body: "x" }], { partitionId: "4" }), "ArgumentOutOfRangeError", "The specified partition is invalid");
    await refused(reading("0", { as: { group: "unknown" } }).fails(), "MessagingEntityNotFoundError", "could not be found");
  });

  await check("a busy server is reported if the client does not retry", async () => {
    await control("/faults", { kind: "server-busy", on: "send", hub: HUB, times: 1 });
    await refused(producer().sendBatch([{ body: "x" }], { partitionId: "0" }), "ServerBusyError", "throttled");
    await control("/faults", { kind: "server-busy", on: "manage", hub: HUB, times: 1 });
    await refused(producer().getEventHubProperties(), "ServerBusyError", "throttled");
  });

  await check("all partitions at once, found by load balancing", async () => {
    const p = producer();
    const c = consumer(ALL, { ...once, loadBalancingOptions: { updateIntervalInMs: 100, strategy: "greedy" } });
    const seen = new Set();
    let done;
    const all = new Promise((resolve, reject) => { done = { resolve, reject }; });
    const subscription = c.subscribe({
      processEvents: async (events, context) => {
        if (events.some((e) => e.body === "balanced")) seen.add(context.partitionId);
        if (seen.size === 4) done.resolve();
      },
      processError: async (e) => done.reject(e),
    }, { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 0.3 });
    for (const partitionId of ["0", "1", "2", "3"]) await p.sendBatch([{ body: "balanced" }], { partitionId });
    await all;
    await subscription.close();
  });

  for (const [name, options] of [
    ["TLS", once], ["WebSockets", { ...once, webSocketOptions: { webSocket: WebSocket } }],
  ]) {
    await check(`over ${name}`, async () => {
      const from = await next("3");
      const p = producer(TLS, options);
      assert.equal((await p.getEventHubProperties()).name, HUB);
      await p.sendBatch([{ body: "x".repeat(900_000) }, { body: name }], { partitionId: "3" });
      const [big, small] = await reading("3", { as: { connection: TLS, options }, startPosition: { sequenceNumber: from, isInclusive: true } }).take(2);
      assert.equal(big.length, 900_000);
      assert.equal(small, name);
    });
  }
  await waited;
}

run(main);
