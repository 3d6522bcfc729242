"""Prompts of tens of thousands of tokens: the end of the context, who goes while one is computed, workers that die meanwhile, and who gives way to it."""

import csv
import hashlib
import http.client
import json
import pathlib
import random
import tempfile

import ferry_job
import grpc
from elastic_test import ElasticTest, Worker
from ferry_job import DEMO, LIMIT_SECONDS, OpenCall, ids_request, pb, wait_for
from ranks_test import run

CONTEXT = 65536  # of the demo, as its config.json says it here
LONG = 9000  # tokens of a prompt: several splits of attention
ENDLESS = 8000  # tokens of an answer, so that whoever asked goes before it is whole
CHUNK = 512  # tokens of a step, where a test says so
KEPT_STEPS = 4096 // CHUNK + 1  # until the prefix cache has the first of what such a prompt leaves
STATE_BYTES = 253056  # of a sequence, whatever its length


def prompt(num_tokens, seed=1):
    draw = random.Random(seed)
    return [draw.randrange(10, 6000) for _ in range(num_tokens)]


def long_request(num_tokens=LONG, seed=1, max_tokens=24, **fields):
    request = ids_request(prompt(num_tokens, seed), max_tokens=max_tokens, ignore_eos=True)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


class LongContextTest(ElasticTest):
    @classmethod
    def setUpClass(cls):
        cls._folder = tempfile.TemporaryDirectory(prefix="ferry-long-")
        cls.addClassCleanup(cls._folder.cleanup)
        cls.model = pathlib.Path(cls._folder.name) / "demo"
        cls.model.mkdir()
        for file in DEMO.iterdir():
            if file.is_file() and file.name != "config.json":
                (cls.model / file.name).symlink_to(file)
        config = json.loads((DEMO / "config.json").read_text())
        config["text_config"]["max_position_embeddings"] = CONTEXT
        (cls.model / "config.json").write_text(json.dumps(config))

    def serve(self, *arguments, ranks=1, **options):
        return self.start(*arguments, ranks=ranks, model=self.model, **options)

    def load(self, job):
        return job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS)

    def begin(self, job, request, num_steps=2, **options):
        """Opens a call and returns it when some of its prompt has been computed, so many steps at least."""
        steps = self.load(job).steps
        call = OpenCall(job, request, **options)
        wait_for(lambda: self.load(job).steps >= steps + num_steps or call.ended_at is not None, "steps of the prompt", job.log)
        return call

    def await_idle(self, job):
        """Nothing runs or waits, and every block that is in use is the prefix cache's and free for any."""

        def is_idle():
            load = self.load(job)
            return load.running_requests + load.waiting_requests + load.kv_blocks_used == 0

        wait_for(is_idle, "nothing in progress", lambda: self.load(job))


class EndOfContextTest(LongContextTest):
    def test_a_sequence_fills_the_context_to_its_last_token(self):
        """And one token more than that is refused, whatever the cache holds."""
        most = LONG + 20
        for dtype in ("auto", "int8"):
            job = self.serve("--max-context", str(most), "--kv-cache-dtype", dtype, "--max-seqs", "2", memory="100MiB")
            answer = job.generate(long_request(max_tokens=1000))
            self.assertEqual((answer.finish_reason, answer.prompt_tokens, answer.completion_tokens), ("length", LONG, 20))
            self.assertEqual(job.generate(long_request(max_tokens=20)).token_ids, answer.token_ids)
            self.assertEqual(job.generate(long_request(num_tokens=most - 1, max_tokens=5)).completion_tokens, 1)
            refused = lambda: job.generate(long_request(num_tokens=most))
            details = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, refused)
            self.assertIn(f"it has {most} tokens; allowed: at most {most - 1}", details)
            self.assertEqual(job.stop(), 0, job.log())

    def test_what_memory_has_no_room_for_is_refused_with_what_would_hold_it(self):
        """Ids and text, over gRPC and both APIs of HTTP."""
        job = self.serve(memory="2MiB")
        words = "river " * 3000
        for ask in (
            lambda: job.generate(long_request()),
            lambda: job.generate(ferry_job.text_request(words, max_tokens=1)),
            lambda: job.generate(ferry_job.chat_request(words, max_tokens=1)),
        ):
            self.assertIn("MiB holds 65536", self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, ask))
        messages = [{"role": "user", "content": words}]
        for path, fields in (
            ("/v1/completions", {"prompt": prompt(LONG), "max_tokens": 1}),
            ("/v1/completions", {"prompt": words, "max_tokens": 1}),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": 1}),
            ("/v1/messages", {"model": "demo", "messages": messages, "max_tokens": 1}),
        ):
            status, body = self.ask_http(job, path, fields)
            self.assertEqual(status, 400, body)
            self.assertIn("maximum context length", body)
            self.assertIn("MiB holds 65536", body)
        self.assertEqual(job.stop(), 0, job.log())

    def ask_http(self, job, path, fields):
        connection = http.client.HTTPConnection(job.http_address, timeout=LIMIT_SECONDS)
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body


