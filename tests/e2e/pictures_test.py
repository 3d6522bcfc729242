"""Pictures and videos: the same words as Hugging Face's, however many ranks, drafts and other streams there are."""

import base64
import json
import random
import time
import unittest

import ferry_job
import grpc
import pictures
from ferry_job import LIMIT_SECONDS, OpenCall, endless_request, pb, wait_for
from pictures import beside_request, drawn, parts_request, shapes
from ranks_test import run

CASES = json.loads((pictures.FRAMES / "golden.json").read_text())["cases"]
TWO_PICTURES, VIDEO = 3, 4  # of CASES
NUM_STREAMS = 32


def media_of(case):
    """What `ferry generate` is given of a golden case."""
    names = case["images"] if "images" in case else [case["image"]] if "image" in case else []
    arguments = [word for name in names for word in ("--image", pictures.SHAPES / name)]
    frames = [pictures.FRAMES / name for name in case.get("video", ())]
    return [*arguments, *(word for frame in frames for word in ("--video", frame))]


def caption(case, *arguments, workers=0, transport="auto"):
    """The ids of an answer, without the place of a stop id."""
    question = ("generate", "--json", "--chat", case["prompt"], *media_of(case))
    return json.loads(run(workers, transport, *question, *arguments))["token_ids"]


class CaptionTest(unittest.TestCase):
    def test_goldens_in_f32_with_any_drafts(self):
        for case in CASES:
            for drafts in ("0", "auto", "3"):
                with self.subTest(case["text"], drafts=drafts):
                    self.assertEqual(caption(case, "--dtype", "f32", "--speculate", drafts), case["greedy"])

    def test_goldens_in_f32_with_workers(self):
        for workers, transport, drafts, case in (
            (1, "mpi", "auto", TWO_PICTURES),
            (1, "gloo", "3", VIDEO),
            (2, "mpi", "3", 0),
            (2, "gloo", "auto", VIDEO),
            (3, "mpi", "0", VIDEO),
            (3, "gloo", "3", TWO_PICTURES),
        ):
            with self.subTest(CASES[case]["text"], workers=workers, transport=transport, drafts=drafts):
                ids = caption(CASES[case], "--dtype", "f32", "--speculate", drafts, workers=workers, transport=transport)
                self.assertEqual(ids, CASES[case]["greedy"])

    def check_other_weights(self, *weights, is_golden):
        """`is_golden`: which cases have the words of f32."""
        alone = [caption(case, *weights, "--speculate", "0") for case in CASES]
        for i, case in enumerate(CASES):
            if i in is_golden:
                self.assertEqual(alone[i], case["greedy"], case["text"])
        for workers, transport, drafts, case in (
            (0, "auto", "3", 0),
            (0, "auto", "auto", VIDEO),
            (1, "gloo", "auto", TWO_PICTURES),
            (2, "mpi", "3", VIDEO),
            (3, "mpi", "auto", 1),
        ):
            with self.subTest(CASES[case]["text"], workers=workers, transport=transport, drafts=drafts):
                ids = caption(CASES[case], *weights, "--speculate", drafts, workers=workers, transport=transport)
                self.assertEqual(ids, alone[case])

    def test_the_same_in_bf16(self):
        self.check_other_weights("--dtype", "bf16", is_golden=range(5))

    def test_the_same_in_8_bits(self):
        self.check_other_weights("--quantize", "w8a8", is_golden=range(5))


def make_requests():
    """Text that repeats itself, conversations and ids; every other one about pictures of its own or of another's."""
    choose = random.Random(23)
    sizes = [(128, 128), (512, 512), (97, 301), (480, 64), (33, 32), (256, 255), (500, 333), (1, 1)]
    questions = ["Describe the picture.", "What is in the picture?", "What do you see?", "the server, the server, the server, the"]
    requests = []
    for i in range(NUM_STREAMS):
        sampling = {"max_tokens": choose.randrange(10, 71), "ignore_eos": i % 3 != 1}
        if i % 5 == 4:
            sampling |= {"temperature": 0.75, "top_p": 0.875, "seed": i}
        picture = shapes(i % 6) if choose.random() < 0.4 else drawn(*choose.choice(sizes), seed=i % 3)
        other = drawn(*choose.choice(sizes))
        question = choose.choice(questions)
        if i % 2 == 1:
            ids = [choose.randrange(100, 6000) for _ in range(choose.randrange(2, 40))] * choose.randrange(1, 6)
            request = ferry_job.ids_request(ids, **sampling) if i % 4 == 1 else ferry_job.text_request(f"{question} " * 9, **sampling)
        elif i % 16 == 2:
            request = parts_request(pictures.frames(), question, **sampling)
        elif i % 16 == 6:
            request = parts_request(picture, "and", other, question, picture, **sampling)
        elif i % 16 == 10:
            request = beside_request(f"Here is {pictures.PLACE} and {pictures.PLACE}: {question}", picture, other, **sampling)
        elif i % 16 == 14:
            url = "url:data:image/png;base64," + base64.b64encode(picture).decode()
            request = parts_request(question, url, **sampling)
        else:
            request = parts_request(picture, question, **sampling)
        requests.append(request)
    return requests


class PictureStreamsTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        """What one process without drafts answers to one request after another."""
        cls.requests = make_requests()
        alone = ferry_job.Job("--speculate", "0", "--picture-cache", "0B", ranks=1)
        try:
            cls.expected = [alone.generate(request) for request in cls.requests]
        finally:
            alone.channel.close()
            alone.kill()

    def load(self, job):
        return job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS)

    def assert_idle(self, job):
        counts = lambda load: (load.running_requests, load.waiting_requests, load.kv_blocks_used)
        wait_for(lambda: counts(self.load(job)) == (0, 0, 0), "nothing in progress", lambda: self.load(job))

    def check_streams(self, transport, *arguments, drafts="auto"):
        choose = random.Random(transport)
        job = self.start("--speculate", drafts, *arguments, ranks=3, transport=transport)
        cancelled = {i: choose.randrange(len(self.expected[i].token_ids)) for i in choose.sample(range(NUM_STREAMS), NUM_STREAMS // 3)}
        calls = [OpenCall(job, request) for request in self.requests]
        endless = OpenCall(job, endless_request())
        self.assertTrue(endless.wait_for_token(), endless.error)
        endless.cancel()
        self.assertTrue(endless.wait())
        self.assertEqual(endless.error.code(), grpc.StatusCode.CANCELLED)
        waiting = dict(cancelled)
        while waiting:
            for i, num_tokens in list(waiting.items()):
                if calls[i].ended_at is not None or len(calls[i].token_ids) >= num_tokens:
                    calls[i].cancel()
                    del waiting[i]
            time.sleep(0.001)  # the calls need this process, too
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
        self.assert_idle(job)
        # Whole answers, text included, to pictures that came before.
        for request, expected in list(zip(self.requests, self.expected))[:16:2]:
            self.assertEqual(job.generate(request), expected)
        self.assert_idle(job)
        if drafts != "auto":
            self.assertGreater(sum(self.load(job).drafts_right), 0)
        self.assertEqual(job.stop(), 0, job.log())

    def test_streams_over_mpi(self):
        self.check_streams("mpi")

    def test_streams_over_gloo_with_room_for_few_pictures_that_come_again(self):
        self.check_streams("gloo", "--picture-cache", "64KiB")

    def test_streams_in_micro_batches_with_many_drafts(self):
        self.check_streams("mpi", "--micro-batch", "2", "--picture-cache", "0B", drafts="3")

    def test_a_server_says_what_the_command_says(self):
        job = self.start(ranks=1)
        self.assertTrue(job.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=LIMIT_SECONDS).takes_media)
        for known in json.loads((pictures.SHAPES / "captions.json").read_text()):
            request = parts_request((pictures.SHAPES / known["image"]).read_bytes(), known["prompt"])
            self.assertEqual(job.generate(request).text, known["caption"])
        for case in CASES:
            media = [(pictures.SHAPES / name).read_bytes() for name in case.get("images", [case["image"]] if "image" in case else [])]
            media += [pictures.frames()] if "video" in case else []
            answer = job.generate(parts_request(*media, case["prompt"]))
            self.assertEqual((answer.token_ids, answer.text), (caption(case), case["text"]))

    def test_pictures_that_are_alike_are_told_apart(self):
        job = self.start(ranks=1)
        for _ in range(2):
            for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255)), ("green", (0, 255, 0))):
                answer = job.generate(parts_request(pictures.square(colour), "What do you see?"))
                self.assertEqual(answer.text, f"A large {name} square.")

    def test_what_is_behind_a_picture_that_was_cancelled_half_way(self):
        question, video = "What do you see?", [drawn(512, 512, seed) for seed in range(58)]
        both, other = parts_request(shapes(0), video, question), parts_request(shapes(1), question)
        alone = self.start("--speculate", "0", "--picture-cache", "0B", ranks=1)
        expected = alone.generate(both), alone.generate(other)
        alone.stop()
        job = self.start("--picture-tokens", "256", ranks=1)
        first = OpenCall(job, both)
        wait_for(lambda: self.load(job).running_requests == 1 or first.ended_at is not None, "the first", lambda: self.load(job))
        second = OpenCall(job, other)
        both_run = lambda: self.load(job).running_requests == 2 or first.ended_at is not None or second.ended_at is not None
        wait_for(both_run, "the second", lambda: self.load(job))
        first.cancel()
        self.assertTrue(second.wait())
        self.assertEqual(second.token_ids, expected[1].token_ids)
        self.assertEqual((job.generate(both), job.generate(other)), expected)
        self.assert_idle(job)

    def test_a_file_of_several_megabytes(self):
        job = self.start(ranks=1)
        file = pictures.noise(1600, 1100)
        self.assertGreater(len(file), 5_000_000)
        request = parts_request(file, "Describe the picture.", max_tokens=4)
        self.assertEqual(job.generate(request), job.generate(request))

    def test_text_goes_on_while_a_video_is_encoded(self):
        """29 moments of 1024 patches take the tower several slices, and their prompt is one step."""
        steps = ("--prefill-chunk", "8128", "--token-budget", "8300")
        job = self.start("--speculate", "0", "--picture-tokens", "256", *steps, ranks=1)
        request = parts_request([drawn(512, 512, seed) for seed in range(58)], "Describe the picture.", max_tokens=1)
        text = OpenCall(job, endless_request())
        self.addCleanup(text.cancel)
        self.assertTrue(text.wait_for_token(), text.error)
        call = OpenCall(job, request)
        wait_for(lambda: self.load(job).running_requests == 2 or call.ended_at is not None, "both in progress", lambda: self.load(job))
        began = len(text.token_ids)
        self.assertTrue(call.wait())
        num_tokens = len(text.token_ids) - began
        self.assertIsNone(call.error)
        self.assertGreater(call.last.prompt_tokens, 7000)
        self.assertGreaterEqual(num_tokens, 3)


if __name__ == "__main__":
    ferry_job.main()
