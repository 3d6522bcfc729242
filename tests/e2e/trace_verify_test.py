"""`ferry trace verify` on captures of real jobs: what it calls a change, where it finds the time, what it refuses."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from ferry_job import FERRY, ROOT

SLOW = ("--fault", "slow:1x64")


class TraceVerifyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="ferry-verify-")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.slow = cls.capture("slow", "-p", "64", "-b", "4", *SLOW)
        cls.quick = cls.capture("quick", "-p", "64", "-b", "4")

    @classmethod
    def capture(cls, name, *arguments):
        """A bench of the demo on two ranks; returns the capture's folder."""
        folder = pathlib.Path(cls._folder.name) / name
        bench = [FERRY, "bench", "--model", "demo", "--memory", "256MiB", "-n", "24", "-r", "2", *arguments]
        done = subprocess.run([ROOT / "launch/mpirun.sh", "-np", "2", *bench, "--trace", folder], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"the bench ended with {done.returncode}: {done.stderr}")
        return folder

    @staticmethod
    def verify(*arguments):
        return subprocess.run([FERRY, "trace", "verify", *arguments], capture_output=True, text=True, timeout=120)

    def test_names_the_change_and_where_the_time_was(self):
        done = self.verify("--json", self.slow, self.quick)
        seen = json.loads(done.stdout)
        self.assertEqual(done.returncode, seen["exit_code"])
        self.assertEqual(seen["changes"], [{"option": "--fault", "before": "slow:1x64", "after": ""}])
        figures = {figure["name"]: figure for figure in seen["figures"]}
        self.assertLessEqual({"prefill 64 tokens/s", "prefill 64 ms a step", "decode ×4 tokens/s", "decode ×4 ms a step"}, set(figures))
        self.assertGreater(figures["decode ×4 ms a step"]["gain"], 0, "the worker took 64 times as long")
        self.assertEqual(seen["difference"]["coordinator"][0]["what"], "wait.combine for rank 1")
        self.assertEqual(seen["difference"]["workers"][0]["what"], "experts of rank 1")
        saved = sum(share["before_us"] - share["after_us"] for share in seen["difference"]["coordinator"])
        self.assertAlmostEqual(saved, seen["difference"]["before_us"] - seen["difference"]["after_us"], places=3)

    def test_the_text_says_the_same(self):
        text = self.verify(self.slow, self.quick).stdout
        self.assertIn("changed: --fault slow:1x64 -> not given\n", text)
        self.assertRegex(text, r"decode ×4 ms a step .* \+\d+\.\d %")
        self.assertRegex(text, r"most of it: wait\.combine for rank 1 -")
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


if __name__ == "__main__":
    unittest.main()
