// Checks what queues, topics and subscriptions promise with Azure's own client
// for JavaScript, unmodified. Prints a line for each check, and exits with 1 if
// one failed.
//
// Environment: ALL, LISTEN and SEND (connection strings with these rights),
// ADMIN and READER (connection strings of the administration API, with all rights
// and with the right to listen), TLS (one for the TLS port; it and the API are
// trusted by way of NODE_EXTRA_CA_CERTS), PREMIUM (one for a namespace of the
// premium tier with the queue large), DROPPED and DROPPED_CONTROL (a namespace with the
// queue lost, whose connections are dropped, and the address of its control endpoint).
"use strict";

const assert = require("node:assert/strict");
const { setTimeout: sleep } = require("node:timers/promises");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");
const WebSocket = require("ws");
const { check, run, open, refused } = require("./checks.js");

const { ALL, LISTEN, SEND, ADMIN, READER, TLS, PREMIUM, DROPPED, DROPPED_CONTROL } = process.env;
const once = { retryOptions: { maxRetries: 0, timeoutInMs: 30_000 } };
const patient = { retryOptions: { maxRetries: 20, retryDelayInMs: 50, timeoutInMs: 15_000 } };
const admin = new ServiceBusAdministrationClient(ADMIN);

let queues = 0;

function client(connection = ALL, options = once) {
  const c = new ServiceBusClient(connection, options);
  open.push(c);
  return c;
}

// queue makes a queue of the check's own.
async function queue(options) {
  const name = `checked/queue${queues++}`;
  await admin.createQueue(name, options);
  return name;
}

// take receives n messages.
async function take(receiver, n) {
  const all = [];
  while (all.length < n) {
    const some = await receiver.receiveMessages(n - all.length, { maxWaitTimeInMs: 40_000 });
    assert.ok(some.length > 0, `${all.length} messages came, not ${n}`);
    all.push(...some);
  }
  return all;
}

const bodies = (messages) => messages.map((m) => m.body);
const texts = (...list) => list.map((body) => ({ body }));

async function counts(name) {
  const { activeMessageCount: active, deadLetterMessageCount: dead, scheduledMessageCount: scheduled } = await admin.getQueueRuntimeProperties(name);
  return { active, dead, scheduled };
}

