"""A receiver of flight records that counts flights and delays by airport, each record exactly once.

    python3 receiver.py

PORT          default: 8080
DATABASE      a file of SQLite; default: airports.db
WEBHOOK_KEY   if set, only requests that are signed with it are taken; whsec_ and base64, or text

Sluice posts each record at least once. The table received has the source and the id of every record
whose effect is in the table airports. Both are written in one transaction, so a record that comes
again has no second effect, whatever was killed in between.
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = os.environ.get("WEBHOOK_KEY", "")
LARGEST = 16 << 20  # bytes of a request
SCHEMA = """
CREATE TABLE IF NOT EXISTS received (source TEXT, id TEXT, PRIMARY KEY (source, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS airports (origin TEXT PRIMARY KEY, flights INTEGER NOT NULL, delay INTEGER NOT NULL);
"""

database = sqlite3.connect(os.environ.get("DATABASE", "airports.db"), isolation_level=None, check_same_thread=False)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = FULL")
database.executescript(SCHEMA)
lock = threading.Lock()  # one transaction at a time


def signed(headers, body):
    """Checks the signature of a request, see standardwebhooks.com."""
    secret = base64.b64decode(KEY[6:]) if KEY.startswith("whsec_") else KEY.encode()
    at = headers.get("webhook-timestamp", "")
    if not at.isdigit() or abs(time.time() - int(at)) > 300:
        return False
    content = f"{headers.get('webhook-id', '')}.{at}.".encode() + body
    want = "v1," + base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
    given = headers.get("webhook-signature", "").split()
    return any(hmac.compare_digest(want.encode(), one.encode()) for one in given)


def flight(event):
    """Returns origin and delay of a flight record, or raises ValueError."""
    data = event.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("origin"), str):
        raise ValueError("has no origin")
    if type(data.get("delay")) is not int:
        raise ValueError("has no whole number as delay")
    return data["origin"], data["delay"]


def store(events):
    """Applies the events in one transaction, and returns those that it rejects."""
    failed = []
    with lock:
        database.execute("BEGIN IMMEDIATE")
        try:
            for index, event in enumerate(events):
                try:
                    origin, delay = flight(event)
                except ValueError as error:
                    failed.append({"index": index, "error": str(error)})  # not stored: it may be redriven
                    continue
                new = database.execute("INSERT OR IGNORE INTO received VALUES (?, ?)", (event["source"], event["id"]))
                if new.rowcount == 0:
                    continue  # a repetition
                database.execute(
                    "INSERT INTO airports VALUES (?, 1, ?) ON CONFLICT (origin) "
                    "DO UPDATE SET flights = flights + 1, delay = delay + excluded.delay",
                    (origin, delay),
                )
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
    return failed


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > LARGEST:
            self.close_connection = True  # the body is not read
            return self.answer(413, {})
        body = self.rfile.read(length)
        if KEY and not signed(self.headers, body):
            return self.answer(401, {})
        try:
            events = json.loads(body)
        except ValueError as error:
            return self.answer(400, {"error": str(error)})
        try:
            failed = store(events)
        except Exception as error:  # such as a full disk: Sluice waits, and posts the batch again
            return self.answer(503, {"error": str(error)})
        self.answer(200, {"failed": failed})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
