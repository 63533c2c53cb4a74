"""A judge of the emulator: Azure's own client for Python, unmodified.

It goes through what an event hub promises, prints a line for each check, and
exits with 1 if one failed.

Environment: HUB (the hub's name; 4 partitions, empty), ALL, LISTEN and SEND
(connection strings with these rights), TLS (one for the TLS port) and CERT (the
certificate to trust there), CONTROL (address of the control endpoint).
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
import traceback
import urllib.request
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, TransportType
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumerClient, EventHubProducerClient as AsyncProducerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, EventDataSendError, EventHubError

HUB, ALL, LISTEN, SEND, TLS = (os.environ[name] for name in ("HUB", "ALL", "LISTEN", "SEND", "TLS"))
CERT, CONTROL = os.environ["CERT"], os.environ["CONTROL"]
PATIENCE = 30  # seconds that anything may take
ONCE = {"retry_total": 0}
PATIENT = {"retry_total": 20, "retry_backoff_factor": 0.05, "retry_backoff_max": 0.2}

logging.getLogger("azure").setLevel(logging.CRITICAL)  # what it logs is what the checks provoke


def producer(connection=None, hub=None, **options):
    return EventHubProducerClient.from_connection_string(connection or ALL, eventhub_name=hub or HUB, **{**ONCE, **options})


def consumer(connection=None, group="$Default", **options):
    return EventHubConsumerClient.from_connection_string(connection or ALL, group, eventhub_name=HUB, **{**ONCE, **options})


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


def next_number(partition):
    with producer() as p:
        return p.get_partition_properties(partition)["last_enqueued_sequence_number"] + 1


checks = []


def check(name):
    def register(f):
        checks.append((name, f))
        return f
    return register


@check("properties of the hub")
def _():
    with producer() as p:
        hub = p.get_eventhub_properties()
        expect(hub["eventhub_name"], HUB)
        expect(hub["partition_ids"], ["0", "1", "2", "3"])
        age = datetime.now(timezone.utc) - hub["created_at"]
        expect(abs(age) < timedelta(minutes=10), True, f"created at {hub['created_at']}:")
    with consumer() as c:
        expect(c.get_partition_ids(), ["0", "1", "2", "3"])


@check("properties of an empty partition")
def _():
    with producer() as p:
        got = p.get_partition_properties("3")
    expect((got["eventhub_name"], got["id"], got["is_empty"]), (HUB, "3", True))
    expect((got["beginning_sequence_number"], got["last_enqueued_sequence_number"], got["last_enqueued_offset"]), (0, -1, "-1"))


@check("send to the hub: in turn, a batch into one partition")
def _():
    before = [next_number(str(i)) for i in range(4)]
    with producer() as p:
        for _ in range(8):
            p.send_batch([EventData("turn"), EventData("turn")])
    expect([next_number(str(i)) - n for i, n in enumerate(before)], [4, 4, 4, 4])


@check("events come out as they went in")
def _():
    start = next_number("0")
    event = EventData(b"\x00\x01\xff")
    event.properties = {"n": 1, "s": "ü", "b": True}
    event.content_type, event.correlation_id, event.message_id = "text/plain", "c1", "m1"
    with producer() as p:
        p.send_batch([event, EventData("text")], partition_id="0")
    with Reading("0", start, inclusive=True) as r:
        r.until(lambda: len(r.events) >= 2 or r.errors)
        expect(r.errors, [])
        first, second = r.events
        expect((b"".join(first.body), second.body_as_str()), (b"\x00\x01\xff", "text"))
        expect({k.decode(): v.decode() if isinstance(v, bytes) else v for k, v in first.properties.items()}, {"n": 1, "s": "ü", "b": True})
        expect((first.content_type, first.correlation_id, first.message_id), ("text/plain", "c1", "m1"))
        expect([e.sequence_number for e in r.events], [start, start + 1])
        expect(all(e.offset.isdigit() for e in r.events), True)
        expect(abs(datetime.now(timezone.utc) - first.enqueued_time) < timedelta(minutes=1), True, "enqueued time:")


@check("a key's partition is the one that the client would choose")
def _():
    keys = ["a", "b", "c", "d", "e", "naïve café", "x" * 100, "flight 4711", "\U0001F600"]
    start = [next_number(str(i)) for i in range(4)]
    chosen = {}

    def sent(events, partition):
        chosen.update({e.body_as_str(): partition for e in events})

    def failed(events, partition, error):
        raise error

    with producer(buffered_mode=True, on_success=sent, on_error=failed, max_wait_time=0.05) as p:
        for key in keys:
            p.send_event(EventData(key), partition_key=key)
        p.flush()
    for key in keys:
        send([key + " again"], partition_key=key)
    found = {}
    for i in range(4):
        n = next_number(str(i)) - start[i]
        if n > 0:
            with Reading(str(i), start[i], inclusive=True) as r:
                r.until(lambda: len(r.events) >= n or r.errors)
                for e in r.events:
                    found[e.body_as_str()] = str(i)
                    if e.body_as_str().endswith(" again"):
                        expect(e.partition_key.decode() + " again", e.body_as_str())
    for key in keys:
        expect(found[key], chosen[key], key)
        expect(found[key + " again"], chosen[key], f"{key}, by the hub:")


@check("batches are filled up to the limit")
def _():
    start = next_number("1")
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
    expect(next_number("1"), start + 20)


@check("what is too large is refused, and the client goes on")
def _():
    start = next_number("1")
    with producer() as p:
        refused(lambda: p.send_batch([EventData(b"x" * (2 << 20))], partition_id="1"), ValueError, "larger than max")
        refused(lambda: p.send_event(EventData(b"x" * (1 << 20)), partition_id="1"), (ValueError, EventHubError), "size")
        p.send_batch([EventData("small")], partition_id="1")
    expect(next_number("1"), start + 1)


@check("every kind of start position")
def _():
    control("/hubs/recreate", hub=HUB)
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    for body in "012":
        send([body], partition_id="2")
    with Reading("2") as r:
        r.until(lambda: len(r.events) == 3 or r.errors)
        second = r.events[1]
    for name, start, inclusive, want in [
        ("earliest", "-1", False, ["0", "1", "2"]),
        ("offset", second.offset, False, ["2"]),
        ("offset, inclusive", second.offset, True, ["1", "2"]),
        ("sequence number", 0, False, ["1", "2"]),
        ("sequence number, inclusive", 1, True, ["1", "2"]),
        ("enqueued time", before, False, ["0", "1", "2"]),
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
    with Reading("0", 5, inclusive=True) as r:
        refused(r.fails, EventHubError, "The supplied sequence number '5' is invalid")


@check("epochs: a lower one and none are refused, a higher one takes over")
def _():
    everything = ["0", "1", "2", "new"]
    with Reading("2", owner_level=5) as middle:
        expect(middle.take(4), everything)
        with Reading("2", owner_level=4) as low:
            refused(low.fails, EventHubError, "with a higher epoch '5' already exists")
        with Reading("2") as plain:
            refused(plain.fails, EventHubError, "created with epoch of '5'")
        expect(middle.errors, [])
        with Reading("2", client=consumer(group="audit")) as other:
            expect(other.take(4), everything)
        with Reading("2", owner_level=6) as high:
            expect(high.take(4), everything)
            refused(middle.fails, EventHubError, "New receiver", "with higher epoch of '6' is created")
    with Reading("2") as plain:
        expect(plain.take(4), everything)


@check("five plain readers, not six")
def _():
    with ExitStack() as stack:
        five = [stack.enter_context(Reading("2")) for _ in range(5)]
        for r in five:
            r.take(4)
        with Reading("2") as sixth:
            refused(sixth.fails, EventHubError, "maximum number of allowed receivers", "which is 5")
        five[0].client.close()
        with Reading("2") as another:
            another.take(4)


@check("receivers are told how far the partition reaches")
def _():
    with Reading("2", track_last_enqueued_event_properties=True, max_batch_size=1) as r:
        r.take(1)
        expect(r.metrics["sequence_number"], 3)
        expect(r.metrics["offset"] is not None and r.metrics["enqueued_time"] is not None and r.metrics["retrieval_time"] is not None, True, str(r.metrics))


def altered(name, value):
    return ";".join(f"{name}={value}" if part.startswith(name + "=") else part for part in ALL.split(";"))


@check("a wrong key and an unknown one")
def _():
    for connection in altered("SharedAccessKey", "d3Jvbmc="), altered("SharedAccessKeyName", "nobody"):
        with producer(connection) as p:
            refused(p.get_eventhub_properties, AuthenticationError, "InvalidSignature")
            refused(lambda: p.send_batch([EventData("x")]), AuthenticationError, "InvalidSignature")
        with Reading("0", client=consumer(connection)) as r:
            refused(r.fails, AuthenticationError, "InvalidSignature")


@check("a key without the right")
def _():
    with producer(LISTEN) as p:
        refused(lambda: p.send_batch([EventData("x")]), AuthenticationError, "'Send' claim(s) are required to perform this operation", f"/{HUB}'")
        expect(p.get_eventhub_properties()["eventhub_name"], HUB)
    with Reading("2", client=consumer(SEND)) as r:
        refused(r.fails, AuthenticationError, "'Listen' claim(s) are required to perform this operation")
    send(["sent"], producer(SEND), partition_id="2")
    with Reading("2", client=consumer(LISTEN)) as r:
        expect(r.take(5)[-1], "sent")
    with producer(SEND) as p:
        expect(p.get_eventhub_properties()["eventhub_name"], HUB)


@check("what isn't there")
def _():
    with producer(hub="none") as p:
        refused(p.get_eventhub_properties, ConnectError, "could not be found")
        refused(lambda: p.send_batch([EventData("x")]), ConnectError, "could not be found")
    with producer() as p:
        refused(lambda: p.get_partition_properties("4"), EventHubError, "could not be found")
        refused(lambda: p.send_batch([EventData("x")], partition_id="4"), EventHubError, "The specified partition is invalid")
    with Reading("0", client=consumer(group="unknown")) as r:
        refused(r.fails, ConnectError, "could not be found")


def survives(disturb=None):
    """Each event must come, in order; what was sent again may come again."""
    start = next_number("0")
    with producer(**PATIENT) as p, Reading("0", start, inclusive=True, client=consumer(**PATIENT)) as r:
        for i in range(30):
            p.send_batch([EventData(str(i))], partition_id="0")
            if disturb and i % 10 == 5:
                r.until(lambda: r.errors or r.events and r.events[-1].body_as_str() == str(i))
                disturb()
        r.until(lambda: r.errors or r.events and r.events[-1].body_as_str() == "29")
        expect(r.errors, [])
        expect([e.sequence_number for e in r.events], [start + i for i in range(len(r.events))])
        bodies = [e.body_as_str() for e in r.events]
        expect(list(dict.fromkeys(bodies)), [str(i) for i in range(30)])
        return len(bodies)


@check("dropped connections are made again")
def _():
    dropped = []
    expect(survives(lambda: dropped.append(control("/connections/drop")["connections"])), 30)
    expect(sum(dropped) >= 3, True, f"{dropped} dropped:")


@check("detached links are made again")
def _():
    detached = []
    expect(survives(lambda: detached.append(control("/links/detach", hub=HUB, partition="0")["links"])), 30)
    expect(sum(detached) >= 3, True, f"{detached} detached:")


def passes(**fault):
    @check(f"{fault['kind']} on {fault['on']} passes")
    def _():
        number = control("/faults", hub=HUB, partition="0", **fault)["id"]
        expect(survives(), 31 if fault["kind"] == "lose-answer" else 30)
        expect(hits(number), fault["times"])


passes(kind="server-busy", on="send", times=3)
passes(kind="server-busy", on="receive", times=1)
passes(kind="detach", on="send", times=1)
passes(kind="detach", on="receive", times=1)
passes(kind="drop", on="send", times=1)
passes(kind="drop", on="receive", times=1)
passes(kind="lose-answer", on="send", times=1)
passes(kind="delay", on="send", times=1, delay="300ms")
passes(kind="server-busy", on="attach", times=1)


@check("a busy server is told when nobody tries again")
def _():
    control("/faults", kind="server-busy", on="send", times=1)
    with producer() as p:
        refused(lambda: p.send_batch([EventData("x")], partition_id="0"), EventHubError, "throttled")
        control("/faults", kind="server-busy", on="manage", times=1)
        refused(p.get_eventhub_properties, EventHubError, "throttled")


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
        options.update(connection_verify=CERT)
        start = next_number("3")
        with producer(TLS, **options) as p:
            expect(p.get_eventhub_properties()["eventhub_name"], HUB)
            p.send_batch([EventData("x" * 900_000), EventData(name)], partition_id="3")
        with Reading("3", start, inclusive=True, client=consumer(TLS, **options)) as r:
            big, small = r.take(2)
        expect((len(big), small), (900_000, name))


over("TLS")
over("WebSockets", transport_type=TransportType.AmqpOverWebsocket)


@check("the client for asyncio")
def _():
    async def through():
        start = next_number("3")
        async with AsyncProducerClient.from_connection_string(ALL, eventhub_name=HUB, **ONCE) as p:
            await p.send_batch([EventData("async")], partition_id="3")
            expect((await p.get_eventhub_properties())["eventhub_name"], HUB)
        got = []
        async with AsyncConsumerClient.from_connection_string(ALL, "$Default", eventhub_name=HUB, **ONCE) as c:
            arrived = asyncio.Event()

            async def on_event(_, event):
                got.append(event.body_as_str())
                arrived.set()

            reading = asyncio.create_task(c.receive(on_event, partition_id="3", starting_position=start, starting_position_inclusive=True))
            await asyncio.wait_for(arrived.wait(), PATIENCE)
            await c.close()
            await reading
        expect(got, ["async"])

    asyncio.run(through())


def main():
    failures = 0
    for name, f in checks:
        began = time.monotonic()
        try:
            f()
            print(f"ok   {name} ({(time.monotonic() - began) * 1000:.0f} ms)", flush=True)
        except Exception:  # whatever it is, the check has failed
            failures += 1
            print(f"FAIL {name} ({(time.monotonic() - began) * 1000:.0f} ms)\n{traceback.format_exc()}", flush=True)
    print(f"all {len(checks)} checks passed" if failures == 0 else f"{failures} of {len(checks)} checks failed", flush=True)
    os._exit(1 if failures else 0)  # threads of a check that failed may hang


main()
