// The timeline of one step as a canvas: lanes of all ranks under one another, drawn for the stretch that is looked at.

const MOST_ARROWS = 400;  // in view; where there are more, only those of the chosen slice are drawn
const LEAST_VIEW_NS = 500;

class TimelineChart {
  /** `onSelect(slice)` hears of the chosen slice, -1 for none; `options`: {transfers, arrows, path}. */
  constructor(step, onSelect, options) {
    Object.assign(this, {step, onSelect, options, selected: -1, hovered: -1});
    this.canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label": `Timeline of step ${step.facts.step}, all ranks. Left and right move, plus and minus zoom, 0 shows all; ` +
          "n and p choose the next and the previous slice, up and down another lane, Enter zooms to the chosen one.",
    });
    this.spacer = h("div", {class: "timeline-spacer"}, this.canvas);
    this.box = h("div", {class: "timeline-box"}, this.spacer);
    this.readout = makeReadout("Point at a slice, or focus the timeline and press n.");
    this.showAll();
    this.redraw = drawWith(this.box, (width) => this.draw(width));
    this.box.addEventListener("scroll", () => this.redraw());
    followTimelineInput(this);
  }

  get from() { return this.view[0]; }
  get to() { return this.view[1]; }
  get span() { return this.to - this.from; }

  showAll() { this.setView(-0.01 * this.step.length, 1.01 * this.step.length); }

  setView(from, to) {
    const low = -0.01 * this.step.length, high = 1.01 * this.step.length;
    const span = clamp(to - from, Math.min(LEAST_VIEW_NS, high - low), high - low);
    const begin = clamp(from, low, high - span);
    this.view = [begin, begin + span];
    this.redraw?.();
  }

  pan(share) { this.setView(this.from + share * this.span, this.to + share * this.span); }

  /** Makes the view `factor` times as long; what is at `at` ns stays where it is. */
  zoom(factor, at = (this.from + this.to) / 2) {
    const span = clamp(this.span * factor, LEAST_VIEW_NS, 1.02 * this.step.length), share = (at - this.from) / this.span;
    this.setView(at - share * span, at + (1 - share) * span);
  }

  /** Zooms until the slice takes a third of the width. */
  zoomTo(i) {
    const span = 3 * Math.max(this.step.duration[i], LEAST_VIEW_NS / 3),
          middle = this.step.begin[i] + this.step.duration[i] / 2;
    this.setView(middle - span / 2, middle + span / 2);
  }

  select(i, reveal = true) {
    this.selected = i;
    if (i >= 0) {
      this.readout.show(this.step.tell(i));
      if (reveal) this.reveal(i);
    }
    this.onSelect(i);
    this.redraw();
  }

  hover(i) {
    if (i === this.hovered) return;
    this.hovered = i;
    if (i >= 0 || this.selected >= 0) this.readout.show(this.step.tell(i >= 0 ? i : this.selected));
    this.redraw();
  }

  /** Moves the view so that the slice lies in it. */
  reveal(i) {
    const {begin, duration} = this.step;
    if (begin[i] + duration[i] < this.from || begin[i] > this.to || (begin[i] < this.from && duration[i] < this.span)) {
      this.setView(begin[i] - 0.3 * this.span, begin[i] + 0.7 * this.span);
    }
    const row = this.layout?.lanes.find(({lane}) => lane === this.step.laneOf[i]);
    if (!row) return;
    const y = row.y + this.step.depth[i] * LINE, {scrollTop, clientHeight} = this.box;
    if (y - AXIS < scrollTop) this.box.scrollTop = y - AXIS - RANK_HEAD;
    if (y + LINE > scrollTop + clientHeight) this.box.scrollTop = y + LINE + 8 - clientHeight;
  }

  x(ns) { return this.left + (ns - this.from) / this.span * (this.width - this.left); }
  nsAt(x) { return this.from + (x - this.left) / (this.width - this.left) * this.span; }
  sliceAt(x, y) {
    if (x < this.left || y < AXIS) return -1;
    return findSlice(this.step, this.layout, this.nsAt(x), y + this.box.scrollTop, 2 * this.span / (this.width - this.left));
  }

  draw(width) {
    this.width = width;
    this.left = width < 600 ? 62 : 132;
    this.layout = layOutLanes(this.step, this.options.transfers);
    this.spacer.style.height = `${this.layout.height}px`;
    const height = Math.min(this.layout.height, this.box.clientHeight || this.layout.height);
    const context = sizeCanvas(this.canvas, width, height);
    context.save();
    context.translate(0, -this.box.scrollTop);
    const seen = [this.box.scrollTop - 40, this.box.scrollTop + height + 40];
    drawLanes(context, this, seen);
    if (this.options.arrows) drawArrows(context, this, seen);
    if (this.options.path) drawPath(context, this, seen);
    drawRings(context, this);
    drawLaneNames(context, this, seen);
    context.restore();
    drawTimeAxis(context, this, height);
  }
}
