#!/usr/bin/env python3
"""Holds `ferry plan` against `ferry bench` on this machine: predicted, measured, error.

    launch/plan_check.py [--ferry PATH] [MODEL[:QUANTIZE]...]        default: demo

Each model is measured (`ferry plan --measure`), one short bench with one worker says what an exchange between two ranks takes
here, and then 6 configurations of batches and workers are benched and predicted on the same routing: that of a capture of the
first bench. What was fitted to (the exchange) is marked. The last line is the median of the errors.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCHES, WORKERS = (1, 16, 64), (0, 1, 2)
PROMPT, DECODE, REPETITIONS = 512, 48, 3
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

    def measure(self):
        hosts = self.folder / "hosts.json"
        output_of([self.ferry, "plan", *self.options, "--measure", "--save", hosts, "--json"])
        return hosts

    def fit_exchange(self, hosts, routing):
        """Two ranks of this host: from a small exchange its time, from a large one its bytes per second."""
        run = self.bench(1, [1], more=["--routing", routing])
        small, large = run["decode"][0]["transport_per_layer"], run["prefill"][0]["transport_per_layer"]
        machines = json.loads(hosts.read_text())
        host = machines["hosts"][0]
        host["link_s"] = small["transport_us"] * 1e-6
        host["message_s"] = host["link_s"]
        host["link_bytes_per_s"] = (large["bytes_out"] + large["bytes_in"]) / max(1e-6, large["transport_us"] * 1e-6 - host["link_s"])
        hosts.write_text(json.dumps(machines))

    def plan(self, hosts, routing):
        command = [self.ferry, "plan", *self.options, "--hosts", hosts, "--trace", routing, "--workers", ",".join(map(str, WORKERS))]
        command += ["--batch", ",".join(map(str, BATCHES)), "--context", CONTEXT, "--prompt", PROMPT, "--json"]
        return {(row["workers"], row["batch"]): row for row in json.loads(output_of(command))["configurations"]}


def check(model):
    routing, hosts = model.capture(), model.measure()
    model.fit_exchange(hosts, routing)
    plan, errors = model.plan(hosts, routing), []

    def line(what, workers, predicted, measured, is_fitted):
        errors.append(abs(predicted / measured - 1))
        note = "  fitted here" if is_fitted else ""
        print(f"{model.name:24} {what:12} {workers:7} {predicted:10.1f} {measured:10.1f} {100 * (predicted / measured - 1):+8.1f} %{note}", flush=True)

    for workers in WORKERS:
        run = model.bench(workers, BATCHES, more=["--routing", routing])
        line(f"prefill {PROMPT}", workers, plan[workers, 1]["prefill_tokens_per_s"], run["prefill"][0]["tokens_per_s"]["median"], workers == 1)
        for row in run["decode"]:
            batch = row["sequences"]
            line(f"decode {batch}", workers, plan[workers, batch]["decode_tokens_per_s"], row["tokens_per_s"]["median"], workers == 1 and batch == 1)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=ROOT / "build/release/launch/ferry")
    parser.add_argument("models", nargs="*", default=["demo"])
    options = parser.parse_args()
    print(f"{'model':24} {'':12} workers  predicted   measured    error")
    errors = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            errors += check(Model(options.ferry, name, pathlib.Path(folder)))
    print(f"{len(errors)} configurations: median error {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %")


if __name__ == "__main__":
    main()
