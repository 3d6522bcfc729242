"""The services beside Generate, and what Generate refuses."""

import json
import subprocess
import tempfile

import ferry_job
import grpc
from demo_with_bos import demo_with_bos
from ferry_job import OpenCall, endless_request, ids_request, pace, pb, text_request, wait_for

CONFIG = json.loads((ferry_job.DEMO / "config.json").read_text())["text_config"]


class ServiceTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.job = ferry_job.Job(*pace(1, 2), ranks=3)
        cls.addClassCleanup(cls.job.kill)
        cls.addClassCleanup(cls.job.channel.close)

    def await_idle(self):
        wait_for(lambda: (self.load().running_requests, self.load().kv_blocks_used) == (0, 0), "no request that runs", self.load)

    def load(self):
        return self.job.stub.GetLoad(pb.GetLoadRequest(), timeout=ferry_job.LIMIT_SECONDS)

    def test_health(self):
        for service in ("ferry.v1.Inference", ""):
            wait_for(lambda: self.job.health(service) == "SERVING", f"health of '{service}'", lambda: self.job.health(service))

    def test_reflection(self):
        from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

        database = ProtoReflectionDescriptorDatabase(self.job.channel)
        self.assertIn("ferry.v1.Inference", database.get_services())
        self.assertIn("grpc.health.v1.Health", database.get_services())
        described = database.FindFileContainingSymbol("ferry.v1.Inference")
        methods = [method.name for service in described.service for method in service.method]
        self.assertEqual(methods, ["Generate", "GetModelInfo", "GetLoad", "Abort"])

    def test_model_info(self):
        info = self.job.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=ferry_job.LIMIT_SECONDS)
        self.assertEqual(info.name, "demo")
        self.assertEqual(info.architecture, "Qwen3_5MoeForConditionalGeneration")
        self.assertEqual(info.dtype, "bf16")
        self.assertEqual(info.vocab_size, CONFIG["vocab_size"])
        self.assertEqual(info.context_length, CONFIG["max_position_embeddings"])
        self.assertEqual(info.num_layers, CONFIG["num_hidden_layers"])
        self.assertEqual(info.hidden_dim, CONFIG["hidden_size"])
        self.assertEqual(info.num_experts, CONFIG["num_experts"])
        self.assertEqual(info.experts_per_token, CONFIG["num_experts_per_tok"])
        self.assertEqual(info.num_expert_workers, 2)
        self.assertEqual(info.transport, "sockets")
        generation = json.loads((ferry_job.DEMO / "generation_config.json").read_text())
        self.assertEqual(sorted(info.stop_token_ids), sorted(generation["eos_token_id"]))
        self.assertEqual(info.sampling_defaults.do_sample, generation["do_sample"])
        self.assertAlmostEqual(info.sampling_defaults.temperature, generation["temperature"])
        self.assertEqual(info.sampling_defaults.top_k, generation["top_k"])

    def test_load_counts(self):
        self.await_idle()
        before = self.load()
        answer = self.job.generate(text_request("The PostgreSQL server", max_tokens=13))
        after = self.load()
        self.assertEqual(after.prompt_tokens - before.prompt_tokens, answer.prompt_tokens)
        self.assertGreaterEqual(after.generated_tokens - before.generated_tokens, answer.completion_tokens)
        self.assertGreater(after.steps, before.steps)
        self.await_idle()
        self.assertGreater(after.max_running_requests, 0)
        self.assertGreater(after.kv_blocks_total, 0)
        self.assertTrue(0 < after.balancedness <= 1, after.balancedness)

    def test_what_was_computed_of_a_prompt_is_there(self):
        request = ids_request(range(200, 350), max_tokens=8)
        before = self.load().prefix_cache

        def answer():
            responses = list(self.job.stub.Generate(request, timeout=ferry_job.LIMIT_SECONDS))
            return [token for response in responses for token in response.token_ids], responses[-1].completion.cached_tokens

        tokens, cached = answer()
        self.assertEqual(cached, 0)
        self.assertEqual(answer(), (tokens, 128))
        request.cache_salt = "others"
        self.assertEqual(answer(), (tokens, 0))
        after = self.load().prefix_cache
        self.assertEqual(after.cached_tokens - before.cached_tokens, 128)
        self.assertGreaterEqual(after.queries - before.queries, 3)
        self.assertGreaterEqual(after.misses["salt"], 1)

    def test_abort(self):
        call = OpenCall(self.job, endless_request(request_id="to-be-aborted"))
        self.addCleanup(call.cancel)
        self.assertTrue(call.wait_for_token())
        wait_for(lambda: self.load().running_requests == 1, "one request that runs", self.load)
        abort = pb.AbortRequest(request_id="to-be-aborted")
        self.assertTrue(self.job.stub.Abort(abort, timeout=ferry_job.LIMIT_SECONDS).found)
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
        self.assertIn("to-be-aborted", call.error.details())
        self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_ABORTED)
        self.assertEqual(call.last.completion_tokens, len(call.token_ids))
        self.assertFalse(self.job.stub.Abort(abort, timeout=ferry_job.LIMIT_SECONDS).found)
        self.assertFalse(self.job.stub.Abort(pb.AbortRequest(request_id="never seen"), timeout=ferry_job.LIMIT_SECONDS).found)
        self.await_idle()

    def test_cancelled_calls_leave_the_batch(self):
        call = OpenCall(self.job, endless_request())
        self.addCleanup(call.cancel)
        self.assertTrue(call.wait_for_token())
        call.cancel()
        self.await_idle()

    def test_deadlines(self):
        call = OpenCall(self.job, endless_request(), seconds=0.3)
        self.addCleanup(call.cancel)
        self.assertTrue(call.wait())
        self.assertIsNotNone(call.error, "the deadline did not end it")
        self.assertEqual(call.error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.await_idle()

    def test_stop_strings_and_ids(self):
        whole = self.job.generate(text_request("The PostgreSQL server", max_tokens=24))
        stop = whole.text[10:17]
        stopped = self.job.generate(pb.GenerateRequest(text="The PostgreSQL server", sampling=pb.Sampling(max_tokens=24, stop=[stop])))
        self.assertEqual(stopped.text, whole.text[: whole.text.index(stop)])
        self.assertEqual(stopped.finish_reason, "stop")
        stop_id = whole.token_ids[5]
        sampling = pb.Sampling(max_tokens=24, stop_token_ids=[stop_id])
        stopped = self.job.generate(pb.GenerateRequest(text="The PostgreSQL server", sampling=sampling))
        self.assertEqual(stopped.token_ids, whole.token_ids[: whole.token_ids.index(stop_id) + 1])
        self.assertEqual(stopped.finish_reason, "stop")

    def responses(self, **sampling):
        request = pb.GenerateRequest(text="The PostgreSQL server", sampling=pb.Sampling(**sampling))
        return list(self.job.stub.Generate(request, timeout=ferry_job.CALL_SECONDS))

    def test_logprobs(self):
        told = self.responses(max_tokens=12, logprobs=2, prompt_logprobs=1)
        ids = [id for response in told for id in response.token_ids]
        logprobs = [one for response in told for one in response.logprobs]
        self.assertEqual([one.chosen.id for one in logprobs], ids)
        self.assertTrue(all(one.chosen.rank == 1 and len(one.top) == 2 and one.top[0] == one.chosen for one in logprobs))
        prompt = [one for response in told for one in response.prompt_logprobs]
        self.assertEqual(len(prompt), told[-1].completion.prompt_tokens - 1)
        scored = self.responses(max_tokens=0, prompt_logprobs=1)
        self.assertEqual(list(scored[-1].prompt_logprobs), prompt)
        self.assertEqual(scored[-1].completion.completion_tokens, 0)
        self.assertEqual(scored[-1].completion.finish_reason, pb.Completion.FINISH_REASON_LENGTH)

    def test_what_changes_logits(self):
        plain = self.job.generate(text_request("The PostgreSQL server", max_tokens=24)).token_ids
        once = self.job.generate(text_request("The PostgreSQL server", max_tokens=24, bad_words=[pb.TokenIds(ids=plain[:2])])).token_ids
        self.assertEqual(once[0], plain[0])
        self.assertNotEqual(once[1], plain[1])
        fewer = self.job.generate(text_request("The PostgreSQL server", max_tokens=24, allowed_token_ids=plain[:3])).token_ids
        self.assertLessEqual(set(fewer), set(plain[:3]))
        forced = self.job.generate(text_request("The PostgreSQL server", max_tokens=3, logit_bias={777: 100.0})).token_ids
        self.assertEqual(forced, [777] * 3)
        stopped = self.responses(max_tokens=24, stop_token_ids=[plain[4]], min_tokens=7)
        self.assertGreaterEqual(stopped[-1].completion.completion_tokens, 7)

    def test_bad_requests(self):
        chat = lambda *messages: pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role=r, content=c) for r, c in messages]))
        sampling = lambda **values: text_request("hello", **values)
        bad = {
            "no input": pb.GenerateRequest(),
            "empty text": text_request(""),
            "empty ids": ids_request([]),
            "no messages": chat(),
            "unknown role": chat(("wizard", "hi")),
            "late system message": chat(("user", "hi"), ("system", "be brief")),
            "unknown thinking": pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")], thinking=9)),
            "negative id": ids_request([5, -1, 6]),
            "id beyond the vocabulary": ids_request([5, CONFIG["vocab_size"]]),
            "longest id": ids_request([2**31 - 1]),
            "prompt longer than the context": ids_request([7] * (CONFIG["max_position_embeddings"] + 1)),
            "text longer than the context": text_request("word " * 50_000),
            "temperature below 0": sampling(temperature=-0.1),
            "temperature NaN": sampling(temperature=float("nan")),
            "temperature infinite": sampling(temperature=float("inf")),
            "top_p 0": sampling(top_p=0.0),
            "top_p above 1": sampling(top_p=1.01),
            "top_p NaN": sampling(top_p=float("nan")),
            "top_k below 0": sampling(top_k=-1),
            "max_tokens 0": sampling(max_tokens=0),
            "max_tokens below 0": sampling(max_tokens=-3),
            "id of a picture": ids_request([5, 6092]),
            "a picture's place in text": text_request("What is <|image_pad|> this?"),
            "a video's place in a chat": ferry_job.chat_request("<|vision_start|><|video_pad|><|vision_end|>"),
            "min_p above 1": sampling(min_p=1.1),
            "repetition_penalty 0": sampling(repetition_penalty=0.0),
            "presence_penalty below -2": sampling(presence_penalty=-2.5),
            "frequency_penalty NaN": sampling(frequency_penalty=float("nan")),
            "bias above 100": sampling(logit_bias={5: 101.0}),
            "bias of an unknown id": sampling(logit_bias={CONFIG["vocab_size"]: 1.0}),
            "unknown allowed id": sampling(allowed_token_ids=[CONFIG["vocab_size"]]),
            "empty bad word": sampling(bad_words=[pb.TokenIds()]),
            "min_tokens above max_tokens": sampling(max_tokens=3, min_tokens=4),
            "logprobs below -1": sampling(logprobs=-2),
            "more logprobs than ids": sampling(prompt_logprobs=CONFIG["vocab_size"] + 1),
            "stop string of many bytes": sampling(stop=["x" * 1025]),
            "many stop strings": sampling(stop=["x"] * 17),
            "request_id with a line break": pb.GenerateRequest(text="hello", request_id="a\nb"),
            "long request_id": pb.GenerateRequest(text="hello", request_id="x" * 129),
        }
        for name, request in bad.items():
            with self.subTest(name):
                self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.job.generate(request))
        self.assertEqual(self.job.generate(text_request("The PostgreSQL server", max_tokens=3)).completion_tokens, 3)

    def test_errors_name_the_value(self):
        error = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.job.generate(ids_request([5, 99_999])))
        self.assertIn("99999", error)
        self.assertIn(str(CONFIG["vocab_size"] - 1), error)
        error = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.job.generate(ids_request([7] * 9001)))
        self.assertIn("9001", error)
        self.assertIn(str(CONFIG["max_position_embeddings"]), error)

    def test_an_open_requests_id_cannot_be_taken_twice(self):
        call = OpenCall(self.job, endless_request(request_id="taken"))
        self.addCleanup(call.cancel)
        self.assertTrue(call.wait_for_token())
        error = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.job.generate(endless_request(request_id="taken")))
        self.assertIn("taken", error)
        self.assertIsNone(call.ended_at, "the first request was hurt")
        call.cancel()

    def test_a_port_in_use_is_one_clear_line(self):
        address = self.job._address
        command = [ferry_job.FERRY, "serve", "--model", "demo", "--memory", "256MiB", "--grpc", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ferry_job.START_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertIn(address, errors[0])
        self.assertEqual(self.job.generate(text_request("The PostgreSQL server", max_tokens=3)).completion_tokens, 3)


class QueueTest(ferry_job.JobTest):
    def test_overflow(self):
        job = self.start("--max-seqs", "1", "--max-waiting", "2", *pace(1), ranks=2)
        running = OpenCall(job, endless_request(seed=0))
        self.assertTrue(running.wait_for_token())
        load = lambda: job.stub.GetLoad(pb.GetLoadRequest(), timeout=ferry_job.LIMIT_SECONDS)
        waiting = [OpenCall(job, endless_request(seed=i, max_tokens=5)) for i in (1, 2)]
        wait_for(lambda: load().waiting_requests == 2, "two requests that wait", load)
        for _ in range(3):
            error = self.assert_status(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: job.generate(endless_request(seed=3)))
            self.assertIn("2", error)
        running.cancel()
        for call in waiting:  # those that were accepted are served
            self.assertTrue(call.wait())
            self.assertIsNone(call.error)
            self.assertEqual(len(call.token_ids), 5)
        self.assertEqual(job.generate(endless_request(seed=3, max_tokens=5)).completion_tokens, 5)


class PromptStartTest(ferry_job.JobTest):
    """A checkpoint whose tokenizer puts a token before every text, and whose chat template writes the same one."""

    def test_text_gets_it_and_a_conversation_has_it(self):
        with tempfile.TemporaryDirectory() as folder:
            bos = demo_with_bos(folder)
            job = self.start(ranks=1, model=folder)
            command = [ferry_job.FERRY, "tokenize", "--model", "demo", "--json", "--text"]
            for make_request, text in (
                (ferry_job.text_request, "The river"),
                (ferry_job.chat_request, "<|im_start|>user\nThe river<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"),
            ):
                ids = [bos, *json.loads(subprocess.run([*command, text], capture_output=True, check=True).stdout)["ids"]]
                wanted = job.generate(ids_request(ids, max_tokens=8))
                answer = job.generate(make_request("The river", max_tokens=8))
                with self.subTest(text):
                    self.assertEqual(answer.prompt_tokens, len(ids))
                    self.assertEqual(answer.token_ids, wanted.token_ids)


if __name__ == "__main__":
    ferry_job.main()
