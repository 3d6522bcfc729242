// What each rank's memory was used for over time: kinds as areas on one another, the resident set as a line on top.

const MAX_MEMORY_RANKS = 8;
const MEMORY_HEIGHT = 128;  // pixels, of a rank's areas
const OWN_SCALE_FROM = 4;   // times that one rank holds what another does, from which on each has a scale of its own
const MEMORY_SWATCH = {
  weights: "--kind-0",
  rss_files: "--heat-1",
  rss_shared: "--heat-2",
  kv_cache: "--kind-1",
  recurrent_state: "--kind-2",
  snapshots: "--kind-3",
  swap_space: "--message",
  buffers: "--kind-5",
  exchange: "--kind-6",
  heap: "--kind-4",
  trace: "--kind-7",
  unaccounted: "--free",
};
const MEMORY_NAMES = {
  kv_cache: "KV cache",
  rss_files: "pages of files",
  rss_shared: "shared with others",
  recurrent_state: "recurrent states",
};

const memorySwatch = (kind) => MEMORY_SWATCH[kind] ?? "--strong-line";
const memoryName = (kind) => MEMORY_NAMES[kind] ?? String(kind).replaceAll("_", " ");

/** About `count` round numbers of bytes up to `high`, round in the unit that they are told in. */
function byteTicks(high, count) {
  let unit = 1;
  while (high / unit >= 1024) unit *= 1024;
  return ticks(high / unit, count).map((value) => value * unit);
}

/** [{rank, moments: [{at, bytes: [one a kind], sum}]}] of the table; `at` in ms, what is not known as 0. */
function readMemory(table, at, kinds) {
  const unit = microseconds(table.columns[at.at]) / 1e3;
  return [...groupRows(table.rows, at.rank)].map(([rank, ofRank]) => {
    const moments = [...groupRows(ofRank, at.at)].map(([time, rows]) => {
      const bytes = kinds.map(() => 0);
      for (const row of rows) bytes[kinds.indexOf(row[at.kind])] += row[at.bytes] ?? 0;
      return {at: time * unit, bytes, sum: bytes.reduce((a, b) => a + b, 0)};
    });
    return {rank, moments: moments.sort((a, b) => a.at - b.at)};
  });
}

