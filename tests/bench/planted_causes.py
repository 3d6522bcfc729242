#!/usr/bin/env python3
"""Plants causes of slowness in a running job and scores whether the findings of its profile name them.

    tests/bench/planted_causes.py --runs 10 --quiet 20 --json scores.json
    tests/bench/planted_causes.py --cause stop_worker,stop_coordinator --runs 2 --seconds 1

A job of `--ranks` ranks serves the demo checkpoint under a steady load (this program's own gRPC client; nothing but Python's
standard library is needed). For every run one cause acts while a profile is taken; quiet runs in between have none. A run is right
if a finding has the cause's class and rank and its size is within 20 % of the truth: for stops the time that the process was stopped
within the profile, for the others the time that the same tokens took longer than in the same load's quiet runs. A finding that names
any other rank blames an innocent.

Causes: stop_worker, stop_coordinator (SIGSTOP, 30 of every 150 ms), nice (a worker at nice 19 beside busy loops on its cores), busy
(busy loops on a worker's cores), slow_link (tc tbf, in a network namespace of its own; needs root), loud_expert (an expert whose router
rows make most tokens choose it). Every rank is pinned to cores of its own where there are enough.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 120
STOP_SECONDS, PERIOD_SECONDS = 0.030, 0.150
WITHIN = 0.2
KINDS = {
    "stop_worker": "stopped",
    "stop_coordinator": "stopped",
    "nice": "no_core",
    "busy": "no_core",
    "slow_link": "slow_link",
    "loud_expert": "hot_expert",
}
VICTIM = 2  # the worker that causes act on
SLOW_ADDRESS = f"127.0.0.{VICTIM + 1}"


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number, payload):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def generate_request(rng, prompt_tokens, new_tokens):
    """A framed ferry.v1.GenerateRequest: random ids, sampled, no stop id."""
    ids = b"".join(varint(rng.randrange(10, 2000)) for _ in range(prompt_tokens))
    sampling = varint(1 << 3 | 5) + struct.pack("<f", 1.0) + varint(4 << 3) + varint(rng.randrange(1, 1 << 30))
    sampling += varint(5 << 3) + varint(new_tokens) + varint(6 << 3) + b"\1"
    message = field(3, field(1, ids)) + field(4, sampling)
    return b"\0" + struct.pack(">I", len(message)) + message


class Load:
    """Keeps `streams` Generate calls open over one HTTP/2 connection until it is closed."""

    def __init__(self, address, streams, prompt_tokens, new_tokens):
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._authority = address
        self._shape = (prompt_tokens, new_tokens)
        self._rng = random.Random(7)
        self._next_stream = 1
        self._closing = False
        self.refused = 0
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(4, 0, 0, struct.pack(">HI", 4, 1 << 24)))
        self._socket.sendall(self._frame(8, 0, 0, struct.pack(">I", 1 << 24)))
        for _ in range(streams):
            self._open()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @staticmethod
    def _frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def _open(self):
        headers = b""
        for name, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/ferry.v1.Inference/Generate"),
            (":authority", self._authority),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ):
            headers += b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        body = generate_request(self._rng, *self._shape)
        self._socket.sendall(self._frame(1, 4, stream, headers) + self._frame(0, 1, stream, body))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the server closed the connection")
            data += piece
        return data

    def _read(self):
        try:
            got_data = set()
            while not self._closing:
                head = self._exactly(9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
                payload = self._exactly(size)
                if kind == 0 and size > 0:
                    got_data.add(stream)
                    self._socket.sendall(self._frame(8, 0, 0, struct.pack(">I", size)))
                elif kind == 4 and not flags & 1:
                    self._socket.sendall(self._frame(4, 1, 0, b""))
                elif kind == 6 and not flags & 1:
                    self._socket.sendall(self._frame(6, 1, 0, payload))
                if kind == 3 or (kind in (0, 1) and flags & 1):  # the call has ended
                    self.refused += stream not in got_data
                    got_data.discard(stream)
                    self._open()
        except OSError:
            if not self._closing:
                raise

    def close(self):
        self._closing = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


def cores_of_ranks(ranks, threads):
    """[ranks] sets of cores that no two share; None where there are too few. The coordinator gets two more, for its servers."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < ranks * threads + 3:
        return None
    cores = cores[1:]  # the first is for this program and the system
    sets = [cores[: threads + 2]]
    for r in range(1, ranks):
        first = threads + 2 + (r - 1) * threads
        sets.append(cores[first : first + threads])
    return sets


