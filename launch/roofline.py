#!/usr/bin/env python3
"""Makes a table and a roofline picture of what `ferry bench --json` printed.

    launch/roofline.py DIR      reads DIR/*.json, writes DIR/table.md and DIR/roofline.svg

A point is a phase: operations per byte that it must read against operations per second that it did. Roofs are those that bench
measured in the same run. Standard library only.
"""

import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 30, 60
COLOURS = {"bf16": "#2f6fb7", "w8a8": "#c2571a", "w4a8": "#2c8a57"}


def read_runs(folder):
    """One dict a file, in the order of widths, alone before with workers."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    order = list(COLOURS)
    return sorted(runs, key=lambda run: (order.index(run["weights"].split(":")[0]), run["expert_workers"]))


def rows_of(run):
    """(what, row) of every phase."""
    for row in run["prefill"]:
        yield f"prefill {row['prompt_tokens']}", row
    for row in run["decode"]:
        yield f"decode {row['sequences']}", row


def make_table(runs):
    """Markdown: a line a phase, a column a run; tokens/s with the range, and the share of the nearer roof."""
    names = [run["weights"] + (f", {run['expert_workers']} workers" if run["expert_workers"] else "") for run in runs]
    lines = ["| tokens/s (range), share of the nearer roof | " + " | ".join(names) + " |", "|---|" + "---|" * len(runs)]
    cells = [dict(rows_of(run)) for run in runs]
    for what in cells[0]:
        line = f"| {what} |"
        for run in cells:
            rate = run[what]["tokens_per_s"]
            line += f" {rate['median']:.0f} ({rate['min']:.0f}–{rate['max']:.0f}), {100 * run[what]['share_of_roof']:.0f} % |"
        lines.append(line)
    return "\n".join(lines) + "\n"


class Axes:
    """Logarithmic axes: operations per byte, operations per second."""

    def __init__(self, xs, ys):
        self.x0, self.x1 = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
        self.y0, self.y1 = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def x(self, value):
        return LEFT + (math.log10(value) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - (math.log10(value) - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)


def text(x, y, content, size=12, anchor="start", colour="#444"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{html.escape(content)}</text>'


def line(x1, y1, x2, y2, colour, extra=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {extra}/>'


def draw_grid(axes):
    out = []
    for power in range(axes.x0, axes.x1 + 1):
        x = axes.x(10**power)
        out += [line(x, TOP, x, HEIGHT - BOTTOM, "#e4e4e4"), text(x, HEIGHT - BOTTOM + 18, f"{10.0**power:g}", anchor="middle")]
    for power in range(axes.y0, axes.y1 + 1):
        y = axes.y(10**power)
        out += [line(LEFT, y, WIDTH - RIGHT, y, "#e4e4e4"), text(LEFT - 8, y + 4, f"{10.0**power / 1e9:g}", anchor="end")]
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, "operations per byte that must be read", 13, "middle"))
    out.append(f'<g transform="translate(22 {HEIGHT / 2}) rotate(-90)">{text(0, 0, "GFLOP/s (GOP/s)", 13, "middle")}</g>')
    return out


def draw_roof(axes, colour, bytes_per_s, flops_per_s):
    ridge = flops_per_s / bytes_per_s
    left, right = 10.0**axes.x0, 10.0**axes.x1
    dashed = 'stroke-width="1.5" stroke-dasharray="6 4"'
    out = [line(axes.x(max(left, 10.0**axes.y0 / bytes_per_s)), axes.y(max(10.0**axes.y0, left * bytes_per_s)), axes.x(min(ridge, right)),
                axes.y(min(flops_per_s, right * bytes_per_s)), colour, dashed)]
    if ridge < right:
        out.append(line(axes.x(ridge), axes.y(flops_per_s), axes.x(right), axes.y(flops_per_s), colour, dashed))
    return out


def draw(runs):
    runs = [run for run in runs if run["expert_workers"] == 0]
    points = [(run, what, row) for run in runs for what, row in rows_of(run)]
    intensity = {id(row): row["flops_per_token"] / row["bytes_per_token"] for _, _, row in points}
    rate = {id(row): row["tokens_per_s"]["median"] * row["flops_per_token"] for _, _, row in points}
    ridges = [row["flops_per_s"] / row["read_bytes_per_s"] for _, _, row in points]
    axes = Axes([*intensity.values(), *ridges, 1.0], [*rate.values(), *(row["flops_per_s"] for _, _, row in points)])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', *draw_grid(axes)]
    for place, run in enumerate(runs):
        name = run["weights"].split(":")[0]
        colour = COLOURS[name]
        rows = [row for _, row in rows_of(run)]
        out += draw_roof(axes, colour, max(r["read_bytes_per_s"] for r in rows), max(r["flops_per_s"] for r in rows))
        for what, row in rows_of(run):
            x, y = axes.x(intensity[id(row)]), axes.y(rate[id(row)])
            shape = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>' if what.startswith("decode")
                     else f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>')
            out += [shape, text(x + 8, y + 14, what.split()[1], 10, colour=colour)]
        out += [f'<circle cx="{WIDTH - RIGHT + 24}" cy="{TOP + 18 + 22 * place}" r="5" fill="{colour}"/>',
                text(WIDTH - RIGHT + 36, TOP + 22 + 22 * place, f"{run['weights']} ({run['multiply_unit']})")]
    legend = TOP + 22 + 22 * len(runs)
    out += [text(WIDTH - RIGHT + 18, legend + 10, "■ prefill, tokens"), text(WIDTH - RIGHT + 18, legend + 30, "● decode, sequences"),
            text(WIDTH - RIGHT + 18, legend + 50, "‒ ‒ measured roofs"), "</svg>"]
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    runs = read_runs(folder)
    if not runs:
        sys.exit(f"roofline: {folder} holds no .json of ferry bench")
    (folder / "table.md").write_text(make_table(runs))
    (folder / "roofline.svg").write_text(draw(runs))


if __name__ == "__main__":
    main()
