// The run as a sheet of figures.

function drawRun(table) {
  if (table.rows.length !== 1) return null;
  const [row] = table.rows;
  return h("dl", {class: "figures"}, table.columns.map((column, c) => {
    if (row[c] === null || row[c] === "") return null;
    const [name, unit] = nameAndUnit(column.name), shown = hasOwnUnits(column) ? "" : unit;
    const isLong = typeof row[c] === "string" && row[c].length > 40;
    return h(
        "div", {class: isLong ? "wide" : null}, h("dt", {}, name),
        h("dd", {class: typeof row[c] === "string" ? "words" : null}, makeCell(table, row, c),
          shown ? h("span", {class: "unit"}, `\u00a0${shown}`) : null));
  }));
}
