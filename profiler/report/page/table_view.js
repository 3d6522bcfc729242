// A table of all the CSV's numbers, each in a unit that suits its size with the exact number beside it; sortable; long tables
// show their rest on demand.

const FIRST_ROWS = 15;
const MORE_ROWS = 1500;

function compareCells(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  const x = Number(a), y = Number(b);
  if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

class TableView {
  constructor(table) {
    this.table = table;
    this.numeric = table.columns.map((_, c) => table.isNumeric(c));
    this.shares = table.columns.map(({name}, c) => this.numeric[c] ? shareMaximum(name) : 0);
    this.isEmpty = table.columns.map((_, c) => table.isEmpty(c));
    this.order = table.rows.map((_, r) => r);
    this.sorted = {column: -1, down: false};
    this.body = h("tbody");
    this.more = h("button", {type: "button", class: "button more", onclick: () => this.showMore()});
    this.shown = 0;
    this.headers = table.columns.map((column, c) => this.makeHeader(column, c));
    const caption = h("caption", {class: "hidden"}, table.title);
    this.element =
        h("div", {class: "table"},
          h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${table.title}`},
            h("table", {}, caption, h("thead", {}, h("tr", {}, this.headers)), this.body)),
          this.more, this.makeFootnote());
    this.fill(FIRST_ROWS);
  }

  makeHeader(column, c) {
    const [name, unit] = nameAndUnit(column.name), shown = hasOwnUnits(column) ? "" : unit;
    const button =
        h("button", {type: "button", onclick: () => this.sortBy(c)}, name,
          shown ? h("span", {class: "unit"}, ` ${shown}`) : null, h("span", {class: "arrow", "aria-hidden": "true"}));
    return h("th", {scope: "col", class: this.classOf(c), "data-column": column.name}, button);
  }

  /** Of a column's cells, and what one of them is beside. */
  classOf(c, more = "") {
    return [this.numeric[c] ? "num" : "", this.isEmpty[c] ? "empty" : "", more].filter(Boolean).join(" ") || null;
  }

  makeFootnote() {
    const {table} = this;
    const empty = table.columns.filter((_, c) => this.isEmpty[c]).map(({name}) => nameAndUnit(name).filter(Boolean).join(" "));
    if (empty.length) return h("p", {class: "note"}, `Left out, as no row has a value: ${empty.join(", ")}.`);
    if (!table.isCut) return null;
    return h(
        "p", {class: "note"},
        `The page holds the first ${groupDigits(table.rows.length)} of ${groupDigits(table.numRows)} rows; ` +
            `all of them are in csv/${table.id}.csv.`);
  }

  sortBy(column) {
    const down = this.sorted.column === column ? !this.sorted.down : this.numeric[column];
    this.sorted = {column, down};
    const {rows} = this.table;
    this.order.sort((a, b) => {
      const x = rows[a][column], y = rows[b][column];
      if (x === null || y === null) return compareCells(x, y) || a - b;  // what is absent stays last
      return (down ? -compareCells(x, y) : compareCells(x, y)) || a - b;
    });
    this.headers.forEach((header, c) => {
      if (c === column)
        header.setAttribute("aria-sort", down ? "descending" : "ascending");
      else
        header.removeAttribute("aria-sort");
    });
    this.fill(Math.max(this.shown, FIRST_ROWS));
  }

  showMore() {
    const from = this.shown;
    this.append(Math.min(this.order.length, from + MORE_ROWS));
    const focused = this.body.rows[from];
    if (focused && this.more.hidden) focused.setAttribute("tabindex", "-1"), focused.focus({preventScroll: true});
  }

  fill(count) {
    this.body.replaceChildren();
    this.shown = 0;
    const few = count + 5 >= this.order.length;  // a button for a handful of rows is a nuisance
    this.append(few ? this.order.length : count);
  }

  append(to) {
    const rows = document.createDocumentFragment();
    for (; this.shown < to; ++this.shown) rows.append(this.makeRow(this.table.rows[this.order[this.shown]]));
    this.body.append(rows);
    const rest = this.order.length - this.shown;
    this.more.hidden = rest === 0;
    this.more.textContent = rest <= MORE_ROWS ? `Show all ${groupDigits(this.order.length)} rows` :
                                                `Show the next ${groupDigits(MORE_ROWS)} of ${groupDigits(rest)} rows`;
  }

  /** Brings a row of the table into sight and gives it the focus. */
  reveal(row) {
    const place = this.order.indexOf(this.table.rows.indexOf(row));
    if (place < 0) return;
    if (place >= this.shown) this.append(Math.min(this.order.length, place + FIRST_ROWS));
    this.body.querySelector(".found")?.classList.remove("found");
    const found = this.body.rows[place];
    found.classList.add("found");
    found.setAttribute("tabindex", "-1");
    found.scrollIntoView({block: "center"});
    found.focus({preventScroll: true});
  }

  /** Brings a column's header into sight and gives it the focus. */
  revealColumn(column) {
    const header = this.headers[column];
    if (this.isEmpty[column]) {
      this.isEmpty[column] = false;
      header.classList.remove("empty");
      this.fill(Math.max(this.shown, FIRST_ROWS));
    }
    header.scrollIntoView({block: "center", inline: "center"});
    header.querySelector("button").focus({preventScroll: true});
  }

  makeRow(row) {
    return h("tr", {}, row.map((cell, c) => {
      const text = makeCell(this.table, row, c);
      if (!this.numeric[c]) return h("td", {class: this.classOf(c), title: typeof row[c] === "string" && row[c].length > 50 ? row[c] : null}, text);
      const share = this.shares[c] ? Math.min(1, Math.max(0, cell / this.shares[c])) : 0;
      return h("td", {class: this.classOf(c, share ? "share" : ""), style: share ? `--share:${(100 * share).toFixed(1)}%` : null}, text);
    }));
  }
}

/** What 100 % is in a column of shares, 0 for other columns. */
function shareMaximum(name) {
  if (/(_pct|_percent|percent)$/.test(name)) return 100;
  return /(^|_)(share|ratio|efficiency|balancedness)$/.test(name) ? 1 : 0;
}

/** The table of a section: open at once if it is all there is to see. */
function makeTableDetails(table, open) {
  const summary = h("summary", {}, h("span", {}, "Table"), h("span", {class: "count"}, countOf(table.numRows, "row")));
  const details = h("details", {open}, summary);
  let view = null;
  const make = () => {
    if (view === null && details.open) details.append((view = new TableView(table)).element);
  };
  table.reveal = (row) => {
    details.open = true;
    make();
    view.reveal(row);
  };
  table.revealColumn = (column) => {
    details.open = true;
    make();
    view.revealColumn(column);
  };
  details.addEventListener("toggle", make);
  make();
  return details;
}
