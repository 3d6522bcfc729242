// From values to places and colours.

function linearScale(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + (value - low) / span * (to - from);
}

function logScale(low, high, from, to) {
  const scale = linearScale(Math.log10(low), Math.log10(high), from, to);
  return (value) => scale(Math.log10(value));
}

/** About `count` round values from 0 to `high`. */
function ticks(high, count) {
  if (!(high > 0)) return [0];
  const raw = high / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw);
  const values = [];
  for (let i = 0; i * step <= high * 1.0001; ++i) values.push(i * step);
  return values;
}

/** Powers of ten within [low, high]. */
function decades(low, high) {
  const values = [];
  for (let e = Math.ceil(Math.log10(low)); e <= Math.floor(Math.log10(high)); ++e) values.push(10 ** e);
  return values;
}

/** Powers of ten within [low, high], or their halves and fifths, too, where there are too few. */
function logTicks(low, high) {
  const values = decades(low, high);
  if (values.length > 1) return values;
  const power = 10 ** Math.floor(Math.log10(low));
  return [1, 2, 5, 10, 20, 50].map((m) => m * power).filter((value) => value >= low && value <= high);
}

function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : 0;
}

function parseHex(hex) { return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)); }

/**
 * The style sheet's sequential colours as a function of 0..1; one hue that only gets darker (or lighter), so it needs no
 * colour sight.
 */
function heatRamp() {
  const stops = [0, 1, 2, 3, 4].map((i) => parseHex(color(`--heat-${i}`)));
  return (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2), part = place - at;
    const mixed = stops[at].map((channel, i) => Math.round(channel + (stops[at + 1][i] - channel) * part));
    return `#${mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
  };
}

/** "#000" or "#fff", whichever is read better on the colour; `hex` is "#rrggbb". */
function inkOn(hex) {
  const [r, g, b] = parseHex(hex).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000" : "#fff";
}

/** Colours that can be told apart by most people, for up to 8 kinds; more kinds share the last. */
function kindSwatch(index) { return `var(--kind-${Math.min(index, 7)})`; }
