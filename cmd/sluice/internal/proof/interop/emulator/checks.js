// What the checks in JavaScript share: each prints a line, may take two minutes,
// and has its own clients.
"use strict";

const assert = require("node:assert/strict");
const { AsyncLocalStorage } = require("node:async_hooks");

let checks = 0;
let failures = 0;
const clients = new AsyncLocalStorage(); // those of each check, which are closed at its end
const open = { push: (c) => clients.getStore().push(c), unshift: (c) => clients.getStore().unshift(c) };

async function check(name, f) {
  checks++;
  const began = Date.now();
  const own = [];
  let deadline;
  try {
    const late = new Promise((_, reject) => { deadline = setTimeout(() => reject(new Error("took more than two minutes")), 120_000); });
    await Promise.race([clients.run(own, f), late]);
    console.log(`ok   ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    failures++;
    console.log(`FAIL ${name} (${Date.now() - began} ms)\n${e.stack ?? e}`);
  } finally {
    clearTimeout(deadline);
    await Promise.all(own.map((c) => c.close().catch(() => {})));
  }
}

// refused checks that a promise is rejected with Azure's code and message.
async function refused(promise, code, ...words) {
  const e = await promise.then((v) => { throw new Error(`was not refused: ${JSON.stringify(v)}`); }, (err) => err);
  assert.equal(e.code, code, e.stack);
  for (const text of words) assert.ok(e.message.includes(text), `${e.message} does not contain ${text}`);
}

// run runs all checks, and exits with 1 if one failed.
function run(main) {
  main().catch((e) => { failures++; console.log(`FAIL outside of the checks\n${e.stack}`); }).finally(() => {
    console.log(failures === 0 ? `all ${checks} checks passed` : `${failures} of ${checks} checks failed`);
    process.exit(failures === 0 ? 0 : 1);
  });
}

module.exports = { check, run, open, refused };