class GoneTest(LongContextTest):
    """Who goes while a prompt is computed: its blocks are free behind the step, and what it leaves in the prefix cache is right."""

    def test_blocks_are_free_and_the_same_prompt_gets_the_same_tokens(self):
        expected = self.serve().generate(long_request()).token_ids
        job = self.serve("--prefill-chunk", str(CHUNK), "--max-seqs", "1", memory="100MiB")
        for go in (self.cancel, self.abort, self.miss_the_deadline, self.hang_up_stream, self.hang_up):
            go(job, expected)
            self.await_idle(job)
            self.assertEqual(job.generate(ids_request([7, 8, 9], max_tokens=2, ignore_eos=True)).completion_tokens, 2)
        before = self.load(job)
        self.assertEqual(job.generate(long_request()).token_ids, expected)
        after = self.load(job)
        self.assertGreater(after.prefix_cache.cached_tokens, before.prefix_cache.cached_tokens, "nothing was kept of what was computed")
        self.assertEqual(job.stop(), 0, job.log())

    def cancel(self, job, expected):
        call = self.begin(job, long_request(max_tokens=ENDLESS), KEPT_STEPS)
        call.cancel()
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
        self.assertEqual(call.token_ids[: len(expected)], expected[: len(call.token_ids)])

    def abort(self, job, expected):
        call = self.begin(job, long_request(request_id="long", max_tokens=ENDLESS), KEPT_STEPS)
        self.assertTrue(job.stub.Abort(pb.AbortRequest(request_id="long"), timeout=LIMIT_SECONDS).found)
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)

    def miss_the_deadline(self, job, expected):
        call = self.begin(job, long_request(num_tokens=56000, seed=2, max_tokens=ENDLESS), seconds=1)
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def hang_up_stream(self, job, expected):
        self.hang_up(job, expected, is_stream=True)

    def hang_up(self, job, expected, is_stream=False):
        steps = self.load(job).steps
        connection = http.client.HTTPConnection(job.http_address, timeout=LIMIT_SECONDS)
        body = json.dumps({"prompt": prompt(LONG), "max_tokens": ENDLESS, "ignore_eos": True, "stream": is_stream})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        wait_for(lambda: self.load(job).steps >= steps + KEPT_STEPS, "steps of the prompt", job.log)
        connection.close()

    def test_a_server_that_is_to_end_waits_as_long_as_it_may(self):
        job = self.serve("--prefill-chunk", "512", "--drain-timeout", "0.2")
        call = self.begin(job, long_request(num_tokens=56000, max_tokens=ENDLESS))
        self.assertEqual(job.stop(), 0, job.log())
        self.assertTrue(call.wait())
        self.assertIn(call.error.code(), (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE))
        job = self.serve()
        call = self.begin(job, long_request(max_tokens=3))
        job.terminate()
        self.assertEqual(job.wait(), 0, job.log())
        self.assertTrue(call.wait())
        self.assertIsNone(call.error)
        self.assertEqual(len(call.token_ids), 3)


