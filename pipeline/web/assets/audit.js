// The audit: compares what the log holds with what the pipeline has written.
import { $, el, put, set } from "./dom.js";
import { clock, count, milliseconds, moment, plural } from "./format.js";
import { get, post } from "./api.js";

let visible = false;
let auditable = true;
let timer;
let drawn = ""; // which report the tables show
let turn = 0; // number of the newest request; answers to earlier ones are ignored

// reset clears the page when another pipeline is chosen. If that pipeline can't
// be audited, the page shows the reason.
export function reset(why) {
  turn++;
  auditable = !why;
  put($("audit-not"), why ?? "");
  $("audit-not").hidden = auditable;
  $("audit-about").hidden = $("audit-bar").hidden = !auditable;
  draw({ running: false, events: 0 });
}

export function show(on) {
  visible = on;
  clearTimeout(timer);
  if (on && auditable) follow(() => get("/api/audit"));
}

// follow shows an answer, and then the audit's progress until it has ended.
async function follow(ask) {
  clearTimeout(timer);
  const mine = ++turn;
  try {
    const so = await ask();
    if (mine !== turn) return;
    draw(so);
    if (so.running && visible) timer = setTimeout(follow, 500, () => get("/api/audit"));
  } catch (e) {
    if (mine !== turn) return;
    wrong(e.message);
    if (visible) timer = setTimeout(follow, 3000, () => get("/api/audit"));
  }
}

$("audit-now").addEventListener("click", () => {
  if ($("audit-now").getAttribute("aria-disabled") !== "true") follow(() => post("/api/audit"));
});

function wrong(text) {
  put($("audit-error"), text ?? "");
  $("audit-error").hidden = !text;
}

function draw(so) {
  // The button is not disabled, so that it keeps the focus.
  set($("audit-now"), "aria-disabled", so.running ? "true" : null);
  put($("audit-progress"), so.running ? `${plural(so.events, "event", "events")} read` : "");
  const took = milliseconds(so.ended - so.began);
  put($("audit-when"), so.ended ? `${moment(so.began)}, in ${took.text} ${took.unit}` : so.running ? `since ${clock(so.began)}` : "");
  wrong(so.error);
  const r = so.report;
  $("audit-verdict").hidden = !r;
  $("audit-found").hidden = !r;
  const key = r ? `${so.began} ${so.ended}` : "";
  if (key === drawn) return;
  drawn = key;
  if (!r) {
    put($("audit-verdict"), "");
    return;
  }
  put($("audit-verdict"), r.headline);
  set($("audit-verdict"), "data-level", r.level);
  notes(r);
  const rows = r.partitions.map((p) => partition(p.id, p));
  if (rows.length > 1) rows.push(partition("All", r.total, "total"));
  $("audit-partitions").tBodies[0].replaceChildren(...rows);
  $("audit-wrong").hidden = r.faults.length === 0;
  $("audit-faults").tBodies[0].replaceChildren(...r.faults.map(fault));
  put($("audit-more"), `${plural(r.more, "event more is wrong", "events more are wrong")}: sluice audit hub names them.`);
  $("audit-more").hidden = r.more === 0;
}

// notes list the events that no column of the table counts.
function notes(r) {
  const list = [
    r.skipped && `${plural(r.skipped, "event is", "events are")} before the beginning that the checkpoint records, and not checked.`,
    r.removed && `Up to ${plural(r.removed, "event more was", "events more were")} removed by retention, and not checked.`,
    r.repeats && `${plural(r.repeats, "message was", "messages were")} sent before, and correctly skipped as duplicates.`,
    r.unclear && `${plural(r.unclear, "message has", "messages have")} no effect, and it can’t be decided whether that is a loss: sluice audit hub says why.`,
    r.ahead && `${plural(r.ahead, "event has", "events have")} an effect, though the checkpoint has not passed them: a consumer that continues from the checkpoint processes them again.`,
  ].filter(Boolean);
  $("audit-notes").replaceChildren(...list.map((text) => el("li", {}, text)));
  $("audit-notes").hidden = list.length === 0;
}

const td = (name, className, ...children) => el("td", { role: "cell", class: className, "data-name": name }, ...children);
const head = (text, name = "Partition") => el("th", { role: "rowheader", scope: "row", "data-name": name }, text);

function partition(id, p, className) {
  const cells = [["held", p.held], ["checkpoint", p.checkpoint], ["written", p.written], ["dead letters", p.letters], ["waiting", p.waiting]];
  const faults = [["lost", p.missing], ["duplicated", p.doubled], ["expired", p.expired], ["stray", p.stray]];
  return el("tr", { role: "row", class: className }, className ? head(id, null) : head(id),
    ...cells.map(([name, n]) => td(name, "n", n != null ? count(n) : className ? "" : "none")),
    ...faults.map(([name, n]) => td(name, n ? "n wrong" : "n", count(n))));
}

// faultNames are the kinds of fault that the page names differently from the JSON.
const faultNames = { missing: "lost", doubled: "duplicated" };

function fault(f) {
  const time = (ms) => el("time", { datetime: new Date(ms).toISOString() }, moment(ms));
  const times = !f.from ? ["not in the log"] : moment(f.from) === moment(f.until) ? [time(f.from)] : [time(f.from), " to ", time(f.until)];
  return el("tr", { role: "row" }, head(f.partition),
    td(null, "status", el("span", { class: "state", "data-state": "stopped" }, faultNames[f.kind] ?? f.kind)),
    td("sequence numbers", null, f.first === f.last ? String(f.first) : `${f.first} to ${f.last}`),
    td("events", "n", count(f.last - f.first + 1)),
    td("enqueued", "quiet", ...times));
}
