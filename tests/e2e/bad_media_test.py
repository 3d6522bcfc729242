"""Pictures and videos that are none, too large or in the wrong place: one line says so, and the server lives on."""

import base64
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import ferry_job
import grpc
import pictures
from bad_input_test import BadInputTest
from ferry_job import DEMO, FERRY, ROOT, LIMIT_SECONDS, OpenCall, pb, wait_for
from pictures import PLACE, beside_request, drawn, part, parts_request, png_of, shapes

QUESTION = "Describe the picture."
PICTURE = pictures.SHAPES / "shapes0.png"
CAPTION = json.loads((pictures.SHAPES / "captions.json").read_text())[0]["caption"]
INVALID = grpc.StatusCode.INVALID_ARGUMENT
VIDEO_PLACE = "<|vision_start|><|video_pad|><|vision_end|>"


def user(**fields):
    """A request of one message."""
    return pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="user", **fields)]))


def video(fps):
    frames = [pb.Picture(data=frame) for frame in pictures.frames()]
    return user(parts=[pb.Part(video=pb.Video(frames=frames, fps=fps)), pb.Part(text=QUESTION)])


def base64_url(data, head="data:image/png;base64,"):
    return "url:" + head + base64.b64encode(data).decode()


def bad_files():
    """{what: (file, words of the answer)}"""
    whole = shapes(0)
    bombs = {f"a {kind} of 60000 x 60000": (file, ("it declares", "allowed: 1 to 67108864")) for kind, file in pictures.bombs().items()}
    return bombs | {
        "half a file": (whole[: len(whole) // 2], ("picture 1", "truncated")),
        "all but its end": (whole[:-20], ("truncated",)),
        "damaged": (whole[:9000] + bytes(64) + whole[9064:], ("cannot be read",)),
        "a declared size that is not there": (png_of(900, 900, bytes(2701 * 9)), ("cannot be read",)),
        "a text file": ((ROOT / "README.md").read_bytes(), ("no known type", "PNG, JPEG, WebP, GIF")),
        "nothing": (b"", ("parts[0].picture", "neither data nor a url")),
        "no width and height": (png_of(0, 0, b""), ("0 x 0",)),
        "no height": (png_of(5, 0, b""), ("5 x 0",)),
        "narrow": (drawn(1, 5000), ("1 x 5000", "at most 200 times")),
        "flat": (drawn(5000, 1), ("5000 x 1", "at most 200 times")),
    }


def bad_requests():
    """{what: (request, words of the answer)}"""
    whole, frames = shapes(0), pictures.frames()
    beside_chat = user(content=QUESTION)
    beside_chat.media.append(part(whole))
    return {
        "17 pictures": (parts_request(*[whole] * 17, QUESTION), ("17 pictures", "at most 16")),
        "no source": (user(parts=[pb.Part(picture=pb.Picture())]), ("parts[0].picture", "neither data nor a url")),
        "an empty part": (user(parts=[pb.Part()]), ("parts[0] is empty",)),
        "a bad one behind a good one": (parts_request(whole, whole[:90], QUESTION), ("picture 2", "truncated")),
        "content and parts": (user(content=QUESTION, parts=[part(whole)]), ("content and parts",)),
        "media beside a chat": (beside_chat, ("media", "beside chat")),
        "media without a prompt": (pb.GenerateRequest(media=[part(whole)]), ("no input",)),
        "text among media": (beside_request(PLACE, "hello"), ("media[0] is text",)),
        "a place without a picture": (beside_request(PLACE + QUESTION), ("no picture or video in its place",)),
        "a place in a chat without a picture": (user(content=PLACE), ("no picture or video in its place",)),
        "a second place in a message": (parts_request(whole, PLACE + QUESTION), ("2 places", "allowed: 1")),
        "two places for one": (beside_request(PLACE * 2, whole), ("2 places", "allowed: 1")),
        "no place for it": (beside_request(QUESTION, whole), ("0 places", "allowed: 1")),
        "no id for it": (pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5, 6]), media=[part(whole)]), ("0 places",)),
        "a video's place for a picture": (beside_request(VIDEO_PLACE, whole), ("0 places for pictures",)),
        "a video without frames": (parts_request([], QUESTION), ("video 1", "0 frames", "2 to 768")),
        "a video of one frame": (parts_request(frames[:1], QUESTION), ("video 1", "1 frames", "2 to 768")),
        "769 frames": (parts_request([drawn(1, 1)] * 769, QUESTION), ("769 frames", "at most 768")),
        "frames of two sizes": (parts_request([*frames, drawn(64, 64)], QUESTION), ("video 1, frame 4", "64 x 64", "128 x 128 as video 1, frame 0")),
        "a bad frame": (parts_request([frames[0], frames[1][:90]], QUESTION), ("video 1, frame 1", "truncated")),
        "more tokens than fit": (parts_request([whole] * 768, QUESTION), ("8192",)),
        **{f"fps {fps}": (video(fps), ("video 1", "fps", "0.001 to 1000000")) for fps in (0.0, -2.0, 1e300, 1e-300, float("nan"), float("inf"))},
    }


