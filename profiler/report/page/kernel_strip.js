// One step kernel by kernel: a strip a layer, in which the coordinator's kernels lie in the order of time and below them those
// of its workers, coloured by the part of the model that they work for.

const STRIP_HEAD = 24;   // pixels, of the axis
const WORKER_LINE = 5;   // of the workers' kernels below a strip
const NAME_SHARE = 0.3;  // of the width that names of layers may take

/** What a kernel's width stands for. */
const STRIP_WIDTHS = [
  {label: "by time", value: "time"},
  {label: "by its layer's time", value: "layer"},  // each layer as wide as the next
  {label: "each the same", value: "order"},
];

class KernelStrip {
  /** `lines` of kernel_rows.js; `width`: a value of STRIP_WIDTHS. */
  constructor(table, at, lines, {label, width}) {
    Object.assign(this, {table, at, lines, width, cursor: null});
    this.hasWorkers = lines.some(({lanes}) => lanes[1].length > 0);
    this.most = Math.max(...lines.map(({begin, end}) => end - begin), 1e-6);
    this.mostKernels = [0, 1].map((lane) => Math.max(...lines.map(({lanes}) => lanes[lane].length), 1));
    this.pitch = (lines.length > 60 ? 11 : lines.length > 24 ? 15 : 21) + (this.hasWorkers ? WORKER_LINE + 1 : 0);
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `${label}. Left and right move from kernel to kernel by time, up and down from layer to layer.`,
    });
    this.box = h("div", {class: "canvas-scroll"}, this.canvas);
    this.readout = makeReadout("Point at a kernel, or focus the chart and use the arrow keys.");
    this.element = h("div", {}, this.box, this.readout.element);
    this.order = this.makeOrder();
    this.redraw = drawWith(this.box, (width) => this.draw(width));
    this.listen();
  }

  /** Places of all kernels, [line, lane, index], by time. */
  makeOrder() {
    const places = [];
    this.lines.forEach(({lanes}, l) => lanes.forEach((kernels, lane) => kernels.forEach((_, i) => places.push([l, lane, i]))));
    const begin = ([l, lane, i]) => this.lines[l].lanes[lane][i].begin;
    return places.sort((a, b) => begin(a) - begin(b));
  }

  listen() {
    const {canvas} = this;
    const point = (event) => {
      const place = this.placeAt(event.offsetX, event.offsetY);
      if (place) this.moveTo(place);
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => document.activeElement !== canvas && this.moveTo(null));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && !this.cursor && this.moveTo(this.order[0]));
    canvas.addEventListener("blur", () => this.moveTo(null));
    onArrows(canvas, (kernels, layers) => this.step(kernels, layers));
  }

  draw(width) {
    const probe = this.canvas.getContext("2d");
    probe.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const room = NAME_SHARE * width, isTight = this.lines.some(({name, isLayer}) => isLayer && fitText(name, room) !== name);
    this.names = this.lines.map(({name}) => fitText(isTight ? name.replace(/^model\b.*\blayers\./, "layer ") : name, room));
    this.left = Math.ceil(Math.max(...this.names.map((name) => probe.measureText(name).width))) + 10;
    this.right = width - 2;
    const context = sizeCanvas(this.canvas, width, STRIP_HEAD + this.pitch * this.lines.length + 4);
    this.drawAxis(context);
    const colors = new Map();
    for (const swatch of new Set(this.lines.flatMap(({lanes}) => lanes.flat().map((kernel) => kernel.swatch))))
      colors.set(swatch, color(swatch));
    this.lines.forEach((_, l) => this.drawLine(context, l, colors));
    if (!this.cursor) return;
    const [x, y, breadth, height] = this.boxOf(this.cursor);
    context.strokeStyle = color("--ink");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, Math.max(breadth, 1) + 2, height + 2);
  }

  drawAxis(context) {
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--muted");
    if (this.width !== "time") {
      const text = this.width === "order" ? "kernels in their order" : "each layer from its begin to its end";
      context.fillText(text, this.left, STRIP_HEAD / 2 - 2);
      return;
    }
    const x = linearScale(0, this.most, this.left, this.right);
    const marks = ticks(this.most, Math.max(2, Math.floor((this.right - this.left) / 110)));
    for (const tick of marks) {
      const text = duration(tick), place = x(tick);
      context.fillStyle = color("--line");
      context.fillRect(Math.round(place), STRIP_HEAD - 6, 1, this.pitch * this.lines.length + 6);
      context.fillStyle = color("--muted");
      if (place + context.measureText(text).width + 4 < this.right) context.fillText(text, place + 4, STRIP_HEAD / 2 - 2);
    }
  }

  /** [x, y, width, height] of a kernel. */
  boxOf([l, lane, i]) {
    const {begin, end, lanes} = this.lines[l], kernel = lanes[lane][i], below = this.hasWorkers ? WORKER_LINE + 1 : 0;
    const height = this.pitch - below - 3, y = STRIP_HEAD + l * this.pitch + (lane ? height + 1 : 0);
    const whole = {time: this.most, layer: end - begin || 1, order: this.mostKernels[lane]}[this.width];
    const x = linearScale(0, whole, this.left, this.right);
    const [from, to] = this.width === "order" ? [i, i + 1] : [kernel.begin - begin, kernel.end - begin];
    return [x(from), y, Math.max(x(to) - x(from), 0.5), lane ? WORKER_LINE : height];
  }

  drawLine(context, l, colors) {
    context.fillStyle = color("--muted");
    context.textAlign = "right";
    const {lanes} = this.lines[l], below = this.hasWorkers ? WORKER_LINE + 1 : 0, height = this.pitch - below - 3;
    const every = niceStep(14 / this.pitch);
    if (l % every === 0 || !this.lines[l].isLayer)
      context.fillText(this.names[l], this.left - 8, STRIP_HEAD + l * this.pitch + height / 2 + 1);
    lanes.forEach((kernels, lane) => kernels.forEach((kernel, i) => {
      const [x, y, breadth, tall] = this.boxOf([l, lane, i]), gap = breadth > 4 ? 1 : 0;
      context.fillStyle = colors.get(kernel.swatch);
      context.fillRect(x, y, breadth - gap, tall);
    }));
    lanes[0].forEach((kernel, i) => this.drawName(context, kernel, [l, 0, i], colors));
  }

  /** The kernel's name, where there is room for all of it before what is nested in it or comes next. */
  drawName(context, {row, swatch}, [l, lane, i], colors) {
    const [x, y, breadth, height] = this.boxOf([l, lane, i]), isLast = i + 1 === this.lines[l].lanes[lane].length;
    const room = isLast ? breadth : Math.min(breadth, this.boxOf([l, lane, i + 1])[0] - x), name = String(row[this.at.kernel]);
    if (height < 12 || room < 30 || context.measureText(name).width > room - 8) return;
    context.fillStyle = inkOn(colors.get(swatch));
    context.textAlign = "left";
    context.fillText(name, x + 4, y + height / 2 + 1);
  }

  /** [line, lane, index] of the kernel at a place of the canvas, or of the nearest within a few pixels. */
  placeAt(offsetX, offsetY) {
    const l = Math.floor((offsetY - STRIP_HEAD) / this.pitch);
    if (l < 0 || l >= this.lines.length || offsetX < this.left - 3) return null;
    const below = this.hasWorkers ? WORKER_LINE + 1 : 0;
    const lane = this.hasWorkers && offsetY - STRIP_HEAD - l * this.pitch >= this.pitch - below - 2 ? 1 : 0;
    let nearest = null, distance = 4;
    this.lines[l].lanes[lane].forEach((_, i) => {
      const [x, , breadth] = this.boxOf([l, lane, i]), away = Math.max(x - offsetX, offsetX - x - breadth, 0);
      if (away < distance || away === 0) [nearest, distance] = [[l, lane, i], away];  // of nested ones the innermost
    });
    return nearest;
  }

  step(kernels, layers) {
    if (!this.cursor) {
      this.moveTo(this.order[0]);
      return;
    }
    if (layers === 0) {
      const at = this.order.findIndex((place) => String(place) === String(this.cursor));
      this.moveTo(this.order[clamp(at + kernels, 0, this.order.length - 1)]);
      return;
    }
    const [l, lane, i] = this.cursor, line = clamp(l + layers, 0, this.lines.length - 1), {lanes} = this.lines[line];
    const there = lanes[lane].length ? lane : 1 - lane;
    this.moveTo([line, there, Math.min(i, lanes[there].length - 1)]);
  }

  moveTo(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    if (cursor) this.readout.show(this.describe(this.lines[cursor[0]].lanes[cursor[1]][cursor[2]]));
    this.redraw();
  }

  describe({row, begin, end}) {
    const {at, table} = this, tell = (key) => at[key] >= 0 && row[at[key]] !== null ? tellCell(table, row, at[key]) : null;
    return [
      String(row[at.kernel]), row[at.name] || String(row[at.part]), duration(end - begin), `at ${duration(begin)}`,
      tell("self"), tell("gap"), tell("rows"), `rank ${row[at.rank]}`, row[at.kind] === "compute" ? null : String(row[at.kind]),
      tell("gflop"), tell("gb"), tell("share")
    ].filter(Boolean);
  }
}

