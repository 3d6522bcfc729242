// Cells as people read them: 229 MiB and not 240398336, 0.02 % and not 0.00020. The exact number stays beside, for who copies.

const IDENTIFIERS = /^(step|layer|expert|rank|request|source|target|place|pid|busiest_rank|hottest_expert|slot)$/;
const SHARES = /(^|_)(share|efficiency)$/;

/** 1234567 -> "1,234,567"; what is no whole number stays as it is. */
function groupDigits(value) {
  const text = String(value);
  return /^-?\d{4,}$/.test(text) ? text.replace(/\B(?=(\d{3})+$)/g, ",") : text;
}

/** "1 token", "1,234 tokens". */
function countOf(count, noun) { return `${groupDigits(count)} ${noun}${count === 1 ? "" : "s"}`; }

/** A share as per cent with three digits: 0.0002 -> "0.02 %". */
function sharePercent(share) { return Number.isFinite(share) ? `${significant(100 * share)}\u00a0%` : "\u2013"; }

/** A change in per cent; from +200 % on as a factor, which is easier to picture: 2539 -> "26.4 \u00d7". */
function changePercent(change) {
  return Math.round(change) >= 200 ? `${significant(1 + change / 100)}\u00a0\u00d7` : `${significant(change)}\u00a0%`;
}

/** Is the column's unit chosen by each cell's size? Then its header has none. */
function hasOwnUnits(column) { return toHuman(column) !== null; }

/** The function that makes text of a number of the column, or null where the number speaks for itself. */
function toHuman(column) {
  const {name} = column, unit = nameAndUnit(name)[1];
  if (SHARES.test(name)) return sharePercent;
  if (unit === "%") return changePercent;
  if (unit === "B") return byteCount;
  if (unit === "MiB") return (value) => byteCount(value * (1 << 20));
  if (["ns", "\u00b5s", "ms", "s"].includes(unit)) return (value) => duration(value * microseconds(column));
  if (/^flop$/.test(name)) return (value) => `${shortNumber(value).replace(/[kMGTP]?$/, (prefix) => `\u00a0${prefix}FLOP`)}`;
  if (/^bytes/.test(name)) return byteCount;
  return null;
}

/** The unit of a cell of a column that has another one in each row: of an action's "before", that of its metric. */
function unitOfRow(table, row, c) {
  const metric = /^(before|after)$/.test(table.columns[c].name) ? table.find("metric") : -1;
  return metric >= 0 && typeof row[metric] === "string" ? /(^| )(ms|tokens\/s)( |$)/.exec(row[metric])?.[2] ?? "" : "";
}

/** A cell's text for people, and with its unit. */
function humanCell(table, row, c) {
  const column = table.columns[c], exact = table.text(row, c);
  if (typeof row[c] !== "number") return exact;
  const own = unitOfRow(table, row, c);
  if (own === "ms") return duration(1e3 * row[c]);
  if (own) return groupDigits(significant(row[c]));
  const human = toHuman(column);
  if (human) return human(row[c]);
  return Number.isInteger(row[c]) && !column.decimals && !IDENTIFIERS.test(column.name) ? groupDigits(exact) :
                                                                                          groupWhole(exact);
}

/** "12345.678" -> "12,345.678": decimals are not grouped. */
function groupWhole(text) {
  const [whole, ...rest] = text.split(".");
  return rest.length ? [groupDigits(whole), ...rest].join(".") : text;
}

/** "p50 12.3 ms": a cell with its column's name, as a readout tells it. */
function tellCell(table, row, c) {
  const column = table.columns[c], [name, unit] = nameAndUnit(column.name);
  const text = humanCell(table, row, c);
  return `${name} ${text}${unit && !hasOwnUnits(column) ? ` ${unit}` : ""}`;
}

/** The cell's text, and the exact number where the text is another. */
function makeCell(table, row, c) {
  const text = humanCell(table, row, c), exact = table.text(row, c);
  if (text === exact) return text;
  const unit = unitOfRow(table, row, c) || nameAndUnit(table.columns[c].name)[1];
  return h("data", {value: exact, title: unit ? `${exact} ${unit}` : exact}, text);
}
