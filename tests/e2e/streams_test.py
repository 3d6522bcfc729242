"""Many streams at once over worker ranks give the answers that one process gives to one request after another."""

import random
import unittest

import ferry_job
import grpc
from ferry_job import OpenCall, generate_alone

NUM_STREAMS = 32
CANCEL_EVERY = 4  # every fourth stream is cancelled
NUM_SAMPLED_PROMPTS = 5


def make_cases():
    """[(request, arguments of `ferry generate`)]: text, chat and ids; greedy and sampled; lengths that are no round numbers."""
    choose = random.Random(20)
    prompts = ferry_job.golden()["generation"]
    cases = []
    for i in range(NUM_STREAMS):
        sampling = {"max_tokens": choose.randrange(3, 61)}
        arguments = ["--max-tokens", sampling["max_tokens"]]
        if i % 3 == 2:
            sampling |= {"temperature": 0.75, "top_p": 0.875, "top_k": 20, "seed": i}
            arguments += ["--temperature", 0.75, "--top-p", 0.875, "--top-k", 20, "--seed", i]
        prompt = prompts[i % len(prompts)]
        if i % 4 == 3:
            ids = [choose.randrange(100, 6000) for _ in range(choose.randrange(1, 301))]
            sampling["ignore_eos"] = True
            cases.append((ferry_job.ids_request(ids, **sampling), ["--token-ids", ",".join(map(str, ids)), "--ignore-eos", *arguments]))
        elif prompt["kind"] == "chat":
            content = user_message(prompt)
            cases.append((ferry_job.chat_request(content, **sampling), ["--chat", content, *arguments]))
        else:
            cases.append((ferry_job.text_request(prompt["prompt"], **sampling), ["--prompt", prompt["prompt"], *arguments]))
    return cases


def user_message(prompt):
    return prompt["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]


class StreamsTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        cls.cases = make_cases()
        cls.expected = [generate_alone(*arguments) for _, arguments in cls.cases]

    def check_concurrent_streams(self, transport, *arguments):
        job = self.start(*arguments, ranks=3, transport=transport)
        calls = [OpenCall(job, request) for request, _ in self.cases]
        cancelled = range(0, NUM_STREAMS, CANCEL_EVERY)
        for i in cancelled:
            calls[i].wait_for_token()
            calls[i].cancel()
        for i, (call, expected) in enumerate(zip(calls, self.expected)):
            with self.subTest(stream=i):
                self.assertTrue(call.wait(), "the stream did not end")
                if call.error is not None:
                    self.assertIn(i, cancelled, call.error)
                    self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
                    self.assertEqual(call.token_ids, expected.token_ids[: len(call.token_ids)])
                else:
                    self.assertEqual(call.token_ids, expected.token_ids)
                    self.assertEqual(call.last.prompt_tokens, expected.prompt_tokens)
                    self.assertEqual(call.last.completion_tokens, expected.completion_tokens)
        # The whole answer, text included, of a server that has been through cancellations.
        for (request, _), expected in list(zip(self.cases, self.expected))[:8]:
            self.assertEqual(job.generate(request), expected)
        load = lambda: job.stub.GetLoad(ferry_job.pb.GetLoadRequest(), timeout=ferry_job.LIMIT_SECONDS)
        ferry_job.wait_for(lambda: load().running_requests == 0, "no request that runs", load)
        self.assertEqual(job.stop(), 0, job.log())

    def test_concurrent_streams_over_mpi(self):
        self.check_concurrent_streams("mpi")

    def test_concurrent_streams_over_gloo(self):
        self.check_concurrent_streams("gloo")

    def test_concurrent_streams_in_micro_batches(self):
        for transport in ("mpi", "gloo"):
            self.check_concurrent_streams(transport, "--micro-batch", "2")

    def test_golden_chats_word_for_word(self):
        job = self.start(ranks=3)
        chats = [prompt for prompt in ferry_job.golden()["generation"] if prompt["kind"] == "chat"]
        self.assertTrue(chats)
        for prompt in chats:
            answer = job.generate(ferry_job.chat_request(user_message(prompt), max_tokens=64))
            self.assertEqual(answer.text, prompt["text"])
            self.assertEqual(answer.finish_reason, "stop")
            self.assertEqual(answer.prompt_tokens, len(prompt["ids"]))

    def test_one_seed_gives_one_answer_whatever_else_runs(self):
        job = self.start(ranks=3)
        request = ferry_job.text_request("A function in Python is", temperature=1.0, max_tokens=23, seed=7)
        alone = job.generate(request)
        noise = [OpenCall(job, ferry_job.endless_request(seed)) for seed in range(NUM_SAMPLED_PROMPTS)]
        for call in noise:
            call.wait_for_token()
        self.assertEqual(job.generate(request), alone)
        request.sampling.seed = 8
        self.assertNotEqual(job.generate(request).token_ids, alone.token_ids)
        for call in noise:
            call.cancel()


if __name__ == "__main__":
    ferry_job.main()
