// What the judges in JavaScript have in common: each check has a line, a minute,
// and clients of its own.
"use strict";

const assert = require("node:assert/strict");

let checks = 0;
let failures = 0;
const open = []; // clients of the check in progress, which are closed at its end

async function check(name, f) {
  checks++;
  const began = Date.now();
  let deadline;
  try {
    const late = new Promise((_, reject) => { deadline = setTimeout(() => reject(new Error("took more than a minute")), 60_000); });
    await Promise.race([f(), late]);
    console.log(`ok   ${name} (${Date.now() - began} ms)`);
  } catch (e) {
    failures++;
    console.log(`FAIL ${name} (${Date.now() - began} ms)\n${e.stack ?? e}`);
  } finally {
    clearTimeout(deadline);
    await Promise.all(open.splice(0).map((c) => c.close().catch(() => {})));
  }
}

// refused checks that a promise is rejected with the code and the words of Azure.
async function refused(promise, code, ...words) {
  const e = await promise.then((v) => { throw new Error(`went through: ${JSON.stringify(v)}`); }, (err) => err);
  assert.equal(e.code, code, e.stack);
  for (const text of words) assert.ok(e.message.includes(text), `${e.message} doesn't say ${text}`);
}

// judge runs all checks, and exits with 1 if one failed.
function judge(main) {
  main().catch((e) => { failures++; console.log(`FAIL the judge itself\n${e.stack}`); }).finally(() => {
    console.log(failures === 0 ? `all ${checks} checks passed` : `${failures} of ${checks} checks failed`);
    process.exit(failures === 0 ? 0 : 1);
  });
}

module.exports = { check, judge, open, refused };
