#!/usr/bin/env python3
"""Holds `ferry plan` against `ferry bench` on this machine: predicted, measured, error.

    launch/plan_check.py [--ferry PATH] [--workers 0,1,2] [MODEL[:QUANTIZE]...]        default: demo

For 0, 1 and 2 workers a bench of a prompt and of 1, 16 and 64 sequences is held against what a plan says, 12 configurations a
model. Both run on the same routing, that of a capture, and the plan's costs are measured anew (`ferry plan --measure`) beside each
bench. A machine that others share changes its speed: each run stands between two runs of a fixed loop and counts by their speed; one
between unequal ones is done again. What an exchange between two ranks takes comes from a bench with one worker, whose rows are
marked. The last line is the median of the errors.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCHES = (1, 16, 64)
PROMPT, DECODE, REPETITIONS = 512, 48, 3
TRIES, SAME_SPEED = 2, 0.08
CONTEXT = 32 + DECODE // 2  # tokens behind a sequence of the bench, on average


def output_of(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def speed():
    """Runs of a fixed loop a second, the middle of some."""
    rates = []
    for _ in range(9):
        start = time.perf_counter()
        sum(range(400_000))
        rates.append(1 / (time.perf_counter() - start))
    return statistics.median(rates)


def at_one_speed(run):
    """What `run` returns, and how fast the machine was meanwhile; of several tries the one whose speed moved least."""
    best = None
    for _ in range(TRIES):
        before, answer, after = speed(), run(), speed()
        moved = abs(after / before - 1)
        if best is None or moved < best[0]:
            best = (moved, answer, (before + after) / 2)
        if moved < SAME_SPEED:
            break
    return best[1:]


class Model:
    def __init__(self, ferry, name, folder):
        self.ferry = ferry
        path, _, quantize = name.partition(":")
        self.name = name
        self.options = ["--model", path, *(["--quantize", quantize] if quantize else [])]
        self.folder = folder

    def bench(self, workers, batches, prompt=PROMPT, more=()):
        launcher = [] if workers == 0 else [ROOT / "launch/mpirun.sh", "-np", workers + 1]
        command = [*launcher, self.ferry, "bench", *self.options, "--memory", "512MiB", "-p", prompt, "-n", DECODE, "-r", REPETITIONS]
        return json.loads(output_of([*command, "-b", ",".join(map(str, batches)), "--json", *more]))

    def capture(self):
        """Routing of prompts and of 64 sequences: what the router makes of the bench's own tokens."""
        capture = self.folder / "capture"
        self.bench(0, [64], more=["--trace", capture, "--trace-routing"])
        return capture

    def exchange(self, routing):
        """Two ranks of this host: from the exchanges of 1 and of 64 sequences."""
        run, pace = at_one_speed(lambda: self.bench(1, [1, 64], more=["--routing", routing]))
        small, large = (row["transport_per_layer"] for row in run["decode"])
        num_bytes = [row["bytes_out"] + row["bytes_in"] for row in (small, large)]
        rate = (num_bytes[1] - num_bytes[0]) / max(1e-6, (large["transport_us"] - small["transport_us"]) * 1e-6)
        link_s = max(1e-6, small["transport_us"] * 1e-6 - num_bytes[0] / rate)
        return {"link_s": link_s, "message_s": link_s, "link_bytes_per_s": rate}, pace

    def plan(self, workers, routing, exchange):
        """{("prefill" or "decode", size): tokens/s} as this moment's costs have it, and how fast the machine was."""
        hosts = self.folder / "hosts.json"
        command = [self.ferry, "plan", *self.options, "--measure", "--save", hosts, "--json"]
        _, pace = at_one_speed(lambda: output_of(command))
        machines = json.loads(hosts.read_text())
        link, link_pace = exchange
        slower = link_pace / pace
        machines["hosts"][0].update({key: value / slower if key == "link_bytes_per_s" else value * slower for key, value in link.items()})
        hosts.write_text(json.dumps(machines))
        command = [self.ferry, "plan", *self.options, "--hosts", hosts, "--trace", routing, "--workers", workers]
        command += ["--batch", ",".join(map(str, BATCHES)), "--context", CONTEXT, "--prompt", PROMPT, "--json"]
        rows = json.loads(output_of(command))["configurations"]
        rates = {("decode", row["batch"]): row["decode_tokens_per_s"] for row in rows}
        return {**rates, ("prefill", PROMPT): rows[0]["prefill_tokens_per_s"]}, pace


def measured_rates(run):
    rates = {("decode", row["sequences"]): row["tokens_per_s"]["median"] for row in run["decode"]}
    return {**rates, ("prefill", PROMPT): run["prefill"][0]["tokens_per_s"]["median"]}


def check(model, all_workers):
    routing, errors = model.capture(), []
    exchange = model.exchange(routing) if any(all_workers) else ({}, 1)
    for workers in all_workers:
        predicted, plan_pace = model.plan(workers, routing, exchange)
        run, pace = at_one_speed(lambda: model.bench(workers, BATCHES, more=["--routing", routing]))
        for key, rate in measured_rates(run).items():
            guess = predicted[key] * pace / plan_pace
            errors.append(abs(guess / rate - 1))
            note = "  exchange fitted to" if workers == 1 and key in (("decode", 1), ("decode", 64)) else ""
            name = f"{key[0]} {key[1]}"
            print(f"{model.name:20} {name:12} {workers:7} {guess:10.1f} {rate:10.1f} {100 * (guess / rate - 1):+8.1f} %{note}", flush=True)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=ROOT / "build/release/launch/ferry")
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("models", nargs="*", default=["demo"])
    options = parser.parse_args()
    workers = [int(number) for number in options.workers.split(",")]
    print(f"{'model':20} {'':12} workers  predicted   measured      error")
    errors = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            errors += check(Model(options.ferry, name, pathlib.Path(folder)), workers)
    print(f"{len(errors)} configurations: median error {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %")


if __name__ == "__main__":
    main()
