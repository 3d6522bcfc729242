"""`ferry bench` on the demo: behind contexts, with what others would run beside it, and two results held against each other."""

import csv
import json
import pathlib
import subprocess
import tempfile
import unittest

from ferry_job import FERRY, ROOT, told_lines

SECONDS = 600
MPIRUN = (ROOT / "launch/mpirun.sh", "-np", "3")
BENCH = ("bench", "--model", "demo", "--threads", "2", "-n", "4", "-r", "4")


def run(*arguments, code=0, launcher=()):
    """What `ferry` prints: stdout, or for an error stderr."""
    done = subprocess.run([str(a) for a in (*launcher, FERRY, *arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=SECONDS)
    if done.returncode != code:
        raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stderr if code == 2 else done.stdout


class BenchTest(unittest.TestCase):
    def test_contexts_are_rows_of_their_own_whose_work_is_counted(self):
        found = json.loads(run(*BENCH, "-d", "0,320", "-p", "64", "-b", "1,3", "--json", launcher=MPIRUN))
        names = [row["name"] for row in (*found["prefill"], *found["decode"])]
        self.assertEqual(names, ["prefill 64", "prefill 64 @ 320", "decode 1", "decode 3", "decode 1 @ 320", "decode 3 @ 320"])
        rows = dict(zip(names, (*found["prefill"], *found["decode"])))
        config = json.loads((ROOT / "launch/demo/config.json").read_text())
        text = config.get("text_config", config)
        layers = sum(kind == "full_attention" for kind in text["layer_types"])
        key_and_value = 2 * text["num_key_value_heads"] * text["head_dim"] * (2 if found["dtype"] == "bf16" else 4) * layers
        products = 4 * text["num_attention_heads"] * text["head_dim"] * layers
        flops = {name: row["flops_per_token"] for name, row in rows.items()}
        for plain, deep in (("prefill 64", "prefill 64 @ 320"), ("decode 1", "decode 1 @ 320"), ("decode 3", "decode 3 @ 320")):
            self.assertAlmostEqual(flops[deep] - flops[plain], 320 * products, delta=1)
        # A prompt reads its context once for all its tokens. The experts that a step reads are those that its tokens ask for.
        experts = 3 * text["hidden_size"] * text["moe_intermediate_size"] * (2 if found["dtype"] == "bf16" else 4)
        difference = rows["prefill 64 @ 320"]["bytes_per_token"] - rows["prefill 64"]["bytes_per_token"]
        whole = (64 * difference - 320 * key_and_value) / experts
        self.assertAlmostEqual(whole, round(whole), places=3)
        for row in rows.values():
            self.assertEqual(len(row["tokens_per_s"]["samples"]), 4)
            self.assertEqual(sorted(row["tokens_per_s"]["samples"])[-1], row["tokens_per_s"]["max"])
            self.assertGreaterEqual(row["warm_up"]["runs"], 1)

    def test_what_recording_costs_is_told_of_each_row(self):
        found = json.loads(run(*BENCH, "-p", "16", "-b", "2", "--recording-cost", "3", "--json", launcher=MPIRUN))
        for row in (*found["prefill"], *found["decode"]):
            cost = row["recording_cost"]
            self.assertEqual(len(cost["pairs"]), 3)
            self.assertEqual([cost["low"], cost["high"]], [min(cost["pairs"]), max(cost["pairs"])])
            self.assertEqual(cost["median"], sorted(cost["pairs"])[1])
        self.assertIn("--recording-cost: not with --trace", run(*BENCH, "--recording-cost", "3", "--trace", "/nowhere", code=2))
        self.assertNotIn("recording_cost", json.loads(run(*BENCH, "-p", "16", "-b", "2", "--json"))["prefill"][0])

    def test_the_peak_of_memory_is_the_models_without_the_roofs_measurement(self):
        with tempfile.TemporaryDirectory() as folder:
            run(*BENCH, "-p", "16", "-b", "2", "--trace", folder)
            with open(pathlib.Path(folder) / "csv" / "run.csv", newline="") as lines:
                peak = int(next(csv.DictReader(lines))["peak_rss_bytes"])
        self.assertGreater(peak, 32 << 20)
        self.assertLess(peak, 1 << 30, "what a roof reads is 1 GiB")

    def test_the_default_cache_grows_and_a_given_one_is_a_bound(self):
        sizes = ("-d", "480", "-p", "16", "-b", "8")
        self.assertIn("allowed: up to", run(*BENCH, *sizes, "--memory", "1MiB", code=2))
        said = run(*BENCH, *sizes, "--memory", "5MiB", code=2)
        self.assertEqual(len(told_lines(said)), 1, said)
        self.assertIn("-b is 8; allowed: up to ", said)
        self.assertIn("@ 480", run(*BENCH, *sizes))
        said = run(*BENCH, "-d", "1000000", code=2)
        self.assertEqual(len(told_lines(said)), 1, said)
        self.assertIn("bench: sequences of 1000513 tokens (-d, -p, -n); allowed: up to", said)

    def test_peers_are_told_row_by_row(self):
        lines = run(*BENCH, "-d", "0,64", "-p", "32", "-b", "1,2", "--peers").splitlines()
        for command in ("-p 32 -n 0 -d 0", "-p 32 -n 0 -d 64", "-p 0 -n 4 -d 32", "-p 0 -n 4 -d 96", "-npp 32 -ntg 4 -npl 2", "-npp 96 -ntg 4 -npl 2"):
            self.assertEqual(sum(command in line for line in lines), 1, command)
        found = json.loads(run(*BENCH, "-p", "32", "--peers", "--json"))["peers"]
        self.assertEqual({entry["row"] for entry in found["rows"]}, {"prefill 32", "decode 1"})


class CompareTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result = json.loads(run(*BENCH, "-p", "16,32", "-b", "1", "--json"))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ferry-bench-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.before = self.write("before", self.result)

    def write(self, name, result):
        file = self.path / f"{name}.json"
        file.write_text(result if isinstance(result, str) else json.dumps(result))
        return file

    def changed(self, **rates):
        """The result with other samples: factors of the row's median, by phase."""
        result = json.loads(json.dumps(self.result))
        for phase, factor in rates.items():
            for row in result[phase]:
                row["tokens_per_s"]["samples"] = [row["tokens_per_s"]["median"] * factor * (1 + i / 1e4) for i in range(6)]
        return result

    def test_a_result_is_no_different_from_itself(self):
        compared = json.loads(run("bench", "compare", self.before, self.before, "--fail-below", "1", "--json"))
        self.assertEqual([row["name"] for row in compared["rows"]], ["prefill 16", "prefill 32", "decode 1"])
        self.assertFalse(compared["fails"])
        for row in compared["rows"]:
            self.assertEqual((row["ratio"], row["is_different"]), (1, False))

    def test_what_is_slower_fails_where_that_is_asked_for(self):
        first = self.write("first", self.changed(prefill=1, decode=1))
        second = self.write("second", self.changed(prefill=0.9, decode=1.1))
        text = run("bench", "compare", first, second)
        self.assertEqual(text.count("SLOWER"), 2, text)
        self.assertEqual(text.count("faster"), 1, text)
        run("bench", "compare", first, second, "--fail-below", "0.89")
        self.assertEqual(run("bench", "compare", first, second, "--fail-below", "0.95", code=1).count("SLOWER, FAILS"), 2)
        run("bench", "compare", second, first, "--fail-below", "0.89")
        text = run("bench", "compare", second, first, "--fail-below", "0.95", code=1)
        self.assertEqual(text.count("FAILS"), 1, text)

    def test_other_conditions_and_missing_rows_are_said(self):
        other = self.changed(decode=1)
        other["threads"] = 64
        del other["prefill"][0]
        text = run("bench", "compare", self.before, self.write("other", other))
        self.assertIn("warning: threads differs: 2, then 64", text)
        self.assertIn("warning: 'prefill 16' is only in the first result", text)

    def test_what_changes_the_work_is_said(self):
        for options, warning in ((("--kv-cache-dtype", "int8"), 'kv_cache_dtype differs: "bf16", then "int8"'),
                                 (("--lm-head-screen",), "lm_head_screen differs: false, then true")):
            other = self.write("other", run(*BENCH, *options, "-p", "16", "-b", "1", "--json"))
            self.assertIn(f"warning: {warning}", run("bench", "compare", self.before, other))

    def test_bad_files_are_one_line(self):
        no_samples = self.changed()
        del no_samples["decode"][0]["tokens_per_s"]["samples"]
        no_rows = {**self.result, "prefill": [], "decode": []}
        for name, result, part in (("text", "a table", "text.json"), ("other", {"a": 1}, "no prefill"),
                                   ("old", no_samples, "decode[0].tokens_per_s: no samples"),
                                   ("empty", no_rows, "no row in common"), ("list", [], "an object")):
            file = self.write(name, result)
            for pair in ((self.before, file), (file, self.before)):
                said = run("bench", "compare", *pair, code=2)
                self.assertEqual(len(told_lines(said)), 1, said)
                self.assertIn(part, said)
        said = run("bench", "compare", self.before, self.path / "none.json", code=2)
        self.assertIn("none.json", said)
        self.assertEqual(len(run("bench", "compare", self.before, code=2).splitlines()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
