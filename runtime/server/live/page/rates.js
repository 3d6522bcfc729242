// What two looks at a server say of the time between them.

const RATE_SECONDS = 5;
const LATENCY_SECONDS = 60;
const KEPT_SECONDS = 120;

class History {
  looks = [];

  add(status) {
    const last = this.looks.at(-1);
    if (last && status.server.uptime_s < last.server.uptime_s) this.looks = [];  // another server
    this.looks.push(status);
    while (this.now.server.uptime_s - this.looks[0].server.uptime_s > KEPT_SECONDS) this.looks.shift();
  }
  get now() { return this.looks.at(-1); }

  /** The newest look that is so much older than now, else the oldest. */
  before(age) {
    const limit = this.now.server.uptime_s - age;
    return this.looks.findLast((look) => look.server.uptime_s <= limit) ?? this.looks[0];
  }
  /** By how much what `read` tells grew, in units of what `by` grew by (seconds); null if that did not. */
  growth(read, by = (look) => look.server.uptime_s, age = RATE_SECONDS) {
    return ratio(read(this.now) - read(this.before(age)), by(this.now) - by(this.before(age)));
  }
  /** Its growth a second from each look to the next. */
  line(read) {
    return this.looks.slice(1).map((look, i) =>
      ratio(read(look) - read(this.looks[i]), look.server.uptime_s - this.looks[i].server.uptime_s) ?? 0);
  }
  /** Of what fell into the distribution within the last minute; since the server's start if nothing did. */
  distribution(read) {
    const now = read(this.now), then = read(this.before(LATENCY_SECONDS));
    const counts = now.counts.map((count, i) => count - (then.counts[i] ?? 0));
    const isRecent = counts.some((count) => count > 0);
    return isRecent ? { bounds: now.bounds, counts, sum: now.sum - then.sum, isRecent } : { ...now, isRecent };
  }
}

const ratio = (part, whole) => (whole > 0 ? part / whole : null);
const total = (numbers) => Object.values(numbers).reduce((sum, number) => sum + number, 0);

/**
 * Below which a share of the values lies. Inside of a bucket they are taken for evenly spread, as Prometheus' histogram_quantile does.
 * Of those in the first one no more is known than its bound, which is `isBound`.
 */
function quantile({ bounds, counts }, share) {
  const wanted = total(counts) * share;
  if (!wanted) return null;
  let before = 0, bucket = 0;
  while (bucket < bounds.length && before + counts[bucket] < wanted) before += counts[bucket++];
  if (bucket === bounds.length) return { value: bounds.at(-1), isBound: false };
  if (bucket === 0) return { value: bounds[0], isBound: true };
  const low = bounds[bucket - 1];
  return { value: low + (bounds[bucket] - low) * ((wanted - before) / counts[bucket]), isBound: false };
}