def bad_urls():
    """{url: words of the answer}"""
    whole = shapes(0)
    return {
        "url:https://example.com/x.png": ("another host", "--allow-remote-images"),
        "url:http://127.0.0.1:80/": ("another host", "--allow-remote-images"),
        "url:file:///etc/passwd": ("allowed",),
        "url:data:image/png;base64,!!!!": ("'!'", "base64"),
        "url:data:image/png;base64,": ("empty",),
        "url:data:image/png,abc": ("base64",),
        "url:data:" + "x" * 100_000: ("data URL",),
        base64_url(whole, "data:text/plain;base64,"): ("'text/plain'", "image/"),
        "url:data:image/png;base64,iVBOR": ("5 characters of base64",),
        base64_url(whole[:6000]): ("truncated",),
    }


class BadMediaTest(ferry_job.JobTest):
    def refused(self, job, request, *fragments, code=INVALID):
        details = self.assert_status(code, lambda: job.generate(request))
        self.assertLess(len(details), 600)
        for fragment in fragments:
            self.assertIn(fragment, details)

    def assert_lives_on(self, job):
        load = lambda: job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS)
        idle = lambda: (load().running_requests, load().waiting_requests, load().kv_blocks_used) == (0, 0, 0)
        wait_for(idle, "nothing in progress", load)
        self.assertEqual(job.generate(parts_request(shapes(0), QUESTION)).text, CAPTION)

    def test_files_requests_and_urls(self):
        job = self.start(ranks=1)
        for name, (file, fragments) in bad_files().items():
            with self.subTest(name):
                self.refused(job, parts_request(file, QUESTION), *fragments)
        for name, (request, fragments) in bad_requests().items():
            with self.subTest(name):
                self.refused(job, request, *fragments)
        for url, fragments in bad_urls().items():
            with self.subTest(url[:60]):
                self.refused(job, parts_request(url, QUESTION), *fragments)
        self.assert_lives_on(job)
        self.assertEqual(job.stop(), 0, job.log())

    def test_what_looks_odd_and_is_right(self):
        job = self.start(ranks=1)
        whole = shapes(0)
        for name, medium in {
            "a data URL": base64_url(whole),
            "one without a type": base64_url(whole, "data:;base64,"),
            "one of octets": base64_url(whole, "DATA:application/octet-stream;base64,"),
            "one of another type": base64_url(whole, "data:image/gif;base64,"),
            "bytes behind the file": whole + b"behind" * 1000,
        }.items():
            with self.subTest(name):
                self.assertEqual(job.generate(parts_request(medium, QUESTION)).text, CAPTION)
        for size in ((1, 1), (1, 200), (200, 1), (32, 6400)):
            with self.subTest(size):
                self.assertGreater(job.generate(parts_request(drawn(*size), QUESTION, max_tokens=2)).prompt_tokens, 16)
        self.assertEqual(job.generate(parts_request(*[whole] * 16, QUESTION, max_tokens=2)).completion_tokens, 2)
        self.assertEqual(job.generate(video(0.001)).finish_reason, "stop")
        self.assertEqual(job.generate(video(1e6)).finish_reason, "stop")

    def test_hosts_that_are_not_allowed_or_not_public(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            job = self.start("--allow-remote-images", f"localhost:{port},example.invalid", ranks=1)
            for url, fragment in {
                "https://example.com/x.png": "not allowed",
                "http://localhost/x.png": "not allowed",
                f"http://127.0.0.1:{port}/x.png": "not allowed",
                f"http://localhost:{port}/x.png": "public address",
                "http://somebody@example.invalid/": "plain host",
                "file:///etc/passwd": "no URL of a picture",
                "http://example.invalid/" + "x" * 9000: "at most 8192",
            }.items():
                with self.subTest(url[:60]):
                    self.refused(job, parts_request("url:" + url, QUESTION), fragment)
            with self.assertRaises(BlockingIOError):  # nobody has come
                listener.accept()
            self.assert_lives_on(job)

    def test_pixels_of_all_requests_together(self):
        job = self.start("--picture-memory", "1MiB", ranks=1)
        large = [drawn(256, 256, seed) for seed in range(6)]
        for _ in range(3):  # what a refused request held is free again
            too_many = parts_request(*large, QUESTION)
            self.refused(job, too_many, "picture 6", "1179648 bytes", "1048576")
            self.assertEqual(job.generate(parts_request(*large[:5], QUESTION, max_tokens=2)).completion_tokens, 2)
        other = OpenCall(job, parts_request(*large[:5], QUESTION, max_tokens=4000, ignore_eos=True))
        self.assertTrue(other.wait_for_token(), other.error)
        self.refused(job, parts_request(large[5], QUESTION), "1048576", "try again", code=grpc.StatusCode.RESOURCE_EXHAUSTED)
        other.cancel()
        self.assert_lives_on(job)

    def test_servers_that_take_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in DEMO.iterdir():
                if file.is_file() and file.name != "config.json":
                    (pathlib.Path(folder) / file.name).symlink_to(file)
            config = json.loads((DEMO / "config.json").read_text())
            del config["vision_config"]
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            for model, arguments, why in ((folder, (), "no vision tower"), ("demo", ("--picture-tokens", "0"), "--picture-tokens is 0")):
                job = self.start(*arguments, ranks=1, model=model)
                self.assertFalse(job.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=LIMIT_SECONDS).takes_media)
                for request in (parts_request(shapes(0), QUESTION), beside_request(PLACE, shapes(0)), parts_request(b"x", QUESTION)):
                    with self.subTest(why):
                        self.refused(job, request, why, code=grpc.StatusCode.FAILED_PRECONDITION)
                self.refused(job, beside_request(PLACE), "no picture or video in its place")
                self.assertEqual(job.generate(ferry_job.chat_request("What does river mean?", max_tokens=3)).completion_tokens, 3)
                self.assertEqual(job.stop(), 0, job.log())


