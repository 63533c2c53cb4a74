"""Checks what a Cosmos account promises with Azure's own client for Python,
unmodified. Prints a line for each check, and exits with 1 if one failed.

Environment: ENDPOINT, KEY; CONTROL (address of the control endpoint).
"""
import json
import os
import sys
import time
import traceback
import urllib.request

from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey, exceptions

client = CosmosClient(os.environ["ENDPOINT"], os.environ["KEY"])
database = client.create_database_if_not_exists("python")
checks = []


def check(f):
    checks.append(f)
    return f


def refused(status, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except exceptions.CosmosHttpResponseError as e:
        assert e.status_code == status, e
        return
    raise AssertionError(f"not refused with {status}")


def container(name, paths=("/key",), kind="Hash", version=2, ru=30000):
    key = PartitionKey(path=list(paths) if kind == "MultiHash" else paths[0], kind=kind, version=version)
    return database.create_container_if_not_exists(name, partition_key=key, offer_throughput=ru)


@check
def items():
    c = container("items")
    made = c.create_item({"id": "1", "key": "ü", "n": 1})
    refused(409, c.create_item, {"id": "1", "key": "ü"})
    assert c.read_item("1", "ü")["_etag"] == made["_etag"]
    again = c.upsert_item({"id": "1", "key": "ü", "n": 2})
    assert again["_rid"] == made["_rid"] and again["_etag"] != made["_etag"]
    refused(412, c.replace_item, "1", {"id": "1", "key": "ü"}, etag=made["_etag"], match_condition=MatchConditions.IfNotModified)
    refused(404, c.read_item, "1", "other")
    for kind in ["a b", "ü日本", "a%41b", "a+b", "a'b", "a&b=c;d"]:
        c.create_item({"id": kind, "key": "%"})
        assert c.read_item(kind, "%")["id"] == kind
        c.delete_item(kind, "%")
    c.delete_item("1", "ü")
    refused(404, c.delete_item, "1", "ü")


@check
def queries():
    c = container("queries")
    for i in range(60):
        c.create_item({"id": f"id{i}", "key": f"k{i % 7}", "n": i})
    assert len(list(c.read_all_items(max_item_count=9))) == 60
    assert list(c.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)) == [60]
    assert list(c.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="k3")) == [9]
    found = c.query_items("SELECT c.n FROM c WHERE c.n >= @n", parameters=[{"name": "@n", "value": 57}], enable_cross_partition_query=True)
    assert sorted(d["n"] for d in found) == [57, 58, 59]
    many = c.read_items([(f"id{i}", f"k{i % 7}") for i in range(30)])
    assert len(many) == 30, len(many)


@check
def links():
    c = container("links")
    made = c.create_item({"id": "1", "key": "a", "n": 1})
    assert c.read_item(made, "a")["n"] == 1
    assert c.replace_item(made, {"id": "1", "key": "a", "n": 2})["n"] == 2
    c.delete_item(made, "a")
    refused(404, c.read_item, made, "a")


@check
def feed_ranges():
    c = container("ranges")
    for i in range(60):
        c.create_item({"id": f"id{i}", "key": f"k{i % 11}", "n": (i * 7) % 60})
    parts = [list(c.query_items("SELECT * FROM c", feed_range=r)) for r in c.read_feed_ranges()]
    assert len(parts) == 3 and sum(map(len, parts)) == 60, parts
    one = c.feed_range_from_partition_key("k3")
    assert len(list(c.query_items("SELECT * FROM c", feed_range=one))) == 6
    ordered = [d["n"] for d in c.query_items("SELECT c.n FROM c ORDER BY c.n", enable_cross_partition_query=True, max_item_count=7)]
    assert ordered == list(range(60)), ordered


@check
def policies():
    c = database.create_container_if_not_exists("policies", PartitionKey("/key"), default_ttl=1, unique_key_policy={"uniqueKeys": [{"paths": ["/mail"]}]})
    c.create_item({"id": "1", "key": "a", "mail": "x", "ttl": -1})
    refused(409, c.create_item, {"id": "2", "key": "a", "mail": "x"})
    c.create_item({"id": "3", "key": "a", "mail": "y"})
    until = time.monotonic() + 10
    while len(list(c.read_all_items())) != 1:
        assert time.monotonic() < until
        time.sleep(0.05)
    patched = c.patch_item("1", "a", [{"op": "add", "path": "/n", "value": 1}, {"op": "incr", "path": "/n", "value": 2}])
    assert patched["n"] == 3 and patched["mail"] == "x", patched
    refused(412, c.patch_item, "1", "a", [{"op": "set", "path": "/n", "value": 9}], filter_predicate="FROM c WHERE c.n = 4")
    refused(404, c.patch_item, "none", "a", [{"op": "add", "path": "/n", "value": 1}])
    refused(400, c.patch_item, "1", "a", [{"op": "move", "from": "/n", "path": "/m"}])
    assert c.read_item("1", "a")["n"] == 3
    refused(400, lambda: list(c.query_items_change_feed()))
    refused(400, lambda: list(c.query_items("SELECT DISTINCT c.key FROM c", enable_cross_partition_query=True)))


@check
def hierarchical():
    c = container("deep", ("/a", "/b"), "MultiHash")
    for i in range(12):
        c.create_item({"id": str(i), "a": f"a{i % 3}", "b": i})
    assert c.read_item("7", ["a1", 7])["b"] == 7
    assert len(list(c.query_items("SELECT * FROM c", partition_key=["a1"]))) == 4


@check
def batch():
    c = container("batch")
    done = c.execute_item_batch([("create", ({"id": "1", "key": "a"},)), ("upsert", ({"id": "2", "key": "a"},)), ("read", ("1",))], "a")
    assert [r["statusCode"] for r in done] == [201, 201, 200]
    try:
        c.execute_item_batch([("delete", ("1",)), ("create", ({"id": "2", "key": "a"},))], "a")
        raise AssertionError("not refused")
    except exceptions.CosmosBatchOperationError as e:
        assert [r["statusCode"] for r in e.operation_responses] == [424, 409]
    assert c.read_item("1", "a")["id"] == "1"


@check
def throughput():
    c = container("offer", ru=12000)
    assert c.get_throughput().offer_throughput == 12000
    assert c.replace_throughput(15000).offer_throughput == 15000
    assert len(list(c.read_feed_ranges())) == 2


@check
def split():
    c = container("split", ru=10000)
    for i in range(40):
        c.create_item({"id": str(i), "key": f"k{i}"})
    assert len(list(c.query_items("SELECT * FROM c", enable_cross_partition_query=True))) == 40
    body = json.dumps({"database": "python", "container": "split"}).encode()
    urllib.request.urlopen(urllib.request.Request(os.environ["CONTROL"] + "/split", body, method="POST")).read()
    assert len(list(c.query_items("SELECT * FROM c", enable_cross_partition_query=True, max_item_count=7))) == 40
    assert len(c.read_items([(str(i), f"k{i}") for i in range(40)])) == 40


failures = 0
for f in checks:
    began = time.monotonic()
    try:
        f()
        print(f"ok   {f.__name__} ({round((time.monotonic() - began) * 1000)} ms)", flush=True)
    except Exception:
        failures += 1
        print(f"FAIL {f.__name__} ({round((time.monotonic() - began) * 1000)} ms)\n{traceback.format_exc()}", flush=True)
print(f"{failures} of {len(checks)} checks failed" if failures else f"all {len(checks)} checks passed")
sys.exit(1 if failures else 0)
