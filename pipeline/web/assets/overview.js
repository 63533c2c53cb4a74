// The overview: is all well, how fast, how much waits, what failed.
import { $, choice, el, put, set } from "./dom.js";
import { clock, count, milliseconds, plural, rate, short } from "./format.js";
import { Chart } from "./charts.js";

const KEYS = ["done", "bytes", "letters", "retries", "lag", "inFlight", "cost", "took", "longest"];
const SPAN = 900;

let times = [];
let columns = {};
let charts = [];
let mode;
let range = SPAN;
let visible = false;

choice(document.querySelectorAll("[data-range]"), (b) => {
  range = Number(b.dataset.range);
  put($("range-name"), range === 60 ? "minute" : `${range / 60} minutes`);
  draw();
});

export function reset(hasCharts) {
  times = [];
  columns = Object.fromEntries(KEYS.map((k) => [k, []]));
  charts.forEach((c) => c.end());
  charts = [];
  mode = undefined;
  for (const id of ["charts-head", "charts", "tile-rate", "tile-cost", "lately"]) $(id).hidden = !hasCharts;
}

// load puts in place what was before the page was opened.
export function load(history) {
  times = [];
  columns = Object.fromEntries(KEYS.map((k) => [k, []]));
  merge(history);
}

export function show(on) {
  visible = on;
  if (on) draw();
}

function merge(seconds) {
  const last = times.length ? times[times.length - 1] : -Infinity;
  seconds.done?.forEach((_, i) => {
    const at = seconds.from + i;
    if (at <= last) return;
    times.push(at);
    for (const k of KEYS) columns[k].push(seconds[k][i]);
  });
  const extra = times.length - SPAN;
  if (extra > 0) {
    times.splice(0, extra);
    for (const k of KEYS) columns[k].splice(0, extra);
  }
}

function prepare(t) {
  const next = t.charged ? "charged" : t.streaming ? "streaming" : "committing";
  if (mode === next) return;
  charts.forEach((c) => c.end());
  mode = next;
  const at = $("charts");
  const ms = (v) => { const m = milliseconds(v); return `${m.text} ${m.unit}`; };
  charts = [
    new Chart(at, t.streaming ? "Records written a second" : "Events a second", [{ key: "done", format: rate, fill: true }], { axis: short, least: 5 }),
    new Chart(at, "Lag", [{ key: "lag", format: count, fill: true }], { axis: short, least: 5 }),
    {
      charged: () => new Chart(at, "RU a second", [{ key: "cost", format: rate, fill: true }], { axis: short, least: 10 }),
      streaming: () => new Chart(at, "Events in flight", [{ key: "inFlight", format: count, fill: true }], { axis: short, least: 5 }),
      committing: () => new Chart(at, "Commits", [{ name: "mean", key: "took", format: ms }, { name: "longest", key: "longest", format: ms }], { axis: ms, least: 5 }),
    }[mode](),
    new Chart(at, "Errors", [{ name: "dead letters", key: "letters", format: count, colour: 2 }, { name: "retries", key: "retries", format: count, colour: 1 }], { axis: short, least: 4 }),
  ];
}

function draw() {
  if (!visible || !charts.length) return;
  const from = Math.max(0, times.length - range);
  const x = times.slice(from);
  for (const c of charts) c.show([x, ...c.series.map((s) => columns[s.key].slice(from))]);
}

export function update(t) {
  if (t.seconds) {
    merge(t.seconds);
    prepare(t);
    if (visible) draw();
  }
  if (!visible) return;
  verdict(t);
  list($("troubles"), t.trouble, (x) => x.level + x.text, (x) => el("li", { "data-level": x.level }, x.text));
  tiles(t);
  events(t);
}

const total = (t) => t.here + t.elsewhere + t.free + t.unknown;