class Job:
    """`ferry serve` with its load, up when the constructor returns."""

    def __init__(self, options, model, transport="auto", load=(8, 16, 400)):
        self.options, self._id = options, uuid.uuid4().hex
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ferry-causes-"))
        start = self.folder / "rank.sh"  # each rank's own address is what a link can be slowed by
        interface = f"--net-interface 127.0.0.$((${{OMPI_COMM_WORLD_RANK:-0}} + 1))" if transport == "gloo" else ""
        start.write_text(f'#!/bin/sh\nexec "$@" {interface}\n')
        start.chmod(0o755)
        environment = {**os.environ, "FERRY_CAUSES_JOB": self._id, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if options.prefix:
            libraries = [f"{options.prefix}/lib", f"{options.prefix}/usr/lib/x86_64-linux-gnu", environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        command = [*options.launcher.split(), "-np", str(options.ranks), str(start), options.ferry, "serve", "--model", str(model)]
        command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "512MiB", "--threads", str(options.threads)]
        command += ["--transport", transport, "--trace-dir", str(self.folder / "traces")]
        self.log, self._addresses, self._is_up = [], {}, threading.Event()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._is_up.wait(START_SECONDS) or len(self._addresses) < 2:
            self.end()
            raise RuntimeError(f"{' '.join(command)} did not come up:\n{''.join(self.log)}")
        self.pids = self._find_ranks()
        self.cores = cores_of_ranks(options.ranks, options.threads)
        if self.cores:
            for rank, pid in self.pids.items():
                for thread in self._threads(pid):
                    os.sched_setaffinity(thread, self.cores[rank])
        self.load = Load(self._addresses["grpc"], *load)
        time.sleep(1.0)

    def _listen(self):
        for line in self.process.stdout:
            self.log.append(line)
            found = re.search(r"ferry: serving (http|grpc) on (\S+)", line)
            if found:
                self._addresses[found[1]] = found[2]
                if len(self._addresses) == 2:
                    self._is_up.set()
        self._is_up.set()

    def _find_ranks(self):
        ranks = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or not os.readlink(entry / "exe").endswith("/" + pathlib.Path(self.options.ferry).name):
                    continue
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"FERRY_CAUSES_JOB={self._id}".encode() in environment:
                number = [e for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
                ranks[int(number[0].split(b"=")[1]) if number else 0] = int(entry.name)
        return ranks

    @staticmethod
    def _threads(pid):
        return [int(entry.name) for entry in pathlib.Path(f"/proc/{pid}/task").iterdir()]

    def threads_of(self, rank):
        return self._threads(self.pids[rank])

    def cores_of(self, rank):
        return self.cores[rank] if self.cores else sorted(os.sched_getaffinity(self.pids[rank]))

    def _post(self, path, body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self._addresses['http']}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def capture(self):
        """Takes a profile of `--seconds` and returns what it says."""
        self._post("/start_profile", {"level": self.options.level, "max_bytes": 64 << 20})
        time.sleep(self.options.seconds)
        folder = pathlib.Path(self._post("/stop_profile", {"wait": True})["output_dir"])
        report = Report(folder)
        shutil.rmtree(folder)
        return report

    def end(self):
        if hasattr(self, "load"):
            self.load.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            for pid in self._find_ranks().values():
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Report:
    """What a capture's folder says about its steps and whom it blames."""

    def __init__(self, folder):
        data = json.loads((folder / "report.json").read_text())
        tables = {t["id"]: t for t in data["tables"]}
        names = [column["name"] if isinstance(column, dict) else column for column in tables["phase"]["columns"]]
        rows = [dict(zip(names, row)) for row in tables["phase"]["rows"]]
        rows = [row for row in rows if row["phase"] in ("prefill", "decode", "mixed")]
        self.steps = sum(row["steps"] for row in rows)
        self.tokens = sum(row["tokens"] for row in rows)
        self.steps_ms = sum(row["wall_us"] for row in rows) / 1e3
        self.findings = [f for f in data["findings"] if "rank" in f]
        expert = tables["expert"]
        columns = [column["name"] if isinstance(column, dict) else column for column in expert["columns"]]
        self.experts = [dict(zip(columns, row)) for row in expert["rows"]]
        with open(folder / "rank-0.spans", "rb") as file:
            preamble = file.read(24)
            header = json.loads(file.read(struct.unpack_from("<Q", preamble, 16)[0]))
        ticks = header["ticks"]
        at = [(ticks["base_ns"] + (header[end] - ticks["base_ticks"]) * ticks["ns_per_tick"]) / 1e9 for end in ("begin", "end")]
        self.begin, self.end = at  # time.monotonic()


class Stops:
    """Stops a process for 30 of every 150 ms."""

    def __init__(self, job, rank):
        self._pid, self._leave, self._log = job.pids[rank], threading.Event(), []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._leave.wait(PERIOD_SECONDS - STOP_SECONDS):
            begin = time.monotonic()
            os.kill(self._pid, signal.SIGSTOP)
            time.sleep(STOP_SECONDS)
            os.kill(self._pid, signal.SIGCONT)
            self._log.append((begin, time.monotonic()))

    def end(self):
        self._leave.set()
        self._thread.join()

    def truth_ms(self, report):
        return 1e3 * sum(max(0, min(end, report.end) - max(begin, report.begin)) for begin, end in self._log)


class Burners:
    """Busy loops on a rank's cores; with `nice` the rank gives way to them."""

    def __init__(self, job, rank, nice):
        self._threads = job.threads_of(rank) if nice else []
        for thread in self._threads:
            os.setpriority(os.PRIO_PROCESS, thread, 19)
        self._loops = []
        for core in job.cores_of(rank):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            os.sched_setaffinity(loop.pid, {core})
            self._loops.append(loop)
        time.sleep(0.3)

    def end(self):
        for loop in self._loops:
            loop.kill()
            loop.wait()
        for thread in self._threads:
            os.setpriority(os.PRIO_PROCESS, thread, 0)
        time.sleep(0.2)


def tc(*arguments):
    subprocess.run(["tc", *arguments], check=True, capture_output=True, text=True)


class SlowLink:
    """What goes to and from the worker's address waits in a token bucket."""

    def __init__(self, rate):
        tc("qdisc", "replace", "dev", "lo", "root", "handle", "1:", "prio", "bands", "3", "priomap", *["0"] * 16)
        tc("qdisc", "add", "dev", "lo", "parent", "1:3", "handle", "30:", "tbf", "rate", rate, "burst", "2kb", "latency", "1s", "mtu", "70000")
        for end in ("src", "dst"):
            tc("filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", "match", "ip", end, f"{SLOW_ADDRESS}/32", "flowid", "1:3")

    def end(self):
        tc("qdisc", "del", "dev", "lo", "root")


def make_loud(model, target, experts, factor=8.0):
    """A copy of `model` in which in every layer the expert of `experts` (layer: (loud, popular)) has `popular`'s router row, louder."""
    shutil.copytree(model, target)
    for path in target.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        (header_bytes,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
            found = re.search(r"layers\.(\d+)\.mlp\.gate\.weight$", name)
            if not found or int(found[1]) not in experts:
                continue
            loud, popular = experts[int(found[1])]
            columns, first = entry["shape"][1], 8 + header_bytes + entry["data_offsets"][0]
            row = data[first + 2 * columns * popular : first + 2 * columns * (popular + 1)]
            for i in range(0, len(row), 2):
                (value,) = struct.unpack("<f", b"\0\0" + row[i : i + 2])
                row[i : i + 2] = struct.pack("<f", value * factor)[2:]
            data[first + 2 * columns * loud : first + 2 * columns * (loud + 1)] = row
        path.write_bytes(data)


class Scores:
    def __init__(self):
        self.runs = []

    def add(self, cause, report, rank, truth_ms):
        mine = [f for f in report.findings if f["rank"] == rank and f["kind"] == KINDS.get(cause)]
        others = [f for f in report.findings if rank is None or f["rank"] != rank]
        size = mine[0]["saved_ms"] if mine else 0.0
        is_right = bool(mine) and truth_ms is not None and abs(size - truth_ms) <= WITHIN * truth_ms
        self.runs.append(
            {
                "cause": cause,
                "steps": report.steps,
                "steps_ms": round(report.steps_ms, 3),
                "tokens": report.tokens,
                "truth_ms": truth_ms if truth_ms is None else round(truth_ms, 3),
                "said_ms": round(size, 3),
                "named": bool(mine),
                "right_size": is_right,
                "innocents": [f"{f['kind']} {f['rank']}" for f in others],
                "findings": [f["text"] for f in report.findings],
            }
        )
        run = self.runs[-1]
        print(f"{cause:17} {run['steps']:5} steps  truth {truth_ms or 0:8.1f} ms  said {size:8.1f} ms  {run['innocents'] or ''}", flush=True)

    def print(self):
        print(f"\n{'cause':17} {'runs':>4} {'named':>6} {'right size':>11} {'innocents':>10} {'said / truth':>13}")
        for cause in dict.fromkeys(run["cause"] for run in self.runs):
            runs = [run for run in self.runs if run["cause"] == cause]
            ratios = [run["said_ms"] / run["truth_ms"] for run in runs if run["named"] and run["truth_ms"]]
            ratio = f"{statistics.median(ratios):13.2f}" if ratios else f"{'':13}"
            named = "" if cause.startswith("quiet") else sum(run["named"] for run in runs)
            sized = "" if cause.startswith("quiet") else sum(run["right_size"] for run in runs)
            print(f"{cause:17} {len(runs):4} {named:>6} {sized:>11} {sum(bool(run['innocents']) for run in runs):10} {ratio}")


class Baseline:
    """Milliseconds of steps that a token takes when nothing is planted: the quiet runs of one job and load."""

    def __init__(self):
        self._ms = []

    def add(self, report):
        self._ms.append(report.steps_ms / max(report.tokens, 1))

    def truth_ms(self, report):
        return report.steps_ms - statistics.median(self._ms) * report.tokens


def quiet_run(job, baseline, scores, name="quiet"):
    report = job.capture()
    baseline.add(report)
    scores.add(name, report, None, None)
    return report


def run_planted(options, causes, scores):
    """Causes that come and go in one job; quiet runs in between, so that both see the same machine."""
    job, baseline, quiet_left = Job(options, options.model), Baseline(), options.quiet
    try:
        quiet_run(job, baseline, scores)
        for run in range(options.runs if causes else max(options.quiet - 1, 0)):
            quiet_run(job, baseline, scores)
            for cause in causes:
                rank = 0 if cause == "stop_coordinator" else VICTIM
                planted = Stops(job, rank) if cause.startswith("stop") else Burners(job, rank, cause == "nice")
                try:
                    report = job.capture()
                finally:
                    planted.end()
                truth = planted.truth_ms(report) if cause.startswith("stop") else baseline.truth_ms(report)
                scores.add(cause, report, rank, truth)
        quiet_left -= 1 + options.runs
        for _ in range(max(quiet_left, 0) if causes else 0):
            quiet_run(job, baseline, scores)
    finally:
        job.end()


def run_slow_link(options, scores):
    """In this process's own network namespace: see main()."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    job, baseline = Job(options, options.model, transport="gloo"), Baseline()
    try:
        for _ in range(3):
            quiet_run(job, baseline, scores, "quiet, gloo")
        for _ in range(options.runs):
            planted = SlowLink(options.rate)
            try:
                time.sleep(0.3)
                report = job.capture()
            finally:
                planted.end()
            scores.add("slow_link", report, VICTIM, baseline.truth_ms(report))
    finally:
        job.end()


def run_loud_expert(options, scores):
    """Prompts rather than single tokens: a hot expert costs something where there are many rows."""
    load, baseline = (4, 400, 2), Baseline()
    job = Job(options, options.model, load=load)
    try:
        for _ in range(3):
            report = quiet_run(job, baseline, scores, "quiet, prefill")
    finally:
        job.end()
    experts = {}
    for layer in {row["layer"] for row in report.experts}:
        rows = [row for row in report.experts if row["layer"] == layer]
        loud = min((row for row in rows if row["rank"] == VICTIM), key=lambda row: row["tokens"])
        experts[layer] = (loud["expert"], max(rows, key=lambda row: row["tokens"])["expert"])
    with tempfile.TemporaryDirectory(prefix="ferry-loud-") as folder:
        model = pathlib.Path(folder) / "loud"
        make_loud(ROOT / "launch/demo" if options.model == "demo" else pathlib.Path(options.model), model, experts)
        job = Job(options, model, load=load)
        try:
            for _ in range(options.runs):
                report = job.capture()
                scores.add("loud_expert", report, VICTIM, baseline.truth_ms(report))
        finally:
            job.end()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cause", default=",".join(KINDS), help="comma-separated, or none; default: all")
    parser.add_argument("--runs", type=int, default=10, help="of each cause (default 10)")
    parser.add_argument("--quiet", type=int, default=20, help="quiet runs at least (default 20)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a profile (default 2)")
    parser.add_argument("--level", type=int, default=0, choices=(0, 1, 2), help="of a profile (default 0)")
    parser.add_argument("--ranks", type=int, default=3, help="coordinator and workers, 3 or more (default 3)")
    parser.add_argument("--threads", type=int, default=1, help="of every rank (default 1)")
    parser.add_argument("--rate", default="100mbit", help="of the slow link, as tc writes it (default 100mbit)")
    parser.add_argument("--model", default="demo", help="folder of a checkpoint (default demo)")
    parser.add_argument("--ferry", default=str(ROOT / "build/release/launch/ferry"), help="the program")
    parser.add_argument("--launcher", default=str(ROOT / "launch/mpirun.sh"), help="takes -np N COMMAND")
    parser.add_argument("--prefix", help="folder whose lib folders hold the program's libraries")
    parser.add_argument("--json", type=pathlib.Path, help="file for every run's result")
    parser.add_argument("--in-namespace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    causes = [cause for cause in options.cause.split(",") if cause not in ("", "none")]
    unknown = [cause for cause in causes if cause not in KINDS]
    if unknown or options.ranks < 3:
        parser.error(f"--cause {unknown}; allowed: {', '.join(KINDS)}, none" if unknown else "--ranks: 3 or more")
    return options, causes


def run_in_namespace(options, scores):
    """The slow link's part as a program of its own, which alone sees the slowed device."""
    with tempfile.TemporaryDirectory(prefix="ferry-link-") as folder:
        result = pathlib.Path(folder) / "runs.json"
        arguments = [argument for argument in sys.argv[1:] if argument != "--in-namespace"]
        command = ["unshare", "--net", sys.executable, __file__, *arguments, "--cause", "slow_link", "--json", str(result), "--in-namespace"]
        if shutil.which("tc") is None or subprocess.run(command).returncode != 0:
            print("slow_link: skipped, it needs root, tc with tbf and u32, and network namespaces")
            return
        scores.runs += json.loads(result.read_text())["runs"]


def main():
    options, causes = parse_options()
    scores, begin = Scores(), time.monotonic()
    if options.in_namespace:
        run_slow_link(options, scores)
    else:
        here = [cause for cause in causes if cause not in ("slow_link", "loud_expert")]
        if here or options.quiet > 0:
            run_planted(options, here, scores)
        if "slow_link" in causes:
            run_in_namespace(options, scores)
        if "loud_expert" in causes:
            run_loud_expert(options, scores)
        scores.print()
        print(f"{time.monotonic() - begin:.0f} s on {len(os.sched_getaffinity(0))} cores")
    if options.json:
        options.json.write_text(json.dumps({"within": WITHIN, "seconds": options.seconds, "runs": scores.runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
