"""`ferry tokenize` says the ids of Hugging Face's tokenizers, for text that comes in any of its ways, and makes text of them again."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from demo_with_bos import demo_with_bos

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
CASES = json.loads((ROOT / "tests/golden/tokenizer_cases.json").read_text())
MOST_CASES = 60  # of each kind: every one is a process


def tokenize(*arguments, text=b"", code=0, model="demo"):
    done = subprocess.run([FERRY, "tokenize", "--model", model, *arguments], input=text, capture_output=True, timeout=600)
    if done.returncode != code:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr.decode()}")
    return (done.stdout if code == 0 else done.stderr).decode()


class TokenizeTest(unittest.TestCase):
    def test_ids_are_those_of_hugging_face(self):
        cases = [case for case in CASES["encode"] if "\0" not in case["text"] and len(case["text"]) < 5000][:MOST_CASES]
        with tempfile.TemporaryDirectory() as folder:
            for case in cases:
                text = case["text"].encode("utf-8", "surrogatepass")
                file = pathlib.Path(folder) / "text"
                file.write_bytes(text)
                for answer in (tokenize("--json", text=text), tokenize("--json", "--file", file)):
                    with self.subTest(case["text"]):
                        self.assertEqual(json.loads(answer)["ids"], case["ids"])
                        self.assertEqual(len(json.loads(answer)["pieces"]), len(case["ids"]))

    def test_ids_become_text_again(self):
        last = int(tokenize("--ids", "1000000", code=2).rsplit(" ", 1)[1])  # what is behind it is padding of lm_head
        for case in [case for case in CASES["decode"] if case["ids"] and 0 <= min(case["ids"]) and max(case["ids"]) <= last][:MOST_CASES]:
            ids = ",".join(map(str, case["ids"]))
            with self.subTest(ids):
                self.assertEqual(json.loads(tokenize("--json", "--ids", ids))["text"], case["keep"])
                self.assertEqual(tokenize("--ids", ids), case["keep"] + "\n")

    def test_a_line_a_token(self):
        lines = tokenize("--text", "The river\n").splitlines()
        self.assertEqual([json.loads(line.split("\t")[1]) for line in lines], ["The", " ", "river", "\n"])

    def test_what_the_checkpoint_puts_before_a_prompt(self):
        def prompt_tokens(model, option):
            command = [FERRY, "generate", "--model", model, option, "The river", "--max-tokens", "1", "--memory", "512MiB", "--json"]
            return json.loads(subprocess.run(command, capture_output=True, timeout=600, check=True).stdout)["prompt_tokens"]

        with tempfile.TemporaryDirectory() as folder:
            bos = demo_with_bos(folder)
            bare = json.loads(tokenize("--json", "--text", "The river"))["ids"]
            self.assertEqual(json.loads(tokenize("--json", "--text", "The river", model=folder))["ids"], [bos, *bare])
            self.assertEqual(json.loads(tokenize("--json", "--bare", "--text", "The river", model=folder))["ids"], bare)
            self.assertEqual(json.loads(tokenize("--json", text=b"", model=folder))["ids"], [bos])
            for option in ("--prompt", "--chat"):  # the template writes it itself, and so it comes once
                with self.subTest(option):
                    self.assertEqual(prompt_tokens(folder, option), prompt_tokens("demo", option) + 1)

    def test_bad_input_is_one_line(self):
        for arguments, words in (
            (("--ids", "1,999999"), "999999 is no token; allowed: 0 to"),
            (("--ids", "1", "--text", "a"), "at most one of --text, --file, --ids"),
            (("--file", "/nowhere"), "/nowhere"),
            (("--file", "/dev/zero"), "not a regular file"),
        ):
            complaint = tokenize(*arguments, code=2)
            with self.subTest(arguments):
                self.assertIn(words, complaint)
                self.assertEqual(complaint.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
