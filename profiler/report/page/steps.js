// Every step as a column: how long it took and what a rank did with the time. A step that is chosen opens its timeline.

const STEP_LINE = 88;
const PHASE_SWATCH = {
  prefill: "--kind-2",
  decode: "--kind-3",
  mixed: "--kind-5"
};
/** A benchmark's phases have sizes: "decode ×4". */
const swatchOf = (phase) => PHASE_SWATCH[String(phase).split(" ")[0]];

class StepChart {
  /** `lines` of step_lines.js; `isLog`: the axes are logarithmic; `isShared`: all lines have the same axis. */
  constructor(lines, at, {isLog, isShared}) {
    Object.assign(this, {lines, at, isLog, cursor: null});
    const all = findAxis(lines.flatMap(({columns}) => columns), isLog);
    this.axes = lines.map(({columns}) => isShared ? all : findAxis(columns, isLog));
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label":
          "Steps. Left and right move from step to step, up and down from line to line, Enter opens the step's timeline.",
    });
    this.box = h("div", {class: "canvas-scroll"}, this.canvas);
    this.readout =
        makeReadout("Point at a step, or focus the chart and use the arrow keys; a click or Enter opens its timeline.");
    this.redraw = drawWith(this.box, (width) => this.draw(width));
    this.listen();
    this.element = h("div", {}, this.box, this.readout.element, this.makeNotes());
  }

  makeNotes() {
    const columns = this.lines.flatMap((line) => line.columns), longest = columns.reduce((a, b) => b.most > a.most ? b : a);
    const perColumn = columns.reduce((high, {steps}) => Math.max(high, steps.length), 1);
    return [
      this.isLog ?
          h("p", {class: "note"},
            "The axis is logarithmic: a column's height is the step's length, its colours divide it by their shares.") :
          null,
      perColumn > 1 ?
          h("p", {class: "note"},
            `A column is the mean of up to ${perColumn} steps; the line above it is as high as the longest of them.`) :
          null,
      this.axes.some(({isCapped}) => isCapped) ?
          h("p", {class: "note"},
            `Columns with a notch go beyond the chart; the longest step, ${longest.longest}, took ${duration(longest.most)}.`) :
          null
    ];
  }

  listen() {
    const {canvas} = this;
    const place = (event) => {
      const l = Math.floor((event.offsetY - this.head) / this.pitch),
            i = Math.floor((event.offsetX - this.left) / (this.slots?.[l] ?? 1));
      return l >= 0 && l < this.lines.length && i >= 0 && i < this.lines[l].columns.length ? [l, i] : null;
    };
    canvas.addEventListener("pointermove", (event) => place(event) && this.moveTo(place(event)));
    canvas.addEventListener("click", (event) => {
      if (!place(event)) return;
      this.moveTo(place(event));
      this.open();
    });
    canvas.addEventListener("pointerleave", () => document.activeElement !== canvas && this.moveTo(null));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && !this.cursor && this.moveTo([0, 0]));
    canvas.addEventListener("blur", () => this.moveTo(null));
    canvas.addEventListener("keydown", (event) => event.key === "Enter" && this.open());
    onArrows(canvas, (columns, rows) => {
      const [l, i] = this.cursor ?? [0, 0], line = clamp(l + rows, 0, this.lines.length - 1);
      this.moveTo([line, clamp(i + columns, 0, this.lines[line].columns.length - 1)]);
    });
  }

  open() {
    if (this.cursor) goTo(`step-${this.columnAt(this.cursor).longest}`);
  }

  columnAt([l, i]) { return this.lines[l].columns[i]; }

  draw(width) {
    this.left = 62;
    this.head = 14;
    this.pitch = STEP_LINE + 38;
    this.slots = this.lines.map(({columns}) => Math.min((width - this.left - 2) / columns.length, 48));
    const context = sizeCanvas(this.canvas, width, this.head + this.pitch * this.lines.length);
    this.lines.forEach((_, l) => this.drawLine(context, width, l));
  }

  /** [x, width] of a column, in whole pixels, so that neighbours neither overlap nor leave gaps. */
  span(l, i) {
    const slot = this.slots[l], x = Math.round(this.left + i * slot);
    return [x, Math.max(Math.round(this.left + (i + 1) * slot) - x - (slot > 4 ? 1 : 0), 1)];
  }

  drawLine(context, width, l) {
    const {name, columns} = this.lines[l], {low, top} = this.axes[l], base = this.head + l * this.pitch + 18 + STEP_LINE;
    const y = this.isLog ? logScale(low, top, 0, STEP_LINE) : linearScale(0, top, 0, STEP_LINE);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--ink");
    context.fillText(name, this.left, base - STEP_LINE - 9);
    context.textAlign = "right";
    for (const tick of this.isLog ? logTicks(low, top) : ticks(top, 3)) {
      context.fillStyle = color("--line");
      context.fillRect(this.left, Math.round(base - y(tick)), width - this.left, 1);
      context.fillStyle = color("--muted");
      context.fillText(duration(tick), this.left - 6, base - y(tick));
    }
    const colors = TIME_PARTS.map(({swatch}) => color(swatch.slice(4, -1)));
    columns.forEach((column, i) => this.drawColumn(context, l, i, column, base, y, colors));
    context.fillStyle = color("--muted");
    context.textAlign = "left";
    const every = niceStep(76 / this.slots[l]);
    columns.forEach(({steps}, i) => {
      const x = this.left + i * this.slots[l];
      if (i % every === 0 && x < width - 36) context.fillText(`${i === 0 ? "step " : ""}${steps[0]}`, x, base + 13);
    });
  }

  drawColumn(context, l, i, {row, steps, parts, sum, most}, base, y, colors) {
    const {low, top} = this.axes[l], [x, breadth] = this.span(l, i), height = clamp(y(clamp(sum, low || 0, top)), 1, STEP_LINE);
    let bottom = base;
    parts.forEach((value, p) => {
      const part = sum > 0 ? height * value / sum : 0;
      // A column that is cut shows its parts up to the cut, at their own height.
      const tall = this.isLog ? part : Math.min(y(value), bottom - (base - height));
      context.fillStyle = colors[p];
      context.fillRect(x, bottom - tall, breadth, tall);
      bottom -= tall;
    });
    const swatch = this.at.phase >= 0 ? swatchOf(row[this.at.phase]) : null;
    if (swatch) {
      context.fillStyle = color(swatch);
      context.fillRect(x, base + 1, breadth, 3);
    }
    context.fillStyle = color("--ink");
    if (steps.length > 1) context.fillRect(x, base - clamp(y(clamp(most, low || 0, top)), 1, STEP_LINE), breadth, 1);
    if (most > top) context.fillRect(x, base - STEP_LINE - 3, breadth, 2);
    if (this.cursor?.[0] !== l || this.cursor[1] !== i) return;
    context.strokeStyle = color("--ink");
    context.lineWidth = 2;
    context.strokeRect(x - 1, base - height - 1, breadth + 2, height + 2);
  }

  moveTo(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    if (cursor) {
      const {row, steps, longest, most, parts, sum} = this.columnAt(cursor), {at} = this, isMean = steps.length > 1;
      const told =
          [isMean ? `Steps ${steps[0]} to ${steps.at(-1)} (mean), rank ${row[at.rank]}` :
                    `Step ${steps[0]}, rank ${row[at.rank]}`];
      if (!isMean && at.phase >= 0) told.push(row[at.phase]);
      if (!isMean && at.tokens >= 0 && row[at.tokens] !== null) told.push(`${groupDigits(row[at.tokens])} tokens`);
      told.push(
          duration(sum), ...tellTimeParts(parts),
          isMean ? `Enter opens the longest, step ${longest} of ${duration(most)}` : "Enter opens its timeline");
      this.readout.show(told);
    }
    this.redraw();
  }
}

