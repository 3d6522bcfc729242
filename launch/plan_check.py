#!/usr/bin/env python3
"""Holds `ferry plan` against `ferry bench` on this machine: predicted, measured, error.

    launch/plan_check.py [--ferry PATH] [--workers 0,1,2] [--rounds N] [--lock FILE] [MODEL[:QUANTIZE]...]        default: demo

For 0, 1 and 2 workers a bench of a prompt and of 1, 16 and 64 sequences is held against what a plan says, 12 configurations a
model. Both run on the same routing, that of a capture. A plan's costs are measured anew (`ferry plan --measure`) in each round, and
know nothing of the benches. Costs are of an undisturbed machine, since the fastest of several passes counts; so the fastest of a bench's
repetitions is what they are held against. --lock: each run holds this file's lock, as flock(1) does. The last lines are, for each
round and for the medians over rounds, the median of the errors and the largest one.
"""

import argparse
import contextlib
import fcntl
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCHES = (1, 16, 64)
PROMPT, DECODE, REPETITIONS = 512, 48, 9
CONTEXT = 32 + DECODE // 2  # tokens behind a sequence of the bench, on average


@contextlib.contextmanager
def locked(path):
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def output_of(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


class Model:
    def __init__(self, options, name, folder):
        self.ferry, self.lock, self.memory = options.ferry, options.lock, options.memory
        path, _, quantize = name.partition(":")
        self.name = name
        self.options = ["--model", path, *(["--quantize", quantize] if quantize else [])]
        self.folder = folder

    def run(self, command):
        with locked(self.lock):
            return output_of(command)

    def bench(self, workers, batches, more=()):
        launcher = [] if workers == 0 else [ROOT / "launch/mpirun.sh", "-np", workers + 1]
        command = [*launcher, self.ferry, "bench", *self.options, "--memory", self.memory, "-p", PROMPT, "-n", DECODE, "-r", REPETITIONS]
        return json.loads(self.run([*command, "-b", ",".join(map(str, batches)), "--json", *more]))

    def capture(self):
        """Routing of prompts and of 64 sequences: what the router makes of the bench's own tokens."""
        capture = self.folder / "capture"
        self.bench(0, [64], more=["--trace", capture, "--trace-routing"])
        return capture

    def measure(self):
        hosts = self.folder / "hosts.json"
        self.run([self.ferry, "plan", *self.options, "--measure", "--save", hosts, "--json"])
        return hosts

    def plan(self, hosts, workers, routing):
        """{(workers, "prefill" or "decode", size): tokens/s}."""
        command = [self.ferry, "plan", *self.options, "--hosts", hosts, "--trace", routing, "--workers", ",".join(map(str, workers))]
        command += ["--batch", ",".join(map(str, BATCHES)), "--context", CONTEXT, "--prompt", PROMPT, "--json"]
        rates = {}
        for row in json.loads(output_of(command))["configurations"]:
            rates[row["workers"], "decode", row["batch"]] = row["decode_tokens_per_s"]
            rates[row["workers"], "prefill", PROMPT] = row["prefill_tokens_per_s"]
        return rates


def measured_rates(workers, run):
    rates = {(workers, "prefill", PROMPT): run["prefill"][0]["tokens_per_s"]["max"]}
    for row in run["decode"]:
        rates[workers, "decode", row["sequences"]] = row["tokens_per_s"]["max"]
    return rates


def check_round(model, workers, routing):
    """{configuration: error}, printed as they come."""
    predicted, errors = model.plan(model.measure(), workers, routing), {}
    for number in workers:
        for key, rate in measured_rates(number, model.bench(number, BATCHES, more=["--routing", routing])).items():
            errors[key] = predicted[key] / rate - 1
            print(f"{model.name:20} {key[1] + ' ' + str(key[2]):12} {number:7} {predicted[key]:10.1f} {rate:10.1f} {100 * errors[key]:+8.1f} %", flush=True)
    return errors


def summary(name, errors):
    sizes = [abs(error) for error in errors]
    print(f"{name}: {len(sizes)} configurations, median error {100 * statistics.median(sizes):.1f} %, largest {100 * max(sizes):.1f} %")


def check(model, workers, rounds):
    routing = model.capture()
    all_rounds = []
    for number in range(rounds):
        all_rounds.append(check_round(model, workers, routing))
        summary(f"{model.name}, round {number + 1}", all_rounds[-1].values())
        with_workers = [error for key, error in all_rounds[-1].items() if key[0] > 0]
        if with_workers:
            summary(f"{model.name}, round {number + 1}, with workers", with_workers)
    medians = {key: statistics.median(errors[key] for errors in all_rounds) for key in all_rounds[0]}
    summary(f"{model.name}, medians of {rounds} rounds", medians.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=ROOT / "build/release/launch/ferry")
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", default="512MiB", help="of the bench's caches")
    parser.add_argument("--lock")
    parser.add_argument("models", nargs="*", default=["demo"])
    options = parser.parse_args()
    workers = [int(number) for number in options.workers.split(",")]
    print(f"{'model':20} {'':12} workers  predicted   measured      error")
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            check(Model(options, name, pathlib.Path(folder)), workers, options.rounds)


if __name__ == "__main__":
    main()
