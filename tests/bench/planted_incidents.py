#!/usr/bin/env python3
"""Plants deaths, stops, departures, arrivals and moves of workers in a running job and scores what its profiles say they cost.

    .venv/bin/python tests/bench/planted_incidents.py --jobs 4 --json scores.json

Steady streams run while every event and as many quiet stretches are captured one by one. What the table `incident` says of an event is
held against the streams' own clocks: the time between their tokens within the event, beyond as many usual gaps (the mean of those
just before it). An event is right if exactly one incident names it and both agree within a fifth, or within three times what stretches
of as many gaps differ by when nothing happens. A quiet capture is right if it has no incident, but for a
worker that the coordinator itself says was suspected meanwhile, as it may be on a machine that has other work.
"""

import argparse
import csv
import json
import os
import pathlib
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from ferry_job import FERRY, Job, OpenCall, endless_request, grpc, wait_until  # noqa: E402
from ferry.v1 import cluster_pb2, cluster_pb2_grpc  # noqa: E402

NUM_STREAMS = 8
NUM_BEFORE = 200  # gaps whose mean is the usual one, or those of the capture where it has fewer before
SETTLE_SECONDS = 60
WITHIN = 0.2


class Stream(OpenCall):
    """A call that notes when each of its tokens came, in seconds of CLOCK_MONOTONIC."""

    def __init__(self, job, request):
        self.times = []
        super().__init__(job, request, seconds=600)

    def _read(self):
        try:
            for response in self._call:
                self.times += [time.monotonic()] * len(response.token_ids)
                self._has_token.set()
        except grpc.RpcError as error:
            self.error = error


