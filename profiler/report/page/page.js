// Puts the page together: the findings first, then a section for every table that has rows, with its picture where there is one.

const PICTURES = {
  critical_path: drawPathBars,
  run: drawRun,
  phase: drawPhases,
  step: drawSteps,
  layer: drawLayers,
  layer_type: (table, report) => {
    const bars = drawLayerTypes(table);
    return bars && h("div", {}, bars, drawLayerDiff(report.tables.get("layer")));
  },
  kernel: drawKernels,
  kernel_layer: drawKernelPairs,
  operator: drawOperators,
  transfer: (_, report) => drawRankTimes(report),
  traffic: drawTraffic,
  expert: drawExperts,
  balance: drawBalance,
  hot_expert: drawHotExperts,
  straggler: drawStragglers,
  request: drawRequests,
  free: drawGaps,
  folded_stack: drawFlameGraph,
  memory_timeline: drawMemory,
};

/** A table's element id; letters and digits of its own id only. */
function sectionId(table) { return `view-${table.id.replace(/[^A-Za-z0-9_-]/g, "-")}`; }

/** The picture, or null where the table has not what it needs: then the table speaks for itself. */
function drawPicture(table, report) {
  if (!Object.hasOwn(PICTURES, table.id)) return null;
  try {
    return PICTURES[table.id](table, report);
  } catch (error) {
    console.warn(`no picture of ${table.id}: ${error.message}`);
    return null;
  }
}

function makeSection(table, report) {
  const picture = drawPicture(table, report), id = sectionId(table);
  return h(
      "section", {id, "aria-labelledby": `${id}-title`}, h("h2", {id: `${id}-title`}, table.title),
      table.note ? h("p", {class: "note"}, table.note) : null, picture ? h("div", {class: "picture"}, picture) : null,
      makeTableDetails(table, !picture || (table.rows.length <= 8 && table.id !== "run")), makeCsvLink(table));
}

/** Marks the contents' entry of the section that is being read. */
function followReading(links, sections) {
  const visible = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) isIntersecting ? visible.add(target) : visible.delete(target);
    const current = sections.find((section) => visible.has(section));
    if (!current) return;
    for (const link of links) {
      if (link.hash !== `#${current.id}`) {
        link.removeAttribute("aria-current");
        continue;
      }
      link.setAttribute("aria-current", "true");
      const list = link.closest("ul");  // a strip that scrolls sideways on narrow screens
      list.scrollLeft = link.offsetLeft - list.offsetLeft - 40;
    }
  }, {rootMargin: "-120px 0px -50% 0px"});
  for (const section of sections) observer.observe(section);
}

/** A finding that is gone to gets the focus, so that it is seen which one it is. */
function followFindings() {
  addEventListener("hashchange", () => /^#finding-\d+$/.test(location.hash) && document.querySelector(location.hash)?.focus());
}

function makePage() {
  setUpTheme();
  const report = readReport(), main = document.getElementById("main");
  const findings =
      h("section", {id: "findings", "aria-labelledby": "findings-title"}, h("h2", {id: "findings-title"}, "Findings"),
        makeFindings(report));
  const sections = [findings, ...[...report.tables.values()].map((table) => makeSection(table, report)), makeFiles(report)];
  const panel = makeStepPanel(report.timelines);
  if (panel) sections.splice(sections.findIndex(({id}) => id === "view-step") + 1 || 1, 0, panel.element);
  main.replaceChildren(h("h1", {}, report.title), ...sections);
  const links = sections.map((section) => h("a", {href: `#${section.id}`}, section.querySelector("h2").textContent));
  document.querySelector(".toc").append(h("ul", {}, links.map((link) => h("li", {}, link))));
  followReading(links, sections);
  document.querySelector(".top-inner").insertBefore(new SearchBox(report).element, document.getElementById("theme"));
  panel?.open();
  followFindings();
  document.documentElement.dataset.ready = "true";
}

makePage();
