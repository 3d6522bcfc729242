"""Leaving: drained by a signal, or after the loss of a rank."""

import os
import signal
import time

import ferry_job
import grpc
import pictures
from ferry_job import OpenCall, endless_request, pace, pb, wait_until

NUM_CALLS = 6
NOTICE_SECONDS = 2.0  # from the loss of a worker to the end of every open stream
EXIT_SECONDS = 10.0  # from there to the end of the coordinator
WORKER_EXIT_SECONDS = 5.0  # from the loss of the coordinator to the end of the workers
TRANSPORTS = ("mpi", "gloo")  # over which a lost worker ends the job


class DrainTest(ferry_job.JobTest):
    def open_calls(self, job, max_tokens):
        calls = [OpenCall(job, endless_request(seed=i, max_tokens=max_tokens)) for i in range(NUM_CALLS)]
        for call in calls:
            call.wait_for_token()
        return calls

    def tokens_of_seconds(self, job):
        """What a drain has to wait for, also where a sanitizer makes a token take twenty times as long."""
        began = time.monotonic()
        job.generate(endless_request(max_tokens=20))
        return max(250, min(700, int(2.0 * 20 / (time.monotonic() - began))))

    def check_drain(self, signal_number, ranks, transport="auto"):
        """A busy machine may be done with all calls before it lets this process look: then again with longer ones."""
        for longer in (1, 2, 4, 8):
            job = self.start("--drain-timeout", "100", ranks=ranks, transport=transport)
            max_tokens = longer * self.tokens_of_seconds(job)
            calls = self.open_calls(job, max_tokens=max_tokens)
            job.process.send_signal(signal_number)
            wait_until(lambda: job.health() != "SERVING", 10)
            health = job.health()
            self.assert_status(grpc.StatusCode.UNAVAILABLE, lambda: job.generate(endless_request(max_tokens=3)))
            was_seen = any(call.ended_at is None for call in calls)
            self.assertIn(health, ("NOT_SERVING",) if was_seen else ("NOT_SERVING", "GONE"))
            self.check_drained(job, calls, max_tokens)
            if was_seen:
                return
        self.fail("all were done before the drain could be seen")

    def check_drained(self, job, calls, max_tokens):
        for call in calls:
            self.assertTrue(call.wait())
            self.assertIsNone(call.error)
            self.assertEqual(len(call.token_ids), max_tokens)
            self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_LENGTH)
        self.assertEqual(job.wait(30), 0, job.log())
        self.assert_no_ranks_left(job, 1)

    def test_sigterm_drains_a_job(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.check_drain(signal.SIGTERM, 3, transport)

    def test_sigint_drains_a_single_process(self):
        self.check_drain(signal.SIGINT, 1)

    def test_what_takes_too_long_is_aborted(self):
        job = self.start("--drain-timeout", "0.5", ranks=3)
        calls = self.open_calls(job, max_tokens=8000)
        job.terminate()
        for call in calls:
            self.assertTrue(call.wait(30))
            self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
            self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_ABORTED)
        self.assertEqual(job.wait(30), 0, job.log())
        self.assert_no_ranks_left(job, 1)


class PreparedDrainTest(ferry_job.JobTest):
    """A request whose pictures are still being decoded is in progress like any other."""

    def open_call(self, job, num_pictures, request_id=""):
        request = pictures.parts_request(*[pictures.drawn(8000, 8000)] * num_pictures, "Describe them.", max_tokens=2, ignore_eos=True)
        request.request_id = request_id
        call = OpenCall(job, request)
        time.sleep(0.5)  # of the seconds that the pictures take
        return call

    def end_drain(self, job, call, seconds):
        self.assertTrue(call.wait(seconds))
        self.assertEqual(job.wait(seconds), 0, job.log())
        self.assert_no_ranks_left(job, 1)

    def test_they_are_finished(self):
        job = self.start("--drain-timeout", "100", "--picture-tokens", "64", ranks=1)
        call = self.open_call(job, 4)
        job.terminate()
        self.assertTrue(wait_until(lambda: job.health() == "NOT_SERVING", 10), job.health())
        self.assert_status(grpc.StatusCode.UNAVAILABLE, lambda: job.generate(endless_request(max_tokens=3)))
        self.assertEqual(call.token_ids, [], "the drain came too late")
        self.end_drain(job, call, 60)
        self.assertIsNone(call.error)
        self.assertEqual(call.last.completion_tokens, 2)

    def test_what_takes_too_long_is_aborted(self):
        for request_id in ("", "mine"):
            job = self.start("--drain-timeout", "0.5", "--picture-tokens", "64", ranks=1)
            call = self.open_call(job, 16, request_id)
            job.terminate()
            self.end_drain(job, call, EXIT_SECONDS)
            self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
            self.assertEqual(call.error.details(), "request 'mine' was aborted" if request_id else "the request was aborted")
            self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_ABORTED)