class StepPicture {
  constructor(table, at) {
    Object.assign(this, {
      table,
      at,
      unit: microseconds(table.columns[at.computing]),
      rows: table.rows,
      by: linesByRank,
      isLog: needsLog(table.rows, at)
    });
    const phases = at.phase >= 0 ? [...groupRows(table.rows, at.phase)] : [];
    this.place = h("div");
    const set = (key) => (value) => {
      this[key] = value;
      this.show();
    };
    const scales = [{label: "linear", value: false}, {label: "logarithmic", value: true}];
    const swatches = phases.map(([phase]) => phase).filter((phase) => swatchOf(phase));
    const kinds = [...new Set(swatches.map((phase) => String(phase).split(" ")[0]))];
    this.element =
        h("div", {},
          phases.length < 2 ?
              null :
              makeChoice(
                  "Phase",
                  [{label: "all", value: table.rows}, ...phases.map(([phase, rows]) => ({label: String(phase), value: rows}))],
                  set("rows")),
          h("div", {class: "choice-rows"},
            phases.length < 2 ?
                null :
                makeChoice(
                    "A line for",
                    [{label: "each rank", value: linesByRank}, {label: "each phase and size", value: linesByGroup}], set("by")),
            makeChoice("Axis", this.isLog ? scales.reverse() : scales, set("isLog"))),
          makeLegend([...TIME_PARTS, ...kinds.map((kind) => ({label: `${kind} (strip)`, swatch: `var(${swatchOf(kind)})`}))]),
          this.place);
    this.show();
  }

  show() {
    const lines = this.by(this.rows, this.at, this.unit), drawn = lines.slice(0, MAX_STEP_LINES);
    this.place.replaceChildren(
        new StepChart(drawn, this.at, {isLog: this.isLog, isShared: this.by === linesByRank}).element,
        lines.length > drawn.length ? h("p", {class: "note"}, `The first ${drawn.length} of ${lines.length} lines are drawn.`) :
                                      "");
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
  return at && table.rows.length ? new StepPicture(table, at).element : null;
}
