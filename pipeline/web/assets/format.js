// Numbers and times for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const brief = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => whole.format(n);
export const short = (n) => (Math.abs(n) < 10000 ? whole.format(n) : brief.format(n));
export const rate = (n) => (n > 0 && n < 10 ? fine.format(n) : short(n));
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;

export function milliseconds(ms) {
  if (ms >= 1000) return { text: fine.format(ms / 1000), unit: "s" };
  return { text: ms < 10 ? fine.format(ms) : whole.format(ms), unit: "ms" };
}

// ago is how long before now a moment is, both in Unix milliseconds.
export function ago(moment, now) {
  const s = Math.max(0, Math.round((now - moment) / 1000));
  if (s < 2) return "now";
  if (s < 90) return `${s} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  if (s < 129600) return `${Math.round(s / 3600)} h ago`;
  return `${Math.round(s / 86400)} days ago`;
}

const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });
const hour = new Intl.DateTimeFormat("en-CA", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
export const moment = (ms) => day.format(ms).replace(",", "");
export const clock = (ms) => hour.format(ms);

export const bytes = (n) => (n < 1024 ? `${count(n)} bytes` : n < 1 << 20 ? `${fine.format(n / 1024)} KiB` : `${fine.format(n / (1 << 20))} MiB`);
