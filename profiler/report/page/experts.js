// Layer x expert: how many tokens each expert got, which rank holds it, and which experts are hot.

const HOT = 1.5;

/** {layers, experts, tokens[layer][expert], ranks[layer][expert]} of a long or a wide table; null if it is neither. */
function expertGrid(table) {
  const at = table.pick(
      {layer: [/^layer/], expert: [/^expert$/, /^expert_id/], tokens: [/^tokens$/, /^tokens/, /count/], rank: [/^rank/]},
      ["layer"]);
  if (!at || table.rows.length === 0) return null;
  if (at.expert >= 0 && at.tokens >= 0) {
    const layers = uniqueValues(table, at.layer), experts = uniqueValues(table, at.expert).sort((a, b) => a - b);
    const layerPlace = new Map(layers.map((layer, i) => [layer, i])), place = new Map(experts.map((expert, i) => [expert, i]));
    const tokens = layers.map(() => experts.map(() => null)), ranks = layers.map(() => experts.map(() => null));
    for (const row of table.rows) {
      tokens[layerPlace.get(row[at.layer])][place.get(row[at.expert])] = row[at.tokens];
      if (at.rank >= 0) ranks[layerPlace.get(row[at.layer])][place.get(row[at.expert])] = row[at.rank];
    }
    return {layers, experts, tokens, ranks};
  }
  const columns = table.columns.map(({name}, c) => /^(expert_?|e)\d+/.test(name) ? c : -1).filter((c) => c >= 0);
  if (columns.length === 0) return null;
  return {
    layers: table.rows.map((row) => row[at.layer]),
    experts: columns.map((c) => Number(/\d+/.exec(table.columns[c].name)[0])),
    tokens: table.rows.map((row) => columns.map((c) => row[c])),
    ranks: table.rows.map(() => columns.map(() => null)),
  };
}

/** The joined view's row of each hot (layer, expert): Map "layer,expert" -> row. */
function findHotExperts(table) {
  const at = table?.pick({layer: [/^layer/], expert: [/^expert/]});
  return at ? new Map(table.rows.map((row) => [`${row[at.layer]},${row[at.expert]}`, row])) : new Map();
}

/** What the joined view says of a hot expert, in words. */
function tellHotExpert(table, row, isKnown = /^(layer|expert|rank|tokens)$/) {
  return table.columns
      .map((column, c) => {
        if (isKnown.test(column.name) || row[c] === null || row[c] === "") return null;
        return tellCell(table, row, c);
      })
      .filter(Boolean);
}

function drawExperts(table, report) {
  const grid = expertGrid(table);
  if (!grid) return null;
  const hotTable = report.tables.get("hot_expert"), hot = findHotExperts(hotTable);
  const sums = grid.tokens.map((row) => row.reduce((sum, value) => sum + (value ?? 0), 0));
  const marks = new Set();
  grid.layers.forEach((layer, r) => grid.experts.forEach((expert, c) => {
    if (hot.has(`${layer},${expert}`) && grid.tokens[r][c] * grid.experts.length >= HOT * sums[r]) marks.add(`${r},${c}`);
  }));
  // The strip is for all layers: there is none where experts live elsewhere from layer to layer.
  const isSame = grid.ranks.every((ranks) => ranks.every((rank, c) => rank === grid.ranks[0][c]));
  const known = isSame ? [...new Set(grid.ranks[0])].filter((rank) => rank !== null).sort((a, b) => a - b) : [];
  const swatchOf = (rank) => rank === null ? "var(--line)" : kindSwatch((known.indexOf(rank) + 2) % 8);
  const map = new HeatMap({
    label: "Tokens by layer and expert",
    rowNames: grid.layers.map(String),
    columnNames: grid.experts.map(String),
    rowTitle: "layer",
    values: grid.tokens,
    format: shortNumber,
    maxCell: 36,
    marks,
    legendNote: marks.size ? `tokens; ringed: the hottest, with at least ${HOT} times their layer's mean` : "tokens",
    bands: known.length > 1 ? grid.ranks[0].map(swatchOf) : null,
    describe: (r, c) => {
      const tokens = grid.tokens[r][c], mean = sums[r] / grid.experts.length,
            row = hot.get(`${grid.layers[r]},${grid.experts[c]}`);
      return [
        `Layer ${grid.layers[r]}, expert ${grid.experts[c]}`, grid.ranks[r][c] === null ? null : `on rank ${grid.ranks[r][c]}`,
        `${groupDigits(tokens ?? 0)} tokens`, mean > 0 ? `${((tokens ?? 0) / mean).toFixed(2)} \u00d7 the layer's mean` : null,
        ...(row ? tellHotExpert(hotTable, row, /^(layer|expert|rank|tokens|over_mean)$/) : [])
      ].filter((part) => part !== null);
    },
  });
  const legend = known.length > 1 && known.length <= 8 ?
      makeLegend(known.map((rank) => ({label: `on rank ${rank} (strip)`, swatch: swatchOf(rank)}))) :
      null;
  return h("div", {}, legend, map.element);
}

function drawHotExperts(table) {
  const at = table.pick(
      {
        layer: [/^layer/],
        expert: [/^expert/],
        rank: [/^rank/],
        tokens: [/^tokens$/, /^tokens/],
        ratio: [/ratio|over_mean|imbalance|times/]
      },
      ["layer", "expert", "tokens"]);
  if (!at || table.rows.length === 0) return null;
  const rows = table.rows.slice(0, 20).map(
      (row) => ({
        name: `layer ${row[at.layer]}, expert ${row[at.expert]}`,
        note: at.rank >= 0 ? `rank ${row[at.rank]}` : null,
        values: [row[at.tokens] ?? 0],
        total: `${humanCell(table, row, at.tokens)} tokens`,
        tell: [
          `Layer ${row[at.layer]}, expert ${row[at.expert]}`, at.rank >= 0 ? `rank ${row[at.rank]}` : null,
          `${humanCell(table, row, at.tokens)} tokens`, ...tellHotExpert(table, row)
        ].filter((part) => part !== null),
      }));
  return makeBars({label: "Tokens of the hottest experts", parts: [{label: "tokens", swatch: "var(--exposed)"}], rows});
}
