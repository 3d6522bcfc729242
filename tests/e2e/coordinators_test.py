"""`ferry serve --coordinators 2` on four ranks: two coordinators that share two workers, and the front before them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import uuid

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT, OpenCall, endless_request, generate_alone, pace, told_lines, wait_for
from front_test import QUESTION, call, chat, metric, num_answered, user

SERVE = ("--max-seqs", "8", "--speculate", "0", "--coordinators", "2")
PACE = pace(2, 3)
LONG = 150  # tokens: seconds at that pace
COMPARED = 200  # tokens
MERGED = r'ferry:worker_answers_total\{.*merged="yes".*\}'


class Port:
    """One coordinator's own HTTP port, for call() and metric()."""

    def __init__(self, address):
        self.http_address = address


def blocks_sigterm(process_id):
    """Whether there is such a process, and SIGTERM does not end it any more."""
    try:
        status = pathlib.Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return False
    return bool(int(re.search(r"SigBlk:\s+(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1)


class CoordinatorsTest(ferry_job.JobTest):
    def start(self, *arguments, ranks=4):
        job = ferry_job.Job(*SERVE, *arguments, ranks=ranks)
        self.addCleanup(job.kill)

        def find_addresses():
            return dict(re.findall(r"coordinator (\d): serving http on (\S+)\n", job.log()))

        # Each coordinator says so for itself, and the job is up with the first one.
        wait_for(lambda: len(find_addresses()) == 2, "both coordinators' ports", job.log)
        return job, [Port(address) for _, address in sorted(find_addresses().items())]

    def ask(self, server, question=QUESTION, **fields):
        status, answer = call(server, "/v1/chat/completions", chat([user(question)], **fields))
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]["content"]

    def open_calls(self, job, count, **fields):
        calls = [OpenCall(job, endless_request(seed=0, **fields)) for _ in range(count)]
        for one in calls:
            one.wait_for_token()
            self.assertIsNone(one.error)
        return calls

    @classmethod
    def expected(cls, num_tokens):
        """What one process makes of open_calls()."""
        return generate_alone("--token-ids", "10,20,30", "--ignore-eos", "--max-tokens", num_tokens, "--speculate", 0).token_ids

    def assert_all_equal(self, calls, expected):
        for one in calls:
            self.assertTrue(one.wait(), "a stream hangs")
            self.assertIsNone(one.error)
            self.assertEqual(one.token_ids, expected)

    def assert_goes_on(self, calls):
        """They stream, and what came so far is right."""
        expected = self.expected(COMPARED)
        for one in calls:
            num_before = len(one.token_ids)
            wait_for(lambda: len(one.token_ids) > num_before + 5, "more tokens")
            self.assertIsNone(one.error)
            self.assertEqual(one.token_ids[:COMPARED], expected[: len(one.token_ids)])

    def test_all_answer_alike_and_share_the_work(self):
        job, ports = self.start("--wait-to-merge", "always")
        expected = generate_alone("--chat", QUESTION, "--max-tokens", 16, "--speculate", 0).text
        for server in (*ports, job):
            self.assertEqual(self.ask(server), expected)
        for i in range(4):
            self.ask(job, f"{i}?", max_tokens=1)
        self.assertTrue(all(num_answered(port) >= 2 for port in ports), "the front spreads nothing")
        calls = self.open_calls(job, 4)
        num_merged = lambda: sum(metric(port, MERGED) for port in ports)
        wait_for(lambda: num_merged() > 0, "answers that were merged", job.log)
        self.assert_goes_on(calls)
        for one in calls:
            one.cancel()
        self.assertEqual(job.stop(), 0)
        self.assertEqual(job.ranks(), {})

    def test_a_worker_that_dies_is_missed_by_no_client_of_either(self):
        job, ports = self.start(*PACE)
        calls = self.open_calls(job, 4, max_tokens=LONG)
        job.kill_rank(3)
        self.assert_all_equal(calls, self.expected(LONG))
        for port in ports:
            num_masked = lambda: metric(port, r'ferry:worker_changes_total\{.*state="masked".*\}')
            wait_for(lambda: num_masked() == 1, "one worker that is masked", num_masked)
        self.assertEqual(job.stop(), 0)

    def test_a_coordinator_that_dies_takes_its_own_requests_alone(self):
        job, ports = self.start(*PACE)
        calls = self.open_calls(job, 4)
        num_lost = metric(ports[1], r"vllm:num_requests_running\{.*\}")
        self.assertTrue(0 < num_lost < len(calls), num_lost)
        job.kill_rank(1)
        for i in range(4):
            self.ask(job, f"{i}?", max_tokens=1)
        num_ended = lambda: sum(one.ended_at is not None for one in calls)
        wait_for(lambda: num_ended() == num_lost, f"the end of {num_lost} streams", num_ended)
        self.assertTrue(all(one.error is not None for one in calls if one.ended_at is not None))
        kept = [one for one in calls if one.ended_at is None]
        self.assert_goes_on(kept)
        for one in kept:
            one.cancel()
        self.assertEqual(self.ask(ports[0]), self.ask(job))
        self.assertEqual(job.stop(), 0)
        self.assertEqual(job.ranks(), {})

    def test_a_job_that_is_told_to_leave_answers_first(self):
        job, _ = self.start(*PACE)
        calls = self.open_calls(job, 4, max_tokens=LONG)
        job.terminate()
        self.assert_all_equal(calls, self.expected(LONG))
        self.assertEqual(job.wait(), 0)

    def test_a_job_that_is_told_to_leave_while_it_starts_leaves_in_order(self):
        """At any moment from the first coordinator's first one on: it waits until its ranks know each other, and all go well."""
        for name, has_come in (
            ("the first coordinator", lambda ranks, said: blocks_sigterm(ranks.get(0))),
            ("all ranks", lambda ranks, said: len(ranks) == 4 and all(map(blocks_sigterm, ranks.values()))),
            ("a port", lambda ranks, said: ": serving http on " in said),
            ("the front's port", lambda ranks, said: "ferry: serving http on " in said),
        ):
            with self.subTest(name), tempfile.NamedTemporaryFile(mode="w+") as log:
                job_id = uuid.uuid4().hex
                command = [str(ROOT / "launch/mpirun.sh"), "-np", "4", FERRY, "serve", "--model", "demo", "--memory", "128MiB"]
                command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *SERVE]
                environment = {**os.environ, "FERRY_E2E_JOB": job_id}
                job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
                self.addCleanup(job.kill)
                said = lambda: pathlib.Path(log.name).read_text()
                wait_for(lambda: has_come(ferry_job.ranks_of(job_id), said()), name, said)
                job.terminate()
                self.assertEqual(job.wait(LIMIT_SECONDS), 0, said())
                self.assertNotRegex(said(), "leaves|masked|error")

    def assert_one_line(self, ranks, arguments, said):
        """Ranks with `arguments` end with the code of bad input, and all that they say is one line with `said`."""
        command = [str(ROOT / "launch/mpirun.sh"), "-np", str(ranks), FERRY, "serve", "--model", "demo", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = told_lines(done.stderr)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("ferry: error: "), lines[0])
        self.assertIn(said, lines[0])

    def test_what_cannot_be_is_one_line(self):
        for ranks, arguments, said in (
            (2, ["--coordinators", "2"], "--coordinators 2 of 2 ranks"),
            (3, ["--coordinators", "2", "--http", "off"], "--http off"),
            (3, ["--coordinators", "2", "--transport", "mpi"], "--transport mpi"),
            (3, ["--coordinators", "17"], "--coordinators"),
            (4, ["--coordinators", "2", "--http", "127.0.0.1:65534"], "allowed: 1 to 65533, or 0"),
            (4, ["--coordinators", "2", "--http", "127.0.0.1:2400", "--grpc", "127.0.0.1:2401"], "--http 127.0.0.1:2400 (ports 2400 to 2402)"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_one_line(ranks, arguments, said)

    def test_what_only_coordinators_look_at_is_one_line_too(self):
        for ranks, arguments, said in (
            (3, ["--api-key-file", "/nowhere"], "--api-key-file: cannot open /nowhere"),
            (4, ["--coordinators", "2", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "--tls-cert: cannot open /nowhere"),
            (4, ["--coordinators", "2", "--otlp-traces-endpoint", "nowhere"], "--otlp-traces-endpoint: 'nowhere'"),
            (3, ["--transport", "mpi", "--allow-remote-images", "a b"], "--allow-remote-images: 'a b'"),
            (3, ["--transport", "mpi", "--elastic", "unix:here"], "--elastic with --transport mpi"),
            (3, ["--net-interface", "nowhere"], "net-interface 'nowhere'"),
            (3, ["--transport", "gloo", "--net-interface", "nowhere"], "net-interface 'nowhere'"),
            (3, ["--elastic", "127.0.0.1:0", "--join-key", "/nowhere"], "--elastic: cannot open /nowhere"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_one_line(ranks, arguments, said)


if __name__ == "__main__":
    ferry_job.main()
