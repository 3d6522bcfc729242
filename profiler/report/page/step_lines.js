// The steps' lines: what is drawn as one row of columns, a rank's steps or those of one phase and size.

const MAX_STEP_LINES = 12;
const MAX_STEP_COLUMNS = 600;  // more steps than that are averaged; each column tells of its longest step, too
const LOG_FROM = 6;  // times that the slowest kind of step takes the time of the fastest, from which on an axis is logarithmic

/**
 * A column of a line: `steps` are the numbers it stands for, `longest` of them and `most`, how long that took; `parts` its mean
 * TIME_PARTS and `sum` the mean length. Times are in us.
 */
function makeStepColumn(rows, at, unit) {
  const parts =
      TIME_PARTS.map(({key}) => rows.reduce((sum, row) => sum + Math.max(0, row[at[key]] ?? 0), 0) * unit / rows.length);
  const length = (row) => TIME_PARTS.reduce((sum, {key}) => sum + Math.max(0, row[at[key]] ?? 0), 0);
  const longest = rows.reduce((a, b) => length(b) > length(a) ? b : a);
  return {
    row: rows[0],
    steps: rows.map((row) => row[at.step]),
    longest: longest[at.step],
    most: length(longest) * unit,
    parts,
    sum: parts.reduce((a, b) => a + b, 0)
  };
}

/** The rows of one rank as a line's columns, several steps a column where there are too many. */
function binSteps(rows, at, unit) {
  const size = Math.ceil(rows.length / MAX_STEP_COLUMNS), columns = [];
  for (let i = 0; i < rows.length; i += size) columns.push(makeStepColumn(rows.slice(i, i + size), at, unit));
  return columns;
}

/** One line a rank: all its steps in the order of time. */
function linesByRank(rows, at, unit) {
  return [...groupRows(rows, at.rank)].map(
      ([rank, ofRank]) => ({name: `rank ${rank}`, rank, columns: binSteps(ofRank, at, unit)}));
}

/** One line for each phase and size: the steps of the first rank, the coordinator. */
function linesByGroup(rows, at, unit) {
  const [[rank, ofRank]] = groupRows(rows, at.rank);
  return [...groupRows(ofRank, at.phase)].map(
      ([phase, ofPhase]) => ({name: String(phase), rank, columns: binSteps(ofPhase, at, unit)}));
}

/** How high a line's axis goes, and from where on: a few columns that go beyond, or whose longest step does, are cut and marked. */
function findAxis(columns, isLog) {
  const sums = columns.map(({sum}) => sum).filter((sum) => sum > 0);
  const most = columns.reduce((high, column) => Math.max(high, column.most), 0), usual = quantile(sums, 0.95);
  if (isLog) {
    const least = quantile(sums, 0.02);
    return {low: least / 2.5 || 1, top: Math.max(most * 1.1, 10), isCapped: false, most};
  }
  const isCapped = most > 3 * usual && usual > 0;
  return {low: 0, top: isCapped ? 1.4 * usual : most, isCapped, most};
}

/** Do kinds of steps differ so much that the short ones would be invisible beside the long ones? */
function needsLog(rows, at) {
  if (at.phase < 0) return false;
  const medians = [...groupRows(rows, at.phase).values()].map(
      (ofPhase) => quantile(ofPhase.map((row) => TIME_PARTS.reduce((sum, {key}) => sum + (row[at[key]] ?? 0), 0)), 0.5));
  return Math.max(...medians) > LOG_FROM * Math.min(...medians.filter((median) => median > 0));
}
