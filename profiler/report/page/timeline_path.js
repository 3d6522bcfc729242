// The critical path on top of a timeline: which of all that was done the step's length is made of.

const PATH_LINE = 4;  // pixels

/** The height at which each piece of the path is drawn: at its slice, or where its rank is otherwise at work. */
function placePath(chart) {
  const {step, layout} = chart, known = new Map();
  for (const {lane, y} of layout.lanes) {
    if (!known.has(step.lanes[lane].rank)) known.set(step.lanes[lane].rank, y + LINE / 2);
  }
  return step.path.map(({rank, slice}) => {
    const y = slice >= 0 ? sliceLine(chart, slice) : null;
    if (y !== null) known.set(rank, y);
    return y ?? known.get(rank) ?? null;
  });
}

/** Pieces as bars below their slices; a message as a line from the one rank to the other. */
function drawPath(context, chart, [top, bottom]) {
  const {step} = chart, heights = placePath(chart), below = LINE / 2 - PATH_LINE / 2 - 1;
  context.save();
  context.beginPath();
  context.rect(chart.left, top, chart.width - chart.left, bottom - top);
  context.clip();
  context.strokeStyle = context.fillStyle = color("--path");
  context.lineWidth = 2;
  step.path.forEach(({kind, begin, end}, p) => {
    if (end < chart.from || begin > chart.to || heights[p] === null) return;
    const before = p > 0 ? heights[p - 1] : null, isMessage = kind === "message";
    const x = chart.x(begin), to = chart.x(end), y = heights[p] + below;
    if (before !== null && (isMessage || step.path[p - 1].rank !== step.path[p].rank)) {
      context.beginPath();
      context.moveTo(x, before + below);
      context.lineTo(isMessage ? to : x, y);
      context.stroke();
    }
    if (!isMessage) context.fillRect(x, y - PATH_LINE / 2, Math.max(to - x, 1), PATH_LINE);
  });
  context.restore();
}
