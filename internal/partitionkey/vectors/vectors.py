"""Prints testdata/python.json: effective partition keys of version 1 as azure-cosmos for Python computes them. Its strings are cut by characters, not
by UTF-16 units, so characters beyond U+FFFF are left out where that matters.

    pip install azure-cosmos && python3 vectors.py > ../testdata/python.json
"""
import importlib.metadata
import json

from azure.cosmos.partition_key import PartitionKey

texts = ["", "a", "redmond", "ü", "日本語", "😀", "x" * 99, "x" * 100, "x" * 101, "é" * 40, "é" * 50, "é" * 51, "é" * 150]
numbers = [0, 1, -1, 2, -2, 32, 131072, 127, -128, 0.1, -0.5, 1e10, 5e-324, 1e308]
key = PartitionKey(path="/key", kind="Hash", version=1)
vectors = []
for value in texts + numbers + [True, False]:
    value = float(value) if type(value) is int else value
    at = key._get_epk_range_for_partition_key([value])
    vectors.append({"kind": "Hash", "version": 1, "values": [value], "hash": at.min})
print(json.dumps({"source": "azure-cosmos " + importlib.metadata.version("azure-cosmos"), "vectors": vectors}).replace('}, {"kind', '},\n{"kind'))
