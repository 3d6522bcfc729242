"""msprof-analyze, the referee of Ascend profiles, and TensorBoard's Ascend plugin read the folders of real runs and come to our
numbers.

Needs PyPI once, for a virtual environment of its own (build/ascend-venv); is skipped where it cannot be had. Environment:
FERRY_BINARY (default build/release/launch/ferry).
"""

import collections
import csv
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
own_venv.use_venv("ascend-venv", "ascend_requirements.txt", "--no-deps")

import msprof  # noqa: E402

BENCH_SECONDS = 300.0
NUM_RANKS = 3
GROUPS = ("ep_dispatch", "ep_combine")
TIMES = ("Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)", "Idle Time(ms)")
# Columns of msprof-analyze's step table and of ours.
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


def run(command, seconds, **options):
    done = subprocess.run(
        [str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, **options
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def read_csv(path):
    with open(path, newline="") as lines:
        return list(csv.DictReader(lines))


def read_json(path):
    return json.loads(path.read_text())


class Run:
    """A capture of `ferry bench` with that many threads a rank."""

    def __init__(self, folder, num_threads, batch):
        self.folder = folder
        command = [ROOT / "launch/mpirun.sh", "-np", NUM_RANKS, FERRY, "bench", "--model", "demo", "--memory", "256MiB"]
        command += ["-p", "37", "-b", batch, "-n", "5", "-r", "1", "--threads", num_threads, "--trace", self.folder]
        run(command, BENCH_SECONDS)
        self.ranks = {}
        for folder in self.folder.glob("*_ascend_pt"):
            (info,) = folder.glob("profiler_info_*.json")
            self.ranks[read_json(info)["rank_id"]] = folder

    def copy_text(self, to):
        """The folders without databases: where one is, the tools read nothing else."""
        for folder in self.ranks.values():
            shutil.copytree(folder, to / folder.name, ignore=shutil.ignore_patterns("*.db"))
        return {rank: to / folder.name for rank, folder in self.ranks.items()}

    def own(self, rank, name):
        return self.ranks[rank] / "ASCEND_PROFILER_OUTPUT" / name


@functools.cache
def overlap_of(run, rank):
    """{lane: us} of the rank's whole time."""
    us = collections.Counter()
    for event in read_json(run.own(rank, "trace_view.json")):
        if event["ph"] == "X":
            us[event["name"]] += event["dur"]
    return us


def setUpModule():
    global scratch, one
    folder = tempfile.TemporaryDirectory(prefix="ferry-ascend-")
    unittest.addModuleCleanup(folder.cleanup)
    scratch = pathlib.Path(folder.name)
    one = Run(scratch / "capture", 1, 3)


class AscendToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch, cls.one = scratch, one
        cls.other = Run(cls.scratch / "other", 2, 2)
        cls.text = cls.one.copy_text(cls.scratch / "text")
        other_text = cls.other.copy_text(cls.scratch / "other text")
        commands = {
            "cluster": ["cluster", "-m", "all", "-d", cls.scratch / "text", "-o", cls.scratch],
            "compare": ["compare", "-d", cls.other.ranks[0], "-bp", cls.one.ranks[0], "-o", cls.scratch / "compare"],
            "compare text": ["compare", "-d", other_text[0], "-bp", cls.text[0], "-o", cls.scratch / "compare text", "--disable_details"],
            "advisor": ["advisor", "all", "-d", cls.one.ranks[0], "-o", cls.scratch / "advisor", "-l", "en"],
        }
        outputs = msprof.msprof_analyze(list(commands.values()), cls.scratch)
        cls.said = dict(zip(commands, outputs))
        cls.cluster = cls.scratch / "cluster_analysis_output"

    def groups(self):
        """{what msprof-analyze calls the group: our name}, as it found out itself."""
        infos = read_json(self.cluster / "communication_group.json")["comm_group_parallel_info"]
        return {info["group_name"]: info["group_id"] for info in infos}

    def of_group(self, file):
        """The only entry of a cluster file: its keys are the groups' ranks, here all."""
        ((_, steps),) = read_json(self.cluster / file).items()
        return steps

    @classmethod
    @functools.cache
    def sheets(cls, name):
        """What `compare` wrote: a sheet's rows below its headers, the last of which begins with what rows are numbered by."""
        (path,) = (cls.scratch / name).glob("*.xlsx")
        below = {}
        for sheet, rows in msprof.read_sheets(path).items():
            (last,) = (i for i, row in enumerate(rows) if row and row[0] in ("Index", "Order Id", "Top"))
            below[sheet] = rows[last + 1 :]
        return below

    def test_nothing_is_complained_of(self):
        self.assertEqual({name: msprof.complaints_of(said) for name, said in self.said.items() if msprof.complaints_of(said)}, {})

    def test_every_rank_has_a_folder(self):
        self.assertEqual(set(self.one.ranks), set(range(NUM_RANKS)))

    def test_steps_are_ours(self):
        rows = read_csv(self.cluster / "cluster_step_trace_time.csv")
        found = {(int(row["Index"]), row["Step"]): row for row in rows if row["Type"] == "rank"}
        table = {(int(row["rank"]), row["step"]): row for row in read_csv(self.one.folder / "csv/step.csv")}
        self.assertEqual(set(found), set(table))
        self.assertGreaterEqual(len(found), 5 * NUM_RANKS)
        for rank in range(NUM_RANKS):
            for own in read_csv(self.one.own(rank, "step_trace_time.csv")):
                row = found[rank, own["Step"]]
                for column in set(own) - {"Device_id", "Step"}:
                    self.assertEqual(float(row[column]), float(own[column]), column)
        for key, row in found.items():
            for theirs, ours in STEP_COLUMNS.items():
                self.assertEqual(float(row[theirs]), float(table[key][ours]), theirs)
            parts = [float(row[name]) for name in ("Computing", "Communication(Not Overlapped)", "Free")]
            self.assertAlmostEqual(sum(parts), float(table[key]["window_us"]), places=5)

    def test_groups_are_the_two_exchanges(self):
        self.assertEqual(set(self.groups().values()), set(GROUPS))
        for info in read_json(self.cluster / "communication_group.json")["comm_group_parallel_info"]:
            self.assertEqual(info["rank_set"], list(range(NUM_RANKS)))

    def test_collectives_are_ours_and_add_up(self):
        steps = self.of_group("cluster_communication.json")
        own = {rank: read_json(self.one.own(rank, "communication.json")) for rank in self.one.ranks}
        for step, operators in steps.items():
            sums = {}
            for name, by_rank in operators.items():
                if name.startswith("Total"):
                    continue
                self.assertRegex(name, r"^hcom_alltoallv__(dispatch|combine)_\d+@\d+$")
                for rank, found in by_rank.items():
                    self.assertEqual(found, own[int(rank)][step]["collective"][name])
                    times = sums.setdefault((name.split("@")[1], rank), dict.fromkeys(TIMES, 0.0))
                    for key in TIMES:
                        times[key] += found["Communication Time Info"][key]
            for group in self.groups():
                for rank, found in operators[f"Total Op Info@{group}"].items():
                    for key, value in sums[group, rank].items():
                        self.assertAlmostEqual(found["Communication Time Info"][key], value, places=9)

    def test_links_carry_what_the_traffic_table_says(self):
        found = {}
        for operators in self.of_group("cluster_communication_matrix.json").values():
            for group in self.groups():
                for link, value in operators[f"Total Op Info@{group}"].items():
                    if value["Transport Type"] != "LOCAL":
                        found[link] = found.get(link, 0.0) + value["Transit Size(MB)"]
        rows = read_csv(self.one.folder / "csv/traffic.csv")
        traffic = {f"{row['source']}-{row['target']}": int(row["bytes"]) for row in rows}
        self.assertEqual({link: round(size * 1e6) for link, size in found.items()}, traffic)
        self.assertEqual(len(traffic), 2 * (NUM_RANKS - 1))  # the coordinator and each worker, both ways

    def test_compare_divides_both_captures_as_we_do(self):
        """Of rank 0 of both. Where it reads a database it knows no free time before the first work and behind the last."""
        columns = {"Computing Time": "Computing", "Uncovered Communication Time": "Communication(Not Overlapped)", "Free Time": "Free"}
        for name in ("compare", "compare text"):
            found = {row[0]: (row[1], row[4]) for row in self.sheets(name)["OverallMetrics"] if row[0] in columns}
            for index, run in enumerate((self.one, self.other)):
                own = overlap_of(run, 0)
                for theirs, ours in columns.items():
                    if (name, theirs) != ("compare", "Free Time"):
                        self.assertAlmostEqual(found[theirs][index], own[ours] / 1000, places=3, msg=f"{name}: {theirs}")
            self.assertNotEqual(*found["Computing Time"])

    def test_compare_finds_the_kernels_of_both_captures(self):
        for name in ("compare", "compare text"):
            found = [collections.Counter(), collections.Counter()], [collections.Counter(), collections.Counter()]
            for row in self.sheets(name)["KernelCompare"]:
                for index, (us, calls) in enumerate(((row[3], row[7]), (row[8], row[12]))):
                    found[0][index][row[1]] += us
                    found[1][index][row[1]] += int(calls or 0)
            for index, run in enumerate((self.one, self.other)):
                us, calls = collections.Counter(), collections.Counter()
                for row in read_csv(run.own(0, "op_statistic.csv")):
                    us[row["OP Type"]] += float(row["Total Time(us)"])
                    calls[row["OP Type"]] += int(row["Count"])
                of_kernels = {kind: count for kind, count in found[1][index].items() if count and kind != "hcom_alltoallv_"}
                self.assertEqual(of_kernels, dict(calls))
                for kind in calls:  # rows are rounded to hundredths, one for each shape
                    self.assertAlmostEqual(found[0][index][kind], us[kind], delta=0.005 * calls[kind] + 1e-6, msg=f"{name}: {kind}")

    def test_compare_finds_the_collectives_of_both_captures(self):
        for row in self.sheets("compare")["CommunicationCompare"]:
            if row[1] != "alltoallv":
                continue
            for index, run in ((3, self.one), (10, self.other)):
                rows = [row for row in read_csv(run.own(0, "kernel_details.csv")) if row["Accelerator Core"] == "COMMUNICATION"]
                self.assertEqual(row[index], len(rows))
                self.assertAlmostEqual(row[index + 1], sum(float(row["Duration(us)"]) for row in rows), places=2)
            return
        self.fail("no collective is compared")

    def test_compare_ties_kernels_to_operators(self):
        """By connections in databases, by arrows in text: each operator's device time is that of the kernels it launched."""
        for name in ("compare", "compare text"):
            sheets = self.sheets(name)
            found = {row[1]: (row[2], row[3]) for row in sheets["OperatorCompareStatistic"] if row[1] is not None}
            calls = collections.Counter(row["Name"] for row in read_csv(self.one.own(0, "operator_details.csv")))
            for operator in ("MatMul.lm_head", "RmsNorm"):
                self.assertGreater(found[operator][0], 0, name)
                self.assertEqual(found[operator][1], calls[operator], name)

    def test_advisor_finds_the_same_times(self):
        self.assertEqual(len(list((self.scratch / "advisor").glob("*.html"))), 1)
        us = overlap_of(self.one, 0)
        for text, name in (("Computing", "Computing"), ("Uncovered communication", "Communication(Not Overlapped)")):
            said = re.search(rf"{text}.*?([\d.]+) ?ms", self.said["advisor"], re.IGNORECASE)
            self.assertIsNotNone(said, self.said["advisor"])
            self.assertAlmostEqual(float(said[1]), us[name] / 1000, delta=0.002)


class TensorBoardTest(unittest.TestCase):
    """TensorBoard's plugin for Ascend: its loader and what it makes of a rank, without TensorBoard's server."""

    @classmethod
    def setUpClass(cls):
        from torch_tb_profiler import consts
        from torch_tb_profiler.profiler.data import RunProfileData
        from torch_tb_profiler.profiler.run_generator import RunGenerator

        cls.one = one
        cls.profiles = {}
        for rank, folder in cls.one.ranks.items():
            worker, span, _ = consts.WORKER_SPAN_PATTERN.match(folder.name).groups()
            with unittest.TestCase().assertNoLogs(consts.PLUGIN_NAME, level="WARNING"):
                data = RunProfileData.parse_npu(worker, span, str(folder / "ASCEND_PROFILER_OUTPUT"), str(scratch))
                cls.profiles[rank] = RunGenerator(worker, span, data, "Ascend").generate_run_profile()

    def test_it_has_every_view(self):
        for profile in self.profiles.values():
            self.assertEqual([view.name for view in profile.views], ["operator", "kernel", "memory", "trace"])
            self.assertTrue(profile.has_communication)

    def test_operators_are_those_of_the_operator_table(self):
        for rank, profile in self.profiles.items():
            table = {row["operator"]: row for row in read_csv(self.one.folder / "csv/operator.csv") if row["rank"] == str(rank) and row["kind"] != "host"}
            found = {row["name"]: row for row in profile.operation_table_by_name["data"]}
            self.assertEqual(set(found), set(table))
            for name, row in found.items():
                count = int(table[name]["count"])
                self.assertEqual(row["calls"], count, name)
                # It rounds to hundredths after each call.
                self.assertAlmostEqual(row["device_self_duration"], float(table[name]["total_us"]), delta=0.006 * count, msg=name)
                self.assertGreaterEqual(row["host_total_duration"] + 0.006 * count, row["device_self_duration"], name)
            self.assertEqual(found["MatMul.lm_head"]["tc_self_ratio"], 100) if rank == 0 else None

    def test_shapes_are_a_tensor_each(self):
        shapes = {row["name"]: row["input_shape"] for row in self.profiles[0].operation_table_by_name_input["data"]}
        self.assertRegex(shapes["MatMul.lm_head"], r"^\[\[\d+,\d+\], \[\d+,\d+\]\]$")

    def test_kernels_are_those_of_the_statistic(self):
        for rank, profile in self.profiles.items():
            calls = collections.Counter()
            for row in read_csv(self.one.own(rank, "kernel_details.csv")):
                calls[row["Name"]] += 1
            self.assertEqual({row[0]: row[1] for row in profile.kernel_op_table["data"]["rows"]}, dict(calls))

    def test_memory_is_that_of_the_memory_table(self):
        for rank, profile in self.profiles.items():
            table = collections.defaultdict(float)  # MB by moment
            for row in read_csv(self.one.folder / "csv/memory_timeline.csv"):
                if row["rank"] == str(rank):
                    table[row["at_ms"]] += float(row["bytes"] or 0) / 2**20
            kinds = {row["kind"] for row in read_csv(self.one.folder / "csv/memory.csv") if row["rank"] == str(rank) and row["role"] == "held"}
            ((device, of_process),) = profile.memory_all_curve["ptaGe"]["rows"].items()
            resident = [mb for _, _, mb in of_process["APP"]]
            self.assertEqual(device, f"NPU:{rank}")
            self.assertGreaterEqual(len(resident), 2)
            self.assertEqual(len(resident), len(table))
            for found, expected in zip(resident, table.values()):
                self.assertAlmostEqual(found, expected, places=2)
            ((_, of_allocators),) = profile.memory_all_curve["total"]["rows"].items()
            for (_, allocated), (_, reserved), mb in zip(of_allocators["Allocated"], of_allocators["Reserved"], resident):
                self.assertTrue(0 < allocated <= reserved <= mb, (allocated, reserved, mb))
            components = {row[0] for row in profile.memory_events["component"]["rows"][device]}
            self.assertLessEqual(kinds, components)
            blocks = profile.memory_events["operator"]["rows"][device]
            # What is held still at the end is what lay in memory at the last sample.
            self.assertAlmostEqual(sum(kb for _, kb, _, release, _ in blocks if release is None) / 1024, resident[-1], delta=0.01)


if __name__ == "__main__":
    if not pathlib.Path(FERRY).exists():
        raise SystemExit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    unittest.main(verbosity=2)
