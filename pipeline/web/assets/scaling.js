// Autoscaling: the metrics, the decisions with their reasons, the instances.
import { $, el, put } from "./dom.js";
import { ago, clock, count, moment, plural, short } from "./format.js";
import { get } from "./api.js";
import { Chart } from "./charts.js";

const KINDS = { up: "up", down: "down", hold: "hold", succeeded: "done", failed: "abandoned" };
let resources = new Map();
let timer;
let turn = 0; // number of the newest poll; earlier ones stop

export function show(on) {
  clearTimeout(timer);
  turn++;
  if (on) load();
}

async function load() {
  const mine = turn;
  try {
    const so = await get("/api/autoscaling");
    $("scaling-error").hidden = true;
    for (const r of so.resources) draw(r, so.now);
  } catch (e) {
    put($("scaling-error"), e.message);
    $("scaling-error").hidden = false;
  }
  if (mine === turn) timer = setTimeout(load, 2000);
}

function draw(r, now) {
  let at = resources.get(r.name);
  if (!at) {
    at = { charts: new Map(), title: el("h2", {}, r.name), sum: el("p", { class: "quiet" }), error: el("p", { class: "error" }), plots: el("div", { class: "charts" }), body: el("tbody", { role: "rowgroup" }) };
    const head = (name, className) => el("th", { role: "columnheader", scope: "col", class: className }, name);
    const table = el("table", { class: "grid cards decisions", role: "table" }, el("caption", { class: "unseen" }, `Decisions about ${r.name}`),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head("Time"), head("Decision"), head("Instances", "n"), head("Why"), head("Figures"))), at.body);
    at.scroll = el("div", { class: "scroll" }, table);
    at.none = el("p", { class: "empty" }, "No decisions in the last 24 hours.");
    at.only = el("input", { type: "checkbox", checked: true });
    at.only.addEventListener("change", () => rows(at));
    $("resources").append(el("section", { class: "resource", "aria-label": r.name }, el("div", { class: "head" }, at.title, at.sum), at.error, at.plots,
      el("div", { class: "head decisions-head" }, el("h3", {}, "Decisions"), el("label", { class: "quiet" }, at.only, " only changes")), at.scroll, at.none));
    resources.set(r.name, at);
  }
  at.data = r;
  put(at.error, r.error ?? "");
  put(at.sum, [plural(r.instances, "instance", "instances"), r.pending && "an action is under way", r.lastUp && `last up ${ago(r.lastUp, now)}`, r.lastDown && `last down ${ago(r.lastDown, now)}`].filter(Boolean).join(" · "));
  for (const m of r.metrics) chart(at, m.name, m.state ? `${m.name} (${m.state})` : m.name, {}).show([m.times.map((t) => t / 1000), m.values]);
  const changes = r.decisions.toReversed();
  if (changes.length) chart(at, "\0instances", "Instances", { steps: true }).show([[...changes.map((d) => d.time / 1000), now / 1000], [...changes.map((d) => d.instances), r.instances]]);
  at.scroll.hidden = r.decisions.length === 0;
  at.none.hidden = r.decisions.length > 0;
  rows(at);
}

function chart(at, key, title, options) {
  if (!at.charts.has(key)) at.charts.set(key, new Chart(at.plots, title, [{ format: short, fill: true, ...options }], { axis: short, least: 3 }));
  return at.charts.get(key);
}

function rows(at) {
  const list = at.data.decisions.filter((d, i) => i === 0 || !at.only.checked || d.kind !== "hold"); // the newest says how things are
  const keys = list.map((d) => d.sequence).join();
  if (at.keys === keys) return;
  at.keys = keys;
  const td = (className, ...children) => el("td", { role: "cell", class: className }, ...children);
  at.body.replaceChildren(...list.map((d) => el("tr", { role: "row" },
    td("quiet", el("time", { datetime: new Date(d.time).toISOString(), title: moment(d.time) }, clock(d.time))),
    td("", el("span", { class: "state", "data-state": { up: "behind", down: "behind", succeeded: "reading", failed: "stopped" }[d.kind] }, KINDS[d.kind] ?? d.kind)),
    td("n", d.wanted !== d.instances && (d.kind === "up" || d.kind === "down") ? `${d.instances} → ${d.wanted}` : String(d.instances)),
    td("why", d.reason),
    td("quiet figures", (d.figures ?? []).map((f) => (f.missing ? `${f.metric}: ${f.missing}` : `${f.metric}: average ${short(f.average)}, ${short(f.min)} to ${short(f.max)} of ${count(f.points)}`)).join("; ")))));
}
