"""vLLM's gRPC services, as their callers have them: tokens in and out, text in and out, and what is told of the server."""

import base64
import hashlib
import io
import json
import tempfile
import threading
import zipfile

import ferry_job
import grpc
from ferry_job import golden, pb, text_request, wait_for
from smg import common_pb2
from vllm import engine_pb2, engine_pb2_grpc, inference_pb2, inference_pb2_grpc

SECONDS = ferry_job.CALL_SECONDS
PROMPT = "The kernel"


def one_of(field):
    return lambda responses: [getattr(response, field) for response in responses if response.HasField(field)]


chunks, completes = one_of("chunk"), one_of("complete")


class VllmTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        traces = tempfile.TemporaryDirectory(prefix="ferry-traces-")
        cls.addClassCleanup(traces.cleanup)
        cls.job = ferry_job.Job("--trace-dir", traces.name, ranks=1)
        cls.addClassCleanup(cls.job.kill)
        cls.addClassCleanup(cls.job.channel.close)
        cls.engine = engine_pb2_grpc.VllmEngineStub(cls.job.channel)
        cls.inference = inference_pb2_grpc.InferenceStub(cls.job.channel)
        cls.plain = cls.job.generate(text_request(PROMPT, max_tokens=12, ignore_eos=True))

    def generate(self, stream=False, request_id="", seconds=SECONDS, media=(), text=PROMPT, ids=None, **sampling):
        sampling = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, **sampling}
        request = engine_pb2.GenerateRequest(
            request_id=request_id, text=text, stream=stream, sampling_params=engine_pb2.SamplingParams(**sampling)
        )
        if ids is not None:
            request.tokenized.CopyFrom(engine_pb2.TokenizedInput(input_ids=ids))
        for url in media:
            request.media_refs.items.add(url=url, modality=common_pb2.IMAGE)
        return list(self.engine.Generate(request, timeout=seconds))

    def test_a_stream_has_the_tokens_of_the_whole_answer(self):
        (whole,) = completes(self.generate())
        self.assertEqual(list(whole.output_ids), self.plain.token_ids)
        self.assertEqual((whole.finish_reason, whole.completion_tokens), ("length", 12))
        responses = self.generate(stream=True)
        self.assertEqual([i for chunk in chunks(responses) for i in chunk.token_ids], self.plain.token_ids)
        self.assertEqual(list(completes(responses)[0].output_ids), self.plain.token_ids)
        self.assertEqual(completes(responses), [responses[-1].complete])

    def test_tokens_are_a_prompt_as_text_is(self):
        case = golden()["generation"][0]
        (same,) = completes(self.generate(ids=case["ids"]))
        self.assertEqual(list(same.output_ids), case["greedy"][:12])
        (cut,) = completes(self.generate(ids=[1, 2, 3, *case["ids"]], truncate_prompt_tokens=len(case["ids"])))
        self.assertEqual(list(cut.output_ids), case["greedy"][:12])
        self.assertEqual(cut.prompt_tokens, len(case["ids"]))

    def test_completions_are_those_of_their_seeds(self):
        three = {c.index: list(c.output_ids) for c in completes(self.generate(n=3, seed=5, temperature=1))}
        self.assertEqual(sorted(three), [0, 1, 2])
        (alone,) = completes(self.generate(seed=7, temperature=1))
        self.assertEqual(three[2], list(alone.output_ids))
        streamed = self.generate(stream=True, n=3, seed=5, temperature=1)
        self.assertEqual({c.index: list(c.output_ids) for c in completes(streamed)}, three)
        told = {0: [], 1: [], 2: []}
        for chunk in chunks(streamed):
            told[chunk.index] += chunk.token_ids
        self.assertEqual(told, three)

    def test_logprobs(self):
        (whole,) = completes(self.generate(logprobs=2, prompt_logprobs=0, max_tokens=4))
        told = whole.output_logprobs
        self.assertEqual(list(told.token_ids), list(whole.output_ids))
        for value, top in zip(told.token_logprobs, told.top_logprobs, strict=True):
            self.assertEqual(len(top.values), 2)
            self.assertEqual(value, top.values[0], "greedy tokens are the likeliest")
        self.assertEqual(len(whole.input_logprobs.token_ids), whole.prompt_tokens)
        self.assertFalse(whole.input_logprobs.token_logprobs[0].HasField("value"))
        self.assertLess(whole.input_logprobs.token_logprobs[1].value, 0)
        streamed = chunks(self.generate(stream=True, logprobs=2, max_tokens=4))
        self.assertEqual([v for c in streamed for v in c.output_logprobs.token_logprobs], list(told.token_logprobs))

    def test_text_can_be_constrained(self):
        try:
            (whole,) = completes(self.generate(choice={"choices": ["yes please", "no"]}, ignore_eos=False, max_tokens=16))
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                self.skipTest("structured output is not built")
            raise
        self.assertEqual(whole.finish_reason, "stop")
        schema = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
        decoding = inference_pb2.DecodingParameters(json=schema)
        request = inference_pb2.GenerateRequest(text=PROMPT, decoding=decoding)
        answer = self.inference.Generate(request, timeout=SECONDS)
        self.assertIsInstance(json.loads(answer.outputs.text)["ok"], bool)

    def test_a_picture_is_fetched_and_seen(self):
        picture = base64.b64encode((ferry_job.DEMO / "pictures/shapes2.png").read_bytes()).decode()
        text = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What do you see?<|im_end|>\n<|im_start|>assistant\n"
        (seen,) = completes(self.generate(text=text, media=[f"data:image/png;base64,{picture}"], max_tokens=16))
        part = pb.Part(picture=pb.Picture(data=base64.b64decode(picture)))
        request = text_request(text, max_tokens=16, ignore_eos=True)
        request.media.append(part)
        self.assertEqual(list(seen.output_ids), self.job.generate(request).token_ids)
        self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.generate(media=["data:image/png;base64,AAAA"]))

    def test_what_is_wrong_or_not_served_is_named(self):
        def refused(part, **arguments):
            self.assertIn(part, self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.generate(**arguments)))

        refused("sampling_params.n is 2", n=2)
        refused("top_p", top_p=2)
        refused("logit_bias", logit_bias={10**9: 1})
        refused("sampling_params.json_schema", json_schema="{")
        refused("request_id", request_id="a b")
        refused("tokens", text="x " * 100000)
        details = self.assert_status(
            grpc.StatusCode.UNIMPLEMENTED,
            lambda: list(self.engine.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(), timeout=SECONDS)),
        )
        self.assertIn("SubscribeKvEvents", details)
        self.assert_status(grpc.StatusCode.UNIMPLEMENTED, lambda: self.engine.Embed(engine_pb2.EmbedRequest(), timeout=SECONDS))

    def loads(self):
        return self.engine.GetLoads(engine_pb2.GetLoadsRequest(include=["core"]), timeout=SECONDS).loads[0]

    def test_abort_a_deadline_and_going_away_free_the_place(self):
        endless = {"max_tokens": 8000, "temperature": 1, "n": 2, "stream": True}
        statuses = []

        def call():
            with self.assertRaises(grpc.RpcError) as caught:
                self.generate(request_id="mine", **endless)
            statuses.append(caught.exception.code())

        thread = threading.Thread(target=call)
        thread.start()
        wait_for(lambda: self.loads().num_running_reqs == 2, "two sequences that run", self.loads)
        self.assertLess(0, self.loads().num_used_tokens)
        self.engine.Abort(engine_pb2.AbortRequest(request_ids=["mine"]), timeout=SECONDS)
        thread.join()
        self.assertEqual(statuses, [grpc.StatusCode.CANCELLED])
        self.assert_status(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: self.generate(seconds=1, **endless))
        sampling = engine_pb2.SamplingParams(max_tokens=8000, ignore_eos=True)
        stream = self.engine.Generate(engine_pb2.GenerateRequest(text=PROMPT, stream=True, sampling_params=sampling))
        next(iter(stream))
        stream.cancel()
        wait_for(lambda: self.loads().num_total_reqs == 0, "no request", self.loads)

    def test_inference_tells_text(self):
        stopping = inference_pb2.StoppingCriteria(max_new_tokens=12, ignore_eos=True)
        options = inference_pb2.ResponseOptions(output_token_ids=True, prompt_token_ids=True)
        request = inference_pb2.GenerateRequest(text=PROMPT, stopping=stopping, response=options)
        whole = self.inference.Generate(request, timeout=SECONDS)
        self.assertEqual((whole.outputs.text, list(whole.outputs.token_ids)), (self.plain.text, self.plain.token_ids))
        self.assertEqual(whole.prompt_info.num_prompt_tokens, self.plain.prompt_tokens)
        stream = list(self.inference.GenerateStream(request, timeout=SECONDS))
        self.assertEqual(list(stream[0].prompt_info.token_ids), list(whole.prompt_info.token_ids))
        self.assertEqual("".join(response.outputs.text for response in stream), self.plain.text)
        self.assertEqual(stream[-1].outputs.finish_info.finish_reason, inference_pb2.FinishInfo.LENGTH)

    def test_what_is_told_of_the_server(self):
        model = self.engine.GetModelInfo(engine_pb2.GetModelInfoRequest(), timeout=SECONDS)
        generation = json.loads((ferry_job.DEMO / "generation_config.json").read_text())
        self.assertEqual(sorted(model.eos_token_ids), sorted(generation["eos_token_id"]))
        self.assertEqual(model.pad_token_id, generation["pad_token_id"])
        self.assertEqual(json.loads(model.default_sampling_params_json)["top_k"], generation["top_k"])
        self.assertTrue(model.supports_vision)
        server = self.engine.GetServerInfo(engine_pb2.GetServerInfoRequest(), timeout=SECONDS)
        self.assertEqual((server.mm_processor, server.mm_media_ref_schemes), ("inprocess", "data"))
        self.assertTrue(self.engine.HealthCheck(engine_pb2.HealthCheckRequest(), timeout=SECONDS).healthy)
        for service in ("vllm.grpc.engine.VllmEngine", "vllm.Inference"):
            self.assertEqual(self.job.health(service), "SERVING")

    def test_the_tokenizers_archive_is_its_files(self):
        pieces = list(self.engine.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=SECONDS))
        archive = b"".join(piece.data for piece in pieces)
        self.assertEqual(pieces[-1].sha256, hashlib.sha256(archive).hexdigest())
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            self.assertIsNone(files.testzip())
            self.assertLessEqual({"tokenizer.json", "config.json", "generation_config.json"}, set(files.namelist()))
            for name in files.namelist():
                self.assertEqual(files.read(name), (ferry_job.DEMO / name).read_bytes())

    def test_a_capture(self):
        started = self.engine.StartProfile(common_pb2.StartProfileRequest(), timeout=SECONDS)
        self.assertTrue(started.success)
        self.generate()
        stopped = self.engine.StopProfile(common_pb2.StopProfileRequest(), timeout=SECONDS)
        self.assertEqual(stopped.message, started.message)


if __name__ == "__main__":
    ferry_job.main()
