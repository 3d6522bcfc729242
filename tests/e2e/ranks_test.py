"""Where the experts live changes no bit: dumps are the same bytes and answers the same words for any number of workers."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import ferry_job
from ferry_job import FERRY, ROOT

WORKERS = (1, 2, 3, 5, 7)
TRANSPORTS = ("mpi", "gloo")
SECONDS = 300


def run(workers, transport, *arguments):
    """`ferry ARGUMENTS` alone (workers 0) or with a coordinator and workers; returns its standard output."""
    launcher = [str(ROOT / "launch/mpirun.sh"), "-np", str(workers + 1)] if workers else []
    command = [*launcher, FERRY, *map(str, arguments), "--model", "demo", "--memory", "256MiB", "--transport", transport]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def layouts():
    yield 0, "auto"
    for transport in TRANSPORTS:
        for workers in WORKERS:
            yield workers, transport


class RanksTest(unittest.TestCase):
    def test_dumps_are_the_same_bytes(self):
        # Long enough for several DeltaNet pieces and a lone last token: 64 + 64 + 1.
        ids = ",".join(str(100 + 37 * i % 5900) for i in range(129))
        expected = None
        with tempfile.TemporaryDirectory() as folder:
            for workers, transport in layouts():
                out = pathlib.Path(folder) / f"{workers}-{transport}.safetensors"
                run(workers, transport, "dump", "--token-ids", ids, "--taps", "--out", out)
                expected = expected or out.read_bytes()
                with self.subTest(workers=workers, transport=transport):
                    self.assertEqual(out.read_bytes(), expected)

    def test_chat_answers_are_the_golden_words(self):
        chats = [case for case in ferry_job.golden()["generation"] if case["kind"] == "chat"]
        self.assertGreaterEqual(len(chats), 5)
        for number, (workers, transport) in enumerate(layouts()):
            # Every layout answers one question, alone and with two workers all of them.
            for case in chats if workers in (0, 2) else [chats[number % len(chats)]]:
                question = case["prompt"].removeprefix("<|im_start|>user\n").split("<|im_end|>")[0]
                answer = json.loads(run(workers, transport, "generate", "--chat", question, "--json"))
                with self.subTest(workers=workers, transport=transport, question=question):
                    self.assertEqual(answer["text"], case["text"])
                    self.assertEqual(answer["token_ids"], case["greedy"])
                    self.assertEqual(answer["finish_reason"], "stop")
                    self.assertEqual(answer["expert_workers"], workers)
                    self.assertTrue(0 < answer["balancedness"] <= 1)


if __name__ == "__main__":
    ferry_job.main()
