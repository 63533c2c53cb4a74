// Who reads which partition, and how far: rows come live, those that changed.
import { $, choice, el, put, say, set } from "./dom.js";
import { ago, count, plural, rate } from "./format.js";
import { post } from "./api.js";

let rows = new Map(); // by id: {data, tr, cells}
let order = { by: "id", down: false };
let shown = "all";
let now = 0;
let pausable = false;

const byNumber = (a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
const STATES = { reading: "reading", behind: "catching up", paused: "paused", stopped: "halted", stalled: "stalled", elsewhere: "elsewhere", free: "no owner", unknown: "unknown" };

choice(document.querySelectorAll("[data-show]"), (b) => { shown = b.dataset.show; arrange(); });
for (const th of document.querySelectorAll("#partitions th[data-sort]")) {
  th.querySelector("button").addEventListener("click", () => {
    const by = th.dataset.sort;
    order = { by, down: order.by === by ? !order.down : by !== "id" };
    for (const other of document.querySelectorAll("#partitions th[data-sort]")) set(other, "aria-sort", other === th ? (order.down ? "descending" : "ascending") : null);
    arrange();
  });
}

export function reset(canPause) {
  rows = new Map();
  pausable = canPause;
  $("partitions").tBodies[0].replaceChildren();
}

export function load(message) {
  if (message.all) {
    const here = new Set(message.rows.map((r) => r.id));
    for (const id of rows.keys()) if (!here.has(id)) rows.delete(id);
  }
  for (const data of message.rows) {
    const row = rows.get(data.id) ?? make(data.id);
    row.data = data;
    rows.set(data.id, row);
    fill(row);
  }
  // Rows don't move while the pointer or the focus is on them, so that a press hits the button that it was meant for.
  const pointed = $("partitions").tBodies[0].matches(":hover, :focus-within");
  if (message.all || (!pointed && (order.by !== "id" || shown !== "all"))) arrange();
  bars();
}

export function update(t) {
  now = t.now;
  const all = t.here + t.elsewhere + t.free + t.unknown;
  put($("partitions-sum"), [`${plural(all, "partition", "partitions")}`, t.here && `${count(t.here)} here`, t.elsewhere && `${count(t.elsewhere)} elsewhere`,
    t.free && `${count(t.free)} without an owner`, t.unknown && `${count(t.unknown)} not known`, t.paused && `${count(t.paused)} paused`].filter(Boolean).join(" · "));
  for (const row of rows.values()) age(row);
}

function make(id) {
  const cell = (name, className) => el("td", { role: "cell", class: className, "data-name": name });
  const c = {
    state: cell(null, "status"), lag: cell("lag", "n"), rate: cell("rate", "n"), position: cell("position", "n"), owner: cell(null, "owner"),
    epoch: cell("epoch", "n"), lease: cell("lease renewed", "n"), letters: cell("dead letters", "n"), act: cell(null, "act n"),
  };
  c.pill = el("span", { class: "state" });
  c.state.append(c.pill);
  c.number = el("span");
  c.bar = el("meter", { min: 0, max: 1, value: 0, "aria-hidden": "true" });
  c.lag.append(el("span", { class: "bar-cell" }, c.bar, c.number));
  return { id, cells: c, tr: el("tr", { role: "row" }, el("th", { role: "rowheader", scope: "row", "data-name": "Partition" }, id), c.state, c.lag, c.rate, c.position, c.owner, c.epoch, c.lease, c.letters, c.act) };
}

function fill({ data: r, cells: c }) {
  const state = r.state === "reading" && r.lag > Math.max(1000, 3 * r.rate) ? "behind" : r.state;
  set(c.pill, "data-state", state);
  put(c.pill, STATES[state] ?? state);
  set(c.pill, "title", r.error ?? null);
  put(c.number, r.lag < 0 ? "unknown" : count(r.lag));
  put(c.rate, r.state === "elsewhere" || r.state === "free" || r.state === "unknown" ? "" : `${rate(r.rate)}/s`);
  put(c.position, r.position === -3 ? "unknown" : r.position === -2 ? "none yet" : r.position === -1 ? "start" : count(r.position));
  put(c.owner, r.owner ?? "");
  set(c.owner, "title", r.owner ?? null);
  put(c.epoch, r.epoch || "");
  put(c.letters, r.letters ? count(r.letters) : "");
  const verb = !pausable ? "" : r.state === "paused" ? "Resume" : r.state === "reading" || r.state === "stalled" ? "Pause" : "";
  if (c.act.dataset.verb !== verb) {
    const focused = c.act.contains(document.activeElement);
    c.act.dataset.verb = verb;
    c.act.replaceChildren(...(verb ? [el("button", { type: "button", class: "tight", "aria-label": `${verb} partition ${r.id}`, onclick: () => turn(r.id, verb) }, verb)] : []));
    if (focused) c.act.firstChild?.focus();
  }
}

function age({ data: r, cells: c }) {
  put(c.lease, r.renewed && r.state !== "free" ? ago(r.renewed, now) : "");
}

// turn pauses or resumes a partition. The button stays enabled meanwhile, because
// disabling it would move the focus; pausing or resuming twice is harmless.
async function turn(id, verb) {
  try {
    await post(`/api/partitions/${encodeURIComponent(id)}/${verb.toLowerCase()}`);
    say(verb === "Pause" ? `Partition ${id} is paused. Its lease is kept.` : `Partition ${id} is resumed.`);
  } catch (e) {
    say(e.message);
  }
}

function bars() {
  let most = 1;
  for (const { data } of rows.values()) most = Math.max(most, data.lag);
  for (const { data, cells } of rows.values()) {
    const share = String(Math.max(0, data.lag) / most);
    if (cells.bar.getAttribute("value") !== share) cells.bar.setAttribute("value", share);
  }
}

function arrange() {
  const keep = ({ data: r }) => shown === "all" || (shown === "behind" ? r.lag > 0 : r.state === "stopped" || r.state === "stalled" || r.state === "free" || r.state === "paused" || r.letters > 0);
  const list = [...rows.values()].filter(keep);
  list.sort((a, b) => {
    const d = order.by === "id" ? byNumber(a.id, b.id) : (a.data[order.by] ?? 0) - (b.data[order.by] ?? 0) || byNumber(b.id, a.id);
    return order.down ? -d : d;
  });
  const body = $("partitions").tBodies[0];
  const same = body.children.length === list.length && list.every((r, i) => body.children[i] === r.tr);
  if (!same) {
    const focused = document.activeElement;
    body.replaceChildren(...list.map((r) => r.tr));
    if (focused && body.contains(focused)) focused.focus({ preventScroll: true });
  }
  $("partitions-empty").hidden = list.length > 0;
}
