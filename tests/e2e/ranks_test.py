"""Where the experts live changes no bit: dumps are the same bytes and answers the same words for any number of workers."""

import array
import json
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

import ferry_job
from ferry_job import FERRY, ROOT

LAYOUTS = ((0, "auto"), (1, "mpi"), (2, "gloo"), (3, "mpi"), (5, "gloo"), (7, "auto"))  # workers, transport
SECONDS = 600


def run(workers, transport, *arguments, model="demo", wrapper=(), flags=()):
    """`ferry ARGUMENTS` alone (workers 0) or with a coordinator and workers; returns its standard output."""
    launcher = [*wrapper, str(ROOT / "launch/mpirun.sh"), "-np", str(workers + 1), *flags] if workers else []
    command = [*launcher, FERRY, *map(str, arguments), "--model", str(model), "--memory", "256MiB", "--transport", transport]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def alone_and_another(layouts, number):
    """One process and one of the layouts, another one for the next number: what each is compared with is the same."""
    return [(0, "auto"), layouts[number % len(layouts)]]


def widen_lfm2(folder, columns):
    """Makes a checkpoint like tests/golden/lfm2 whose networks have `columns` columns and weights of their own."""
    source = ROOT / "tests/golden/lfm2"
    content = (source / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    tensors, data, header, values = json.loads(content[8 : 8 + length]), content[8 + length :], {}, []
    numbers = random.Random(1)
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        piece = data[slice(*tensor["data_offsets"])]
        if ".feed_forward." in name:
            rows, cols = tensor["shape"]
            tensor["shape"] = [rows, columns] if name.endswith("w2.weight") else [columns, cols]
            count = tensor["shape"][0] * tensor["shape"][1]
            piece = array.array("f", [numbers.uniform(-0.1, 0.1) for _ in range(count)]).tobytes()
        begin = sum(map(len, values))
        header[name] = {**tensor, "data_offsets": [begin, begin + len(piece)]}
        values.append(piece)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values))
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": columns}))


