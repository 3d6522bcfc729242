// Links to what lies beside the page. They are plain links: a page that fetches nothing cannot hand a file to another page.

const FILES = [
  [/^trace\.pftrace$/, "all spans, for Perfetto"],
  [/^trace\.json$/, "the same as Chrome's JSON"],
  [/^report\.json$/, "findings and tables"],
  [/^report\.txt$/, "the same as text"],
  [/^profile\.pb\.gz$/, "time by rank and operator, for pprof"],
  [/^stacks\.pb\.gz$/, "sampled stacks, for pprof"],
  [/^stacks\.speedscope\.json$/, "sampled stacks, for speedscope"],
  [/^routing\.ferryrt$/, "what routers chose, for ferry trace routing"],
  [/^kineto\/$/, "a timeline a rank in PyTorch's form, for Holistic Trace Analysis"],
  [/_ascend_pt\/$/, "a rank as Ascend's profiler has it, for MindStudio Insight"],
];

/** A file's link; a folder is opened and not saved. */
function makeFile(name) {
  const [, what] = FILES.find(([pattern]) => pattern.test(name)) ?? [/$/, ""];
  return h("li", {}, h("a", {href: name, download: name.endsWith("/") ? null : name}, name), ` ${what}`);
}

/** What lay there when the page was written, and what has no section because there is nothing to show. */
function makeFiles({files, emptyTables}) {
  return h(
      "section", {id: "files", "aria-labelledby": "files-title"}, h("h2", {id: "files-title"}, "Files beside this page"),
      h("ul", {class: "files"}, files.map(makeFile)),
      h("p", {class: "note"},
        "To see the whole run: open Perfetto's UI (ui.perfetto.dev), choose \u201cOpen trace file\u201d and trace.pftrace; the " +
            "file is read in the browser and sent nowhere. Large captures have no trace.json; ferry trace export DIR writes " +
            "every file."),
      emptyTables.length ? h("p", {class: "note", id: "empty-tables"}, `Nothing of this capture is in: ${emptyTables.join(", ")}.`) : null);
}

/** The link to a table's CSV. */
function makeCsvLink(table) {
  const path = `csv/${table.id}.csv`;
  return h("p", {class: "csv"}, h("a", {href: path, download: `${table.id}.csv`, "aria-label": `${table.title} as CSV`}, path));
}
