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
                       note: steps,
                       values,
                       total: duration(wall),
                       tell: [String(row[at.phase]), ...tellTimeParts(values)],
                     };
                   })
                   .filter(({values}) => values.some((value) => value > 0));
  return rows.length ? makeBars({label: "Time by phase: computing, exposed communication, free", parts: TIME_PARTS, rows}) :
                       null;
}
