"""`ferry serve --policy`: whom a server with one slot answers first, over HTTP and gRPC, and that nobody's tokens change."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request

import ferry_job
import grpc
from ferry_job import LIMIT_SECONDS, OpenCall, generate_alone, ids_request, pace, wait_for

PROMPT = [443, 3808, 1132]
ENDLESS = 8000  # tokens: minutes at that pace
COMPARED = 200  # tokens


class Call:
    """A completion over HTTP, made by a thread of its own."""

    def __init__(self, job, **body):
        self.answer = None
        self._thread = threading.Thread(target=self._run, args=(job, {"temperature": 0, "ignore_eos": True, **body}), daemon=True)
        self._thread.start()

    def _run(self, job, body):
        request = urllib.request.Request(
            f"http://{job.http_address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ferry_job.CALL_SECONDS) as answer:
                self.status, self.answer = answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            self.status, self.answer = error.code, json.loads(error.read())
        except OSError:
            pass  # the job ended before it did

    def wait(self):
        self._thread.join(ferry_job.CALL_SECONDS)
        return self.answer


class PoliciesTest(ferry_job.JobTest):
    def metric(self, job, name):
        with urllib.request.urlopen(f"http://{job.http_address}/metrics", timeout=LIMIT_SECONDS) as answer:
            return [float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{")][0]

    def test_a_better_priority_takes_the_slot(self):
        expected = generate_alone("--token-ids", ",".join(map(str, PROMPT)), "--ignore-eos", "--max-tokens", COMPARED).token_ids
        job = self.start("--policy", "priority", "--max-seqs", "1", "--speculate", "0", *pace(1), ranks=2)
        request = ids_request(PROMPT, max_tokens=ENDLESS, ignore_eos=True)
        request.priority = 7
        late = OpenCall(job, request)
        self.addCleanup(late.cancel)
        self.assertTrue(late.wait_for_token(), late.error)
        urgent = ids_request(PROMPT, max_tokens=20, ignore_eos=True)
        urgent.priority = -3
        self.assertEqual(job.generate(urgent).token_ids, expected[:20])
        self.assertIsNone(late.ended_at, "it goes on only behind the urgent one")
        self.assertEqual(self.metric(job, "ferry:requests_lost_slot_total"), 1)
        num_before = len(late.token_ids)
        wait_for(lambda: len(late.token_ids) >= num_before + 20, "tokens of who lost the slot", job.log)
        found = late.token_ids[:COMPARED]
        self.assertEqual(found, expected[: len(found)])

    def test_other_policies_refuse_priorities(self):
        job = self.start(ranks=1)
        refused = Call(job, prompt=PROMPT, max_tokens=2, priority=1)
        error = refused.wait()["error"]
        self.assertEqual((refused.status, error["param"]), (400, "priority"))
        self.assertEqual(error["message"], "Got priority 1 but Priority scheduling is not enabled.")
        request = ids_request(PROMPT, max_tokens=2)
        request.priority = 1
        said = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: job.generate(request))
        self.assertIn("priority is 1; allowed: 0 under --policy fcfs", said)

    def test_users_take_turns(self):
        """All wait before the first is answered, since a worker stands still. Behind that one comes the guest: all others of the flood
        take minutes each."""
        options = ("--policy", "fair", "--max-seqs", "1", "--speculate", "0", "--decode-slo-ms", "50")
        job = self.start(*options, *pace(1), ranks=2, transport="gloo")
        in_progress = lambda: sum(self.metric(job, f"vllm:num_requests_{state}") for state in ("running", "waiting"))
        worker = job.ranks()[1]
        os.kill(worker, signal.SIGSTOP)
        try:
            flood = []
            for i in range(8):
                flood.append(Call(job, prompt=[i + 5] * 400, max_tokens=ENDLESS if flood else 3, user="flood"))
                wait_for(lambda: in_progress() == len(flood), f"{len(flood)} requests in progress", in_progress)
            guest = Call(job, prompt=PROMPT, max_tokens=5, user="guest")
            wait_for(lambda: in_progress() == len(flood) + 1, "the guest's request in progress", in_progress)
        finally:
            os.kill(worker, signal.SIGCONT)
        self.assertIsNotNone(guest.wait(), "the guest waits for all of them")
        self.assertEqual(guest.answer["usage"]["completion_tokens"], 5)
        self.assertEqual(flood[0].wait()["usage"]["completion_tokens"], 3)
        self.assertEqual([call.answer for call in flood[1:]], [None] * 7)
        wait_for(lambda: self.metric(job, "ferry:fair_accounts") == 1, "the flood's account alone", job.log)


if __name__ == "__main__":
    ferry_job.main()
