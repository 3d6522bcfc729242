// Layer x part: where in the model a step's time goes.

const LAYER_FACTS = /^(layer|layer_type|type|phase|steps?|num_steps|count|calls)$/;

/** What is shown first; a benchmark's phases have sizes: "decode ×4", "decode ×4 warm-up". */
const isDecode = (phase) => /^decode(?!.*warm-up)/.test(phase);

/** {rows: [layer label], columns: [part], cells[row][part] in us} of the rows of one phase; wide or long tables alike. */
function layerGrid(table, rows, at) {
  const label = (row) =>
      row[at.layer] === -1 ? "outside" : `${row[at.layer]}${at.type >= 0 && row[at.type] ? ` ${shortType(row[at.type])}` : ""}`;
  const layers = [...new Set(rows.map(label))];
  const place = new Map(layers.map((name, i) => [name, i]));
  if (at.part >= 0) {
    const value = table.find(/^(mean_)?us_per_step/, /mean.*_us$/, /_us$/, /_ms$/), parts = uniqueValues(table, at.part);
    if (value < 0) return null;
    const cells = layers.map(() => parts.map(() => null)), unit = microseconds(table.columns[value]);
    for (const row of rows) {
      if (row[value] !== null) cells[place.get(label(row))][parts.indexOf(row[at.part])] = row[value] * unit;
    }
    return {layers, parts, cells};
  }
  const columns = table.columns.map((column, c) => ({column, c}))
                      .filter(
                          ({column, c}) => /_(us|ms)$/.test(column.name) && !/^(p\d\d|total|sum|wall|all)/.test(column.name) &&
                              !/_p\d\d_/.test(column.name) && table.isNumeric(c) && !LAYER_FACTS.test(column.name));
  if (columns.length < 2) return null;
  const used = columns.filter(({c}) => rows.some((row) => row[c]));
  return {
    layers,
    parts: used.map(({column}) => shortType(nameAndUnit(column.name)[0])),
    cells: rows.map((row) => used.map(({column, c}) => row[c] === null ? null : row[c] * microseconds(column))),
  };
}

function shortType(type) {
  return {linear_attention: "DeltaNet", full_attention: "attention", deltanet: "DeltaNet"}[type] ?? String(type);
}

function drawLayers(table) {
  const at =
      table.pick({layer: [/^layer$/, /^layer/], type: [/^(layer_)?type$/], part: [/^part$/], phase: [/^phase$/]}, ["layer"]);
  if (!at || table.rows.length === 0) return null;
  const phases = at.phase >= 0 ? [...groupRows(table.rows, at.phase)] : [["", table.rows]];
  phases.sort(([a], [b]) => isDecode(b) - isDecode(a));
  const place = h("div");
  const show = (rows, phase) => {
    const grid = layerGrid(table, rows, at);
    if (!grid) return false;
    const total = table.find(/^total_us$/),
          sums = grid.cells.map(
              (row, r) => total >= 0 && at.part < 0 ? rows[r][total] : row.reduce((sum, value) => sum + (value ?? 0), 0));
    place.replaceChildren(
        new HeatMap({
          label: `Time per ${phase} step by layer and part`.replace("  ", " "),
          rowNames: grid.layers,
          columnNames: grid.parts,
          values: grid.cells,
          format: duration,
          legendNote: "per step",
          describe: (r, c) =>
              [`Layer ${grid.layers[r]}, ${grid.parts[c]}`,
               grid.cells[r][c] === null ? "nothing recorded" :
                                           `${duration(grid.cells[r][c])} per ${phase} step`.replace("  ", " "),
               grid.cells[r][c] === null ? "" : `${percent(grid.cells[r][c] / sums[r])} of the layer`],
        }).element);
    return true;
  };
  if (!show(phases[0][1], phases[0][0])) return null;
  return h(
      "div", {},
      phases.length > 1 ? makeChoice(
                              "Phase", phases.map(([phase, rows]) => ({label: String(phase), value: [rows, phase]})),
                              ([rows, phase]) => show(rows, phase)) :
                          null,
      place);
}

function drawLayerTypes(table) {
  const at = table.pick(
      {
        type: [/^(layer_)?type$/, /^part$/, /^layer_type/],
        time: [/^us_per_step/, /^(mean|total).*_(us|ms)$/, /_(us|ms)$/],
        wait: [/^wait_us$/],
        phase: [/^phase$/]
      },
      ["type", "time"]);
  if (!at || table.rows.length === 0) return null;
  const unit = microseconds(table.columns[at.time]);
  const phases = at.phase >= 0 ? [...groupRows(table.rows, at.phase)] : [["", table.rows]];
  phases.sort(([a], [b]) => isDecode(b) - isDecode(a));
  const place = h("div");
  const show = ([phase, rows]) => place.replaceChildren(makeBars({
    label: `Time per ${phase} step by kind of layer`.replace("  ", " "),
    parts: [{label: "at work", swatch: "var(--computing)"}, {label: "waiting for other ranks", swatch: "var(--exposed)"}],
    rows: rows.map((row) => {
      const time = (row[at.time] ?? 0) * unit, wait = at.wait >= 0 ? row[at.wait] ?? 0 : 0;
      return {
        name: shortType(row[at.type]),
        values: [Math.max(0, time - wait), wait],
        total: duration(time),
        tell: [
          shortType(row[at.type]), `${duration(time)} per ${phase} step`.replace("  ", " "), `of it waiting ${duration(wait)}`
        ]
      };
    }),
  }));
  show(phases[0]);
  return h(
      "div", {},
      phases.length > 1 ? makeChoice("Phase", phases.map((phase) => ({label: String(phase[0]), value: phase})), show) : null,
      place);
}
