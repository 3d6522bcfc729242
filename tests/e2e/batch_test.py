"""`ferry batch` answers files of requests: every line once, whatever ends the process in between, alone and over ranks."""

import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from ferry_job import FERRY, LIMIT_SECONDS, ROOT, wait_for

SOME_FAILED = 3
NUM_LONG = 400  # requests: many seconds one by one, few side by side


def request(custom_id, url="/v1/completions", **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": "demo", "temperature": 0, **body}}


def some_requests(count, max_tokens=12):
    words = "river courage kernel music summer stone".split()
    return [
        request(f"text-{i}", prompt=f"The {words[i % 6]} number {i}", max_tokens=max_tokens)
        if i % 2
        else request(
            f"chat-{i}",
            "/v1/chat/completions",
            messages=[{"role": "user", "content": f"What does {words[i % 6]} mean?"}],
            max_tokens=max_tokens,
        )
        for i in range(count)
    ]


def text_of(answer):
    choice = answer["response"]["body"]["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


class BatchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ferry-batch-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.input, self.output = self.folder / "in.jsonl", self.folder / "out.jsonl"

    def write(self, lines):
        self.input.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))

    def start(self, *arguments, ranks=1):
        launcher = [] if ranks == 1 else [str(ROOT / "launch/mpirun.sh"), "-np", str(ranks)]
        command = [*launcher, FERRY, "batch", "--model", "demo", "--memory", "512MiB", *map(str, arguments)]
        return subprocess.Popen([*command, self.input, self.output], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run_batch(self, *arguments, code=0, ranks=1):
        process = self.start(*arguments, ranks=ranks)
        _, said = process.communicate(timeout=LIMIT_SECONDS)
        self.assertIn(process.returncode, (code,) if isinstance(code, int) else code, said)
        return said

    def answers(self):
        """{custom_id: answer}; every id once."""
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        found = {line["custom_id"]: line for line in lines}
        self.assertEqual(len(found), len(lines))
        return found

    def wait_for_lines(self, process, count):
        num_lines = lambda: self.output.read_bytes().count(b"\n") if self.output.exists() else 0
        wait_for(lambda: num_lines() >= count or process.poll() is not None, f"{count} lines", num_lines)
        self.assertIsNone(process.poll(), "it ended before")

    def test_without_a_tokenizer_token_ids_are_answered(self):
        bare = self.folder / "bare"
        bare.mkdir()
        for file in (ROOT / "launch/demo").iterdir():
            if file.is_file() and "token" not in file.name:
                (bare / file.name).symlink_to(file)
        self.write([request("ids", prompt=[443, 3808, 1132], max_tokens=4), request("text", prompt="The kernel")])
        command = [FERRY, "batch", "--model", bare, "--served-model-name", "demo", "--memory", "512MiB", self.input, self.output]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        self.assertIn("requests have to give token ids", done.stderr)
        answers = self.answers()
        choice = answers["ids"]["response"]["body"]["choices"][0]
        self.assertEqual((choice["text"], len(choice["token_ids"])), ("", 4), choice)
        refusal = answers["text"]["response"]
        self.assertEqual(refusal["status_code"], 400, refusal)
        self.assertIn("text needs a tokenizer", refusal["body"]["error"]["message"])

    def test_steps_are_kept_as_a_servers_are(self):
        self.write(some_requests(12, max_tokens=60))
        traces = self.folder / "traces"
        self.run_batch("--trace-dir", traces, "--trace-sample", 2, ranks=3)
        kept = subprocess.run([FERRY, "trace", "archive", traces, "--last", "1h", "--json"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(kept.returncode, 0, kept.stderr)
        self.assertGreater(json.loads(kept.stdout)["num_kept"], 5)
        segments = sorted((traces / "archive").glob("*-sample.ferryseg"))
        report = subprocess.run([FERRY, "trace", "report", segments[-1]], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertIn("GroupedMatmul", report.stdout)
        self.assertRegex(report.stdout, r"(?m)^ranks +3$")

    def test_answers_are_those_of_a_server_and_of_any_number_of_ranks(self):
        requests = some_requests(12)
        self.write(requests)
        said = self.run_batch()
        self.assertIn("100 %, 12 answered, 0 running", said)
        alone = self.answers()
        self.assertEqual(set(alone), {line["custom_id"] for line in requests})
        for custom_id, answer in alone.items():
            response = answer["response"]
            self.assertEqual((response["status_code"], answer["error"]), (200, None))
            self.assertTrue(response["request_id"])
            kind = "chat.completion" if custom_id.startswith("chat") else "text_completion"
            self.assertEqual(response["body"]["object"], kind)
            self.assertGreater(response["body"]["usage"]["completion_tokens"], 0)
        self.output.unlink()
        self.run_batch("--concurrency", 1, ranks=3)
        ranks = self.answers()
        self.assertEqual({i: text_of(a) for i, a in ranks.items()}, {i: text_of(a) for i, a in alone.items()})

    def test_errors_are_of_their_lines(self):
        self.write(
            [
                request("good", prompt="The river", max_tokens=4),
                "no JSON",
                request("temperature", prompt="x", temperature=-1),
                request("model", prompt="x", model="another"),
                request("url", "/v1/embeddings", input="x"),
                request("stream", prompt="x", stream=True),
                request("priority", prompt="x", priority=1),
                request("good", prompt="again"),
                {"method": "POST", "url": "/v1/completions", "body": {}},
                request("last", prompt=[1, 2, 3], max_tokens=4, n=2, temperature=0.5),
                request("responses", "/v1/responses", input="The river", max_output_tokens=4),
            ]
        )
        self.assertIn("3 answered, 8 failed", self.run_batch(code=SOME_FAILED))
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        self.assertEqual(len(lines), 11)
        statuses = {line["custom_id"]: line["response"]["status_code"] for line in lines if line["response"]}
        self.assertEqual(statuses, {"good": 200, "temperature": 400, "model": 404, "priority": 400, "last": 200, "responses": 200})
        errors = sorted((line["line"], line["error"]["code"]) for line in lines if line["error"])
        kinds = ["invalid_json_line", "invalid_request", "invalid_request", "duplicate_custom_id", "invalid_request"]
        self.assertEqual(errors, list(zip([2, 5, 6, 8, 9], kinds)))
        said = self.run_batch(code=SOME_FAILED)
        self.assertIn("11 were before", said, "nothing is done twice")
        self.assertIn("11 lines, 8 of them errors", said)
        self.assertEqual(len(self.output.read_text().splitlines()), 11)

    def test_goes_on_after_it_was_killed(self):
        requests = some_requests(NUM_LONG, max_tokens=24)
        self.write(requests)
        process = self.start("--concurrency", 1)
        self.wait_for_lines(process, 5)
        process.kill()
        process.communicate(timeout=LIMIT_SECONDS)
        before = self.output.read_bytes()
        whole = before[: before.rfind(b"\n") + 1]
        self.assertLess(whole.count(b"\n"), NUM_LONG)
        with self.output.open("ab") as file:
            file.write(b'{"id":"batch_req_0123","custom_id":"text-')  # as if it had been killed in the middle of a line
        said = self.run_batch()
        self.assertIn("had no end", said)
        self.assertTrue(self.output.read_bytes().startswith(whole))
        resumed = self.answers()
        self.assertEqual(set(resumed), {line["custom_id"] for line in requests})
        self.output.unlink()
        self.run_batch()
        self.assertEqual({i: text_of(a) for i, a in resumed.items()}, {i: text_of(a) for i, a in self.answers().items()})

    def test_a_signal_lets_running_lines_end_and_says_what_is_left(self):
        self.write(some_requests(NUM_LONG, max_tokens=24))
        for name in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--concurrency", 1)
            self.wait_for_lines(process, self.output.read_bytes().count(b"\n") + 3 if self.output.exists() else 3)
            process.send_signal(name)
            _, said = process.communicate(timeout=LIMIT_SECONDS)
            self.assertEqual(process.returncode, 128 + name, said)
            self.assertRegex(said, r"at most \d+ lines are left")
            self.assertTrue(self.output.read_bytes().endswith(b"\n"))
        self.run_batch()
        self.assertEqual(len(self.answers()), NUM_LONG)

    def test_priorities_and_structure_count(self):
        self.write(
            [
                request("plain", prompt="The river", max_tokens=4, priority=5),
                request("choice", prompt="The river", max_tokens=9, priority=-1, structured_outputs={"choice": ["left", "right"]}),
            ]
        )
        said = self.run_batch("--policy", "priority", code=(0, SOME_FAILED))
        answers = self.answers()
        self.assertEqual(answers["plain"]["response"]["status_code"], 200, said)
        if answers["choice"]["response"]["status_code"] != 501:  # a build without the compiler of grammars
            self.assertIn(text_of(answers["choice"]), ("left", "right"))

    def test_files_that_will_not_do_are_one_line(self):
        self.write(some_requests(2))
        self.output.write_text('{"custom_id": "mine"}\n')
        self.assertIn("line 1", self.run_batch(code=2))
        self.assertEqual(self.output.read_text(), '{"custom_id": "mine"}\n')
        self.output = self.input
        self.assertIn("is the file of the requests", self.run_batch(code=2))
        self.output = self.folder / "no" / "out.jsonl"
        self.assertIn("cannot be written", self.run_batch(code=2))
        self.input = self.folder / "none"
        said = self.run_batch(code=2)
        self.assertIn("cannot be read", said)
        self.assertEqual(said.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
