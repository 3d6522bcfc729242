#!/usr/bin/env python3
"""Holds `ferry plan` against `ferry bench` on this machine: predicted, measured, error.

    launch/plan_check.py [--ferry PATH] [--workers 0,1,2] [--batches 1,16,64] [--depths 0,8192] [--kv-cache-dtype int8]
                         [--rounds N] [--repetitions N] [--hosts FILE] [MODEL[:QUANTIZE]...]        default: demo

For 0, 1 and 2 workers a bench of a prompt and of 1, 16 and 64 sequences is held against what a plan says, 12 configurations a
model and depth, the tokens of context behind which all of it is. Both run on the same routing, that of a capture. A plan's costs are measured anew (`ferry plan --measure`) in each round, and
know nothing of the benches. Costs are of an undisturbed machine, since the fastest of several passes counts; so the fastest of a bench's
repetitions, which take about as long as a pass, is what they are held against. A machine that others share may change its speed between
a plan and its benches, for all configurations alike; the last table has the fastest of all rounds on either side. What the errors
are against the median of a bench's repetitions stands beside them.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROMPT, DECODE = 512, 16
CONTEXT = 32 + DECODE // 2  # tokens behind a sequence of the bench, on average


def output_of(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


class Model:
    def __init__(self, options, name, folder):
        self.ferry, self.memory, self.repetitions, self.hosts = options.ferry, options.memory, options.repetitions, options.hosts
        path, _, quantize = name.partition(":")
        self.name = name
        self.options = ["--model", path, *(["--quantize", quantize] if quantize else []), "--kv-cache-dtype", options.kv_cache_dtype]
        self.batches, self.depths = options.batches, options.depths
        self.folder = folder

    def bench(self, workers, batches, more=()):
        launcher = [] if workers == 0 else [ROOT / "launch/mpirun.sh", "-np", workers + 1]
        memory = ["--memory", self.memory] if self.memory else []
        command = [*launcher, self.ferry, "bench", *self.options, *memory, "-p", PROMPT, "-n", DECODE, "-r", self.repetitions]
        return json.loads(output_of([*command, "-b", ",".join(map(str, batches)), "--json", *more]))

    def capture(self):
        """Routing of prompts and of as many sequences as decode: what the router makes of the bench's own tokens."""
        capture = self.folder / "capture"
        self.bench(0, [max(self.batches)], more=["--trace", capture, "--trace-routing"])
        return capture

    def measure(self):
        if self.hosts:
            return self.hosts
        hosts = self.folder / "hosts.json"
        output_of([self.ferry, "plan", *self.options, "--measure", "--save", hosts, "--json"])
        return hosts

    def plan(self, hosts, workers, routing):
        """{(workers, "prefill" or "decode", size, depth): tokens/s}."""
        command = [self.ferry, "plan", *self.options, "--hosts", hosts, "--trace", routing, "--workers", ",".join(map(str, workers))]
        command += ["--batch", ",".join(map(str, self.batches)), "-d", ",".join(map(str, self.depths))]
        command += ["--context", CONTEXT, "--prompt", PROMPT, "--json"]
        rates = {}
        for row in json.loads(output_of(command))["configurations"]:
            rates[row["workers"], "decode", row["batch"], row["depth"]] = row["decode_tokens_per_s"]
            rates[row["workers"], "prefill", PROMPT, row["depth"]] = row["prefill_tokens_per_s"]
        return rates


def measured_rates(workers, run):
    """{configuration: (the fastest repetition, the median one)}."""
    rates = {(workers, "prefill", PROMPT, row["depth"]): row["tokens_per_s"] for row in run["prefill"]}
    for row in run["decode"]:
        rates[workers, "decode", row["sequences"], row["depth"]] = row["tokens_per_s"]
    return {key: (rate["max"], rate["median"]) for key, rate in rates.items()}


def check_round(model, workers, routing):
    """{configuration: (predicted, fastest, median)}."""
    predicted, results = model.plan(model.measure(), workers, routing), {}
    for number in workers:
        run = model.bench(number, model.batches, more=["--routing", routing, "-d", ",".join(map(str, model.depths))])
        results.update({key: (predicted[key], *rates) for key, rates in measured_rates(number, run).items()})
    return results


def error(predicted, measured):
    return 100 * (predicted / measured - 1)


def show(model, title, results):
    """The rates, their errors, and the median of those, of all and of those with workers."""
    for (workers, phase, size, depth), (predicted, fastest, median) in results.items():
        what = f"{phase} {size}" + (f" @ {depth}" if depth else "")
        rates = f"{predicted:10.1f} {fastest:10.1f} {median:10.1f}"
        print(f"{model.name:20} {what:20} {workers:7} {rates} {error(predicted, fastest):+8.1f} % {error(predicted, median):+8.1f} %")
    for name, least in (("all", 0), ("with workers", 1)):
        rows = [row for key, row in results.items() if key[0] >= least]
        if not rows:
            continue
        text = f"{title}, {name}: {len(rows)} configurations"
        for against, at in (("fastest", 1), ("median", 2)):
            sizes = [abs(error(row[0], row[at])) for row in rows]
            text += f"; against the {against}: median error {statistics.median(sizes):.1f} %, largest {max(sizes):.1f} %"
        print(text, flush=True)


def check(model, workers, rounds):
    routing = model.capture()
    all_rounds = []
    for number in range(rounds):
        all_rounds.append(check_round(model, workers, routing))
        show(model, f"round {number + 1}", all_rounds[-1])
    if rounds > 1:
        show(model, "the fastest of all", {key: tuple(map(max, zip(*(pairs[key] for pairs in all_rounds)))) for key in all_rounds[0]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=ROOT / "build/release/launch/ferry")
    parser.add_argument("--workers", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hosts", help="costs that were measured before, of one model: none is measured anew")
    parser.add_argument("--repetitions", type=int, default=15, help="of each measurement of a bench")
    parser.add_argument("--memory", help="of the bench's caches; default: as much as it needs")
    parser.add_argument("--batches", default="1,16,64", help="sequences that decode at once")
    parser.add_argument("--depths", default="0", help="tokens of context")
    parser.add_argument("--kv-cache-dtype", default="auto", help="as ferry bench and ferry plan take it")
    parser.add_argument("models", nargs="*", default=["demo"])
    options = parser.parse_args()
    workers, options.batches, options.depths = (
        [int(number) for number in text.split(",")] for text in (options.workers, options.batches, options.depths))
    print(f"{'model':20} {'':20} workers  predicted    fastest     median      error   of the median")
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            check(Model(options, name, pathlib.Path(folder)), workers, options.rounds)


if __name__ == "__main__":
    main()
