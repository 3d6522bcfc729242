// What concerns ranks: time and exposed communication, who was waited for, who sent what to whom, how even the tokens are.

/** Drawn from the step table: sums over the capture's steps. */
function drawRankTimes(report) {
  const table = report.tables.get("step");
  const at = table && pickTimeParts(table), rankAt = table ? table.find(/^rank/) : -1;
  if (!at || rankAt < 0 || table.rows.length === 0) return null;
  const unit = microseconds(table.columns[at.computing]);
  const rows = [...groupRows(table.rows, rankAt)].map(([rank, ofRank]) => {
    const values = TIME_PARTS.map(({key}) => ofRank.reduce((sum, row) => sum + (row[at[key]] ?? 0), 0) * unit);
    return {name: `rank ${rank}`, values, total: duration(values[1]), tell: [`Rank ${rank}`, ...tellTimeParts(values)]};
  });
  return h(
      "div", {}, h("h3", {}, "Exposed communication by rank"),
      h("p", {class: "note"},
        `Sums over ${table.isCut ? "the steps on this page" : "all steps"}; the number is the exposed communication.`),
      makeBars({label: "Time by rank over all steps; the number is the exposed communication", parts: TIME_PARTS, rows}));
}

function drawStragglers(table) {
  const at = table.pick(
      {
        rank: [/^rank/],
        saved: [/^saved_us$/],
        last: [/^last$/],
        cause: [/^cause/],
      },
      ["rank", "saved"]);
  if (!at) return null;
  const rows = table.rows.map((row) => {
    const saved = (row[at.saved] ?? 0) * microseconds(table.columns[at.saved]);
    const cause = at.cause >= 0 && row[at.cause] ? String(row[at.cause]) : "";
    return {
      name: `rank ${row[at.rank]}`,
      note: cause,
      values: [saved],
      total: duration(saved),
      tell: [
        `Rank ${row[at.rank]}`, `${duration(saved)} of a step`, at.last >= 0 ? `last in ${row[at.last]} exchanges` : null, cause || null
      ].filter(Boolean),
    };
  });
  return rows.some(({values}) => values[0] > 0) ?
      makeBars({label: "Time that a step would save, by rank", parts: [{label: "saved", swatch: "var(--exposed)"}], rows}) :
      null;
}

function drawTraffic(table) {
  const at = table.pick(
      {
        source: [/^(source|src|from)/],
        target: [/^(target|dst|dest|to)(_|$)/],
        bytes: [/^bytes$/, /bytes/, /mib$/],
        messages: [/^messages/],
        rate: [/gb_per_s|gb_s|bandwidth/],
      },
      ["source", "target", "bytes"]);
  if (!at || table.rows.length === 0) return null;
  const ranks = [...new Set(table.rows.flatMap((row) => [row[at.source], row[at.target]]))].sort((a, b) => a - b);
  const scale = /mib$/.test(table.columns[at.bytes].name) ? 1 << 20 : 1;
  const cells = ranks.map(() => ranks.map(() => null)), rowsOf = new Map();
  for (const row of table.rows) {
    const r = ranks.indexOf(row[at.source]), c = ranks.indexOf(row[at.target]);
    cells[r][c] = (cells[r][c] ?? 0) + (row[at.bytes] ?? 0) * scale;
    rowsOf.set(`${r},${c}`, [...rowsOf.get(`${r},${c}`) ?? [], row]);
  }
  return new HeatMap({
           label: "Bytes by source and target rank",
           rowNames: ranks.map((rank) => `from ${rank}`),
           columnNames: ranks.map((rank) => `to ${rank}`),
           values: cells,
           format: byteCount,
           numbers: ranks.length <= 16,
           maxCell: 110,
           describe: (r, c) => {
             const rows = rowsOf.get(`${r},${c}`) ?? [];
             const parts =
                 [`From rank ${ranks[r]} to rank ${ranks[c]}`, cells[r][c] === null ? "nothing" : byteCount(cells[r][c])];
             if (at.messages >= 0 && rows.length)
               parts.push(`${groupDigits(rows.reduce((sum, row) => sum + (row[at.messages] ?? 0), 0))} messages`);
             if (at.rate >= 0 && rows.length === 1 && rows[0][at.rate] !== null)
               parts.push(`${table.text(rows[0], at.rate)} GB/s`);
             return parts;
           },
         })
      .element;
}

function drawBalance(table) {
  const at = table.pick({layer: [/^layer/], balancedness: [/^balancedness/, /balanced/]});
  if (!at || table.rows.length === 0) return null;
  const ranks = table.columns.map(({name}, c) => /^rank_?\d+/.test(name) ? c : -1).filter((c) => c >= 0);
  if (ranks.length === 1) return null;  // one rank is in balance with itself
  if (ranks.length >= 2) {
    const layers = table.rows.map((row) => String(row[at.layer]));
    const names = ranks.map((c) => nameAndUnit(table.columns[c].name)[0].replace(/^rank ?/, "rank ").replace(/ tokens$/, ""));
    return new HeatMap({
             label: "Tokens by layer and rank",
             rowNames: layers,
             columnNames: names,
             rowTitle: "layer",
             format: shortNumber,
             numbers: layers.length <= 24 && names.length <= 16,
             values: table.rows.map((row) => ranks.map((c) => row[c])),
             describe: (r, c) =>
                 [`Layer ${layers[r]}, ${names[c]}`, `${humanCell(table, table.rows[r], ranks[c])} tokens`,
                  `balancedness of the layer ${table.text(table.rows[r], at.balancedness)}`],
           })
        .element;
  }
  const rows = table.rows.map((row) => ({
                                name: `layer ${row[at.layer]}`,
                                values: [row[at.balancedness] ?? 0],
                                total: table.text(row, at.balancedness),
                              }));
  return makeBars(
      {label: "Balancedness by layer", parts: [{label: "balancedness", swatch: "var(--computing)"}], rows, scale: 1});
}
