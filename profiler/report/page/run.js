// The run as a sheet of figures, and the findings as cards.

const SEVERITIES = {
  problem: "Problem",
  notice: "Notice",
  info: "Info"
};

function makeFindings(report) {
  const cards = report.findings.map((finding) => {
    const severity = SEVERITIES[finding.severity] ? finding.severity : "info";
    const table = report.tables.get(finding.table);
    return h(
        "li", {class: `card ${severity}`},
        h("p", {class: "card-head"}, h("span", {class: "badge"}, SEVERITIES[severity]),
          h("span", {class: "kind"}, finding.kind.replaceAll("_", " "))),
        h("p", {class: "card-text"}, finding.text), table ? h("a", {href: `#${sectionId(table)}`}, table.title) : null);
  });
  return cards.length ? h("ul", {class: "cards"}, cards) : h("p", {class: "note"}, "Nothing stands out.");
}

function drawRun(table) {
  if (table.rows.length !== 1) return null;
  const [row] = table.rows;
  return h("dl", {class: "figures"}, table.columns.map((column, c) => {
    if (row[c] === null || row[c] === "") return null;
    const [name, unit] = nameAndUnit(column.name);
    return h(
        "div", {}, h("dt", {}, name),
        h("dd", {class: typeof row[c] === "string" ? "words" : null}, groupedNumber(table.text(row, c)),
          unit ? h("span", {class: "unit"}, `\u00a0${unit}`) : null));
  }));
}