function makeKernelLegend(rows, at) {
  const used = new Set(rows.map((row) => kernelSwatch(row, at)));
  return makeLegend(Object.keys(PART_NAMES)
                        .filter((swatch) => used.has(swatch))
                        .map((swatch) => ({label: PART_NAMES[swatch], swatch: `var(${swatch})`})));
}

function drawKernels(table) {
  const at = pickKernelColumns(table);
  if (!at || table.rows.length === 0) return null;
  const unit = microseconds(table.columns[at.start]);
  const phases = [...groupRows(table.rows, at.phase)].sort(([a], [b]) => isDecode(b) - isDecode(a));
  const cut = table.isCut ? table.rows.at(-1)[at.phase] : null;  // the page may hold this one's first kernels only
  const place = h("div"), shown = {phase: phases[0], width: "time"};
  const show = (change) => {
    const {phase: [phase, rows], width} = Object.assign(shown, change);
    const options = {label: `Kernels of a ${phase} step by layer`, width};
    const strip = new KernelStrip(table, at, makeKernelRows(rows, at, unit), options);
    place.replaceChildren(
        ...[makeKernelLegend(rows, at), strip.element,
            strip.hasWorkers ? h("p", {class: "note"}, "Thick: the coordinator's kernels. Thin, below: its workers'.") : null,
            phase === cut ? h("p", {class: "note"}, "The page may not hold the last kernels of this step.") : null]
            .filter(Boolean));
  };
  show({});
  const choices = phases.map((phase) => ({label: String(phase[0]), value: phase}));
  return h(
      "div", {}, choices.length > 1 ? makeChoice("Step", choices, (phase) => show({phase})) : null,
      makeChoice("Width", STRIP_WIDTHS, (width) => show({width})), place);
}
