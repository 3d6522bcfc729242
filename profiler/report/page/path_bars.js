// The critical path of a phase's steps: a bar a rank, divided by what the rank was needed for.

const PATH_PARTS = 7;  // as many as there are colours that can be told apart; the rest is one more

/** {parts: [what], rows: [{rank, values}]} in us per step; the largest parts first. */
function sumPath(rows, at, unit) {
  const sums = new Map(), ranks = new Map();
  for (const row of rows) {
    const what = `${row[at.what]}`, time = (row[at.time] ?? 0) * unit;
    sums.set(what, (sums.get(what) ?? 0) + time);
    if (!ranks.has(row[at.rank])) ranks.set(row[at.rank], new Map());
    const ofRank = ranks.get(row[at.rank]);
    ofRank.set(what, (ofRank.get(what) ?? 0) + time);
  }
  const order = [...sums].sort(([, a], [, b]) => b - a).map(([what]) => what), named = order.slice(0, PATH_PARTS);
  const rest = (ofRank) => order.slice(PATH_PARTS).reduce((sum, what) => sum + (ofRank.get(what) ?? 0), 0);
  return {
    parts: order.length > PATH_PARTS ? [...named, "the rest"] : named,
    rows: [...ranks].sort(([a], [b]) => a - b).map(([rank, ofRank]) => ({
                                                     rank,
                                                     values: [
                                                       ...named.map((what) => ofRank.get(what) ?? 0),
                                                       ...(order.length > PATH_PARTS ? [rest(ofRank)] : [])
                                                     ],
                                                   })),
  };
}

function drawPathBars(table) {
  const at = table.pick({phase: [/^phase$/], rank: [/^rank$/], what: [/^what$/], time: [/^us_per_step$/]});
  if (!at) return null;
  const unit = microseconds(table.columns[at.time]), place = h("div");
  const phases = [...groupRows(table.rows, at.phase)].sort(([a], [b]) => isDecode(b) - isDecode(a));
  const show = ([phase, ofPhase]) => {
    const {parts, rows} = sumPath(ofPhase, at, unit), sum = (values) => values.reduce((a, b) => a + b, 0);
    const whole = rows.reduce((total, {values}) => total + sum(values), 0);
    place.replaceChildren(makeBars({
      label: `Critical path of a ${phase} step by rank`,
      parts: parts.map((label, i) => ({label, swatch: kindSwatch(i)})),
      legend: true,
      rows: rows.map(({rank, values}) => ({
                       name: `rank ${rank}`,
                       note: `${percent(sum(values) / whole)} of the step`,
                       values,
                       total: duration(sum(values)),
                       tell: [
                         `Rank ${rank}`, `${duration(sum(values))} of ${duration(whole)} a step`,
                         ...parts.map((what, i) => ({what, value: values[i]}))
                             .filter(({value}) => value > 0)
                             .sort((a, b) => b.value - a.value)
                             .map(({what, value}) => `${what} ${duration(value)}`)
                       ],
                     })),
    }));
  };
  show(phases[0]);
  return h(
      "div", {},
      phases.length > 1 ? makeChoice("Phase", phases.map((phase) => ({label: String(phase[0]), value: phase})), show) : null,
      place);
}
