"""What a traced run writes for the viewers of others: every file is there, can be read, and says what the tables of the report say.

The viewers themselves are asked by the tests of kind `viewers`.
"""

import collections
import csv
import gzip
import importlib
import json
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT

NUM_RANKS = 3
BENCH = ("bench", "--model", "demo", "--memory", "256MiB", "--threads", "2", "-p", "37", "-b", "3", "-n", "5", "-r", "1", "--profile", "2")
STEP_COLUMNS = {
    "Computing": "computing_us",
    "Communication(Not Overlapped)": "exposed_us",
    "Overlapped": "overlapped_us",
    "Communication": "communication_us",
    "Free": "free_us",
    "Stage": "stage_us",
    "Bubble": "bubble_us",
    "Preparing": "preparing_us",
}


def read_json(path):
    return json.loads(path.read_text())


def fields(data):
    """[(number, value)] of a protobuf message: a number, or the bytes of what has a length."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            assert key & 7 == 2, key
            length = varint()
            found.append((key >> 3, data[at : at + length]))
            at += length
    return found


def packed(data):
    """The numbers of a packed field: as a message of one field each, they have no keys."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


class ExportsTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ferry-exports-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.folder = cls.scratch / "capture"
        command = [ROOT / "launch/mpirun.sh", "-np", str(NUM_RANKS), FERRY, *BENCH, "--trace", cls.folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"ferry bench ended with {done.returncode}: {done.stdout}{done.stderr}")
        cls.slices = [event for event in read_json(cls.folder / "trace.json")["traceEvents"] if event["ph"] == "X"]
        cls.ranks = {}
        for folder in cls.folder.glob("*_ascend_pt"):
            (info,) = folder.glob("profiler_info_*.json")
            cls.ranks[read_json(info)["rank_id"]] = folder / "ASCEND_PROFILER_OUTPUT"

    def table(self, name):
        return self.read_csv(self.folder / f"csv/{name}.csv")

    @staticmethod
    def read_csv(path):
        with open(path, newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def test_chromes_trace_is_of_all_ranks(self):
        self.assertEqual({event["pid"] for event in self.slices}, set(range(NUM_RANKS)))
        names = collections.defaultdict(set)
        for event in self.slices:
            names[event["pid"]].add(event["name"])
        for rank in range(1, NUM_RANKS):
            self.assertLessEqual({"MoeExperts", "hcom_alltoallv.dispatch.receive"}, names[rank])
        self.assertLessEqual({"prefill 37", "decode ×3", "layer 3", "attention", "DeltaNet", "MoeTokenUnpermute"}, names[0])

    def test_perfettos_trace_has_every_slice(self):
        """By the messages of its schema, which lacks no field that is written."""
        from google.protobuf import unknown_fields
        from grpc_tools import protoc

        made = self.scratch / "schema"
        made.mkdir()
        folder = ROOT / "profiler/export"
        self.assertEqual(protoc.main(["protoc", f"-I{folder}", f"--python_out={made}", str(folder / "perfetto.proto")]), 0)
        sys.path.insert(0, str(made))
        schema = importlib.import_module("perfetto_pb2")
        trace = schema.Trace.FromString((self.folder / "trace.pftrace").read_bytes())
        types = collections.Counter(packet.track_event.type for packet in trace.packet if packet.HasField("track_event"))
        self.assertEqual(types[schema.TrackEvent.TYPE_SLICE_BEGIN], len(self.slices))
        self.assertEqual(types[schema.TrackEvent.TYPE_SLICE_END], len(self.slices))

        def num_unknown(message):
            inner = [value for field, value in message.ListFields() if field.message_type]
            flat = [each for value in inner for each in (value if hasattr(value, "__len__") else [value])]
            return len(unknown_fields.UnknownFieldSet(message)) + sum(map(num_unknown, flat))

        self.assertEqual(num_unknown(trace), 0)

    def test_steps_for_ascends_tools_are_those_of_the_step_table(self):
        self.assertEqual(set(self.ranks), set(range(NUM_RANKS)))
        table = {(int(row["rank"]), row["step"]): row for row in self.table("step")}
        found = {(rank, row["Step"]): row for rank, folder in self.ranks.items() for row in self.read_csv(folder / "step_trace_time.csv")}
        self.assertEqual(set(found), set(table))
        for key, row in found.items():
            for theirs, ours in STEP_COLUMNS.items():
                self.assertEqual(float(row[theirs]), float(table[key][ours]), (key, theirs))

    def test_databases_for_ascends_tools_hold_the_kernels_of_the_text(self):
        for rank, folder in self.ranks.items():
            database = sqlite3.connect(f"file:{folder / f'ascend_pytorch_profiler_{rank}.db'}?mode=ro", uri=True)
            try:
                (verdict,) = database.execute("pragma integrity_check").fetchone()
                (count,) = database.execute("select count(*) from TASK join COMPUTE_TASK_INFO using (globalTaskId)").fetchone()
                (num_exchanges,) = database.execute("select count(*) from COMMUNICATION_OP").fetchone()
            finally:
                database.close()
            kernels = self.read_csv(folder / "kernel_details.csv")
            exchanges = [row for row in kernels if row["Accelerator Core"] == "COMMUNICATION"]
            self.assertEqual((verdict, count, num_exchanges), ("ok", len(kernels) - len(exchanges), len(exchanges)))

    def test_traces_for_pytorchs_tools_have_the_work_of_the_operator_table(self):
        for rank in range(NUM_RANKS):
            flops = collections.Counter()
            for event in read_json(self.folder / f"kineto/rank-{rank}.pt.trace.json")["traceEvents"]:
                if event.get("cat") == "cpu_op":
                    flops[event["name"]] += event["args"].get("flops", 0)
            rows = [row for row in self.table("operator") if row["rank"] == str(rank) and row["kind"] != "host"]
            for row in rows:
                name = row["operator"]
                self.assertAlmostEqual(flops[name], float(row["flop"] or 0), delta=1e-6 * flops[name] + int(row["count"]), msg=name)
            self.assertGreater(sum(flops.values()), 1e5)

    def sums(self, name):
        """Of the two values of a profile's samples, and its strings."""
        profile = fields(gzip.decompress((self.folder / name).read_bytes()))
        samples = [dict(fields(value)) for number, value in profile if number == 2]
        values = [packed(sample[2]) for sample in samples]
        return [sum(column) for column in zip(*values)] or [0, 0], {value.decode() for number, value in profile if number == 6}

    def test_profiles_for_pprof_add_up_to_the_tables(self):
        operators = self.table("operator")
        expected = [sum(round(float(row["total_us"]) * 1000) for row in operators), sum(int(row["count"]) for row in operators)]
        found, names = self.sums("profile.pb.gz")
        self.assertEqual(found, expected)
        self.assertLessEqual({row["operator"] for row in operators}, names)
        stacks = self.table("folded_stack")
        (num_samples, ns), names = self.sums("stacks.pb.gz")
        self.assertEqual(num_samples, sum(int(row["samples"]) for row in stacks))
        speedscope = read_json(self.folder / "stacks.speedscope.json")
        self.assertEqual(ns, sum(sum(profile["weights"]) for profile in speedscope["profiles"]))
        self.assertAlmostEqual(ns / 1e6, sum(float(row["cpu_ms"]) for row in stacks), delta=1e-3 * len(stacks))
        self.assertLessEqual({frame for row in stacks for frame in row["stack"].split(";")}, names)

    def test_arrows_of_ascends_timeline_have_two_ends(self):
        for folder in self.ranks.values():
            events = read_json(folder / "trace_view.json")
            ends = {phase: collections.Counter(event["cat"] for event in events if event["ph"] == phase) for phase in "sf"}
            self.assertEqual(ends["s"], ends["f"])
            self.assertGreater(ends["s"]["HostToDevice"], 100)
            self.assertFalse([event for event in events if re.search("nan|inf", str(event.get("dur", 0)))])


if __name__ == "__main__":
    ferry_job.main()
