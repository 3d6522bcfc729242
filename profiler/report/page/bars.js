// Horizontal bars, one or several a row, of one or more parts. Rows are plain boxes, so that they wrap and scale with the page.

/** A bar of a row: `values` one a part (null: none). */
function makeTrack(values, swatches, full) {
  const style = (value, p) => `width:${(100 * value / (full || 1)).toFixed(3)}%;background:${swatches[p]}`;
  return h(
      "span", {class: "bar-track"},
      values.map((value, p) => value > 0 ? h("span", {class: "bar-part", style: style(value, p)}) : null));
}

/**
 * options: label, parts: [{label, swatch}], rows: [{name, note, values: one a part (null: none), total: text, tell: parts of
 * the readout}], scale: the value that fills the width (default: the largest row). `isPaired`: a part is a bar of its own, all
 * of a row below one another.
 */
function makeBars({label, parts, rows, scale, legend = parts.length > 1, hint, isPaired = false}) {
  const sums =
      rows.map(({values}) => values.reduce((sum, value) => isPaired ? Math.max(sum, value ?? 0) : sum + (value ?? 0), 0));
  const full = scale ?? sums.reduce((a, b) => Math.max(a, b), 0);
  const readout =
      rows.some((row) => row.tell) ? makeReadout(hint ?? "Point at a row, or focus the bars and use the arrow keys.") : null;
  const items = rows.map(
      ({name, note, values, total, swatch}) =>
          h("li", {class: "bar-row"}, h("span", {class: "bar-name"}, name, note ? h("span", {class: "bar-note"}, note) : null),
            h("span", {class: isPaired ? "bar-tracks paired" : "bar-tracks", "aria-hidden": "true"},
              isPaired ? values.map((value, p) => makeTrack([value], [parts[p].swatch], full)) :
                         makeTrack(values, parts.map((part) => swatch ?? part.swatch), full)),
            h("span", {class: "bar-total"}, total)));
  const list = h("ul", {class: "bars", "aria-label": label, tabindex: readout ? "0" : null}, items);
  let at = -1;
  const select = (row) => {
    items[at]?.classList.remove("at");
    at = row;
    items[at]?.classList.add("at");
    if (at >= 0 && readout && rows[at].tell) readout.show(rows[at].tell);
  };
  items.forEach((item, row) => item.addEventListener("pointerenter", () => select(row)));
  list.addEventListener("pointerleave", () => select(-1));
  list.addEventListener("blur", () => select(-1));
  list.addEventListener("focus", () => list.matches(":focus-visible") && select(Math.max(at, 0)));
  if (readout) onArrows(list, (columns, step) => select(clamp(at + (step || columns), 0, rows.length - 1)));
  return h("div", {class: "bar-chart"}, legend ? makeLegend(parts) : null, list, readout?.element);
}

/** The three things that a rank's time divides into. */
const TIME_PARTS = [
  {key: "computing", label: "computing", swatch: "var(--computing)"},
  {key: "exposed", label: "exposed communication", swatch: "var(--exposed)"},
  {key: "free", label: "free", swatch: "var(--free)"},
];

/** Columns of TIME_PARTS in `table`, or null if one is missing. */
function pickTimeParts(table) { return table.pick({computing: [/^computing/], exposed: [/^exposed/], free: [/^free/]}); }

/** "computing 12 ms, 80 %": the parts of a readout for three durations in us. */
function tellTimeParts(values) {
  const sum = values.reduce((a, b) => a + b, 0);
  return TIME_PARTS.map(({label}, i) => `${label} ${duration(values[i])} (${percent(values[i] / sum)})`);
}