function verdict(t) {
  const all = total(t);
  const are = (level) => t.trouble.some((x) => x.level === level);
  let [level, text] =
    !t.known || !all ? ["wait", "Reading the stores…"]
    : are("bad") ? ["bad", "Operator action required."]
    : are("warn") ? ["warn", "Events flow, with warnings."]
    : t.free === all ? ["wait", "No partition has an owner yet."]
    : t.free ? ["good", `Acquiring partitions: ${count(all - t.free)} of ${count(all)}.`]
    : t.lag < 0 ? ["wait", "Reading the lag…"]
    : t.lag > Math.max(1000, 3 * t.rate) ? ["good", `Catching up: ${plural(t.lag, "event", "events")} behind.`]
    : ["good", `Events flow: ${plural(all, "partition", "partitions")}${t.seen === all ? ", all up to date" : ""}.`];
  if (level === "good" && t.paused) text = text.replace(/\.$/, `, ${count(t.paused)} paused.`);
  put($("verdict"), text);
  set($("verdict"), "data-level", level);
}

function tiles(t) {
  put($("rate"), rate(t.rate));
  put($("rate-unit"), t.streaming ? "records/s" : "events/s");
  put($("done"), `${count(t.done)} since the start`);
  put($("lag"), t.lag < 0 ? "–" : short(t.lag));
  put($("lag-more"), t.charged ? `${count(t.inFlight)} in flight` : until(t));
  put($("dead"), t.dead < 0 ? "–" : count(t.dead));
  put($("dead-more"), [t.retrying && `${count(t.retrying)} retrying`, t.redriven && `${count(t.redriven)} applied after a retry`].filter(Boolean).join(", "));
  set($("tile-letters"), "data-level", t.dead > 0 ? "bad" : null);
  if (t.streaming && !t.charged) {
    put($("cost-name"), "In flight");
    put($("cost"), short(t.inFlight));
    put($("cost-unit"), "events");
    put($("cost-more"), "read and not done");
    return;
  }
  if (t.charged) {
    put($("cost-name"), "Cost");
    put($("cost"), short(t.cost));
    put($("cost-unit"), "RU/s");
    put($("cost-more"), t.rate > 0 ? `${(t.cost / t.rate).toFixed(1)} RU each` : "");
    return;
  }
  put($("cost-name"), "Commit time");
  const took = (t.seconds?.took ?? []).filter((x) => x > 0);
  const m = took.length ? milliseconds(took.reduce((a, b) => a + b, 0) / took.length) : { text: "–", unit: "ms" };
  put($("cost"), m.text);
  put($("cost-unit"), m.unit);
  const longest = milliseconds(Math.max(0, ...(t.seconds?.longest ?? [])));
  put($("cost-more"), took.length ? `longest ${longest.text} ${longest.unit}` : "no recent commits");
}

function until(t) {
  const all = total(t);
  if (t.lag >= 0 && t.seen < all) return `in ${count(t.seen)} of ${plural(all, "partition", "partitions")}`;
  const halted = t.trouble.some((x) => x.level === "bad");
  if (t.lag <= 0 || t.rate <= 0) return t.lag === 0 && !halted ? "caught up" : "";
  const s = t.lag / t.rate;
  if (s < 2) return "keeping up";
  return `about ${s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`} at this rate`;
}

const NAMES = {
  acquired: "partition acquired", released: "partition released", lost: "partition lost", fenced: "commit refused (fenced)", unknown: "commit outcome unknown",
  parked: "dead letter", redriven: "dead letter applied", "redrive failed": "dead letter failed again", stopped: "partition halted", failed: "dependency error, retrying", "hook failed": "hook failed", "copy failed": "dead letters not copied, retrying",
  stalled: "partition stalled", resumed: "partition moves again",
};

function events(t) {
  list($("events"), t.events.toReversed().slice(0, 12), (e) => `${e.first}${e.kind}${e.partition}${e.times}`, (e) => el("li", {},
    el("time", { datetime: new Date(e.last).toISOString() }, clock(e.last)),
    el("span", { class: "what", "data-bad": e.bad }, NAMES[e.kind] ?? e.kind, e.times > 1 && el("span", { class: "times" }, ` × ${count(e.times)}`)),
    el("span", { class: "text" }, [e.partition && `partition ${e.partition}`, e.sequence != null && e.times === 1 && `event ${e.sequence}`].filter(Boolean).join(", "), e.text && `: ${e.text}`)));
}

// list replaces a list's items if they differ from those shown.
function list(node, items, key, make) {
  const keys = items.map(key).join("\n");
  if (node.dataset.keys === keys) return;
  node.dataset.keys = keys;
  node.replaceChildren(...items.map(make));
}
