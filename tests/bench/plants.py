"""What planted_causes.py does to a job, and takes back: every class acts from its constructor to end()."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

STOP_SECONDS, PERIOD_SECONDS = 0.030, 0.150


class Nothing:
    """Of a quiet run."""

    def end(self):
        pass


class Stops:
    """Stops a process for 30 of every 150 ms."""

    def __init__(self, pid):
        self._pid, self._leave, self._log = pid, threading.Event(), []
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

    def stopped_ms(self, begin, end):
        """Between two moments of time.monotonic()."""
        return 1e3 * sum(max(0, min(last, end) - max(first, begin)) for first, last in self._log)


class Burners:
    """A busy loop on each of `cores`; `yielding`: threads that give way to them."""

    def __init__(self, cores, yielding=()):
        self._threads, self._loops = list(yielding), []
        for thread in self._threads:
            os.setpriority(os.PRIO_PROCESS, thread, 19)
        for core in cores:
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
    done = subprocess.run(["tc", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"tc {' '.join(arguments)}: {done.stderr.strip()}")


def connections(pid):
    """(own port, peer's port) of the process's TCP connections over IPv4."""
    links = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    established = [row for row in rows if row[3] == "01" and row[9] in inodes]
    return [tuple(int(end.split(":")[1], 16) for end in row[1:3]) for row in established]


class SlowLink:
    """What a process sends and gets over TCP waits for its turn at `rate`; all else on the loopback device goes as ever."""

    def __init__(self, pid, rate):
        tc("qdisc", "replace", "dev", "lo", "root", "handle", "1:", "htb")
        tc("class", "add", "dev", "lo", "parent", "1:", "classid", "1:3", "htb", "rate", rate, "burst", "2kb", "cburst", "2kb")
        into_class = ["filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1", "u32"]
        for own, peer in connections(pid):
            for source, target in ((own, peer), (peer, own)):
                ports = ["match", "ip", "sport", str(source), "0xffff", "match", "ip", "dport", str(target), "0xffff"]
                tc(*into_class, *ports, "flowid", "1:3")
        time.sleep(0.3)

    def end(self):
        tc("qdisc", "del", "dev", "lo", "root")
        time.sleep(0.2)


def repeat_rows(data, rows, row_bytes, times):
    """`data` in blocks of `rows` rows, each block `times` times."""
    block = rows * row_bytes
    return b"".join(data[at : at + block] * times for at in range(0, len(data), block))


def make_wide(model, target, times):
    """A copy of `model` whose experts are `times` as wide: the same neurons again, each with its share of the output."""
    shutil.copytree(model, target)
    config = json.loads((target / "config.json").read_text())
    config["text_config"]["moe_intermediate_size"] *= times
    (target / "config.json").write_text(json.dumps(config))
    for path in target.glob("*.safetensors"):
        data = path.read_bytes()
        (header_bytes,) = struct.unpack_from("<Q", data)
        header, tensors, at = json.loads(data[8 : 8 + header_bytes]), [], 0
        for name, entry in sorted(((n, e) for n, e in header.items() if n != "__metadata__"), key=lambda item: item[1]["data_offsets"]):
            first, last = (8 + header_bytes + offset for offset in entry["data_offsets"])
            tensor = data[first:last]
            if name.endswith("mlp.experts.gate_up_proj"):
                experts, rows, columns = entry["shape"]
                tensor = repeat_rows(tensor, rows // 2, 2 * columns, times)
                entry["shape"] = [experts, rows * times, columns]
            elif name.endswith("mlp.experts.down_proj"):
                experts, rows, columns = entry["shape"]
                tensor = repeat_rows(tensor, 1, 2 * columns, times)
                entry["shape"] = [experts, rows, columns * times]
            tensors.append(tensor)
            entry["data_offsets"] = [at, at + len(tensor)]
            at += len(tensor)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors))


def make_loud(model, experts, factor=8.0):
    """Changes `model`: the experts of `experts` ({layer: [(loud, popular)]}) get the router rows of popular ones, louder."""
    for path in pathlib.Path(model).glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        (header_bytes,) = struct.unpack_from("<Q", data)
        for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
            found = re.search(r"language_model\.layers\.(\d+)\.mlp\.gate\.weight$", name)
            if not found or int(found[1]) not in experts:
                continue
            columns, first = entry["shape"][1], 8 + header_bytes + entry["data_offsets"][0]
            for loud, popular in experts[int(found[1])]:
                row = data[first + 2 * columns * popular : first + 2 * columns * (popular + 1)]
                for i in range(0, len(row), 2):
                    (value,) = struct.unpack("<f", b"\0\0" + row[i : i + 2])
                    row[i : i + 2] = struct.pack("<f", value * factor)[2:]
                data[first + 2 * columns * loud : first + 2 * columns * (loud + 1)] = row
        path.write_bytes(data)
