// Rows x columns of one number each, as a canvas: read by its colours, by pointing, or with the arrow keys.

/** Arrow keys, Home, End and Page keys on `element`: move(columns, rows). */
function onArrows(element, move) {
  const steps = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1],
    Home: [-Infinity, 0],
    End: [Infinity, 0],
    PageUp: [0, -10],
    PageDown: [0, 10],
  };
  element.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    move(...step);
  });
}

function clamp(value, low, high) { return Math.min(Math.max(value, low), high); }

/** A canvas of the wanted size in CSS pixels, sharp on every screen. */
function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return context;
}

class HeatMap {
  /**
   * options: label (for screen readers), rowNames, columnNames, rowTitle, columnTitle, values[row][column] (null: nothing),
   * format(value), describe(row, column) -> parts of the readout, marks: Set of "row,column" to be ringed,
   * bands: [swatch] by column for a strip above the cells, numbers: write the values into the cells where they fit.
   */
  constructor(options) {
    Object.assign(this, {marks: new Set(), bands: null, numbers: false, maxCell: 72}, options);
    this.cursor = null;
    const flat = this.values.flat().filter((value) => value !== null);
    const top = flat.reduce((a, b) => Math.max(a, b), 0), usual = quantile(flat, 0.99);
    this.isCapped = usual > 0 && top > 2.5 * usual && flat.length > 50;
    this.top = this.isCapped ? usual : top;
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": `${this.label}. Arrow keys move from cell to cell.`,
    });
    this.scroller = h("div", {class: "canvas-scroll"}, this.canvas);
    this.readout = makeReadout("Point at a cell, or focus the map and use the arrow keys.");
    this.element = h("div", {class: "heat-map"}, this.makeLegend(), this.scroller, this.readout.element);
    this.redraw = drawWith(this.scroller, (width) => this.draw(width));
    this.canvas.addEventListener("pointermove", (event) => this.pointAt(event));
    this.canvas.addEventListener("pointerdown", (event) => this.pointAt(event));
    this.canvas.addEventListener("pointerleave", () => document.activeElement !== this.canvas && this.moveTo(null));
    this.canvas.addEventListener(
        "focus", () => this.canvas.matches(":focus-visible") && this.cursor === null && this.moveTo([0, 0]));
    this.canvas.addEventListener("blur", () => this.moveTo(null));
    onArrows(this.canvas, (columns, rows) => this.step(columns, rows));
  }

  makeLegend() {
    const most = (this.isCapped ? "\u2265\u00a0" : "") + this.format(this.top);
    return h(
        "div", {class: "ramp-legend"}, h("span", {}, this.format(0)), h("span", {class: "ramp", "aria-hidden": "true"}),
        h("span", {}, most), this.legendNote ? h("span", {class: "ramp-note"}, this.legendNote) : null);
  }

  layOut(width, context) {
    const longest = (names) => Math.ceil(Math.max(...names.map((name) => context.measureText(name).width), 0));
    const labels = longest(this.rowNames);
    this.left = Math.max(labels, Math.min(40, context.measureText(this.rowTitle ?? "").width)) + 10;
    const numColumns = this.columnNames.length;
    const room = (width - this.left - 1) / numColumns;
    this.cellWidth = room >= 8 ? clamp(Math.floor(room), 8, this.maxCell) : clamp(Math.floor(room), 3, 8);
    const widest = longest(this.columnNames);
    this.everyColumn = 1;
    this.slanted = false;
    if (widest + 6 > this.cellWidth) {
      if (widest > 30)
        this.slanted = true;
      else
        this.everyColumn = niceStep((widest + 14) / this.cellWidth);
    }
    this.strip = this.bands ? 10 : 0;
    this.top0 = (this.slanted ? Math.ceil(widest * 0.71) + 14 : 22) + this.strip;
    this.right = this.slanted ? Math.ceil(widest * 0.71) - this.cellWidth / 2 + 8 : 0;
    const numRows = this.rowNames.length;
    this.cellHeight = this.numbers ? 30 : numRows > 100 ? 6 : numRows > 60 ? 10 : numRows > 24 ? 14 : 20;
    this.everyRow = this.cellHeight >= 13 ? 1 : niceStep(14 / this.cellHeight);
    // Slanted labels of the last columns reach beyond the cells.
    if (this.slanted && this.cellWidth > 8) {
      const fit = (width - this.left - this.right - 1) / numColumns;
      this.cellWidth = clamp(Math.floor(fit), 18, this.maxCell);
    }
  }

  draw(width) {
    const probe = this.canvas.getContext("2d");
    probe.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    this.layOut(width, probe);
    const {left, top0, cellWidth, cellHeight} = this;
    const fullWidth = Math.ceil(left + cellWidth * this.columnNames.length + Math.max(this.right, 1));
    const context = sizeCanvas(this.canvas, fullWidth, top0 + cellHeight * this.rowNames.length + 2);
    const ramp = heatRamp(), gap = Math.min(cellWidth, cellHeight) >= 6 ? 1 : 0, empty = color("--heat-none");
    this.drawNames(context);
    this.values.forEach((row, r) => row.forEach((value, c) => {
      const fill = value === null ? empty : ramp(this.top > 0 ? value / this.top : 0);
      context.fillStyle = fill;
      context.fillRect(left + c * cellWidth, top0 + r * cellHeight, cellWidth - gap, cellHeight - gap);
      if (this.numbers && value !== null) this.drawNumber(context, r, c, value, fill);
    }));
    this.bands?.forEach((swatch, c) => {
      context.fillStyle = swatch.startsWith("var(") ? color(swatch.slice(4, -1)) : swatch;
      context.fillRect(left + c * cellWidth, top0 - 8, cellWidth, 5);
    });
    context.lineWidth = 1.5;
    context.strokeStyle = color("--mark");
    for (const mark of this.marks) this.ring(context, ...mark.split(",").map(Number));
    if (this.cursor) {
      context.lineWidth = 2;
      context.strokeStyle = color("--ink");
      this.ring(context, ...this.cursor);
    }
  }

  drawNames(context) {
    context.fillStyle = color("--muted");
    context.textBaseline = "middle";
    context.textAlign = "right";
    this.rowNames.forEach((name, r) => {
      if (r % this.everyRow === 0) context.fillText(name, this.left - 8, this.top0 + (r + 0.5) * this.cellHeight);
    });
    const bottom = this.top0 - this.strip - 8;
    this.columnNames.forEach((name, c) => {
      if (c % this.everyColumn !== 0) return;
      const x = this.left + (c + 0.5) * this.cellWidth;
      if (!this.slanted) {
        context.textAlign = this.everyColumn > 1 ? "left" : "center";
        context.fillText(name, this.everyColumn > 1 ? x - this.cellWidth / 2 : x, bottom - 2);
        return;
      }
      context.save();
      context.translate(x - 2, bottom + 2);
      context.rotate(-Math.PI / 4);
      context.textAlign = "left";
      context.fillText(name, 0, 0);
      context.restore();
    });
    if (this.rowTitle) {
      context.textAlign = "right";
      context.fillText(this.rowTitle, this.left - 8, bottom - 2);
    }
  }

  drawNumber(context, r, c, value, fill) {
    const text = this.format(value);
    if (context.measureText(text).width > this.cellWidth - 6) return;
    context.fillStyle = inkOn(fill);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, this.left + (c + 0.5) * this.cellWidth, this.top0 + (r + 0.5) * this.cellHeight);
  }

  ring(context, r, c) {
    const {left, top0, cellWidth, cellHeight} = this;
    context.strokeRect(left + c * cellWidth - 1, top0 + r * cellHeight - 1, cellWidth + 1, cellHeight + 1);
  }

  pointAt(event) {
    const c = Math.floor((event.offsetX - this.left) / this.cellWidth),
          r = Math.floor((event.offsetY - this.top0) / this.cellHeight);
    const inside = r >= 0 && c >= 0 && r < this.rowNames.length && c < this.columnNames.length;
    if (inside) this.moveTo([r, c]);
  }

  step(columns, rows) {
    const [r, c] = this.cursor ?? [0, 0];
    this.moveTo([clamp(r + rows, 0, this.rowNames.length - 1), clamp(c + columns, 0, this.columnNames.length - 1)]);
    const x = this.left + this.cursor[1] * this.cellWidth, box = this.scroller;
    if (x + this.cellWidth > box.scrollLeft + box.clientWidth) box.scrollLeft = x + 2 * this.cellWidth - box.clientWidth;
    if (x - this.left < box.scrollLeft) box.scrollLeft = x - this.left - this.cellWidth;
  }

  moveTo(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    if (cursor) this.readout.show(this.describe(...cursor));
    this.redraw();
  }
}

/** The first of 1, 2, 5, 10, … that is at least `least`. */
function niceStep(least) {
  for (let power = 1;; power *= 10) {
    for (const m of [1, 2, 5])
      if (m * power >= least) return m * power;
  }
}