class ClientTest(ferry_job.JobTest):
    def ask(self, *arguments):
        command = (sys.executable, ROOT / "launch/client.py", QUESTION, *arguments)
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_SECONDS)

    def assert_says(self, done, *fragments):
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)

    def test_pictures(self):
        job = self.start(ranks=1)
        wait_for(lambda: "ferry: pictures: " in job.log(), "a line about pictures", job.log)
        self.assertEqual(self.ask(job._address, PICTURE).stdout.strip(), CAPTION)
        self.assert_says(self.ask(job._address, "/no/such.png"), "client.py: '/no/such.png' cannot be read")
        self.assert_says(self.ask("/no/such.png"), "client.py: '/no/such.png' cannot be read")
        self.assert_says(self.ask(job._address, ROOT), f"client.py: '{ROOT}' cannot be read")

    def test_a_server_that_takes_none(self):
        job = self.start("--picture-tokens", "0", ranks=1)
        wait_for(lambda: "ferry: pictures: none, --picture-tokens is 0" in job.log(), "a line about pictures", job.log)
        with tempfile.NamedTemporaryFile(suffix=".png") as large:
            large.write(bytes(8 << 20))  # longer than any message that such a server receives
            large.flush()
            for picture in (PICTURE, large.name):
                self.assert_says(self.ask(job._address, picture), "takes no pictures", "--picture-tokens")


