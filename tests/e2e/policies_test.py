"""`ferry serve --policy`: whom a server with one slot answers first, over HTTP and gRPC, and that nobody's tokens change."""

import json
import threading
import time
import urllib.error
import urllib.request

import ferry_job
import grpc
from ferry_job import OpenCall, ids_request

PROMPT = [443, 3808, 1132]
LONG = 4000  # tokens: seconds, so that a busy machine lets this process look at what runs


class Call:
    """A completion over HTTP, made by a thread of its own."""

    def __init__(self, job, **body):
        self.ended_at = None
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
        self.ended_at = time.monotonic()

    def wait(self):
        self._thread.join(ferry_job.CALL_SECONDS)
        return self.answer

    def text(self):
        return self.wait()["choices"][0]["text"]


class PoliciesTest(ferry_job.JobTest):
    def metric(self, job, name):
        with urllib.request.urlopen(f"http://{job.http_address}/metrics", timeout=30) as answer:
            return [float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.startswith(name + "{")][0]

    def wait_until(self, condition):
        self.assertTrue(ferry_job.wait_until(condition, ferry_job.CALL_SECONDS))

    def test_a_better_priority_takes_the_slot(self):
        job = self.start("--policy", "priority", "--max-seqs", "1", "--speculate", "0", ranks=1)
        alone = Call(job, prompt=PROMPT, max_tokens=LONG).text()
        late = Call(job, prompt=PROMPT, max_tokens=LONG, priority=7)
        self.wait_until(lambda: self.metric(job, "vllm:num_requests_running") == 1)
        urgent = ids_request(PROMPT, max_tokens=20, ignore_eos=True)
        urgent.priority = -3
        call = OpenCall(job, urgent)
        self.assertTrue(call.wait())
        self.assertIsNone(call.error)
        self.assertIsNone(late.ended_at, "it goes on only behind the urgent one")
        self.assertEqual(late.text(), alone)
        self.assertEqual(self.metric(job, "ferry:requests_lost_slot_total"), 1)

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
        job = self.start("--policy", "fair", "--max-seqs", "1", "--speculate", "0", "--decode-slo-ms", "50", ranks=1)
        flood = [Call(job, prompt=[i + 5] * 400, max_tokens=400, user="flood") for i in range(8)]
        self.wait_until(lambda: self.metric(job, "vllm:num_requests_waiting") >= 5)
        self.wait_until(lambda: self.metric(job, "ferry:fair_accounts") == 1)
        guest = Call(job, prompt=PROMPT, max_tokens=5, user="guest")
        guest.wait()
        num_ended = sum(call.ended_at is not None for call in flood)
        self.assertLess(num_ended, 8, "the guest waited for all of them")
        for call in flood:
            self.assertEqual(call.wait()["usage"]["completion_tokens"], 400)


if __name__ == "__main__":
    ferry_job.main()
