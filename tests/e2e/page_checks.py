"""What a page must have for everybody to read it and to use it without a mouse, as JavaScript expressions that find what lacks it."""

# {complaint: elements} of what a reader of the page needs.
FIND_FAULTS = """(() => {
  // What is no button or link is not named by what it contains; and a sign, as "+", is no name.
  const words = (e) => e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent).join(" ") || (e.matches("button, a, summary") ? e.textContent : "");
  const name = (e) => /[\\p{L}\\p{N}]/u.test(words(e));
  const controls = "button:not([hidden]), a, canvas, input, select, [role=application], [role=region], [role=listbox]:not([hidden]), [tabindex='0']";
  const isPlace = (a) => /^#step-\\d+$/.test(a.hash) || (a.hash ? document.getElementById(a.hash.slice(1)) : /^(csv\\/[\\w-]+\\.csv|(trace|report|profile|stacks)\\.[\\w.]+|kineto\\/|[\\w.-]+_ascend_pt\\/)$/.test(a.getAttribute("href")));
  const faults = {
    "no name": [...document.querySelectorAll(controls)].filter((e) => !name(e)),
    "not reached by keys": [...document.querySelectorAll("[role=application], [role=region]")].filter((e) => e.tabIndex < 0),
    "same id": [...document.querySelectorAll("[id]")].filter((e) => document.getElementById(e.id) !== e),
    "link to nowhere": [...document.querySelectorAll("a")].filter((a) => !isPlace(a)),
    "table without caption": [...document.querySelectorAll("table")].filter((table) => !table.caption?.textContent),
    "header without scope": [...document.querySelectorAll("th:not([scope])")],
    "section without name": [...document.querySelectorAll("section")].filter((e) => !e.ariaLabel && !document.getElementById(e.getAttribute("aria-labelledby"))?.textContent),
    "no language": document.documentElement.lang ? [] : [document.documentElement],
  };
  return Object.fromEntries(Object.entries(faults).filter(([, found]) => found.length).map(([fault, found]) => [fault, found.map((e) => e.outerHTML.slice(0, 90))]));
})()"""

# Landmarks that the page lacks, or has twice.
FIND_LOST_LANDMARKS = """["header", "nav", "main", "search"].filter((tag) => document.querySelectorAll(tag).length !== 1)"""

# once(find): a function that finds something out about an element only the first time that it is asked.
ONCE = """
  const once = (find) => { const known = new Map(); return (element) => { if (!known.has(element)) known.set(element, find(element)); return known.get(element); }; };
"""

# Functions for how well colours are told apart. contrast(a, b): WCAG's, of channels [r, g, b]; groundOf(element): what its text lies
# on, through whatever is see-through; opacityOf(element): that of all around it.
COLORS = ONCE + """
  const channels = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const blend = (over, under, opacity = 1) => under.map((v, i) => v + (over[i] - v) * (over[3] ?? 1) * opacity);
  const luminance = (c) => c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [a, b].map((c) => luminance(c.slice(0, 3))); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const groundOf = once((element) => {
    if (!element) return [255, 255, 255];
    const color = channels(getComputedStyle(element).backgroundColor);
    return color.length && color[3] !== 0 ? blend(color, color[3] === undefined ? [0, 0, 0] : groundOf(element.parentElement)) : groundOf(element.parentElement);
  });
  const opacityOf = once((element) => element ? getComputedStyle(element).opacity * opacityOf(element.parentElement) : 1);
"""

# [text, contrast] of what is harder to read than WCAG's 4.5 : 1.
FIND_PALE_TEXT = """(() => {""" + COLORS + """
  const pale = [];
  const measure = (element, style, text, opacity = 1) => {
    const ink = channels(element.namespaceURI.endsWith("svg") ? style.fill : style.color), ground = groundOf(element);
    const seen = contrast(blend(ink, ground, opacity * opacityOf(element)), ground);
    if (!(seen >= 4.5)) pale.push([text.slice(0, 40), seen.toFixed(2)]);
  };
  for (const element of document.querySelectorAll("body *:not(script):not(style):not(option)")) {
    const hint = element.placeholder && getComputedStyle(element, "::placeholder");
    if (hint) measure(element, hint, element.placeholder, hint.opacity);
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.getClientRects().length) continue;
    measure(element, getComputedStyle(element), element.textContent);
  }
  return pale.slice(0, 10);
})()"""

# To be run before a page's own scripts: notes in `drawnTexts` what canvases write, [text, contrast with what most of it lies on].
NOTE_DRAWN_TEXTS = """{""" + COLORS + """
  const write = CanvasRenderingContext2D.prototype.fillText;
  window.drawnTexts = [];
  CanvasRenderingContext2D.prototype.fillText = function(text, x, y, ...more) {
    const width = this.measureText(text).width, from = x - width * {right: 1, end: 1, center: 0.5}[this.textAlign] || x;
    const place = this.getTransform().transformPoint({x: from, y: y - 5});
    const pixels = this.getImageData(place.x, place.y, Math.max(width, 1), 10).data, counts = new Map();
    for (let i = 0; i < pixels.length; i += 4) {
      const key = pixels.slice(i, i + 4).join();
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    const [r, g, b, alpha] = [...counts].reduce((a, b) => b[1] > a[1] ? b : a)[0].split(",").map(Number);
    const ground = blend([r, g, b, alpha / 255], groundOf(this.canvas.isConnected ? this.canvas : document.body));
    const ink = this.fillStyle[0] === "#" ? [1, 3, 5].map((at) => parseInt(this.fillStyle.slice(at, at + 2), 16)) : channels(this.fillStyle);
    window.drawnTexts.push([text, contrast(blend(ink, ground), ground)]);
    return write.call(this, text, x, y, ...more);
  };
}"""

