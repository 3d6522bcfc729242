"""Leaving: drained by a signal, or after the loss of a rank; and going on without one."""

import json
import os
import pathlib
import re
import signal
import tempfile
import time
import urllib.request

import ferry_job
import grpc
import pictures
from ferry.v1 import cluster_pb2, cluster_pb2_grpc, experts_pb2, experts_pb2_grpc
from ferry_job import OpenCall, endless_request, pb, wait_until

NUM_CALLS = 6
NOTICE_SECONDS = 2.0  # from the loss of a worker to the end of every open stream
EXIT_SECONDS = 10.0  # from there to the end of the coordinator
WORKER_EXIT_SECONDS = 5.0  # from the loss of the coordinator to the end of the workers
DEGRADED_SECONDS = 30.0  # within which an idle coordinator looks at its workers; it does every 5 s
TRANSPORTS = ("mpi", "gloo")  # over which a lost worker ends the job


class DrainTest(ferry_job.JobTest):
    def open_calls(self, job, max_tokens):
        calls = [OpenCall(job, endless_request(seed=i, max_tokens=max_tokens)) for i in range(NUM_CALLS)]
        for call in calls:
            self.assertTrue(call.wait_for_token(), call.error)
        return calls

    def tokens_of_seconds(self, job):
        """What a drain has to wait for, also where a sanitizer makes a token take twenty times as long."""
        began = time.monotonic()
        job.generate(endless_request(max_tokens=20))
        return max(250, min(700, int(2.0 * 20 / (time.monotonic() - began))))

    def check_drain(self, signal_number, ranks, transport="auto"):
        job = self.start("--drain-timeout", "100", ranks=ranks, transport=transport)
        max_tokens = self.tokens_of_seconds(job)
        calls = self.open_calls(job, max_tokens=max_tokens)
        job.process.send_signal(signal_number)
        self.assertTrue(wait_until(lambda: job.health() == "NOT_SERVING", 10), job.health())
        self.assert_status(grpc.StatusCode.UNAVAILABLE, lambda: job.generate(endless_request(max_tokens=3)))
        self.assertTrue(any(call.ended_at is None for call in calls), "all were done before the drain could be seen")
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
        job = self.start(ranks=3, transport=transport)
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
        job = self.start(ranks=3, transport=transport)
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        job.kill_rank(0)
        self.assert_no_ranks_left(job, WORKER_EXIT_SECONDS)
        self.assertTrue(call.wait(10))
        self.assertEqual(call.error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertNotIn(job.wait(15), (0, None), job.log())

    def check_frozen_worker(self, transport, victim):
        """A worker that is there but silent: only the deadline of a step can tell."""
        job = self.start("--peer-timeout", "1", ranks=3, transport=transport)
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



class MaskedLossTest(ferry_job.JobTest):
    """Over sockets, the default: a lost worker ends no request, and changes no token."""

    def run_calls(self, job, requests, disturb=None):
        """The token ids that the requests get at once; `disturb` is called when all of them stream."""
        calls = [OpenCall(job, request) for request in requests]
        if disturb is not None:
            for call in calls:
                self.assertTrue(call.wait_for_token(), call.error)
            disturb()
        for call in calls:
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNone(call.error)
        return [call.token_ids for call in calls]

    def texts(self):
        return [endless_request(seed=i, max_tokens=600) for i in range(NUM_CALLS)]

    def asks(self):
        """Text and pictures, which are still being encoded while others decode."""
        picture = lambda i: pictures.drawn(300 + 40 * i, 400, seed=i)
        ask = lambda i: pictures.parts_request(picture(i), pictures.shapes(i), "Describe them.", max_tokens=300, ignore_eos=True)
        return [ask(i) if i % 2 else endless_request(seed=i, max_tokens=400) for i in range(NUM_CALLS)]

    def tokens_alone(self, requests, *arguments):
        job = self.start(*arguments, ranks=1)
        tokens = self.run_calls(job, requests)
        self.assertEqual(job.stop(), 0)
        return tokens

    def get(self, job, path):
        with urllib.request.urlopen(f"http://{job.http_address}{path}", timeout=20) as response:
            return response.read().decode()

    def http_health(self, job):
        return json.loads(self.get(job, "/health"))

    def metric(self, job, name, label):
        found = re.search(rf"^{name}\{{[^}}]*{label}[^}}]*\}} (\S+)$", self.get(job, "/metrics"), re.MULTILINE)
        return float(found[1])

    def cluster(self, job):
        return cluster_pb2_grpc.ClusterStub(job.channel).GetCluster(cluster_pb2.GetClusterRequest(), timeout=10)

    def states(self, job):
        names = cluster_pb2.Worker.State.Name
        return {worker.rank: names(worker.state).removeprefix("STATE_").lower() for worker in self.cluster(job).workers}

    def check_degraded(self, job, ranks):
        """What everything that watches a job says of `ranks` that were lost."""
        self.assertTrue(wait_until(lambda: all(self.states(job)[rank] == "masked" for rank in ranks), DEGRADED_SECONDS), job.log())
        health = self.http_health(job)
        self.assertEqual(health["status"], "DEGRADED")
        self.assertEqual([(worker["rank"], worker["state"]) for worker in health["workers"]], [(rank, "masked") for rank in ranks])
        self.assertEqual(job.health(), "SERVING")
        cluster = self.cluster(job)
        self.assertEqual(cluster.state, cluster_pb2.GetClusterResponse.STATE_DEGRADED)
        self.assertEqual(cluster.changes["masked"], len(ranks))
        for worker in cluster.workers:
            self.assertEqual(bool(worker.reason), worker.rank in ranks)
        self.assertGreater(cluster.rows_covered_by_coordinator, 0)
        self.assertGreater(cluster.kept_expert_bytes, 0)
        self.assertEqual(self.metric(job, "ferry:workers", 'state="masked"'), len(ranks))
        self.assertEqual(self.metric(job, "ferry:worker_changes_total", 'state="masked"'), len(ranks))
        self.assertGreater(self.metric(job, "ferry:covered_rows_total", 'by="coordinator"'), 0)

    def test_killed_workers_end_no_request(self):
        """One of two while texts stream, the other one while nothing is computed; what was asked of experts is kept."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        loads = pathlib.Path(folder) / "load.json"
        requests = self.texts()
        expected = self.tokens_alone(requests, "--expert-load", str(loads))
        earlier = json.loads(loads.read_text())
        self.assertEqual(len(earlier["rows"][0]), 64)
        job = self.start("--expert-load", str(loads), ranks=3)
        self.assertEqual(self.http_health(job), {})
        self.assertEqual(self.states(job), {1: "healthy", 2: "healthy"})
        self.assertEqual(self.run_calls(job, requests, lambda: job.kill_rank(1)), expected)
        self.check_degraded(job, [1])
        self.assertGreater({worker.rank: worker.rows for worker in self.cluster(job).workers}[2], 0)
        job.kill_rank(2)
        self.assertEqual(self.run_calls(job, requests[:2]), expected[:2])
        self.check_degraded(job, [1, 2])
        job.terminate()
        self.assertIsNotNone(job.wait(30), job.log())
        self.assertGreater(json.loads(loads.read_text())["num_steps"], earlier["num_steps"])
        self.assert_no_ranks_left(job, 1)

    def test_a_killed_worker_ends_no_request_about_pictures(self):
        requests = self.asks()
        expected = self.tokens_alone(requests, "--speculate", "3")
        job = self.start("--speculate", "3", ranks=3)
        self.assertEqual(self.run_calls(job, requests, lambda: job.kill_rank(2)), expected)
        self.assertGreater(sum(job.stub.GetLoad(pb.GetLoadRequest(), timeout=10).drafts_tried), 0)
        self.check_degraded(job, [2])

    def test_a_stopped_worker_is_waited_for_once(self):
        """The stream goes on when it is suspected, and it works again when it does."""
        requests = self.texts()
        expected = self.tokens_alone(requests)
        job = self.start(ranks=3)
        worker = job.ranks()[2]
        self.assertEqual(self.run_calls(job, requests, lambda: os.kill(worker, signal.SIGSTOP)), expected)
        self.assertEqual(self.states(job), {1: "healthy", 2: "suspect"})
        self.assertEqual(self.http_health(job)["workers"][0]["state"], "suspect")
        os.kill(worker, signal.SIGCONT)
        self.assertTrue(wait_until(lambda: self.http_health(job) == {}, DEGRADED_SECONDS), job.log())
        self.assertEqual(self.run_calls(job, requests), expected)
        placement = experts_pb2_grpc.ExpertsStub(job.channel)
        held = placement.GetPlacement(experts_pb2.GetPlacementRequest(), timeout=10).layers[0].ranks
        self.assertEqual(sorted(expert for rank in held for expert in rank.experts), list(range(64)))
        load = placement.GetLoad(experts_pb2.GetExpertLoadRequest(), timeout=10)
        self.assertEqual([len(layer.rows) for layer in load.layers], [64] * len(load.layers))
        self.assertGreater(load.num_steps, 100)
        self.assertEqual(job.stop(), 0, job.log())


if __name__ == "__main__":
    ferry_job.main()
