// Links to what lies beside the page. They are plain links: a page that fetches nothing cannot hand a file to another page.

const FILES = [
  ["trace.pftrace", "all spans, for Perfetto"], ["trace.json", "the same as Chrome's JSON"],
  ["report.json", "findings and tables"], ["report.txt", "the same as text"]
];

function makeFiles() {
  return h(
      "section", {id: "files", "aria-labelledby": "files-title"}, h("h2", {id: "files-title"}, "Files beside this page"),
      h("ul", {class: "files"},
        FILES.map(([name, what]) => h("li", {}, h("a", {href: name, download: name}, name), ` ${what}`))),
      h("p", {class: "note"},
        "To see the whole run: open Perfetto's UI (ui.perfetto.dev), choose \u201cOpen trace file\u201d and trace.pftrace; the " +
            "file is read in the browser and sent nowhere. Large captures have no trace.json; ferry trace export DIR writes " +
            "every file."));
}

/** The link to a table's CSV. */
function makeCsvLink(table) {
  const path = `csv/${table.id}.csv`;
  return h("p", {class: "csv"}, h("a", {href: path, download: `${table.id}.csv`, "aria-label": `${table.title} as CSV`}, path));
}
