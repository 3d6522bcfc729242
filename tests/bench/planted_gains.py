#!/usr/bin/env python3
"""Plants faults in the configuration of a job and scores whether what its profile promises of the remedy comes true.

    tests/bench/planted_gains.py --pairs 6 --json gains.json
    tests/bench/planted_gains.py --case width,starved --pairs 4

Every case (gain_cases.py) is a configuration with a fault, its remedy, and the figure that is to get better. Both serve the same
steady load, in turn; the figure is the server's own sums (/metrics) over --seconds without a profile, after which one is taken. Where
clients make no difference, the load is `ferry bench`, whose steps are the same every time. The measured gain is the median over the pairs, with the interval that order statistics give (95 % from six pairs on). The profile of the
faulty configuration predicts: an action whose option is the case's; its own value where that is proposed, else the best one, is then the remedy. What it calls its figure is taken from
`ferry trace verify` on both profiles where the server has no sum of it. Its error is |predicted - measured| / measured gain; beside it
stands by how much the predicted figure itself is off. A case is right if the gain's error is at most 25 %.

Needs nothing but Python's standard library; the slow link needs root, tc and network namespaces.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

from gain_cases import CASES, VICTIM, Folder
from planted_job import BenchJob, Job, environment_of
from plants import SlowLink

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHIN = 0.25
SECONDS_SUM = "vllm:time_to_first_token_seconds"
METRICS = {  # of what the counters grew by, in so many seconds: of times the mean; is more of it better?
    "generated tokens/s": (lambda grew, seconds: grew["vllm:generation_tokens_total"] / seconds, True),
    "prompt tokens/s": (lambda grew, seconds: grew["ferry:computed_prompt_tokens_total"] / seconds, True),
    "TTFT p50 ms": (lambda grew, seconds: 1e3 * grew[SECONDS_SUM + "_sum"] / max(1, grew[SECONDS_SUM + "_count"]), False),
    "time between tokens p50 ms": (lambda grew, seconds: 1e3 * grew["vllm:inter_token_latency_seconds_sum"] / max(1, grew["vllm:inter_token_latency_seconds_count"]), False),
    "ms per step": (lambda grew, seconds: 1e3 * grew["ferry:step_seconds_total"] / max(1, grew["ferry:steps_total"]), False),
}


class Run:
    """What one job did: figures without a profile, and a profile, in `capture`."""

    def __init__(self, options, folder, case, setting, capture):
        self.capture, self.figures = capture, {}
        if case.bench:
            threads = [setting.threads] * setting.ranks
            arguments = [*case.bench, *folder.arguments(case, setting)]
            self.report = BenchJob(options, folder.model(case.model), threads, setting.transport, arguments, capture).report
            return
        job = Job(options, folder.model(case.model), [setting.threads] * setting.ranks, setting.transport, case.load, folder.arguments(case, setting))
        link = None
        try:
            if case.link_rate:
                link = SlowLink(job.pids[VICTIM], case.link_rate)
            first, begin = job.counters(), time.monotonic()
            time.sleep(options.measure)
            last, end = job.counters(), time.monotonic()
            grew = {name: value - first.get(name, 0) for name, value in last.items()}
            self.figures = {name: figure(grew, end - begin) for name, (figure, _) in METRICS.items()}
            self.report = job.capture(capture)
        finally:
            if link:
                link.end()
            job.end()

    def action(self, case):
        """What the profile says of the case's option: its action with the case's own remedy, else its best, or None."""
        found = [action for action in self.report.actions if action["option"] == case.option and action["before"]]
        own = [action for action in found if str(action["to"]) in case.after.arguments]
        return next(iter(own + found), None)


def gain_of(metric, before, after):
    """As a share of `before` by which a rate grew, or a time shrank."""
    return after / before - 1 if is_rate(metric) else 1 - after / before


def is_rate(metric):
    return "tokens/s" in metric


def verified(options, before, after):
    """{figure: (before, after)} of the two profiles, and the verdicts of the actions that were tried."""
    command = [options.ferry, "trace", "verify", "--json", str(before.capture), str(after.capture)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment_of(options))
    if done.returncode not in (0, 1, 3):
        return {}, [done.stderr.strip()]
    seen = json.loads(done.stdout)
    verdicts = [f"{action['option']} {action['verdict']}" for action in seen["actions"] if action["tried"]]
    return {figure["name"]: (figure["before"], figure["after"]) for figure in seen["figures"]}, verdicts


def interval(values):
    """The narrowest that leaves out as many on either side and holds the median with 95 %; of few values all of them."""
    ordered, left_out = sorted(values), 0
    while 2 * sum(math.comb(len(values), k) for k in range(left_out + 1)) / 2 ** len(values) <= 0.05:
        left_out += 1
    left_out = max(0, left_out - 1)
    return ordered[left_out], ordered[-1 - left_out]


def predictions(case, runs, to):
    """Of the faulty runs' actions on the case's option with the value that was tried: (metric, predicted after / before)."""
    found = [action for action in (run.action(case) for run in runs) if action and str(action["to"]) == to]
    return [(action["metric"], action["after"] / action["before"]) for action in found]


def score(options, name, case, to, befores, afters):
    found = predictions(case, befores, to)
    metric = statistics.mode(metric for metric, _ in found) if found else case.metric
    seen = [verified(options, before, after) for before, after in zip(befores, afters)]
    figures = [profiled | {key: (b.figures[key], a.figures[key]) for key in b.figures} for (profiled, _), b, a in zip(seen, befores, afters)]
    pairs = [pair[metric] for pair in figures if metric in pair and min(pair[metric]) > 0]
    if not pairs:
        raise RuntimeError(f"no run has the figure '{metric}': --measure and --seconds are too short")
    gains = [gain_of(metric, before, after) for before, after in pairs]
    low, high = interval(gains)
    result = {
        "case": name,
        "option": case.option,
        "to": to,
        "metric": metric,
        "before": statistics.median(before for before, _ in pairs),
        "after": statistics.median(after for _, after in pairs),
        "gain": statistics.median(gains),
        "low": low,
        "high": high,
        "pairs": figures,
        "verdicts": [verdict for _, verdicts in seen for verdict in verdicts],
        "findings": sorted({kind for run in befores for kind in run.report.kinds}),
        "findings_after": sorted({kind for run in afters for kind in run.report.kinds}),
        "actions": [[f"{a['option']} {a['to']}: {a['metric']} {a['before']} to {a['after']}" for a in run.report.actions] for run in befores],
        "predicted": None,
    }
    if found:
        ratio = statistics.median(change for said, change in found if said == metric)
        predicted = gain_of(metric, 1, ratio)
        measured_ratio = 1 + result["gain"] if is_rate(metric) else 1 - result["gain"]
        result |= {
            "predicted": predicted,
            "said_in": len(found),
            "error": abs(predicted - result["gain"]) / abs(result["gain"]),
            "figure_error": abs(ratio / measured_ratio - 1),
            "right": abs(predicted - result["gain"]) <= WITHIN * abs(result["gain"]),
        }
    return result


def shown(result):
    change = f"{result['option']} {result['to']}" if result["to"] else result["option"]
    line = f"{result['case']:16} {change:22} {result['metric']:22} {result['before']:9.1f} {result['after']:9.1f}  "
    line += f"{100 * result['gain']:+7.1f} % [{100 * result['low']:+.1f}, {100 * result['high']:+.1f}]  "
    if result["predicted"] is None:
        return line + "no prediction"
    said = f"predicted {100 * result['predicted']:+.1f} %, error {100 * result['error']:.0f} %"
    return line + f"{said}, of the figure {100 * result['figure_error']:.0f} %{', right' if result['right'] else ''}"


def run_case(options, folder, name):
    case, befores, afters, remedy, to = CASES[name], [], [], None, None
    for pair in range(options.pairs):
        befores.append(Run(options, folder, case, case.before, folder.capture(name, "before", pair)))
        if remedy is None:
            action = befores[0].action(case)
            to = str(action["to"]) if action else None
            remedy = case.before.changed(case.option, to) if action else case.after
        afters.append(Run(options, folder, case, remedy, folder.capture(name, "after", pair)))
    return score(options, name, case, to, befores, afters)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--pairs", type=int, default=6, help="runs of each configuration (default 6)")
    parser.add_argument("--measure", type=float, default=1.5, help="seconds of the figures without a profile (default 1.5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a profile (default 1)")
    parser.add_argument("--level", type=int, default=1, choices=(0, 1, 2), help="of a profile (default 1)")
    parser.add_argument("--ferry", default=str(ROOT / "build/release/launch/ferry"), help="the program")
    parser.add_argument("--launcher", default=str(ROOT / "launch/mpirun.sh"), help="takes -np N COMMAND")
    parser.add_argument("--prefix", help="folder whose lib folders hold the program's libraries")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the runs' captures; ferry trace report reads them")
    parser.add_argument("--json", type=pathlib.Path, help="file for every case's result; those of other cases in it stay")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [name for name in options.case.split(",") if name]
    unknown = [name for name in cases if name not in CASES]
    if unknown or options.pairs < 1:
        parser.error(f"--case {unknown}; allowed: {', '.join(CASES)}" if unknown else "--pairs: 1 or more")
    return options, cases


def run_in_namespace(options, name):
    """The slow link's part as a program of its own, which alone sees the slowed device; None: it prints and writes for itself."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--in-namespace"]
    command = ["unshare", "--net", sys.executable, __file__, *arguments, "--case", name, "--in-namespace"]
    if subprocess.run(command).returncode != 0:
        raise OSError("it needs root, network namespaces, and tc with htb and u32")


def keep(options, result):
    if options.json:
        results = json.loads(options.json.read_text()) if options.json.exists() else {}
        results[result["case"]] = result
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def main():
    options, cases = parse_options()
    if options.in_namespace:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    folder, results = Folder(ROOT / "launch/demo", options.keep), []
    try:
        for name in cases:
            try:  # one that cannot be planted here must not cost the others
                if CASES[name].link_rate and not options.in_namespace:
                    run_in_namespace(options, name)
                    continue
                results.append(run_case(options, folder, name))
            except (OSError, RuntimeError) as error:
                print(f"{name}: not planted: {error}", flush=True)
                continue
            print(shown(results[-1]), flush=True)
            print(f"    findings: {', '.join(results[-1]['findings'])}; after: {', '.join(results[-1]['findings_after'])}", flush=True)
            keep(options, results[-1])
    finally:
        folder.close()
    predicted = [result for result in results if result["predicted"] is not None]
    if predicted:
        print(f"{sum(result['right'] for result in predicted)} of {len(results)} cases within {100 * WITHIN:.0f} % of the measured gain")


if __name__ == "__main__":
    main()
