// The roofline: every operator by its arithmetic intensity and its speed, both logarithmic, under the machine's measured roofs.

const MAX_ROOFLINE_LABELS = 8;
const dotRadius = (share) => Math.max(3, 16 * Math.sqrt(share));

function findOperatorPoints(table) {
  const at = table.pick(
      {
        name: [/^(operator|op|name|op_type|type)$/, /^op/],
        intensity: [/intensity/],
        speed: [/^(gflops|gflop_per_s|achieved)/, /gflop/],
        time: [/^total.*_(us|ms)$/, /total/],
        roof: [/^(roof|attainable|bound)_?g?flop/, /roof.*gflop/, /bound.*gflop/],
        bound: [/^(bound|bound_by|limit|limited_by)$/],
        efficiency: [/^efficiency/, /^roof_share/],
        rank: [/^rank/],
        phase: [/^phase$/],
        count: [/^(count|calls)$/],
      },
      ["name", "intensity", "speed"]);
  if (!at) return null;
  const unit = at.time >= 0 ? microseconds(table.columns[at.time]) : 1;
  const points =
      table.rows.filter((row) => row[at.intensity] > 0 && row[at.speed] > 0)
          .map((row) => ({
                 row,
                 x: row[at.intensity],
                 y: row[at.speed],
                 time: at.time >= 0 ? row[at.time] * unit : 1,
                 name: [row[at.name], at.rank >= 0 ? `rank ${row[at.rank]}` : null, at.phase >= 0 ? row[at.phase] : null]
                           .filter((part) => part !== null)
                           .join(", "),
                 short: String(row[at.name]),
                 roof: at.roof >= 0 && row[at.roof] > 0 ? row[at.roof] : null,
               }));
  points.sort((a, b) => b.time - a.time);
  return points.length ? {points, at} : null;
}

/** {gbPerS, gflops}: what the rows' bounds say about the machine; null where they do not. */
function findRoofs(points) {
  const bounded = points.filter(({roof}) => roof !== null);
  if (bounded.length === 0) return {gbPerS: null, gflops: null};
  const slope = Math.max(...bounded.map(({roof, x}) => roof / x));
  const top = Math.max(...bounded.map(({roof}) => roof));
  const onSlope = bounded.some(({roof, x}) => roof < top * 0.98 && roof / x > slope * 0.98);
  const onTop = bounded.some(({roof, x}) => roof / x < slope * 0.98);
  return {gbPerS: onSlope || !onTop ? slope : null, gflops: onTop ? top : null};
}

/** The roofs themselves, where the run's table has them. */
function readRoofs(run) {
  const roofs = {};
  for (const [key, pattern] of [["gbPerS", /gb_per_s$/], ["gflops", /gflop_per_s$/]]) {
    const value = run?.rows[0]?.[run.find(pattern)];
    if (value > 0) roofs[key] = value;
  }
  return roofs;
}

class Roofline {
  constructor(table, {points, at}, run) {
    Object.assign(this, {table, points, at, cursor: -1, roofs: {...findRoofs(points), ...readRoofs(run)}});
    this.most = points.reduce((most, {time}) => Math.max(most, time), 0);
    this.box = h("div", {
      class: "svg-box",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "chart",
      "aria-label": `Roofline of ${points.length} operators, largest first. Left and right move from operator to operator.`
    });
    this.readout = makeReadout("Point at an operator, or focus the chart and use the arrow keys.");
    this.element =
        h("div", {}, h("h3", {}, "Roofline"),
          h("p", {class: "note"},
            "Intensity and speed of each operator on logarithmic axes; the larger the area, the more time in total." +
                (this.roofs.gbPerS || this.roofs.gflops ? " The lines are the roofs measured on the coordinator." :
                                                          " No roofs were measured.")),
          this.box, this.readout.element);
    drawWith(this.box, (width) => this.draw(width));
    onArrows(this.box, (columns, rows) => this.select(clamp(this.cursor + (columns || rows), 0, points.length - 1)));
    this.box.addEventListener("focus", () => this.box.matches(":focus-visible") && this.select(Math.max(this.cursor, 0)));
    this.box.addEventListener("blur", () => this.select(-1));
  }