class SharedTest(LongContextTest):
    """Beside a long prompt, and with what it computed given up and taken back."""

    def test_streams_go_on_beside_a_long_prompt(self):
        """With a bound for steps or without: each is computed alone again, to the same tokens, and no step has the prompt alone."""
        stream = ids_request([10, 20, 30], max_tokens=ENDLESS, ignore_eos=True)
        known = ids_request([10, 20, 30], max_tokens=100, ignore_eos=True)
        alone = self.serve()
        expected, long_expected = (alone.generate(request).token_ids for request in (known, long_request()))
        self.assertEqual(alone.stop(), 0, alone.log())
        for arguments in (("--decode-slo-ms", "20"), ("--prefill-chunk", "512")):
            traces = pathlib.Path(self._folder.name) / f"traces{arguments[0]}"
            job = self.serve(*arguments, "--speculate", "0", "--trace-dir", traces)
            call = OpenCall(job, stream)
            self.assertTrue(call.wait_for_token(), call.error)
            self.post(job, "/start_profile", {"output_dir": "beside", "level": 0})
            self.assertEqual(job.generate(long_request()).token_ids, long_expected)
            self.post(job, "/stop_profile", {"wait": True})
            self.assertIsNone(call.ended_at, "the stream was not to end")
            call.cancel()
            self.assertEqual(call.token_ids[:100], expected[: len(call.token_ids)])
            with (traces / "beside/csv/step.csv").open(newline="") as file:
                phases = [row["phase"] for row in csv.DictReader(file)]
            self.assertNotIn("prefill", phases)
            self.assertGreaterEqual(phases.count("mixed"), LONG // 2112)
            self.assertEqual(job.stop(), 0, job.log())

    def test_who_gives_way_gets_the_same_tokens(self):
        """Three prompts of which memory holds two, but not their answers: what was computed is saved, or computed anew."""
        requests = [long_request(num_tokens=4000, seed=seed, max_tokens=60) for seed in (3, 4, 5)]
        for dtype, token_bytes, swaps in (("auto", 1536, ("0B",)), ("int8", 792, ("64MiB", "0B"))):
            memory = f"{8080 * token_bytes + 3 * STATE_BYTES}B"
            arguments = ("--max-context", "4500", "--kv-cache-dtype", dtype, "--max-seqs", "3", "--prefix-cache-memory", "0B")
            alone = self.serve(*arguments)
            expected = [alone.generate(request).token_ids for request in requests]
            self.assertEqual(alone.stop(), 0, alone.log())
            for swap in swaps:
                job = self.serve(*arguments, "--swap-memory", swap, memory=memory)
                self.assertEqual(self.run_calls(job, requests), expected)
                self.assertGreater(self.load(job).preemptions, 0, "memory held all of them: " + job.log())
                self.await_idle(job)
                self.assertEqual(job.stop(), 0, job.log())


class WorkersTest(LongContextTest):
    """One of two that dies while a prompt is computed, over mpirun's job and among those that joined."""

    def test_a_worker_dies_during_a_long_prompt(self):
        requests = [long_request(), long_request(num_tokens=300, seed=2)]
        for dtype, is_elastic in (("auto", False), ("int8", True)):
            cache = ("--kv-cache-dtype", dtype, "--prefill-chunk", "512")
            alone = self.serve(*cache)
            expected = [alone.generate(request).token_ids for request in requests]
            self.assertEqual(alone.stop(), 0, alone.log())
            if not is_elastic:
                job = self.serve(*cache, ranks=3)
                self.check_loss(job, requests, expected, lambda: job.kill_rank(1))
                continue
            job, workers = self.serve_elastic(*cache)
            self.check_loss(job, requests, expected, workers[0].process.kill)
            workers[1].process.kill()
            self.assertEqual(job.generate(requests[0]).token_ids, expected[0], "without any worker")
            self.assertEqual(job.stop(), 0, job.log())

    def test_any_number_of_ranks_gives_the_same_logits(self):
        """Of a prompt behind whose end attention has a second split, by keys and values of either kind."""
        ids = ",".join(map(str, prompt(2200)))
        for dtype in ("auto", "int8"):
            dumps = set()
            for workers in (0, 1, 2):
                out = pathlib.Path(self._folder.name) / "dump.safetensors"
                run(workers, "auto", "dump", "--token-ids", ids, "--kv-cache-dtype", dtype, "--out", out, model=self.model)
                dumps.add(hashlib.sha256(out.read_bytes()).digest())
            self.assertEqual(len(dumps), 1, dtype)

    def check_loss(self, job, requests, expected, kill):
        calls = [self.begin(job, requests[0])]
        kill()
        calls.append(OpenCall(job, requests[1]))
        for call, tokens in zip(calls, expected):
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNone(call.error, job.log())
            self.assertEqual(call.token_ids, tokens)
        self.await_states(job, rank_1="gone", rank_2="healthy")

    def serve_elastic(self, *arguments):
        job = self.serve("--elastic", "127.0.0.1:0", *arguments)
        wait_for(lambda: "workers may join on " in job.log(), "where workers may join", job.log)
        address = job.log().split("workers may join on ")[1].split()[0]
        workers = [Worker(self, address, model=self.model)]
        self.await_states(job, rank_1="healthy")
        workers.append(Worker(self, address, model=self.model))
        self.await_states(job, rank_1="healthy", rank_2="healthy")
        return job, workers


if __name__ == "__main__":
    ferry_job.main()
