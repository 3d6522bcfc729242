"""An unchanged client of Anthropic's API talks to `ferry serve`.

Needs PyPI once, for a virtual environment of its own (build/anthropic-venv); skipped without. Environment: FERRY_BINARY (default
build/release/launch/ferry).
"""

import base64
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))

KEY = "key-of-a-client"
QUESTION = [{"role": "user", "content": "What does river mean?"}]
ARGUMENTS = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["unit", "days"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "Tells the weather.", "input_schema": ARGUMENTS}


class Server:
    """`ferry serve --model demo` that wants a key, up when the constructor returns."""

    def __init__(self):
        self.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.keys.write(KEY + "\n")
        self.keys.flush()
        command = [FERRY, "serve", "--model", str(ROOT / "launch/demo"), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--memory", "256MiB", "--served-model-name", "demo", "--api-key-file", self.keys.name]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.url = None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if found := re.search(r"ferry: serving http on (\S+)", line):
                self.url = f"http://{found[1]}"
            if "serving grpc" in line and self.url:
                return
        raise RuntimeError("ferry serve did not come up, it said:\n" + "".join(lines))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.stdout.read()
        code = self.process.wait(60)
        self.process.stdout.close()
        self.keys.close()
        return code


class AnthropicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key=KEY, max_retries=0, timeout=600)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        if cls.server.stop() != 0:
            raise RuntimeError("ferry serve did not end well")

    def fields(self, **fields):
        return {"model": "demo", "messages": QUESTION, "max_tokens": 40, "extra_body": {"temperature": 0}, **fields}

    def message(self, **fields):
        return self.client.messages.create(**self.fields(**fields))

    def constrained(self, **fields):
        """The answer, if this build can keep constraints."""
        try:
            return self.message(**fields)
        except anthropic.APIStatusError as error:
            if error.status_code == 501:
                self.skipTest("structured output is not built")
            raise

    def test_a_stream_is_the_whole_answer(self):
        whole = self.message()
        self.assertEqual((whole.type, whole.role, whole.model, whole.stop_reason), ("message", "assistant", "demo", "end_turn"))
        with self.client.messages.stream(**self.fields()) as stream:
            text = "".join(stream.text_stream)
            told = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(told.content[0].text, text)
        self.assertEqual(told.stop_reason, whole.stop_reason)
        self.assertEqual(told.usage.output_tokens, whole.usage.output_tokens)

    def test_the_order_of_events(self):
        with self.client.messages.create(**self.fields(stream=True)) as stream:
            types = [event.type for event in stream]
        self.assertEqual(types[:2], ["message_start", "content_block_start"])
        self.assertEqual(set(types[2:-3]), {"content_block_delta"})
        self.assertEqual(types[-3:], ["content_block_stop", "message_delta", "message_stop"])

    def test_usage_tells_cached_tokens(self):
        long = [{"role": "user", "content": "The river is a large natural stream of water. " * 20}]
        first, again = self.message(messages=long, max_tokens=1).usage, self.message(messages=long, max_tokens=1).usage
        self.assertEqual(first.input_tokens + first.cache_read_input_tokens, again.input_tokens + again.cache_read_input_tokens)
        self.assertGreater(again.cache_read_input_tokens, 0)

    def test_tokens_are_counted(self):
        counted = self.client.messages.count_tokens(model="demo", messages=QUESTION, system="Be brief.", tools=[TOOL])
        usage = self.message(system="Be brief.", tools=[TOOL], max_tokens=1).usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_stop_sequences(self):
        text = self.message().content[0].text
        stop = text[10:13]
        answer = self.message(stop_sequences=[stop])
        self.assertEqual(answer.content[0].text, text[: text.index(stop)])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(self.message(max_tokens=3).stop_reason, "max_tokens")

    def test_a_turn_that_is_begun_goes_on(self):
        whole = self.message().content[0].text
        begun = [*QUESTION, {"role": "assistant", "content": whole[:8]}]
        self.assertFalse(self.message(messages=begun).content[0].text.startswith(whole[:8]))

    def test_history_with_tools_and_thoughts(self):
        turn = [
            {"type": "thinking", "thinking": "I look it up.", "signature": "s"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"unit": "C", "days": 1}},
        ]
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]}
        history = [*QUESTION, {"role": "assistant", "content": turn}, {"role": "user", "content": [result]}]
        self.assertEqual(self.message(messages=history, tools=[TOOL], tool_choice={"type": "none"}).role, "assistant")

    def test_calls_can_be_forced(self):
        answer = self.constrained(tools=[TOOL], tool_choice={"type": "tool", "name": "weather"}, max_tokens=200)
        self.assertEqual([block.type for block in answer.content], ["tool_use"])
        call = answer.content[0]
        self.assertEqual(call.name, "weather")
        if answer.stop_reason == "tool_use":  # else it was cut
            self.assertIn(call.input["unit"], ["C", "F"])
            self.assertIn(call.input["days"], range(1, 10))
        with self.client.messages.stream(
            **self.fields(tools=[TOOL], tool_choice={"type": "tool", "name": "weather"}, max_tokens=200)
        ) as stream:
            told = stream.get_final_message()
        self.assertEqual((told.content[0].input, told.stop_reason), (call.input, answer.stop_reason))

    def test_text_can_be_json(self):
        answer = self.constrained(output_config={"format": {"type": "json_schema", "schema": ARGUMENTS}}, max_tokens=100)
        self.assertRegex(answer.content[0].text, r'^\{\s?"unit"\s?:\s?"[CF]"\s?,\s?"days"\s?:\s?[1-9]\s?\}$')

    def test_pictures(self):
        picture = (ROOT / "launch/demo/pictures/shapes0.png").read_bytes()
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
        messages = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "Describe the picture."}]}]
        answer = self.message(messages=messages)
        self.assertIn("circle", answer.content[0].text)
        counted = self.client.messages.count_tokens(model="demo", messages=messages).input_tokens
        self.assertEqual(counted, answer.usage.input_tokens + answer.usage.cache_read_input_tokens)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(anthropic.NotFoundError) as raised:
            self.message(model="no-such-model")
        self.assertEqual(raised.exception.body["error"]["type"], "not_found_error")
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.message(tools=[{"type": "web_search_20250305", "name": "web_search"}])
        self.assertIn("tools[0]", raised.exception.body["error"]["message"])
        stranger = anthropic.Anthropic(base_url=self.server.url, api_key="key-of-a-stranger", max_retries=0)
        with self.assertRaises(anthropic.AuthenticationError) as raised:
            stranger.messages.create(model="demo", messages=QUESTION, max_tokens=1)
        self.assertEqual(raised.exception.body["error"]["type"], "authentication_error")

    def test_a_bearers_key_counts_as_well(self):
        bearer = anthropic.Anthropic(base_url=self.server.url, auth_token=KEY, max_retries=0)
        self.assertEqual(bearer.messages.create(model="demo", messages=QUESTION, max_tokens=1).stop_reason, "max_tokens")


if __name__ == "__main__":
    own_venv.use_venv("anthropic-venv", "anthropic_requirements.txt")
    import anthropic

    unittest.main(verbosity=2)
