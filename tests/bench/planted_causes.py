#!/usr/bin/env python3
"""Plants causes of slowness in a running job and scores whether the findings of its profile name them.

    tests/bench/planted_causes.py --runs 10 --quiet 20 --json scores.json
    tests/bench/planted_causes.py --cause stop_worker,stop_coordinator --runs 2 --seconds 1

A job serves the demo checkpoint under a steady load (this program's own gRPC client; nothing but Python's standard library is needed).
For every run one cause acts while a profile is taken; quiet runs in between have none. A run is right if a finding has the cause's
class and rank and its size is within 20 % of the truth: for stops the time that the process was stopped within the profile, for the
others the time that the profile's steps took longer than steps of as many tokens in the same job's quiet runs (for loud_expert: than
with threads enough for the hot rank). A finding that names any other rank blames an innocent. The coordinator's waits are scored with
it: of the parts that the phase table divides them into, the cause's own must grow by the truth and the others by nothing, within the
same 20 %.

Causes: stop_worker, stop_coordinator (SIGSTOP for 30 of every 150 ms), nice (a worker at nice 19 beside busy loops on its cores), busy
(busy loops on a worker's cores), slow_link (tc htb, in a network namespace of its own; needs root), loud_expert (in every layer three
of a rank's experts whose router rows make most tokens choose them, among wide experts on many ranks: a loud expert is no more than one
of those that a token chooses, so it outweighs only a rank that has few). Every rank is pinned to cores of its own where there are enough.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from planted_job import PARTS, Job
from plants import Burners, Nothing, SlowLink, Stops, make_loud, make_wide

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHIN = 0.2
KINDS = {  # the finding that names the cause, and the part of the coordinator's waits that it makes longer
    "stop_worker": ("stopped", "not_running"),
    "stop_coordinator": ("stopped", None),
    "nice": ("no_core", "not_running"),
    "busy": ("no_core", "not_running"),
    "slow_link": ("slow_link", "wire"),
    "loud_expert": ("hot_expert", "experts"),
}
VICTIM = 2  # the worker that causes act on
WIDER, LOUD = 16, 3  # of loud_expert: how much wider experts are, how many in a layer are loud


class Quiet:
    """What steps take when nothing is planted: the quiet runs of one job and load."""

    def __init__(self):
        self._step_ms, self._part_shares = {}, {part: [] for part in PARTS}

    def add(self, report):
        for work, steps in report.steps_ms.items():
            self._step_ms.setdefault(work, []).append(statistics.fmean(steps))
        for part in PARTS:
            self._part_shares[part].append(report.parts_ms[part] / self._expected_ms(report))

    def _expected_ms(self, report):
        """Of the report's steps; of those with a number of tokens that no quiet run had, by the nearest that one had."""
        sum_ms = 0
        for (phase, tokens), steps in report.steps_ms.items():
            known = min(self._step_ms, key=lambda work: (work[0] != phase, abs(work[1] - tokens)))
            sum_ms += len(steps) * statistics.median(self._step_ms[known])
        return sum_ms

    def extra_ms(self, report):
        return report.total_ms() - self._expected_ms(report)

    def extra_parts_ms(self, report):
        expected_ms = self._expected_ms(report)
        return {part: report.parts_ms[part] - statistics.median(self._part_shares[part]) * expected_ms for part in PARTS}


