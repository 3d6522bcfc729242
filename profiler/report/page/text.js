// Numbers as text: exact in tables, short in pictures.

/** As the CSV has it: the column's decimals, nothing rounded further. */
function cellText(cell, decimals) {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "string") return cell;
  if (Number.isInteger(cell) && !decimals) return Object.is(cell, -0) ? "-0" : String(cell);
  return (Object.is(cell, -0) ? "-" : "") + cell.toFixed(decimals);
}

/** Three significant digits with a prefix: 12.3k, 4.56M. */
function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * 0.9995) return significant(value / unit) + letter;
  }
  return significant(value);
}

function significant(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 0.001) return value.toExponential(1);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(size)));
  const text = value.toFixed(Math.min(digits, 5));
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A duration with a unit that suits its size. */
function duration(us) {
  if (us === 0) return "0";
  if (us === null || us === undefined || !Number.isFinite(us)) return "\u2013";
  const size = Math.abs(us);
  if (size >= 1e6) return significant(us / 1e6) + "\u00a0s";
  if (size >= 1e3) return significant(us / 1e3) + "\u00a0ms";
  if (size >= 1) return significant(us) + "\u00a0\u00b5s";
  return significant(1e3 * us) + "\u00a0ns";
}

function byteCount(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    ++unit;
  }
  return significant(bytes) + "\u00a0" + units[unit];
}

function percent(share) { return Number.isFinite(share) ? (100 * share).toFixed(1) + "\u00a0%" : "\u2013"; }
