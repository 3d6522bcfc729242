// The findings as cards: what is wrong, where it is seen, and what can be done about it.

const SEVERITIES = {
  problem: "Problem",
  notice: "Notice",
  info: "Info"
};

/** Copies `text`; where the browser does not allow that, it is selected, to be copied by hand. */
async function copyText(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    getSelection().selectAllChildren(element);
    return "Selected";
  }
}

/** One thing to do: what, what it is predicted to bring, and the command for it. */
function makeAction({text, command, prediction, saved_ms: savedMs}) {
  const gains = [
    prediction ? `predicted: ${prediction}` : null,
    Number.isFinite(savedMs) ? `${duration(1e3 * savedMs)} of all steps together` : null
  ].filter(Boolean);
  const code = command ? h("code", {}, command) : null;
  const button = command ? h("button", {
    type: "button",
    class: "button copy",
    "aria-label": `Copy: ${command}`,
    onclick: async () => {
      button.textContent = await copyText(command, code);
    },
  },
                             "Copy") :
                           null;
  return h(
      "li", {class: "action"},
      h("span", {}, `Try: ${text ?? ""}`, gains.length ? h("strong", {}, ` (${gains.join("; ")})`) : null),
      command ? h("span", {class: "command"}, code, button) : null);
}

function makeFinding(finding, place, report) {
  const severity = SEVERITIES[finding.severity] ? finding.severity : "info";
  const table = report.tables.get(finding.table), step = report.timelines?.finding_steps[place] ?? null;
  return h(
      "li", {class: `card ${severity}`, id: `finding-${place}`, tabindex: "-1"},
      h("p", {class: "card-head"}, h("span", {class: "badge"}, SEVERITIES[severity]),
        h("span", {class: "kind"}, finding.kind.replaceAll("_", " "))),
      h("p", {class: "card-text"}, finding.text),
      finding.actions?.length ? h("ul", {class: "actions"}, finding.actions.map(makeAction)) : null,
      h("p", {class: "card-links"}, table ? h("a", {href: `#${sectionId(table)}`}, table.title) : null,
        step === null ? null : h("a", {href: `#step-${step}`}, `Timeline of step ${step}`)));
}

function makeFindings(report) {
  const cards = report.findings.map((finding, place) => makeFinding(finding, place, report));
  return cards.length ? h("ul", {class: "cards"}, cards) : h("p", {class: "note"}, "Nothing stands out.");
}