class Scores:
    def __init__(self, options):
        self._options = options
        self.runs = []

    def folder(self, cause):
        """Where the next run's records are kept, if they are."""
        return self._options.keep / f"{len(self.runs):03}-{cause}" if self._options.keep else None

    def add(self, cause, report, rank=None, truth_ms=None, parts_ms=None):
        kind, part = KINDS.get(cause, (None, None))
        mine = [f for f in report.findings if f["rank"] == rank and f["kind"] == kind]
        run = {
            "cause": cause,
            "steps": report.num_steps(),
            "steps_ms": round(report.total_ms(), 3),
            "truth_ms": truth_ms and round(truth_ms, 3),
            "said_ms": round(mine[0]["saved_ms"], 3) if mine else 0,
            "named": bool(mine),
            "right_size": bool(mine) and abs(mine[0]["saved_ms"] - truth_ms) <= WITHIN * truth_ms,
            "parts_ms": parts_ms and {name: round(ms, 3) for name, ms in parts_ms.items()},
            "right_parts": bool(parts_ms)
            and all(abs(ms - (truth_ms if name == part else 0)) <= WITHIN * truth_ms for name, ms in parts_ms.items()),
            "innocents": [f"{f['kind']} {f['rank']}" for f in report.findings if rank is None or f["rank"] != rank],
            "findings": [f["text"] for f in report.findings],
        }
        self.runs.append(run)
        parts = " ".join(f"{name} {ms:+.1f}" for name, ms in (parts_ms or {}).items())
        print(
            f"{cause:17} {run['steps']:5} steps {run['steps_ms']:7.1f} ms  truth {truth_ms or 0:7.1f} ms  said {run['said_ms']:7.1f} ms  "
            f"{parts}  {run['innocents'] or ''}",
            flush=True,
        )
        self.write()

    def write(self):
        if self._options.json:
            self._options.json.write_text(json.dumps({"within": WITHIN, "seconds": self._options.seconds, "runs": self.runs}, indent=1) + "\n")

    def print(self):
        print(f"\n{'cause':17} {'runs':>4} {'named':>6} {'right size':>11} {'right parts':>12} {'innocents':>10}  said / truth: median, range")
        for cause in dict.fromkeys(run["cause"] for run in self.runs):
            runs = [run for run in self.runs if run["cause"] == cause]
            ratios = sorted(run["said_ms"] / run["truth_ms"] for run in runs if run["named"] and run["truth_ms"])
            ratio = f"{statistics.median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else ""
            counts = ["" if cause not in KINDS else sum(run[key] for run in runs) for key in ("named", "right_size", "right_parts")]
            blamed = sum(bool(run["innocents"]) for run in runs)
            print(f"{cause:17} {len(runs):4} {counts[0]:>6} {counts[1]:>11} {counts[2]:>12} {blamed:10}  {ratio}")


class Trial:
    """Causes that come and go in one job, with quiet runs in between, so that both see the same machine."""

    def __init__(self, scores, job, quiet_name="quiet"):
        self._scores, self._job, self._quiet_name, self._quiet = scores, job, quiet_name, Quiet()

    def go_on_with(self, job):
        """From here on the runs are of `job`; what was quiet in the one before stays the measure."""
        self._job = job

    def quiet_run(self):
        report = self._job.capture(self._scores.folder("quiet"))
        self._quiet.add(report)
        self._scores.add(self._quiet_name, report)
        return report

    def planted_run(self, cause, plant):
        """`plant()` acts until its end()."""
        planted = plant()
        try:
            report = self._job.capture(self._scores.folder(cause))
        finally:
            planted.end()
        is_stop = isinstance(planted, Stops)
        truth_ms = planted.stopped_ms(report.begin, report.end) if is_stop else self._quiet.extra_ms(report)
        rank = 0 if cause == "stop_coordinator" else VICTIM
        self._scores.add(cause, report, rank, truth_ms, self._quiet.extra_parts_ms(report))


def run_planted(options, causes, scores):
    job = Job(options, options.model, [options.threads] * options.ranks)
    plants = {
        "stop_worker": lambda: Stops(job.pids[VICTIM]),
        "stop_coordinator": lambda: Stops(job.pids[0]),
        "nice": lambda: Burners(job.cores_of(VICTIM), yielding=job.threads_of(VICTIM)),
        "busy": lambda: Burners(job.cores_of(VICTIM)),
    }
    trial, num_quiet = Trial(scores, job), 0
    try:
        for run in range(options.runs if causes else 0):
            for i, cause in enumerate(causes):
                if i % 2 == 0:  # two causes, a quiet run
                    trial.quiet_run()
                    num_quiet += 1
                trial.planted_run(cause, plants[cause])
        for _ in range(options.quiet - num_quiet):
            trial.quiet_run()
    finally:
        job.end()


