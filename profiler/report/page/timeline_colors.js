// Which colour a slice of a timeline has: by the part of the model it works for, waits and messages apart.

const PART_SWATCH = {
  deltanet: "--kind-0",
  attention: "--kind-3",
  short_conv: "--kind-3",
  router: "--kind-5",
  dispatch: "--kind-1",
  combine: "--kind-1",
  experts: "--kind-2",
  shared_expert: "--kind-6",
  dense_ffn: "--kind-6",
  vision: "--kind-6",
};
const PART_NAMES = {
  "--kind-0": "DeltaNet",
  "--kind-1": "dispatch and combine",
  "--kind-2": "experts",
  "--kind-3": "attention, convolution",
  "--kind-4": "norms, head, host",
  "--kind-5": "router",
  "--kind-6": "shared expert, dense",
  "--message": "message",
  "--free": "wait",
  "--raised": "step",
};

function partSwatch(part) { return PART_SWATCH[part] ?? "--kind-4"; }

function sliceSwatch(step, i) {
  const kind = step.kind(i);
  if (kind === "wait") return "--free";
  if (kind === "step") return "--raised";
  if (kind === "transfer") return "--message";
  return partSwatch(step.part(i));
}

/** The legend of the colours that a step uses. */
function makeSliceLegend(step) {
  const used = new Set(Array.from({length: step.size}, (_, i) => sliceSwatch(step, i)));
  const parts = Object.keys(PART_NAMES).filter((swatch) => used.has(swatch)).map((swatch) => [swatch, PART_NAMES[swatch]]);
  if (step.path.length) parts.unshift(["--path", "critical path"]);
  return makeLegend(parts.map(([swatch, label]) => ({label, swatch: `var(${swatch})`})));
}
