"""`ferry trace verify` on captures of real jobs: what it calls a change, where it finds the time, what it refuses."""

import json
import pathlib
import shutil
import subprocess
import tempfile

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT, on_host

MORE = "slow:1+0.005s"  # for each layer, several times what a step takes without it
SLOW = ("--fault", MORE)


class TraceVerifyTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="ferry-verify-")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.slow = cls.capture("slow", "-p", "8", "-b", "4", *SLOW)
        cls.quick = cls.capture("quick", "-p", "8", "-b", "4")

    @classmethod
    def capture(cls, name, *arguments):
        """A bench of the demo on two ranks; returns the capture's folder."""
        folder = pathlib.Path(cls._folder.name) / name
        bench = [FERRY, "bench", "--model", "demo", "--memory", "256MiB", "-n", "12", "-r", "2", *arguments]
        done = subprocess.run([ROOT / "launch/mpirun.sh", "-np", "2", *bench, "--trace", folder], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"the bench ended with {done.returncode}: {done.stderr}")
        return folder

    @staticmethod
    def verify(*arguments):
        return subprocess.run([FERRY, "trace", "verify", *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)

    def test_names_the_change(self):
        done = self.verify("--json", self.slow, self.quick)
        seen = json.loads(done.stdout)
        self.assertEqual(done.returncode, seen["exit_code"])
        self.assertEqual(seen["changes"], [{"option": "--fault", "before": MORE, "after": ""}])
        names = {figure["name"] for figure in seen["figures"]}
        self.assertLessEqual({"prefill 8 tokens/s", "prefill 8 ms a step", "decode ×4 tokens/s", "decode ×4 ms a step"}, names)
        saved = sum(share["before_us"] - share["after_us"] for share in seen["difference"]["coordinator"])
        self.assertAlmostEqual(saved, seen["difference"]["before_us"] - seen["difference"]["after_us"], places=3)
        text = self.verify(self.slow, self.quick).stdout
        self.assertIn(f"changed: --fault {MORE} -> not given\n", text)
        for name in ("prefill 8", "decode ×4"):
            self.assertRegex(text, name + r" ms a step .* [+-]\d+\.\d %")

    @on_host
    def test_finds_where_the_time_was(self):
        """Of a worker that takes longer for each layer, on a machine that holds nobody else up."""
        seen = json.loads(self.verify("--json", self.slow, self.quick).stdout)
        figures = {figure["name"]: figure for figure in seen["figures"]}
        for name in ("prefill 8 ms a step", "decode ×4 ms a step"):
            self.assertGreater(figures[name]["gain"], 0, f"{name}: the worker took longer for each layer")
        self.assertEqual(seen["difference"]["coordinator"][0]["what"], "wait.combine for rank 1")
        self.assertEqual(seen["difference"]["workers"][0]["what"], "experts of rank 1")
        self.assertRegex(self.verify(self.slow, self.quick).stdout, r"most of it: wait\.combine for rank 1 -")
        self.assertRegex(self.verify(self.quick, self.slow).stdout, r"most of it: wait\.combine for rank 1 \+")

    def test_a_capture_and_itself_differ_by_nothing(self):
        done = self.verify("--json", self.quick, self.quick)
        seen = json.loads(done.stdout)
        self.assertEqual(seen["changes"], [])
        self.assertEqual([figure["gain"] for figure in seen["figures"]], [0] * len(seen["figures"]))
        self.assertFalse(any(figure["is_certain"] for figure in seen["figures"]))
        self.assertNotEqual(done.returncode, 0, "nothing was tried")

    def test_other_work_is_refused_in_a_line(self):
        other = self.capture("other", "-b", "2", "-p", "32")
        done = self.verify(self.quick, other)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "ferry: error: trace verify: the captures have no steps of the same work in common\n")
        done = self.verify(self.quick, self.slow.parent / "nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1)


class TraceReportTest(ferry_job.JobTest):
    """What `ferry trace report` and `diff` say of a capture that has not what is asked for."""

    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="ferry-report-")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.capture = pathlib.Path(cls._folder.name) / "capture"
        bench = [FERRY, "bench", "--model", "demo", "--memory", "256MiB", "-p", "8", "-n", "4", "-r", "1", "--trace", cls.capture]
        subprocess.run(bench, capture_output=True, check=True, timeout=LIMIT_SECONDS)

    def trace(self, *arguments):
        return subprocess.run([FERRY, "trace", *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)

    def test_steps_that_are_not_there_are_refused_in_a_line(self):
        for steps in ("9000", "9000..9001"):
            done = self.trace("report", self.capture, "--steps", steps)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, rf"\Aferry: error: --steps: no step {steps}; allowed: \d+ steps, \d+ to \d+\n\Z")
        first, last = map(int, done.stderr.split(", ")[1].split(" to "))
        self.assertEqual(self.trace("report", self.capture, "--steps", f"{first}..{last}").returncode, 0)
        self.assertEqual(self.trace("report", self.capture, "--steps", f"{last}..9000").returncode, 0)

    def test_strings_of_a_capture_do_not_command_the_terminal(self):
        strange = self.capture.parent / "strange"
        shutil.copytree(self.capture, strange)
        info = json.loads((strange / "capture.json").read_text())
        info |= {"command": info["command"] + " --fault \x1b]0;owned\x07\nferry: error", "transport": "\x1b[2J", "version": "\u009b31m"}
        info["model"]["name"] = "demo\x1b[31m"
        (strange / "capture.json").write_text(json.dumps(info))
        for arguments in (("report", strange), ("diff", self.capture, strange), ("verify", self.capture, strange), ("verify", strange, strange)):
            done = self.trace(*arguments)
            said = done.stdout + done.stderr
            self.assertTrue(said)
            self.assertNotRegex(said, "[\x00-\x09\x0b-\x1f\x7f-\x9f]", arguments)
            self.assertNotIn("\nferry: error\n", said)
        report = (strange / "report.txt").read_text()
        self.assertIn(r"\x1b[2J", report)
        self.assertNotIn("\x1b", report)

    def test_a_selection_is_warned_of(self):
        self.assertEqual(self.trace("diff", self.capture, self.capture).stderr, "")
        selected = self.capture.parent / "selected"
        shutil.copytree(self.capture, selected)
        info = json.loads((selected / "capture.json").read_text())
        (selected / "capture.json").write_text(json.dumps({**info, "selection": {"long": 2}}))
        done = self.trace("diff", self.capture, selected)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aferry: warning: the second capture is a selection, 2 kept steps of an archive: [^\n]+\n\Z")


if __name__ == "__main__":
    ferry_job.main()