def run_slow_link(options, scores):
    """In this process's own network namespace: see main()."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    job = Job(options, options.model, [options.threads] * options.ranks, transport="gloo")
    trial = Trial(scores, job, "quiet, gloo")
    try:
        for run in range(options.runs):
            if run % 2 == 0:
                trial.quiet_run()
            trial.planted_run("slow_link", lambda: SlowLink(job.pids[VICTIM], options.rate))
    finally:
        job.end()


def run_loud_expert(options, scores):
    """Prompts, wide experts and slow products: where the coordinator's own work bounds a step, a hot expert costs nothing.

    The measure is the same routing with so many threads for the hot rank that it is not the last: without the loud expert other
    ranks would have other rows.
    """
    load, products = (1, 512, 1), ("--matmul", "avx2")
    threads = [options.threads] * options.loud_ranks
    relieved = [4 * count if rank == VICTIM else count for rank, count in enumerate(threads)]
    with tempfile.TemporaryDirectory(prefix="ferry-loud-") as folder:
        model = pathlib.Path(folder) / "model"
        make_wide(ROOT / "launch/demo" if options.model == "demo" else pathlib.Path(options.model), model, WIDER)
        job = Job(options, model, threads, load=load, arguments=products)
        try:
            report = Trial(scores, job, "quiet, prefill").quiet_run()
        finally:
            job.end()
        make_loud(model, choose_loud(report))
        job = Job(options, model, relieved, load=load, arguments=products)
        trial = Trial(scores, job, "loud, relieved")
        try:
            for _ in range(4):
                trial.quiet_run()
        finally:
            job.end()
        job = Job(options, model, threads, load=load, arguments=products)
        trial.go_on_with(job)
        try:
            for _ in range(options.runs):
                trial.planted_run("loud_expert", Nothing)
        finally:
            job.end()


def choose_loud(report):
    """{layer: [(loud, popular)]}: the victim's experts that are chosen least, with the layer's most popular ones."""
    chosen = {}
    for layer in {row["layer"] for row in report.experts}:
        rows = sorted((row for row in report.experts if row["layer"] == layer), key=lambda row: row["tokens"])
        loud = [row["expert"] for row in rows if row["rank"] == VICTIM][:LOUD]
        popular = [row["expert"] for row in reversed(rows) if row["expert"] not in loud][:LOUD]
        chosen[layer] = list(zip(loud, popular))
    return chosen


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cause", default=",".join(KINDS), help="comma-separated, or none; default: all")
    parser.add_argument("--runs", type=int, default=10, help="of each cause (default 10)")
    parser.add_argument("--quiet", type=int, default=20, help="quiet runs at least (default 20)")
    parser.add_argument("--seconds", type=float, default=1.2, help="of a profile (default 1.2)")
    parser.add_argument("--level", type=int, default=0, choices=(0, 1, 2), help="of a profile (default 0)")
    parser.add_argument("--ranks", type=int, default=3, help="coordinator and workers, 3 or more (default 3)")
    parser.add_argument("--loud-ranks", type=int, default=9, help="the same for loud_expert (default 9)")
    parser.add_argument("--threads", type=int, default=1, help="of every rank (default 1)")
    parser.add_argument("--rate", default="50mbit", help="of the slow link, as tc writes it (default 50mbit)")
    parser.add_argument("--model", default="demo", help="folder of a checkpoint (default demo)")
    parser.add_argument("--ferry", default=str(ROOT / "build/release/launch/ferry"), help="the program")
    parser.add_argument("--launcher", default=str(ROOT / "launch/mpirun.sh"), help="takes -np N COMMAND")
    parser.add_argument("--prefix", help="folder whose lib folders hold the program's libraries")
    parser.add_argument("--json", type=pathlib.Path, help="file for every run's result, written as they come")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the runs' records; ferry trace report reads them")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    causes = [cause for cause in options.cause.split(",") if cause not in ("", "none")]
    unknown = [cause for cause in causes if cause not in KINDS]
    if unknown or min(options.ranks, options.loud_ranks) < 3:
        parser.error(f"--cause {unknown}; allowed: {', '.join(KINDS)}, none" if unknown else "--ranks, --loud-ranks: 3 or more")
    return options, causes


def run_in_namespace(options, scores):
    """The slow link's part as a program of its own, which alone sees the slowed device."""
    if shutil.which("tc") is None:
        raise OSError("tc is missing")
    with tempfile.TemporaryDirectory(prefix="ferry-link-") as folder:
        result = pathlib.Path(folder) / "runs.json"
        arguments = [argument for argument in sys.argv[1:] if argument != "--in-namespace"]
        if options.keep:
            arguments += ["--keep", str(options.keep / "slow_link")]
        command = ["unshare", "--net", sys.executable, __file__, *arguments, "--cause", "slow_link", "--json", str(result), "--in-namespace"]
        code = subprocess.run(command).returncode
        if result.exists():
            scores.runs += json.loads(result.read_text())["runs"]
            scores.write()
        if code != 0:
            raise OSError("it needs root, network namespaces, and tc with htb and u32")


def main():
    options, causes = parse_options()
    scores, begin = Scores(options), time.monotonic()
    if options.in_namespace:
        run_slow_link(options, scores)
        return
    here = [cause for cause in causes if cause not in ("slow_link", "loud_expert")]
    parts = [(", ".join(here) or "quiet", lambda: run_planted(options, here, scores))] if here or options.quiet > 0 else []
    parts += [("slow_link", lambda: run_in_namespace(options, scores))] if "slow_link" in causes else []
    parts += [("loud_expert", lambda: run_loud_expert(options, scores))] if "loud_expert" in causes else []
    for name, run in parts:
        try:  # one that cannot be planted here must not cost the others
            run()
        except (OSError, RuntimeError) as error:
            print(f"{name}: broken off: {error}", flush=True)
    scores.print()
    print(f"{time.monotonic() - begin:.0f} s on {len(os.sched_getaffinity(0))} cores")


if __name__ == "__main__":
    main()
