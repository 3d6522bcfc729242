"""`ferry inspect` counts what the files hold, and says what it would refuse."""

import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
GOLDEN = ROOT / "tests/golden"
PLAIN = ("qwen3_5_moe", "qwen3_5_moe_wide", "qwen3_5", "qwen3_next", "qwen3_moe", "lfm2", "lfm2_moe")


def run(*arguments):
    return subprocess.run([FERRY, "inspect", *map(str, arguments)], capture_output=True, text=True, timeout=600)


def inspect(*arguments):
    done = run(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def tensors(folder):
    for file in folder.glob("model*.safetensors"):
        with file.open("rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        for name, tensor in header.items():
            if name != "__metadata__":
                yield name, tensor


class InspectTest(unittest.TestCase):
    def test_parameters_are_those_of_the_files(self):
        for name in PLAIN:
            matrices = [
                math.prod(tensor["shape"])
                for tensor_name, tensor in tensors(GOLDEN / name)
                if len(tensor["shape"]) > 1 and "conv" not in tensor_name.rsplit(".", 2)[-2]
                and not tensor_name.startswith(("model.visual.", "mtp."))
            ]
            model = inspect(GOLDEN / name)
            with self.subTest(name):
                self.assertEqual(model["parameters"]["total"], sum(matrices))
                self.assertLessEqual(model["parameters"]["active"], model["parameters"]["total"])

    def test_bytes_are_those_of_the_files(self):
        for name in (*PLAIN, "fp8_qwen3_5_moe", "gptq_qwen3_5_moe"):
            stored = {}
            for _, tensor in tensors(GOLDEN / name):
                begin, end = tensor["data_offsets"]
                stored[tensor["dtype"]] = stored.get(tensor["dtype"], 0) + end - begin
            with self.subTest(name):
                self.assertEqual(inspect(GOLDEN / name)["stored_bytes"], stored)

    def test_weights_take_the_bytes_that_are_packed(self):
        def is_matrix(name, shape):
            parts = name.rsplit(".", 2)
            return len(shape) > 1 and "conv" not in parts[-2] and "embed_tokens" not in name

        with tempfile.TemporaryDirectory() as folder:
            for name, quantize in (
                ("qwen3_5_moe", "w8a8"), ("lfm2_moe", "w4a8:32"), ("qwen3_moe", "experts=w4a8:32,lm_head=w8a8"),
                ("lfm2_moe", "shared=w8a8,lm_head=w8a8"), ("fp8_qwen3_5_moe", "native"), ("gptq_qwen3_5_moe", "native"),
            ):
                packed = pathlib.Path(folder) / f"{name}-{quantize}"
                command = [FERRY, "quantize", "--model", GOLDEN / name, "--quantize", quantize, "--dtype", "bf16", "--out", packed]
                subprocess.run(command, check=True, capture_output=True)
                bytes_of = {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F32": 2}  # plain ones in bf16
                expected = sum(
                    math.prod(tensor["shape"]) * bytes_of[tensor["dtype"]]
                    for tensor_name, tensor in tensors(packed)
                    if is_matrix(tensor_name, tensor["shape"]) and not tensor_name.startswith(("model.visual.", "mtp."))
                )
                for model, options in ((GOLDEN / name, ("--quantize", quantize)), (packed, ())):
                    runs = inspect(model, "--dtype", "bf16", "--workers", "0", *options)["runs"]
                    with self.subTest(name, model=model):
                        self.assertEqual([rank["coordinator_bytes"] for run in runs for rank in run["ranks"]], [expected])

    def test_what_nothing_can_run_has_an_exit_code(self):
        done = run(GOLDEN / "qwen3_moe", "--quantize", "native", "--json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds no codes", json.loads(done.stdout)["runs"][0]["refused"])
        self.assertIn("allowed: 0 to 16", run(GOLDEN / "qwen3_moe", "--workers", "17").stderr)

    def test_verify_reads_everything(self):
        with tempfile.TemporaryDirectory() as folder:
            packed = pathlib.Path(folder) / "packed"
            command = [FERRY, "quantize", "--model", GOLDEN / "qwen3_5_moe", "--quantize", "experts=w8a8", "--out", packed]
            subprocess.run(command, check=True, capture_output=True)
            verified = inspect(packed, "--verify")
            self.assertEqual((verified["has_checksums"], verified["damage"]), (True, None))
            self.assertEqual({file["file"] for file in verified["files"]}, {path.name for path in packed.iterdir()})
            self.assertEqual({file["result"] for file in verified["files"]}, {"right"})
            weights = packed / "model-00001-of-00001.safetensors"
            whole = weights.read_bytes()
            begin = 8 + struct.unpack("<Q", whole[:8])[0]
            places = {name: begin + tensor["data_offsets"][0] for name, tensor in tensors(packed)}
            panels = next(name for name in places if name.endswith("experts.0.down_proj.panels") and "mtp." not in name)
            for word, at in ((panels, places[panels]), ("lm_head.weight", places["lm_head.weight"] + 1), ("header", 9)):
                damaged = bytearray(whole)
                damaged[at] ^= 1
                weights.write_bytes(damaged)
                commands = {"inspect": ("--verify",), "dump": ("--token-ids", "1,2", "--out", packed.parent / "logits")}
                for name, options in commands.items():
                    model = ("--model", packed) if name == "dump" else (packed,)
                    command = [FERRY, name, *model, *options]
                    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
                    with self.subTest(word, command=name):
                        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                        self.assertIn(str(weights), done.stderr)
                        if word != "header":  # JSON may be what is damaged first
                            self.assertIn(f"tensor {word} is damaged", done.stderr)
            files = json.loads(run(packed, "--verify", "--json").stdout)["files"]
            self.assertEqual([file["file"] for file in files if file["result"] == "damaged"], [weights.name])
            weights.write_bytes(whole)
            self.told_of_files_beside_the_weights(packed)
        plain = run(GOLDEN / "qwen3_5_moe", "--verify")
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertIn("no checksums", plain.stdout)

    def told_of_files_beside_the_weights(self, packed):
        """Files that are missing, damaged, added or a loop: one line each, exit code 2, and JSON says the same."""
        def lose(path):
            path.unlink()

        def damage(path):
            path.write_bytes(b"\0" + path.read_bytes()[1:])

        def add(path):
            path.write_text("{{ messages }}")

        def loop(path):
            path.unlink()
            path.symlink_to(path.name)

        for change, name, result in (
            (lose, "ferry.json", "missing"), (loop, "ferry.json", "damaged"), (damage, "config.json", "damaged"),
            (lose, "config.json", "missing"), (add, "chat_template.jinja", "damaged"), (add, "mtp.safetensors", "damaged"),
        ):
            path = packed / name
            whole = path.read_bytes() if path.exists() else None
            change(path)
            text, verified = run(packed, "--verify"), run(packed, "--verify", "--json")
            generated = subprocess.run([FERRY, "generate", "--model", packed, "--token-ids", "1", "--max-tokens", "1"],
                                       capture_output=True, text=True, timeout=600)
            with self.subTest(change=change.__name__, name=name):
                refused = [text, verified] + ([generated] if name != "chat_template.jinja" else [])
                for done in refused:
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                    self.assertIn(name, done.stderr)
                    self.assertNotIn("JSON", done.stderr)
                self.assertRegex(text.stdout, rf"(?m)^{result} +{name}" + ("$" if result == "missing" else r" \("))
                files = {file["file"]: file["result"] for file in json.loads(verified.stdout)["files"]}
                self.assertEqual({file for file in files if files[file] != "right"}, {name})
                self.assertEqual(files[name], result)
            path.unlink(missing_ok=True)
            if whole is not None:
                path.write_bytes(whole)
        self.assertEqual(run(packed, "--verify").returncode, 0)

    def test_verify_prints_json_of_what_it_cannot_read(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in (pathlib.Path(folder), pathlib.Path(folder) / "none"):
                done = run(path, "--verify", "--json")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                verified = json.loads(done.stdout)
                self.assertEqual((verified["has_checksums"], verified["files"]), (False, []))
                self.assertIn(verified["damage"], done.stderr)

    def test_ranks_share_the_experts_out(self):
        for run_of in inspect(GOLDEN / "qwen3_next")["runs"]:
            ranks = {rank["workers"]: rank for rank in run_of["ranks"]}
            if run_of["refused"]:
                self.assertFalse(ranks)
                continue
            alone, one, two = ranks[0], ranks[1], ranks[2]
            self.assertEqual(alone["worker_bytes"], 0)
            self.assertAlmostEqual(alone["coordinator_bytes"], one["coordinator_bytes"] + one["worker_bytes"], delta=1)
            self.assertAlmostEqual(one["worker_bytes"], 2 * two["worker_bytes"], delta=1)

    def test_ranks_share_the_slices_of_dense_models_out(self):
        model = inspect(GOLDEN / "lfm2")
        self.assertEqual((model["experts"], model["layers"]["dense"]), (0, 6))
        networks = 4 * model["parameters"]["parts"]["dense_ffn"]  # bytes of float32
        ranks = {rank["workers"]: rank for rank in model["runs"][0]["ranks"]}
        self.assertEqual(set(ranks), {0, 1, 2, 3})
        for workers, share in ((1, 1), (2, 2 / 3), (3, 1 / 3)):
            self.assertAlmostEqual(ranks[workers]["worker_bytes"], networks * share, delta=1)
            self.assertAlmostEqual(ranks[0]["coordinator_bytes"], ranks[workers]["coordinator_bytes"] + networks, delta=1)

    def test_what_would_be_refused_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "copy"
            shutil.copytree(GOLDEN / "lfm2_moe", copy)
            config = json.loads((copy / "config.json").read_text())
            for changes, words in (
                ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
                ({"model_type": "llama"}, "lfm2_moe"),
                ({"conv_bias": True}, "conv_bias"),
            ):
                (copy / "config.json").write_text(json.dumps({**config, **changes}))
                done = run(copy)
                with self.subTest(words):
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
                    self.assertIn(words, done.stderr)
            (copy / "config.json").write_text(json.dumps({**config, "moe_intermediate_size": 31}))
            self.assertIn("config.json asks for", json.loads(run(copy, "--json").stdout)["runs"][0]["refused"])
            gguf = pathlib.Path(folder) / "model.gguf"
            gguf.write_bytes(b"GGUF")
            for path in (gguf, folder):
                self.assertIn("safetensors", run(path).stderr)


if __name__ == "__main__":
    unittest.main()
