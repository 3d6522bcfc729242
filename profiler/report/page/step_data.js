// One step as columns of numbers: what every thread, device and transfer lane of every rank did in its window. The order of the
// packed columns is that of profiler/report/page_data/step_columns.h.

const ARROW_KINDS = ["dispatch", "combine", "message"];

/** Depth of each slice of a lane in what it is nested in, and its time without what is nested in it. */
function nestSlices(first, last, begin, duration, depth, own) {
  const open = [];
  for (let i = first; i < last; ++i) {
    while (open.length && begin[open.at(-1)] + duration[open.at(-1)] <= begin[i]) open.pop();
    if (open.length) own[open.at(-1)] -= duration[i];
    depth[i] = open.length;
    open.push(i);
  }
}

/**
 * The critical path: [{kind, rank, peer (-1: none), slice (-1: none), begin, end}], end to end from the step's begin on.
 * `beginOf` and `endOf` are those of slices.
 */
function readPath(reader, kinds, beginOf, endOf) {
  const count = reader.next();
  const [kind, rank, peer, moves, ends] = Array.from({length: 5}, () => reader.column(count));
  let place = 0, end = 0;
  const slices = Array.from(moves, (move) => (place += move % 2 ? -(move + 1) / 2 : move / 2) - 1);
  return slices.map((slice, i) => {
    const begin = end;
    end = ends[i] === 0 ? endOf(slice) : ends[i] === 1 ? beginOf(slices[i + 1]) : begin + ends[i] - 2;
    return {kind: kinds[kind[i]], rank: rank[i], peer: peer[i] - 1, slice, begin, end};
  });
}

class StepData {
  /** `facts`: the step's entry in the page's data; `bytes`: its inflated columns. Times are ns since the step's begin. */
  constructor(facts, bytes, {zones, lanes, path_kinds: pathKinds}) {
    this.facts = facts;
    this.zones = zones;
    const reader = new VarintReader(bytes), early = reader.next();
    let count = 0;
    this.lanes = Array.from({length: reader.next()}, () => {
      const [rank, kind, name] = lanes[reader.next()], first = count;
      count += reader.next();
      return {rank, kind, name, first, last: count};
    });
    [this.zone, this.layer, this.microBatch, this.a, this.b] = Array.from({length: 5}, () => reader.column(count));
    this.layer = this.layer.map((layer) => layer - 1);
    this.begin = reader.column(count);
    for (const {first, last} of this.lanes) {
      for (let i = first; i < last; ++i) this.begin[i] += i === first ? -early : this.begin[i - 1];
    }
    this.duration = reader.column(count);
    this.flags = reader.column(count);
    this.arrows = ARROW_KINDS.flatMap((kind) => Array.from({length: reader.next()}, () => ({
                                                                                      kind,
                                                                                      from: reader.next(),
                                                                                      to: reader.next(),
                                                                                    })));
    this.path = readPath(reader, pathKinds, (i) => this.begin[i], (i) => this.end(i));
    this.depth = new Uint8Array(count);
    this.own = this.duration.slice();
    this.laneOf = new Uint32Array(count);
    this.lanes.forEach((lane, l) => {
      nestSlices(lane.first, lane.last, this.begin, this.duration, this.depth, this.own);
      lane.depth = this.depth.subarray(lane.first, lane.last).reduce((most, depth) => Math.max(most, depth), 0) + 1;
      this.laneOf.fill(l, lane.first, lane.last);
    });
  }

  get size() { return this.zone.length; }
  get length() { return this.facts.length_ns; }
  end(i) { return this.begin[i] + this.duration[i]; }
  name(i) { return this.zones[this.zone[i]][0]; }
  /** "compute", "wait", …; a thread that hands an operator over to a device is the host at work. */
  kind(i) { return this.flags[i] & 1 ? "host" : this.zones[this.zone[i]][1]; }
  part(i) { return this.zones[this.zone[i]][2]; }
  arrowsOf(i) { return this.arrows.filter(({from, to}) => from === i || to === i); }
  /** The lane on which the coordinator's steps run, else the first. */
  get stepLane() { return Math.max(this.lanes.findIndex(({first, last}) => this.zone.subarray(first, last).includes(0)), 0); }

  /** How long a slice is on the critical path, ns. */
  onPath(i) { return this.path.reduce((sum, {slice, begin, end}) => sum + (slice === i ? end - begin : 0), 0); }

  /** What a slice is, in words. */
  tell(i) {
    const [name, , part, aName, bName] = this.zones[this.zone[i]], lane = this.lanes[this.laneOf[i]];
    const argument = (label, value) => label === "bytes" ? byteCount(value) :
        label === "peer"                                 ? `peer: rank ${value}` :
                                                           `${label} ${groupDigits(value)}`;
    return [
      name, `rank ${lane.rank}, ${lane.name}`, this.layer[i] >= 0 ? `layer ${this.layer[i]}` : null,
      part && part !== "other" ? part.replaceAll("_", " ") : null, `took ${duration(this.duration[i] / 1e3)}`,
      this.own[i] < this.duration[i] ? `own time ${duration(this.own[i] / 1e3)}` : null,
      `${percent(this.duration[i] / this.length)} of the step`,
      this.onPath(i) > 0 ? `${duration(this.onPath(i) / 1e3)} of it on the critical path` : null,
      `from ${duration(this.begin[i] / 1e3)} on`, aName && this.zone[i] !== 0 ? argument(aName, this.a[i]) : null,
      bName && this.zone[i] !== 0 ? argument(bName, this.b[i]) : null,
      this.microBatch[i] > 0 ? `micro-batch ${this.microBatch[i]}` : null,
      this.flags[i] & 1     ? "handed over to the device" :
          this.flags[i] & 2 ? "the rest of the operator before it" :
                              null
    ].filter(Boolean);
  }
}

/** Promise of the decoded step. */
async function readStep(facts, timelines) {
  return new StepData(facts, await inflateBytes(bytesOfBase64(facts.data)), timelines);
}
