"""msprof-analyze's recipes read the databases of real runs, come to our numbers, and find a rank that was made slow.

Needs PyPI once, for a virtual environment of its own (build/ascend-venv); is skipped where it cannot be had. Environment:
FERRY_BINARY (default build/release/launch/ferry).
"""

import collections
import csv
import os
import pathlib
import re
import sqlite3
import subprocess
import tempfile
import unittest

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
own_venv.use_venv("ascend-venv", "ascend_requirements.txt", "--no-deps")

import msprof  # noqa: E402

BENCH_SECONDS = 300.0
NUM_RANKS = 4
SLOW_RANK = 2
RECIPES = (
    "operator_mfu",  # first what takes longest, beside which the others run
    "module_statistic",
    "slow_rank",
    "slow_link",
    "ep_load_balance",
    "free_analysis",
    "cluster_time_summary",
    "communication_time_sum",
    "communication_matrix_sum",
    "hccl_sum",
    "compute_op_sum",
)
OPTIONS = {"operator_mfu": ["--rank_list", "0,1"]}  # it takes seconds for each rank: the coordinator and one worker


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


def query(path, sql):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(sql)]
    finally:
        database.close()


class AscendDatabaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ferry-ascend-db-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.folder = cls.scratch / "capture"
        command = [ROOT / "launch/mpirun.sh", "-np", NUM_RANKS, FERRY, "bench", "--model", "demo", "--memory", "256MiB"]
        command += ["-p", "64", "-b", "2", "-n", "6", "-r", "1", "--fault", f"slow:{SLOW_RANK}x8", "--trace", cls.folder]
        run(command, BENCH_SECONDS)
        cls.output = {}
        for folder in cls.folder.glob("*_ascend_pt"):
            (info,) = folder.glob("profiler_info_*.json")
            cls.output[int(re.search(r"_(\d+)\.json", info.name)[1])] = folder / "ASCEND_PROFILER_OUTPUT"
        # Each into a database of its own, since they run side by side.
        commands = [
            ["cluster", "-m", recipe, "--export_type", "db", "-d", cls.folder, "-o", cls.scratch / recipe, *OPTIONS.get(recipe, [])]
            for recipe in RECIPES
        ]
        outputs = dict(zip(RECIPES, msprof.msprof_analyze(commands, cls.scratch)))
        cls.complaints = {recipe: msprof.complaints_of(output) for recipe, output in outputs.items() if msprof.complaints_of(output)}
        cls.databases = {}  # by table
        for database in sorted(cls.scratch.glob("*/cluster_analysis_output/cluster_analysis.db")):
            for row in query(database, "select name from sqlite_master where type = 'table'"):
                cls.databases.setdefault(row["name"], database)

    def cluster_rows(self, table):
        return query(self.databases[table], f'select * from "{table}"')

    def database(self, rank):
        return self.output[rank] / f"ascend_pytorch_profiler_{rank}.db"

    def test_every_recipe_is_content(self):
        self.assertEqual(self.complaints, {})

    def test_the_slow_rank_is_named(self):
        votes = {int(row["rankId"]): row["slowAffectCount"] for row in self.cluster_rows("SlowRank")}
        workers = {rank: count for rank, count in votes.items() if rank != 0}  # all wait for the coordinator at times
        self.assertEqual(max(workers, key=workers.get), SLOW_RANK, votes)

    def test_links_are_compared(self):
        if "SlowLinkOps" not in self.databases:
            self.skipTest("no message took longer than others of its size")
        for row in self.cluster_rows("SlowLinkOps"):
            self.assertGreater(row["communicationTime"], 0)

    def test_tokens_of_experts_are_those_of_the_balance_table(self):
        found = {row["rank"]: row["inputShapesSummary"] for row in self.cluster_rows("EPTokensSummary")}
        expected = collections.Counter()
        for row in read_csv(self.folder / "csv/balance.csv"):
            for rank in range(1, NUM_RANKS):
                expected[rank] += int(row[f"rank_{rank}_tokens"])
        self.assertEqual(found, dict(expected))

    def test_steps_are_those_of_the_step_table(self):
        table = {(int(row["rank"]), int(row["step"])): row for row in read_csv(self.folder / "csv/step.csv")}
        rows = {(row["rank"], row["step"]): row for row in self.cluster_rows("ClusterTimeSummary")}
        self.assertEqual(set(rows), set(table))
        names = {
            "computation": "computing_us",
            "communicationNotOverlapComputation": "exposed_us",
            "communicationOverlapComputation": "overlapped_us",
            "communication": "communication_us",
            "free": "free_us",
            "stepTime": "window_us",
        }
        for key, row in rows.items():
            for theirs, ours in names.items():
                self.assertAlmostEqual(row[theirs], float(table[key][ours]), places=3, msg=f"{key} {theirs}")

    def test_operators_are_those_of_the_csv(self):
        for rank in range(NUM_RANKS):
            expected = collections.Counter()
            for row in read_csv(self.output[rank] / "kernel_details.csv"):
                if row["Accelerator Core"] != "COMMUNICATION":
                    expected[row["Type"]] += round(float(row["Duration(us)"]) * 1000)
            found = collections.Counter()
            for row in self.cluster_rows("ComputeOpPerRankStatsByOpType"):
                if row["Rank"] == rank:
                    found[row["OpType"]] += round(row["SumNs"])
            self.assertEqual(found, expected)

    def test_collectives_are_those_of_the_json(self):
        rows = {row["Rank"]: row for row in self.cluster_rows("HcclPerRankStats")}
        for rank in range(NUM_RANKS):
            (text,) = query(self.output[rank] / "analysis.db", "select sum(elapse_time) ms, count(*) n from CommAnalyzerTime")
            (own,) = query(self.database(rank), "select count(*) n, sum(endNs - startNs) ns from COMMUNICATION_OP")
            self.assertEqual(rows[rank]["Count"], own["n"])
            self.assertEqual(round(rows[rank]["SumNs"]), own["ns"])
            self.assertLessEqual(text["ms"], own["ns"] / 1e6 + 1e-6)  # which has those outside of steps, too
            self.assertGreater(text["n"], 0)

    def test_matrix_is_the_traffic_table(self):
        found = collections.Counter()
        for row in self.cluster_rows("ClusterCommunicationMatrix"):
            if row["hccl_op_name"] == "Total Op Info" and row["src_rank"] != row["dst_rank"]:
                found[int(row["src_rank"]), int(row["dst_rank"])] += round(row["transit_size"] * 1e6)
        table = read_csv(self.folder / "csv/traffic.csv")
        self.assertEqual(found, {(int(row["source"]), int(row["target"])): int(row["bytes"]) for row in table})

    def test_modules_hold_every_operator_of_their_layers(self):
        rows = [row for row in self.cluster_rows("ModuleStatistic") if row["rankID"] == 0]
        layers = [row for row in rows if re.search(r"layer \d+", f"{row['parentModule']}/{row['module']}")]
        found = sum(row["totalKernelDuration(ns)"] for row in layers if row["opName"] == "MoeGatingTopK")
        (own,) = query(
            self.database(0),
            "select sum(endNs - startNs) ns from TASK join COMPUTE_TASK_INFO using (globalTaskId) "
            "where name = (select id from STRING_IDS where value = 'MoeGatingTopK')",
        )
        self.assertEqual(found, own["ns"])

    def test_mfu_is_operations_over_the_measured_peak(self):
        table = {(int(row["rank"]), row["operator"]): row for row in read_csv(self.folder / "csv/operator.csv")}
        flops = collections.Counter()
        for row in self.cluster_rows("OperatorMFU"):
            flops[row["rank_id"], row["flops_op_name"]] += row["flops"]
            peak = row["chip_peak_tflops"]  # rounded to two decimals, the share to four
            share = row["flops"] / row["kernel_duration(ns)"] * 1e9 / (peak * 1e12)
            self.assertAlmostEqual(row["mfu"], share, delta=0.006 / peak * share + 1e-4)
        for rank in (0, 1):
            self.assertGreater(sum(of_rank == rank for of_rank, _ in flops), 1)
        for key, flop in flops.items():
            self.assertAlmostEqual(flop / float(table[key]["flop"]), 1, places=2, msg=key)

    def test_free_time_is_where_nothing_ran(self):
        for row in self.cluster_rows("FreeAnalysis"):
            begin, end = round(float(row["startTime(us)"]) * 1000), round(float(row["endTime(us)"]) * 1000)
            (busy,) = query(
                self.database(row["rankId"]),
                "select count(*) n from TASK join COMPUTE_TASK_INFO using (globalTaskId) "
                f"where startNs < {end} and endNs > {begin} and endNs > startNs",
            )
            self.assertEqual(busy["n"], 0)


if __name__ == "__main__":
    if not pathlib.Path(FERRY).exists():
        raise SystemExit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    unittest.main(verbosity=2)
