// What sets layers of one type apart from those of another: the parts of both side by side, and the difference.

/** {type: {part: mean us of its layers}} of the layer table's rows of one phase. */
function meansByType(table, rows, at) {
  const parts = table.columns.map(({name}, c) => ({c, part: /^(.*)_us$/.exec(name)?.[1]}))
                    .filter(({part}) => part && !/^(total|p99|exposed|worker_experts)$/.test(part));
  const means = {};
  for (const [type, ofType] of groupRows(rows.filter((row) => row[at.layer] >= 0 && row[at.type]), at.type)) {
    means[type] = Object.fromEntries(
        parts.map(({c, part}) => [part, ofType.reduce((sum, row) => sum + (row[c] ?? 0), 0) / ofType.length]));
  }
  return means;
}

/** What the layers' own mixer is called: the part that only they have. */
function pairMixers(parts, [first, second], means) {
  const own = (one, other) => parts.filter((part) => means[one][part] > 0 && !means[other][part]);
  const a = own(first, second), b = own(second, first);
  return a.length === 1 && b.length === 1 ? [a[0], b[0]] : null;
}

/** Rows of the comparison: [{name, values: [us of the first type, us of the second]}], the largest difference first. */
function compareTypes(types, means) {
  const parts = Object.keys(means[types[0]]).filter((part) => types.some((type) => means[type][part] > 0));
  const mixers = pairMixers(parts, types, means);
  const rows = parts.filter((part) => !mixers?.includes(part))
                   .map((part) => ({name: part.replaceAll("_", " "), values: types.map((type) => means[type][part])}));
  if (mixers) rows.push({name: mixers.join(" / "), values: types.map((type, t) => means[type][mixers[t]])});
  const apart = ({values: [a, b]}) => Math.abs(a - b);
  return rows.sort((x, y) => apart(y) - apart(x));
}

/** Two bars a row, from the middle outwards: [{name, values: [left, right]}] in us. */
function makeButterfly(label, types, rows) {
  const most = Math.max(...rows.flatMap(({values}) => values)) || 1;
  const bar = (value, side) => h(
      "span", {class: `wing ${side}`, "aria-hidden": "true"}, h("span", {style: `width:${(100 * value / most).toFixed(2)}%`}));
  const cells = rows.map(
      ({name, values: [a, b]}) =>
          h("tr", {}, h("th", {scope: "row"}, name), h("td", {class: "num"}, duration(a)),
            h("td", {class: "wing-cell"}, bar(a, "left")), h("td", {class: "wing-cell"}, bar(b, "right")),
            h("td", {}, duration(b)), h("td", {class: "num"}, `${b >= a ? "+" : "\u2212"}${duration(Math.abs(b - a))}`)));
  const head = ["part", types[0], "", "", types[1], "difference"].map(
      (text, i) => text ? h("th", {scope: "col", class: i === 1 || i === 5 ? "num" : null}, text) : h("td"));
  return h(
      "div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label},
      h("table", {class: "butterfly"}, h("caption", {class: "hidden"}, label), h("thead", {}, h("tr", {}, head)),
        h("tbody", {}, cells)));
}

/** Linear against full attention layers, part by part; null where the model has not two types of layers. */
function drawLayerDiff(table) {
  const at = table?.pick({layer: [/^layer$/], type: [/^layer_type$/], phase: [/^phase$/]});
  if (!at) return null;
  const phases = [...groupRows(table.rows, at.phase)].sort(([a], [b]) => isDecode(b) - isDecode(a));
  const choices = phases.map(([phase, rows]) => ({label: String(phase), value: meansByType(table, rows, at)}))
                      .filter(({value}) => ["linear_attention", "full_attention"].every((type) => value[type]));
  if (choices.length === 0) return null;
  const types = ["linear_attention", "full_attention"], place = h("div");
  const show = (means) => place.replaceChildren(makeButterfly(
      "A linear attention layer against a full attention layer, part by part", ["linear attention", "full attention"],
      compareTypes(types, means)));
  show(choices[0].value);
  return h(
      "div", {class: "layer-diff"}, h("h3", {class: "later"}, "Linear against full attention"),
      h("p", {class: "note"}, "The mean layer of either type in one step; what differs most comes first."),
      choices.length > 1 ? makeChoice("Step", choices, show) : null, place);
}
