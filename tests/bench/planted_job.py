"""A served job for planted_causes.py and planted_gains.py: pinned ranks, a steady load, and what its profiles say."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

from steady_load import Load

START_SECONDS, BENCH_SECONDS = 120, 300
PARTS = ("experts", "wire", "not_running")  # of the coordinator's waits, as the phase table divides them


def cores_of_ranks(threads):
    """Sets of cores that no two ranks share, given every rank's threads, or None where there are too few.

    Every rank has a core for its helpers (the recorder, the watch), the coordinator one more for its servers.
    """
    cores = sorted(os.sched_getaffinity(0))[1:]  # the first is for this program and the system
    counts = [num_threads + (2 if rank == 0 else 1) for rank, num_threads in enumerate(threads)]
    if len(cores) < sum(counts):
        return None
    firsts = [sum(counts[:rank]) for rank in range(len(counts))]
    return [cores[first : first + count] for first, count in zip(firsts, counts)]


def environment_of(options):
    """The program's: it may have brought its libraries along."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if options.prefix:
        libraries = [f"{options.prefix}/lib", f"{options.prefix}/usr/lib/x86_64-linux-gnu", environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    return environment


def write_start(folder, threads):
    """A program that starts a rank with its threads."""
    start = folder / "rank.sh"
    cases = "".join(f"{rank}) threads={count} ;; " for rank, count in enumerate(threads))
    start.write_text(f'#!/bin/sh\ncase "${{OMPI_COMM_WORLD_RANK:-0}}" in {cases}esac\nexec "$@" --threads "$threads"\n')
    start.chmod(0o755)
    return start


class Job:
    """`ferry serve` with its load, up when the constructor returns. `threads` are every rank's."""

    def __init__(self, options, model, threads, transport="auto", load=(8, 16, 400), arguments=()):
        self.options, self._id = options, uuid.uuid4().hex
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ferry-causes-"))
        start = write_start(self.folder, threads)
        environment = {**environment_of(options), "FERRY_CAUSES_JOB": self._id}
        command = [*options.launcher.split(), "-np", str(len(threads)), str(start), options.ferry, "serve", "--model", str(model)]
        command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory", "512MiB"]
        command += ["--transport", transport, "--trace-dir", str(self.folder / "traces"), *arguments]
        self.log, self._addresses, self._is_up = [], {}, threading.Event()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._is_up.wait(START_SECONDS) or len(self._addresses) < 2:
            self.end()
            raise RuntimeError(f"{' '.join(command)} did not come up:\n{''.join(self.log)}")
        self.pids = self._find_ranks()
        self.cores = cores_of_ranks(threads)
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
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read().decode(errors='replace').strip()}") from error

    def counters(self):
        """The server's own sums, by name; those with labels beside the model's and the engine's are left out."""
        with urllib.request.urlopen(f"http://{self._addresses['http']}/metrics", timeout=30) as response:
            text = response.read().decode()
        return {name: float(value) for name, value in re.findall(r'^([\w:]+)\{model_name="[^"]*",engine="\d+"\} (\S+)$', text, re.M)}

    def start_capture(self, level):
        self._post("/start_profile", {"level": level, "max_bytes": 64 << 20})

    def stop_capture(self):
        """The capture's folder, when all of its files are there."""
        return pathlib.Path(self._post("/stop_profile", {"wait": True})["output_dir"])

    def grpc_address(self):
        return self._addresses["grpc"]

    def capture(self, keep=None):
        """Takes a profile of `--seconds` and returns what it says; its records are copied to the folder `keep`."""
        self.start_capture(self.options.level)
        time.sleep(self.options.seconds)
        folder = self.stop_capture()
        if keep is not None:
            keep.mkdir(parents=True)
            for file in (folder / "capture.json", *folder.glob("*.spans")):
                shutil.copy(file, keep)
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


class BenchJob:
    """`ferry bench` of as many ranks, over when the constructor returns: the same steps again and again, whose profile is kept in `keep`."""

    def __init__(self, options, model, threads, transport, arguments, keep):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ferry-causes-"))
        try:
            command = [*options.launcher.split(), "-np", str(len(threads)), str(write_start(folder, threads)), options.ferry, "bench"]
            command += ["--model", str(model), "--memory", "512MiB", "--transport", transport, "--trace", str(keep), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, env=environment_of(options), timeout=BENCH_SECONDS)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.report = Report(keep)


def rows_of(tables, name):
    names = [column["name"] if isinstance(column, dict) else column for column in tables[name]["columns"]]
    return [dict(zip(names, row)) for row in tables[name]["rows"]]


class Report:
    """What a capture's folder says about its steps and whom it blames."""

    def __init__(self, folder):
        data = json.loads((folder / "report.json").read_text())
        tables = {t["id"]: t for t in data["tables"]}
        self.steps_ms = {}  # (phase, tokens): every step's milliseconds
        for row in rows_of(tables, "step"):
            if row["rank"] == 0:
                self.steps_ms.setdefault((row["phase"], row["tokens"]), []).append(row["window_us"] / 1e3)
        phases = [row for row in rows_of(tables, "phase") if row["steps"]]
        self.parts_ms = {part: sum(row[f"waits_{part}_us"] for row in phases) / 1e3 for part in PARTS}
        self.findings = [f for f in data["findings"] if "rank" in f]
        self.experts = rows_of(tables, "expert")
        self.phases = phases
        self.kinds = [f["kind"] for f in data["findings"]]
        self.actions = rows_of(tables, "action") if "action" in tables else []
        with open(folder / "rank-0.spans", "rb") as file:
            preamble = file.read(24)
            header = json.loads(file.read(struct.unpack_from("<Q", preamble, 16)[0]))
        ticks = header["ticks"]
        at = [(ticks["base_ns"] + (header[end] - ticks["base_ticks"]) * ticks["ns_per_tick"]) / 1e9 for end in ("begin", "end")]
        self.begin, self.end = at  # time.monotonic()

    def num_steps(self):
        return sum(len(steps) for steps in self.steps_ms.values())

    def total_ms(self):
        return sum(sum(steps) for steps in self.steps_ms.values())
