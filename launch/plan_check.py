#!/usr/bin/env python3
"""Holds `ferry plan` against `ferry bench` on this machine: predicted, measured, error.

    launch/plan_check.py [--ferry PATH] [--rounds N] [--workers 0,1,2] [MODEL[:QUANTIZE]...]        default: demo

For 0, 1 and 2 workers a bench of a prompt and of 1, 16 and 64 sequences is held against what a plan says, 12 configurations a
model. Both run on the same routing, that of a capture. The plan's costs are measured anew (`ferry plan --measure`) beside each bench,
in turn, --rounds times, and the fastest of each side counts: others on the machine only ever take time away. What an exchange
between two ranks takes comes from a bench with one worker, whose rows are marked. The last line is the median of the errors.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCHES = (1, 16, 64)
PROMPT, DECODE, REPETITIONS = 512, 48, 5
CONTEXT = 32 + DECODE // 2  # tokens behind a sequence of the bench, on average


def output_of(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


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
        """Two ranks of this host: from a small exchange its time, from a large one its bytes per second."""
        run = self.bench(1, [1], more=["--routing", routing])
        small, large = run["decode"][0]["transport_per_layer"], run["prefill"][0]["transport_per_layer"]
        link_s = small["transport_us"] * 1e-6
        rate = (large["bytes_out"] + large["bytes_in"]) / max(1e-6, large["transport_us"] * 1e-6 - link_s)
        return {"link_s": link_s, "message_s": link_s, "link_bytes_per_s": rate}

    def plan(self, workers, routing, exchange):
        """{("prefill" or "decode", size): tokens/s} as this moment's costs have it."""
        hosts = self.folder / "hosts.json"
        output_of([self.ferry, "plan", *self.options, "--measure", "--save", hosts, "--json"])
        machines = json.loads(hosts.read_text())
        machines["hosts"][0].update(exchange)
        hosts.write_text(json.dumps(machines))
        command = [self.ferry, "plan", *self.options, "--hosts", hosts, "--trace", routing, "--workers", workers]
        command += ["--batch", ",".join(map(str, BATCHES)), "--context", CONTEXT, "--prompt", PROMPT, "--json"]
        rows = json.loads(output_of(command))["configurations"]
        rates = {("decode", row["batch"]): row["decode_tokens_per_s"] for row in rows}
        return {**rates, ("prefill", PROMPT): rows[0]["prefill_tokens_per_s"]}


def best_rates(rounds):
    return {key: max(rates[key] for rates in rounds) for key in rounds[0]}


def measured_rates(run):
    rates = {("decode", row["sequences"]): row["tokens_per_s"]["max"] for row in run["decode"]}
    return {**rates, ("prefill", PROMPT): run["prefill"][0]["tokens_per_s"]["max"]}


def check(model, all_workers, num_rounds):
    routing, errors = model.capture(), []
    exchange = min((model.exchange(routing) for _ in range(num_rounds)), key=lambda e: e["link_s"]) if any(all_workers) else {}
    for workers in all_workers:
        plans, runs = [], []
        for _ in range(num_rounds):
            plans.append(model.plan(workers, routing, exchange))
            runs.append(measured_rates(model.bench(workers, BATCHES, more=["--routing", routing])))
        predicted, measured = best_rates(plans), best_rates(runs)
        for key, rate in measured.items():
            error = predicted[key] / rate - 1
            errors.append(abs(error))
            note = "  fitted to" if workers == 1 and key in (("decode", 1), ("prefill", PROMPT)) else ""
            name = f"{key[0]} {key[1]}"
            print(f"{model.name:20} {name:12} {workers:7} {predicted[key]:10.1f} {rate:10.1f} {100 * error:+8.1f} %{note}", flush=True)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=ROOT / "build/release/launch/ferry")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("models", nargs="*", default=["demo"])
    options = parser.parse_args()
    workers = [int(number) for number in options.workers.split(",")]
    print(f"{'model':20} {'':12} workers  predicted   measured      error")
    errors = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            errors += check(Model(options.ferry, name, pathlib.Path(folder)), workers, options.rounds)
    print(f"{len(errors)} configurations: median error {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %")


if __name__ == "__main__":
    main()