# Why it is not seen that the element which has the focus has it; "" if it is.
FIND_UNSEEN_FOCUS = """(() => {""" + COLORS + """
  const element = document.activeElement, style = getComputedStyle(element);
  if (element === document.body) return "";
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) return "no outline";
  const ground = groundOf(parseFloat(style.outlineOffset) < 0 ? element : element.parentElement);
  const seen = contrast(blend(channels(style.outlineColor), ground, opacityOf(element)), ground);
  return seen >= 3 ? "" : `an outline of ${seen.toFixed(2)} : 1`;
})()"""

# [tag, class, what it is cut by] of text that its box cuts, and that no box around it lets scroll.
FIND_CUT_TEXT = """(() => {""" + ONCE + """
  const isInScrolling = once((e) => e && e !== document.body && (/auto|scroll/.test(getComputedStyle(e).overflowX) || isInScrolling(e.parentElement)));
  const cut = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    if (!e.getClientRects().length || e.closest(".hidden, svg, canvas, .results")) continue;
    const r = e.getBoundingClientRect();
    if (!isInScrolling(e) && (r.right > innerWidth + 0.5 || r.left < -0.5)) cut.push([e.tagName, e.className, "the window"]);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX === "hidden" && !e.matches("td, .timeline-box, .result-label, .bar-track"))
      cut.push([e.tagName, e.className, "its box"]);
  }
  return cut.slice(0, 8);
})()"""

# Pairs of controls or headings that lie on one another.
FIND_OVERLAPS = """(() => {
  const all = [...document.querySelectorAll("main button, main select, main h2, main h3, main label, .bar-name, .bar-total, header button, header input, .brand")]
    .filter((e) => e.getClientRects().length && !e.closest(".scroll")).map((e) => [e, e.getBoundingClientRect()]);
  const pairs = [];
  all.forEach(([a, r], i) => all.slice(i + 1, i + 12).forEach(([b, q]) => {
    if (a.contains(b) || b.contains(a) || a.closest("header") !== b.closest("header")) return;
    if (Math.min(r.right, q.right) - Math.max(r.left, q.left) > 1 && Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 1)
      pairs.push([a.textContent.slice(0, 30), b.textContent.slice(0, 30)]);
  }));
  return pairs.slice(0, 8);
})()"""

# (check, fault that is planted into the page, what the check says of it). {} is an empty element that is taken away afterwards.
PLANTED = (
    (FIND_PALE_TEXT, "{}.innerHTML = '<p style=\"color: #949494\">grey</p>'", "grey"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<p style=\"opacity: 0.5\">faint</p>'", "faint"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<p style=\"color: rgb(0 0 0 / 40%)\">thin</p>'", "thin"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<div style=\"background: rgb(0 0 0 / 50%)\"><p>shaded</p></div>'", "shaded"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<svg width=\"60\" height=\"20\"><text y=\"12\" style=\"fill: #949494\">drawn</text></svg>'", "drawn"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<style>.planted::placeholder {color: #949494; opacity: 1}</style><input class=\"planted\" placeholder=\"hint\">'", "hint"),
    (FIND_PALE_TEXT, "{}.innerHTML = '<style>.planted::placeholder {opacity: 0.5}</style><input class=\"planted\" placeholder=\"hint\">'", "hint"),
    (FIND_FAULTS, "{}.innerHTML = '<button></button>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<button>+</button>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<canvas></canvas>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<select><option>words</option></select>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<div role=\"region\" tabindex=\"0\">words</div>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<div role=\"application\" tabindex=\"-1\" aria-label=\"words\"></div>'", "not reached by keys"),
    (FIND_FAULTS, "{}.innerHTML = '<input type=\"checkbox\">'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<p tabindex=\"0\"></p>'", "no name"),
    (FIND_FAULTS, "{}.innerHTML = '<p id=\"view-step\"></p>'", "same id"),
    (FIND_FAULTS, "{}.innerHTML = '<a href=\"#nowhere\">there</a>'", "link to nowhere"),
    (FIND_FAULTS, "{}.innerHTML = '<a href=\"https://example.org/\">there</a>'", "link to nowhere"),
    (FIND_FAULTS, "{}.innerHTML = '<table><tr><td>1</table>'", "table without caption"),
    (FIND_FAULTS, "{}.innerHTML = '<table><caption>t</caption><tr><th>1</table>'", "header without scope"),
    (FIND_FAULTS, "{}.innerHTML = '<section>words</section>'", "section without name"),
    (FIND_LOST_LANDMARKS, "{}.innerHTML = '<nav>again</nav>'", "nav"),
    (FIND_CUT_TEXT, "{}.innerHTML = '<p style=\"width: 40px; overflow: hidden; white-space: nowrap\">words that are cut</p>'", "its box"),
    (FIND_CUT_TEXT, "{}.innerHTML = '<p style=\"width: 3000px\">words</p>'", "the window"),
    (FIND_OVERLAPS, "{}.innerHTML = '<button>one</button><button style=\"margin-left: -20px\">two</button>'", "two"),
    (FIND_UNSEEN_FOCUS, "{}.innerHTML = '<button style=\"outline: none\">b</button>', {}.firstChild.focus()", "no outline"),
    (FIND_UNSEEN_FOCUS, "{}.innerHTML = '<button style=\"outline: 0 solid red\">b</button>', {}.firstChild.focus()", "no outline"),
    (FIND_UNSEEN_FOCUS, "{}.innerHTML = '<button style=\"outline: 2px solid #bbb\">b</button>', {}.firstChild.focus()", "an outline of"),
    (FIND_UNSEEN_FOCUS, "{}.innerHTML = '<button style=\"outline: 2px solid transparent\">b</button>', {}.firstChild.focus()", "an outline of"),
)
