"""A model is the same model in whichever format its codes are stored: dumps are the same bytes."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import repacked
from ferry_job import FERRY, ROOT

IDS = ",".join(str(5 + 13 * i % 300) for i in range(70))


def dump(model, out, *options, workers=0):
    launcher = [str(ROOT / "launch/mpirun.sh"), "-np", str(workers + 1)] if workers else []
    command = [*launcher, FERRY, "dump", "--model", str(model), "--memory", "256MiB", "--token-ids", IDS, "--taps", "--out", str(out)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} {options} ended with {done.returncode}: {done.stderr}")
    return out.read_bytes()


class FormatsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_same(self, models, source, *runs):
        """Each of `models` says what `source` says, with the options and workers of every run."""
        for options, workers in runs:
            expected = dump(source, self.folder / "expected", *options)
            for name, model in models.items():
                with self.subTest(name, options=options, workers=workers):
                    self.assertEqual(dump(model, self.folder / "out", *options, workers=workers), expected)

    def test_integers(self):
        models = {
            "awq": repacked.as_awq(self.folder / "awq"),
            "4 bits": repacked.as_packed_integers(self.folder / "ints4", 4, has_zeros=False),
            "4 bits with zero points": repacked.as_packed_integers(self.folder / "zeros4", 4, has_zeros=True, has_groups=True),
        }
        native = ("--quantize", "native")
        self.check_same(models, repacked.GPTQ, (("--dtype", "f32"), 0), (("--quantize", "w4a8:32"), 0), (native, 0), (native, 2))
        for name, model in models.items():
            packed = self.folder / (model.name + "-packed")
            subprocess.run([FERRY, "quantize", "--model", model, *native, "--out", packed], check=True, capture_output=True)
            with self.subTest(name):
                self.assertEqual(dump(packed, self.folder / "packed"), dump(repacked.GPTQ, self.folder / "expected", *native))

    def test_integers_of_8_bits(self):
        models = {
            "8 bits": repacked.as_packed_integers(self.folder / "ints8", 8, has_zeros=False),
            "8 bits with zero points": repacked.as_packed_integers(self.folder / "zeros8", 8, has_zeros=True),
        }
        self.check_same(models, repacked.GPTQ, (("--dtype", "f32"), 0), ((), 2), (("--quantize", "w8a8"), 0))
        for name, model in models.items():
            with self.subTest(name), self.assertRaisesRegex(AssertionError, "native.*no codes of 4 bits.*w8a8"):
                dump(model, self.folder / "out", "--quantize", "native")

    def test_floats(self):
        models = {"float-quantized": repacked.as_float_quantized(self.folder / "floats")}
        self.check_same(models, repacked.FP8, (("--dtype", "f32"), 0), (("--quantize", "native"), 2))

    def test_inspect_knows_them(self):
        model = repacked.as_awq(self.folder / "awq")
        done = subprocess.run([FERRY, "inspect", model, "--json"], capture_output=True, text=True, timeout=600, check=True)
        runs = {run["quantize"]: run["refused"] for run in json.loads(done.stdout)["runs"]}
        self.assertEqual(runs, {"none": None, "native": None, "w8a8": None, "w4a8": None})


if __name__ == "__main__":
    unittest.main(verbosity=2)