class RanksTest(unittest.TestCase):
    def test_dumps_are_the_same_bytes(self):
        # Long enough for several DeltaNet pieces and a lone last token: 64 + 64 + 1.
        ids = ",".join(str(100 + 37 * i % 5900) for i in range(129))
        expected = None
        with tempfile.TemporaryDirectory() as folder:
            for workers, transport in LAYOUTS:
                out = pathlib.Path(folder) / f"{workers}-{transport}.safetensors"
                run(workers, transport, "dump", "--token-ids", ids, "--taps", "--out", out)
                expected = expected or out.read_bytes()
                with self.subTest(workers=workers, transport=transport):
                    self.assertEqual(out.read_bytes(), expected)

    def test_the_family_and_quantised_checkpoints_too(self):
        ids = ",".join(str(5 + 13 * i % 300) for i in range(70))
        with tempfile.TemporaryDirectory() as folder:
            for number, name in enumerate(("qwen3_next", "qwen3_moe", "lfm2_moe", "fp8_qwen3_5_moe", "gptq_qwen3_5_moe")):
                model, expected = ROOT / "tests/golden" / name, None
                for workers, transport in alone_and_another(((1, "mpi"), (2, "gloo"), (3, "mpi"), (5, "gloo")), number):
                    out = pathlib.Path(folder) / f"{name}-{workers}.safetensors"
                    run(workers, transport, "dump", "--token-ids", ids, "--taps", "--out", out, model=model)
                    expected = expected or out.read_bytes()
                    with self.subTest(name, workers=workers, transport=transport):
                        self.assertEqual(out.read_bytes(), expected)

    def test_codes_of_checkpoints_too_packed_or_not(self):
        ids = ",".join(str(5 + 13 * i % 300) for i in range(70))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("fp8_qwen3_5_moe", "gptq_qwen3_5_moe"):
                model, packed, expected = ROOT / "tests/golden" / name, pathlib.Path(folder) / name, None
                native = ("--quantize", "native")
                subprocess.run([FERRY, "quantize", "--model", model, *native, "--out", packed], check=True, capture_output=True)
                runs = [(0, "auto", model, native), (2, "mpi", model, native), (3, "gloo", model, native)]
                runs += [(0, "auto", packed, native), (2, "mpi", packed, ("--check-weights",))]
                for i, (workers, transport, source, flags) in enumerate(runs):
                    out = pathlib.Path(folder) / f"{name}-{i}.safetensors"
                    run(workers, transport, "dump", "--token-ids", ids, "--taps", "--out", out, *flags, model=source)
                    expected = expected or out.read_bytes()
                    with self.subTest(name, workers=workers, transport=transport, source=source.name):
                        self.assertEqual(out.read_bytes(), expected)

    def test_dense_models_share_slices_of_their_networks(self):
        ids = ",".join(str(5 + 13 * i % 300) for i in range(70))
        transports = ("mpi", "gloo")
        with tempfile.TemporaryDirectory() as folder:
            wide = pathlib.Path(folder) / "wide"
            widen_lfm2(wide, 160)
            models = [(ROOT / "tests/golden/qwen3_5", 3, ("none", "w8a8")), (wide, 5, ("none", "w8a8", "w4a8:32"))]
            models += [(ROOT / "tests/golden/fp8_qwen3_5", 2, ("none", "native", "w4a8"))]
            for model, num_slices, types in models:
                for number, weights in enumerate(types):
                    expected = None
                    for workers in (0, num_slices if number % 2 == 0 else 1 + number % num_slices):
                        # What one type of weights sends over the one transport, the next sends over the other.
                        transport = transports[(workers + number) % 2] if workers else "auto"
                        out = pathlib.Path(folder) / "out"
                        arguments = ("dump", "--token-ids", ids, "--taps", "--out", out, "--quantize", weights)
                        run(workers, transport, *arguments, model=model)
                        expected = expected or out.read_bytes()
                        with self.subTest(model.name, weights=weights, workers=workers, transport=transport):
                            self.assertEqual(out.read_bytes(), expected)
                with self.subTest(model.name), self.assertRaisesRegex(AssertionError, f"allowed: up to {num_slices} workers"):
                    run(num_slices + 1, "mpi", "generate", "--token-ids", "1,2,3", model=model)

    def test_slices_are_packed_too(self):
        ids = ",".join(str(5 + 13 * i % 300) for i in range(70))
        with tempfile.TemporaryDirectory() as folder:
            for name, weights in (("lfm2", "w8a8"), ("lfm2", "w4a8:32"), ("fp8_qwen3_5", "native")):
                model, packed, out = ROOT / "tests/golden" / name, pathlib.Path(folder) / (name + weights), pathlib.Path(folder) / "out"
                quantize = ("--quantize", weights)
                subprocess.run([FERRY, "quantize", "--model", model, *quantize, "--out", packed], check=True, capture_output=True)
                run(0, "auto", "dump", "--token-ids", ids, "--out", out, *quantize, model=model)
                expected = out.read_bytes()
                for workers, transport in ((0, "auto"), (2, "mpi"), (2, "gloo")):
                    run(workers, transport, "dump", "--token-ids", ids, "--out", out, model=packed)
                    with self.subTest(name, weights=weights, workers=workers, transport=transport):
                        self.assertEqual(out.read_bytes(), expected)

    def test_networks_that_cannot_be_cut_stay_on_one_process(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = pathlib.Path(folder) / "odd"
            widen_lfm2(odd, 97)
            run(0, "auto", "generate", "--token-ids", "1,2,3", "--max-tokens", "2", model=odd)
            with self.assertRaisesRegex(AssertionError, "97 columns cannot be cut into equal slices; allowed: one process"):
                run(1, "mpi", "generate", "--token-ids", "1,2,3", model=odd)

    def test_hosts_that_forbid_copies_or_shared_memory_give_the_same_bytes(self):
        ids = ",".join(str(100 + 37 * i % 5900) for i in range(200))  # rows of several MPI fragments
        # Containers without CAP_SYS_PTRACE, and a /dev/shm that nobody may write to.
        hosts = {"no copies": {"flags": ("--mca", "btl_vader_single_copy_mechanism", "none")}}
        read_only = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh")
        if subprocess.run([*read_only, "true"], capture_output=True).returncode == 0:
            hosts["no shared memory"] = {"wrapper": read_only}
        with tempfile.TemporaryDirectory() as folder:
            expected, out = pathlib.Path(folder) / "expected", pathlib.Path(folder) / "out"
            run(0, "auto", "dump", "--token-ids", ids, "--out", expected)
            for name, host in hosts.items():
                run(2, "mpi", "dump", "--token-ids", ids, "--out", out, **host)
                with self.subTest(name):
                    self.assertEqual(out.read_bytes(), expected.read_bytes())

    def test_micro_batches_are_the_same_bytes(self):
        # A step of 200 rows as 64 + 136; of 129 rows as 64 + 64 in one step, and the lone last token in its own.
        for num_tokens, weights, workers, transport in ((200, "none", 3, "mpi"), (129, "none", 2, "gloo"), (129, "w8a8", 1, "mpi")):
            ids = ",".join(str(100 + 37 * i % 5900) for i in range(num_tokens))
            with tempfile.TemporaryDirectory() as folder:
                whole, halves = pathlib.Path(folder) / "whole", pathlib.Path(folder) / "halves"
                dump = ("dump", "--token-ids", ids, "--quantize", weights, "--out")
                run(0, "auto", *dump, whole, "--micro-batch", "0")
                for layout in ((0, "auto"), (workers, transport)):
                    run(*layout, *dump, halves, "--micro-batch", "32")
                    with self.subTest(tokens=num_tokens, weights=weights, layout=layout):
                        self.assertEqual(halves.read_bytes(), whole.read_bytes())

    def test_a_fast_combine_says_the_same(self):
        case = next(case for case in ferry_job.golden()["generation"] if case["kind"] == "chat")
        question = case["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
        chat = ("generate", "--chat", question, "--json", "--dtype", "f32", "--combine")
        exact = json.loads(run(0, "auto", *chat, "exact"))["token_ids"]
        for workers, transport in ((3, "mpi"), (2, "gloo")):
            with self.subTest(workers=workers, transport=transport):
                self.assertEqual(json.loads(run(workers, transport, *chat, "fast"))["token_ids"], exact)

    def test_quantised_experts_are_the_same_bytes_too(self):
        ids = ",".join(str(100 + 37 * i % 5900) for i in range(70))
        layouts = ((1, "mpi"), (3, "mpi"), (2, "gloo"))
        for number, weights in enumerate(("w8a8", "w4a8", "experts=w4a8:32,lm_head=w8a8")):
            expected = None
            with tempfile.TemporaryDirectory() as folder:
                for workers, transport in alone_and_another(layouts, number):
                    out = pathlib.Path(folder) / f"{workers}-{transport}.safetensors"
                    run(workers, transport, "dump", "--token-ids", ids, "--taps", "--out", out, "--quantize", weights)
                    expected = expected or out.read_bytes()
                    with self.subTest(weights=weights, workers=workers, transport=transport):
                        self.assertEqual(out.read_bytes(), expected)

    def test_questions_have_their_answers_over_codes_of_keys_and_values(self):
        for case in [case for case in ferry_job.golden()["generation"] if case["kind"] == "chat"]:
            question = case["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
            answer = json.loads(run(0, "auto", "generate", "--chat", question, "--json", "--kv-cache-dtype", "int8"))
            with self.subTest(question=question):
                self.assertEqual(answer["text"], case["text"])

    def test_questions_have_their_answers_in_8_bits(self):
        chats = [case for case in ferry_job.golden()["generation"] if case["kind"] == "chat"]
        for case in chats:
            question = case["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
            answer = json.loads(run(0, "auto", "generate", "--chat", question, "--json", "--quantize", "w8a8"))
            with self.subTest(question=question):
                self.assertEqual(answer["text"], case["text"])

    def test_bench_counts_what_the_shapes_ask_for(self):
        sizes = ("-p", "65", "-n", "3", "-b", "1,3", "-r", "1", "--json")
        plain, packed = (json.loads(run(0, "auto", "bench", *sizes, "--quantize", weights)) for weights in ("none", "w4a8:32"))
        self.assertEqual((plain["weights"], packed["weights"]), ("bf16", "w4a8:32"))
        self.assertNotIn("drafts", plain)
        for one, other in zip(plain["prefill"] + plain["decode"], packed["prefill"] + packed["decode"], strict=True):
            self.assertAlmostEqual(one["flops_per_token"] / other["flops_per_token"], 1)
            self.assertTrue(one["is_possible"] and other["is_possible"])
            self.assertLess(other["bytes_per_token"], one["bytes_per_token"])
            for row in (one, other):
                self.assertGreater(row["tokens_per_s"]["median"], 0)
                share = row["tokens_per_s"]["median"] * row["bytes_per_token"] / row["read_bytes_per_s"]
                self.assertAlmostEqual(row["share_of_read"], share)
        # A sequence more shares the weights of the others.
        self.assertLess(plain["decode"][1]["bytes_per_token"], plain["decode"][0]["bytes_per_token"])

    def test_bench_measures_what_drafts_gain(self):
        sizes = ("-p", "65", "-n", "9", "-b", "1,3", "-r", "1", "--json")
        for workers, speculate, text in ((0, "2", ()), (2, "auto", ()), (0, "ngram:3", ("--prompt-file", ROOT / "README.md"))):
            with self.subTest(workers=workers, speculate=speculate):
                found = json.loads(run(workers, "auto", "bench", *sizes, "--speculate", speculate, *text))["drafts"]
                self.assertEqual([row["sequences"] for row in found], [1, 3])
                for row in found:
                    self.assertLessEqual(row["gain"]["min"], row["gain"]["max"])
                    self.assertTrue(8 <= row["plain_touched_experts"] <= 8 * row["sequences"])
                    self.assertGreaterEqual(row["touched_experts"], row["plain_touched_experts"])
                    self.assertEqual(len(row["tried"]), len(row["right_share"]))
                if speculate == "2":
                    self.assertEqual(len(found[0]["tried"]), 2)
                    self.assertGreater(found[0]["tokens_per_step"], 1)

    def test_packed_weights_are_those_quantised_at_load(self):
        ids = ",".join(str(100 + 41 * i % 5900) for i in range(67))
        for spec in ("w8a8", "w4a8", "experts=w4a8,lm_head=w8a8"):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                packed, expected, out = folder / "packed", folder / "expected", folder / "out"
                run(0, "auto", "dump", "--token-ids", ids, "--taps", "--out", expected, "--quantize", spec)
                command = [FERRY, "quantize", "--model", "demo", "--quantize", spec, "--out", packed]
                subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
                for workers in (0, 2):
                    run(workers, "auto", "dump", "--token-ids", ids, "--taps", "--out", out, model=packed)
                    with self.subTest(spec=spec, workers=workers):
                        self.assertEqual(out.read_bytes(), expected.read_bytes())

    def test_chat_answers_are_the_golden_words(self):
        chats = [case for case in ferry_job.golden()["generation"] if case["kind"] == "chat"]
        self.assertGreaterEqual(len(chats), 5)
        for number, (workers, transport) in enumerate(LAYOUTS):
            # One process answers all questions, every other layout one.
            for case in chats if workers == 0 else [chats[number % len(chats)]]:
                question = case["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
                answer = json.loads(run(workers, transport, "generate", "--chat", question, "--json"))
                with self.subTest(workers=workers, transport=transport, question=question):
                    self.assertEqual(answer["text"], case["text"])
                    self.assertEqual(answer["token_ids"], case["greedy"])
                    self.assertEqual(answer["finish_reason"], "stop")
                    self.assertEqual(answer["expert_workers"], workers)
                    self.assertTrue(0 < answer["balancedness"] <= 1)

    def test_drafts_change_no_token(self):
        """Greedy and drawn, with the MTP layer's experts on the same workers as the others'. Each prompt has two of the layouts."""
        layouts = ((0, "auto", "3"), (2, "mpi", "1"), (3, "gloo", "3"), (1, "mpi", "auto"), (2, "gloo", "ngram:4"))
        golden = json.loads((ferry_job.ROOT / "tests" / "golden" / "demo_mtp" / "golden.json").read_text())
        for number, prompt in enumerate(golden["prompts"]):
            asked = ("--token-ids", ",".join(map(str, prompt["ids"])))
            if prompt["kind"] == "picture":
                asked = ("--chat", prompt["prompt"], "--image", ROOT / "launch" / "demo" / "pictures" / prompt["picture"])
            for drawn in ((), ("--temperature", "1.2", "--seed", "5")):
                layout = layouts[(2 * number + bool(drawn)) % len(layouts)]

                def answer(workers, transport, speculate, *options):
                    arguments = ("generate", *asked, "--max-tokens", "48", "--speculate", speculate, "--json", *drawn, *options)
                    return json.loads(run(workers, transport, *arguments))
                expected = answer(0, "auto", "0", "--dtype", "f32")
                self.assertEqual(expected["prompt_tokens"], len(prompt["ids"]))
                if not drawn:
                    self.assertEqual(expected["token_ids"], prompt["greedy"])
                with self.subTest(layout=layout, drawn=bool(drawn), prompt=prompt["prompt"]):
                    found = answer(*layout, "--dtype", "f32")
                    self.assertEqual(found["token_ids"], expected["token_ids"])
                    if layout[2] == "3" and not drawn and prompt["kind"] != "picture":
                        rounds = prompt["speculation"]["3"]
                        self.assertGreaterEqual(found["drafts"]["tried"][0], len(rounds) - 1)
                        self.assertGreater(found["drafts"]["tokens_per_step"], 1.3)

    def test_drafts_of_quantised_and_packed_checkpoints_change_no_token(self):
        with tempfile.TemporaryDirectory() as name:
            packed = pathlib.Path(name) / "packed"
            subprocess.run([FERRY, "quantize", "--model", "demo", "--quantize", "w8a8", "--out", packed], check=True, capture_output=True, timeout=SECONDS)
            for model, width in (("demo", "w8a8"), ("demo", "w4a8"), (str(packed), None)):
                def answer(workers, speculate):
                    arguments = ["generate", "--prompt", "The PostgreSQL server", "--max-tokens", "40", "--json", "--speculate", speculate]
                    return json.loads(run(workers, "auto", *arguments, *(("--quantize", width) if width else ()), model=model))
                expected = answer(0, "0")["token_ids"]
                for workers, speculate in ((0, "3"), (2, "2")):
                    with self.subTest(model=model, width=width, workers=workers):
                        found = answer(workers, speculate)
                        self.assertEqual(found["token_ids"], expected)
                        self.assertGreater(found["drafts"]["tokens_per_step"], 1.2)

    def test_drafts_of_a_layer_that_is_not_there_are_refused(self):
        model = ferry_job.ROOT / "tests" / "golden" / "qwen3_moe"
        command = [FERRY, "generate", "--model", model, "--token-ids", "1,2", "--speculate", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the checkpoint has no MTP layer (no tensor mtp.fc.weight); allowed: 0, auto, or ngram:1 to ngram:8", done.stderr)

    def test_drafts_of_two_layers_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            model = pathlib.Path(name)
            for file in (ferry_job.ROOT / "launch" / "demo").iterdir():
                (model / file.name).symlink_to(file)
            tensor = "mtp.layers.1.input_layernorm.weight"
            header = json.dumps({tensor: {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
            (model / "second.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
            index = json.loads((model / "model.safetensors.index.json").read_text())
            index["weight_map"][tensor] = "second.safetensors"
            (model / "model.safetensors.index.json").unlink()
            (model / "model.safetensors.index.json").write_text(json.dumps(index))
            command = [FERRY, "generate", "--model", model, "--token-ids", "1,2", "--max-tokens", "2", "--speculate"]
            done = subprocess.run([*command, "2"], capture_output=True, text=True, timeout=SECONDS)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"more than one MTP layer (tensor {tensor})", done.stderr)
            subprocess.run([*command, "auto"], check=True, capture_output=True, timeout=SECONDS)

    def test_drafts_behind_a_stop_string_count_as_nobodys_tokens(self):
        arguments = ["generate", "--token-ids", "4836", "--max-tokens", "7", "--stop", " not able to", "--json", "--speculate", "4"]
        found = json.loads(run(0, "auto", *arguments))
        self.assertEqual(found["completion_tokens"], 2)
        self.assertGreater(sum(found["drafts"]["tried"]), 1)
        self.assertLessEqual(sum(found["drafts"]["right"]), 1)
        self.assertLessEqual(found["drafts"]["tokens_per_step"], 2)


if __name__ == "__main__":
    ferry_job.main()
