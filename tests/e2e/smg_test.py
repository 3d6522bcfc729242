"""An unchanged smg router stands before `ferry serve` and offers its APIs, by tokens that it makes and reads itself.

Needs PyPI once, for a virtual environment of its own (build/smg-venv); skipped without. Environment: FERRY_BINARY (default
build/release/launch/ferry).
"""

import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import own_venv
from sockets import keep_port, own_host

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
START_SECONDS = 240
QUESTION = [{"role": "user", "content": "What does river mean?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"days": {"type": "integer", "maximum": 9, "minimum": 1}}, "required": ["days"]},
    },
}


class Router:
    """smg before `ferry serve --model demo`, both up when the constructor returns."""

    def __init__(self, smg):
        command = [FERRY, "serve", "--model", str(ROOT / "launch/demo"), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.ferry = subprocess.Popen(
            [*command, "--memory", "256MiB"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        addresses = {}
        for line in self.ferry.stderr:
            if found := re.search(r"ferry: serving (http|grpc) on (\S+)", line):
                addresses[found[1]] = found[2]
            if len(addresses) == 2:
                break
        self.direct = f"http://{addresses['http']}"
        host, self.keepers = own_host(), [keep_port(), keep_port()]
        port, prometheus_port = (str(keeper.getsockname()[1]) for keeper in self.keepers)
        self.url = f"http://{host}:{port}"
        command = [smg, "launch", "--worker-urls", f"grpc://{addresses['grpc']}", "--host", host, "--port", port]
        command += ["--prometheus-host", host, "--prometheus-port", prometheus_port]
        self.log = tempfile.TemporaryFile()
        self.smg = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if time.monotonic() > end or self.smg.poll() is not None:
                self.log.seek(0)
                raise RuntimeError("the router did not come up, it said:\n" + self.log.read().decode(errors="replace"))
            time.sleep(0.2)

    def is_ready(self):
        """Whether it knows the model, and its tokenizer, which it reads after that."""
        try:
            self.post("/v1/completions", prompt="The kernel", max_tokens=1)
            return True
        except (OSError, urllib.error.HTTPError):
            return False

    def post(self, path, url=None, **body):
        data = json.dumps({"model": "demo", **body}).encode()
        request = urllib.request.Request((url or self.url) + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read().decode() if body.get("stream") else json.load(answer)

    def stop(self):
        self.smg.kill()
        self.smg.wait()
        for keeper in self.keepers:
            keeper.close()
        self.log.close()
        self.ferry.send_signal(signal.SIGTERM)
        self.ferry.stderr.read()
        self.ferry.stderr.close()
        return self.ferry.wait(60)


def events(stream):
    return [json.loads(line[len("data: ") :]) for line in stream.splitlines() if line.startswith("data: {")]


class SmgTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.router = Router(str(VENV / "bin/smg"))

    @classmethod
    def tearDownClass(cls):
        if cls.router.stop() != 0:
            raise RuntimeError("ferry serve did not end well")

    def chat(self, **fields):
        return self.router.post("/v1/chat/completions", **{"messages": QUESTION, "max_tokens": 24, "temperature": 0, **fields})

    def test_a_chat_is_the_one_that_ferry_has_itself(self):
        body = {"messages": QUESTION, "max_tokens": 24, "temperature": 0}
        own = self.router.post("/v1/chat/completions", url=self.router.direct, **body)
        whole = self.chat()
        self.assertEqual(whole["choices"][0]["message"]["content"], own["choices"][0]["message"]["content"])
        for count in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(whole["usage"][count], own["usage"][count])

    def test_a_stream_is_the_whole_answer(self):
        whole = self.chat()
        streamed = events(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c["delta"].get("content") or "" for event in streamed for c in event["choices"])
        self.assertEqual(text, whole["choices"][0]["message"]["content"])
        self.assertEqual(streamed[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])

    def test_stop_strings(self):
        text = self.chat()["choices"][0]["message"]["content"]
        choice = self.chat(stop=[text[10:13]])["choices"][0]
        self.assertEqual(choice["message"]["content"], text[: text.index(text[10:13])])
        self.assertEqual(choice["finish_reason"], "stop")

    def test_logprobs_and_choices(self):
        answer = self.chat(logprobs=True, top_logprobs=2, max_tokens=4, n=2, temperature=1, seed=5)
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1])
        for choice in answer["choices"]:
            self.assertEqual(len(choice["logprobs"]["content"]), 4)
            for token in choice["logprobs"]["content"]:
                self.assertLessEqual(token["logprob"], token["top_logprobs"][0]["logprob"])

    def test_other_apis(self):
        completion = self.router.post("/v1/completions", prompt="The kernel", max_tokens=6, temperature=0)
        own = self.router.post("/v1/completions", url=self.router.direct, prompt="The kernel", max_tokens=6, temperature=0)
        self.assertEqual(completion["choices"][0]["text"], own["choices"][0]["text"])
        message = self.router.post("/v1/messages", messages=QUESTION, max_tokens=6)
        self.assertEqual(message["type"], "message")
        response = self.router.post("/v1/responses", input="What does river mean?", max_output_tokens=6)
        self.assertEqual(response["object"], "response")

    def test_a_call_is_forced(self):
        try:
            answer = self.chat(tools=[TOOL], tool_choice="required", max_tokens=64)
        except urllib.error.HTTPError as error:
            if "structured output is not built" in error.read().decode():
                self.skipTest("structured output is not built")
            raise
        (call, *_) = answer["choices"][0]["message"]["tool_calls"]
        self.assertEqual(call["function"]["name"], "weather")
        self.assertIn(json.loads(call["function"]["arguments"])["days"], range(1, 10))

    def test_a_picture(self):
        picture = base64.b64encode((ROOT / "launch/demo/pictures/shapes0.png").read_bytes()).decode()
        seen = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}
        asked = {"type": "text", "text": "Describe the picture."}
        answer = self.chat(messages=[{"role": "user", "content": [seen, asked]}])
        self.assertEqual(answer["choices"][0]["message"]["content"], "A large white circle above a small orange triangle.")

    def test_what_is_wrong_is_a_client_error(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.chat(n=2, temperature=0)
        self.assertEqual(caught.exception.code, 400)
        caught.exception.close()

    def test_loads(self):
        """The router asks its workers from time to time and tells what it last heard, at first nothing."""
        end = time.monotonic() + START_SECONDS
        while not (loads := self.loads()) and time.monotonic() < end:
            time.sleep(0.2)
        self.assertIn("num_running_reqs", loads[0] if loads else {})

    def loads(self):
        with urllib.request.urlopen(self.router.url + "/get_loads", timeout=60) as answer:
            return json.load(answer)["loads"]


if __name__ == "__main__":
    VENV = own_venv.use_venv("smg-venv", "smg_requirements.txt")
    unittest.main()
