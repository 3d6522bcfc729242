// Every step as a column, a row of columns a rank: what the rank did with the step.

const STEP_ROW_HEIGHT = 88;
const MAX_STEP_RANKS = 8;
const MAX_STEP_COLUMNS = 600;  // more steps than that are averaged
const PHASE_SWATCH = {
  prefill: "--kind-2",
  decode: "--kind-3",
  mixed: "--kind-5"
};
/** A benchmark's phases have sizes: "decode ×4". */
const swatchOf = (phase) => PHASE_SWATCH[String(phase).split(" ")[0]];

class StepChart {
  constructor(table, rows, at) {
    this.at = at;
    this.unit = microseconds(table.columns[at.computing]);
    this.ranks = [...groupRows(rows, at.rank)].slice(0, MAX_STEP_RANKS);
    const numbers = [...new Set(rows.map((row) => row[at.step]))], size = Math.ceil(numbers.length / MAX_STEP_COLUMNS);
    this.steps = numbers.filter((_, i) => i % size === 0);  // the first of each column's
    this.bins = this.steps.map((_, i) => numbers.slice(i * size, (i + 1) * size));
    const place = new Map(numbers.map((step, i) => [step, Math.floor(i / size)]));
    this.columns = this.ranks.map(([, ofRank]) => {
      const columns = this.steps.map(() => []);
      for (const row of ofRank) columns[place.get(row[at.step])].push(row);
      return columns.map((bin) => bin.length ? {row: bin[0], parts: this.meanParts(bin)} : null);
    });
    const lengths = this.columns.flat().filter(Boolean).map(({parts}) => parts.reduce((a, b) => a + b, 0));
    const most = lengths.reduce((a, b) => Math.max(a, b), 0), usual = quantile(lengths, 0.95);
    this.isCapped = most > 3 * usual && usual > 0;
    this.top = this.isCapped ? 1.4 * usual : most;
    this.cursor = null;
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": "Steps by rank. Left and right move from step to step, up and down from rank to rank.",
    });
    this.box = h("div", {class: "canvas-scroll"}, this.canvas);
    this.readout = makeReadout("Point at a step, or focus the chart and use the arrow keys.");
    this.redraw = drawWith(this.box, (width) => this.draw(width));
    this.listen();
    const phases = at.phase >= 0 ? [...groupRows(rows, at.phase).keys()].filter((phase) => swatchOf(phase)) : [];
    this.element =
        h("div", {},
          makeLegend(
              [...TIME_PARTS, ...phases.map((phase) => ({label: `${phase} (strip)`, swatch: `var(${swatchOf(phase)})`}))]),
          this.box, this.readout.element,
          this.isCapped ?
              h("p", {class: "note"}, `Columns with a notch go beyond the chart; the longest step took ${duration(most)}.`) :
              null);
  }

  listen() {
    const {canvas} = this;
    const point = (event) => {
      const i = Math.floor((event.offsetX - this.left) / this.slot), r = Math.floor((event.offsetY - this.head) / this.pitch);
      if (i >= 0 && i < this.steps.length && r >= 0 && r < this.ranks.length) this.moveTo([r, i]);
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => document.activeElement !== canvas && this.moveTo(null));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && !this.cursor && this.moveTo([0, 0]));
    canvas.addEventListener("blur", () => this.moveTo(null));
    onArrows(canvas, (columns, rows) => {
      const [r, i] = this.cursor ?? [0, 0];
      this.moveTo([clamp(r + rows, 0, this.ranks.length - 1), clamp(i + columns, 0, this.steps.length - 1)]);
    });
  }

  meanParts(rows) {
    return TIME_PARTS.map(
        ({key}) => rows.reduce((sum, row) => sum + Math.max(0, row[this.at[key]] ?? 0), 0) * this.unit / rows.length);
  }

  draw(width) {
    this.left = 56;
    this.head = 14;
    this.pitch = STEP_ROW_HEIGHT + 22;
    this.slot = Math.min((width - this.left - 2) / this.steps.length, 48);
    const context = sizeCanvas(this.canvas, width, this.head + this.pitch * this.ranks.length + 18);
    this.drawPhaseStrip(context);
    this.ranks.forEach(([rank], r) => this.drawRank(context, width, rank, r));
    context.fillStyle = color("--muted");
    context.textAlign = "left";
    const bottom = this.head + this.pitch * this.ranks.length + 4;
    const every = niceStep(64 / this.slot);
    this.steps.forEach((step, i) => {
      if (i % every === 0 && this.left + i * this.slot < width - 30)
        context.fillText(`${i === 0 ? "step " : ""}${step}`, this.left + i * this.slot, bottom);
    });
  }

  /** [x, width] of a column, in whole pixels, so that neighbours neither overlap nor leave gaps. */
  span(i) {
    const x = Math.round(this.left + i * this.slot);
    return [x, Math.max(Math.round(this.left + (i + 1) * this.slot) - x - (this.slot > 4 ? 1 : 0), 1)];
  }

  drawPhaseStrip(context) {
    if (this.at.phase < 0) return;
    this.steps.forEach((_, i) => {
      const row = this.columns.map((columns) => columns[i]).find(Boolean);
      const swatch = swatchOf(row?.row[this.at.phase]);
      if (!swatch) return;
      context.fillStyle = color(swatch);
      const [x, breadth] = this.span(i);
      context.fillRect(x, 2, breadth, 5);
    });
  }

  drawRank(context, width, rank, r) {
    const base = this.head + r * this.pitch + 18 + STEP_ROW_HEIGHT, y = linearScale(0, this.top, 0, STEP_ROW_HEIGHT);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--ink");
    context.fillText(`rank ${rank}`, this.left, base - STEP_ROW_HEIGHT - 9);
    context.textAlign = "right";
    for (const tick of ticks(this.top, 3)) {
      context.fillStyle = color("--line");
      context.fillRect(this.left, Math.round(base - y(tick)), width - this.left, 1);
      context.fillStyle = color("--muted");
      context.fillText(duration(tick), this.left - 6, base - y(tick));
    }
    const colors = TIME_PARTS.map(({swatch}) => color(swatch.slice(4, -1)));
    this.columns[r].forEach((column, i) => {
      if (!column) return;
      const [x, breadth] = this.span(i), at = this.cursor && this.cursor[0] === r && this.cursor[1] === i;
      let bottom = 0;
      column.parts.forEach((value, p) => {
        const top = Math.min(bottom + value, this.top);
        context.fillStyle = colors[p];
        context.fillRect(x, base - y(top), breadth, y(top) - y(Math.min(bottom, this.top)));
        bottom += value;
      });
      if (bottom > this.top) {
        context.fillStyle = color("--ink");
        context.fillRect(x, base - STEP_ROW_HEIGHT - 3, breadth, 2);
      }
      if (at) {
        context.strokeStyle = color("--ink");
        context.lineWidth = 2;
        context.strokeRect(x - 1, base - y(Math.min(bottom, this.top)) - 1, breadth + 2, y(Math.min(bottom, this.top)) + 2);
      }
    });
  }

  moveTo(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    if (cursor) {
      const [r, i] = cursor, column = this.columns[r][i], {at} = this, bin = this.bins[i];
      const isMean = bin.length > 1, steps = isMean ? `Steps ${bin[0]} to ${bin.at(-1)} (mean)` : `Step ${bin[0]}`;
      const parts = [`${steps}, rank ${this.ranks[r][0]}`];
      if (column && !isMean && at.phase >= 0) parts.push(column.row[at.phase]);
      if (column && !isMean && at.tokens >= 0 && column.row[at.tokens] !== null) parts.push(`${column.row[at.tokens]} tokens`);
      if (column) parts.push(...tellTimeParts(column.parts));
      this.readout.show(parts);
    }
    this.redraw();
  }
}

function drawSteps(table) {
  const at = table.pick(
      {
        step: [/^step$/, /^step/],
        rank: [/^rank/],
        phase: [/^phase/],
        tokens: [/tokens$/],
        computing: [/^computing/],
        exposed: [/^exposed/],
        free: [/^free/],
      },
      ["step", "rank", "computing", "exposed", "free"]);
  if (!at || table.rows.length === 0) return null;
  const phases = at.phase >= 0 ? [...groupRows(table.rows, at.phase)] : [], place = h("div");
  const show = (rows) => place.replaceChildren(new StepChart(table, rows, at).element);
  show(table.rows);
  const numRanks = new Set(table.rows.map((row) => row[at.rank])).size;
  return h(
      "div", {},
      phases.length < 2 ?
          null :
          makeChoice(
              "Phase",
              [{label: "all", value: table.rows}, ...phases.map(([phase, rows]) => ({label: String(phase), value: rows}))],
              show),
      place,
      numRanks > MAX_STEP_RANKS ? h("p", {class: "note"}, `The first ${MAX_STEP_RANKS} of ${numRanks} ranks are drawn.`) :
                                  null);
}
