"""Whatever a user or a stranger's file says, the answer is one line that names it: no crash, no hang, no process left behind."""

import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import uuid

import ferry_job
import grpc
from ferry_job import DEMO, FERRY, LIMIT_SECONDS, ROOT, on_host, pb, text_request, told_lines, wait_for

BAD_INPUT = 2  # the exit code
GENERATE = ("generate", "--model", "demo", "--memory", "64MiB", "--max-tokens", "2")
PROMPT = ("--prompt", "The server")


def run(command):
    """Runs a whole job to its end, which no rank outlives: (exit code, lines of stderr)."""
    job_id = uuid.uuid4().hex
    done = subprocess.run(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "FERRY_E2E_JOB": job_id},
    )
    lines = told_lines(done.stderr.decode(errors="replace"))
    wait_for(lambda: not ferry_job.ranks_of(job_id), "the end of all ranks", lambda: ferry_job.ranks_of(job_id))
    return done.returncode, lines


class BadInputTest(ferry_job.JobTest):
    def refuse(self, command, *fragments, code=BAD_INPUT):
        """`command` must end with `code` and one line on stderr that contains `fragments`."""
        exit_code, lines = run(command)
        said = "\n".join(lines)
        self.assertEqual(exit_code, code, said)
        self.assertEqual(len(lines), 1, said)
        self.assertTrue(lines[0].startswith("ferry: error: "), said)
        self.assertLess(len(lines[0]), 1200)
        for fragment in fragments:
            self.assertIn(fragment, lines[0])


class LauncherTest(ferry_job.JobTest):
    def test_a_program_that_is_not_there(self):
        for program in ("no/such/ferry", "launch/no-such-ferry", "no-such-ferry"):
            done = subprocess.run([str(ROOT / "launch/mpirun.sh"), "-np", "2", program], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 127)
            self.assertIn(f"no program '{program}'", done.stderr)

    def test_its_own_options(self):
        says = {"-np": "-np: a value is missing", "--mca": "--mca: a value is missing", "--frob": "--frob is not known here"}
        for option, complaint in says.items():
            done = subprocess.run([ROOT / "launch/mpirun.sh", option], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual((done.returncode, done.stderr), (2, f"launch/mpirun.sh: {complaint}; try --help\n"))


class CommandLineTest(BadInputTest):
    def test_options(self):
        ids = lambda text: ("generate", "--model", "demo", "--token-ids", text)
        cases = [
            ((), "a command is missing"),
            (("frob",), "'frob'"),
            (("generate", *PROMPT), "--model"),
            (("generate", "--model", "demo"), "--prompt", "--chat", "--token-ids"),
            ((*GENERATE, *PROMPT, "--chat", "x"), "--prompt", "2 were given"),
            ((*GENERATE, *PROMPT, "--frob"), "--frob"),
            ((*GENERATE, *PROMPT, "--threads="), "--threads", "missing", "1 to 1024"),
            ((*GENERATE, *PROMPT, "--threads", "-1"), "--threads", "'-1'", "1 to 1024"),
            ((*GENERATE, *PROMPT, "--dtype", "f32", "--dtype", "f32"), "--dtype", "2 times"),
            ((*GENERATE, *PROMPT, "--temperature", "nan"), "--temperature", "'nan'"),
            ((*GENERATE, *PROMPT, "--token-budget", "79"), "--token-budget", "'79'", "at least 80"),
            ((*GENERATE, *PROMPT, "--prefill-chunk", "65"), "--prefill-chunk", "'65'", "multiple of 64"),
            (("generate", "--model", "demo", *PROMPT, "--memory", "1e30"), "--memory", "'1e30'"),
            (("generate", "--model", "demo", *PROMPT, "--memory", "MiB"), "--memory", "'MiB'"),
            (ids("1,2,"), "--token-ids", "'1,2,'"),
            (ids("9223372036854775808"), "--token-ids", "'9223372036854775808'"),
            (("bench", "--model", "demo", "-p", "9223372036854775807"), "-p", "9223372036854775807"),
            (("bench", "--model", "demo", "-b", "9223372036854775807"), "-b", "9223372036854775807"),
        ]
        for arguments, *fragments in cases:
            with self.subTest(arguments):
                self.refuse((FERRY, *arguments), *fragments)

    def test_what_only_the_checkpoint_can_tell(self):
        self.refuse((FERRY, "generate", "--model", "/nonexistent", *PROMPT), "--model", "'/nonexistent'")
        self.refuse((FERRY, *GENERATE, "--prompt", ""), "prompt is empty")
        self.refuse((FERRY, *GENERATE, "--token-ids", "5,6144"), "prompt[1] is 6144", "6143")
        self.refuse((FERRY, *GENERATE, "--token-ids", ",".join(["1"] * 8192)), "8192 tokens", "8191")
        self.refuse((FERRY, *GENERATE, *PROMPT, "--stop", b"\xff".decode(errors="surrogateescape")), "stop")
        self.refuse((FERRY, "generate", "--model", "demo", *PROMPT, "--memory", "2KiB"), "2048", "at least")
        self.refuse((FERRY, "serve", "--model", "demo", "--memory", "64MiB", "--grpc", "127.0.0.1:99999"), "127.0.0.1:99999")
        config = ROOT / "launch/demo/config.json"
        self.refuse((FERRY, *GENERATE, *PROMPT, "--expert-load", config), "--expert-load", str(config))
        self.refuse((FERRY, *GENERATE, *PROMPT, "--expert-load", "/nonexistent/load"), "--expert-load", "/nonexistent/load")

    def test_more_memory_than_there_is(self):
        available = int(pathlib.Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) << 10
        if available > 400 << 30:
            self.skipTest("this machine has it")
        large = ("--memory", "1PiB", "--max-seqs", "60000", "--token-budget", "61000")  # 480 GiB of the demo's cache
        self.refuse((FERRY, "generate", "--model", "demo", *PROMPT, *large), "--memory", "GiB", "available", code=1)

    def test_a_dump_does_not_replace_what_is_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = pathlib.Path(folder) / "fifo"
            os.mkfifo(fifo)
            for out in (fifo, pathlib.Path(folder), pathlib.Path(folder) / "missing" / "x"):
                self.refuse((FERRY, "dump", "--model", "demo", "--memory", "64MiB", "--token-ids", "1", "--out", out), str(out))
            self.assertTrue(stat.S_ISFIFO(fifo.stat().st_mode))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [fifo])


