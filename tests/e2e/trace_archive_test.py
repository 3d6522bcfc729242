"""What a server keeps of its steps (--trace-sample): it arrives, is bounded, survives, and answers what happened."""

import csv
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, OpenCall, endless_request, pace, wait_for


def ferry(*arguments, code=0):
    """What `ferry ARGUMENTS` printed."""
    done = subprocess.run([FERRY, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode != code:
        raise RuntimeError(f"ferry {arguments} ended with {done.returncode}: {done.stderr}")
    return done.stderr if code else done.stdout


def run_facts(capture):
    with open(capture / "csv/run.csv", newline="") as file:
        return next(csv.DictReader(file))


class ArchiveTest(ferry_job.JobTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="ferry-archive-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.archive = self.folder / "archive"

    def serve(self, every, *arguments, **options):
        self.job = self.start("--trace-dir", str(self.folder), "--trace-sample", str(every), *arguments, **options)
        return self.job

    def segments(self, why=""):
        return sorted(self.archive.glob(f"*{why}.ferryseg"))

    def ask(self, *arguments):
        """(lengths by phase, kept steps, the whole answer)"""
        answer = json.loads(ferry("trace", "archive", self.folder, "--json", *arguments))
        tables = []
        for table in answer["tables"]:
            names = [column["name"] if isinstance(column, dict) else column for column in table["columns"]]
            tables.append([dict(zip(names, row)) for row in table["rows"]])
        return {row["phase"]: row for row in tables[0]}, tables[1], answer

    def check_samples(self, ranks, *arguments, **options):
        job = self.serve(10, "--speculate", "0", *arguments, ranks=ranks, **options)
        call = OpenCall(job, endless_request())
        # A machine that pauses makes steps long, which are kept as such beside the samples.
        are_there = lambda: len(self.segments()) >= 25 and len(self.segments("-sample")) > 8
        wait_for(are_there, "segments of 25 steps, more than 8 of them samples", lambda: f"{self.segments()}; {job.log()}")
        num_tokens = len(call.token_ids)
        call.cancel()
        began = time.strftime("%H:%M")
        self.assertEqual(job.stop(), 0, job.log())
        lengths, kept, answer = self.ask("--last", "1h")
        self.assertEqual(answer["num_kept"], len(self.segments()))
        self.assertGreaterEqual(lengths["decode"]["steps"], num_tokens - 1)
        self.assertLess(0, float(lengths["decode"]["p50_ms"]))
        self.assertLessEqual(float(lengths["decode"]["p50_ms"]), float(lengths["decode"]["p99_ms"]))
        self.assertLessEqual(float(lengths["decode"]["p99_ms"]), 1.01 * float(lengths["decode"]["longest_ms"]))
        samples = [step for step in kept if step["why"] == "sample"]
        self.assertTrue(all(int(step["step"]) % 10 == 0 for step in samples), samples)
        self.assertLessEqual(25, len(kept))
        listed = ferry("trace", "archive", self.folder, "--last", "1h")
        self.assertEqual(listed.count(".ferryseg"), len(kept))
        self.assertNotIn("csv/", listed)
        self.assertLess(5, len(samples))
        # One of them by itself, and several as a capture: all ranks, operators and all, rows and replies that find each other.
        alone = ferry("trace", "report", self.archive / samples[-1]["file"])
        self.assertIn("GroupedMatmul", alone)
        capture = self.folder / "capture"
        text = ferry("trace", "archive", self.folder, "--at", began, "--phase", "decode", "--slowest", "16", "--out", capture)
        self.assertIn("5 minutes to both sides", text)
        self.assertIn("Findings of these steps", text)
        written = (capture / "report.txt").read_text(encoding="utf-8")
        self.assertEqual(ferry("trace", "report", capture), written)  # what to do about findings included
        for line in written.splitlines():
            if line.startswith("    try: "):
                self.assertIn(line, text.splitlines())
        facts = run_facts(capture)
        self.assertEqual((facts["ranks"], facts["unpaired_transfers"]), (str(ranks), "0"))
        self.assertLessEqual(int(facts["steps"]), 16 * 9)

    def test_over_mpi(self):
        self.check_samples(3, transport="mpi")

    def test_with_a_worker_of_another_clock(self):
        self.check_samples(3, "--trace-clock-skew", "1:5000000000:20")

    def test_alone(self):
        self.check_samples(1)

    def test_a_capture_beside_it_is_whole(self):
        job = self.serve(3, "--speculate", "0", *pace(1, 2))
        call = OpenCall(job, endless_request(max_tokens=150))
        self.assertTrue(call.wait_for_token(), call.error)

        def post(path, body):
            data = json.dumps(body).encode()
            request = urllib.request.Request(f"http://{job.http_address}{path}", data=data, headers={"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
                return json.load(response)

        for level in (0, 1):
            folder = self.folder / f"level-{level}"
            post("/start_profile", {"output_dir": str(folder), "level": level})
            wanted = len(call.token_ids) + 10
            wait_for(lambda: len(call.token_ids) >= wanted or call.ended_at is not None, "more tokens", job.log)
            post("/stop_profile", {"wait": True})
            facts = run_facts(folder)
            self.assertEqual((facts["ranks"], facts["unpaired_transfers"]), ("3", "0"))
        self.assertTrue(call.wait())
        self.assertIsNone(call.error)
        self.assertEqual(len(call.token_ids), 150)

    def test_a_stopped_rank_is_kept_though_it_was_nobodys_turn(self):
        """One that all wait for: its step takes longer than any other."""
        job = self.serve(1_000_000_000, "--speculate", "0", *pace(1, 2), ranks=3, transport="gloo")
        call = OpenCall(job, endless_request())
        wait_for(lambda: len(call.token_ids) > 200, "so many tokens that what steps usually take is known", job.log)
        victim = job.ranks()[2]
        os.kill(victim, signal.SIGSTOP)
        try:
            wait_for(lambda: job.health() == "NOT_SERVING", "a health that tells of it, behind more than a second", job.log)
        finally:
            os.kill(victim, signal.SIGCONT)

        def kept():
            return [step for step in self.ask("--last", "1h")[1] if step["why"] in ("stopped", "long") and float(step["ms"]) > 1000]

        step = wait_for(kept, "the step", lambda: (self.ask("--last", "1h")[1], job.log()))[0]
        _, steps, _ = self.ask("--at", step["time"][:19].replace(" ", "T"), "--phase", "decode", "--slowest", "1")
        self.assertIn(steps[0]["why"], ("stopped", "long"))
        call.cancel()

    def test_the_bound_holds_and_a_kill_in_the_middle_costs_no_segment(self):
        bound = 1 << 20
        for life in range(3):
            job = self.serve(1, "--trace-sample-bytes", "1MiB", "--speculate", "0", ranks=3)
            before = set(self.segments())
            call = OpenCall(job, endless_request(seed=life + 1, max_tokens=8000))
            num_new = lambda: len(set(self.segments()) - before)
            wait_for(lambda: num_new() > 30 + 7 * life, "new segments", job.log)
            for rank in job.ranks().values():
                os.kill(rank, signal.SIGKILL)
            self.assertTrue(call.wait())
            job.kill()
            found = self.segments()
            self.assertLessEqual(sum(path.stat().st_size for path in found), bound)
            for path in found[:: max(1, len(found) // 10)]:
                self.assertIn("Steps", ferry("trace", "report", path))
        # The last server's and, thinned, those of the ones before.
        runs = {re.search(rb'"run":"([^"]+)"', path.read_bytes()[:4096])[1] for path in self.segments()}
        self.assertGreaterEqual(len(runs), 2)
        self.assertGreater(self.ask("--last", "1h")[2]["num_kept"], 10)

    def test_a_second_server_is_refused_in_a_line(self):
        self.serve(100, ranks=1)
        command = [FERRY, "serve", "--model", "demo", "--memory", "256MiB", "--grpc", "127.0.0.1:0", "--http", "off"]
        done = subprocess.run([*command, "--trace-dir", str(self.folder), "--trace-sample", "5"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aferry: error: archive [^\n]+ is another server's[^\n]+\n\Z")

    def test_a_disk_that_takes_nothing_is_one_warning(self):
        job = self.serve(2, ranks=1)
        shutil.rmtree(self.archive)
        self.assertEqual(len(job.generate(endless_request(max_tokens=200)).token_ids), 200)
        wait_for(lambda: "the archive of steps" in job.log(), "the warning", job.log)
        self.assertEqual(len(job.generate(endless_request(seed=2, max_tokens=200)).token_ids), 200)
        self.assertEqual(job.stop(), 0)
        self.assertEqual(job.log().count("warning: the archive of steps"), 1, job.log())

    def test_metrics_tell_of_it(self):
        job = self.serve(5, ranks=1)
        job.generate(endless_request(max_tokens=100))

        def metrics():
            with urllib.request.urlopen(f"http://{job.http_address}/metrics", timeout=LIMIT_SECONDS) as response:
                return response.read().decode()

        def kept():
            return int(re.search(r"^ferry:kept_steps\{[^}]*\} (\d+)", metrics(), re.MULTILINE)[1])

        wait_for(lambda: kept() > 5, "kept steps", metrics)
        text = metrics()
        self.assertRegex(text, r'ferry:step_drift_ratio\{[^}]*phase="decode"[^}]*quantile="0.5"')
        self.assertRegex(text, r'ferry:step_drift_alarm\{[^}]*phase="decode"\} 0')
        frame = ferry("top", job.http_address, "--once", "--interval", "0.2")
        shown = re.search(r"^archive +([\d,]+) steps, [\d.,]+ [kM]?B   drift: too few steps to tell$", frame, re.MULTILINE)
        self.assertIsNotNone(shown, frame)
        self.assertGreater(int(shown[1].replace(",", "")), 5)

    def test_questions_that_cannot_be_are_refused(self):
        for arguments in (["--at", "25:00"], ["--last", "1w"], ["--at", "03:12", "--last", "1h"], ["--phase", "sleep"], ["--slowest", "0"]):
            done = subprocess.run([FERRY, "trace", "archive", str(self.folder), *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertRegex(done.stderr, r"\Aferry: error: [^\n]+\n\Z")
        self.assertRegex(ferry("trace", "archive", self.folder, code=2), r"\Aferry: error: [^\n]*holds no archive[^\n]*\n\Z")


if __name__ == "__main__":
    ferry_job.main()