class MemoryAreas {
  constructor(ranks, kinds, {isShared}) {
    const all = ranks.flatMap(({moments}) => moments);
    const top = (moments) => Math.max(...moments.map(({bytes, sum}) => Math.max(sum, stackTop(bytes))), 1);
    Object.assign(this, {ranks, kinds, cursor: null});
    this.tops = ranks.map(({moments}) => isShared ? top(all) : top(moments));
    this.first = Math.min(...all.map(({at}) => at));
    this.last = Math.max(...all.map(({at}) => at));
    if (this.first === this.last) [this.first, this.last] = [this.first - 1, this.last + 1];  // one look: it fills the width
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": "Memory of each rank over time. Left and right move from moment to moment, up and down from rank to rank.",
    });
    this.box = h("div", {class: "canvas-scroll"}, this.canvas);
    this.readout = makeReadout("Point at a moment, or focus the chart and use the arrow keys.");
    this.element = h("div", {}, this.box, this.readout.element);
    this.redraw = drawWith(this.box, (width) => this.draw(width));
    this.listen();
  }

  listen() {
    const {canvas} = this;
    const point = (event) => this.moveTo(this.placeAt(event.offsetX, event.offsetY));
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => document.activeElement !== canvas && this.moveTo(null));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && !this.cursor && this.moveTo([0, 0]));
    canvas.addEventListener("blur", () => this.moveTo(null));
    onArrows(canvas, (moments, ranks) => this.step(moments, ranks));
  }

  draw(width) {
    this.head = 14;
    this.left = 66;
    this.pitch = MEMORY_HEIGHT + 34;
    this.x = linearScale(this.first, this.last, this.left, width - 2);
    const context = sizeCanvas(this.canvas, width, this.head + this.pitch * this.ranks.length + 8);
    this.ranks.forEach((_, r) => this.drawRank(context, width, r));
    this.drawTimes(context, width);
    if (this.cursor) this.drawCursor(context);
  }

  /** Where the areas of a rank stand on. */
  base(r) { return this.head + r * this.pitch + 20 + MEMORY_HEIGHT; }

  drawRank(context, width, r) {
    const {rank, moments} = this.ranks[r], base = this.base(r), y = linearScale(0, this.tops[r], 0, MEMORY_HEIGHT);
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = color("--ink");
    context.fillText(`rank ${rank}`, this.left, base - MEMORY_HEIGHT - 11);
    context.textAlign = "right";
    for (const tick of byteTicks(this.tops[r], 3)) {
      context.fillStyle = color("--line");
      context.fillRect(this.left, Math.round(base - y(tick)), width - this.left, 1);
      context.fillStyle = color("--muted");
      context.fillText(tick === 0 ? "0" : byteCount(tick), this.left - 6, base - y(tick));
    }
    const shown = this.stretch(moments);
    let below = shown.map(() => 0);
    this.kinds.forEach((kind, k) => {
      const above = shown.map(({bytes}, m) => below[m] + Math.max(bytes[k], 0));
      this.drawArea(context, shown, below, above, base, y, color(memorySwatch(kind)));
      below = above;
    });
    context.beginPath();
    shown.forEach(({x, sum}, m) => context[m ? "lineTo" : "moveTo"](x, base - y(Math.max(sum, 0))));
    context.strokeStyle = color("--ink");
    context.lineWidth = 1.5;
    context.stroke();
  }

  /** The moments with their places; a single one is drawn as wide as the chart. */
  stretch(moments) {
    if (moments.length > 1) return moments.map((moment) => ({...moment, x: this.x(moment.at)}));
    return [this.first, this.last].map((at) => ({...moments[0], x: this.x(at)}));
  }

  drawArea(context, shown, below, above, base, y, fill) {
    if (above.every((value, m) => value === below[m])) return;
    context.beginPath();
    shown.forEach(({x}, m) => context[m ? "lineTo" : "moveTo"](x, base - y(above[m])));
    for (let m = shown.length - 1; m >= 0; --m) context.lineTo(shown[m].x, base - y(below[m]));
    context.closePath();
    context.fillStyle = fill;
    context.fill();
    context.strokeStyle = color("--surface");  // areas are told apart by more than their colours
    context.lineWidth = 0.75;
    context.stroke();
  }

  drawTimes(context, width) {
    const y = this.head + this.pitch * this.ranks.length - 4, span = this.last - this.first;
    const step = ticks(span, Math.max(2, Math.floor((width - this.left) / 80)))[1] ?? span;
    context.fillStyle = color("--muted");
    context.textAlign = "left";
    for (let tick = Math.ceil(this.first / step) * step; tick <= this.last; tick += step) {
      const text = tick === 0 ? "0 s" : duration(1e3 * tick), x = this.x(tick);
      if (x + context.measureText(text).width < width) context.fillText(text, x, y);
    }
  }

  drawCursor(context) {
    const [r, m] = this.cursor, {at, sum} = this.ranks[r].moments[m], x = this.x(at), base = this.base(r);
    context.fillStyle = color("--ink");
    context.fillRect(Math.round(x), base - MEMORY_HEIGHT, 1, MEMORY_HEIGHT);
    context.beginPath();
    context.arc(x, base - Math.max(sum, 0) / this.tops[r] * MEMORY_HEIGHT, 3.5, 0, 2 * Math.PI);
    context.fill();
  }

  placeAt(offsetX, offsetY) {
    const r = clamp(Math.floor((offsetY - this.head) / this.pitch), 0, this.ranks.length - 1);
    return [r, this.nearest(r, linearScale(this.left, this.x(this.last), this.first, this.last)(offsetX))];
  }

  /** The moment of a rank that lies nearest to a time. */
  nearest(r, time) {
    const {moments} = this.ranks[r];
    return moments.reduce((best, {at}, m) => Math.abs(at - time) < Math.abs(moments[best].at - time) ? m : best, 0);
  }

  step(moments, ranks) {
    const [r, m] = this.cursor ?? [0, 0], rank = clamp(r + ranks, 0, this.ranks.length - 1);
    const moved = clamp(m + moments, 0, this.ranks[r].moments.length - 1);
    this.moveTo([rank, rank === r ? moved : this.nearest(rank, this.ranks[r].moments[m].at)]);
  }

  moveTo(cursor) {
    if (String(cursor) === String(this.cursor)) return;
    this.cursor = cursor;
    if (cursor) {
      const [r, m] = cursor, {rank, moments} = this.ranks[r], {at, bytes, sum} = moments[m];
      const told = this.kinds.map((kind, k) => [kind, bytes[k]]).filter(([, value]) => value !== 0);
      told.sort(([, a], [, b]) => b - a);
      this.readout.show([
        `Rank ${rank} at ${at === 0 ? "0 s" : duration(1e3 * at)}`, `resident ${byteCount(sum)}`,
        ...told.map(([kind, value]) => `${memoryName(kind)} ${byteCount(value)} (${percent(value / sum)})`)
      ]);
    }
    this.redraw();
  }
}

/** How high the areas of a moment stand; what is less than nothing, as an account that does not add up, has none. */
function stackTop(bytes) { return bytes.reduce((sum, value) => sum + Math.max(value, 0), 0); }

function drawMemory(table) {
  const at = table.pick({rank: [/^rank$/], at: [/^at_(ms|us|s)$/], kind: [/^kind$/], bytes: [/^bytes$/]});
  if (!at || table.rows.length === 0) return null;
  const known = Object.keys(MEMORY_SWATCH), used = uniqueValues(table, at.kind);
  const kinds = [...known.filter((kind) => used.includes(kind)), ...used.filter((kind) => !known.includes(kind))];
  const ranks = readMemory(table, at, kinds), drawn = ranks.slice(0, MAX_MEMORY_RANKS), place = h("div");
  const show = (isShared) => place.replaceChildren(new MemoryAreas(drawn, kinds, {isShared}).element);
  const peaks = drawn.map(({moments}) => Math.max(...moments.map(({sum}) => sum)));
  const scales = [{label: "the same for all ranks", value: true}, {label: "each rank its own", value: false}];
  if (Math.max(...peaks) > OWN_SCALE_FROM * Math.min(...peaks)) scales.reverse();
  show(scales[0].value);
  const isOver = ranks.some(({moments}) => moments.some(({bytes, sum}) => stackTop(bytes) > 1.01 * sum));
  return h(
      "div", {}, drawn.length > 1 ? makeChoice("Scale", scales, show) : null, makeLegend([
        ...kinds.map((kind) => ({label: memoryName(kind), swatch: `var(${memorySwatch(kind)})`})),
        {label: "resident set (line)", swatch: "linear-gradient(transparent 40%, var(--ink) 40% 60%, transparent 60%)"}
      ]),
      place,
      isOver ? h("p", {class: "note"}, "Where areas reach beyond the line, kinds count memory that does not lie in memory.") :
               null,
      ranks.length > drawn.length ? h("p", {class: "note"}, `The first ${drawn.length} of ${ranks.length} ranks are drawn.`) :
                                    null);
}
