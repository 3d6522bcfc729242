"""msprof-analyze, the referee of Ascend profiles, reads the folders of real runs and comes to our numbers.

Needs PyPI once, for a virtual environment of its own (build/ascend-venv); is skipped where it cannot be had. Environment:
FERRY_BINARY (default build/release/launch/ferry).
"""

import csv
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
VENV = own_venv.use_venv("ascend-venv", "ascend_requirements.txt")
BENCH_SECONDS = 300.0
TOOL_SECONDS = 300.0
NUM_RANKS = (3,)
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


def msprof_analyze(*arguments, cwd):
    output = run([VENV / "bin/msprof-analyze", *arguments], TOOL_SECONDS, cwd=cwd)
    errors = [line for line in output.splitlines() if "[ERROR]" in line]
    if errors:
        raise AssertionError("\n".join(errors))
    return output


class Run:
    """A capture of `ferry bench` on that many ranks, and what msprof-analyze makes of it."""

    def __init__(self, num_ranks, scratch):
        self.num_ranks = num_ranks
        self.scratch = scratch
        self.folder = scratch / "capture"
        command = [ROOT / "launch/mpirun.sh", "-np", num_ranks, FERRY, "bench", "--model", "demo", "--memory", "256MiB"]
        command += ["-p", "37", "-b", "3", "-n", "5", "-r", "1", "--trace", self.folder]
        run(command, BENCH_SECONDS)
        self.ranks = {}
        for folder in self.folder.glob("*_ascend_pt"):
            (info,) = folder.glob("profiler_info_*.json")
            self.ranks[read_json(info)["rank_id"]] = folder
        text = scratch / "text"  # where a database is, the tools read nothing else
        for folder in self.ranks.values():
            shutil.copytree(folder, text / folder.name, ignore=shutil.ignore_patterns("*.db"))
        msprof_analyze("cluster", "-m", "all", "-d", text, "-o", scratch, cwd=scratch)
        self.cluster = scratch / "cluster_analysis_output"
        self.text = {rank: text / folder.name for rank, folder in self.ranks.items()}

    def own(self, rank, name):
        return self.ranks[rank] / "ASCEND_PROFILER_OUTPUT" / name

    def groups(self):
        """{what msprof-analyze calls the group: our name}, as it found out itself."""
        infos = read_json(self.cluster / "communication_group.json")["comm_group_parallel_info"]
        return {info["group_name"]: info["group_id"] for info in infos}

    def of_group(self, file):
        """The only entry of a cluster file: its keys are the groups' ranks, here all."""
        ((_, steps),) = read_json(self.cluster / file).items()
        return steps


class AscendToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ferry-ascend-")
        cls.addClassCleanup(scratch.cleanup)
        cls.runs = []
        for num_ranks in NUM_RANKS:
            folder = pathlib.Path(scratch.name) / str(num_ranks)
            folder.mkdir()
            cls.runs.append(Run(num_ranks, folder))

    def test_every_rank_has_a_folder(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                self.assertEqual(set(one.ranks), set(range(one.num_ranks)))

    def test_steps_are_ours(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                rows = read_csv(one.cluster / "cluster_step_trace_time.csv")
                found = {(int(row["Index"]), row["Step"]): row for row in rows if row["Type"] == "rank"}
                table = {(int(row["rank"]), row["step"]): row for row in read_csv(one.folder / "csv/step.csv")}
                self.assertEqual(set(found), set(table))
                self.assertGreaterEqual(len(found), 5 * one.num_ranks)
                for rank in range(one.num_ranks):
                    for own in read_csv(one.own(rank, "step_trace_time.csv")):
                        row = found[rank, own["Step"]]
                        for column in set(own) - {"Device_id", "Step"}:
                            self.assertEqual(float(row[column]), float(own[column]), column)
                for key, row in found.items():
                    for theirs, ours in STEP_COLUMNS.items():
                        self.assertEqual(float(row[theirs]), float(table[key][ours]), theirs)
                    parts = [float(row[name]) for name in ("Computing", "Communication(Not Overlapped)", "Free")]
                    self.assertAlmostEqual(sum(parts), float(table[key]["window_us"]), places=5)

    def test_groups_are_the_two_exchanges(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                self.assertEqual(set(one.groups().values()), set(GROUPS))
                for info in read_json(one.cluster / "communication_group.json")["comm_group_parallel_info"]:
                    self.assertEqual(info["rank_set"], list(range(one.num_ranks)))

    def test_collectives_are_ours_and_add_up(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                steps = one.of_group("cluster_communication.json")
                own = {rank: read_json(one.own(rank, "communication.json")) for rank in one.ranks}
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
                    for group in one.groups():
                        for rank, found in operators[f"Total Op Info@{group}"].items():
                            for key, value in sums[group, rank].items():
                                self.assertAlmostEqual(found["Communication Time Info"][key], value, places=9)

    def test_links_carry_what_the_traffic_table_says(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                found = {}
                for operators in one.of_group("cluster_communication_matrix.json").values():
                    for group in one.groups():
                        for link, value in operators[f"Total Op Info@{group}"].items():
                            if value["Transport Type"] != "LOCAL":
                                found[link] = found.get(link, 0.0) + value["Transit Size(MB)"]
                rows = read_csv(one.folder / "csv/traffic.csv")
                traffic = {f"{row['source']}-{row['target']}": int(row["bytes"]) for row in rows}
                self.assertEqual({link: round(size * 1e6) for link, size in found.items()}, traffic)
                self.assertEqual(len(traffic), 2 * (one.num_ranks - 1))  # the coordinator and each worker, both ways

    def test_compare_reads_one_rank(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                folders = ["-d", one.ranks[0], "-bp", one.ranks[0], "-o", one.scratch / "compare"]
                output = msprof_analyze("compare", *folders, cwd=one.scratch)
                self.assertEqual(len(list((one.scratch / "compare").glob("*.xlsx"))), 1)
                self.assertIn("Model Profiling Time Distribution", output)

    def test_advisor_finds_the_same_times(self):
        for one in self.runs:
            with self.subTest(ranks=one.num_ranks):
                folders = ["-d", one.ranks[0], "-o", one.scratch / "advisor"]
                output = msprof_analyze("advisor", "all", *folders, "-l", "en", cwd=one.scratch)
                self.assertEqual(len(list((one.scratch / "advisor").glob("*.html"))), 1)
                events = read_json(one.own(0, "trace_view.json"))
                us = {}
                for event in events:
                    if event["ph"] == "X":
                        us[event["name"]] = us.get(event["name"], 0.0) + event["dur"]
                for text, name in (("Computing", "Computing"), ("Uncovered communication", "Communication(Not Overlapped)")):
                    said = re.search(rf"{text}.*?([\d.]+) ?ms", output, re.IGNORECASE)
                    self.assertIsNotNone(said, output)
                    self.assertAlmostEqual(float(said[1]), us[name] / 1000, delta=0.002)


if __name__ == "__main__":
    if not pathlib.Path(FERRY).exists():
        raise SystemExit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    unittest.main(verbosity=2)
