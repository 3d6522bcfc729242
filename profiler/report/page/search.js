// One box that finds findings, tables, operators, layers, steps and requests, and goes there.

const MOST_RESULTS = 30;

/** Everything that can be found: [{kind, label, go}]. */
function makeSearchIndex(report) {
  const items = report.findings.map((finding, i) => ({kind: "finding", label: finding.text, go: () => goTo(`finding-${i}`)}));
  for (const table of report.tables.values()) items.push({kind: "table", label: table.title, go: () => goTo(sectionId(table))});
  const addRows = (id, kind, pattern, label) => {
    const table = report.tables.get(id), c = table ? table.find(pattern) : -1, known = new Set();
    for (const row of c >= 0 ? table.rows : []) {
      const text = row[c] === null ? null : label(row[c], row, table);
      if (text === null || known.has(text)) continue;
      known.add(text);
      items.push({kind, label: text, go: () => table.reveal(row)});
    }
  };
  addRows("operator", "operator", /^operator$/, (name) => String(name));
  addRows("layer", "layer", /^layer$/, (layer, row, table) => {
    const type = table.find(/^layer_type$/);
    return layer < 0 ? null : `Layer ${layer}${type >= 0 && row[type] ? `, ${String(row[type]).replaceAll("_", " ")}` : ""}`;
  });
  const known = new Set(report.timelines?.steps.map(({step}) => step)), steps = report.tables.get("step"),
        c = steps?.find(/^step$/) ?? -1;
  for (const row of c >= 0 ? steps.rows : []) known.add(row[c]);
  if (report.timelines?.steps.length) {
    for (const step of [...known].sort((a, b) => a - b))
      items.push({kind: "step", label: `Step ${step}`, go: () => goTo(`step-${step}`)});
  }
  addRows("request", "request", /^request$/, (request) => `Request ${request}`);
  return items.map((item) => ({...item, text: `${item.kind} ${item.label}`.toLowerCase()}));
}

/** The best items for a query, best first: whole words before their beginnings before anything inside. */
function searchItems(items, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const item of items) {
    const parts = item.text.split(/[^\p{L}\p{N}]+/u);
    let score = 0;
    for (const word of words) {
      if (!item.text.includes(word)) {
        score = -1;
        break;
      }
      score += parts.includes(word) ? 0 : parts.some((part) => part.startsWith(word)) ? 1 : 2;
    }
    if (score >= 0) found.push({item, score});
  }
  // The order of items, findings first, stays among equals, but that a long sentence comes behind a name.
  const rank = ({item, score}) => 3 * score + (item.kind === "finding" ? 2 : 0);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, MOST_RESULTS).map(({item}) => item);
}

class SearchBox {
  constructor(report) {
    Object.assign(this, {report, found: [], at: -1});
    this.list = h("ul", {class: "results", id: "search-results", role: "listbox", "aria-label": "Results", hidden: true});
    this.input = h("input", {
      type: "search",
      id: "search",
      role: "combobox",
      placeholder: "Search  /",
      autocomplete: "off",
      spellcheck: "false",
      "aria-label": "Search operators, layers, steps, requests, tables, findings",
      "aria-controls": "search-results",
      "aria-expanded": "false",
      "aria-autocomplete": "list",
      oninput: () => this.update(),
      onfocus: () => this.update(),
      onkeydown: (event) => this.press(event),
      onblur: () => this.close(),
    });
    this.status = h("span", {class: "hidden", role: "status"});
    this.element = h("search", {class: "search"}, this.input, this.list, this.status);
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault();  // the box keeps the focus until the choice is made
      const item = event.target.closest("[data-place]");
      if (item) this.choose(Number(item.dataset.place));
    });
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.altKey || event.metaKey ||
          event.target.closest?.("input, select, textarea"))
        return;
      event.preventDefault();
      this.input.focus();
      this.input.select();
    });
  }

  update() {
    this.items ??= makeSearchIndex(this.report);
    this.found = searchItems(this.items, this.input.value);
    this.list.replaceChildren(...this.found.map(
        ({kind, label}, place) =>
            h("li", {role: "option", id: `result-${place}`, "data-place": String(place), "aria-selected": "false"},
              h("span", {class: "result-kind"}, kind), h("span", {class: "result-label"}, label))));
    const isAsked = this.input.value.trim() !== "";
    if (isAsked && this.found.length === 0) this.list.append(h("li", {class: "none", role: "presentation"}, "Nothing found."));
    this.status.textContent = isAsked ? `${this.found.length} found` : "";
    this.list.hidden = !isAsked;
    this.input.setAttribute("aria-expanded", String(isAsked));
    this.mark(this.found.length ? 0 : -1);
  }

  mark(place) {
    this.list.children[this.at]?.setAttribute("aria-selected", "false");
    this.at = place;
    const item = this.list.querySelector(`[data-place="${place}"]`);
    item?.setAttribute("aria-selected", "true");
    item?.scrollIntoView({block: "nearest"});
    if (item)
      this.input.setAttribute("aria-activedescendant", item.id);
    else
      this.input.removeAttribute("aria-activedescendant");
  }

  press(event) {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (by !== undefined && this.found.length) {
      event.preventDefault();
      this.mark((this.at + by + this.found.length) % this.found.length);
    } else if (event.key === "Enter" && this.at >= 0) {
      event.preventDefault();
      this.choose(this.at);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.update();
    }
  }

  choose(place) {
    const {go} = this.found[place];
    this.input.value = "";
    this.input.blur();
    go();
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}
