"""An unchanged client of OpenAI's API talks to `ferry serve`.

Needs PyPI once, for a virtual environment of its own (build/openai-venv); skipped without. Environment: FERRY_BINARY (default
build/release/launch/ferry).
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest
import urllib.request

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))

QUESTION = [{"role": "user", "content": "What does river mean?"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


class Server:
    """`ferry serve --model demo`, up when the constructor returns."""

    def __init__(self, *arguments):
        command = [FERRY, "serve", "--model", str(ROOT / "launch/demo"), "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        command += ["--memory", "256MiB", *arguments]
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
        code = self.process.wait()
        self.process.stdout.close()
        return code


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-model-name", "demo", "other", "--enable-request-id-headers")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=600)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        if cls.server.stop() != 0:
            raise RuntimeError("ferry serve did not end well")

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": "demo", "messages": QUESTION, "max_tokens": 12, "temperature": 0, **fields})

    def complete(self, **fields):
        return self.client.completions.create(**{"model": "demo", "prompt": "The kernel", "max_tokens": 6, "temperature": 0, **fields})

    def load(self):
        with urllib.request.urlopen(self.server.url + "/load") as answer:
            return json.load(answer)["server_load"]

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo", "other"])
        self.assertGreater(self.client.models.retrieve("other").model_extra["max_model_len"], 100)

    def test_a_stream_is_the_whole_answer(self):
        whole = self.chat(model="other")
        self.assertEqual(whole.model, "demo")
        events = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(events[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(event.choices[0].delta.content or "" for event in events[:-1]), whole.choices[0].message.content)
        self.assertEqual(events[-2].choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual(events[-1].usage, whole.usage)
        self.assertEqual(len({event.id for event in events}), 1)

    def test_choices_depend_on_their_seed_alone(self):
        def texts(**fields):
            answer = self.chat(temperature=1.0, max_tokens=6, **fields)
            return [choice.message.content for choice in answer.choices]

        three = texts(n=3, seed=5)
        self.assertEqual(three, texts(n=3, seed=5))
        self.assertEqual(three[2:], texts(seed=7))

    def test_logprobs_of_a_chat(self):
        answer = self.chat(logprobs=True, top_logprobs=2, max_tokens=5)
        told = answer.choices[0].logprobs.content
        self.assertEqual(len(told), answer.usage.completion_tokens)
        for token in told:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(token.logprob, max(top.logprob for top in token.top_logprobs))
        events = self.chat(logprobs=True, top_logprobs=2, max_tokens=5, stream=True)
        streamed = [token for event in events for token in (event.choices[0].logprobs.content if event.choices[0].logprobs else [])]
        self.assertEqual([token.logprob for token in streamed], [token.logprob for token in told])

    def test_a_text_is_scored(self):
        scored = self.complete(prompt="The kernel is", max_tokens=0, echo=True, logprobs=1)
        told = scored.choices[0].logprobs
        self.assertEqual(scored.choices[0].text, "The kernel is")
        self.assertEqual(told.tokens, ["The", " kernel", " is"])
        self.assertEqual(told.text_offset, [0, 3, 10])
        self.assertIsNone(told.token_logprobs[0])
        longer = self.complete(prompt="The kernel is", max_tokens=1, echo=True, logprobs=1).choices[0].logprobs
        self.assertEqual(longer.token_logprobs[:3], told.token_logprobs)

    def test_prompts_of_text_and_of_tokens(self):
        two = self.complete(prompt=["The kernel", "A river"])
        self.assertEqual([choice.index for choice in two.choices], [0, 1])
        read = self.client.post("../tokenize", body={"prompt": "A river"}, cast_to=object)
        self.assertEqual(self.complete(prompt=read["tokens"]).choices[0].text, two.choices[1].text)
        self.assertEqual(self.complete(max_tokens=None, extra_body={"ignore_eos": True}).usage.completion_tokens, 16)

    def test_stop_strings(self):
        text = self.chat(max_tokens=24).choices[0].message.content
        stop = text[10:13]
        answer = self.chat(max_tokens=24, stop=[stop]).choices[0]
        self.assertEqual(answer.message.content, text[: text.index(stop)])
        self.assertEqual((answer.finish_reason, answer.model_extra["stop_reason"]), ("stop", stop))

    def test_tools_may_be_offered(self):
        call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        history = [*QUESTION, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "rain"}]
        self.assertEqual(self.chat(messages=history, tools=[TOOL]).choices[0].message.role, "assistant")

    def constrained(self, call, **fields):
        """What `call` answers, if this build can keep constraints."""
        try:
            return call(**fields).choices[0]
        except openai.APIStatusError as error:
            if error.status_code == 501:
                self.skipTest("structured output is not built")
            raise

    def respond(self, **fields):
        return self.client.responses.create(
            **{"model": "demo", "input": QUESTION[0]["content"], "max_output_tokens": 40, "temperature": 0, **fields}
        )

    def test_responses_are_chats_in_another_form(self):
        whole = self.respond()
        self.assertEqual(whole.output_text, self.chat(max_tokens=40).choices[0].message.content)
        self.assertEqual((whole.status, whole.usage.total_tokens), ("completed", whole.usage.input_tokens + whole.usage.output_tokens))
        with self.client.responses.stream(model="demo", input=QUESTION, max_output_tokens=40, temperature=0) as stream:
            events = list(stream)
            told = stream.get_final_response()
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual(told.output_text, whole.output_text)
        again = self.respond(input=[*told.output, {"role": "user", "content": "What does courage mean?"}])
        self.assertNotEqual(again.output_text, whole.output_text)
        cut = self.respond(max_output_tokens=3)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_responses_call_functions(self):
        arguments = {
            "type": "object",
            "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["days"],
            "additionalProperties": False,
        }
        tool = {"type": "function", "name": "weather", "parameters": arguments, "strict": True}
        choice = {"type": "function", "name": "weather"}
        try:
            answer = self.respond(tools=[tool], tool_choice=choice, max_output_tokens=120)
        except openai.APIStatusError as error:
            if error.status_code == 501:
                self.skipTest("structured output is not built")
            raise
        call = answer.output[0]
        self.assertEqual((call.type, call.name), ("function_call", "weather"))
        if answer.status == "completed":
            self.assertIn(json.loads(call.arguments)["days"], range(1, 10))
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        history = [QUESTION[0], call.model_dump(exclude_none=True), output]
        self.assertEqual(self.respond(input=history, tools=[tool], tool_choice="none").output[0].type, "message")
        shaped = self.respond(text={"format": {"type": "json_schema", "name": "n", "schema": arguments, "strict": True}})
        self.assertIn(json.loads(shaped.output_text)["days"], range(1, 10))

    def test_responses_refuse_what_needs_a_store(self):
        for fields in ({"previous_response_id": "resp_1"}, {"background": True}, {"conversation": "c"}, {"truncation": "auto"}):
            with self.assertRaises(openai.BadRequestError) as raised:
                self.respond(**fields)
            self.assertEqual(raised.exception.param, list(fields)[0])
        self.assertFalse(self.respond(store=True, max_output_tokens=1).store)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")

    def test_text_can_be_constrained(self):
        choice = self.constrained(self.complete, extra_body={"guided_choice": ["yes please", "no"]})
        self.assertIn(choice.text, ["yes please", "no"])
        self.assertEqual(choice.finish_reason, "stop")
        choice = self.constrained(self.complete, max_tokens=16, extra_body={"structured_outputs": {"regex": "[0-9]{3}-[a-z]{2}"}})
        self.assertRegex(choice.text, "^[0-9]{3}-[a-z]{2}$")
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        body = {"structured_outputs": {"json": schema, "disable_any_whitespace": True}}
        choice = self.constrained(self.chat, max_tokens=32, extra_body=body)
        self.assertIsInstance(json.loads(choice.message.content)["ok"], bool)

    def test_a_grammar_of_too_many_readings_ends_its_own_request(self):
        self.constrained(self.complete, extra_body={"guided_choice": ["yes"]})
        grammar = 'root ::= s\ns ::= s s | s s s | [a-z ] | ""'
        with self.assertRaises(openai.BadRequestError) as raised:
            self.complete(max_tokens=4000, extra_body={"guided_grammar": grammar, "ignore_eos": True, "logit_bias": self.no_ends()})
        self.assertIn("too much time", str(raised.exception))
        self.assertEqual(self.complete().choices[0].finish_reason, "length")

    def no_ends(self):
        """A bias against the tokens that end a text."""
        read = self.client.post("../tokenize", body={"prompt": "<|im_end|><|endoftext|>"}, cast_to=object)
        return {str(token): -100 for token in read["tokens"]}

    def test_calls_can_be_forced(self):
        parameters = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["days"]}
        tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
        named = {"type": "function", "function": {"name": "weather"}}
        for tool_choice, finish_reason in (("required", "tool_calls"), (named, "stop")):
            answer = self.constrained(self.chat, tools=[tool], tool_choice=tool_choice, parallel_tool_calls=False, max_tokens=64)
            self.assertEqual((answer.finish_reason, answer.message.content), (finish_reason, ""))
            (call,) = answer.message.tool_calls
            self.assertEqual(call.function.name, "weather")
            self.assertIn(json.loads(call.function.arguments)["days"], range(1, 10))

    def test_errors_have_their_status_and_type(self):
        def check(status, kind, call):
            with self.assertRaises(openai.APIStatusError) as raised:
                call()
            self.assertEqual((raised.exception.status_code, raised.exception.body["type"]), (status, kind))
            self.assertEqual(raised.exception.body["code"], status)

        check(404, "NotFoundError", lambda: self.chat(model="nobody"))
        check(400, "BadRequestError", lambda: self.chat(temperature=-1))
        check(400, "BadRequestError", lambda: self.chat(top_logprobs=2))
        check(400, "BadRequestError", lambda: self.complete(prompt=""))
        check(400, "BadRequestError", lambda: self.complete(prompt=[100] * 100000, max_tokens=1))
        check(400, "BadRequestError", lambda: self.complete(suffix="x", stream=True))
        check(400, "BadRequestError", lambda: self.complete(extra_body={"guided_regex": "a", "guided_choice": ["b"]}))

    def test_a_client_that_goes_frees_its_place(self):
        stream = self.chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        end = time.monotonic() + 60
        while self.load() > 0 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.load(), 0)

    def test_ids_come_back(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model="demo", messages=QUESTION, max_tokens=1, extra_headers={"X-Request-Id": "mine"}
        )
        self.assertEqual(raw.headers["x-request-id"], "mine")
        self.assertEqual(raw.parse().id, "chatcmpl-mine")


class ThroughFrontTest(OpenAiTest):
    """The same with a `ferry front` between."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        command = [FERRY, "front", "--coordinator", cls.server.url.removeprefix("http://"), "--http", "127.0.0.1:0"]
        cls.front = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        address = re.search(r"ferry: serving http on (\S+)", cls.front.stderr.readline())[1]
        cls.client.close()
        cls.client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=600)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.front.send_signal(signal.SIGTERM)
        code = cls.front.wait(60)
        cls.front.stderr.close()
        super().tearDownClass()
        if code != 0:
            raise RuntimeError("ferry front did not end well")


if __name__ == "__main__":
    own_venv.use_venv("openai-venv", "openai_requirements.txt")
    import openai

    unittest.main()
