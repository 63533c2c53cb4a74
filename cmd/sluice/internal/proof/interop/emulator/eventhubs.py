"""Checks what an event hub promises with Azure's own client for Python, unmodified.

Prints a line for each check, and exits with 1 if one failed. The client mostly
waits, so the checks run concurrently, each with an event hub of its own.

Environment: HUBS (names of event hubs with 4 partitions, empty, and the consumer
group audit, separated by spaces), ALL, LISTEN and SEND (connection strings with
these rights), TLS (one for the TLS port) and CERT (the certificate to trust there),
IDLE (one for a server that cuts silent connections after 15 s), CONTROL (address of
the control endpoint).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import sys
import threading
import time
import traceback
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.eventhub._buffered_producer._partition_resolver import generate_hash_code
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumerClient, EventHubProducerClient as AsyncProducerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, EventDataSendError, EventHubError

ALL, LISTEN, SEND, TLS, IDLE = (os.environ[name] for name in ("ALL", "LISTEN", "SEND", "TLS", "IDLE"))
HUBS, CERT, CONTROL = os.environ["HUBS"].split(), os.environ["CERT"], os.environ["CONTROL"]
PATIENCE = 60  # seconds that anything may take
ONCE = {"retry_total": 0}
PATIENT = {"retry_total": 20, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.2}

mine = threading.local()  # mine.hub is the event hub of the thread's check

logging.getLogger("azure").setLevel(logging.CRITICAL)  # what it logs is what the checks provoke


def producer(connection=None, hub=None, **options):
    return EventHubProducerClient.from_connection_string(connection or ALL, eventhub_name=hub or mine.hub, **{**ONCE, **options})


def consumer(connection=None, group="$Default", **options):
    return EventHubConsumerClient.from_connection_string(connection or ALL, group, eventhub_name=mine.hub, **{**ONCE, **options})


class Reading:
    """Reads a partition in a thread of its own."""

    def __init__(self, partition, start="-1", inclusive=False, client=None, **options):
        self.events, self.errors, self.metrics = [], [], None
        self.changed = threading.Condition()
        self.client = client or consumer()
        self.thread = threading.Thread(target=self.run, daemon=True, kwargs={
            "partition_id": partition, "starting_position": start, "starting_position_inclusive": inclusive, **options})
        self.thread.start()

    def run(self, **options):
        self.client.receive_batch(self.on_events, on_error=self.on_error, max_wait_time=0.1, **options)

    def on_events(self, context, events):
        with self.changed:
            self.events += events
            self.metrics = context.last_enqueued_event_properties or self.metrics
            self.changed.notify_all()

    def on_error(self, context, error):
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def until(self, met):
        with self.changed:
            if not self.changed.wait_for(met, PATIENCE):
                raise TimeoutError(f"{len(self.events)} events, errors {self.errors}")

    def take(self, n):
        """Returns the bodies of the next n events."""
        self.until(lambda: len(self.events) >= n or self.errors)
        if self.errors:
            raise self.errors[0]
        taken, self.events = self.events[:n], self.events[n:]
        return [e.body_as_str() for e in taken]

    def fails(self):
        self.until(lambda: self.errors)
        raise self.errors[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.thread.join(PATIENCE)


def expect(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what} got {got!r}, want {want!r}")


def refused(do, kind, *texts):
    """Checks that a call fails in the way and with the words of Azure."""
    try:
        got = do()
    except kind as e:
        for text in texts:
            if text not in str(e):
                raise AssertionError(f"{e!r} doesn't say {text}") from e
        return
    raise AssertionError(f"went through: {got!r}")


def control(path, **body):
    request = urllib.request.Request(CONTROL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def hits(fault):
    with urllib.request.urlopen(CONTROL + "/faults") as answer:
        return next(f["hits"] for f in json.load(answer) if f["id"] == fault)


def send(bodies, client=None, **where):
    with client or producer() as p:
        p.send_batch([EventData(b) for b in bodies], **where)


def next_number(partition, client=None):
    with client or producer() as p:
        return p.get_partition_properties(partition)["last_enqueued_sequence_number"] + 1


checks, disturbing = [], []  # name and function; those that disturb all others come after them


def check(name, among=checks):
    def register(f):
        among.append((name, f))
        return f
    return register


@check("properties of the hub")
def _():
    with producer() as p:
        hub = p.get_eventhub_properties()
        expect(hub["eventhub_name"], mine.hub)
        expect(hub["partition_ids"], ["0", "1", "2", "3"])
        age = datetime.now(timezone.utc) - hub["created_at"]
        expect(abs(age) < timedelta(minutes=10), True, f"created at {hub['created_at']}:")
    with consumer() as c:
        expect(c.get_partition_ids(), ["0", "1", "2", "3"])


@check("properties of an empty partition")
def _():
    with producer() as p:
        got = p.get_partition_properties("3")
    expect((got["eventhub_name"], got["id"], got["is_empty"]), (mine.hub, "3", True))
    expect((got["beginning_sequence_number"], got["last_enqueued_sequence_number"], got["last_enqueued_offset"]), (0, -1, "-1"))


@check("send to the hub: in turn, a batch into one partition")
def _():
    with producer() as p:
        for _ in range(8):
            p.send_batch([EventData("turn"), EventData("turn")])
        expect([p.get_partition_properties(str(i))["last_enqueued_sequence_number"] for i in range(4)], [3, 3, 3, 3])


@check("events come out as they went in")
def _():
    event = EventData(b"\x00\x01\xff")
    event.properties = {"n": 1, "s": "ü", "b": True}
    event.content_type, event.correlation_id, event.message_id = "text/plain", "c1", "m1"
    with producer() as p:
        p.send_batch([event, EventData("text")], partition_id="0")
    with Reading("0") as r:
        r.until(lambda: len(r.events) >= 2 or r.errors)
        expect(r.errors, [])
        first, second = r.events
        expect((b"".join(first.body), second.body_as_str()), (b"\x00\x01\xff", "text"))
        expect({k.decode(): v.decode() if isinstance(v, bytes) else v for k, v in first.properties.items()}, {"n": 1, "s": "ü", "b": True})
        expect((first.content_type, first.correlation_id, first.message_id), ("text/plain", "c1", "m1"))
        expect([e.sequence_number for e in r.events], [0, 1])
        expect(all(e.offset.isdigit() for e in r.events), True)
        expect(abs(datetime.now(timezone.utc) - first.enqueued_time) < timedelta(minutes=1), True, "enqueued time:")


@check("a key's partition is the one that the client would choose")
def _():
    # The client differs from Azure's others where its hash is negative: it takes the modulus first, then the absolute value. It also hashes code
    # points instead of UTF-8.
    keys = [key for key in (f"flight {n}" for n in range(40)) if generate_hash_code(key) >= 0]
    expect(len(keys) >= 10, True, f"{len(keys)} keys:")
    chosen, found = {}, {}

    def sent(events, partition):
        chosen.update({e.body_as_str(): partition for e in events})

    def failed(events, partition, error):
        raise error

    with producer(buffered_mode=True, on_success=sent, on_error=failed, max_wait_time=0.05) as p:
        for key in keys:
            p.send_event(EventData(key), partition_key=key)
        p.flush()
    with producer() as p:
        for key in keys:
            p.send_batch([EventData(key + " again")], partition_key=key)
        batch = p.create_batch(partition_key=keys[0])
        batch.add(EventData(keys[0] + " again"))
        p.send_batch(batch)
        ends = [p.get_partition_properties(str(i))["last_enqueued_sequence_number"] + 1 for i in range(4)]
    expect(sum(ends), 2 * len(keys) + 1)
    for i, n in enumerate(ends):
        if n == 0:
            continue
        with Reading(str(i)) as r:
            r.until(lambda: len(r.events) >= n or r.errors)
            expect(r.errors, [])
            for e in r.events:
                found[e.body_as_str()] = str(i)
                if e.body_as_str().endswith(" again"):
                    expect(e.partition_key.decode() + " again", e.body_as_str())
    for key in keys:
        expect(found[key], chosen[key], key)
        expect(found[key + " again"], chosen[key], f"{key}, by the hub:")


@check("batches are filled up to the limit")
def _():
    with producer() as p:
        batch = p.create_batch(partition_id="1")
        expect(batch.max_size_in_bytes, 1 << 20)
        try:
            while True:
                batch.add(EventData(b"x" * 50_000))
        except ValueError:
            pass
        expect(len(batch), 20)
        p.send_batch(batch)
        refused(lambda: p.create_batch(max_size_in_bytes=2 << 20), ValueError, "Max message size")
    expect(next_number("1"), 20)


@check("what is too large is refused, and the client goes on")
def _():
    with producer() as p:
        refused(lambda: p.send_batch([EventData(b"x" * (2 << 20))], partition_id="1"), ValueError, "exceeds the Event Hub frame size limit")
        refused(lambda: p.send_batch([EventData(b"x" * 500_000)] * 3, partition_id="1"), ValueError, "exceeds the Event Hub frame size limit")
        refused(lambda: p.send_event(EventData(b"x" * (1 << 20)), partition_id="1"), EventHubError, "exceeds the limit")
        p.send_batch([EventData("small")], partition_id="1")
    expect(next_number("1"), 1)


@check("every kind of start position")
def _():
    with producer() as p:
        for body in "01":
            p.send_batch([EventData(body)], partition_id="2")
        control("/faults", kind="delay", on="send", hub=mine.hub, delay="5ms", times=1)  # times have a precision of a millisecond
        p.send_batch([EventData("2")], partition_id="2")
    with Reading("2") as r:
        r.until(lambda: len(r.events) == 3 or r.errors)
        first, second = r.events[:2]
        expect(r.take(3), ["0", "1", "2"], "earliest")
    for name, start, inclusive, want in [
        ("offset", second.offset, False, ["2"]),
        ("offset, inclusive", second.offset, True, ["1", "2"]),
        ("sequence number", 0, False, ["1", "2"]),
        ("sequence number, inclusive", 1, True, ["1", "2"]),
        ("before everything", first.enqueued_time - timedelta(milliseconds=1), False, ["0", "1", "2"]),
        ("enqueued time", second.enqueued_time, False, ["2"]),
    ]:
        with Reading("2", start, inclusive) as r:
            expect(r.take(len(want)), want, name)
    with Reading("2", "@latest", owner_level=1) as r:
        while True:  # it is there once a plain reader beside it is refused
            with Reading("2") as probe:
                probe.until(lambda: probe.events or probe.errors)
            if probe.errors:
                break
        send(["new"], partition_id="2")
        expect(r.take(1), ["new"])


@check("epochs: a lower one and none are refused, a higher one takes over")
def _():
    send("012", partition_id="2")
    everything = ["0", "1", "2"]
    with Reading("2", owner_level=5) as middle:
        expect(middle.take(3), everything)
        with Reading("2", owner_level=4) as low, Reading("2") as plain, Reading("2", client=consumer(group="audit")) as other:
            refused(low.fails, EventHubError, "with a higher epoch '5' already exists")
            refused(plain.fails, EventHubError, "created with epoch of '5'")
            expect(other.take(3), everything)
        expect(middle.errors, [])
        with Reading("2", owner_level=6) as high:
            expect(high.take(3), everything)
            refused(middle.fails, EventHubError, "New receiver", "with higher epoch of '6' is created")
    with Reading("2") as plain:
        expect(plain.take(3), everything)


@check("plain readers give way to an epoch")
def _():
    send("012", partition_id="2")
    with Reading("2") as plain:
        plain.take(3)
        with Reading("2", owner_level=0) as owner:
            owner.take(3)
            refused(plain.fails, EventHubError, "New receiver", "with higher epoch of '0' is created")


@check("five plain readers, not six")
def _():
    send("012", partition_id="2")
    with ExitStack() as stack:
        five = [stack.enter_context(Reading("2")) for _ in range(5)]
        for r in five:
            r.take(3)
        with Reading("2") as sixth:
            refused(sixth.fails, EventHubError, "maximum number of allowed receivers", "which is 5")
        five[0].__exit__()
        with Reading("2") as another:
            another.take(3)


@check("receivers are told how far the partition reaches")
def _():
    send("012", partition_id="2")
    with Reading("2", track_last_enqueued_event_properties=True, max_batch_size=1) as r:
        r.take(1)
        expect(r.metrics["sequence_number"], 2)
        expect(r.metrics["offset"] is not None and r.metrics["enqueued_time"] is not None and r.metrics["retrieval_time"] is not None, True, str(r.metrics))


@check("an idle receiver stays, and gets what comes at last")
def _():
    with producer(IDLE) as p:
        start = p.get_partition_properties("0")["last_enqueued_sequence_number"]
    with Reading("0", start, client=consumer(IDLE), owner_level=1) as r:
        time.sleep(35)  # being idle is a matter of time
        expect(r.errors, [])
        send(["at last"], producer(IDLE), partition_id="0")
        expect(r.take(1), ["at last"])


# What the server says of a token or a request to $management, the client doesn't pass on, but its status.
NO_TOKEN, STATUS = "CBS Token authentication failed", "Status code: {}"


def altered(name, value):
    return ";".join(f"{name}={value}" if part.startswith(name + "=") else part for part in ALL.split(";"))


@check("a wrong key and an unknown one")
def _():
    for connection in altered("SharedAccessKey", "d3Jvbmc="), altered("SharedAccessKeyName", "nobody"):
        with producer(connection) as p:
            refused(p.get_eventhub_properties, AuthenticationError, NO_TOKEN)
            refused(lambda: p.send_batch([EventData("x")]), AuthenticationError, NO_TOKEN)
        with Reading("0", client=consumer(connection)) as r:
            refused(r.fails, AuthenticationError, NO_TOKEN)


def signed(hub, seconds):
    """A connection string with a token instead of a key, which expires in so many seconds."""
    field = dict(part.split("=", 1) for part in ALL.split(";"))
    resource = urllib.parse.quote_plus(f"sb://localhost/{hub}")
    expiry = int(time.time()) + seconds
    mac = hmac.new(field["SharedAccessKey"].encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote_plus(base64.b64encode(mac))
    token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={field['SharedAccessKeyName']}"
    return f"Endpoint={field['Endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true"


@check("a token: good, expired, for another hub")
def _():
    with producer(signed(mine.hub, 3600)) as p:
        p.send_batch([EventData("signed")], partition_id="0")
        expect(p.get_eventhub_properties()["eventhub_name"], mine.hub)
    with Reading("0", client=consumer(signed(mine.hub, 3600))) as r:
        expect(r.take(1), ["signed"])
    for connection in signed(mine.hub, -1), signed(mine.hub + "x", 3600):
        with producer(connection) as p:
            refused(p.get_eventhub_properties, AuthenticationError, NO_TOKEN)
            refused(lambda: p.send_batch([EventData("x")]), AuthenticationError, NO_TOKEN)
        with Reading("0", client=consumer(connection)) as r:
            refused(r.fails, AuthenticationError, NO_TOKEN)


@check("a key without the right")
def _():
    with producer(LISTEN) as p:
        refused(lambda: p.send_batch([EventData("x")]), EventHubError, "'Send' claim(s) are required to perform this operation", f"/{mine.hub}'")
        expect(p.get_eventhub_properties()["eventhub_name"], mine.hub)
    with Reading("2", client=consumer(SEND)) as r:
        refused(r.fails, EventHubError, "'Listen' claim(s) are required to perform this operation")
    send(["sent"], producer(SEND), partition_id="2")
    with Reading("2", client=consumer(LISTEN)) as r:
        expect(r.take(1), ["sent"])
    with producer(SEND) as p:
        expect(p.get_eventhub_properties()["eventhub_name"], mine.hub)


@check("what isn't there")
def _():
    with producer(hub="none") as p:
        refused(p.get_eventhub_properties, AuthenticationError, NO_TOKEN)
        refused(lambda: p.send_batch([EventData("x")]), AuthenticationError, NO_TOKEN)
    with producer() as p:
        refused(lambda: p.get_partition_properties("4"), ConnectError, STATUS.format(404))
        refused(lambda: p.send_batch([EventData("x")], partition_id="4"), ConnectError, "Invalid partition 4")
    with Reading("0", client=consumer(group="unknown")) as r:
        refused(r.fails, EventHubError, "could not be found")
    with Reading("0", 5, inclusive=True) as r:
        refused(r.fails, EventHubError, "The supplied sequence number '5' is invalid")


def survives(disturb=None):
    """Sends events and reads them through a disturbance, and returns how many there are in the end and how many sends failed.

    Each event must come, in order; what was sent again may come again. What the server rejects, the client tries once more, by a new link, and leaves
    the rest to who uses it."""
    failed = 0
    with producer(**PATIENT) as p, Reading("0", client=consumer(**PATIENT)) as r:
        for i in range(30):
            while True:
                try:
                    p.send_batch([EventData(str(i))], partition_id="0")
                    break
                except EventDataSendError:
                    failed += 1
            if disturb and i % 10 == 5:
                r.until(lambda: r.errors or r.events and r.events[-1].body_as_str() == str(i))
                disturb()
        r.until(lambda: r.errors or r.events and r.events[-1].body_as_str() == "29")
        expect(r.errors, [])
        expect([e.sequence_number for e in r.events], list(range(len(r.events))))
        bodies = [e.body_as_str() for e in r.events]
        expect(list(dict.fromkeys(bodies)), [str(i) for i in range(30)])
        return len(bodies), failed


@check("dropped connections are made again", among=disturbing)
def _():
    dropped = []
    expect(survives(lambda: dropped.append(control("/connections/drop")["connections"])), (30, 0))
    expect(len(dropped) == 3 and all(dropped), True, f"{dropped} dropped:")


@check("detached links are made again")
def _():
    detached = []
    expect(survives(lambda: detached.append(control("/links/detach", hub=mine.hub, partition="0")["links"])), (30, 0))
    expect(len(detached) == 3 and all(detached), True, f"{detached} detached:")


def passes(failed=0, stored=30, **fault):
    @check(f"{fault['kind']} on {fault['on']} passes")
    def _():
        number = control("/faults", hub=mine.hub, partition="0", **fault)["id"]
        expect(survives(), (stored, failed))
        expect(hits(number), fault["times"])


passes(kind="server-busy", on="send", times=3, failed=2)
passes(kind="server-busy", on="receive", times=1)
passes(kind="detach", on="send", times=1, failed=1)
passes(kind="detach", on="receive", times=1)
passes(kind="drop", on="send", times=1)
passes(kind="drop", on="receive", times=1)
passes(kind="lose-answer", on="send", times=1, stored=31)
passes(kind="delay", on="send", times=1, delay="300ms")
passes(kind="server-busy", on="attach", times=1)


@check("a busy server is told")
def _():
    control("/faults", kind="server-busy", on="send", hub=mine.hub, times=1)
    with producer() as p:
        refused(lambda: p.send_batch([EventData("x")], partition_id="0"), EventDataSendError, "throttled", "com.microsoft:server-busy")
        control("/faults", kind="server-busy", on="manage", hub=mine.hub, times=1)
        refused(p.get_eventhub_properties, EventHubError, STATUS.format(503))


@check("all partitions at once, found by load balancing")
def _():
    for i in range(4):
        send(["balanced"], partition_id=str(i))
    seen, all_seen = set(), threading.Event()

    def on_event(context, event):
        if event is not None and event.body_as_str() == "balanced":
            seen.add(context.partition_id)
        if len(seen) == 4:
            all_seen.set()

    c = consumer(load_balancing_interval=0.2, load_balancing_strategy="greedy")
    thread = threading.Thread(target=c.receive, args=(on_event,), kwargs={"starting_position": "-1"}, daemon=True)
    thread.start()
    if not all_seen.wait(PATIENCE):
        raise TimeoutError(f"only partitions {seen} were read")
    c.close()
    thread.join(PATIENCE)


def over(name, **options):
    @check(f"over {name}")
    def _():
        # Of a connection string the client takes no port but where it is said to be for an emulator.
        options.update(connection_verify=CERT, custom_endpoint_address=TLS.split(";")[0].removeprefix("Endpoint="))
        with producer(TLS, **options) as p:
            expect(p.get_eventhub_properties()["eventhub_name"], mine.hub)
            p.send_batch([EventData("x" * 900_000), EventData(name)], partition_id="3")
        with Reading("3", client=consumer(TLS, **options)) as r:
            big, small = r.take(2)
        expect((len(big), small), (900_000, name))


over("TLS", transport_type=TransportType.Amqp)
# The client's own time limit of a TLS handshake is one second here. For AMQP it has none.
over("WebSockets", transport_type=TransportType.AmqpOverWebsocket, socket_timeout=10)


@check("the client for asyncio")
def _():
    async def through():
        async with AsyncProducerClient.from_connection_string(ALL, eventhub_name=mine.hub, **ONCE) as p:
            await p.send_batch([EventData("async")], partition_id="3")
            expect((await p.get_eventhub_properties())["eventhub_name"], mine.hub)
        got = []
        async with AsyncConsumerClient.from_connection_string(ALL, "$Default", eventhub_name=mine.hub, load_balancing_interval=0.5, **ONCE) as c:
            arrived = asyncio.Event()

            async def on_event(_, event):
                got.append(event.body_as_str())
                arrived.set()

            reading = asyncio.create_task(c.receive(on_event, partition_id="3", starting_position="-1"))
            await asyncio.wait_for(arrived.wait(), PATIENCE)
            await c.close()
            await reading
        expect(got, ["async"])

    asyncio.run(through())


telling = threading.Lock()


def tell(line):
    """Prints a line whole: checks run side by side."""
    with telling:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def run_check(name, f, hub):
    mine.hub = hub
    began = time.monotonic()
    try:
        f()
        passed, why = True, ""
    except Exception:  # whatever it is, the check has failed
        passed, why = False, "\n" + traceback.format_exc()
    tell(f"{'ok  ' if passed else 'FAIL'} {name} ({(time.monotonic() - began) * 1000:.0f} ms){why}")
    return passed


def main():
    all_checks = [(name, f, hub) for (name, f), hub in zip(checks + disturbing, HUBS, strict=False)]
    if len(all_checks) < len(checks + disturbing):
        sys.exit(f"{len(HUBS)} event hubs are too few for {len(checks + disturbing)} checks")
    with ThreadPoolExecutor(12) as pool:
        passed = list(pool.map(lambda c: run_check(*c), all_checks[:len(checks)]))
    passed += [run_check(*c) for c in all_checks[len(checks):]]
    failures = passed.count(False)
    print(f"all {len(passed)} checks passed" if failures == 0 else f"{failures} of {len(passed)} checks failed", flush=True)
    os._exit(1 if failures else 0)  # threads of a check that failed may hang


main()
