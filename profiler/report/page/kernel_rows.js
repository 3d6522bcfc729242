// The kernels of one step as rows of a picture: a row a layer, and one for what is done before, between and behind the layers.

/** Columns of the kernel table; null if one that is needed is missing. */
function pickKernelColumns(table) {
  return table.pick(
      {
        phase: [/^phase$/],
        step: [/^step$/],
        start: [/^start_us$/],
        time: [/^duration_us$/],
        self: [/^self_us$/],
        gap: [/^gap_us$/],
        layer: [/^layer$/],
        name: [/^layer_name$/],
        part: [/^part$/],
        kernel: [/^kernel$/],
        kind: [/^kind$/],
        rows: [/^rows$/],
        rank: [/^rank$/],
        gflop: [/^gflop_per_s$/],
        gb: [/^gb_per_s$/],
        share: [/^share$/],
      },
      ["phase", "start", "time", "layer", "name", "part", "kernel", "kind", "rank"]);
}

/** Colour of a kernel: waits apart, the others by the part of the model that they work for. */
function kernelSwatch(row, at) { return row[at.kind] === "wait" ? "--free" : partSwatch(row[at.part]); }

/** "model.layers.3" of "model.layers.3.mlp.gate"; "" for what is in no layer. */
function layerPrefix(name) { return /^.*?\blayers\.\d+/.exec(name ?? "")?.[0] ?? ""; }

/** "lm_head, norm": what a row without a layer is called, by what takes longest there and by the model's own names. */
function outsideName(kernels, at) {
  const named = kernels.filter(({row}) => row[at.name]);
  const longest = [...(named.length ? named : kernels)].sort((a, b) => b.end - b.begin - (a.end - a.begin));
  const names = longest.map(({row}) => row[at.name] ? String(row[at.name]).split(".").at(-1) : String(row[at.part]));
  return [...new Set(names)].slice(0, 2).join(", ");
}

/**
 * [{name, isLayer, begin, end, lanes: [own, workers]}] of a step's rows of the table; times in us, lanes lists of kernels
 * {row, begin, end, swatch} by time: the coordinator's, and those of all workers. A layer that comes again, as of a second
 * micro-batch, is one row.
 */
function makeKernelRows(rows, at, unit) {
  const found = new Map();
  // How often the step has been outside of layers: of the coordinator, whose host runs ahead of its device. Workers' kernels
  // have their layer.
  const places = {host: {run: 0, last: ""}, device: {run: 0, last: ""}};
  for (const row of rows) {
    const prefix = layerPrefix(row[at.name]), isOwn = row[at.rank] === 0;
    const place = places[row[at.kind] === "device" ? "device" : "host"];
    if (isOwn && !prefix && place.last) ++place.run;
    if (isOwn) place.last = prefix;
    const key = prefix || `outside ${place.run}`;
    if (!found.has(key))
      found.set(key, {name: prefix, isLayer: prefix !== "", begin: Infinity, end: -Infinity, lanes: [[], []]});
    const begin = row[at.start] * unit, end = begin + row[at.time] * unit, line = found.get(key);
    line.begin = Math.min(line.begin, begin);
    line.end = Math.max(line.end, end);
    line.lanes[isOwn ? 0 : 1].push({row, begin, end, swatch: kernelSwatch(row, at)});
  }
  const lines = [...found.values()];
  for (const line of lines) line.name ||= outsideName(line.lanes.flat(), at);
  return lines;
}
