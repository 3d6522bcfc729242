// The slices of one lane in the order of time, as a list beside the timeline.

const LIST_ROWS = 240;  // around the chosen one; more are not worth their elements

class SliceList {
  constructor(step, onChoose) {
    Object.assign(this, {step, onChoose, lane: step.stepLane, selected: -1, range: [0, 0]});
    this.picker =
        h("select", {"aria-label": "Lane of the list", onchange: () => this.showLane(Number(this.picker.value))},
          step.lanes.map((lane, l) => h("option", {value: String(l)}, `rank ${lane.rank}, ${lane.name}`)));
    this.list = h("ol", {class: "slices", role: "listbox", tabindex: "0"});
    this.list.addEventListener("keydown", (event) => {
      const by = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity}[event.key];
      if (by === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const {first, last} = this.step.lanes[this.lane];
      this.onChoose(this.selected < 0 ? first : clamp(this.selected + by, first, last - 1));
    });
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("[data-slice]");
      if (item) this.onChoose(Number(item.dataset.slice));
    });
    this.element = h("div", {class: "slice-list"}, this.picker, this.list);
    this.showLane(this.lane);
  }

  showLane(lane) {
    this.lane = lane;
    this.picker.value = String(lane);
    const {rank, name, first, last} = this.step.lanes[lane];
    this.list.setAttribute("aria-label", `Slices of rank ${rank}, ${name}, in the order of time`);
    this.longest = 0;
    for (let i = first; i < last; ++i) {
      if (this.step.kind(i) !== "step")
        this.longest = Math.max(this.longest, Math.min(this.step.duration[i], this.step.length));
    }
    this.selected = -1;
    this.list.removeAttribute("aria-activedescendant");
    this.fill(first);
  }

  fill(around) {
    const {first, last} = this.step.lanes[this.lane],
                  from = Math.max(first, Math.min(around - LIST_ROWS / 2, last - LIST_ROWS));
    const to = Math.min(last, from + LIST_ROWS);
    this.range = [from, to];
    this.list.replaceChildren(...Array.from({length: to - from}, (_, k) => this.makeItem(from + k, from + k - first)));
    if (from > first) this.list.prepend(this.makeRest(from - first, "before"));
    if (to < last) this.list.append(this.makeRest(last - to, "behind"));
  }

  makeRest(count, where) { return h("li", {class: "rest", role: "presentation"}, `${groupDigits(count)} more ${where} these`); }

  makeItem(i, place) {
    const {step} = this, share = this.longest ? Math.min(step.duration[i] / this.longest, 1) : 0;
    return h(
        "li", {
          role: "option",
          id: `slice-${i}`,
          "data-slice": String(i),
          "aria-selected": "false",
          style: `--share:${(100 * share).toFixed(1)}%;--depth:${step.depth[i]}`,
        },
        h("span", {class: "slice-swatch", "aria-hidden": "true", style: `background:var(${sliceSwatch(step, i)})`}),
        h("span", {class: "slice-name"}, step.name(i),
          step.layer[i] >= 0 ? h("span", {class: "slice-layer"}, ` layer ${step.layer[i]}`) : null),
        h("data", {class: "slice-time", value: String(step.duration[i]), title: `slice ${place + 1}: ${step.duration[i]} ns`},
          duration(step.duration[i] / 1e3)));
  }

  /** Shows the slice that was chosen here or elsewhere. */
  select(i) {
    this.list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
    if (i < 0) {
      this.selected = -1;
      return;
    }
    if (this.step.laneOf[i] !== this.lane) this.showLane(this.step.laneOf[i]);
    this.selected = i;
    if (i < this.range[0] || i >= this.range[1]) this.fill(i);
    const item = this.list.querySelector(`[data-slice="${i}"]`);
    item.setAttribute("aria-selected", "true");
    this.list.setAttribute("aria-activedescendant", item.id);
    const top = item.offsetTop;  // scrolls the list, not the page
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    if (top + item.offsetHeight > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = top + item.offsetHeight - this.list.clientHeight;
  }
}
