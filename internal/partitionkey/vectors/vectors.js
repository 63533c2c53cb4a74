// Prints testdata/javascript.json: effective partition keys as @azure/cosmos computes them.
//   npm install @azure/cosmos && node vectors.js node_modules/@azure/cosmos > ../testdata/javascript.json
"use strict";
const path = require("path");
const root = path.resolve(process.argv[2]);
const { hashPartitionKey } = require(path.join(root, "dist/commonjs/utils/hashing/hash.js"));
const version = require(path.join(root, "package.json")).version;

const undef = {};
const strings = ["", "a", "aa", "redmond", "partitionKey", "a\u0000b", "\"\\", "ü", "日本語", "😀", "é".repeat(40), "x".repeat(15), "x".repeat(16), "x".repeat(17),
  "x".repeat(99), "x".repeat(100), "x".repeat(101), "x".repeat(2000), "é".repeat(99), "é".repeat(150), "😀".repeat(60), "x".repeat(99) + "😀" + "y"];
const numbers = [0, 1, -1, 2, -2, 3, 5, 0.1, -0.5, 127, -128, 1e10, 4.2e6, 131072, 1e308, -1e308, 5e-324, 9007199254740991, -9007199254740991, 1234567.891, 1 / 3];
for (let i = 0; i < 40; i++) strings.push("key-" + i * 1757);
for (let i = 0; i < 20; i++) numbers.push(i * 7919 + i / 7);
const all = [...strings, ...numbers, true, false, null, undef];

const native = (v) => (v !== null && typeof v === "object" ? undefined : v);
const vectors = [];
const add = (definition, values) =>
  vectors.push({ kind: definition.kind, version: definition.version, values, hash: hashPartitionKey(values.map((v) => (v === undef ? {} : native(v))), definition) });
for (const v of all) {
  add({ kind: "Hash", version: 1 }, [v]);
  add({ kind: "Hash", version: 2 }, [v]);
}
for (const values of [["a"], ["a", "b"], ["a", "b", "c"], ["tenant", 7, true], [null, undef, "x"], [undef, undef], [0.5, "é".repeat(30), false], ["", "", ""]])
  add({ kind: "MultiHash", version: 2 }, values);

console.log(JSON.stringify({ source: "@azure/cosmos " + version, vectors }, (k, v) => v).replace(/\},\{"kind/g, '},\n{"kind'));
