// The requests' waterfall: when each arrived, waited, and got its tokens.

const MAX_WATERFALL_ROWS = 150;
const REQUEST_ROW = 18;
const STAGES = [
  {key: "tokenize", label: "tokenize", swatch: "var(--kind-4)"},
  {key: "queue", label: "queue", swatch: "var(--free)"},
  {key: "prefill", label: "prefill", swatch: "var(--kind-2)"},
  {key: "decode", label: "decode", swatch: "var(--kind-3)"},
];

class Waterfall {
  constructor(table, at, stages) {
    Object.assign(this, {table, at, stages, cursor: -1});
    const begin = (row) => row[at.arrival] * microseconds(table.columns[at.arrival]);
    this.bars = table.rows.filter((row) => row[at.arrival] !== null)
                    .map((row) => ({row, begin: begin(row), stages: this.stagesOf(row)}))
                    .sort((a, b) => a.begin - b.begin)
                    .slice(0, MAX_WATERFALL_ROWS);
    this.first = this.bars.reduce((first, bar) => Math.min(first, bar.begin), Infinity);
    this.last = this.bars.reduce((last, bar) => Math.max(last, bar.begin + bar.stages.reduce((a, b) => a + b, 0)), 0);
    this.box = h("div", {
      class: "svg-box",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `Waterfall of ${this.bars.length} requests by arrival. Up and down move from request to request.`
    });
    this.readout = makeReadout("Point at a request, or focus the chart and use the arrow keys.");
    this.element =
        h("div", {}, makeLegend(stages), this.box, this.readout.element,
          table.numRows > this.bars.length ?
              h("p", {class: "note"},
                `${this.bars.length} of ${table.numRows} requests are drawn: ` +
                    (this.bars.length === MAX_WATERFALL_ROWS ? "the first." : "those that arrived while capturing.")) :
              null);
    drawWith(this.box, (width) => this.draw(width));
    onArrows(this.box, (columns, rows) => this.select(clamp(this.cursor + (rows || columns), 0, this.bars.length - 1)));
    this.box.addEventListener("focus", () => this.box.matches(":focus-visible") && this.select(Math.max(this.cursor, 0)));
    this.box.addEventListener("blur", () => this.select(-1));
    this.box.addEventListener("pointerleave", () => document.activeElement !== this.box && this.select(-1));
  }

  stagesOf(row) {
    const {columns} = this.table;
    return this.stages.map(
        (stage) => stage.columns.reduce((sum, c) => sum + Math.max(0, (row[c] ?? 0) * microseconds(columns[c])), 0));
  }

  /** The longest two of a stage's parts, in brackets. */
  tellParts(row, {key, columns}) {
    if (columns.length < 2) return "";
    const parts = columns.filter((c) => row[c] > 0).sort((a, b) => row[b] - row[a]).slice(0, 2).map((c) => {
      const column = this.table.columns[c];
      return `${nameAndUnit(column.name)[0].slice(key.length + 1)} ${duration(row[c] * microseconds(column))}`;
    });
    return parts.length ? ` (${parts.join(", ")})` : "";
  }

  draw(width) {
    const left = 64, right = 16, top = 22, height = top + this.bars.length * REQUEST_ROW + 4;
    const x = linearScale(this.first, this.last, left, width - right);
    const every = ticks(this.last - this.first, clamp(Math.floor((width - left) / 90), 2, 8));
    const grid = every.map(
        (value) =>
            [s("line", {class: "grid", x1: x(this.first + value), x2: x(this.first + value), y1: top - 6, y2: height}),
             s("text", {class: "tick", x: x(this.first + value), y: 11, "text-anchor": value === 0 ? "start" : "middle"},
               duration(value))]);
    this.rows = this.bars.map((bar, i) => {
      let at = bar.begin;
      const y = top + i * REQUEST_ROW, parts = bar.stages.map((length, p) => {
        const part = length > 0 ? s("rect", {
          x: x(at),
          y: y + 3,
          width: Math.max(x(at + length) - x(at), 0.75),
          height: REQUEST_ROW - 6,
          style: `fill:${this.stages[p].swatch}`
        }) :
                                  null;
        at += length;
        return part;
      });
      return s(
          "g", {class: "request", onpointerenter: () => this.select(i), onpointerdown: () => this.select(i)},
          s("rect", {class: "request-back", x: 0, y, width, height: REQUEST_ROW}),
          s("text", {class: "tick", x: left - 10, y: y + 13, "text-anchor": "end"}, String(bar.row[this.at.request])), parts);
    });
    this.box.replaceChildren(
        s("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"}, grid, this.rows,
          s("text", {class: "axis", x: left - 10, y: 11, "text-anchor": "end"}, "request")));
    this.rows[this.cursor]?.classList.add("at");
  }

  select(i) {
    this.rows?.[this.cursor]?.classList.remove("at");
    this.cursor = i;
    if (i < 0) return;
    this.rows?.[i]?.classList.add("at");
    const {row, begin, stages} = this.bars[i], {at, table} = this;
    const parts = [
      `Request ${row[at.request]}`, `arrived at ${duration(begin)}`,
      ...this.stages.map((stage, p) => `${stage.label} ${duration(stages[p])}${this.tellParts(row, stage)}`)
    ];
    if (at.ttft >= 0 && row[at.ttft] !== null)
      parts.push(`first token after ${duration(row[at.ttft] * microseconds(table.columns[at.ttft]))}`);
    if (at.tokens >= 0 && row[at.tokens] !== null) parts.push(`${groupDigits(row[at.tokens])} new tokens`);
    if (at.reason >= 0 && row[at.reason]) parts.push(`finished: ${row[at.reason]}`);
    this.readout.show(parts);
  }
}

/** A stage's column, or all columns that it is divided into: "prefill_computing_us", "prefill_stall_us", … */
function stageColumns(table, key) {
  const whole = table.find(new RegExp(`^${key}_(us|ms|s)$`));
  if (whole >= 0) return [whole];
  return table.columns.map(({name}, c) => name.startsWith(`${key}_`) && /_(us|ms|s)$/.test(name) ? c : -1)
      .filter((c) => c >= 0);
}

function drawRequests(table) {
  const at = table.pick(
      {
        request: [/^request/, /^id$/],
        arrival: [/^arrival/, /^begin/],
        ttft: [/^ttft/],
        tokens: [/^(new|generated)_tokens/, /generated/],
        reason: [/reason/],
      },
      ["request", "arrival"]);
  if (!at || !table.rows.some((row) => row[at.arrival] !== null)) return null;
  const stages =
      STAGES.map((stage) => ({...stage, columns: stageColumns(table, stage.key)})).filter(({columns}) => columns.length);
  return stages.length ? new Waterfall(table, at, stages).element : null;
}
