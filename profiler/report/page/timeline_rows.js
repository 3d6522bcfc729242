// Where a timeline's lanes stand: rank behind rank, in each its threads, its devices and its messages, a line for each depth of
// nesting.

const LINE = 18;
const LANE_GAP = 5;
const RANK_HEAD = 22;
const AXIS = 24;

/** {ranks: [{rank, y}], lanes: [{lane (place in step.lanes), y, height}], height}; y below the axis, in CSS pixels. */
function layOutLanes(step, withTransfers) {
  const order = {thread: 0, device: 1, transfer: 2}, stepLane = step.stepLane;
  const shown = step.lanes.map((lane, l) => ({...lane, lane: l})).filter(({kind}) => withTransfers || kind !== "transfer");
  shown.sort(
      (a, b) =>
          a.rank - b.rank || order[a.kind] - order[b.kind] || (b.lane === stepLane) - (a.lane === stepLane) || a.lane - b.lane);
  const ranks = [], lanes = [];
  let y = AXIS;
  for (const {rank, lane, depth} of shown) {
    if (ranks.at(-1)?.rank !== rank) {
      ranks.push({rank, y});
      y += RANK_HEAD;
    }
    lanes.push({lane, y, height: depth * LINE});
    y += depth * LINE + LANE_GAP;
  }
  return {ranks, lanes, height: y + 4};
}

/** The slice at a moment (ns) and a height of the layout, or -1; `slack` ns beside a thin one count as well. */
function findSlice(step, layout, at, y, slack) {
  const row = layout.lanes.find((lane) => y >= lane.y && y < lane.y + lane.height);
  if (!row) return -1;
  const {first, last} = step.lanes[row.lane], depth = Math.floor((y - row.y) / LINE);
  let best = -1, nearest = slack;
  for (let i = first; i < last && step.begin[i] <= at + slack; ++i) {
    if (step.depth[i] !== depth) continue;
    const away = Math.max(step.begin[i] - at, at - step.end(i), 0);
    if (away <= nearest) [best, nearest] = [i, away];
  }
  return best;
}

/** The slice of another lane nearest to a moment. */
function nearestSlice(step, lane, at) {
  const {first, last} = step.lanes[lane];
  let best = first;
  const away = (i) => Math.max(step.begin[i] - at, at - step.end(i), 0);
  for (let i = first; i < last; ++i) {
    if (away(i) <= away(best)) best = i;  // of nested ones the innermost
  }
  return best;
}
