// A receiver of flight records that counts flights and delays by airport, each record exactly once.
//
//     node receiver.js          (Node.js 22.13 or later, which has SQLite)
//
// PORT          default: 8080
// DATABASE      a file of SQLite; default: airports.db
// WEBHOOK_KEY   if set, only requests that are signed with it are taken; whsec_ and base64, or text
//
// Sluice posts each record at least once. The table received has the source and the id of every record
// whose effect is in the table airports. Both are written in one transaction, so a record that comes
// again has no second effect, whatever was killed in between.

const crypto = require("node:crypto");
const http = require("node:http");
const { DatabaseSync } = require("node:sqlite");

const key = process.env.WEBHOOK_KEY ?? "";
const secret = key.startsWith("whsec_") ? Buffer.from(key.slice(6), "base64") : Buffer.from(key);
const largest = 16 << 20; // bytes of a request

const database = new DatabaseSync(process.env.DATABASE ?? "airports.db");
database.exec(`
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS received (source TEXT, id TEXT, PRIMARY KEY (source, id)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS airports (origin TEXT PRIMARY KEY, flights INTEGER NOT NULL, delay INTEGER NOT NULL);
`);
const receive = database.prepare("INSERT OR IGNORE INTO received VALUES (?, ?)");
const count = database.prepare(`INSERT INTO airports VALUES (?, 1, ?) ON CONFLICT (origin)
  DO UPDATE SET flights = flights + 1, delay = delay + excluded.delay`);

// signed checks the signature of a request, see standardwebhooks.com.
function signed(headers, body) {
  const at = headers["webhook-timestamp"] ?? "";
  if (!(Math.abs(Date.now() / 1000 - Number(at)) <= 300)) return false;
  const mac = crypto.createHmac("sha256", secret).update(`${headers["webhook-id"]}.${at}.`).update(body);
  const want = Buffer.from("v1," + mac.digest("base64"));
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const given = Buffer.from(one);
    return given.length === want.length && crypto.timingSafeEqual(given, want);
  });
}

// flaw returns what is wrong with a flight record, undefined if nothing is.
function flaw({ data }) {
  if (typeof data?.origin !== "string") return "has no origin";
  if (!Number.isInteger(data.delay)) return "has no whole number as delay";
}

// store applies the events in one transaction, and returns those that it rejects.
function store(events) {
  const failed = [];
  database.exec("BEGIN IMMEDIATE");
  try {
    for (const [index, event] of events.entries()) {
      const error = flaw(event);
      if (error !== undefined) {
        failed.push({ index, error }); // not stored: it may be redriven
      } else if (receive.run(event.source, event.id).changes > 0) { // else it is a repetition
        count.run(event.data.origin, event.data.delay);
      }
    }
    database.exec("COMMIT");
  } catch (error) {
    database.exec("ROLLBACK");
    throw error;
  }
  return failed;
}

// handle returns the status and the answer to a request.
function handle(headers, body) {
  if (key !== "" && !signed(headers, body)) return [401, {}];
  let events;
  try {
    events = JSON.parse(body);
  } catch (error) {
    return [400, { error: error.message }];
  }
  try {
    return [200, { failed: store(events) }];
  } catch (error) { // such as a full disk: Sluice waits, and posts the batch again
    return [503, { error: error.message }];
  }
}

const server = http.createServer((request, response) => {
  const answer = (status, value) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(value));
  };
  const chunks = [];
  let size = 0;
  request.on("data", (chunk) => {
    size += chunk.length;
    if (size <= largest) chunks.push(chunk);
  });
  request.on("end", () => {
    if (size > largest) return answer(413, {});
    answer(...handle(request.headers, Buffer.concat(chunks)));
  });
});
server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
