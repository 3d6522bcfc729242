// Sampled stacks as a flame graph: the outermost function on top, what it called below, as wide as its CPU time. A click (Enter)
// makes a function the whole picture, the path above it leads back; arrows walk; the search marks functions by name.

const FLAME_ROW = 19, FLAME_MIN_WIDTH = 0.5, FLAME_MAX_ROWS = 64;

class FlameNode {
  constructor(name, parent) {
    Object.assign(this, {name, parent, depth: parent ? parent.depth + 1 : 0, total: 0, self: 0, children: new Map()});
  }

  child(name) {
    if (!this.children.has(name)) this.children.set(name, new FlameNode(name, this));
    return this.children.get(name);
  }

  get sorted() { return [...this.children.values()].sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1)); }

  get path() { return this.parent ? [...this.parent.path, this] : [this]; }
}

class FlameGraph {
  constructor(table, at) {
    Object.assign(this, {table, at, unit: microseconds(table.columns[at.time]), rank: null, phase: null, pattern: ""});
    this.readout = makeReadout("Point at a function, or walk with the arrow keys; Enter enlarges, Escape leads back.");
    this.canvas = s("svg", {
      class: "flame",
      tabindex: "0",
      role: "application",
      "aria-label": "Flame graph of sampled stacks",
      onkeydown: (event) => this.press(event),
    });
    this.found = h("span", {class: "choices-label", "aria-live": "polite"});
    this.frame = h("div", {}, this.canvas);
    this.grow();
    this.redraw = drawWith(this.frame, (width) => this.draw(width));
  }

  /** The tree of the ranks and phases that are chosen. */
  grow() {
    this.root = new FlameNode("all", null);
    for (const row of this.table.rows) {
      if (this.rank !== null && row[this.at.rank] !== this.rank) continue;
      if (this.phase !== null && row[this.at.phase] !== this.phase) continue;
      const time = (row[this.at.time] ?? 0) * this.unit;
      let node = this.root;
      node.total += time;
      for (const name of String(row[this.at.stack]).split(";")) {
        node = node.child(name);
        node.total += time;
      }
      node.self += time;
    }
    this.top = this.current = this.root;
  }

  choose(key, value) {
    this[key] = value;
    this.grow();
    this.redraw();
  }

  isFound(node) { return this.pattern !== "" && node.name.toLowerCase().includes(this.pattern); }

  /** Time in functions that were searched for, each moment once. */
  foundTime(node) {
    if (this.isFound(node)) return node.total;
    return [...node.children.values()].reduce((sum, child) => sum + this.foundTime(child), 0);
  }

  search(text) {
    this.pattern = text.trim().toLowerCase();
    const share = this.top.total > 0 ? this.foundTime(this.top) / this.top.total : 0;
    this.found.textContent = this.pattern === "" ? "" : `${percent(share)} of the CPU time`;
    this.redraw();
  }

  zoom(node) {
    this.top = this.current = node;
    this.search(this.pattern);
    this.tell(node);
  }

  tell(node) {
    this.current = node;
    const share = this.root.total > 0 ? node.total / this.root.total : 0;
    this.readout.show([node.name, `total ${duration(node.total)}`, percent(share), `self ${duration(node.self)}`]);
    this.outlined?.removeAttribute("stroke");
    this.outlined = this.boxes?.get(node)?.querySelector("rect");
    this.outlined?.setAttribute("stroke", color("--focus"));
  }

  press(event) {
    const node = this.current, siblings = node.parent ? node.parent.sorted : [node], i = siblings.indexOf(node);
    const next = {
      ArrowDown: () => node.sorted[0],
      ArrowUp: () => node === this.top ? node : node.parent,
      ArrowLeft: () => node === this.top ? node : siblings[i - 1],
      ArrowRight: () => node === this.top ? node : siblings[i + 1],
    }[event.key];
    if (next)
      this.tell(next() ?? node);
    else if (event.key === "Enter")
      this.zoom(node);
    else if (event.key === "Escape")
      this.zoom(this.top.parent ?? this.root);
    else
      return;
    event.preventDefault();
  }

  draw(width) {
    this.boxes = new Map();
    const boxes = [], above = this.top.path.slice(0, -1);
    let rows = above.length + 1;
    for (const [i, node] of above.entries()) boxes.push(this.box(node, 0, i, width, true));
    const place = (node, x, row, span) => {
      if (span < FLAME_MIN_WIDTH || row >= FLAME_MAX_ROWS + above.length) return;
      rows = Math.max(rows, row + 1);
      boxes.push(this.box(node, x, row, span, false));
      let from = x;
      for (const child of node.sorted) {
        const share = node.total > 0 ? span * child.total / node.total : 0;
        place(child, from, row + 1, share);
        from += share;
      }
    };
    place(this.top, 0, above.length, width);
    setAll(this.canvas, {width, height: rows * FLAME_ROW, viewBox: `0 0 ${width} ${rows * FLAME_ROW}`}, []);
    this.canvas.replaceChildren(...boxes);
  }

  /** Functions of one name have one colour everywhere. */
  fill(node, isAbove) {
    if (this.isFound(node)) return color("--accent");
    if (isAbove || node === this.root) return color("--raised");
    let hash = 0;
    for (const letter of node.name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    const isDark = document.documentElement.dataset.theme === "dark";
    return `hsl(${18 + hash % 36} ${45 + (hash >> 8) % 25}% ${isDark ? 28 + (hash >> 16) % 8 : 76 + (hash >> 16) % 10}%)`;
  }

  box(node, x, row, width, isAbove) {
    const y = row * FLAME_ROW, letters = Math.floor((width - 6) / 6.6);
    const text = letters < 3 ? "" : node.name.length > letters ? `${node.name.slice(0, letters - 1)}\u2026` : node.name;
    const box = s(
        "g", {
          class: "flame-box",
          "data-name": node.name,
          onclick: () => this.zoom(node),
          onpointerenter: () => this.tell(node),
        },
        s("rect", {x, y, width: Math.max(width - 0.5, 0.5), height: FLAME_ROW - 1, rx: 2, fill: this.fill(node, isAbove)}),
        text ? s("text", {
          x: x + 4,
          y: y + 13,
          "font-size": 11,
          class: this.isFound(node) ? "flame-found" : "flame-name",
        },
                 text) :
               null);
    this.boxes.set(node, box);
    return box;
  }
}

function drawFlameGraph(table) {
  const at = table.pick({rank: [/^rank/], phase: [/^phase/], stack: [/^stack/], time: [/^cpu_(us|ms|ns)$/]});
  if (!at || table.rows.length === 0) return null;
  const graph = new FlameGraph(table, at);
  const options = (column, name) => [{label: "all", value: null},
    ...[...new Set(table.rows.map((row) => row[column]))].sort().map((value) => ({label: `${name}${value}`, value}))];
  return h(
      "div", {}, makeChoice("Phase", options(at.phase, ""), (value) => graph.choose("phase", value)),
      makeChoice("Rank", options(at.rank, "rank "), (value) => graph.choose("rank", value)),
      h("div", {class: "choices"},
        h("input", {
          type: "search",
          class: "flame-search",
          placeholder: "function",
          "aria-label": "Search the flame graph",
          oninput(event) { graph.search(event.target.value); },
        }),
        graph.found),
      graph.frame, graph.readout.element);
}
