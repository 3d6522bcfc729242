"""With --lm-head-screen every token is what it is without, alone, in batches, with drafts and on ranks, and its memory is told."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from ferry_job import FERRY, ROOT
from plan_test import HOST

SECONDS = 600
SCREEN = "--lm-head-screen"
GOLDEN = ROOT / "tests/golden"
IDS = ",".join(str(5 + 13 * i % 200) for i in range(20))


def run(*arguments, code=0, ranks=1):
    launcher = [] if ranks == 1 else [str(ROOT / "launch/mpirun.sh"), "-np", str(ranks)]
    done = subprocess.run([*launcher, FERRY, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS)
    if done.returncode != code:
        raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stderr if code else done.stdout


def tokens(*arguments, **options):
    command = ("generate", "--memory", "256MiB", "--max-tokens", "40", "--json")
    return json.loads(run(*command, *arguments, **options))["token_ids"]


def requests():
    """Greedy ones beside others, so that steps are of both kinds, of some and of one."""
    words = "river courage kernel music summer stone".split()
    sampling = ({"temperature": 0}, {"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 0, "logprobs": 2},
                {"temperature": 0, "frequency_penalty": 0.7}, {"temperature": 0})
    for i in range(24):
        body = {"model": "demo", "prompt": f"The {words[i % 6]} number {i}", "max_tokens": 6 + 3 * (i % 7), **sampling[i % 6]}
        yield {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}


class HeadScreenTest(unittest.TestCase):
    def test_greedy_tokens_are_those_of_all_logits(self):
        for arguments in (("--model", "demo", "--prompt", "The river"), ("--model", "demo", "--chat", "What is a kernel?"),
                          ("--model", "demo", "--prompt", "One two one two", "--speculate", "3"),
                          ("--model", "demo", "--prompt", "One two one two", "--speculate", "ngram:2"),
                          ("--model", "demo", "--prompt", "The stone", "--quantize", "experts=w4a8,mixers=w8a8"),
                          *(("--model", GOLDEN / name, "--token-ids", IDS)
                            for name in ("qwen3_5_moe_wide", "qwen3_next", "lfm2_moe"))):
            with self.subTest(arguments=arguments):
                expected = tokens(*arguments, "--dtype", "bf16")
                self.assertGreaterEqual(len(expected), 2)
                self.assertEqual(tokens(*arguments, "--dtype", "bf16", SCREEN), expected)
        self.assertEqual(tokens("--model", "demo", "--prompt", "The river", "--dtype", "bf16", SCREEN, ranks=3),
                         tokens("--model", "demo", "--prompt", "The river", "--dtype", "bf16"))

    def test_requests_of_all_kinds_side_by_side(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests()))
            answers = []
            for options in ((), (SCREEN,), (SCREEN, "--threads", "1", "--max-seqs", "5")):
                out = folder / f"out{len(answers)}.jsonl"
                run("batch", "--model", "demo", "--dtype", "bf16", "--memory", "512MiB", *options, folder / "in.jsonl", out)
                lines = [json.loads(line) for line in out.read_text().splitlines()]
                answers.append({line["custom_id"]: line["response"]["body"]["choices"] for line in lines})
            self.assertEqual(len(answers[0]), 24)
            self.assertEqual(answers[1], answers[0])
            self.assertEqual(answers[2], answers[0])

    def test_what_it_takes_is_told(self):
        for name, run_of in (("bf16", {}), ("w8a8", {"--quantize": "w8a8"})):
            said = json.loads(run("inspect", "demo", "--dtype", "bf16", *sum(run_of.items(), ()), "--json"))
            config = json.loads((ROOT / "launch/demo/config.json").read_text())
            text = config.get("text_config", config)
            panels = (text["vocab_size"] + 31) // 32
            width = (text["hidden_size"] + 63) // 64 * 64
            expected = panels * (32 * width + 3 * 32 * 4) if name == "bf16" else None
            self.assertEqual(said["runs"][0].get("lm_head_screen_bytes"), expected, name)
        with tempfile.TemporaryDirectory() as folder:
            hosts = pathlib.Path(folder) / "hosts.json"
            hosts.write_text(json.dumps({"format": "ferry-hosts", "version": 3, "hosts": [HOST]}))
            plan = ("plan", "--model", "demo", "--dtype", "bf16", "--hosts", hosts, "--workers", "0", "--batch", "1", "--json")
            without, screened = (json.loads(run(*plan, *options))["configurations"][0] for options in ((), (SCREEN,)))
        told = json.loads(run("inspect", "demo", "--dtype", "bf16", "--json"))["runs"][0]["lm_head_screen_bytes"]
        self.assertAlmostEqual(screened["coordinator_bytes"] - without["coordinator_bytes"], told, delta=1)

    def test_where_there_is_nothing_to_screen(self):
        generate = ("generate", "--model", "demo", "--prompt", "x", SCREEN)
        for options, name in ((("--dtype", "f32"), "f32"), (("--dtype", "bf16", "--quantize", "lm_head=w8a8"), "w8a8"),
                              (("--dtype", "bf16", "--matmul", "ref"), "bf16 for ref"),
                              (("--dtype", "bf16", "--matmul", "onednn"), "bf16 for onednn")):
            with self.subTest(options=options):
                said = run(*generate, *options, code=2)
                self.assertRegex(said, f"--lm-head-screen: lm_head is {name}.*allowed: bf16, for the CPU's own kernels")


if __name__ == "__main__":
    unittest.main()