class MediaFilesTest(BadInputTest):
    GENERATE = (FERRY, "generate", "--model", "demo", "--memory", "64MiB", "--max-tokens", "2")

    def test_files(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            os.mkfifo(folder / "pipe")
            (folder / "empty").mkdir()
            (folder / "nested/inner").mkdir(parents=True)
            long, frame = "x" * 5000, pictures.FRAMES / "frame0.png"
            for arguments, *fragments in (
                (("--image", "/no/such.png"), "--image: '/no/such.png' cannot be read (No such file"),
                (("--image", folder), str(folder), "cannot be read"),
                (("--image", folder / "pipe"), "pipe", "cannot be read"),
                (("--image", long), "cannot be read"),
                (("--image", PICTURE, "--image", ROOT / "README.md"), "README.md", "no known type"),
                (("--image", "/dev/zero"), "--image: '/dev/zero' cannot be read"),
                (("--image", PICTURE, "--picture-bytes", "1KiB"), "shapes0.png", "at most 1024"),
                (("--image", PICTURE, "--picture-pixels", "100"), "128 x 128", "1 to 100"),
                (("--image", PICTURE, "--picture-tokens", "3"), "--picture-tokens", "at least 16"),
                (("--video", "/no/such"), "--video: '/no/such' cannot be read", "folders"),
                (("--video", folder / "pipe"), "pipe", "cannot be read"),
                (("--video", long), "cannot be read"),
                (("--video", folder / "empty"), "--video", "empty", "holds no files"),
                (("--video", folder / "nested"), "nested", "holds no files"),
                (("--video", frame, "--video", folder / "pipe"), "--video: ", "pipe' cannot be read"),
                (("--video", frame), "frame0.png' is a single file", "two or more"),
                (("--video", ROOT / "launch" / "demo"), "launch/demo', 'README.md': ", "no known type"),
                (("--video", frame, "--video", ROOT / "README.md"), "/README.md': ", "no known type"),
                (("--video", frame, "--video", frame, "--fps", "0"), "--fps", "'0'", "allowed"),
                (("--fps", "2"), "--fps", "--video"),
                (("--image", PICTURE, "--fps", "2"), "--fps", "--video"),
            ):
                with self.subTest([str(argument)[:60] for argument in arguments]):
                    self.refuse((*self.GENERATE, "--chat", QUESTION, *arguments), *fragments)

    def test_prompts_without_a_place_and_checkpoints_without_a_tower(self):
        self.refuse((*self.GENERATE, "--prompt", QUESTION, "--image", PICTURE), "0 places for pictures", "allowed: 1")
        self.refuse((*self.GENERATE, "--token-ids", "5,6", "--image", PICTURE), "0 places for pictures", "allowed: 1")
        self.refuse((*self.GENERATE, "--chat", PLACE), "no picture or video in its place")
        none = (*self.GENERATE, "--chat", QUESTION, "--image", PICTURE, "--picture-tokens", "0")
        self.refuse(none, "--picture-tokens is 0")
        text_only = (FERRY, "generate", "--model", ROOT / "tests" / "golden" / "qwen3_moe", "--memory", "64MiB", "--token-ids", "5,6", "--image", PICTURE)
        self.refuse(text_only, "no vision tower")
        ids_only = subprocess.run(list(map(str, text_only[:-2])), capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertRegex(ids_only.stdout, r"^\d+(,\d+)+\n$")

    def test_few_tokens(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "drawn.png"
            for allowed, size, needed in ((16, (2000, 12), 52), (17, (12, 2000), 52), (16, (200, 1), 57), (17, (33, 30), 20), (20, (1, 200), 57)):
                with self.subTest(allowed=allowed, size=size):
                    path.write_bytes(drawn(*size))
                    says = f"{size[0]} x {size[1]} pixels become {needed} tokens; allowed: at most {allowed} (--picture-tokens"
                    self.refuse((*self.GENERATE, "--chat", QUESTION, "--image", path, "--picture-tokens", allowed), "drawn.png': " + says)

    def test_more_memory_than_there_is(self):
        if self.available_gib() > 60:
            self.skipTest("64 GiB are available")
        for option in ("--picture-cache", "--picture-memory"):
            with self.subTest(option):
                self.refuse((*self.GENERATE, "--chat", QUESTION, "--image", PICTURE, option, "64GiB"), f"{option} is 64 GiB", "available", code=1)

    @staticmethod
    def available_gib():
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / (1 << 20)

    def test_hosts(self):
        for hosts in ("127.0.0.1", "10.0.0.1:80", "http://example.com/", "*.example.com", "example.com:0"):
            with self.subTest(hosts):
                self.refuse((FERRY, "serve", "--model", "demo", "--allow-remote-images", hosts), "--allow-remote-images", "allowed")

    def test_on_ranks(self):
        job = (ROOT / "launch/mpirun.sh", "-np", 3, *self.GENERATE, "--chat", QUESTION)
        self.refuse((*job, "--image", "/no/such.png"), "'/no/such.png'", "cannot be read")
        self.refuse((*job, "--image", PICTURE, "--image", ROOT / "README.md"), "README.md", "no known type")


if __name__ == "__main__":
    ferry_job.main()
