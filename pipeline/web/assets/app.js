// The frame of all pages: which is shown, the live connection, the theme.
import { $, put, set } from "./dom.js";
import { choose, get, liveAddress } from "./api.js";
import { repaint } from "./charts.js";
import * as overview from "./overview.js";
import * as partitions from "./partitions.js";
import * as deadLetters from "./deadletters.js";
import * as audit from "./audit.js";
import * as scaling from "./scaling.js";

const PAGES = {
  "/": { id: "page-overview", title: "Overview", show: overview.show },
  "/partitions": { id: "page-partitions", title: "Partitions", rows: true },
  "/dead-letters": { id: "page-dead-letters", title: "Dead letters", show: deadLetters.show, link: "to-letters" },
  "/audit": { id: "page-audit", title: "Audit", show: audit.show, link: "to-audit" },
  "/autoscaling": { id: "page-autoscaling", title: "Autoscaling", show: scaling.show },
};

let page;
let source;
let pipeline;

// Pages

// has reports whether this pipeline has the page.
const has = (path) => PAGES[path] && $(PAGES[path].id) && !(PAGES[path].link && $(PAGES[path].link).hidden);

function turnTo(path, focus) {
  const next = has(path) ? path : "/";
  if (page && page !== next) PAGES[page].show?.(false);
  page = next;
  for (const [p, { id }] of Object.entries(PAGES)) if ($(id)) $(id).hidden = p !== page;
  for (const a of document.querySelectorAll("nav [data-page]")) set(a, "aria-current", a.getAttribute("href") === page ? "page" : null);
  document.title = `${PAGES[page].title} · ${pipeline?.value ?? ""} · Sluice`;
  connect();
  PAGES[page].show?.(true);
  if (focus) {
    $("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

// address is a page's, with the pipeline where there are several.
const address = (path) => (pipeline.options.length > 1 ? `${path}?pipeline=${encodeURIComponent(pipeline.value)}` : path);

document.addEventListener("click", (e) => {
  const a = e.target.closest("a[data-page]");
  if (!a || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  if (a.getAttribute("href") !== location.pathname) history.pushState(null, "", address(a.getAttribute("href")));
  turnTo(location.pathname, true);
});
addEventListener("popstate", () => turnTo(location.pathname, true));

// The live connection

function connect() {
  const rows = PAGES[page].rows ? "1" : "";
  if (source && source.rows === rows && source.pipeline === pipeline.value && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  const mine = (source = new EventSource(liveAddress({ rows })));
  mine.rows = rows;
  mine.pipeline = pipeline.value;
  mine.addEventListener("open", () => {
    live(true);
    if (pipeline.selectedOptions[0].hasAttribute("data-charts")) {
      get("/api/history").then((h) => { if (source === mine) overview.load(h); }, () => {});
    }
  });
  mine.addEventListener("tick", (e) => tick(JSON.parse(e.data)));
  mine.addEventListener("rows", (e) => partitions.load(JSON.parse(e.data)));
  mine.addEventListener("error", () => {
    if (source !== mine) return;
    live(false);
    if (mine.readyState !== EventSource.CLOSED) return;
    // The browser has given up: signed out, or too many watch.
    setTimeout(() => {
      if (source !== mine) return;
      get("/api/history").catch(() => {});
      connect();
    }, 3000);
  });
}

let heard = 0;
function live(on) {
  heard = Date.now();
  set($("live"), "data-on", on ? "yes" : "no");
  put($("live"), on ? "live" : "reconnecting");
}
// A connection that is open but silent counts as lost.
setInterval(() => {
  if (Date.now() - heard < 10000) return;
  live(false);
  source?.close();
  connect();
}, 3000);

function tick(t) {
  live(true);
  const waiting = Math.max(t.dead, 0) + t.retrying;
  put($("letters-count"), waiting > 1000 ? "1,000+" : waiting);
  $("letters-count").hidden = waiting === 0;
  overview.update(t);
  partitions.update(t);
  deadLetters.update(t);
}

// The pipeline

function turnPipeline() {
  const option = pipeline.selectedOptions[0];
  choose(pipeline.value);
  put($("group"), option.dataset.group);
  overview.reset(option.hasAttribute("data-charts"));
  partitions.reset(option.hasAttribute("data-pausable"));
  deadLetters.reset();
  audit.reset(option.dataset.unaudited);
  $("to-letters").hidden = $("tile-letters").hidden = !option.hasAttribute("data-letters");
  $("to-audit").hidden = !option.hasAttribute("data-auditable") && !option.dataset.unaudited;
}

// The theme

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
function themed() {
  set($("theme"), "aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
  repaint();
}
$("theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // storage is turned off: it lasts as long as the page
  }
  themed();
});
dark.addEventListener("change", themed);

// Dialogs close by their buttons, and by a click beside them.

for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (e) => {
    if (e.target === dialog || e.target.closest("[data-close]")) dialog.close("");
  });
}
$("confirm-yes").addEventListener("click", () => $("confirm").close("yes"));

pipeline = $("pipeline");
const asked = new URLSearchParams(location.search).get("pipeline");
if ([...pipeline.options].some((o) => o.value === asked)) pipeline.value = asked;
pipeline.addEventListener("change", () => {
  turnPipeline();
  const next = has(page) ? page : "/";
  history.replaceState(null, "", address(next));
  turnTo(next);
});
turnPipeline();
themed();
turnTo(location.pathname);
