"""Routing that a run recorded, its summary and exports, its replay in a bench, and `ferry plan` on it."""

import json
import pathlib
import struct
import subprocess
import tempfile
import xml.etree.ElementTree

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT, on_host

LAYERS, EXPERTS, TOP_K = 8, 64, 8  # of the demo
HOST = {
    "name": "made up", "count": 5, "cores": 16, "ram_bytes": 6e10, "read_bytes_per_s": 1e11, "flops_per_s": 1e13,
    "code_flops_per_s": 2e13, "link_s": 5e-5, "message_s": 1e-5, "link_bytes_per_s": 1.25e9, "measured": None, "role": "any",
    "load_bytes_per_s": 1e9, "handling": [], "exchange": [],
}

GENERATE = ("generate", "--model", "demo", "--memory", "64MiB", "--token-ids", "443,3808,1132", "--max-tokens", "6", "--speculate", "0")
MPIRUN = (str(ROOT / "launch/mpirun.sh"), "-np", "3")


def run(*arguments, launcher=(), code=0):
    command = [*launcher, FERRY, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr


def read_trace(path):
    """The header and [(id, phase, rows, ids as bytes)] of a trace of at most 256 experts."""
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"FERRYRT1"
    (size,) = struct.unpack_from("<I", data, 8)
    header, at, steps = json.loads(data[12 : 12 + size]), 12 + size, []
    while at < len(data):
        step, phase, rows = struct.unpack_from("<QII", data, at)
        count = len(header["layers"]) * rows * header["top_k"]
        steps.append((step, phase, rows, data[at + 16 : at + 16 + count]))
        at += 16 + count
    return header, steps


class PlanTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        cls.capture = cls.path / "capture"
        run(*GENERATE, "--trace", cls.capture, "--trace-routing")
        cls.hosts = cls.path / "hosts.json"
        cls.hosts.write_text(json.dumps({"format": "ferry-hosts", "version": 3, "hosts": [HOST]}))

    def test_a_capture_holds_what_dump_says_of_the_same_prompt(self):
        header, steps = read_trace(self.capture / "routing.ferryrt")
        self.assertEqual((header["num_experts"], header["top_k"], header["layers"]), (EXPERTS, TOP_K, list(range(LAYERS))))
        self.assertEqual([(phase, rows) for _, phase, rows, _ in steps], [(0, 3)] + [(1, 1)] * 5)
        dump = self.path / "dump.safetensors"
        run("dump", "--model", "demo", "--memory", "64MiB", "--token-ids", "443,3808,1132", "--out", dump, "--taps")
        data = dump.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        tensors = json.loads(data[8 : 8 + size])
        ids = b""
        for layer in range(LAYERS):
            name = f"layers.{layer}.topk_ids"
            begin, _ = tensors[name]["data_offsets"]
            ids += bytes(struct.unpack_from(f"<{3 * TOP_K}i", data, 8 + size + begin))
        self.assertEqual(steps[0][3], ids)

    def test_routing_is_the_same_bytes_on_any_number_of_ranks(self):
        run(*GENERATE, "--trace", self.path / "ranks", "--trace-routing", launcher=MPIRUN)
        self.assertEqual((self.path / "ranks/routing.ferryrt").read_bytes(), (self.capture / "routing.ferryrt").read_bytes())

    def test_summary_and_exports(self):
        csv = self.path / "loads.csv"
        text = run("trace", "routing", self.capture, "--out", csv)
        self.assertIn("8 layers of 64 experts, 8 a token; 8 rows in 6 steps", text)
        lines = csv.read_text().splitlines()
        self.assertEqual(lines[0], "layer,expert,rows,touched")
        self.assertEqual(sum(int(line.split(",")[2]) for line in lines[1:]), 8 * LAYERS * TOP_K)
        again = self.path / "again.ferryrt"
        run("trace", "routing", self.capture, "--out", again)
        self.assertEqual(again.read_bytes(), (self.capture / "routing.ferryrt").read_bytes())

    def test_a_bench_replays_it_on_any_number_of_ranks(self):
        bench = ("bench", "--model", "demo", "--memory", "64MiB", "-p", "16", "-n", "4", "-b", "2", "-r", "1", "--json")
        for launcher in ((), MPIRUN):
            replayed = json.loads(run(*bench, "--routing", self.capture, launcher=launcher))
            self.assertEqual(replayed["routing"], str(self.capture))
        self.assertIsNone(json.loads(run(*bench))["routing"])

    def test_other_shapes_and_damaged_files_are_one_line(self):
        model = ROOT / "tests/golden/qwen3_5_moe"
        said = run("bench", "--model", model, "--memory", "64MiB", "--routing", self.capture, code=2)
        self.assertIn("routing of 8 layers of 64 experts, 8 a token; allowed: of the model's", said.splitlines()[-1])
        damaged = self.path / "damaged.ferryrt"
        damaged.write_bytes((self.capture / "routing.ferryrt").read_bytes()[:-1])
        for command in (("trace", "routing", damaged), ("plan", "--model", "demo", "--hosts", self.hosts, "--trace", damaged)):
            said = run(*command, code=2)
            self.assertEqual(len(said.splitlines()), 1, said)
            self.assertIn("damaged.ferryrt", said)
        for bad in (("--workers", "0..65"), ("--redundancy", "3x"), ("--link", "10"), ("--skew", "-1"), ("--batch", "a")):
            said = run("plan", "--model", "demo", "--hosts", self.hosts, *bad, code=2)
            self.assertIn("allowed", said)
        self.assertIn("--measure", run("plan", "--model", "demo", code=2))
        self.assertIn("--trace", run("generate", "--model", "demo", "--prompt", "a", "--trace-routing", code=2))
        self.assertIn("no router", run("generate", "--model", ROOT / "tests/golden/qwen3_5", "--token-ids", "1", "--memory",
                                       "16MiB", "--max-tokens", "1", "--trace", self.path / "dense", "--trace-routing", code=2))

    def test_a_plan_has_all_configurations_and_marks_the_best(self):
        svg = self.path / "plan.svg"
        plan = ("plan", "--model", "demo", "--hosts", self.hosts, "--trace", self.capture, "--workers", "0..4", "--batch", "1,16",
                "--redundancy", "0,25%,2x", "--coordinators", "1,2", "--svg", svg)
        answer = json.loads(run(*plan, "--json"))
        rows = answer["configurations"]
        self.assertEqual(len(rows), (1 + 4 * 3) + (1 + 4 * 3 * 2))  # two coordinators need two sequences
        self.assertEqual(sum(row["is_best"] for row in rows), 2)
        for row in rows:
            self.assertAlmostEqual(row["decode_tokens_per_s"] * row["decode"]["sum_s"], row["batch"], places=6)
            death, merged = row["after_death"], row["merged"]
            self.assertEqual(death is None, row["workers"] == 0)
            if row["redundancy"] == "2x" and row["workers"] > 1:
                self.assertEqual(death["lost_share"], 0)
            if row["workers"] == 1:  # nobody is left to take anything over
                self.assertIsNone(death["degraded_s"])
            elif row["workers"] > 1:
                self.assertGreater(death["adopted_tokens_per_s"], 0)
            self.assertEqual(merged is None, row["coordinators"] == 1)
            if merged:
                self.assertTrue(0 <= merged["assumed_share"] <= 1)
        self.assertEqual([line["batch"] for line in answer["advice"]], [1, 16])
        xml.etree.ElementTree.fromstring(svg.read_text())
        text = run(*plan)
        self.assertIn("balancing (EPLB): ", text)
        self.assertIn("a coordinator more: ", text)
        self.assertIn("of the answers merged", text)

    def test_contexts_and_dtypes_of_the_cache_are_planned_for(self):
        plan = ("plan", "--model", "demo", "--hosts", self.hosts, "--workers", "0", "--batch", "4", "--json")
        contexts = ("-d", "0,1024")
        near, far = json.loads(run(*plan, *contexts))["configurations"]
        self.assertEqual((near["depth"], far["depth"]), (0, 1024))
        self.assertTrue(near["is_best"] and far["is_best"])
        self.assertGreater(far["decode"]["coordinator_s"], near["decode"]["coordinator_s"])
        self.assertGreater(far["prefill"]["coordinator_s"], near["prefill"]["coordinator_s"])
        of_tokens = far["cache_bytes"] - near["cache_bytes"]
        for dtype, share in (("bf16", 1), ("int8", (64 + 2) / (64 * 2))):  # heads of 64 columns: a code each, and an exponent for 32
            rows = json.loads(run(*plan, *contexts, "--kv-cache-dtype", dtype))["configurations"]
            self.assertEqual(rows[1]["cache_bytes"] - rows[0]["cache_bytes"], of_tokens * share, dtype)
        self.assertIn("allowed: up to", run(*plan, "-d", "1048576", code=2))
        self.assertIn("--kv-cache-dtype", run(*plan, "--dtype", "f32", "--kv-cache-dtype", "bf16", code=2))

    def test_roles_say_which_machines_carry_coordinators(self):
        hosts = self.path / "roles.json"
        machines = [dict(HOST, name="big", count=2, role="coordinators"), dict(HOST, name="small", count=4, role="workers")]
        hosts.write_text(json.dumps({"format": "ferry-hosts", "version": 3, "hosts": machines}))
        plan = ("plan", "--model", "demo", "--hosts", hosts, "--workers", "4", "--batch", "16")
        answer = json.loads(run(*plan, "--coordinators", "1,2", "--json"))
        self.assertEqual([(row["coordinator_hosts"], row["worker_hosts"]) for row in answer["configurations"]], [(1, 4), (2, 4)])
        machines[0]["role"] = "workers"
        hosts.write_text(json.dumps({"format": "ferry-hosts", "version": 3, "hosts": machines}))
        self.assertIn("no host may carry a coordinator", run(*plan, code=2))

    @on_host
    def test_this_machine_is_measured_once_and_planned_for_again(self):
        hosts = self.path / "measured.json"
        model = ROOT / "tests/golden/qwen3_5_moe"
        measured = json.loads(run("plan", "--model", model, "--measure", "--threads", "1", "--save", hosts, "--json"))
        self.assertTrue(measured["hosts"][0]["is_measured"])
        again = json.loads(run("plan", "--model", model, "--hosts", hosts, "--json"))
        self.assertEqual(again["configurations"], measured["configurations"])


if __name__ == "__main__":
    ferry_job.main()
