// The section that shows one step whole: the timeline of all ranks and, beside it, the slices of one lane.

class StepPanel {
  constructor(timelines) {
    this.timelines = timelines;
    this.options = {transfers: true, arrows: true, path: true};
    this.place = h("div");
    this.picker = h("select", {"aria-label": "Step", onchange: () => goTo(`step-${this.picker.value}`)}, this.makeOptions());
    this.previous = this.makeButton("Previous step", "\u2190", () => this.turn(-1));
    this.next = this.makeButton("Next step", "\u2192", () => this.turn(1));
    const toggle = (label, key) =>
        h("label", {class: "toggle"}, h("input", {
            type: "checkbox",
            checked: true,
            onchange: (event) => {
              this.options[key] = event.target.checked;
              this.chart?.redraw();
            },
          }),
          label);
    const bar =
        h("div", {class: "step-bar"}, this.previous, this.picker, this.next,
          this.makeButton("Zoom in", "+", () => this.chart?.zoom(1 / 1.5)),
          this.makeButton("Zoom out", "\u2212", () => this.chart?.zoom(1.5)),
          this.makeButton("Show the whole step", "whole", () => this.chart?.showAll()), toggle("messages", "transfers"),
          toggle("arrows", "arrows"), toggle("critical path", "path"));
    this.element =
        h("section", {id: "timeline", "aria-labelledby": "timeline-title"},
          h("h2", {id: "timeline-title"}, "Timeline of a step"), h("p", {class: "note"}, this.tellChoice()), bar, this.place);
  }

  makeButton(name, text, onclick) {
    return h("button", {type: "button", class: "button", "aria-label": name, title: name, onclick}, text);
  }

  tellChoice() {
    const {steps, num_steps: numSteps} = this.timelines;
    const how =
        "Everything that the ranks did in a step. Drag or use the arrow keys to move; the wheel (with Ctrl, or once the " +
        "timeline has the focus), two fingers, or + and \u2212 zoom. ";
    if (steps.length === numSteps) return `${how}The page holds all ${groupDigits(numSteps)} steps.`;
    return `${how}The page holds ${groupDigits(steps.length)} of ${
               groupDigits(numSteps)} steps whole: of every phase and section ` +
        "the slowest, the median and the first, those that findings name, and others as far as they fit. Of others: " +
        "ferry trace report DIR --steps N.";
  }

  makeOptions() {
    const groups = new Map();
    for (const facts of this.timelines.steps) groups.set(facts.group, [...groups.get(facts.group) ?? [], facts]);
    return [...groups].map(
        ([group, steps]) =>
            h("optgroup", {label: group},
              steps.map(
                  (facts) =>
                      h("option", {value: String(facts.step)},
                        `step ${facts.step}, ${group}, ${duration(facts.length_ns / 1e3)}` +
                            (facts.why && facts.why !== "one of many" ? `, ${facts.why}` : "")))));
  }

  turn(by) {
    const {steps} = this.timelines, at = steps.findIndex(({step}) => step === this.shown);
    goTo(`step-${steps[clamp(at + by, 0, steps.length - 1)].step}`);
  }

  /** Shows the step, or says why not. */
  async show(number, focus) {
    const {steps} = this.timelines, at = steps.findIndex(({step}) => step === number);
    if (focus) this.element.scrollIntoView();
    if (at < 0) {
      this.showAbsent(number);
      if (focus) this.place.firstChild.focus({preventScroll: true});
      return;
    }
    this.shown = number;
    this.picker.value = String(number);
    this.previous.disabled = at === 0;
    this.next.disabled = at === steps.length - 1;
    let step;
    try {
      step = await readStep(steps[at], this.timelines);
    } catch (error) {
      this.place.replaceChildren(h("p", {class: "note", role: "alert"}, `Step ${number} cannot be read: ${error.message}`));
      return;
    }
    if (this.shown === number) this.showStep(step, focus);
  }

  showAbsent(number) {
    this.chart = null;
    this.shown = undefined;
    this.place.replaceChildren(
        h("p", {class: "note absent", tabindex: "-1", role: "status"}, `The page does not hold step ${number}. `,
          h("code", {}, `ferry trace report DIR --steps ${number}`),
          " makes a page that does; DIR is the folder of the capture, in which this page lies."));
  }

  showStep(step, focus) {
    this.chart = new TimelineChart(step, (i) => list.select(i), this.options);
    const list = new SliceList(step, (i) => this.chart.select(i));
    const {facts} = step;
    const summary = [
      `Step ${facts.step}: ${facts.group}`, duration(facts.length_ns / 1e3), countOf(facts.tokens, "token"),
      countOf(facts.sequences, "sequence"), countOf(facts.slices, "slice"), `began at ${duration(facts.begin_ns / 1e3)}`,
      facts.why && facts.why !== "one of many" ? facts.why : null
    ].filter(Boolean);
    this.place.replaceChildren(
        h("p", {class: "step-summary"}, summary.join(" \u00b7 ")), makeSliceLegend(step),
        h("div", {class: "step-split"}, h("div", {class: "step-main"}, this.chart.box, this.chart.readout.element),
          list.element));
    if (focus) this.chart.canvas.focus({preventScroll: true});
  }

  /** What is shown before anybody asks: a step as most are (`opening_step`), of those that the page holds. */
  showFirst() {
    const {steps, opening_step: wanted} = this.timelines;
    const byLength = [...steps].sort((a, b) => a.length_ns - b.length_ns);
    this.show(steps.some(({step}) => step === wanted) ? wanted : byLength[byLength.length >> 1].step, false);
  }
}

/** Goes to a place of the page, also when it was the last one gone to. */
function goTo(place) {
  if (location.hash === `#${place}`)
    dispatchEvent(new HashChangeEvent("hashchange"));
  else
    location.hash = place;
}

/** The panel, or null if the page holds no step; opens what the address names: "#step-12". */
function makeStepPanel(timelines) {
  if (!timelines?.steps.length) return null;
  const panel = new StepPanel(timelines);
  const follow = () => {
    const [, number] = /^#step-(\d+)$/.exec(location.hash) ?? [];
    if (number !== undefined) panel.show(Number(number), true);
    return number !== undefined;
  };
  addEventListener("hashchange", follow);
  panel.open = () => follow() || panel.showFirst();
  return panel;
}
