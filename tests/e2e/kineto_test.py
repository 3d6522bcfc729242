"""HolisticTraceAnalysis and TensorBoard's PyTorch plugin, as they are, read kineto/ of a real run and come to our numbers.

Needs PyPI once, for a virtual environment of its own (build/kineto-venv); is skipped where it cannot be had. The plugin's loader
runs here without TensorBoard's server. Environment: FERRY_BINARY (default build/release/launch/ferry), FERRY_TRACE (a folder with
a capture of 4 ranks, instead of making one).
"""

import collections
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
NUM_RANKS = 4
BENCH_SECONDS = 300.0


def make_capture(folder):
    command = [ROOT / "launch/mpirun.sh", "-np", str(NUM_RANKS), FERRY, "bench", "--model", "demo", "--memory", "256MiB"]
    command += ["-p", "37", "-b", "3", "-n", "5", "-r", "1", "--trace", folder]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BENCH_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"ferry bench ended with {done.returncode}: {done.stdout}{done.stderr}")


def read_csv(path):
    with open(path, newline="") as lines:
        return list(csv.DictReader(lines))


class KinetoTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ferry-kineto-")
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.folder = pathlib.Path(os.environ.get("FERRY_TRACE", cls.scratch / "capture"))
        if "FERRY_TRACE" not in os.environ:
            make_capture(cls.folder)
        # What the report says of each rank's whole time, in us.
        cls.overlap = {}
        for folder in cls.folder.glob("*_ascend_pt"):
            (info,) = folder.glob("profiler_info_*.json")
            rank = json.loads(info.read_text())["rank_id"]
            sums = collections.Counter()
            for event in json.loads((folder / "ASCEND_PROFILER_OUTPUT/trace_view.json").read_text()):
                if event["ph"] == "X":
                    sums[event["name"]] += event["dur"]
            cls.overlap[rank] = sums
        cls.operators = collections.defaultdict(dict)
        for row in read_csv(cls.folder / "csv/operator.csv"):
            if row["kind"] != "host":
                cls.operators[int(row["rank"])][row["operator"]] = row
        cls.steps = sorted({int(row["step"]) for row in read_csv(cls.folder / "csv/step.csv")})

    @classmethod
    def analysis(cls):
        if not hasattr(cls, "_analysis"):
            from hta.trace_analysis import TraceAnalysis

            cls._analysis = TraceAnalysis(trace_dir=str(cls.folder / "kineto"), include_last_profiler_step=True)
        return cls._analysis

    def test_hta_divides_time_as_we_do(self):
        breakdown = self.analysis().get_temporal_breakdown(visualize=False).set_index("rank")
        self.assertEqual(sorted(breakdown.index), list(range(NUM_RANKS)))
        for rank, own in self.overlap.items():
            found = breakdown.loc[rank]
            self.assertAlmostEqual(found["compute_time(us)"], own["Computing"], delta=0.01)
            self.assertAlmostEqual(found["non_compute_time(us)"], own["Communication(Not Overlapped)"], delta=0.01)

    def test_hta_finds_the_same_overlap(self):
        overlaps = self.analysis().get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
        for rank, own in self.overlap.items():
            overlapped = own["Communication"] - own["Communication(Not Overlapped)"]
            self.assertAlmostEqual(overlaps[rank], 100 * overlapped / own["Communication"], delta=0.01)

    def test_hta_sums_up_kernels_as_the_operator_table(self):
        _, kernels = self.analysis().get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
        compute = kernels[kernels["kernel_type"] != "COMMUNICATION"]
        found = {(row["rank"], row["name"]): row["sum (us)"] for _, row in compute.iterrows() if row["sum (us)"] > 0}
        for rank, operators in self.operators.items():
            for name, row in operators.items():
                if float(row["total_us"]) > 0:
                    self.assertAlmostEqual(found.pop((rank, name)), float(row["total_us"]), delta=0.01, msg=f"{rank} {name}")
        self.assertEqual(found, {})

    def test_hta_ties_kernels_to_their_launches(self):
        (launches, *_) = self.analysis().get_cuda_kernel_launch_stats(ranks=[0], visualize=False).values()
        self.assertGreater(len(launches), 100)
        self.assertEqual(launches["launch_delay"].abs().max(), 0)

    def test_the_plugin_shows_steps_and_operators(self):
        from torch_tb_profiler import consts
        from torch_tb_profiler.profiler.data import RunProfileData

        for rank in range(NUM_RANKS):
            file = self.folder / f"kineto/rank-{rank}.pt.trace.json"
            worker, span = consts.WORKER_PATTERN.match(file.name).groups()
            self.assertEqual((worker, span), (f"rank-{rank}", None))
            with self.assertNoLogs("torch_tb_profiler", level="ERROR"):
                profile = RunProfileData.parse(worker, span, str(file), str(self.scratch))
            self.assertTrue(profile.has_kernel and profile.has_runtime)
            self.assertEqual([int(name) for name in profile.steps_names], self.steps)
            found = {operator.name: operator for operator in profile.op_list_groupby_name}
            for name, row in self.operators[rank].items():
                count = int(row["count"])
                self.assertEqual(found[name].calls, count, name)
                # Its kernels' sum; a kernel of no length is none.
                self.assertAlmostEqual(found[name].self_device_duration, float(row["total_us"]), delta=0.01 + 0.001 * count)

    def test_flops_are_those_of_the_operator_table(self):
        flops = collections.Counter()
        for event in json.loads((self.folder / "kineto/rank-0.pt.trace.json").read_text())["traceEvents"]:
            if event.get("cat") == "cpu_op":
                flops[event["name"]] += event["args"].get("flops", 0)
        for name, row in self.operators[0].items():
            self.assertAlmostEqual(flops[name], float(row["flop"] or 0), delta=1e-6 * flops[name] + int(row["count"]), msg=name)
        self.assertGreater(sum(flops.values()), 1e6)


def main():
    os.environ["PYTHONWARNINGS"] = "ignore"  # the readers warn of their own ways, not of the trace
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else it rounds to microseconds, which many operators do not take
    own_venv.use_venv("kineto-venv", "kineto_requirements.txt", "--no-deps")
    if "FERRY_TRACE" not in os.environ and not pathlib.Path(FERRY).exists():
        sys.exit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
