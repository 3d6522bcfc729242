// What a timeline's canvas is painted with, layer by layer.

/** The middle of a slice's line and its row, or null where its lane is not drawn. */
function sliceLine(chart, i) {
  const row = chart.layout.lanes.find(({lane}) => lane === chart.step.laneOf[i]);
  return row ? row.y + (chart.step.depth[i] + 0.5) * LINE : null;
}

/** `text` as far as it fits into `room` pixels. */
function fitText(text, room) {
  const most = Math.floor(room / 6.3);
  return text.length <= most ? text : most < 4 ? "" : text.slice(0, most - 1) + "\u2026";
}

function drawLanes(context, chart, [top, bottom]) {
  const {step, layout} = chart, colors = new Map();
  const paintOf = (swatch) => {
    if (!colors.has(swatch)) colors.set(swatch, {fill: color(swatch), ink: inkOn(color(swatch))});
    return colors.get(swatch);
  };
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const {lane, y, height} of layout.lanes) {
    if (y + height < top || y > bottom) continue;
    const {first, last} = step.lanes[lane], drawnTo = [];
    context.fillStyle = color("--lane");
    context.fillRect(chart.left, y, chart.width - chart.left, height);
    for (let i = first; i < last; ++i) {
      if (step.begin[i] > chart.to) break;
      if (step.end(i) < chart.from) continue;
      const x = Math.max(chart.x(step.begin[i]), chart.left), end = Math.min(chart.x(step.end(i)), chart.width);
      const breadth = Math.max(end - x, 1), depth = step.depth[i];
      if (x + breadth < (drawnTo[depth] ?? -1) + 0.5) continue;  // lies in a pixel that is painted already
      drawnTo[depth] = x + breadth;
      const {fill, ink} = paintOf(sliceSwatch(step, i));
      context.fillStyle = fill;
      context.fillRect(x, y + depth * LINE, breadth > 3 ? breadth - 0.5 : breadth, LINE - 1);
      if (breadth < 34) continue;
      context.fillStyle = ink;
      context.fillText(fitText(step.name(i), breadth - 6), x + 3, y + (depth + 0.5) * LINE);
    }
  }
}

/** From the end of one slice to the begin of another, with a head. */
function drawArrow(context, x0, y0, x1, y1) {
  const bend = clamp(Math.abs(x1 - x0) / 2, 8, 60);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 6, y1 - 3);
  context.lineTo(x1 - 6, y1 + 3);
  context.fill();
}

function drawArrows(context, chart, [top, bottom]) {
  const {step, selected} = chart, isSeen = (ns) => ns >= chart.from && ns <= chart.to;
  const own = [], others = [];
  for (const arrow of step.arrows) {
    const begin = step.end(arrow.from), end = step.begin[arrow.to];
    if (!isSeen(begin) && !isSeen(end)) continue;
    if (arrow.from === selected || arrow.to === selected)
      own.push(arrow);
    else if (arrow.kind !== "message")
      others.push(arrow);
  }
  chart.numArrows = own.length + (others.length <= MOST_ARROWS ? others.length : 0);
  context.save();
  context.beginPath();
  context.rect(chart.left, top, chart.width - chart.left, bottom - top);
  context.clip();
  const draw = ({kind, from, to}) => {
    const y0 = sliceLine(chart, from), y1 = sliceLine(chart, to);
    if (y0 === null || y1 === null || Math.max(y0, y1) < top || Math.min(y0, y1) > bottom) return;
    // A message is seen from both ends at once: its arrow goes from end to end.
    drawArrow(context, chart.x(step.end(from)), y0, chart.x(kind === "message" ? step.end(to) : step.begin[to]), y1);
  };
  context.strokeStyle = context.fillStyle = color("--muted");
  context.lineWidth = 1;
  context.globalAlpha = 0.6;
  if (others.length <= MOST_ARROWS) others.forEach(draw);
  context.strokeStyle = context.fillStyle = color("--mark");
  context.lineWidth = 2;
  context.globalAlpha = 1;
  own.forEach(draw);
  context.restore();
}

function drawRings(context, chart) {
  for (const [i, name, breadth] of [[chart.hovered, "--muted", 1.5], [chart.selected, "--ink", 2.5]]) {
    const y = i >= 0 ? sliceLine(chart, i) : null;
    if (y === null || chart.step.begin[i] > chart.to || chart.step.end(i) < chart.from) continue;
    const x = Math.max(chart.x(chart.step.begin[i]), chart.left), end = Math.min(chart.x(chart.step.end(i)), chart.width);
    context.strokeStyle = color(name);
    context.lineWidth = breadth;
    context.strokeRect(x, y - LINE / 2, Math.max(end - x, 2), LINE - 1);
  }
}

/** Beside narrow timelines "to rank 1" is an arrow and a number. */
function laneName(name, room) {
  return room > 100 ? name : name.replace(/^to rank /, "\u2192\u00a0").replace(/^from rank /, "\u2190\u00a0");
}

function drawLaneNames(context, chart, [top, bottom]) {
  const {step, layout} = chart;
  context.fillStyle = color("--surface");
  context.fillRect(0, top, chart.left - 2, bottom - top);
  context.textBaseline = "middle";
  context.textAlign = "left";
  for (const {rank, y} of layout.ranks) {
    context.fillStyle = color("--ink");
    context.fillText(rank === 0 && chart.left > 100 ? "rank 0, coordinator" : `rank ${rank}`, 2, y + RANK_HEAD / 2);
  }
  context.fillStyle = color("--muted");
  for (const {lane, y} of layout.lanes)
    context.fillText(fitText(laneName(step.lanes[lane].name, chart.left), chart.left - 12), 8, y + LINE / 2);
}

/** A few round moments of [from, to]. */
function momentsIn(from, to, count) {
  const step = niceNs((to - from) / count), moments = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) moments.push(at);
  return moments;
}

function niceNs(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= least);
}

function drawTimeAxis(context, chart, height) {
  context.fillStyle = color("--surface");
  context.fillRect(0, 0, chart.width, AXIS - 2);
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const at of momentsIn(chart.from, chart.to, Math.max((chart.width - chart.left) / 90, 2))) {
    const x = chart.x(at);
    context.fillStyle = color("--strong-line");
    context.fillRect(Math.round(x), AXIS - 4, 1, 4);
    context.fillStyle = color("--muted");
    const text = at === 0 ? "0" : momentText(at, chart.span), half = context.measureText(text).width / 2;
    if (x - half > 2 && x + half < chart.width) context.fillText(text, x, AXIS / 2 - 1);
  }
  for (const edge of [0, chart.step.length]) {
    if (edge < chart.from || edge > chart.to) continue;
    context.fillStyle = color("--strong-line");
    context.fillRect(Math.round(chart.x(edge)), AXIS - 4, 1, height);
  }
}

/** A moment with as many decimals as tell ticks of a view of `span` ns apart. */
function momentText(ns, span) {
  const [unit, name] = Math.abs(ns) >= 1e9 ? [1e9, "s"] : Math.abs(ns) >= 1e6 ? [1e6, "ms"] : [1e3, "\u00b5s"];
  const decimals = clamp(Math.ceil(-Math.log10(span / 20 / unit)), 0, 6);
  return `${(ns / unit).toFixed(decimals)}\u00a0${name}`;
}
