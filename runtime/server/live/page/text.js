// How figures are written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Three digits that count: "0.52", "4.18", "41.8", "418", "4,180". */
function figure(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return whole.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

const percent = (share) => (share === null || !Number.isFinite(share) ? "–" : `${figure(100 * share)} %`);

function scaled(value, units, step) {
  if (value === null || !Number.isFinite(value)) return "–";
  let unit = 0;
  while (Math.abs(value) >= step && unit + 1 < units.length) (value /= step), ++unit;
  return `${figure(value)} ${units[unit]}`;
}

const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB"], 1000);

/** "12 µs", "3.40 ms", "1.20 s". */
function seconds(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value >= 1 || value === 0) return `${figure(value)} s`;
  return value >= 1e-3 ? `${figure(value * 1e3)} ms` : `${figure(value * 1e6)} µs`;
}

/** "3 d 4 h", "2 h 5 min", "17 s". */
function age(value) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = Math.max(0, units.findIndex(([, length]) => value >= length));
  const [[name, length], next] = value < 1 ? [units[3]] : [units[at], units[at + 1]];
  const rest = next ? Math.floor((value % length) / next[1]) : 0;
  return `${Math.floor(value / length)} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

const words = (name) => name.replaceAll("_", " ");
