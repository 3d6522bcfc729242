// One box that finds findings, tables, their columns, operators, layers and their kinds, ranks, steps and requests, and goes there.

const MOST_RESULTS = 30;

/** Everything that can be found: [{kind, label, go}]. */
function makeSearchIndex(report) {
  const items = report.findings.map(
      (finding, i) => ({kind: "finding", label: finding.text, more: finding.kind, go: () => goTo(`finding-${i}`)}));
  for (const table of report.tables.values())
    items.push({kind: "table", label: table.title, more: table.id, go: () => goTo(sectionId(table))});
  const known = new Set();
  const addRows = (id, kind, pattern, label) => {
    const table = report.tables.get(id), c = table ? table.find(pattern) : -1;
    for (const row of c >= 0 ? table.rows : []) {
      const text = row[c] === null ? null : label(row[c], row, table);
      if (text === null || known.has(`${kind} ${text}`)) continue;
      known.add(`${kind} ${text}`);
      items.push({kind, label: text, go: () => table.reveal(row)});
    }
  };
  for (const [id, column] of [["operator", /^operator$/], ["transfer", /^operator$/], ["kernel", /^kernel$/]])
    addRows(id, "operator", column, (name) => String(name));
  for (const id of ["layer_type", "layer"]) addRows(id, "layer kind", /^layer_type$/, (name) => name ? String(name) : null);
  for (const id of ["straggler", "memory", "operator"]) addRows(id, "rank", /^rank$/, (rank) => `Rank ${rank}`);
  addRows("layer", "layer", /^layer$/, (layer, row, table) => {
    const type = table.find(/^layer_type$/);
    return layer < 0 ? null : `Layer ${layer}${type >= 0 && row[type] ? `, ${String(row[type]).replaceAll("_", " ")}` : ""}`;
  });
  const numbers = new Set(report.timelines?.steps.map(({step}) => step)), steps = report.tables.get("step"),
        c = steps?.find(/^step$/) ?? -1;
  for (const row of c >= 0 ? steps.rows : []) numbers.add(row[c]);
  if (report.timelines?.steps.length) {
    for (const step of [...numbers].sort((a, b) => a - b))
      items.push({kind: "step", label: `Step ${step}`, go: () => goTo(`step-${step}`)});
  }
  addRows("request", "request", /^request$/, (request) => `Request ${request}`);
  for (const table of report.tables.values()) {
    table.columns.forEach(({name}, column) => {
      const [words, unit] = nameAndUnit(name);
      const label = `${words}${unit ? `, ${unit}` : ""} in ${table.title}`;
      items.push({kind: "column", label, more: name, go: () => table.revealColumn(column)});
    });
  }
  return items.map((item) => ({...item, text: `${item.kind} ${item.label} ${item.more ?? ""}`.toLowerCase()}));
}

/** How far from a whole word of `item` a word is: 0 it is one, 1 its beginning, 2 inside, -1 not at all. A number is whole or none. */
function wordDistance(item, parts, word) {
  if (parts.includes(word)) return 0;
  if (/^\d+$/.test(word) || !item.text.includes(word)) return -1;
  return parts.some((part) => part.startsWith(word)) ? 1 : 2;
}

/** A number belongs to the word before it: "rank 3" is not in "3 ranks, rank 1". */
function hasNumbers(parts, words) {
  return words.every(
      (word, w) => w === 0 || !/^\d+$/.test(word) || !/^\p{L}+$/u.test(words[w - 1]) ||
          parts.some((part, p) => part === word && p > 0 && parts[p - 1].startsWith(words[w - 1])));
}

/** All items for a query, best first: whole words before their beginnings before anything inside. */
function searchItems(items, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const item of items) {
    const parts = item.text.split(/[^\p{L}\p{N}]+/u);
    let score = 0;
    for (const word of words) {
      const distance = wordDistance(item, parts, word);
      score = distance < 0 || score < 0 ? -1 : score + distance;
    }
    if (score >= 0 && hasNumbers(parts, words)) found.push({item, score});
  }
  // The order of items, findings first, stays among equals, but that a long sentence comes behind a name, and a column behind all.
  const rank = ({item, score}) => 3 * score + ({finding: 2, column: 4}[item.kind] ?? 0);
  return found.sort((a, b) => rank(a) - rank(b)).map(({item}) => item);
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
      "aria-label": "Search operators, layers, ranks, steps, requests, tables, columns, findings",
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
    const all = searchItems(this.items, this.input.value);
    this.found = all.slice(0, MOST_RESULTS);
    this.list.replaceChildren(...this.found.map(
        ({kind, label}, place) =>
            h("li", {role: "option", id: `result-${place}`, "data-place": String(place), "aria-selected": "false"},
              h("span", {class: "result-kind"}, kind), h("span", {class: "result-label"}, label))));
    const isAsked = this.input.value.trim() !== "";
    if (isAsked && this.found.length === 0) this.list.append(h("li", {class: "none", role: "presentation"}, "Nothing found."));
    const more = all.length - this.found.length;
    if (more > 0) this.list.append(h("li", {class: "none", role: "presentation"}, `${more} more: another word makes them fewer.`));
    this.status.textContent = isAsked ? `${all.length} found${more > 0 ? `, the first ${this.found.length} are listed` : ""}` : "";
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
