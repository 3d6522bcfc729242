"""Captures of real jobs: their invariants, how servers start and stop them, and whether the report names the culprit."""

import csv
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import ferry_job
import grpc
from ferry.v1 import profile_pb2 as profile
from ferry.v1 import profile_pb2_grpc
from ferry_job import DEMO, FERRY, ROOT, LIMIT_SECONDS, OpenCall, endless_request, on_host, pace, pb, wait_for


def ferry(*arguments, ranks=1):
    """Runs `ferry ARGUMENTS` and returns what it printed."""
    launcher = [] if ranks == 1 else [str(ROOT / "launch/mpirun.sh"), "-np", str(ranks)]
    done = subprocess.run([*launcher, FERRY, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"ferry {arguments} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def table(capture, name):
    """The rows of csv/NAME.csv as dictionaries."""
    with open(capture / "csv" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def run_facts(capture):
    return table(capture, "run")[0]


def ns(microseconds):
    """"1.234" us as 1234: exact, as the tables have three decimals."""
    whole, _, fraction = microseconds.partition(".")
    assert len(fraction) == 3, microseconds
    return int(whole + fraction)


def findings(capture):
    return json.loads((capture / "report.json").read_text())["findings"]


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        super().setUp()
        self._folder = tempfile.TemporaryDirectory(prefix="ferry-trace-")
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)


class BenchTest(Folder):
    """Four ranks on the demo checkpoint."""

    def capture(self, *arguments, ranks=4):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        bench = ["bench", "--model", "demo", "--memory", "256MiB", "-p", "200", "-n", "12", "-b", "4", "-r", "1", "--peer-timeout", "600"]
        ferry(*bench, "--trace", folder, *arguments, ranks=ranks)
        return folder

    def check_windows(self, capture, ranks):
        rows = table(capture, "step")
        self.assertEqual(len(rows) % ranks, 0)
        self.assertGreater(len(rows), 30 * ranks)
        for row in rows:
            parts = ns(row["computing_us"]) + ns(row["exposed_us"]) + ns(row["free_us"])
            self.assertEqual(parts, ns(row["window_us"]), row)
            self.assertEqual(ns(row["overlapped_us"]) + ns(row["exposed_us"]), ns(row["communication_us"]), row)

    def check_traffic(self, capture):
        sent = {}
        for row in table(capture, "transfer"):
            if row["operator"].endswith(".send") and row["bytes"]:
                sent[row["rank"]] = sent.get(row["rank"], 0) + int(row["bytes"])
        matrix = {}
        for row in table(capture, "traffic"):
            matrix[row["source"]] = matrix.get(row["source"], 0) + int(row["bytes"])
        self.assertTrue(sent)
        self.assertEqual({r: b for r, b in matrix.items() if b}, {r: b for r, b in sent.items() if b})

    def check_requests(self, capture):
        report = json.loads((capture / "report.json").read_text())
        requests = next(t for t in report["tables"] if t["id"] == "request")
        names = [column["name"] for column in requests["columns"]]
        first = ["tokenize_us", "queue_us", *(n for n in names if n.startswith("prefill_") and n.endswith("_us"))]
        later = [n for n in names if n.startswith("decode_") and n.endswith("_us")]
        self.assertGreaterEqual(len(requests["rows"]), 5)
        for row in requests["rows"]:
            cells = dict(zip(names, row))
            ttft = sum(round((cells[n] or 0) * 1000) for n in first)
            self.assertEqual(ttft, round(cells["ttft_us"] * 1000), cells)
            self.assertEqual(ttft + sum(round((cells[n] or 0) * 1000) for n in later), round(cells["total_us"] * 1000), cells)

    def check_arrows(self, capture, ranks):
        events = json.loads((capture / "trace.json").read_text())["traceEvents"]
        dispatches = sum(e["name"] == "MoeDistributeDispatch" and e["cat"] == "comp" for e in events)
        starts = [e["id"] for e in events if e["ph"] == "s"]
        ends = [e["id"] for e in events if e["ph"] == "f"]
        self.assertGreater(dispatches, 100)
        self.assertEqual(len(starts), len(set(starts)))
        self.assertEqual(sorted(starts), sorted(ends))
        self.assertEqual(dispatches, len(starts), "a dispatch without its arrow to the experts and back")
        self.assertEqual({e["pid"] for e in events if e["ph"] == "X"}, set(range(ranks)))

    def test_every_window_message_request_and_arrow_adds_up(self):
        for arguments in (("mpi",), ("gloo", "--micro-batch", "32", "--combine", "fast")):
            with self.subTest(arguments):
                capture = self.capture("--transport", *arguments)
                self.check_windows(capture, 4)
                self.check_traffic(capture)
                self.check_requests(capture)
                self.check_arrows(capture, 4)
                run = run_facts(capture)
                for zero in ("lost_records", "causality_violations", "unpaired_transfers"):
                    self.assertEqual(run[zero], "0", zero)
                self.assertEqual(run["clock_bound_us"], "0.000", "one host, one clock")

    def test_a_skewed_and_drifting_clock_is_brought_back(self):
        capture = self.capture("--transport", "gloo", "--trace-clock-skew", "2:-7000000000:45")
        run = run_facts(capture)
        self.assertEqual(run["causality_violations"], "0")
        self.assertGreater(float(run["clock_bound_us"]), 0)
        self.check_windows(capture, 4)
        self.check_arrows(capture, 4)

    def test_levels_threads_and_commands_on_captures(self):
        one, two, joined = self.folder / "one", self.folder / "two", self.folder / "joined"
        generate = ["generate", "--model", "demo", "--memory", "256MiB", "--threads", "2", "--chat", "What does river mean?"]
        ferry(*generate, "--profile", "2", "--trace", one)
        ferry(*generate, "--trace", two, ranks=3)
        names = {e["name"] for e in json.loads((one / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"}
        self.assertIn("pool_share", names)
        self.assertIn("GroupedMatmul", {name.split(".")[0] for name in names})
        before = (two / "report.txt").read_text()
        self.assertEqual(ferry("trace", "report", two), before)
        self.assertIn("Before: ", ferry("trace", "diff", one, two))
        ferry("trace", "merge", one, two, "--out", joined)
        events = json.loads((joined / "trace.json").read_text())["traceEvents"]
        self.assertEqual({e["pid"] for e in events if e["ph"] == "X"}, {0, 1, 2, 3})
        made = {path.name for path in joined.iterdir()} - {f"rank-{rank}.spans" for rank in range(4)}
        self.assertEqual(made, {"capture.json", "trace.pftrace", "trace.json", "stacks.pb.gz", "stacks.speedscope.json"})
        done = subprocess.run([FERRY, "trace", "report", str(joined)], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("several runs, merged", done.stderr)
        os.remove(two / "trace.pftrace")
        ferry("trace", "export", two)
        self.assertTrue((two / "trace.pftrace").exists())

    def test_bad_folders_are_refused_in_one_line(self):
        taken = self.folder / "taken"
        taken.mkdir()
        (taken / "capture.json").write_text("{}")
        for arguments in (["bench", "--model", "demo", "--trace", taken], ["bench", "--model", "demo", "--trace", "/proc/none"],
                          ["trace", "report", self.folder], ["trace", "diff", taken, taken]):
            done = subprocess.run([FERRY, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertIn(done.returncode, (1, 2))
            self.assertRegex(done.stderr, r"\Aferry: error: [^\n]+\n\Z")
        for arguments, said in ((["report", self.folder], "holds no capture; allowed: a folder with a capture.json"),
                                (["report", taken / "capture.json"], "is no capture; allowed: the folder of one, or a kept step"),
                                (["routing", taken], "holds no routing.ferryrt; allowed: a capture with --trace-routing")):
            done = subprocess.run([FERRY, "trace", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)


class DraftsTest(Folder):
    """A text with three drafts a step, told by the run itself and by its capture."""

    def test_steps_that_verify_are_seen_as_such(self):
        capture = self.folder / "capture"
        command = [FERRY, "generate", "--model", "demo", "--prompt", "The kernel", "--max-tokens", "60", "--ignore-eos",
                   "--speculate", "3", "--json", "--trace", capture]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_SECONDS).stdout)["drafts"]
        places = table(capture, "draft_place")
        self.assertEqual([int(row["tried"]) for row in places], told["tried"])
        self.assertEqual([int(row["right"]) for row in places], told["right"])
        for row in table(capture, "draft"):
            parts = ns(row["useful_us"]) + ns(row["drafting_us"]) + ns(row["wasted_us"])
            self.assertAlmostEqual(parts, ns(row["wall_us"]), delta=2, msg=row)  # each part is rounded
        events = json.loads((capture / "trace.json").read_text())["traceEvents"]
        for category, name in (("step", None), ("request", "request.verify")):
            found = [e["args"] for e in events if e.get("cat") == category and name in (None, e["name"])]
            self.assertEqual(sum(args.get("drafts", 0) for args in found), sum(told["tried"]), category)
            self.assertEqual(sum(args.get("kept", 0) for args in found), sum(told["right"]), category)
        steps = len([e for e in events if e.get("cat") == "step"])
        self.assertEqual(len([e for e in events if e["name"] == "draft" and e["cat"] == "host"]), steps)


    def test_a_benchmark_of_drafts_shows_them(self):
        capture = self.folder / "capture"
        told = json.loads(ferry("bench", "--model", "demo", "--memory", "256MiB", "-p", "16", "-n", "20", "-b", "1", "-r", "1",
                                "--speculate", "2", "--json", "--trace", capture))["drafts"][0]
        places = table(capture, "draft_place")
        for name in ("tried", "right"):  # the same text twice: once for its tokens to be compared, once for its time
            self.assertEqual([int(row[name]) for row in places], [2 * count for count in told[name]])


class ServedTest(Folder, ferry_job.JobTest):
    """A server under load, asked over HTTP and gRPC."""

    def post(self, path, body=None):
        """(status, answer)"""
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.job.http_address}{path}", data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def serve(self, *arguments, **options):
        self.job = self.start("--trace-dir", str(self.folder), *arguments, **options)
        self.profile = profile_pb2_grpc.ProfileStub(self.job.channel)
        return self.job

    def await_tokens(self, call, count):
        """So many more than there are now, or the end of the stream."""
        wanted = len(call.token_ids) + count
        wait_for(lambda: len(call.token_ids) >= wanted or call.ended_at is not None, f"{count} more tokens", self.job.log)

    def assert_alive(self):
        self.assertEqual(len(self.job.generate(endless_request(max_tokens=5)).token_ids), 5)

    def test_http_starts_and_stops_under_load(self):
        job = self.serve(*pace(1, 2))
        calls = [OpenCall(job, endless_request(seed=i, max_tokens=100)) for i in range(4)]
        for call in calls:
            call.wait_for_token()
        status, started = self.post("/start_profile")
        self.assertEqual(status, 200, started)
        self.assertEqual(self.post("/start_profile")[0], 409)
        self.await_tokens(calls[-1], 10)
        status, stopped = self.post("/stop_profile", {"wait": True})
        self.assertEqual((status, stopped), (200, started))
        status, answer = self.post("/stop_profile")
        self.assertEqual(status, 409)
        self.assertIn("no capture is running", answer["error"]["message"])
        for call in calls:
            self.assertTrue(call.wait())
            self.assertIsNone(call.error)
            self.assertEqual(len(call.token_ids), 100, "a capture must not cost a token")
        capture = pathlib.Path(started["output_dir"])
        self.assertEqual(run_facts(capture)["ranks"], "3")
        self.assertEqual(run_facts(capture)["unpaired_transfers"], "0")
        self.assertEqual(len(table(capture, "step")) % 3, 0)

    def test_curl_without_a_body(self):
        self.serve(ranks=1)
        curl = shutil.which("curl")
        if curl is None:
            self.skipTest("curl is missing")
        done = subprocess.run([curl, "-s", "-X", "POST", f"http://{self.job.http_address}/start_profile"], capture_output=True, text=True)
        self.assertIn("output_dir", json.loads(done.stdout))
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)

    def test_bad_requests_are_answered_and_the_server_goes_on(self):
        self.serve(ranks=1)
        for body in ({"level": 7}, {"num_steps": -1}, {"start_step": "x"}, {"max_bytes": 1}, {"routing": 1}, {"with_stack": True}, {"output_dir": 5}):
            status, answer = self.post("/start_profile", body)
            self.assertEqual(status, 400, body)
            self.assertIn(next(iter(body)), answer["error"]["message"])
            self.assertIn("allowed", answer["error"]["message"])
        status, answer = self.post("/start_profile", {"output_dir": "/proc/none"})
        self.assertEqual(status, 400)
        self.assertIn("/proc/none", answer["error"]["message"])
        self.assertIn("--trace-dir", answer["error"]["message"])
        self.assert_alive()

    def test_grpc_counts_steps_saves_and_tells_its_state(self):
        job = self.serve("--speculate", "0", transport="gloo")
        with self.assertRaises(grpc.RpcError) as caught:
            self.profile.Stop(profile.StopProfileRequest())
        self.assertEqual(caught.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        folder = self.folder / "counted"
        self.profile.Start(profile.StartProfileRequest(output_dir=str(folder), start_step=3, num_steps=10, routing=True))
        job.generate(endless_request(max_tokens=40))
        wait_for(self.is_idle, "the end of the capture", lambda: self.profile.GetStatus(profile.GetProfileStatusRequest()))
        self.assertEqual(len(table(folder, "step")), 10 * 3)
        routed = (folder / "routing.ferryrt").read_bytes()
        self.assertIn(b'"num_steps":10,"num_left_out":0}', routed)
        self.assertTrue(routed.startswith(b"FERRYRT1"))
        saved = self.profile.Save(profile.SaveProfileRequest(wait=True))
        self.assertGreater(int(run_facts(pathlib.Path(saved.output_dir))["steps"]), 20)
        self.assertEqual(self.profile.GetStatus(profile.GetProfileStatusRequest()).output_dir, saved.output_dir)
        self.assert_alive()

    def test_a_saved_profile_has_the_numbers_of_its_own_steps(self):
        job = self.serve("--speculate", "0", ranks=3)
        long = OpenCall(job, endless_request(max_tokens=8000))
        wait_for(lambda: len(long.token_ids) > 2500 or long.ended_at is not None, "so many tokens that every ring is full", job.log)
        long.cancel()
        counted = self.folder / "counted"
        self.profile.Start(profile.StartProfileRequest(output_dir=str(counted), num_steps=40, level=0))
        job.generate(endless_request(seed=2, max_tokens=60))
        wait_for(self.is_idle, "the end of the capture", lambda: self.profile.GetStatus(profile.GetProfileStatusRequest()))
        # From here no step runs, so the counted ones are still there however long a busy machine takes.
        saved = pathlib.Path(self.profile.Save(profile.SaveProfileRequest(wait=True)).output_dir)
        run = run_facts(saved)
        self.assertEqual((run["unpaired_transfers"], run["lost_records"]), ("0", "0"))
        self.assertIn(" serve ", run["command"])
        self.assertFalse([finding for finding in findings(saved) if finding["kind"] == "lost_records"])
        steps = table(saved, "step")
        own = [row for row in steps if row["rank"] == "0"]
        self.assertLess(ns(own[0]["begin_us"]), 10, "the wall begins with the first step")
        self.assertAlmostEqual(1e6 * float(run["wall_s"]), float(own[-1]["begin_us"]) + float(own[-1]["window_us"]), delta=501)
        # Every token goes to 8 experts in each of 8 layers.
        routed = sum(int(row["tokens"]) for row in table(saved, "expert"))
        self.assertEqual(routed, 64 * int(run["step_tokens"]))
        self.assertEqual([row["began"] for row in table(saved, "request")], ["before", "inside"])
        fresh = {(row["step"], row["rank"]): row for row in table(counted, "step")}
        again = [row for row in steps if (row["step"], row["rank"]) in fresh]
        self.assertEqual(len(again), len(fresh))
        self.assertEqual(len(fresh), 40 * 3)
        for row in again:
            other = fresh[row["step"], row["rank"]]
            for name in ("window_us", "computing_us", "exposed_us", "free_us"):
                # Two fits of the same counter differ by parts per million.
                near = 0.01 + 1e-5 * float(other["window_us"])
                self.assertAlmostEqual(float(row[name]), float(other[name]), delta=near, msg=(name, row, other))

    def is_idle(self):
        status = self.profile.GetStatus(profile.GetProfileStatusRequest())
        return status.state == profile.GetProfileStatusResponse.STATE_IDLE

    def test_a_full_disk_is_reported_and_the_server_goes_on(self):
        self.serve(ranks=2)
        full = self.folder / "full"
        self.assertEqual(self.post("/start_profile", {"output_dir": str(full)})[0], 200)
        # Once it has begun, the folder is another one with hardly any room.
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(full)], capture_output=True).returncode != 0:
            self.skipTest("nothing can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(full)], check=True)
        self.assert_alive()
        status, answer = self.post("/stop_profile", {"wait": True})
        self.assertEqual(status, 409)
        self.assertIn("No space left", answer["error"]["message"])
        self.assertIn("No space left", self.profile.GetStatus(profile.GetProfileStatusRequest()).error)
        self.assertEqual(self.post("/start_profile")[0], 200)
        self.assert_alive()
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)

    def check_loss(self, is_capturing):
        job = self.serve(*pace(1, 2), transport="gloo")
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        if is_capturing:
            self.assertEqual(self.post("/start_profile", {"output_dir": "cut"})[0], 200)
        self.await_tokens(call, 20)
        job.kill_rank(1)
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertNotIn(job.wait(), (0, None), job.log())
        captures = list(self.folder.glob("cut" if is_capturing else "lost-*"))
        self.assertEqual(len(captures), 1, job.log())
        report = ferry("trace", "report", captures[0])
        self.assertIn("Steps", report)
        self.assertGreater(len(table(captures[0], "step")), 3)
        self.assert_no_ranks_left(job)

    def test_a_worker_dies_during_a_capture(self):
        self.check_loss(is_capturing=True)

    def test_the_last_steps_survive_a_lost_worker(self):
        self.check_loss(is_capturing=False)

    def test_a_bounded_capture_says_what_it_lost(self):
        job = self.serve()
        folder = self.folder / "bounded"
        self.post("/start_profile", {"output_dir": str(folder), "max_bytes": 64 * 1024})
        job.generate(endless_request(max_tokens=100))
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)
        run = run_facts(folder)
        self.assertGreater(int(run["lost_records"]), 0)
        self.assertLessEqual(int(run["records"]), 3 * 64 * 1024 // 32)
        self.assertIn("lost_records", [finding["kind"] for finding in findings(folder)])

    def test_a_starved_queue_is_named(self):
        """The worker stands still until all calls wait, so that they wait whatever the machine does."""
        job = self.serve("--max-seqs", "1", *pace(1), ranks=2)
        folder = self.folder / "starved"
        self.post("/start_profile", {"output_dir": str(folder)})
        worker = job.ranks()[1]
        os.kill(worker, signal.SIGSTOP)
        try:
            calls = [OpenCall(job, endless_request(seed=i, max_tokens=20)) for i in range(6)]
            load = lambda: job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS)
            wait_for(lambda: load().running_requests + load().waiting_requests == len(calls), "all calls in progress", load)
        finally:
            os.kill(worker, signal.SIGCONT)
        for call in calls:
            self.assertTrue(call.wait())
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)
        starved = [finding for finding in findings(folder) if finding["kind"] == "starved"]
        self.assertEqual(len(starved), 1, findings(folder))
        self.assertIn("slot", starved[0]["text"])

    @on_host
    def test_a_stopped_rank_is_named(self):
        job = self.serve(ranks=4)
        call = OpenCall(job, endless_request(max_tokens=8000))  # of seconds
        self.assertTrue(call.wait_for_token(), call.error)
        tries = []
        for number in range(4):  # a host that pauses this machine as a whole stops other ranks as well
            stopped_ms, named = self.capture_stops(job, self.folder / f"slow-{number}")
            worst = max(named, key=lambda finding: finding["saved_ms"], default=None)
            tries.append((stopped_ms, worst))
            # Ranks that wait for a core meanwhile hide some of it.
            if worst and worst["rank"] == 2 and 0.3 * stopped_ms < worst["saved_ms"] < 1.5 * stopped_ms:
                break
        else:
            self.fail(tries)
        call.cancel()

    def capture_stops(self, job, folder):
        """Stops rank 2 six times during a capture: (milliseconds, what findings say of stopped ranks)."""
        victim = job.ranks()[2]
        self.post("/start_profile", {"output_dir": str(folder)})
        stopped_ms = 0
        for _ in range(6):
            time.sleep(0.05)
            begin = time.monotonic()
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(victim, signal.SIGCONT)
            stopped_ms += 1e3 * (time.monotonic() - begin)
        time.sleep(0.05)
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)
        return stopped_ms, [finding for finding in findings(folder) if finding["kind"] == "stopped"]

    def test_a_hot_expert_is_shown(self):
        model = self.folder / "hot"
        shutil.copytree(DEMO, model)
        layer, expert = 3, 7
        outdo_expert(model, layer, expert, other=52, factor=4.0)
        job = self.serve(ranks=3, model=model)
        folder = self.folder / "capture"
        self.post("/start_profile", {"output_dir": str(folder)})
        for question in ("What does river mean?", "What does courage mean?", "What does bridge mean?"):
            job.generate(ferry_job.chat_request(question, max_tokens=30, ignore_eos=True))
        self.assertEqual(self.post("/stop_profile", {"wait": True})[0], 200)
        hottest = table(folder, "hot_expert")[0]
        self.assertEqual((hottest["layer"], hottest["expert"], hottest["rank"]), (str(layer), str(expert), "1"))
        # Whether anybody waits for its few rows depends on the machine; a finding that says so names the right rank.
        named = [finding for finding in findings(folder) if finding["kind"] == "hot_expert"]
        self.assertTrue(all(finding["rank"] == 1 for finding in named), named)


def outdo_expert(model, layer, expert, other, factor):
    """Gives `expert` the router row of `other` times `factor`, so that it is chosen wherever that one was likely.

    Changes a layer's router weight (bfloat16) in the safetensors files under `model`.
    """
    for path in model.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        (header_bytes,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + header_bytes])
        for name, entry in header.items():
            if not name.endswith(f"language_model.layers.{layer}.mlp.gate.weight"):
                continue
            columns = entry["shape"][1]
            first = 8 + header_bytes + entry["data_offsets"][0]
            source, target = first + 2 * columns * other, first + 2 * columns * expert
            for i in range(0, 2 * columns, 2):
                (value,) = struct.unpack("<f", b"\0\0" + data[source + i : source + i + 2])
                data[target + i : target + i + 2] = struct.pack("<f", value * factor)[2:]
            path.write_bytes(data)
            return
    raise RuntimeError(f"no router weight of layer {layer} in {model}")


if __name__ == "__main__":
    ferry_job.main()
