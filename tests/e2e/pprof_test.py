"""What pprof makes of `profile.pb.gz` and `stacks.pb.gz`: every text it has for them, sums that are the tables', functions with
their whole names. Skipped where there is neither a `pprof` nor Go (Debian's package golang-go).

Environment: FERRY_PPROF (default: found on the PATH, else `go tool pprof`).
"""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from ferry_job import FERRY, ROOT, SKIPPED, JobTest

MPIRUN = (ROOT / "launch/mpirun.sh", "-np", "3")
BENCH = (FERRY, "bench", "--model", "demo", "--memory", "256MiB", "--threads", "2", "-p", "200", "-b", "2", "-n", "20")
SECONDS = 300
FORMS = ("-top", "-tree", "-raw", "-traces", "-peek=.", "-comments", "-proto")


def find_pprof():
    """The command, as a list; empty where there is none."""
    named = os.environ.get("FERRY_PPROF") or shutil.which("pprof")
    if named:
        return [named]
    go = shutil.which("go") or next((path for path in ("/usr/lib/go/bin/go", "/usr/local/go/bin/go") if pathlib.Path(path).exists()), None)
    return [go, "tool", "pprof"] if go else []


def read_csv(file):
    with open(file, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


class PprofTest(JobTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ferry-pprof-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ask(self, form, file):
        """What pprof prints; it complains of nothing."""
        out = self.folder / "out"
        command = [*find_pprof(), form, f"-output={out}", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "PPROF_TMPDIR": str(self.folder)})
        said = [line for line in done.stderr.splitlines() if not line.startswith("Generating report")]
        self.assertEqual((done.returncode, said), (0, []), form)
        return out.read_bytes() if form == "-proto" else out.read_text(encoding="utf-8")

    def sums(self, file):
        """Of the samples' two values."""
        samples = self.ask("-raw", file).split("Samples:")[1].split("Locations")[0]
        rows = re.findall(r"^\s*(\d+)\s+(\d+): \d", samples, re.M)
        return [sum(int(row[at]) for row in rows) for at in range(2)]

    def test_stacks_and_operators_add_up_to_the_tables(self):
        capture = self.folder / "capture"
        subprocess.run([*MPIRUN, *BENCH, "--profile", "2", "--trace", capture], check=True, capture_output=True, timeout=SECONDS)
        for name in ("profile.pb.gz", "stacks.pb.gz"):
            for form in FORMS:
                self.assertTrue(self.ask(form, capture / name), (form, name))
        operators = read_csv(capture / "csv/operator.csv")
        self.assertEqual(self.sums(capture / "profile.pb.gz"),
                         [sum(round(float(row["total_us"]) * 1000) for row in operators), sum(int(row["count"]) for row in operators)])

        stacks = read_csv(capture / "csv/folded_stack.csv")
        if not stacks:
            self.skipTest("this system samples no stacks")
        num_samples, ns = self.sums(capture / "stacks.pb.gz")
        self.assertEqual(num_samples, sum(int(row["samples"]) for row in stacks))
        speedscope = json.loads((capture / "stacks.speedscope.json").read_text())
        self.assertEqual(ns, sum(sum(profile["weights"]) for profile in speedscope["profiles"]))
        self.assertAlmostEqual(ns / 1e6, sum(float(row["cpu_ms"]) for row in stacks), delta=1e-3 * len(stacks))
        functions = {frame for row in stacks for frame in row["stack"].split(";")}
        self.assertTrue(any("(anonymous namespace)" in function for function in functions))
        traces = self.ask("-traces", capture / "stacks.pb.gz")
        self.assertEqual([function for function in functions if function not in traces], [])

    def test_a_capture_of_nothing_is_a_profile_of_nothing(self):
        job = self.start("--trace-dir", str(self.folder), ranks=1)
        for path, body in (("start", {"level": 2, "output_dir": "nothing"}), ("stop", {"wait": True})):
            request = urllib.request.Request(f"http://{job.http_address}/{path}_profile", data=json.dumps(body).encode(),
                                             headers={"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=60).close()
        self.assertEqual(self.sums(self.folder / "nothing/profile.pb.gz"), [0, 0])
        self.assertIn("Showing nodes accounting for 0", self.ask("-top", self.folder / "nothing/profile.pb.gz"))
        for form in set(FORMS) - {"-peek=."}:  # which looks for a function
            self.ask(form, self.folder / "nothing/profile.pb.gz")


if __name__ == "__main__":
    if not find_pprof():
        print("skipped: there is neither a pprof nor Go, whose pprof reads the files (Debian's package golang-go)")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
