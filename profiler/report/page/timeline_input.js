// How a timeline is moved: wheel, drag, pinch and keys. The plain wheel scrolls the page until the timeline has the focus, so
// that nobody is caught in it.

const WHEEL_ZOOM = 1.0018;  // a pixel of the wheel
const CLICK_SLACK = 4;      // pixels that a click may wander

function followTimelineInput(chart) {
  const {canvas} = chart;
  canvas.addEventListener("wheel", (event) => turnWheel(chart, event), {passive: false});
  followPointers(chart);
  canvas.addEventListener("keydown", (event) => {
    const act = TIMELINE_KEYS[event.key];
    if (!act || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    act(chart);
  });
}

function turnWheel(chart, event) {
  const isAsked = event.ctrlKey || document.activeElement === chart.canvas;
  if (!isAsked && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    chart.pan((event.deltaX || event.deltaY) / chart.width);
  else
    chart.zoom(WHEEL_ZOOM ** (event.ctrlKey ? 5 * event.deltaY : event.deltaY), chart.nsAt(event.offsetX));
}

/** One pointer drags, two pinch; a press that stays where it was chooses. */
function followPointers(chart) {
  const {canvas} = chart, pressed = new Map();
  let wandered = 0;
  const spread = () => {
    const [a, b] = [...pressed.values()];
    return {distance: Math.max(Math.hypot(a[0] - b[0], a[1] - b[1]), 8), middle: (a[0] + b[0]) / 2};
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus({preventScroll: true});
    canvas.setPointerCapture(event.pointerId);
    pressed.set(event.pointerId, [event.offsetX, event.offsetY]);
    wandered = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pressed.get(event.pointerId);
    if (!before) return void chart.hover(chart.sliceAt(event.offsetX, event.offsetY));
    const apart = pressed.size === 2 ? spread() : null;
    pressed.set(event.pointerId, [event.offsetX, event.offsetY]);
    wandered += Math.abs(event.offsetX - before[0]) + Math.abs(event.offsetY - before[1]);
    if (apart) {
      const now = spread();
      chart.zoom(apart.distance / now.distance, chart.nsAt(now.middle));
    } else if (wandered > CLICK_SLACK) {
      chart.pan((before[0] - event.offsetX) / (chart.width - chart.left));
      if (event.pointerType === "mouse") chart.box.scrollTop += before[1] - event.offsetY;
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (pressed.delete(event.pointerId) && pressed.size === 0 && wandered <= CLICK_SLACK)
      chart.select(chart.sliceAt(event.offsetX, event.offsetY), false);
  });
  canvas.addEventListener("pointercancel", (event) => pressed.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => chart.hover(-1));
  canvas.addEventListener("dblclick", () => chart.selected >= 0 && chart.zoomTo(chart.selected));
}

/** Chooses the slice `by` places on in the chosen one's lane. */
function stepSlice(chart, by) {
  const {step, selected} = chart;
  if (selected < 0) return chart.select(nearestSlice(step, step.stepLane, Math.max(chart.from, 0)));
  const {first, last} = step.lanes[step.laneOf[selected]];
  chart.select(clamp(selected + by, first, last - 1));
}

/** Chooses what the lane `by` places below does at the same time. */
function changeLane(chart, by) {
  const {step, selected, layout} = chart;
  if (selected < 0) return stepSlice(chart, 0);
  const row = layout.lanes.findIndex(({lane}) => lane === step.laneOf[selected]);
  const {lane} = layout.lanes[clamp(row + by, 0, layout.lanes.length - 1)];
  chart.select(nearestSlice(step, lane, step.begin[selected]));
}

const TIMELINE_KEYS = {
  "+": (chart) => chart.zoom(1 / 1.5),
  "=": (chart) => chart.zoom(1 / 1.5),
  "-": (chart) => chart.zoom(1.5),
  "0": (chart) => chart.showAll(),
  ArrowLeft: (chart) => chart.pan(-0.15),
  ArrowRight: (chart) => chart.pan(0.15),
  ArrowUp: (chart) => changeLane(chart, -1),
  ArrowDown: (chart) => changeLane(chart, 1),
  n: (chart) => stepSlice(chart, 1),
  p: (chart) => stepSlice(chart, -1),
  Home: (chart) => stepSlice(chart, -Infinity),
  End: (chart) => stepSlice(chart, Infinity),
  Enter: (chart) => chart.selected >= 0 && chart.zoomTo(chart.selected),
  Escape: (chart) => chart.select(-1),
};
