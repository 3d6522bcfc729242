#!/usr/bin/env python3
"""Measures what recording costs a job that serves a steady load, with and without it in turn.

    tests/bench/recording_cost.py --pairs 30
    tests/bench/recording_cost.py --what sample --ranks 4 --model DIR

`level 1` and `level 2`: one job; a window of --seconds inside a capture and one outside, the order changing from pair to pair. The time in
which a capture is fetched and its files are written belongs to neither: it is asked for, not always there. `sample`: two jobs, one with
--trace-sample 100, of which one has load at a time; both are started anew --starts times, for where a process's memory lies makes a
difference of its own. `nothing`: the like of `level` without a capture, `twins` the like of `sample` with two equal jobs: what the
instrument says of no difference.

The figure is seconds in steps for each generated token, by the server's own sums (/metrics). Printed are the median of the pairs'
ratios with the interval that order statistics give (95 % from six pairs on), and the same of tokens/s by the wall clock.

Needs nothing but Python's standard library.
"""

import argparse
import pathlib
import shutil
import statistics
import time

from planted_gains import interval
from planted_job import Job
from steady_load import Load

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTLE_SECONDS = 0.3


class Window:
    """What the server's sums grew by in so many seconds."""

    def __init__(self, job, seconds):
        first, begin = job.counters(), time.monotonic()
        time.sleep(seconds)
        last, end = job.counters(), time.monotonic()
        self.tokens = last["vllm:generation_tokens_total"] - first["vllm:generation_tokens_total"]
        if self.tokens <= 0:
            raise RuntimeError("no token in a window: --seconds is too short for this model")
        self.step_us = 1e6 * (last["ferry:step_seconds_total"] - first["ferry:step_seconds_total"]) / self.tokens
        self.wall_us = 1e6 * (end - begin) / self.tokens


def started(options, *arguments):
    return Job(options, options.model, [options.threads] * options.ranks, load=options.load, arguments=arguments)


def window_in_capture(job, options, level):
    if level is None:
        time.sleep(SETTLE_SECONDS)
        return Window(job, options.seconds)
    job.start_capture(level)
    time.sleep(SETTLE_SECONDS)
    window = Window(job, options.seconds)
    shutil.rmtree(job.stop_capture())  # many of them fill a disk
    return window


def pairs_of_captures(options, level):
    job, pairs = started(options), []
    try:
        for pair in range(options.pairs):
            windows = {}
            for is_recorded in (pair % 2 == 0, pair % 2 == 1):
                windows[is_recorded] = window_in_capture(job, options, level if is_recorded else None)
            pairs.append((windows[False], windows[True]))
    finally:
        job.end()
    return pairs


def window_with_load(job, options):
    load = Load(job.grpc_address(), *options.load)
    try:
        time.sleep(SETTLE_SECONDS)
        return Window(job, options.seconds)
    finally:
        load.close()


def pairs_of_jobs(options, arguments):
    pairs = []
    for start in range(options.starts):
        jobs = []
        try:
            # Which of them comes first changes, too.
            for is_recorded in (start % 2 == 0, start % 2 == 1):
                jobs.append((is_recorded, started(options, *(arguments if is_recorded else ()))))
                jobs[-1][1].load.close()
            for pair in range(-(-options.pairs // options.starts)):
                windows = {}
                for is_recorded, job in jobs if pair % 2 == 0 else reversed(jobs):
                    windows[is_recorded] = window_with_load(job, options)
                pairs.append((windows[False], windows[True]))
        finally:
            for _, job in jobs:
                job.end()
    return pairs


def shown(what, figure, pairs):
    ratios = [getattr(recorded, figure) / getattr(plain, figure) for plain, recorded in pairs]
    low, high = interval(ratios)
    plain = statistics.median(getattr(window, figure) for window, _ in pairs)
    cost = f"{100 * (statistics.median(ratios) - 1):+.2f} % [{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}]"
    return f"{what:8} {figure:8} {plain:9.2f} us a token without; with it {cost} of {len(ratios)} pairs"


RUNS = {
    "nothing": lambda options: pairs_of_captures(options, None),
    "level1": lambda options: pairs_of_captures(options, 1),
    "level2": lambda options: pairs_of_captures(options, 2),
    "twins": lambda options: pairs_of_jobs(options, ()),
    "sample": lambda options: pairs_of_jobs(options, ("--trace-sample", "100")),
}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", default="nothing,level1", help=f"comma-separated, of {', '.join(RUNS)} (default nothing,level1)")
    parser.add_argument("--pairs", type=int, default=20, help="of windows (default 20)")
    parser.add_argument("--starts", type=int, default=4, help="of two jobs (default 4)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a window (default 1.5)")
    parser.add_argument("--ranks", type=int, default=1, help="of the job (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="of every rank (default 2)")
    parser.add_argument("--load", default="8,16,400", help="streams, tokens of a prompt, new tokens (default 8,16,400)")
    parser.add_argument("--model", default=str(ROOT / "launch/demo"), help="folder of a checkpoint (default: the demo's)")
    parser.add_argument("--ferry", default=str(ROOT / "build/release/launch/ferry"), help="the program")
    parser.add_argument("--launcher", default=str(ROOT / "launch/mpirun.sh"), help="takes -np N COMMAND")
    parser.add_argument("--prefix", help="folder whose lib folders hold the program's libraries")
    options = parser.parse_args()
    options.what = options.what.split(",")
    unknown = [what for what in options.what if what not in RUNS]
    if unknown or min(options.pairs, options.starts, options.ranks, options.threads) < 1:
        parser.error(f"--what {unknown}; allowed: {', '.join(RUNS)}" if unknown else "--pairs, --starts, --ranks, --threads: 1 or more")
    options.load = tuple(int(number) for number in options.load.split(","))
    return options


def main():
    options = parse_options()
    for what in options.what:
        pairs = RUNS[what](options)
        for figure in ("step_us", "wall_us"):
            print(shown(what, figure, pairs), flush=True)


if __name__ == "__main__":
    main()
