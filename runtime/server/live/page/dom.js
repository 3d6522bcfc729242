// What sections are built of. Elements are made once and told new figures.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A card with a heading; `note` under it says what is meant. */
function card(id, title, note = "") {
  const heading = element("h2", { id: `${id}-title` }, title);
  const section = element("section", { id, "aria-labelledby": heading.id }, heading);
  if (note) section.append(element("p", { class: "note" }, note));
  return section;
}

/** Names beside figures: show({name: text}) or show([[name, text], …]). */
function figureList() {
  const list = element("dl", { class: "figures" });
  const places = new Map();
  const show = (figures) => {
    const entries = Array.isArray(figures) ? figures : Object.entries(figures);
    for (const [name, text] of entries) {
      if (!places.has(name)) {
        const place = element("dd");
        places.set(name, place);
        list.append(element("div", {}, element("dt", {}, name), place));
      }
      say(places.get(name), text);
    }
    for (const [name, place] of places) place.parentElement.hidden = !entries.some(([shown]) => shown === name);
  };
  return { list, show };
}

/** A table of `columns`, [title, "text" or "num"]; show(rows of texts). */
function tableOf(caption, columns, empty) {
  const head = element("tr", {}, ...columns.map(([title, kind]) => element("th", { scope: "col", class: kind }, title)));
  const body = element("tbody");
  const table = element("table", {}, element("caption", { class: "hidden" }, caption), element("thead", {}, head), body);
  const frame = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  const show = (rows) => {
    const wanted = rows.length ? rows : [[empty]];
    while (body.rows.length > wanted.length) body.deleteRow(-1);
    wanted.forEach((texts, r) => {
      let row = body.rows[r];
      if (row && row.cells.length !== texts.length) row.replaceChildren();
      row ??= body.insertRow();
      texts.forEach((text, c) => {
        const cell = row.cells[c] ?? row.insertCell();
        cell.className = rows.length ? columns[c][1] : "none";
        cell.colSpan = rows.length ? 1 : columns.length;
        say(cell, text);
      });
    });
  };
  return { frame, show };
}

/** A bar that is `part` of `whole` long. */
function meterOf(name) {
  const fill = element("span", { class: "fill" });
  const text = element("span", { class: "meter-text" });
  const bar = element("div", { class: "track", role: "meter", "aria-label": name, "aria-valuemin": "0", "aria-valuemax": "100" }, fill);
  const box = element("div", { class: "meter" }, element("span", { class: "meter-name" }, name), text, bar);
  const show = (part, whole, shown) => {
    const share = Math.min(1, Math.max(0, ratio(part, whole) ?? 0));
    fill.style.width = `${100 * share}%`;
    bar.setAttribute("aria-valuenow", (100 * share).toFixed(0));
    bar.setAttribute("aria-valuetext", shown);
    say(text, shown);
  };
  return { box, show };
}

/** A bar of parts, [name, share, text], with a legend that says what they are. */
function stackOf(name, kinds) {
  const bar = element("div", { class: "track stack", role: "img", "aria-label": name });
  const legend = element("ul", { class: "legend" });
  const parts = kinds.map((kind, i) => {
    const fill = element("span", { class: "fill" });
    const text = element("span");
    fill.style.background = `var(--kind-${i})`;
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(--kind-${i})`;
    bar.append(fill);
    legend.append(element("li", {}, swatch, text));
    return { kind, fill, text };
  });
  const show = (shares) => {
    parts.forEach(({ kind, fill, text }, i) => {
      fill.style.width = `${100 * shares[i]}%`;
      say(text, `${kind} ${percent(shares[i])}`);
    });
    bar.setAttribute("aria-label", `${name}: ${parts.map(({ text }) => text.textContent).join(", ")}`);
  };
  return { box: element("div", {}, bar, legend), show };
}

/** A figure with the line of its last two minutes. */
function tile(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  svg.setAttribute("viewBox", "0 0 120 32");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  line.setAttribute("vector-effect", "non-scaling-stroke");
  svg.append(line);
  const value = element("p", { class: "value" });
  const note = element("p", { class: "note" });
  const box = element("div", { class: "tile" }, element("h3", {}, name), value, note, svg);
  const show = (text, small, values) => {
    const top = Math.max(...values, 1e-9);
    line.setAttribute("points", values.map((v, i) => `${(120 * i) / Math.max(1, values.length - 1)},${31 - (29 * v) / top}`).join(" "));
    svg.setAttribute("aria-label", values.length
      ? `${name}, the last two minutes: from ${figure(Math.min(...values))} to ${figure(top)}` : `${name}: no line yet`);
    say(value, text);
    say(note, small);
  };
  return { box, show };
}
