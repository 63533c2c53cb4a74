// Dead letters: search, look at one, retry and discard one or many, and what
// came of it.
import { $, ask, el, put, say, set } from "./dom.js";
import { ago, bytes, count, moment, plural } from "./format.js";
import { get, post } from "./api.js";

let letters = [];
let more = false;
let picked = new Set(); // ids
let now = Date.now();
let visible = false;
let open = null; // the dead letter in the drawer
let seen = "";
let loading; // aborts the request under way

export function reset() {
  letters = [];
  picked.clear();
  seen = "";
  $("runs").replaceChildren();
  delete $("runs").dataset.keys;
  rows();
}

export function show(on) {
  visible = on;
  if (on) load();
}

// update takes a tick: it loads the list again when dead letters were added or removed.
export function update(t) {
  now = t.now;
  put($("letters-sum"), t.dead < 0 ? "not known" : t.dead || t.retrying ? [`${count(t.dead)} open`, t.retrying && `${count(t.retrying)} retrying`].filter(Boolean).join(" · ") : "none");
  if (!visible) return;
  runs(t.runs);
  const state = JSON.stringify([t.dead, t.retrying, t.parked, t.redriven, t.runs]);
  if (state === seen || loading) return; // a request is under way: the next tick loads again
  seen = state;
  load();
}

const query = () => ({ search: $("search").value, status: $("status").value });

async function load(after) {
  loading?.abort();
  const mine = (loading = new AbortController());
  try {
    // Loading again keeps as many as were shown.
    const want = after ? 0 : letters.length;
    let found = after ? letters : [];
    let last = after;
    do {
      const page = await get("/api/dead-letters", { ...query(), after: last ?? "" }, mine.signal);
      found = found.concat(page.letters);
      more = page.more;
      last = found.at(-1)?.id;
    } while (more && found.length < want);
    letters = found;
    $("letters-error").hidden = true;
  } catch (e) {
    if (e.name === "AbortError") return;
    put($("letters-error"), e.message);
    $("letters-error").hidden = false;
    letters = [];
    more = false;
  }
  loading = null;
  const here = new Set(letters.map((l) => l.id));
  for (const id of picked) if (!here.has(id)) picked.delete(id);
  rows();
}

const STATUS = { dead: "dead", retry: "retrying", discarded: "discarded" };

function rows() {
  const body = $("letters").tBodies[0];
  const old = new Map([...body.children].map((tr) => [tr.dataset.key, tr]));
  const focused = document.activeElement;
  const list = letters.map((l) => {
    const key = JSON.stringify(l);
    return old.get(key) ?? row(l, key);
  });
  if (list.length !== body.children.length || list.some((tr, i) => tr !== body.children[i])) {
    body.replaceChildren(...list);
    const again = focused?.isConnected ? focused : focused?.dataset?.letter && body.querySelector(`[data-letter="${focused.dataset.letter}"]`);
    if (again) again.focus({ preventScroll: true });
  }
  for (const [i, tr] of list.entries()) {
    put(tr.querySelector(".when"), ago(letters[i].failedAt, now));
  }
  const searched = $("search").value.trim() !== "" || $("status").value !== "";
  put($("letters-empty"), searched ? "No results." : "No dead letters. Every event was handled.");
  $("letters-empty").hidden = letters.length > 0 || !$("letters-error").hidden;
  document.querySelector("#page-dead-letters .scroll").hidden = letters.length === 0;
  $("letters-more").hidden = !more;
  selection();
}

function row(l, key) {
  const box = el("input", { type: "checkbox", "aria-label": `Select dead letter ${l.id}`, "data-letter": `box-${l.id}` });
  box.addEventListener("change", () => {
    if (box.checked) picked.add(l.id);
    else picked.delete(l.id);
    selection();
  });
  const td = (name, className, ...children) => el("td", { role: "cell", class: className, "data-name": name }, ...children);
  return el("tr", { role: "row", "data-key": key, "data-id": l.id },
    td(null, "check", box),
    el("th", { role: "rowheader", scope: "row", "data-name": "Event" }, `${l.partition} / ${l.sequence}`),
    td("key", "key", l.key ?? ""),
    td(null, "message", el("button", { type: "button", "data-letter": `open-${l.id}`, onclick: () => look(l.id) }, l.error || "no reason given")),
    td("attempts", "n", count(l.attempts)),
    td("failed", "n", el("span", { class: "when", title: moment(l.failedAt) })),
    td(null, "status", el("span", { class: "state", "data-state": l.status }, STATUS[l.status] ?? l.status)));
}

// selection shows what is selected and what can be done with it.
function selection() {
  for (const tr of $("letters").tBodies[0].children) {
    const on = picked.has(Number(tr.dataset.id));
    const box = tr.querySelector("input");
    box.checked = on;
    set(tr, "aria-selected", on ? "true" : null);
  }
  const n = picked.size;
  const all = $("check-all");
  all.checked = n > 0 && n === letters.length;
  all.indeterminate = n > 0 && n < letters.length;
  for (const [id, verb] of [["retry", "Retry"], ["discard", "Discard"]]) {
    $(id).disabled = n === 0;
    put($(id), n ? `${verb} ${count(n)}` : verb);
  }
  $("found").hidden = letters.length < 2;
  put($("found-text"), n ? `${count(n)} of ${count(letters.length)}${more ? "+" : ""} selected.` : `${count(letters.length)}${more ? "+" : ""} found.`);
}