class InterruptTest(ferry_job.JobTest):
    def interrupt(self):
        """(the exit code of a quantisation that gets SIGINT while it writes, what it says)"""
        command = [FERRY, "quantize", "--model", "demo", "--quantize", "w4a8", "--threads", "1", "--out"]
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "packed"
            process = subprocess.Popen([*command, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            wait_for(lambda: out.exists() or process.poll() is not None, "a file")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LIMIT_SECONDS)
            self.assertEqual(out.exists(), process.returncode == 0, said)
            return process.returncode, said

    def test_an_interrupted_quantisation_leaves_nothing_or_all(self):
        """All where it was done before it heard of it."""
        code, said = self.interrupt()
        self.assertIn(code, (0, 1), said)
        self.assertEqual("interrupted" in said, code == 1, said)

    @on_host
    def test_an_interrupted_quantisation_leaves_nothing(self):
        code, said = self.interrupt()
        self.assertEqual(code, 1, said)
        self.assertIn("interrupted", said)


class CheckpointTest(BadInputTest):
    """Copies of the demo checkpoint (links, in fact) with one file that is not as it should be."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for file in DEMO.iterdir():
            if file.is_file():
                (self.folder / file.name).symlink_to(file)

    def put(self, name, content):
        (self.folder / name).unlink()
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def refuse_folder(self, *fragments, code=BAD_INPUT, arguments=()):
        self.refuse((FERRY, "generate", "--model", self.folder, "--memory", "64MiB", *PROMPT, *arguments), *fragments, code=code)

    def test_a_fifo_or_a_folder_in_place_of_a_file(self):
        for name in ("config.json", "generation_config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"):
            for make in (os.mkfifo, os.mkdir):
                with self.subTest(name=name, make=make.__name__):
                    self.setUp()
                    (self.folder / name).unlink()
                    make(self.folder / name)
                    self.refuse_folder(name, "not a regular file")

    def test_deep_nesting(self):
        deep = "[" * 100_000 + "]" * 100_000
        config = json.loads((DEMO / "config.json").read_text())
        config["text_config"]["hidden_act"] = "here"
        self.put("config.json", json.dumps(config).replace('"here"', deep))
        self.refuse_folder("config.json", "nested deeper")
        self.setUp()
        self.put("tokenizer.json", deep)
        self.refuse_folder("tokenizer.json", "nested deeper")

    def test_values_of_strangers_are_shown_on_one_short_line(self):
        config = json.loads((DEMO / "config.json").read_text())
        config["text_config"]["hidden_act"] = "a\nb\x1b[31m" + "y" * 1_000_000
        self.put("config.json", json.dumps(config))
        self.refuse_folder("hidden_act", "silu")

    def test_weights(self):
        shard = "model-00002-of-00003.safetensors"
        stored = (DEMO / shard).read_bytes()
        self.put(shard, stored[:-1])
        self.refuse_folder(shard, "truncated")
        self.setUp()
        self.put(shard, (2**63).to_bytes(8, "little") + stored[8:])
        self.refuse_folder(shard, str(2**63))
        self.setUp()
        header_bytes = int.from_bytes(stored[:8], "little")
        self.put(shard, stored[: 8 + header_bytes] + b"\xc0\x7f" * ((len(stored) - 8 - header_bytes) // 2))  # bf16 NaN
        self.refuse_folder("not finite", code=1)
        self.refuse_folder(shard, "must be finite", arguments=("--check-weights",))

    def test_settings_are_checked_before_weights_are_read(self):
        """The weights are bad, too, which is not what is complained of."""
        shard = "model-00002-of-00003.safetensors"
        stored = (DEMO / shard).read_bytes()
        header_bytes = int.from_bytes(stored[:8], "little")
        self.put(shard, stored[: 8 + header_bytes] + b"\xc0\x7f" * ((len(stored) - 8 - header_bytes) // 2))  # bf16 NaN
        here = ("--model", self.folder, "--memory", "64MiB", "--check-weights")
        ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        ids = ("--token-ids", "1")
        file = self.folder / "config.json"  # no folder can be made below it
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            cases = [
                (("serve", *here, "--http", address, "--grpc", "127.0.0.1:0"), address),
                (("serve", *here, "--http", "127.0.0.1:0", "--grpc", address), address),
                (("serve", *here, *ports, "--elastic", address), "--elastic", address),
                (("serve", *here, *ports, "--elastic", "127.0.0.1:0", "--join-key", "/nowhere/key"), "/nowhere/key"),
                (("serve", *here, *ports, "--trace-dir", file / "traces"), "--trace-dir", "traces"),
                (("generate", *here, "--prompt", ""), "prompt is empty"),
                (("generate", *here, "--token-ids", "5,6144"), "prompt[1] is 6144"),
                (("generate", *here, *PROMPT, "--image", "/nowhere/picture.png"), "/nowhere/picture.png"),
                (("dump", *here, *ids, "--out", file / "x"), str(file / "x")),
                (("bench", *here, "--prompt-file", "/nowhere/text"), "/nowhere/text"),
            ]
            for arguments, *fragments in cases:
                with self.subTest(arguments):
                    self.refuse((FERRY, *arguments), *fragments)
        self.put("tokenizer.json", "{}")
        batch = (FERRY, "batch", *here, DEMO / "README.md", self.folder / "out.jsonl")
        for command in ((FERRY, "serve", *here, *ports), batch, (FERRY, "generate", *here, *PROMPT)):
            self.refuse(command, "tokenizer files")
        self.refuse((FERRY, "generate", *here, *ids), shard, "must be finite")

    def test_index(self):
        index = json.loads((DEMO / "model.safetensors.index.json").read_text())
        name = "model.language_model.norm.weight"
        for file in ("/etc/passwd", "../x", "nosuch.safetensors", "config.json"):
            with self.subTest(file):
                self.setUp()
                index["weight_map"][name] = file
                self.put("model.safetensors.index.json", json.dumps(index))
                self.refuse_folder(file)

    def test_codes_that_no_product_takes(self):
        for name, keys, complaint in (
            ("gptq_qwen3_5_moe", {"group_size": 256}, "rows of 128 elements, which groups of 256 do not divide"),
            ("fp8_qwen3_5_moe", {"weight_block_size": [128, 96]}, "scales are for 96 columns"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder) / "copy"
                shutil.copytree(ROOT / "tests/golden" / name, copy)
                config = json.loads((copy / "config.json").read_text())
                config["quantization_config"] |= keys
                (copy / "config.json").write_text(json.dumps(config))
                for command in ("generate", "quantize"):
                    to = ("--out", copy / "out") if command == "quantize" else ("--token-ids", "1")
                    with self.subTest(name, command=command):
                        self.refuse((FERRY, command, "--model", copy, "--quantize", "native", *to), complaint, "allowed")
        self.refuse((FERRY, *GENERATE, *PROMPT, "--quantize", "native"), "holds no codes", "allowed: none, w8a8, w4a8")


class RanksTest(BadInputTest):
    """The same under mpirun: every rank leaves, and the coordinator alone says why."""

    def refuse_job(self, *fragments, code=BAD_INPUT, arguments=(*GENERATE, *PROMPT), on_rank=None):
        """`on_rank` is (rank, what this rank runs instead)."""
        command = [FERRY, *arguments]
        if on_rank:
            rank, other = on_rank
            script = f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then exec {other}; fi; exec "$@"'
            command = ["bash", "-c", script, "rank", *command]
        self.refuse([ROOT / "launch/mpirun.sh", "-np", 3, *command], *fragments, code=code)

    def test_all_ranks(self):
        self.refuse_job("--threads", "'0'", arguments=(*GENERATE, *PROMPT, "--threads", "0"))
        self.refuse_job("--model", arguments=("generate", "--model", "/nonexistent", *PROMPT))
        self.refuse_job("prompt[0] is 9999", arguments=(*GENERATE, "--token-ids", "9999"))

    def test_one_rank_differs(self):
        self.refuse_job("rank 1", "--model", on_rank=(1, f"{FERRY} generate --model /nonexistent --prompt x"))
        for option, theirs, ours in (("--dtype", "f32", "bf16"), ("--token-budget", "99", "2112"), ("--transport", "gloo", "auto"),
                                     ("--quantize", "w8a8", "none")):
            with self.subTest(option):
                self.refuse_job(f"rank 2 has {option} {theirs}", f"{option} {ours}", on_rank=(2, f'"$@" {option} {theirs}'))

    def test_the_first_rank_of_each_command_line_complains(self):
        """As Open MPI starts them; a real coordinator waits a minute for the others."""
        for ranks, speakers in (("4", (0,)), ("1 3", (0, 1)), ("1 2 1", (0, 1, 3)), ("", (0,))):
            for rank in range(4):
                launcher = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4", "OMPI_APP_CTX_NUM_PROCS": ranks}
                done = subprocess.run(
                    [FERRY, *GENERATE, *PROMPT, "--device", "bogus"], capture_output=True, text=True, timeout=LIMIT_SECONDS, env={**os.environ, **launcher}
                )
                who = f"rank {rank}: " if rank > 0 else ""
                expected = [f"ferry: error: {who}--device: 'bogus'; allowed: cpu, auto, vulkan, or vulkan:N with N as `ferry devices` numbers them"]
                self.assertEqual((done.returncode, done.stderr.splitlines()), (BAD_INPUT, expected if rank in speakers else []), (ranks, rank))


VANISHING_CLIENT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from ferry_job import endless_request, grpc, pb_grpc
stub = pb_grpc.InferenceStub(grpc.insecure_channel(sys.argv[2]))
calls = [stub.Generate(endless_request(seed=int(sys.argv[3]) + i)) for i in range(3)]
next(calls[0])
os.kill(os.getpid(), signal.SIGKILL)
"""


class ServiceTest(ferry_job.JobTest):
    def test_strange_requests_and_clients(self):
        job = self.start(ranks=1)
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        long_role = pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="w\n" * 100_000, content="x")]))
        self.assertIn("role", self.assert_status(invalid, lambda: job.generate(long_role)))
        many = pb.GenerateRequest(text="x", sampling=pb.Sampling(stop=["x"] * 2000))
        self.assertIn("2000", self.assert_status(invalid, lambda: job.generate(many)))
        many = pb.GenerateRequest(text="x", sampling=pb.Sampling(stop_token_ids=[5] * 2000))
        self.assertIn("2000", self.assert_status(invalid, lambda: job.generate(many)))
        self.assertIn("2500000", self.assert_status(invalid, lambda: job.generate(text_request("word " * 500_000))))
        self.assert_status(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: job.generate(text_request("word " * (13 << 20))))

        here = str(pathlib.Path(__file__).parent)
        left = self.enterContext(tempfile.TemporaryDirectory(prefix="ferry-vanished-"))  # what they have no time to remove
        environment = {**os.environ, "TMPDIR": left}
        clients = [
            subprocess.Popen([sys.executable, "-c", VANISHING_CLIENT, here, job._address, str(10 * i)], env=environment) for i in range(3)
        ]
        self.assertEqual([client.wait(LIMIT_SECONDS) for client in clients], [-signal.SIGKILL] * 3)
        load = lambda: job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS)
        idle = lambda: load().running_requests == 0 and load().waiting_requests == 0 and load().kv_blocks_used == 0
        wait_for(idle, "nothing in progress", load)
        self.assertEqual(job.generate(text_request("The server", max_tokens=3)).completion_tokens, 3)
        self.assertEqual(job.stop(), 0)


if __name__ == "__main__":
    ferry_job.main()
