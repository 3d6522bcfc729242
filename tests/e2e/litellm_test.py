"""An unchanged litellm against `ferry serve`, by each of the providers that reach it: OpenAI's, vLLM's and Anthropic's.

Its packages are large (380 MB), so that it runs only where the environment has FERRY_CLIENTS=all. Needs PyPI once, for a virtual
environment of its own (build/litellm-venv); skipped without. Environment: FERRY_BINARY (default build/release/launch/ferry).
"""

import json
import os
import sys
import unittest

import own_venv

QUESTION = [{"role": "user", "content": "What does river mean?"}]
ANSWER = "River is a noun: a large natural stream of water (larger than a creek)."
PARAMETERS = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["days"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
FORCED = {"type": "function", "function": {"name": "weather"}}
THING = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": THING, "strict": True}}
PROVIDERS = {"openai": "/v1", "hosted_vllm": "/v1", "anthropic": ""}  # and what stands behind the server's address


class LitellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = openai_test.Server("--served-model-name", "demo")

    @classmethod
    def tearDownClass(cls):
        if cls.server.stop() != 0:
            raise RuntimeError("ferry serve did not end with 0")

    def each(self):
        """For each provider a function that asks by it."""
        for provider, path in PROVIDERS.items():
            common = {"model": f"{provider}/demo", "api_base": self.server.url + path, "api_key": "none", "messages": QUESTION}
            common.update(temperature=0, max_tokens=128, num_retries=0, timeout=120)
            yield lambda fields=common, **more: litellm.completion(**fields, **more)

    def test_chats(self):
        for ask in self.each():
            choice = ask().choices[0]
            self.assertEqual((choice.message.content, choice.finish_reason), (ANSWER, "stop"))

    def test_streams(self):
        for ask in self.each():
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)), ANSWER)

    def test_calls_tools(self):
        for ask in self.each():
            (call,) = ask(tools=[TOOL], tool_choice=FORCED).choices[0].message.tool_calls
            self.assertEqual(call.function.name, "weather")
            self.assertIn(json.loads(call.function.arguments)["days"], range(1, 10))

    def test_gets_what_it_asks_for(self):
        for ask in self.each():
            self.assertIn(json.loads(ask(response_format=FORMAT).choices[0].message.content)["size"], ("small", "large"))


if __name__ == "__main__":
    if os.environ.get("FERRY_CLIENTS") != "all":
        print("skipped: litellm's packages are large; FERRY_CLIENTS=all in the environment runs it")
        sys.exit(own_venv.SKIPPED)
    own_venv.use_venv("litellm-venv", "litellm_requirements.txt")
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks another host for prices
    import litellm

    import openai_test

    unittest.main(verbosity=2)