async function act(verb, body) {
  try {
    const so = await post(`/api/dead-letters/${verb}`, body);
    if (verb === "discard") say(`${plural(so.letters, "dead letter", "dead letters")} discarded. They stay listed as such.`);
    else if (so.letters === 0) say("No dead letters left to retry.");
    if (so.more) say(`These were the first ${count(so.letters)}: there may be more.`);
    picked.clear();
    await load();
  } catch (e) {
    say(e.message);
  }
}

const chosen = () => ({ ids: [...picked] });
$("retry").addEventListener("click", () => act("retry", chosen()));
$("discard").addEventListener("click", () => act("discard", chosen()));
$("retry-found").addEventListener("click", async () => {
  if (await ask("Retry all dead letters that the search finds?", "Retry all")) act("retry", { all: true, ...query() });
});
$("discard-found").addEventListener("click", async () => {
  if (await ask("Discard all dead letters that the search finds? Their events have no effect then.", "Discard all")) act("discard", { all: true, ...query() });
});
$("check-all").addEventListener("change", (e) => {
  picked = new Set(e.target.checked ? letters.map((l) => l.id) : []);
  selection();
});
$("letters-more").addEventListener("click", () => load(letters.at(-1)?.id));
$("letters-form").addEventListener("submit", (e) => { e.preventDefault(); fresh(); });
$("status").addEventListener("change", fresh);
let typing;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(fresh, 250); });

function fresh() {
  clearTimeout(typing);
  letters = [];
  picked.clear();
  load();
}

// runs shows the results of retries.
function runs(list) {
  const node = $("runs");
  const keys = JSON.stringify(list);
  if (node.dataset.keys === keys) return;
  node.dataset.keys = keys;
  node.replaceChildren(...list.map((r) => {
    const parts = [r.applied && `${count(r.applied)} applied`, r.failed && `${count(r.failed)} failed again`, r.discarded && `${count(r.discarded)} discarded meanwhile`, r.waiting && `${count(r.waiting)} waiting for the partition’s owner`];
    const text = `Retry of ${plural(r.marked, "dead letter", "dead letters")}: ${parts.filter(Boolean).join(", ") || "running"}${r.error ? ` (${r.error})` : ""}.`;
    const level = r.failed || r.error ? "bad" : r.ended ? "good" : "wait";
    const failures = (r.failures ?? []).map((f) => el("li", {}, `event ${f.partition} / ${f.sequence}: ${f.error}`));
    return el("div", { "data-level": level }, text, failures.length > 0 && el("ul", {}, ...failures));
  }));
}

// look opens a dead letter in the drawer.
async function look(id) {
  try {
    open = await get(`/api/dead-letters/${id}`);
  } catch (e) {
    say(e.message);
    load();
    return;
  }
  const l = open;
  put($("letter-title"), `Event ${l.partition} / ${l.sequence}`);
  const facts = [
    ["Status", STATUS[l.status] + (l.nextAttempt ? `, at ${moment(l.nextAttempt)}` : "")], ["Failed", `${moment(l.failedAt)}, after ${plural(l.attempts, "attempt", "attempts")}`],
    ["Partition", l.partition], ["Sequence number", l.sequence], ["Offset", l.offset], ["Enqueued", l.enqueued && moment(l.enqueued)], ["Key", l.key],
    ["Message id", l.messageId], ["Correlation id", l.correlationId], ["Content type", l.contentType], ["Incarnation", l.incarnation], ["Dead letter", l.id],
  ].filter(([, value]) => value != null && value !== "");
  const properties = Object.entries(l.properties ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const table = (list) => el("dl", { class: "facts" }, ...list.flatMap(([name, value]) => [el("dt", {}, String(name)), el("dd", {}, String(value))]));
  $("letter-content").replaceChildren(
    el("h3", {}, "Error"), el("pre", { class: "why" }, l.error || "no reason given"),
    el("h3", {}, `Body${l.hasBody ? `, ${bytes(l.size)}` : ""}`), body(l),
    ...(properties.length ? [el("h3", {}, "Properties"), table(properties)] : []),
    el("h3", {}, "Event"), table(facts));
  $("letter-discard").hidden = l.status === "discarded";
  $("letter").showModal();
  $("letter-content").scrollTop = 0;
}

function body(l) {
  if (!l.hasBody) return el("p", { class: "quiet" }, "The body is not stored: a retry reads it from the log.");
  const about = [l.bytes && "The body is not text.", l.cut && "It begins with:"].filter(Boolean).join(" ");
  return el("div", {}, about && el("p", { class: "quiet" }, about), el("pre", {}, l.bytes ? hex(atob(l.bytes)) : l.text ?? ""));
}

const hex = (s) => [...s].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ").replace(/(.{48})/g, "$1\n");

for (const verb of ["retry", "discard"]) {
  $(`letter-${verb}`).addEventListener("click", () => {
    $("letter").close();
    act(verb, { ids: [open.id] });
  });
}
