"""An unchanged lm-evaluation-harness judges `ferry serve` over both of OpenAI's routes, by tasks of its own.

What it finds is known before: the texts are those that the model writes greedily, so that the right choice is the likeliest and
every text is matched, and a choice that is wrong on purpose must not be taken. Its packages are large (930 MB), so that it runs
only where the environment has FERRY_CLIENTS=all. Needs PyPI once, for a virtual environment of its own (build/lm-eval-venv);
skipped without. Environment: FERRY_BINARY (default build/release/launch/ferry).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import own_venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = ["The kernel", "A river", "What does river mean?", "In the morning"]
NUM_TOKENS = 6

CHOICE_TASK = """task: ferry_choice
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{prompt}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""
TEXT_TASK = """task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{{field}}}}}"
generation_kwargs:
  until: ["\\n\\n\\n"]
  max_gen_toks: {num_tokens}
  do_sample: false
  temperature: 0
metric_list:
  - metric: exact_match
"""


class LmEvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = openai_test.Server("--served-model-name", "demo")
        cls.folder = tempfile.TemporaryDirectory()
        cls.tasks = pathlib.Path(cls.folder.name)
        data = cls.tasks / "documents.jsonl"
        data.write_text("".join(json.dumps(cls.document(prompt, i)) + "\n" for i, prompt in enumerate(PROMPTS)))
        (cls.tasks / "choice.yaml").write_text(CHOICE_TASK.format(data=data))
        for task, field in (("ferry_text", "text"), ("ferry_chat", "answer_text"), ("ferry_wrong", "wrong")):
            fields = {"task": task, "field": field, "data": data, "num_tokens": NUM_TOKENS}
            (cls.tasks / f"{task}.yaml").write_text(TEXT_TASK.format(**fields))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        if cls.server.stop() != 0:
            raise RuntimeError("ferry serve did not end with 0")

    @classmethod
    def ask(cls, path, **fields):
        body = json.dumps({"model": "demo", "max_tokens": NUM_TOKENS, "temperature": 0, **fields}).encode()
        request = urllib.request.Request(cls.server.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["choices"][0]

    @classmethod
    def document(cls, prompt, number):
        text = cls.ask("/v1/completions", prompt=prompt)["text"]
        choices = [text, " of of of of of of"]
        if number % 2 == 1:
            choices.reverse()
        answer = cls.ask("/v1/chat/completions", messages=[{"role": "user", "content": prompt}])["message"]["content"]
        return {"prompt": prompt, "text": text, "choices": choices, "answer": number % 2, "answer_text": answer, "wrong": text + "!"}

    def judge(self, model, path, tasks, *options):
        arguments = f"model=demo,base_url={self.server.url}{path},tokenizer={ROOT / 'launch/demo'},num_concurrent=2,max_retries=1"
        out = self.tasks / "results"
        command = [sys.executable, "-m", "lm_eval", "--model", model, "--model_args", arguments, "--tasks", ",".join(tasks)]
        command += ["--include_path", str(self.tasks), "--output_path", str(out), *options]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.tasks / "cache")}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
        self.assertEqual(run.returncode, 0, run.stdout[-3000:] + run.stderr[-3000:])
        (result,) = out.rglob("results_*.json")
        found = json.loads(result.read_text())["results"]
        result.unlink()
        return found

    def test_completions(self):
        found = self.judge("local-completions", "/v1/completions", ["ferry_choice", "ferry_text", "ferry_wrong"])
        self.assertEqual(found["ferry_choice"]["acc,none"], 1.0)
        self.assertEqual(found["ferry_text"]["exact_match,none"], 1.0)
        self.assertEqual(found["ferry_wrong"]["exact_match,none"], 0.0)

    def test_chats(self):
        found = self.judge("local-chat-completions", "/v1/chat/completions", ["ferry_chat"], "--apply_chat_template")
        self.assertEqual(found["ferry_chat"]["exact_match,none"], 1.0)


if __name__ == "__main__":
    if os.environ.get("FERRY_CLIENTS") != "all":
        print("skipped: the harness's packages are large; FERRY_CLIENTS=all in the environment runs it")
        sys.exit(own_venv.SKIPPED)
    own_venv.use_venv("lm-eval-venv", "lm_eval_requirements.txt")
    import openai_test

    unittest.main(verbosity=2)