class LossTest(ferry_job.JobTest):
    """Over a group that is of no use any more once a rank is lost."""

    def check_worker_loss(self, transport, victim):
        job = self.start(*pace(1, 2), ranks=3, transport=transport)
        calls = [OpenCall(job, endless_request(seed=i)) for i in range(NUM_CALLS)]
        for call in calls:
            self.assertTrue(call.wait_for_token(), call.error)
        self.kill_and_check(job, calls, victim)

    def kill_and_check(self, job, calls, victim):
        job.kill_rank(victim)
        killed_at = time.monotonic()
        for call in calls:
            self.assertTrue(call.wait(30), "a stream is still open")
            self.assertIsNotNone(call.error)
            self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE, call.error.details())
            self.assertIn(f"rank {victim}", call.error.details())
            self.assertLess(call.ended_at - killed_at, NOTICE_SECONDS)
        self.assertIn(job.health(), ("NOT_SERVING", "GONE"))
        self.assertNotIn(job.wait(EXIT_SECONDS), (0, None), job.log())
        self.assert_no_ranks_left(job, 1)

    def check_idle_worker_loss(self, transport, victim):
        job = self.start(ranks=3, transport=transport)
        job.generate(endless_request(max_tokens=3))
        job.kill_rank(victim)
        self.assertTrue(wait_until(lambda: job.health() != "SERVING", NOTICE_SECONDS))
        self.assertNotIn(job.wait(EXIT_SECONDS), (0, None), job.log())
        self.assertIn(f"rank {victim}", job.log())
        self.assert_no_ranks_left(job, 1)

    def check_coordinator_loss(self, transport):
        job = self.start(*pace(1, 2), ranks=3, transport=transport)
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        job.kill_rank(0)
        self.assert_no_ranks_left(job, WORKER_EXIT_SECONDS)
        self.assertTrue(call.wait(10))
        self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertNotIn(job.wait(15), (0, None), job.log())

    def check_frozen_worker(self, transport, victim):
        """A worker that is there but silent: only the deadline of a step can tell."""
        job = self.start("--peer-timeout", "1", *pace(1, 2), ranks=3, transport=transport)
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        os.kill(job.ranks()[victim], signal.SIGSTOP)
        self.assertTrue(call.wait(30), "the stream is still open")
        self.assertIn(call.error.code(), (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
        self.assertIn(f"rank {victim}", call.error.details())
        self.assertTrue(wait_until(lambda: 0 not in job.ranks(), EXIT_SECONDS), job.log())

    def over_transports(self, check, *arguments):
        for transport in TRANSPORTS:
            for repeat in range(ferry_job.REPEATS):
                victims = [1 + (repeat + TRANSPORTS.index(transport)) % 2] if arguments else []
                with self.subTest(transport=transport, repeat=repeat, victims=victims):
                    check(transport, *victims)

    def test_a_killed_worker_ends_every_request(self):
        self.over_transports(self.check_worker_loss, "victim")

    def test_a_worker_killed_while_idle_is_noticed(self):
        self.check_idle_worker_loss("mpi", 1)

    def test_workers_follow_a_killed_coordinator(self):
        self.over_transports(self.check_coordinator_loss)
        self.check_coordinator_loss("auto")

    def test_a_frozen_worker_is_named(self):
        self.check_frozen_worker("gloo", 2)


if __name__ == "__main__":
    ferry_job.main()