class ElasticJob:
    """A coordinator, its workers, and streams that do not end."""

    def __init__(self, redundancy, num_workers=3):
        self._folder = tempfile.TemporaryDirectory(prefix="ferry-incidents-")
        self.folder = pathlib.Path(self._folder.name)
        self.job = Job("--elastic", "127.0.0.1:0", "--redundancy", redundancy, "--speculate", "0", "--trace-dir", str(self.folder), ranks=1)
        said = lambda: re.search(r"ferry: workers may join on (\S+)", self.job.log())
        wait_until(said, SETTLE_SECONDS)
        self.address, self.workers = said()[1], {}
        for _ in range(num_workers):
            self.join()
        self.streams = [Stream(self.job, endless_request(seed=i, max_tokens=12000)) for i in range(NUM_STREAMS)]
        for stream in self.streams:
            stream.wait_for_token()
        time.sleep(1.5)

    def states(self):
        names = cluster_pb2.Worker.State.Name
        cluster = cluster_pb2_grpc.ClusterStub(self.job.channel).GetCluster(cluster_pb2.GetClusterRequest(), timeout=10)
        return {worker.rank: names(worker.state).removeprefix("STATE_").lower() for worker in cluster.workers}

    def num_doubts(self):
        """How often a worker was suspected, as the coordinator says."""
        return self.job.log().count(" is suspect: ")

    def await_state(self, rank, state):
        if not wait_until(lambda: self.states().get(rank) == state, SETTLE_SECONDS):
            raise RuntimeError(f"rank {rank} is not {state}: {self.states()}\n{self.job.log()}")

    def join(self):
        """A new worker; returns its rank once it has experts."""
        healthy = lambda: {rank for rank, state in self.states().items() if state == "healthy"}
        before = healthy()
        command = [FERRY, "worker", "--join", self.address, "--model", "demo", "--threads", "1"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not wait_until(lambda: len(healthy()) > len(before), SETTLE_SECONDS):
            raise RuntimeError(f"nobody joined\n{self.job.log()}")
        rank = (healthy() - before).pop()
        self.workers[rank] = process
        return rank

    def kill(self, rank):
        self.workers.pop(rank).kill()
        self.await_state(rank, "gone")
        return rank

    def leave(self, rank):
        self.workers.pop(rank).terminate()
        self.await_state(rank, "gone")
        return rank

    def stop(self, rank):
        """For as long as it takes to be suspected, and longer."""
        self.workers[rank].send_signal(signal.SIGSTOP)
        self.await_state(rank, "suspect")
        time.sleep(0.3)
        self.workers[rank].send_signal(signal.SIGCONT)
        self.await_state(rank, "healthy")
        return rank

    def post(self, path, fields):
        body = json.dumps(fields).encode()
        request = urllib.request.Request(f"http://{self.job.http_address}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            response.read()

    def capture(self, name, act, seconds=1.0):
        """(folder of the capture, what `act` returned)."""
        self.post("/start_profile", {"output_dir": name, "level": 0})
        time.sleep(seconds)
        result = act()
        time.sleep(seconds)
        self.post("/stop_profile", {"wait": True})
        return self.folder / name, result

    def end(self):
        for stream in self.streams:
            stream.cancel()
        for process in self.workers.values():
            process.kill()
        self.job.kill()
        self._folder.cleanup()


def table(folder, name):
    path = folder / "csv" / f"{name}.csv"
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def origin_seconds(folder):
    """The capture's first moment, of CLOCK_MONOTONIC; all ranks are on this host."""
    begins = []
    for path in folder.glob("rank-*.spans"):
        data = path.read_bytes()
        header = json.loads(data[24 : 24 + struct.unpack_from("<Q", data, 16)[0]])
        line = header["ticks"]
        if header["threads"]:
            begins.append(line["base_ns"] + (header["begin"] - line["base_ticks"]) * line["ns_per_tick"])
    return min(begins) / 1e9


def nearest(times, at):
    return min(range(len(times)), key=lambda i: abs(times[i] - at))


def lost_ms(times, first, last, num_before=NUM_BEFORE):
    """Beyond as many usual gaps, between two tokens."""
    gaps = [b - a for a, b in zip(times[first - num_before : first], times[first - num_before + 1 : first + 1])]
    return 1e3 * (times[last] - times[first] - (last - first) * statistics.fmean(gaps))


class Truth:
    """What the streams' clocks say of a stretch of steps."""

    def __init__(self, job, folder):
        self._streams, self._origin = job.streams, origin_seconds(folder)
        self._steps = {int(row["step"]): row for row in table(folder, "step") if row["rank"] == "0"}

    def of(self, first_step, last_step):
        """(milliseconds lost, gaps), the middle one of the streams."""
        first, last = self._steps[first_step], self._steps[last_step]
        begin = self._origin + float(first["begin_us"]) / 1e6
        end = self._origin + (float(last["begin_us"]) + float(last["window_us"])) / 1e6
        found = []
        for stream in self._streams:
            times = list(stream.times)
            delay = 0.0007  # of a token, from the step's end to the client
            a, b = nearest(times, begin + delay), nearest(times, end + delay)
            num_before = min(NUM_BEFORE, first_step - min(self._steps))
            found.append((lost_ms(times, a, b, num_before), b - a))
        return statistics.median(lost for lost, _ in found), statistics.median(gaps for _, gaps in found)

    def noise(self, num_gaps, samples=40):
        """Of stretches of as many gaps in this capture, in which nothing happens: the standard deviation, in milliseconds."""
        rows = sorted(self._steps.values(), key=lambda row: float(row["begin_us"]))
        lost = []
        for stream in self._streams:
            times = list(stream.times)
            begin = nearest(times, self._origin + float(rows[0]["begin_us"]) / 1e6)
            end = nearest(times, self._origin + float(rows[-1]["begin_us"]) / 1e6)
            for _ in range(samples // len(self._streams)):
                if end - begin > NUM_BEFORE + num_gaps:
                    at = random.randrange(begin + NUM_BEFORE, int(end - num_gaps))
                    lost.append(lost_ms(times, at, at + int(num_gaps)))
        return statistics.pstdev(lost) if len(lost) > 1 else 0.0


def score_event(job, folder, kind, rank, quiet):
    incidents = table(folder, "incident")
    wanted = {"kill": "lost", "stop": "late", "leave": "left", "join": "joined", "balance": "experts moved"}[kind]
    named = [row for row in incidents if re.search(rf"\brank {rank} (\w+, )?{wanted}" if rank else wanted, row["what"])]
    score = {"kind": kind, "named": len(incidents) == 1 and len(named) == 1, "what": [row["what"] for row in incidents]}
    if not named:
        return {**score, "right": False}
    row = named[0]
    truth, gaps = Truth(job, folder).of(int(row["first_step"]), int(row["last_step"]))
    noise = quiet.noise(max(1, int(gaps)))
    cost = float(row["cost_us"] or "nan") / 1e3
    score |= {"cost_ms": round(cost, 2), "truth_ms": round(truth, 2), "noise_ms": round(noise, 2), "steps": int(row["steps"])}
    score |= {name: float(row[f"{name}_us"] or "nan") / 1e3 for name in ("struck", "waited", "resent", "read", "computed", "placement", "meanwhile")}
    text = json.loads((folder / "report.json").read_text())["findings"]
    score["text"] = [finding["text"] for finding in text if finding["table"] == "incident"]
    score["right"] = score["named"] and abs(cost - truth) <= max(WITHIN * abs(truth), 3 * noise)
    return score


def run_job(redundancy, scores):
    job = ElasticJob(redundancy)
    try:
        kinds = [("kill", lambda: job.kill(max(job.workers))), ("join", job.join), ("stop", lambda: job.stop(max(job.workers)))]
        kinds += [("leave", lambda: job.leave(min(job.workers))), ("join", job.join)]
        for number, (kind, act) in enumerate(kinds):
            num_doubts = job.num_doubts()
            folder, _ = job.capture(f"quiet-{number}", lambda: None, seconds=1.5)
            incidents, was_quiet = table(folder, "incident"), job.num_doubts() == num_doubts
            right = not incidents if was_quiet else all("late" in row["what"] for row in incidents)
            scores.append({"kind": "quiet", "right": right, "was_quiet": was_quiet, "what": [row["what"] for row in incidents]})
            quiet = Truth(job, folder)
            folder, rank = job.capture(f"{kind}-{number}", act)
            scores.append({"redundancy": redundancy, **score_event(job, folder, kind, rank, quiet)})
            print(json.dumps(scores[-1]), flush=True)
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="of five events each, every second one without copies")
    parser.add_argument("--json", help="file for the scores")
    options = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    scores = []
    for number in range(options.jobs):
        run_job("2x" if number % 2 == 0 else "0", scores)
    for kind in sorted({score["kind"] for score in scores}):
        of_kind = [score for score in scores if score["kind"] == kind]
        print(f"{kind}: {sum(score['right'] for score in of_kind)} of {len(of_kind)} right")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(scores, indent=1))
    return 0 if all(score["right"] for score in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
