// How each phase's time divides.

function drawPhases(table) {
  const at = table.pick(
      {
        phase: [/^phase/],
        computing: [/^computing/],
        exposed: [/^exposed/],
        free: [/^free/],
        steps: [/^(num_)?steps?$/],
        tokens: [/^tokens$/],
        wall: [/^wall/],
        share: [/^wall_share$/],
        perStep: [/per_step/],
      },
      ["phase", "computing", "exposed", "free"]);
  if (!at) return null;
  const unit = microseconds(table.columns[at.computing]);
  const wallUnit = at.wall >= 0 ? microseconds(table.columns[at.wall]) : 1;
  const rows = table.rows
                   .map((row) => {
                     let values = TIME_PARTS.map(({key}) => (row[at[key]] ?? 0) * unit);
                     const divided = values.reduce((a, b) => a + b, 0);
                     const wall = at.wall >= 0 && row[at.wall] !== null ? row[at.wall] * wallUnit : divided;
                     if (divided === 0 && wall > 0) values = [0, 0, wall];  // no step: nothing is divided
                     const steps = at.steps >= 0 && row[at.steps] ? countOf(row[at.steps], "step") : "";
                     return {
                       name: String(row[at.phase]),
                       hasSteps: steps !== "",
                       note: steps || tellShare(row, at.share),
                       values,
                       total: duration(wall),
                       tell: [String(row[at.phase]), ...tellTimeParts(values)],
                     };
                   })
                   .filter(({values}) => values.some((value) => value > 0));
  return rows.length ? makeBars({
    label: "Time by phase: computing, exposed communication, free",
    parts: TIME_PARTS,
    rows: cutToSteps(rows),
  }) :
                       null;
}

/** "83 % of the capture". */
function tellShare(row, share) { return share >= 0 && row[share] > 0 ? `${sharePercent(row[share])} of the capture` : ""; }

/** Beside a server that was idle, or a benchmark that measured roofs, its steps would be too short to be seen. */
function cutToSteps(rows) {
  const lengthOf = ({values}) => values.reduce((a, b) => a + b, 0);
  const longest = Math.max(0, ...rows.filter(({hasSteps}) => hasSteps).map(lengthOf));
  return rows.map((row) => {
    const length = lengthOf(row);
    if (row.hasSteps || longest === 0 || length <= longest) return row;
    return {
      ...row,
      values: row.values.map((value) => value * longest / length),
      note: [row.note, "longer than drawn"].filter(Boolean).join(", "),
    };
  });
}
