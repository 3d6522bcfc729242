// Making elements. Text is always set as text, never as markup, so names from a model or a host can be anything.

const SVG_NAMESPACE = (() => {
  const template = document.createElement("template");
  template.innerHTML = "<svg></svg>";
  return template.content.firstChild.namespaceURI;
})();

function setAll(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on"))
      element.addEventListener(name.slice(2), value);
    else if (name === "style")
      element.style.cssText = value;
    else
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element: h("p", {class: "note"}, "text"). */
function h(tag, attributes = {}, ...children) { return setAll(document.createElement(tag), attributes, children); }

/** An SVG element. */
function s(tag, attributes = {}, ...children) {
  return setAll(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

/** The value of a colour of the style sheet: color("--ink"). */
function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/** A line below a picture that says what the pointer or the keyboard is at; screen readers are told, too. */
function makeReadout(hint) {
  const element = h("output", {class: "readout", "aria-live": "polite"}, hint);
  return {
    element,
    show(parts) {
      element.replaceChildren(...parts.flatMap((part, i) => [i === 0 ? h("strong", {}, part) : h("span", {}, part), " "]));
    },
  };
}

/** Colour keys: [{label, swatch}], swatch a CSS background. */
function makeLegend(items) {
  return h(
      "ul", {class: "legend"},
      items.map(
          ({label, swatch}) =>
              h("li", {}, h("span", {class: "swatch", style: `background:${swatch}`, "aria-hidden": "true"}), label)));
}

/** Buttons of which one is pressed: [{label, value}]. */
function makeChoice(label, options, onChange) {
  const buttons = options.map(
      ({label: text, value}, i) =>
          h("button", {
            type: "button",
            class: "choice",
            "aria-pressed": String(i === 0),
            onclick() {
              for (const button of buttons) button.setAttribute("aria-pressed", String(button === this));
              onChange(value);
            },
          },
            text));
  return h("div", {class: "choices", role: "group", "aria-label": label}, h("span", {class: "choices-label"}, label), buttons);
}

const redraws = [];

/** Calls `draw(width)` now, whenever `element` gets another width, and when the theme changes. */
function drawWith(element, draw) {
  let width = 0;
  const redraw = () => {
    if (width > 0 && element.isConnected) draw(width);
  };
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    redraw();
  }).observe(element);
  redraws.push(redraw);
  return redraw;
}

/** Follows the system's theme until the button chooses one. */
function setUpTheme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let isChosen = false;
  const use = (theme) => {
    root.dataset.theme = theme;
    const other = theme === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `${button.textContent} theme`);
    for (const redraw of redraws) redraw();
  };
  button.addEventListener("click", () => {
    isChosen = true;
    use(root.dataset.theme === "dark" ? "light" : "dark");
  });
  system.addEventListener("change", () => isChosen || use(system.matches ? "dark" : "light"));
  use(system.matches ? "dark" : "light");
}
