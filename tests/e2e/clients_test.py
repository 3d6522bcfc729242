"""Unchanged programs that people have: langchain-openai and the command `llm`, against `ferry serve`.

Needs PyPI once, for a virtual environment of its own (build/clients-venv); skipped without. Environment: FERRY_BINARY (default
build/release/launch/ferry).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import typing
import unittest

import own_venv

QUESTION = "What does river mean?"
ANSWER = "River is a noun: a large natural stream of water (larger than a creek)."


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = openai_test.Server("--served-model-name", "demo")

    @classmethod
    def tearDownClass(cls):
        if cls.server.stop() != 0:
            raise RuntimeError("ferry serve did not end with 0")

    def chat(self, **options):
        return langchain_openai.ChatOpenAI(
            model="demo", base_url=self.server.url + "/v1", api_key="none", temperature=0, max_tokens=128, max_retries=0, **options
        )

    def test_langchain_chats(self):
        self.assertEqual(self.chat().invoke(QUESTION).content, ANSWER)
        self.assertEqual("".join(chunk.content for chunk in self.chat().stream(QUESTION)), ANSWER)
        self.assertEqual([answer.content for answer in self.chat().batch([QUESTION] * 3)], [ANSWER] * 3)
        told = self.chat().bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
        self.assertEqual("".join(token["token"] for token in told.response_metadata["logprobs"]["content"][:-1]), ANSWER)

    def test_langchain_takes_responses(self):
        answer = self.chat(use_responses_api=True).invoke(QUESTION)
        self.assertEqual([part["text"] for part in answer.content], [ANSWER])

    def test_langchain_takes_completions(self):
        model = langchain_openai.OpenAI(model="demo", base_url=self.server.url + "/v1", api_key="none", temperature=0, max_tokens=8)
        self.assertEqual(model.invoke("The PostgreSQL server"), " is not able to handle the fact that")

    def test_langchain_gets_what_it_asks_for(self):
        class Thing(pydantic.BaseModel):
            """A thing."""

            size: typing.Literal["small", "large"]
            count: typing.Literal[1, 2, 3]

        for method in ("json_schema", "function_calling"):
            with self.subTest(method):
                self.assertIsInstance(self.chat().with_structured_output(Thing, method=method).invoke("Describe."), Thing)

    def test_llm_chats(self):
        with tempfile.TemporaryDirectory() as folder:
            models = f"- model_id: ferry\n  model_name: demo\n  api_base: {self.server.url}/v1\n"
            (pathlib.Path(folder) / "extra-openai-models.yaml").write_text(models)
            command = [sys.executable, "-m", "llm", "-m", "ferry", "--key", "none", "-o", "temperature", "0", QUESTION]
            for more in ([], ["--no-stream"]):
                with self.subTest(more):
                    run = subprocess.run(
                        command + more, env={**os.environ, "LLM_USER_PATH": folder}, stdin=subprocess.DEVNULL, capture_output=True,
                        text=True, timeout=120,
                    )  # fmt: skip
                    self.assertEqual((run.returncode, run.stdout.strip()), (0, ANSWER), run.stderr)


if __name__ == "__main__":
    own_venv.use_venv("clients-venv", "clients_requirements.txt")
    import langchain_openai
    import pydantic

    import openai_test

    unittest.main(verbosity=2)
