// Layers of two types kernel by kernel: two bars a kernel on one scale, and all of a layer of either type above them.

const LAYER_SIDES = [
  {key: "left", swatch: "var(--kind-0)"},
  {key: "right", swatch: "var(--kind-3)"},
];

/** "linear attention": a type of layers as people call it. */
function layerTypeName(type) { return String(type).replaceAll("_", " "); }

const isWait = (kernel) => /^wait\b/.test(kernel ?? "");

const pairSwatch = ({name, part}) => isWait(name) ? "--free" : partSwatch(part);

/** "+1.2 µs": a difference with its sign. */
function signedDuration(us) { return us === 0 ? "0" : `${us > 0 ? "+" : "\u2212"}${duration(Math.abs(us))}`; }

class KernelPairs {
  /** `rows` of one phase and one pair of types, in the order of the layer. */
  constructor(table, rows, at) {
    const unit = microseconds(table.columns[at.leftTime]);
    this.types = [rows[0][at.left], rows[0][at.right]].map(layerTypeName);
    this.pairs = rows.map((row) => ({
                            name: String(row[at.leftKernel] ?? row[at.rightKernel]),
                            part: String(row[at.part]),
                            values: [row[at.leftTime], row[at.rightTime]].map((us) => us === null ? null : us * unit),
                          }));
  }

  /** Time of a layer of either type by part: what differs as a whole. */
  drawLayers(pairs) {
    const swatches = Object.keys(PART_NAMES).filter((swatch) => pairs.some((pair) => pairSwatch(pair) === swatch));
    const sumOf = (swatch, side) =>
        pairs.reduce((sum, pair) => sum + (pairSwatch(pair) === swatch ? pair.values[side] ?? 0 : 0), 0);
    const rows = this.types.map((type, side) => {
      const values = swatches.map((swatch) => sumOf(swatch, side)), total = values.reduce((a, b) => a + b, 0);
      const told = swatches.map((swatch, p) => [PART_NAMES[swatch], values[p]]).filter(([, value]) => value > 0);
      return {
        name: `${type} layer`,
        values,
        total: duration(total),
        tell: [
          `${type} layer`, duration(total),
          ...told.sort(([, a], [, b]) => b - a).map(([part, value]) => `${part} ${duration(value)} (${percent(value / total)})`)
        ],
      };
    });
    return makeBars({
      label: `A ${this.types[0]} layer against a ${this.types[1]} layer, by part`,
      parts: swatches.map((swatch) => ({label: PART_NAMES[swatch], swatch: `var(${swatch})`})),
      rows,
    });
  }

  drawKernels(pairs) {
    const parts = LAYER_SIDES.map(({swatch}, side) => ({label: `${this.types[side]} layer`, swatch}));
    const tellSide = (value, side) => `${this.types[side]} ${value === null ? "has none" : duration(value)}`;
    return makeBars({
      label: "Kernels of both types of layers, in the order of a layer",
      parts,
      isPaired: true,
      rows: pairs.map(({name, part, values}) => {
        const [left, right] = values.map((value) => value ?? 0);
        return {
          name,
          note: `${part.replaceAll("_", " ")}, ${values.map((value) => value === null ? "none" : duration(value)).join(" / ")}`,
          values,
          total: signedDuration(right - left),
          tell: [name, ...values.map(tellSide), `difference ${signedDuration(right - left)}`],
        };
      }),
    });
  }

  draw(withWaits) {
    const pairs = this.pairs.filter(({name}) => withWaits || !isWait(name));
    return h(
        "div", {}, this.drawLayers(pairs), h("h3", {class: "later"}, "Kernel by kernel"),
        h("p", {class: "note"},
          `At the right: by how much the ${this.types[1]} layer takes longer (+) or less (\u2212); ` +
              "these add up to what sets the two apart."),
        this.drawKernels(pairs));
  }
}

function drawKernelPairs(table) {
  const at = table.pick({
    phase: [/^phase$/],
    left: [/^left_type$/],
    right: [/^right_type$/],
    part: [/^part$/],
    leftKernel: [/^left_kernel$/],
    leftTime: [/^left_us$/],
    rightKernel: [/^right_kernel$/],
    rightTime: [/^right_us$/]
  });
  if (!at) return null;
  const groups = new Map();
  for (const row of table.rows.filter((row) => row[at.right])) {  // a model of one type has nothing to set beside it
    const types = [row[at.left], row[at.right]].map(layerTypeName), key = [row[at.phase], ...types].join("\n");
    if (!groups.has(key)) groups.set(key, {phase: String(row[at.phase]), types, rows: []});
    groups.get(key).rows.push(row);
  }
  if (groups.size === 0) return null;
  const hasPairs = new Set([...groups.values()].map(({types}) => types.join())).size > 1;
  const choices =
      [...groups.values()].sort((a, b) => isDecode(b.phase) - isDecode(a.phase)).map(({phase, types, rows}) => ({
                                                                                       label: hasPairs ?
                                                                                           `${phase}: ${types.join(" / ")}` :
                                                                                           phase,
                                                                                       value: new KernelPairs(table, rows, at),
                                                                                     }));
  const place = h("div"), shown = {pairs: choices[0].value, withWaits: false};
  const show = (change) => place.replaceChildren(Object.assign(shown, change).pairs.draw(shown.withWaits));
  show({});
  return h(
      "div", {}, choices.length > 1 ? makeChoice("Step", choices, (pairs) => show({pairs})) : null,
      makeChoice("Waits", [{label: "left out", value: false}, {label: "shown", value: true}], (withWaits) => show({withWaits})),
      place);
}
