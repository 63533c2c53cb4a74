// Charts over time, by uPlot. They take their colours from the page's styles,
// and are redrawn when the theme changes.
import { el, put } from "./dom.js";

// style is a colour of the page's as the theme has it, with an opacity. A probe
// finds out, for a variable's own value is not resolved.
const probe = el("span", { hidden: true });
document.body.append(probe);
function style(name, opacity = 1) {
  probe.style.color = `color-mix(in srgb, var(${name}) ${100 * opacity}%, transparent)`;
  return getComputedStyle(probe).color;
}

const COLOURS = ["--accent", "--warn", "--bad"];
const all = new Set();

export class Chart {
  // series are {name, key, format, fill}.
  constructor(parent, title, series, options = {}) {
    this.series = series;
    this.options = options;
    this.values = series.map(() => el("b", {}, "–"));
    this.plot = el("div", { class: "plot", "aria-hidden": "true" });
    const legend = el("span", { class: "values" });
    series.forEach((s, i) => legend.append(el("span", {}, el("i", { class: `c${s.colour ?? i}` }), s.name ? `${s.name} ` : "", this.values[i])));
    this.figure = el("figure", { class: "chart" }, el("figcaption", {}, el("b", {}, title), legend), this.plot);
    parent.append(this.figure);
    this.data = [[], ...series.map(() => [])];
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.plot);
    all.add(this);
  }

  make() {
    this.u?.destroy();
    const width = this.plot.clientWidth;
    if (!width) return;
    const line = style("--line");
    const axis = { stroke: style("--quiet"), font: "12px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { show: false }, gap: 6 };
    this.u = new uPlot({
      width, height: 150, padding: [8, 28, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: true }, y: { range: (_, __, max) => [0, Math.max(max * 1.12, this.options.least ?? 1)] } },
      axes: [
        { ...axis, space: 70, size: 26, grid: { show: false }, values: (u, ticks) => ticks.map((t) => new Date(t * 1000).toTimeString().slice(0, (u.scales.x.max - u.scales.x.min) > 400 ? 5 : 8)) },
        { ...axis, size: 52, space: 32, values: (_, ticks) => ticks.map((t) => this.options.axis?.(t) ?? t) },
      ],
      series: [{}, ...this.series.map((s, i) => {
        const colour = COLOURS[s.colour ?? i];
        return {
          stroke: style(colour), width: 1.5, points: { show: false }, spanGaps: false, value: null,
          fill: s.fill ? style(colour, 0.13) : undefined, paths: s.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        };
      })],
      hooks: { setCursor: [() => this.label()] },
    }, this.data, this.plot);
  }

  resize() {
    const width = this.plot.clientWidth;
    if (!width) return;
    if (!this.u) this.make();
    else if (this.u.width !== width) this.u.setSize({ width, height: 150 });
  }

  // show draws columns: seconds, then a column for each series.
  show(data) {
    this.data = data;
    if (!this.u) this.make();
    this.u?.setData(data);
    this.label();
  }

  // label shows the values under the cursor, or the newest.
  label() {
    const at = this.u?.cursor?.idx ?? this.data[0].length - 1;
    this.series.forEach((s, i) => {
      const value = this.data[i + 1]?.[at];
      put(this.values[i], value == null ? "–" : s.format(value));
    });
  }

  end() {
    this.watcher.disconnect();
    this.u?.destroy();
    this.figure.remove();
    all.delete(this);
  }
}

// repaint draws all charts in the theme's colours.
export function repaint() {
  for (const c of all) c.make();
}
