// The report's data: tables whose columns are found by name, so that a picture can say what it needs and do without the rest.

class Table {
  constructor(json) {
    this.id = json.id;
    this.title = json.title;
    this.note = json.note || "";
    this.columns = json.columns;
    this.rows = json.rows;
    this.numRows = json.num_rows ?? json.rows.length;
  }

  get isCut() { return this.rows.length < this.numRows; }

  /** Index of the first column whose name matches one of `patterns` (the first pattern that has one wins), or -1. */
  find(...patterns) {
    for (const pattern of patterns) {
      const at = this.columns.findIndex(({name}) => pattern instanceof RegExp ? pattern.test(name) : name === pattern);
      if (at >= 0) return at;
    }
    return -1;
  }

  /** {key: column index} of `wanted` ({key: [patterns]}); null if one of `needed` is missing. */
  pick(wanted, needed = Object.keys(wanted)) {
    const picked = {};
    for (const [key, patterns] of Object.entries(wanted)) picked[key] = this.find(...[patterns].flat());
    return needed.every((key) => picked[key] >= 0) ? picked : null;
  }

  /** Has no row a value there, as far as is known? */
  isEmpty(column) {
    return !this.isCut && this.rows.length > 0 && this.rows.every((row) => row[column] === null || row[column] === "");
  }

  /** Does the column hold numbers and nothing else? */
  isNumeric(column) {
    let seen = false;
    for (const row of this.rows) {
      const cell = row[column];
      if (cell === null) continue;
      if (typeof cell !== "number" && !/^-?\d{16,}$/.test(cell)) return false;
      seen = true;
    }
    return seen;
  }

  /** The cell as the CSV has it. */
  text(row, column) { return cellText(row[column], this.columns[column].decimals); }
}

/** A column's name and its unit, which is written last: "wall_ms" -> ["wall", "ms"]. What is not left out stands third. */
const UNITS = [
  [/_?gflop_per_s$/, "GFLOP/s"],
  [/_?gb_per_s$/, "GB/s"],
  [/_flop_per_byte$/, "FLOP/B"],
  [/_per_s$/, "/s"],
  [/_mib$/, "MiB"],
  [/_bytes$/, "B"],
  [/^us_(?=per_|each$)/, "\u00b5s", "time_"],
  [/_us$/, "\u00b5s"],
  [/_ms$/, "ms"],
  [/_ns$/, "ns"],
  [/_s$/, "s"],
  [/_j$/, "J"],
  [/_(pct|percent)$/, "%"],
];

const ACRONYMS = new Set(["flop", "ipc", "itl", "kv", "llc", "rss", "tpot", "ttft"]);

function nameAndUnit(name) {
  const [pattern, unit, left = ""] = UNITS.find(([known]) => known.test(name)) ?? [/$/, ""];
  const words = name.replace(pattern, left).split("_").map((word) => ACRONYMS.has(word) ? word.toUpperCase() : word).join(" ");
  return words ? [words, unit] : [unit, ""];  // "gb_per_s" is all unit
}

/** Microseconds in one of the column's unit; 1 for columns without a unit of time. */
function microseconds(column) {
  const unit = nameAndUnit(column.name)[1];
  return {ns: 1e-3, ms: 1e3, s: 1e6}[unit] ?? 1;
}

function readReport() {
  const json = JSON.parse(document.getElementById("report-data").textContent);
  return {
    title: json.title,
    findings: json.findings,
    tables: new Map(json.tables.filter(({rows}) => rows.length > 0).map((table) => [table.id, new Table(table)])),
    emptyTables: json.tables.filter(({rows}) => rows.length === 0).map(({title}) => title),
    timelines: json.timelines,
    files: json.files ?? [],
  };
}

/** Unique values of a column in order of appearance. */
function uniqueValues(table, column) { return [...new Set(table.rows.map((row) => row[column]))]; }

/** Rows by the value of a column: Map value -> [row]. */
function groupRows(rows, column) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(row[column])) groups.set(row[column], []);
    groups.get(row[column]).push(row);
  }
  return groups;
}
