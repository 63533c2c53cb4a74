// Prints which partitions Azure's own client for JavaScript chooses by key, as JSON:
// keys with their hash, and the partition among each of several counts.
//
//	NODE_PATH=.dev/interop/node_modules node cmd/sluice/internal/proof/interop/emulator/vectors.js >internal/partitionkey/testdata/eventhubs.json
//
// The client does this in a part that it doesn't export.
"use strict";

const path = require("node:path");

const client = path.dirname(require.resolve("@azure/event-hubs/package.json"));
const { version } = require("@azure/event-hubs/package.json");
const { hashPartitionKey, mapPartitionKeyToId } = require(path.join(client, "dist", "commonjs", "impl", "partitionKeyToIdMapper.js"));

const counts = [2, 3, 4, 5, 7, 8, 10, 12, 16, 20, 24, 31, 32, 64, 100, 1000, 1024];
const sentence = "The quick brown fox jumps over the lazy dog, and lands on runway 27";

const keys = [
  ...Array.from(sentence, (_, i) => sentence.slice(0, i + 1)), // every length about the blocks of 12 bytes
  ...Array.from({ length: 100 }, (_, i) => `flight ${i}`),
  "a", "0", "7149583486996073602", "N12345", "JFK", "ключ", "航空機", "🛫🛬", "é", "naïve café", "ÿÿÿÿÿÿ",
  "\0", "\0".repeat(13), "\u07ff\u0800", "x".repeat(128), "ü".repeat(128),
];

const vectors = keys.map((key) => ({
  key,
  hash: hashPartitionKey(key),
  partitions: counts.map((n) => mapPartitionKeyToId(key, n)),
}));

const lines = vectors.map((v) => `    ${JSON.stringify(v)}`);
console.log(`{
  "client": "@azure/event-hubs ${version}",
  "counts": ${JSON.stringify(counts)},
  "vectors": [
${lines.join(",\n")}
  ]
}`);