  draw(width) {
    const height = clamp(Math.round(width * 0.55), 260, 420), left = 54, right = 14, top = 16, bottom = 44;
    const {points, roofs} = this, xs = points.map(({x}) => x), ys = points.map(({y}) => y);
    const lowX = Math.min(...xs) / 2.5,
          highX = Math.max(...xs, roofs.gflops && roofs.gbPerS ? roofs.gflops / roofs.gbPerS : 0) * 4;
    const lowY = Math.min(...ys) / 3,
          highY = Math.max(...ys, roofs.gflops ?? 0, roofs.gbPerS && !roofs.gflops ? roofs.gbPerS * Math.max(...xs) : 0) * 2.5;
    Object.assign(this, {lowX, highX});
    const x = logScale(lowX, highX, left, width - right), y = logScale(lowY, highY, height - bottom, top);
    const grid = [
      ...decades(lowX, highX)
          .map(
              (value) =>
                  [s("line", {class: "grid", x1: x(value), x2: x(value), y1: top, y2: height - bottom}),
                   s("text", {class: "tick", x: x(value), y: height - bottom + 16, "text-anchor": "middle"},
                     shortNumber(value))]),
      ...decades(lowY, highY)
          .map(
              (value) =>
                  [s("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
                   s("text", {class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end"}, shortNumber(value))]),
    ];
    this.dots = points.map(({x: px, y: py, time}, i) => s("circle", {
                             class: "dot",
                             cx: x(px),
                             cy: y(py),
                             r: dotRadius(time / this.most),
                             onpointerenter: () => this.select(i),
                             onpointerdown: () => this.select(i),
                           }));
    const picture =
        s("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"}, grid,
          this.makeRoofs(x, y, {lowX, highX, lowY, highY}), s("g", {}, this.dots),
          this.makeLabels(x, y, width, {top, bottom: height - bottom}),
          s("text", {class: "axis", x: width - right, y: height - 6, "text-anchor": "end"}, "intensity, FLOP/byte"),
          s("text", {class: "axis", x: 4, y: 11}, "GFLOP/s"));
    this.box.replaceChildren(picture);
    this.dots[this.cursor]?.classList.add("at");
  }

  makeRoofs(x, y, {lowX, highX, lowY, highY}) {
    const {gbPerS, gflops} = this.roofs, parts = [];
    const ridge = gbPerS && gflops ? gflops / gbPerS : null;
    if (gbPerS) {
      const from = Math.max(lowX, lowY / gbPerS), to = Math.min(highX, ridge ?? Infinity, highY / gbPerS);
      const slant = Math.atan2(y(to * gbPerS) - y(from * gbPerS), x(to) - x(from)) * 180 / Math.PI;
      const middle = Math.sqrt(from * Math.sqrt(from * to));
      parts.push(
          s("line", {class: "roof", x1: x(from), y1: y(from * gbPerS), x2: x(to), y2: y(to * gbPerS)}),
          s("text", {
            class: "roof-label",
            x: x(middle),
            y: y(middle * gbPerS) - 7,
            transform: `rotate(${slant.toFixed(1)} ${x(middle).toFixed(1)} ${(y(middle * gbPerS) - 7).toFixed(1)})`
          },
            `${significant(gbPerS)} GB/s`));
    }
    if (gflops) {
      parts.push(
          s("line", {class: "roof", x1: x(ridge ?? lowX), y1: y(gflops), x2: x(highX), y2: y(gflops)}),
          s("text", {class: "roof-label", x: x(highX), y: y(gflops) - 7, "text-anchor": "end"},
            `${significant(gflops)} GFLOP/s`));
    }
    return parts;
  }

  /** Boxes along the sloping roof, where no name should lie. */
  roofBoxes(x, y) {
    const {gbPerS, gflops} = this.roofs, boxes = [];
    for (let at = this.lowX; gbPerS && at < Math.min(this.highX, gflops ? gflops / gbPerS : Infinity); at *= 1.06) {
      boxes.push([x(at) - 4, y(at * gbPerS) - 4, x(at) + 4, y(at * gbPerS) + 4]);
    }
    return boxes;
  }

  /** Names of the operators with the most time, where they lie neither on another name or operator nor outside the picture. */
  makeLabels(x, y, width, {top, bottom}) {
    const dots = this.points.map((point) => ({point, x: x(point.x), y: y(point.y), r: dotRadius(point.time / this.most)}));
    const taken = this.roofBoxes(x, y), labels = [], named = new Set(),
          most = Math.min(MAX_ROOFLINE_LABELS, Math.floor(width / 90));
    const isClear = (box, own) => box[0] > 56 && box[2] < width - 4 && box[1] > top && box[3] < bottom &&
        taken.every((other) => box[2] < other[0] || other[2] < box[0] || box[3] < other[1] || other[3] < box[1]) &&
        dots.every(
            (dot) => dot === own || box[2] < dot.x - dot.r * 0.7 || dot.x + dot.r * 0.7 < box[0] ||
                box[3] < dot.y - dot.r * 0.7 || dot.y + dot.r * 0.7 < box[1]);
    for (const dot of dots) {
      const {short} = dot.point, size = short.length * 6.8;
      if (labels.length >= most || named.has(short)) continue;
      const places = [
        [dot.x + dot.r + 4, 4], [dot.x - dot.r - 4 - size, 4], [dot.x - size / 2, -dot.r - 5], [dot.x - size / 2, dot.r + 13]
      ];
      for (const [left, dy] of places) {
        const box = [left - 2, dot.y + dy - 11, left + size + 2, dot.y + dy + 3];
        if (!isClear(box, dot)) continue;
        taken.push(box);
        named.add(short);
        labels.push(s("text", {class: "dot-label", x: left + size / 2, y: dot.y + dy, "text-anchor": "middle"}, short));
        break;
      }
    }
    return labels;
  }

  select(i) {
    this.dots?.[this.cursor]?.classList.remove("at");
    this.cursor = i;
    if (i < 0) return;
    const dot = this.dots?.[i];
    dot?.classList.add("at");
    dot?.parentNode.append(dot);  // above the others
    const {row, name, x, y, time} = this.points[i], {at, table} = this;
    const parts = [name, `${significant(x)} FLOP/byte`, `${significant(y)} GFLOP/s`];
    if (at.time >= 0) parts.push(`${duration(time)} in total`);
    if (at.bound >= 0 && row[at.bound]) parts.push(`bound: ${row[at.bound]}`);
    if (at.efficiency >= 0 && row[at.efficiency] !== null) parts.push(`efficiency ${humanCell(table, row, at.efficiency)}`);
    this.readout.show(parts);
  }
}

function drawOperators(table, report) {
  const found = findOperatorPoints(table);
  return found ? new Roofline(table, found, report.tables.get("run")).element : null;
}
