// The longest stretches in which a rank neither computed nor had a message in flight: their causes by rank, and the longest.

const MAX_GAPS = 6;

class Gaps {
  constructor(table, at) {
    Object.assign(this, {table, at, unit: microseconds(table.columns[at.length])});
    this.causes = [...this.sumByCause(table.rows)].sort(([, a], [, b]) => b - a).map(([cause]) => cause);
    this.parts = this.causes.map((cause, i) => ({label: cause, swatch: kindSwatch(i)}));
  }

  causeOf(row) { return this.at.cause >= 0 ? String(row[this.at.cause] ?? "unknown") : "free"; }

  lengthOf(row) { return (row[this.at.length] ?? 0) * this.unit; }

  sumByCause(rows) {
    const sums = new Map();
    for (const row of rows) sums.set(this.causeOf(row), (sums.get(this.causeOf(row)) ?? 0) + this.lengthOf(row));
    return sums;
  }

  drawCauses() {
    const rows = [...groupRows(this.table.rows, this.at.rank)].map(([rank, ofRank]) => {
      const sums = this.sumByCause(ofRank), values = this.causes.map((cause) => sums.get(cause) ?? 0);
      const told = [...sums].sort(([, a], [, b]) => b - a).map(([cause, sum]) => `${cause} ${duration(sum)}`);
      return {
        name: `rank ${rank}`,
        note: `${ofRank.length} gaps`,
        values,
        total: duration(values.reduce((a, b) => a + b, 0)),
        tell: [`Rank ${rank}`, ...told],
      };
    });
    return makeBars({label: "The longest gaps of each rank by cause", parts: this.parts, rows, legend: true});
  }

  drawLongest() {
    const {table, at} = this;
    const name = (row, column) => (column >= 0 && row[column]) || "\u2026";
    const rows = [...table.rows]
                     .sort((a, b) => b[at.length] - a[at.length])
                     .slice(0, MAX_GAPS)
                     .map((row) => ({
                            name: `rank ${row[at.rank]}`,
                            note: `${name(row, at.before)} \u2192\u00a0${name(row, at.after)}`,
                            values: [this.lengthOf(row)],
                            total: duration(this.lengthOf(row)),
                            swatch: this.parts[this.causes.indexOf(this.causeOf(row))].swatch,
                            tell: [
                              `Rank ${row[at.rank]}`, duration(this.lengthOf(row)), this.causeOf(row),
                              `between ${name(row, at.before)} and ${name(row, at.after)}`,
                              at.begin >= 0 && row[at.begin] !== null ?
                                  `at ${duration(row[at.begin] * microseconds(table.columns[at.begin]))}` :
                                  null,
                              at.step >= 0 && row[at.step] !== null ? `step ${row[at.step]}` : null
                            ].filter(Boolean),
                          }));
    return makeBars({label: "The longest gaps of all", parts: this.parts, rows, legend: false});
  }
}

function drawGaps(table) {
  const at = table.pick(
      {
        rank: [/^rank/],
        length: [/^(length|free|gap|duration)_(us|ms|ns)$/, /^(length|free|gap|duration)/],
        cause: [/^cause/],
        before: [/^(previous|before|prev)/],
        after: [/^(next|after)/],
        begin: [/^(begin|start|at)/],
        step: [/^step/],
      },
      ["rank", "length"]);
  if (!at || table.rows.length === 0) return null;
  const gaps = new Gaps(table, at);
  return h("div", {}, h("h3", {}, "By cause"), gaps.drawCauses(), h("h3", {class: "later"}, "The longest"), gaps.drawLongest());
}