async function control(path, body = {}) {
  const res = await fetch(DROPPED_CONTROL + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const answer = await res.json();
  assert.equal(res.status, 200, JSON.stringify(answer));
  return answer;
}

async function main() {
  // These two mostly wait, for the client's timeouts and for locks to expire, so they run beside the others.
  const lost = check("lost connections, detached links and throttling", async () => {
    const name = "lost";
    const c = client(DROPPED, patient);
    const s = c.createSender(name);
    const r = c.createReceiver(name, { receiveMode: "receiveAndDelete" });
    await s.sendMessages(texts("a"));
    assert.ok((await control("/connections/drop")).connections > 0);
    await s.sendMessages(texts("b"));
    await control("/links/detach", { hub: name });
    await s.sendMessages(texts("c"));
    await control("/faults", { kind: "server-busy", on: "send", hub: name, times: 1 });
    await refused(client(DROPPED).createSender(name).sendMessages(texts("no")), "ServiceBusy");
    assert.deepEqual(bodies(await take(r, 3)), ["a", "b", "c"]);
  });
  const locks = check("locks are renewed, and expire", async () => {
    const c = client();
    const name = await queue({ lockDuration: "PT20S", maxDeliveryCount: 2 });
    await c.createSender(name).sendMessages(texts("a"));
    const r = c.createReceiver(name, { maxAutoLockRenewalDurationInMs: 0 });
    const [first] = await take(r, 1);
    const until = first.lockedUntilUtc;
    await sleep(11_000);
    assert.ok(await r.renewMessageLock(first) > until);
    await sleep(11_000); // longer than one lock
    await r.renewMessageLock(first);
    const [second] = await take(r, 1); // waits for the lock to expire
    assert.equal(second.deliveryCount, 1);
    await refused(r.completeMessage(first), "MessageLockLost");
    await refused(r.renewMessageLock(first), "MessageLockLost");
    await r.abandonMessage(second);
    const [dead] = await take(c.createReceiver(name, { subQueueType: "deadLetter" }), 1);
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  });

  await check("a message comes as it was sent", async () => {
    const c = client();
    const name = await queue();
    const sent = {
      body: { text: "ü", list: [1, 2] }, messageId: "id", correlationId: "correlation", contentType: "application/json", subject: "subject",
      sessionId: "session", partitionKey: "session", replyTo: "reply", to: "to", timeToLive: 3_600_000,
      applicationProperties: { text: "ü", number: 7, yes: true },
    };
    await c.createSender(name).sendMessages(sent);
    const [got] = await take(c.createReceiver(name), 1);
    for (const [key, value] of Object.entries(sent)) assert.deepEqual(got[key], value, key);
    assert.equal(got.deliveryCount, 0);
    assert.equal(got.sequenceNumber.toNumber(), 1);
    assert.ok(got.lockedUntilUtc > new Date() && got.expiresAtUtc > got.enqueuedTimeUtc && got.lockToken.length === 36);
  });

  await check("a batch, full to the limit of 256 KiB", async () => {
    const c = client();
    const name = await queue();
    const s = c.createSender(name);
    const batch = await s.createMessageBatch();
    assert.equal(batch.maxSizeInBytes, 256 * 1024);
    while (batch.tryAddMessage({ body: "x".repeat(1000) }));
    assert.ok(batch.count > 220 && batch.sizeInBytes <= 256 * 1024, `${batch.count} messages, ${batch.sizeInBytes} bytes`);
    await s.sendMessages(batch);
    assert.equal((await counts(name)).active, batch.count);
    assert.equal((await take(c.createReceiver(name, { receiveMode: "receiveAndDelete" }), batch.count)).length, batch.count);
    assert.equal((await counts(name)).active, 0);
  });

  await check("what is too large is refused", async () => {
    const s = client().createSender(await queue());
    await refused(s.sendMessages({ body: Buffer.alloc(300_000) }), "MessageSizeExceeded");
    await s.sendMessages({ body: Buffer.alloc(250_000) });
    const p = client(PREMIUM);
    await p.createSender("large").sendMessages({ body: Buffer.alloc(1_000_000) });
    await refused(p.createSender("large").sendMessages({ body: Buffer.alloc(1_100_000) }), "MessageSizeExceeded");
    assert.equal((await take(p.createReceiver("large"), 1))[0].body.length, 1_000_000);
  });

  await check("peek", async () => {
    const c = client();
    const name = await queue();
    await c.createSender(name).sendMessages(texts("a", "b", "c"));
    const r = c.createReceiver(name);
    await take(r, 1); // what is locked is seen too
    assert.deepEqual(bodies(await r.peekMessages(2)), ["a", "b"]);
    assert.deepEqual(bodies(await r.peekMessages(2)), ["c"]);
    assert.deepEqual(await r.peekMessages(2), []);
    assert.equal((await counts(name)).active, 3);
  });

  await check("complete, abandon, dead-letter", async () => {
    const c = client();
    const name = await queue();
    await c.createSender(name).sendMessages(texts("a", "b", "c"));
    const r = c.createReceiver(name);
    const [a, b, d] = await take(r, 3);
    await r.completeMessage(a);
    await r.abandonMessage(b, { tried: "once" });
    await r.deadLetterMessage(d, { deadLetterReason: "odd", deadLetterErrorDescription: "very odd", extra: "e" });
    assert.deepEqual(await counts(name), { active: 1, dead: 1, scheduled: 0 });
    const [again] = await take(r, 1);
    assert.deepEqual([again.body, again.deliveryCount, again.applicationProperties.tried], ["b", 1, "once"]);
    await r.completeMessage(again);
    const graves = c.createReceiver(name, { subQueueType: "deadLetter" });
    const [dead] = await take(graves, 1);
    assert.deepEqual([dead.body, dead.deadLetterReason, dead.deadLetterErrorDescription, dead.applicationProperties.extra], ["c", "odd", "very odd", "e"]);
    await graves.completeMessage(dead);
    assert.deepEqual(await counts(name), { active: 0, dead: 0, scheduled: 0 });
  });

  await check("defer", async () => {
    const c = client();
    const name = await queue();
    await c.createSender(name).sendMessages(texts("a", "b", "c"));
    const r = c.createReceiver(name);
    const [a, b, d] = await take(r, 3);
    for (const m of [a, b, d]) await r.deferMessage(m);
    assert.deepEqual((await r.peekMessages(3)).map((m) => m.state), ["deferred", "deferred", "deferred"]);
    const got = await r.receiveDeferredMessages([a.sequenceNumber, b.sequenceNumber]);
    assert.deepEqual(bodies(got), ["a", "b"]);
    await r.completeMessage(got[0]);
    await r.deadLetterMessage(got[1], { deadLetterReason: "late" });
    const [gone] = await c.createReceiver(name, { receiveMode: "receiveAndDelete" }).receiveDeferredMessages(d.sequenceNumber);
    assert.equal(gone.body, "c");
    assert.deepEqual(await counts(name), { active: 0, dead: 1, scheduled: 0 });
    await refused(r.receiveDeferredMessages(d.sequenceNumber), "MessageNotFound");
  });

  await check("messages that are too old", async () => {
    const c = client();
    for (const deadLetteringOnMessageExpiration of [false, true]) {
      const name = await queue({ deadLetteringOnMessageExpiration, defaultMessageTimeToLive: "PT1S" });
      await c.createSender(name).sendMessages([{ body: "a", timeToLive: 3_600_000 }, { body: "b", timeToLive: 100 }]);
      await sleep(1100);
      assert.deepEqual(await c.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 200 }), []);
      assert.deepEqual(await counts(name), { active: 0, dead: deadLetteringOnMessageExpiration ? 2 : 0, scheduled: 0 });
      if (deadLetteringOnMessageExpiration) {
        const dead = await take(c.createReceiver(name, { subQueueType: "deadLetter" }), 2);
        assert.deepEqual(dead.map((m) => m.deadLetterReason), ["TTLExpiredException", "TTLExpiredException"]);
      }
    }
  });

  await check("scheduled messages", async () => {
    const c = client();
    const name = await queue();
    const s = c.createSender(name);
    const hour = new Date(Date.now() + 3_600_000);
    const numbers = await s.scheduleMessages(texts("never", "nor this"), hour);
    await s.sendMessages([{ body: "not today", scheduledEnqueueTimeUtc: hour }, { body: "now" }]);
    assert.deepEqual(await counts(name), { active: 1, dead: 0, scheduled: 3 });
    await s.cancelScheduledMessages(numbers);
    await refused(s.cancelScheduledMessages(numbers), "MessageNotFound");
    const at = new Date(Date.now() + 1000);
    await s.scheduleMessages(texts("later"), at);
    await s.sendMessages({ body: "also later", scheduledEnqueueTimeUtc: at });
    const got = await take(c.createReceiver(name), 3);
    assert.deepEqual(bodies(got).sort(), ["also later", "later", "now"]);
    assert.ok(Date.now() >= at.getTime());
  });

  await check("sessions", async () => {
    const c = client();
    const name = await queue({ requiresSession: true });
    const s = c.createSender(name);
    await s.sendMessages([{ body: "r1", sessionId: "red" }, { body: "b1", sessionId: "blue" }, { body: "r2", sessionId: "red" }]);
    await refused(s.sendMessages({ body: "none" }), "GeneralError", "SessionId was not set");
    const red = await c.acceptNextSession(name);
    assert.equal(red.sessionId, "red");
    assert.ok(red.sessionLockedUntilUtc > new Date());
    await refused(client().acceptSession(name, "red"), "SessionCannotBeLocked");
    const got = await take(red, 2);
    assert.deepEqual(bodies(got), ["r1", "r2"]);
    for (const m of got) await red.completeMessage(m);
    assert.equal(await red.getSessionState(), null);
    await red.setSessionState("half-way");
    assert.ok(await red.renewSessionLock() > new Date());
    await red.close();
    const again = await c.acceptSession(name, "red");
    assert.equal(String(await again.getSessionState()), "half-way");
    const blue = await c.acceptNextSession(name);
    assert.equal(blue.sessionId, "blue");
    assert.deepEqual(bodies(await blue.peekMessages(5)), ["b1"]);
    await refused(c.createReceiver(name).receiveMessages(1, { maxWaitTimeInMs: 1000 }), "GeneralError", "requires sessions");
  });

  await check("a subscription that calls back", async () => {
    const c = client();
    const name = await queue();
    const got = [];
    let finish;
    const all = new Promise((resolve, reject) => { finish = { resolve, reject }; });
    c.createReceiver(name).subscribe({
      processMessage: async (m) => { got.push(m.body); if (got.length === 200) finish.resolve(); },
      processError: async (e) => finish.reject(e.error),
    }, { maxConcurrentCalls: 5 });
    const want = Array.from({ length: 200 }, (_, i) => i);
    await c.createSender(name).sendMessages(want.map((body) => ({ body })));
    await all;
    assert.deepEqual(got.sort((a, b) => a - b), want);
    while ((await counts(name)).active > 0) await sleep(20); // completed by the client
  });

  await check("topics and subscriptions", async () => {
    const c = client();
    await admin.createTopic("news");
    for (const name of ["one", "two"]) await admin.createSubscription("news", name, { maxDeliveryCount: 3 });
    await c.createSender("news").sendMessages(texts("a", "b"));
    const one = c.createReceiver("news", "one");
    const [a, b] = await take(one, 2);
    await one.completeMessage(a);
    await one.deadLetterMessage(b);
    const left = await admin.getSubscriptionRuntimeProperties("news", "one");
    assert.deepEqual([left.activeMessageCount, left.deadLetterMessageCount, left.totalMessageCount], [0, 1, 1]);
    assert.deepEqual(bodies(await take(c.createReceiver("news", "one", { subQueueType: "deadLetter" }), 1)), ["b"]);
    assert.deepEqual(bodies(await take(c.createReceiver("news", "two"), 2)), ["a", "b"]);
    await admin.deleteTopic("news");
  });

  await check("keys", async () => {
    const name = await queue();
    await client(SEND).createSender(name).sendMessages(texts("a"));
    const [m] = await take(client(LISTEN).createReceiver(name), 1);
    assert.equal(m.body, "a");
    await refused(client(LISTEN).createSender(name).sendMessages(texts("b")), "UnauthorizedAccess", "'Send' claim(s) are required");
    await refused(client(SEND).createReceiver(name).receiveMessages(1), "UnauthorizedAccess", "'Listen' claim(s) are required");
    await refused(client(ALL.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=d3Jvbmc=")).createSender(name).sendMessages(texts("c")), "UnauthorizedAccess");
    await refused(client().createSender("nowhere").sendMessages(texts("d")), "MessagingEntityNotFound", "could not be found");
  });

  for (const [name, options] of [
    ["TLS", once], ["WebSockets", { ...once, webSocketOptions: { webSocket: WebSocket } }],
  ]) {
    await check(`over ${name}`, async () => {
      const q = await queue();
      const c = client(TLS, options);
      await c.createSender(q).sendMessages([{ body: "x".repeat(200_000) }, { body: name }]);
      assert.deepEqual((await take(c.createReceiver(q), 2)).map((m) => m.body.length), [200_000, name.length]);
    });
  }

  await check("administration: queues", async () => {
    const name = await queue({ lockDuration: "PT30S", maxDeliveryCount: 4, userMetadata: "mine", maxSizeInMegabytes: 2048 });
    const q = await admin.getQueue(name);
    assert.deepEqual(
      [q.name, q.lockDuration, q.maxDeliveryCount, q.userMetadata, q.maxSizeInMegabytes, q.requiresSession, q.status, q.enablePartitioning],
      [name, "PT30S", 4, "mine", 2048, false, "Active", false],
    );
    assert.equal(await admin.queueExists(name), true);
    assert.equal(await admin.queueExists("nowhere"), false);
    await refused(admin.getQueue("nowhere"), "MessageEntityNotFoundError");
    await refused(admin.createQueue(name), "MessageEntityAlreadyExistsError");
    await refused(admin.createQueue("q", { requiresDuplicateDetection: true }), "ServiceError", "RequiresDuplicateDetection");
    assert.equal((await admin.updateQueue({ ...q, status: "SendDisabled" })).status, "SendDisabled");
    await refused(client().createSender(name).sendMessages(texts("a")), "MessagingEntityDisabled");
    const n = await admin.getQueueRuntimeProperties(name);
    assert.deepEqual([n.totalMessageCount, n.transferMessageCount, n.transferDeadLetterMessageCount, n.sizeInBytes], [0, 0, 0, 0]);
    assert.ok(n.modifiedAt >= n.createdAt && n.createdAt > new Date(Date.now() - 60_000));
    await admin.deleteQueue(name);
    await refused(admin.deleteQueue(name), "MessageEntityNotFoundError");
  });

  await check("administration: topics, subscriptions, rules", async () => {
    await admin.createTopic("board", { defaultMessageTimeToLive: "P1D" });
    assert.equal((await admin.getTopic("board")).defaultMessageTimeToLive, "P1D");
    await admin.createSubscription("board", "all", { lockDuration: "PT45S" });
    const s = await admin.getSubscription("board", "all");
    assert.deepEqual([s.topicName, s.subscriptionName, s.lockDuration, s.status], ["board", "all", "PT45S", "Active"]);
    assert.equal((await admin.updateSubscription({ ...s, status: "Disabled" })).status, "Disabled");
    assert.equal((await admin.getSubscription("board", "all")).status, "Disabled");
    await client().createSender("board").sendMessages(texts("a"));
    assert.equal((await admin.getSubscriptionRuntimeProperties("board", "all")).activeMessageCount, 1);
    await refused(client().createReceiver("board", "all").receiveMessages(1), "MessagingEntityDisabled");
    const rules = [];
    for await (const rule of admin.listRules("board", "all")) rules.push(rule.name);
    assert.deepEqual(rules, ["$Default"]);
    await refused(admin.createRule("board", "all", "big", { sqlExpression: "size > 10" }), "ServiceError", "Rules are not supported here");
    assert.equal((await admin.getTopicRuntimeProperties("board")).subscriptionCount, 1);
    await admin.deleteSubscription("board", "all");
    assert.equal(await admin.subscriptionExists("board", "all"), false);
    await admin.deleteTopic("board");
    assert.equal(await admin.topicExists("board"), false);
  });

  await check("administration: lists", async () => {
    const want = Array.from({ length: 110 }, (_, i) => `list${String(i).padStart(3, "0")}`);
    await admin.createTopic("lists");
    for (const name of want) await admin.createSubscription("lists", name);
    const got = [];
    for await (const s of admin.listSubscriptions("lists")) got.push(s.subscriptionName);
    assert.deepEqual(got, want);
    let pages = 0;
    for await (const page of admin.listSubscriptionsRuntimeProperties("lists").byPage({ maxPageSize: 50 })) pages += page.length > 0 ? 1 : 0;
    assert.equal(pages, 3);
    const names = [];
    for await (const q of admin.listQueues()) names.push(q.name);
    assert.ok(names.length > 10 && names.every((n) => n.startsWith("checked/")), `${names}`);
  });

  await check("administration: the namespace, and keys", async () => {
    assert.equal((await admin.getNamespaceProperties()).messagingSku, "Standard");
    await refused(new ServiceBusAdministrationClient(READER).getQueue("checked/queue0"), "UnauthorizedRequestError");
  });
  await Promise.all([lost, locks]);
}

run(main);
