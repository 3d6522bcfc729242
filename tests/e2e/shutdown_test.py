"""Leaving: drained by a signal, or after the loss of a rank."""

import os
import pathlib
import signal
import unittest.mock

import ferry_job
import grpc
import pictures
from ferry_job import OpenCall, endless_request, pace, pb, wait_for

NUM_CALLS = 6
TRANSPORTS = ("mpi", "gloo")  # over which a lost worker ends the job


class DrainTest(ferry_job.JobTest):
    def open_calls(self, job, max_tokens):
        calls = [OpenCall(job, endless_request(seed=i, max_tokens=max_tokens)) for i in range(NUM_CALLS)]
        for call in calls:
            call.wait_for_token()
        return calls

    def send_and_see(self, job, signal_number):
        """Sends the signal; the job says that it drains, to everything that watches it and to whoever asks anew."""
        job.process.send_signal(signal_number)
        wait_for(lambda: "draining" in job.log(), "the beginning of the drain", job.log)
        wait_for(lambda: job.health() != "SERVING", "a health that is not SERVING", job.health)
        wait_for(lambda: self.is_refused(job), "the refusal of a new request")

    @staticmethod
    def is_refused(job):
        """One that comes before the drain may be answered yet, or wait."""
        try:
            job.generate(endless_request(max_tokens=3), seconds=1)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.UNAVAILABLE
        return False

    def check_drained(self, job, calls, max_tokens):
        for call in calls:
            self.assertTrue(call.wait())
            self.assertIsNone(call.error)
            self.assertEqual(len(call.token_ids), max_tokens)
            self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_LENGTH)
        self.assertEqual(job.wait(), 0, job.log())
        self.assert_no_ranks_left(job)

    def test_sigterm_drains_a_job(self):
        """A worker stands still from before the calls until it has been seen that the job drains, so that none ends before."""
        for transport in TRANSPORTS:
            with self.subTest(transport):
                job = self.start(ranks=3, transport=transport)
                worker = job.ranks()[2]
                os.kill(worker, signal.SIGSTOP)
                calls = [OpenCall(job, endless_request(seed=i, max_tokens=100)) for i in range(NUM_CALLS)]
                try:
                    load = lambda: job.stub.GetLoad(pb.GetLoadRequest(), timeout=ferry_job.LIMIT_SECONDS)
                    wait_for(lambda: load().running_requests + load().waiting_requests == NUM_CALLS, "all calls in progress", load)
                    self.send_and_see(job, signal.SIGTERM)
                finally:
                    os.kill(worker, signal.SIGCONT)
                self.check_drained(job, calls, 100)

    def test_sigint_drains_a_single_process(self):
        job = self.start(ranks=1)
        calls = self.open_calls(job, 300)
        self.send_and_see(job, signal.SIGINT)
        self.check_drained(job, calls, 300)

    def test_what_takes_too_long_is_aborted(self):
        job = self.start("--drain-timeout", "0.5", *pace(1, 2, seconds=0.02), ranks=3)
        calls = self.open_calls(job, max_tokens=8000)
        job.terminate()
        for call in calls:
            self.assertTrue(call.wait())
            self.assertEqual(call.error.code(), grpc.StatusCode.CANCELLED)
            self.assertEqual(call.last.finish_reason, pb.Completion.FINISH_REASON_ABORTED)
        self.assertEqual(job.wait(), 0, job.log())
        self.assert_no_ranks_left(job)


def cpu_seconds(process_id):
    """What a process has computed so far."""
    fields = pathlib.Path(f"/proc/{process_id}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PreparedDrainTest(ferry_job.JobTest):
    """A request whose pictures are still being decoded is in progress like any other."""

    def open_call(self, job, num_pictures, request_id="", side=8000):
        """A call whose pictures the server has begun to decode, which is work of parts of a second each."""
        process_id = job.ranks()[0]
        job.generate(endless_request(max_tokens=2))  # behind which the server has nothing to do
        before = cpu_seconds(process_id)
        request = pictures.parts_request(*[pictures.drawn(side, side)] * num_pictures, "Describe them.", max_tokens=2, ignore_eos=True)
        request.request_id = request_id
        call = OpenCall(job, request)
        wait_for(lambda: cpu_seconds(process_id) > before + 0.15, "work on the pictures", job.log)
        return call

    def end_drain(self, job, call):
        self.assertTrue(call.wait())
        self.assertEqual(job.wait(), 0, job.log())
        self.assert_no_ranks_left(job)

    def test_they_are_finished(self):
        job = self.start("--picture-tokens", "64", ranks=1)
        call = self.open_call(job, 4, side=1500)
        job.terminate()
        self.end_drain(job, call)
        self.assertIsNone(call.error)
        self.assertEqual(call.last.completion_tokens, 2)

    def test_what_takes_too_long_is_aborted(self):
        for request_id in ("", "mine"):
            job = self.start("--drain-timeout", "0", "--picture-tokens", "64", ranks=1)
            call = self.open_call(job, 16, request_id)
            job.terminate()
            self.end_drain(job, call)
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
        """The calls end long before anything has to be silent for too long (PATIENT)."""
        job.kill_rank(victim)
        for call in calls:
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNotNone(call.error)
            self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE, call.error.details())
            self.assertIn(f"rank {victim}", call.error.details())
        wait_for(lambda: job.health() in ("NOT_SERVING", "GONE"), "a health that tells of the loss", job.health)
        self.assertNotIn(job.wait(), (0, None), job.log())
        self.assert_no_ranks_left(job)

    def check_idle_worker_loss(self, transport, victim):
        job = self.start(ranks=3, transport=transport)
        job.generate(endless_request(max_tokens=3))
        job.kill_rank(victim)
        wait_for(lambda: job.health() != "SERVING", "a health that tells of the loss", job.health)
        self.assertNotIn(job.wait(), (0, None), job.log())
        self.assertIn(f"rank {victim}", job.log())
        self.assert_no_ranks_left(job)

    def check_coordinator_loss(self, transport):
        job = self.start(*pace(1, 2), ranks=3, transport=transport)
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        job.kill_rank(0)
        self.assert_no_ranks_left(job)
        self.assertTrue(call.wait())
        self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertNotIn(job.wait(), (0, None), job.log())

    def test_frozen_workers_are_named(self):
        """Workers that are there but silent: only the deadline of a step can tell, and nothing else has to come before it."""
        with unittest.mock.patch.dict(os.environ, FERRY_TIMEOUT_FACTOR="1"):  # mpirun.sh ends them when the coordinator has gone
            jobs = [self.start("--peer-timeout", "2", ranks=3, transport=transport) for transport in TRANSPORTS]
        for job in jobs:
            for rank in (1, 2):
                os.kill(job.ranks()[rank], signal.SIGSTOP)
        calls = [OpenCall(job, endless_request()) for job in jobs]
        for transport, job, call in zip(TRANSPORTS, jobs, calls):
            with self.subTest(transport):
                self.assertTrue(call.wait(), "the stream is still open")
                self.assertIn(call.error.code(), (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
                self.assertRegex(call.error.details(), "rank [12]")
                self.assertNotIn(job.wait(), (0, None), job.log())
                self.assertRegex(job.log(), "error: rank [12]: silent")
                self.assert_no_ranks_left(job)

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


if __name__ == "__main__":
    ferry_job.main()
