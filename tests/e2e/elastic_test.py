"""Workers that die, stop, join and leave while requests run: no request ends, and no token changes."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import ferry_job
import grpc
import pictures
from ferry.v1 import cluster_pb2, cluster_pb2_grpc, experts_pb2, experts_pb2_grpc
from ferry_job import FERRY, LIMIT_SECONDS, OpenCall, endless_request, on_host, pace, pb, told_lines, wait_for

NUM_CALLS = 6
KNOWN_TOKENS = 1000  # of each text that one process has told
NEW_TOKENS = 8  # of each text that have to come behind what happens while they stream
PACE = pace(1, 2, 3, 4)  # in which texts stream for minutes
NUM_EXPERTS = 64  # of the demo
MOST_GROWTH_MIB = 100  # of a process while 500 MiB of experts come and go


class Worker:
    """A `ferry worker` process, which keeps PACE and waits for minutes for a coordinator."""

    def __init__(self, test, address, *arguments, model="demo"):
        self._log = tempfile.NamedTemporaryFile(mode="w+", prefix="ferry-worker-")
        command = [FERRY, "worker", "--join", address, "--model", str(model), "--join-timeout", "600", *PACE, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        test.addCleanup(self.end)

    def log(self):
        return pathlib.Path(self._log.name).read_text()

    def wait(self):
        return self.process.wait(LIMIT_SECONDS)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()


class ElasticTest(ferry_job.JobTest):
    def run_calls(self, job, requests):
        """The token ids that the requests get at once."""
        calls = [OpenCall(job, request) for request in requests]
        for call in calls:
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNone(call.error)
        return [call.token_ids for call in calls]

    def stream_during(self, jobs, act):
        """Texts stream from each of the jobs until the act is over, however long it takes, and some tokens on. All are right."""
        calls = [OpenCall(job, request) for job in jobs for request in self.texts()]
        for call in calls:
            call.wait_for_token()
        act()
        for call in calls:
            num_before = len(call.token_ids)
            has_gone_on = lambda: call.ended_at is not None or len(call.token_ids) >= num_before + NEW_TOKENS
            wait_for(has_gone_on, "more tokens", lambda: "\n".join(job.log() for job in jobs))
            self.assertIsNone(call.error)
        for call in calls:
            call.cancel()
        for call, known in zip(calls, self.known_tokens() * len(jobs)):
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertEqual(call.token_ids[:KNOWN_TOKENS], known[: len(call.token_ids)], "\n".join(job.log() for job in jobs))

    def texts(self, max_tokens=8000):
        return [endless_request(seed=i, max_tokens=max_tokens) for i in range(NUM_CALLS)]

    def known_tokens(self, num_tokens=KNOWN_TOKENS):
        """The first ones of each text."""
        return [tokens[:num_tokens] for tokens in self.tokens_alone(self.texts(max_tokens=KNOWN_TOKENS))]

    def check_texts(self, job, num_tokens=20):
        """Texts have their tokens and end."""
        self.assertEqual(self.run_calls(job, self.texts(max_tokens=num_tokens)), self.known_tokens(num_tokens), job.log())

    def asks(self):
        """Text and pictures, which are still being encoded while others decode."""
        picture = lambda i: pictures.drawn(300 + 40 * i, 400, seed=i)
        ask = lambda i: pictures.parts_request(picture(i), pictures.shapes(i), "Describe them.", max_tokens=300, ignore_eos=True)
        return [ask(i) if i % 2 else endless_request(seed=i, max_tokens=400) for i in range(NUM_CALLS)]

    _alone = {}  # tokens by requests

    def tokens_alone(self, requests, *arguments):
        """What one rank answers: without further arguments it is asked once for all tests, since it always answers the same."""
        key = tuple(request.SerializeToString(deterministic=True) for request in requests)
        if arguments or key not in self._alone:
            job = self.start(*arguments, ranks=1)
            tokens = self.run_calls(job, requests)
            self.assertEqual(job.stop(), 0)
            if arguments:
                return tokens
            self._alone[key] = tokens
        return self._alone[key]

    def get(self, job, path):
        with urllib.request.urlopen(f"http://{job.http_address}{path}", timeout=LIMIT_SECONDS) as response:
            return response.read().decode()

    def post(self, job, path, fields):
        body = json.dumps(fields).encode()
        request = urllib.request.Request(f"http://{job.http_address}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
            return response.read().decode()

    def http_health(self, job):
        return json.loads(self.get(job, "/health"))

    def metric(self, job, name, label):
        found = re.search(rf"^{name}\{{[^}}]*{label}[^}}]*\}} (\S+)$", self.get(job, "/metrics"), re.MULTILINE)
        return float(found[1])

    def cluster(self, job):
        return cluster_pb2_grpc.ClusterStub(job.channel).GetCluster(cluster_pb2.GetClusterRequest(), timeout=LIMIT_SECONDS)

    def states(self, job):
        names = cluster_pb2.Worker.State.Name
        return {worker.rank: names(worker.state).removeprefix("STATE_").lower() for worker in self.cluster(job).workers}

    def await_states(self, job, **states):
        """`rank_2="gone"`."""
        wanted = {int(rank.removeprefix("rank_")): state for rank, state in states.items()}
        wait_for(lambda: self.states(job) == wanted, wanted, lambda: f"{self.states(job)}\n{job.log()}")

    def await_health(self, job):
        """Health has nothing to tell."""
        wait_for(lambda: self.http_health(job) == {}, "a health that has nothing to tell", lambda: self.http_health(job))

    def placement(self, job):
        return experts_pb2_grpc.ExpertsStub(job.channel).GetPlacement(experts_pb2.GetPlacementRequest(), timeout=LIMIT_SECONDS)

    def set(self, job, layers, epoch=0, seconds=LIMIT_SECONDS):
        """`layers`: [[[expert, ...] by worker] by layer]; the epoch."""
        of_rank = lambda held: experts_pb2.GetPlacementResponse.RankExperts(rank=held[0] + 1, experts=held[1])
        of_layer = lambda lists: experts_pb2.GetPlacementResponse.Layer(ranks=map(of_rank, enumerate(lists)))
        request = experts_pb2.SetPlacementRequest(epoch=epoch, layers=map(of_layer, layers))
        return experts_pb2_grpc.ExpertsStub(job.channel).SetPlacement(request, timeout=seconds).epoch

    def holders(self, job):
        """{rank: how many experts it holds of the first layer}."""
        return {rank.rank: len(rank.experts) for rank in self.placement(job).layers[0].ranks}


class MaskedLossTest(ElasticTest):
    """Over sockets, the default: a lost worker ends no request, and others get its experts."""

    def check_degraded(self, job, rank):
        """What everything that watches a job says when nobody is left to take the experts of the one that was lost last."""
        health = self.http_health(job)
        self.assertEqual(health["status"], "DEGRADED")
        self.assertEqual([(worker["rank"], worker["state"]) for worker in health["workers"]], [(rank, "masked")])
        self.assertEqual(job.health(), "SERVING")
        cluster = self.cluster(job)
        self.assertEqual(cluster.state, cluster_pb2.GetClusterResponse.STATE_DEGRADED)
        for worker in cluster.workers:
            self.assertTrue(worker.reason)
        self.assertGreater(cluster.rows_covered_by_coordinator, 0)
        self.assertGreater(cluster.kept_expert_bytes, 0)
        self.assertEqual(self.metric(job, "ferry:workers", 'state="masked"'), 1)
        self.assertGreater(self.metric(job, "ferry:covered_rows_total", 'by="coordinator"'), 0)

    def test_killed_workers_end_no_request(self):
        """One of two while texts stream, the other one while nothing is computed; what was asked of experts is kept."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        loads = pathlib.Path(folder) / "load.json"
        self.assertEqual(self.tokens_alone(self.texts(max_tokens=20), "--expert-load", str(loads)), self.known_tokens(20))
        earlier = json.loads(loads.read_text())
        self.assertEqual(len(earlier["rows"][0]), NUM_EXPERTS)
        job = self.start("--expert-load", str(loads), *PACE, ranks=3)
        self.await_health(job)
        self.await_states(job, rank_1="healthy", rank_2="healthy")
        self.stream_during([job], lambda: job.kill_rank(1))
        self.await_states(job, rank_1="gone", rank_2="healthy")
        self.await_health(job)
        self.assertEqual(self.holders(job), {2: NUM_EXPERTS})
        self.assertEqual({state: self.cluster(job).changes[state] for state in ("masked", "gone")}, {"masked": 1, "gone": 1})
        self.assertEqual(self.metric(job, "ferry:worker_changes_total", 'state="masked"'), 1)
        job.kill_rank(2)
        self.check_texts(job)
        self.await_states(job, rank_1="gone", rank_2="masked")
        self.check_degraded(job, 2)
        job.terminate()
        self.assertIsNotNone(job.wait(), job.log())
        self.assertGreater(json.loads(loads.read_text())["num_steps"], earlier["num_steps"])

    def test_a_killed_worker_ends_no_request_about_pictures(self):
        requests = self.asks()
        expected = self.tokens_alone(requests, "--speculate", "3")
        job = self.start("--speculate", "3", ranks=3)
        calls = [OpenCall(job, request) for request in requests]
        wait_for(lambda: any(call.token_ids for call in calls), "a token", job.log)
        job.kill_rank(2)
        for call, tokens in zip(calls, expected):
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNone(call.error)
            self.assertEqual(call.token_ids, tokens)
        self.assertGreater(sum(job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS).drafts_tried), 0)
        self.await_states(job, rank_1="healthy", rank_2="gone")

    def test_a_stopped_worker_is_waited_for_once(self):
        """The stream goes on when it is suspected, and it works again when it does."""
        job = self.start(*PACE, ranks=3)
        worker = job.ranks()[2]
        self.stream_during([job], lambda: os.kill(worker, signal.SIGSTOP))
        try:
            self.await_states(job, rank_1="healthy", rank_2="suspect")
            told = lambda: [(each["rank"], each["state"]) for each in self.http_health(job).get("workers", [])]
            wait_for(lambda: told() == [(2, "suspect")], "a health that tells of the suspect", lambda: self.http_health(job))
        finally:
            os.kill(worker, signal.SIGCONT)
        self.await_health(job)
        self.check_texts(job)
        self.assertEqual(self.holders(job), {1: NUM_EXPERTS // 2, 2: NUM_EXPERTS // 2})
        load = experts_pb2_grpc.ExpertsStub(job.channel).GetLoad(experts_pb2.GetExpertLoadRequest(), timeout=LIMIT_SECONDS)
        self.assertEqual([len(layer.rows) for layer in load.layers], [NUM_EXPERTS] * len(load.layers))
        self.assertGreater(load.num_steps, 20)
        self.assertEqual(job.stop(), 0, job.log())


class SetPlacementTest(ElasticTest):
    """`ferry.v1.Experts.SetPlacement` and launch/placement.py."""

    def held(self, job):
        return [[list(rank.experts) for rank in layer.ranks] for layer in self.placement(job).layers]

    def test_experts_move_by_hand_while_texts_stream(self):
        job = self.start("--rebalance", "20", *PACE, ranks=3)
        num_layers = len(self.placement(job).layers)
        everything = list(range(NUM_EXPERTS))
        odd = [everything[1::2], everything[::2]]

        def move():
            for lists in (odd, [everything, []], [everything[::-1], everything[:8]], odd):
                wanted = [lists] * num_layers
                self.set(job, wanted)
                steps = self.num_steps(job)
                wait_for(lambda: self.num_steps(job) > steps + 30, "steps enough for --rebalance", job.log)
                self.assertEqual(self.held(job), wanted, "and --rebalance leaves it alone")
                self.assertTrue(self.placement(job).set_by_hand)

        self.stream_during([job], move)
        job.kill_rank(1)
        self.await_states(job, rank_1="gone", rank_2="healthy")
        self.assertFalse(self.placement(job).set_by_hand)
        self.check_texts(job)

    def num_steps(self, job):
        return job.stub.GetLoad(pb.GetLoadRequest(), timeout=LIMIT_SECONDS).steps

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        job = self.start(ranks=3)
        before = self.placement(job)
        held = self.held(job)
        changed = lambda lists: [*held[:-1], lists]
        everything = list(range(NUM_EXPERTS))
        last = f"layer {len(held) - 1}: "
        for layers, words in (
            ([], ["of 0 layers"]),
            (held[1:], ["layers"]),
            (changed([everything[1:], []]), [last, "expert 0 on none"]),
            (changed([everything, [3, 3]]), [last, "expert 3 on rank 2 twice"]),
            (changed([everything, [NUM_EXPERTS]]), [last, f"expert {NUM_EXPERTS} on rank 2"]),
            (changed([everything, [], [5]]), [last, "rank 3", "1, 2"]),
        ):
            details = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.set(job, layers))
            for word in words:
                self.assertIn(word, details)
        details = self.assert_status(grpc.StatusCode.ABORTED, lambda: self.set(job, held, epoch=before.epoch + 1))
        self.assertIn(f"epoch {before.epoch + 1}", details)
        self.assertEqual(self.placement(job), before)
        worker = job.ranks()[2]
        os.kill(worker, signal.SIGSTOP)
        self.assert_status(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: self.set(job, held[::-1], seconds=5))
        os.kill(worker, signal.SIGCONT)
        wait_for(lambda: "which is the one before" in job.log(), "the end of the move", job.log)
        self.assertEqual(self.held(job), held)
        alone = self.start(ranks=1)
        details = self.assert_status(grpc.StatusCode.FAILED_PRECONDITION, lambda: self.set(alone, self.one_rank_of(held)))
        self.assertIn("nowhere to move", details)

    def test_who_reads_while_a_worker_leaves_is_to_read_again(self):
        """One that holds nothing leaves without a change of placement."""
        job = self.start(ranks=3)
        held = self.held(job)
        epoch = self.set(job, [[list(range(NUM_EXPERTS)), []]] * len(held))
        self.assertEqual(self.holders(job), {1: NUM_EXPERTS, 2: 0})
        job.kill_rank(2)
        self.await_states(job, rank_1="healthy", rank_2="gone")
        details = self.assert_status(grpc.StatusCode.ABORTED, lambda: self.set(job, held, epoch=epoch))
        self.assertIn("experts on rank 2, which has left since", details)
        self.assertEqual((self.placement(job).epoch, self.holders(job)), (epoch, {1: NUM_EXPERTS}))
        never = [[[], [], lists[0] + lists[1]] for lists in held]
        details = self.assert_status(grpc.StatusCode.INVALID_ARGUMENT, lambda: self.set(job, never, epoch=epoch))
        self.assertIn("rank 3", details)
        self.set(job, [[list(range(NUM_EXPERTS))[::-1]]] * len(held), epoch=epoch)

    @staticmethod
    def one_rank_of(held):
        return [[list(range(NUM_EXPERTS))] for _ in held]

    def test_over_mpi_experts_stay(self):
        job = self.start(ranks=3, transport="mpi")
        details = self.assert_status(grpc.StatusCode.FAILED_PRECONDITION, lambda: self.set(job, self.held(job)))
        self.assertIn("sockets", details)

    def test_from_the_shell(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        job = self.start(ranks=3)

        def run(*arguments):
            script = ferry_job.ROOT / "launch/placement.py"
            command = [sys.executable, str(script), job._address, *map(str, arguments)]
            return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)

        placement = json.loads(run().stdout)
        self.assertEqual(placement["layers"], self.held(job))
        self.assertEqual((placement["num_workers"], placement["num_experts"]), (2, NUM_EXPERTS))
        for lists in placement["layers"]:
            lists.reverse()
        file = folder / "placement.json"
        file.write_text(json.dumps(placement))
        done = run(file)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.held(job), placement["layers"])
        self.assertEqual(json.loads(run().stdout), placement)
        generated = subprocess.run(
            [str(ferry_job.ROOT / "launch/mpirun.sh"), "-np", "3", FERRY, "generate", "--model", "demo", "--prompt", "The", "--max-tokens", "8", "--placement", str(file)],
            capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(generated.returncode, 0, "and --placement takes it: " + generated.stderr)
        placement["layers"].pop()
        file.write_text(json.dumps(placement))
        done = run(file)
        self.assertEqual(done.returncode, 1)
        self.assertIn("placement.py: INVALID_ARGUMENT: a placement of", done.stderr)


class JoinTest(ElasticTest):
    """`serve --elastic` and `worker --join`."""

    def start_elastic(self, *arguments, address="127.0.0.1:0", ranks=1, model="demo"):
        job = self.start("--elastic", address, *arguments, ranks=ranks, model=model)
        said = lambda: re.search(r"ferry: workers may join on (\S+)", job.log())
        wait_for(said, "where workers may join", job.log)
        return job, said()[1]

    def test_workers_come_and_go_while_texts_stream(self):
        """Started without any, one comes and one more; the first is killed, another takes its seat, the second leaves."""
        job, address = self.start_elastic()
        self.check_texts(job)
        workers = []

        def join(**states):
            workers.append(Worker(self, address))
            self.await_states(job, **states)

        for change in (
            lambda: join(rank_1="healthy"),
            lambda: join(rank_1="healthy", rank_2="healthy"),
            lambda: workers[0].process.kill() or self.await_states(job, rank_1="gone", rank_2="healthy"),
            lambda: join(rank_1="healthy", rank_2="healthy"),
            lambda: workers[1].process.terminate() or self.await_states(job, rank_1="healthy", rank_2="gone"),
        ):
            self.stream_during([job], change)
        self.assertEqual(workers[1].wait(), 0, workers[1].log())
        self.check_texts(job)
        self.assertEqual(self.holders(job), {1: NUM_EXPERTS})
        self.await_health(job)
        self.assertEqual(job.stop(), 0, job.log())
        self.assertEqual(workers[2].wait(), 0, workers[2].log())

    def test_a_worker_joins_ranks_that_were_started_together(self):
        """Every expert twice, and of quantised weights."""
        options = ("--quantize", "w8a8")
        requests = self.texts(max_tokens=100)
        expected = self.tokens_alone(requests, *options)
        job, address = self.start_elastic(*options, "--redundancy", "2x", *PACE, ranks=3)
        Worker(self, address)
        self.await_states(job, rank_1="healthy", rank_2="healthy", rank_3="healthy")
        self.assertEqual(sum(self.holders(job).values()), 2 * NUM_EXPERTS)
        calls = [OpenCall(job, request) for request in requests]
        wait_for(lambda: all(call.token_ids for call in calls), "tokens", job.log)
        job.kill_rank(1)
        for call, tokens in zip(calls, expected):
            self.assertTrue(call.wait(), "a stream is still open")
            self.assertIsNone(call.error)
            self.assertEqual(call.token_ids, tokens)
        self.await_states(job, rank_1="gone", rank_2="healthy", rank_3="healthy")
        self.assertEqual(self.holders(job), {2: NUM_EXPERTS, 3: NUM_EXPERTS})
        self.assertEqual(self.run_calls(job, self.texts(max_tokens=20)), [tokens[:20] for tokens in expected])

    def check_that_one_is_dead(self, job):
        """Of two workers that joined; the live view, the metrics and the log tell which, where and why."""
        ranks = json.loads(self.get(job, "/status.json"))["ranks"]
        self.assertEqual(sorted((rank["state"], rank["lost"]) for rank in ranks), [("gone", True), ("healthy", False)])
        for rank in ranks:
            self.assertEqual(rank["host"], socket.gethostname())
            self.assertRegex(rank["address"], r"^127\.0\.0\.1:\d+$")
        dead = next(rank for rank in ranks if rank["lost"])
        self.assertIn("its experts are others' now", dead["reason"])
        self.assertEqual(self.metric(job, "ferry:worker_info", f'rank="{dead["rank"]}"[^}}]*lost="yes"'), 1)
        self.assertRegex(job.log(), rf"rank {dead['rank']} is joining: [^\n]* \(host [^\n]*Z\)\n")
        self.assertRegex(job.log(), rf"rank {dead['rank']} is masked: [^\n]* \(host [^\n]*Z\)\n")

    def test_a_capture_tells_what_changes_of_workers_cost(self):
        """A death and an arrival while texts stream: events, an incident and a finding each; none where nothing happens."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        job, address = self.start_elastic("--trace-dir", str(folder))
        workers = [Worker(self, address) for _ in range(2)]
        self.await_states(job, rank_1="healthy", rank_2="healthy")

        def join():
            workers.append(Worker(self, address))
            self.await_states(job, rank_1="healthy", rank_2="healthy")

        def kill():
            workers[0].process.kill()
            wait_for(lambda: "masked" in job.log(), "the loss", job.log)
            wait_for(lambda: sorted(self.states(job).values()) == ["gone", "healthy"], "one that is gone", job.log)
            self.check_that_one_is_dead(job)

        def stay():
            self.check_texts(job)

        for name, act, kind, changes in (
            ("quiet", stay, None, []),
            ("death", kill, "worker_lost", [("healthy", "masked"), (None, "told"), ("masked", "gone"), (None, "switched")]),
            ("arrival", join, "worker_joined", [("gone", "joining"), (None, "told"), ("joining", "healthy"), (None, "switched")]),
        ):
            with self.subTest(name):
                self.post(job, "/start_profile", {"output_dir": name, "level": 0})
                self.stream_during([job], act)
                self.post(job, "/stop_profile", {"wait": True})
                self.check_incident(folder / name, kind, changes, "is suspect" in job.log())

    def check_incident(self, folder, kind, changes, was_late):
        """On a machine that is busy enough a worker may be suspected beside what was to happen (`was_late`)."""
        report = json.loads((folder / "report.json").read_text())
        findings = [finding["kind"] for finding in report["findings"] if finding["table"] == "incident"]
        columns = {table["id"]: [column["name"] for column in table["columns"]] for table in report["tables"]}
        rows = {table["id"]: [dict(zip(columns[table["id"]], row)) for row in table["rows"]] for table in report["tables"]}
        if kind is None and not was_late:
            self.assertEqual(findings, [])
            self.assertNotIn("incident", rows)
            self.assertNotIn("worker_change", rows)
        if kind is None:
            return
        self.assertIn(kind, findings)
        self.assertTrue(findings == [kind] or was_late, findings)
        for change in changes:
            befores = (change[0], "suspect") if was_late and change[0] == "healthy" else change[:1]
            found = [row for row in rows["worker_change"] if row["to"] == change[1] and row["from"] in befores]
            self.assertEqual(len(found), 1, change)
            self.assertTrue(found[0]["reason"] or found[0]["to"] == "healthy", change)
            incident = rows["incident"][found[0]["incident"] - 1]
            self.assertEqual(incident["is_over"], "yes")
            self.assertGreater(incident["experts_moved"], 0)
            self.assertGreaterEqual(incident["last_step"], incident["first_step"])

    def test_experts_that_move_away_leave_no_memory_behind(self):
        """All but a few go to and fro, and ever more stay where they are: what a worker takes does not grow, nor a coordinator."""
        job, address = self.start_elastic()
        workers = [Worker(self, address) for _ in range(2)]
        self.await_states(job, rank_1="healthy", rank_2="healthy")
        num_layers = len(self.placement(job).layers)
        processes = {"coordinator": job.process.pid, **{f"worker {i + 1}": worker.process.pid for i, worker in enumerate(workers)}}

        def own_mib():
            read = lambda process_id: pathlib.Path(f"/proc/{process_id}/status").read_text()
            return {name: int(re.search(r"RssAnon:\s+(\d+) kB", read(process_id))[1]) / 1024 for name, process_id in processes.items()}

        def move(number):
            """Of the first layer every fourth time one pair more stays."""
            halves = [list(range(NUM_EXPERTS // 2)), list(range(NUM_EXPERTS // 2, NUM_EXPERTS))]
            turned = halves[::-1] if number % 2 else halves
            num_stay = number // 4
            first = [half[:num_stay] + other[num_stay:] for half, other in zip(halves, turned)]
            self.set(job, [first] + [turned] * (num_layers - 1))

        for number in range(10):
            move(number)
        before = own_mib()
        for number in range(10, 80):  # 7 MiB read each time by each worker
            move(number)
        for name, mib in own_mib().items():
            self.assertLess(mib, before[name] + MOST_GROWTH_MIB, f"MiB of {name}; before: {before}")

    def test_the_last_worker_may_leave(self):
        job, address = self.start_elastic(address=f"unix:ferry-test-{os.getpid()}")
        worker = Worker(self, address)
        self.await_states(job, rank_1="healthy")
        self.stream_during([job], lambda: worker.process.terminate() or self.await_states(job, rank_1="gone"))
        self.assertEqual(worker.wait(), 0, worker.log())
        self.await_health(job)  # it has not been lost
        self.check_texts(job)
        Worker(self, address)
        self.await_states(job, rank_1="healthy")
        self.check_texts(job)  # and the next one has its seat

    def test_a_worker_outlives_its_coordinator(self):
        """One that lingers works for the next coordinator at the same place; one that does not leaves with an error."""
        address = f"unix:ferry-test-{os.getpid()}"
        job, _ = self.start_elastic(address=address)
        lingers, leaves = Worker(self, address, "--linger", "600"), Worker(self, address)
        self.await_states(job, rank_1="healthy", rank_2="healthy")
        self.check_texts(job)
        job.process.kill()
        self.assertEqual(leaves.wait(), 1)
        self.assertIn("rank 0", leaves.log())
        job, _ = self.start_elastic(address=address)
        self.await_states(job, rank_1="healthy")
        self.check_texts(job)
        lingers.process.terminate()
        self.assertEqual(lingers.wait(), 0, lingers.log())

    def test_two_coordinators_share_workers(self):
        """Each has the answers that it has alone, also when a worker dies, the other coordinator leaves, or both are at one layer."""
        jobs = [self.start_elastic() for _ in range(2)]
        joins = [word for _, address in jobs for word in ("--join", address)]
        workers = [Worker(self, joins[1], *joins[2:]) for _ in range(2)]
        for job, _ in jobs:
            self.await_states(job, rank_1="healthy", rank_2="healthy")
        merged = lambda: sum(self.metric(job, "ferry:worker_answers_total", 'merged="yes"') for job, _ in jobs)

        def act():
            wait_for(lambda: merged() > 0, "answers that were computed together", lambda: jobs[0][0].log() + jobs[1][0].log())
            workers[0].process.kill()
            for job, _ in jobs:
                has_left = lambda: sorted(self.states(job).values()) == ["gone", "healthy"]
                wait_for(has_left, "one worker that is gone", lambda: self.states(job))

        self.stream_during([job for job, _ in jobs], act)
        self.assertEqual(jobs[0][0].stop(), 0, jobs[0][0].log())
        self.check_texts(jobs[1][0])
        self.assertEqual(jobs[1][0].stop(), 0, jobs[1][0].log())
        self.assertEqual(workers[1].wait(), 0, workers[1].log())

    def test_a_shared_worker_says_which_coordinator_it_has_lost(self):
        (lost, its_address), (other, its_own) = self.start_elastic(), self.start_elastic()
        worker = Worker(self, its_address, "--join", its_own)
        for job in (lost, other):
            self.await_states(job, rank_1="healthy")
        lost.kill()
        said = f"the coordinator at {its_address}: rank 0: "
        wait_for(lambda: f"ferry: {said}" in worker.log(), "the worker's word on it", worker.log)
        self.check_texts(other)
        self.await_states(other, rank_1="healthy")
        self.assertEqual(other.stop(), 0, other.log())
        self.assertEqual(worker.wait(), 1, worker.log())
        self.assertTrue(worker.log().splitlines()[-1].startswith(f"ferry: error: {said}"), worker.log())

    def test_a_coordinator_with_other_options_gets_no_share(self):
        """The worker says why, goes on with the first one, and its exit code tells in the end."""
        first, address = self.start_elastic()
        worker = Worker(self, address, "--join", f"unix:ferry-other-{os.getpid()}")
        self.await_states(first, rank_1="healthy")
        other, _ = self.start_elastic("--token-budget", "512", "--prefill-chunk", "256", address=f"unix:ferry-other-{os.getpid()}")
        wait_for(lambda: "other options" in worker.log(), "the worker's word on it", worker.log)
        for job in (first, other):
            self.check_texts(job)
        self.await_states(first, rank_1="healthy")
        worker.process.terminate()
        self.assertEqual(worker.wait(), 2, worker.log())

    def test_experts_move_for_balance_while_texts_stream(self):
        job = self.start("--rebalance", "20", *pace(1, 2, 3, 4, seconds=0.001), ranks=5)
        self.stream_during([job], lambda: wait_for(lambda: "for balance" in job.log(), "a placement for balance", job.log))
        self.assertEqual(sum(self.holders(job).values()), NUM_EXPERTS)
        self.await_states(job, **{f"rank_{rank}": "healthy" for rank in (1, 2, 3, 4)})

    def test_captures_of_workers_that_come_and_go_can_be_read(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        job, address = self.start_elastic("--trace-dir", str(folder))
        first = Worker(self, address)
        self.await_states(job, rank_1="healthy")

        def profile(action, **options):
            body = json.dumps(options).encode()
            request = urllib.request.Request(f"http://{job.http_address}/{action}_profile", data=body, method="POST", headers={"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
                return json.load(response)

        def change():
            Worker(self, address)
            self.await_states(job, rank_1="healthy", rank_2="healthy")
            first.process.kill()
            self.await_states(job, rank_1="gone", rank_2="healthy")

        profile("start")
        self.stream_during([job], change)
        during = profile("stop", wait=True)["output_dir"]
        profile("start")
        self.check_texts(job)
        after = profile("stop", wait=True)["output_dir"]
        for captured in (during, after):
            done = subprocess.run([FERRY, "trace", "report", captured], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_who_does_not_belong_is_refused(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "key").write_text("a key that is long enough\n")
        (folder / "other").write_text("another key, of somebody else\n")
        job, address = self.start_elastic("--join-key", str(folder / "key"))
        key = ("--join-key", str(folder / "key"))
        no_key = Worker(self, address)
        wrong_key = Worker(self, address, "--join-key", str(folder / "other"))
        model = folder / "model"
        model.mkdir()
        for file in ferry_job.DEMO.iterdir():
            if file.suffix in (".json", ".safetensors"):
                (model / file.name).write_bytes(file.read_bytes())
        weights = next(model.glob("*.safetensors"))
        changed = bytearray(weights.read_bytes())
        changed[-1000:] = bytes(1000)
        weights.write_bytes(changed)
        other_model = Worker(self, address, *key, model=model)
        for worker, word in ((no_key, "key"), (wrong_key, "key"), (other_model, "fingerprint")):
            self.assertEqual(worker.wait(), 2, worker.log())
            lines = told_lines(worker.log())
            self.assertEqual(len(lines), 1, worker.log())
            self.assertIn(word, lines[0])
        Worker(self, address, *key)
        self.await_states(job, rank_1="healthy")

    @staticmethod
    def large_model(folder):
        """The demo, and 300 MiB that nobody reads: of so much the fingerprint reads pieces."""
        folder.mkdir()
        for file in ferry_job.DEMO.iterdir():
            if file.suffix in (".json", ".safetensors"):
                (folder / file.name).write_bytes(file.read_bytes())
        num_bytes = 300 << 20
        padding = "rotary_emb.inv_freq"  # which every loader passes over
        header = json.dumps({padding: {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}}).encode()
        with (folder / "padding.safetensors").open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + num_bytes)
        index = folder / "model.safetensors.index.json"
        tensors = json.loads(index.read_text())
        tensors["weight_map"][padding] = "padding.safetensors"
        index.write_text(json.dumps(tensors))
        return folder

    @staticmethod
    def damage(model):
        """Changes two bytes of each expert of the first layer that the fingerprint of so large a checkpoint does not read."""
        weights = model / "model-00001-of-00003.safetensors"
        content = bytearray(weights.read_bytes())
        header_bytes = int.from_bytes(content[:8], "little")
        tensors = {}
        for file in model.glob("*.safetensors"):
            with file.open("rb") as opened:
                tensors |= json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        extents = {name: tensor["data_offsets"] for name, tensor in tensors.items() if name != "__metadata__"}
        stride = sum(end - begin for begin, end in extents.values()) // 4096  # of each tensor it reads the first 4 KiB of so many bytes
        begin, end = extents["model.language_model.layers.0.mlp.experts.gate_up_proj"]
        for expert in range(NUM_EXPERTS):
            at = expert * ((end - begin) // NUM_EXPERTS) + 2000
            at += 4096 if at % stride < 4096 else 0
            at += 8 + header_bytes + begin
            content[at : at + 2] = b"\x80\x41"  # 16 in bfloat16
        weights.write_bytes(content)

    def large_models(self):
        """One that is whole and one that is damaged, of one fingerprint."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        whole, damaged = self.large_model(folder / "whole"), self.large_model(folder / "damaged")
        self.damage(damaged)
        return whole, damaged

    def test_an_expert_is_compared_with_that_of_who_has_had_it(self):
        """Bytes that the fingerprint does not see: the worker is sent home."""
        whole, damaged = self.large_models()
        job, address = self.start_elastic(model=whole)
        Worker(self, address, model=whole)
        self.await_states(job, rank_1="healthy")
        bad = Worker(self, address, model=damaged)
        self.assertEqual(bad.wait(), 2, bad.log() + job.log())
        self.assertRegex(bad.log(), r"expert \d+ of layer 0 .* than on rank 1")
        self.assertNotIn("fingerprint", bad.log())
        self.check_texts(job)
        self.assertEqual(self.holders(job), {1: NUM_EXPERTS})

    @on_host
    def test_an_expert_that_nobody_has_had_is_compared_with_the_coordinators(self):
        """For which the coordinator has a second, so that a busy machine lets the fingerprint alone vouch for it."""
        whole, damaged = self.large_models()
        job, address = self.start_elastic(model=whole)
        bad = Worker(self, address, model=damaged)
        self.assertEqual(bad.wait(), 2, bad.log() + job.log())
        self.assertRegex(bad.log(), r"expert \d+ of layer 0 .* than on the coordinator")
        self.assertNotIn("fingerprint", job.log())
        Worker(self, address, model=whole)
        self.await_states(job, rank_1="healthy")
        self.assertNotIn("fingerprint", job.log())
        self.check_texts(job)

    def test_a_worker_that_is_stopped_before_it_joined_has_nothing_to_leave(self):
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            nobody.settimeout(LIMIT_SECONDS)
            worker = Worker(self, f"127.0.0.1:{nobody.getsockname()[1]}")
            connection, _ = nobody.accept()
            with connection:
                worker.process.terminate()
                self.assertEqual(worker.wait(), 0, worker.log())
        self.assertNotIn("leaves", worker.log())

    def test_bad_addresses_are_one_line(self):
        for command, word in (
            (["serve", "--model", "demo", "--elastic", "nowhere"], "nowhere"),
            (["serve", "--model", "demo", "--elastic", "0.0.0.0:0"], "key"),
            (["serve", "--model", "demo", "--elastic", "127.0.0.1:0", "--join-key", "/nowhere"], "/nowhere"),
            (["worker", "--model", "demo", "--join", "nowhere"], "nowhere"),
            (["worker", "--model", "demo", "--join", "127.0.0.1:1", "--join-timeout", "0.3"], "127.0.0.1:1"),
            (["worker", "--model", "demo"], "--join"),
        ):
            done = subprocess.run([FERRY, *command], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertIn(done.returncode, (1, 2), done.stderr)
            self.assertEqual(len(told_lines(done.stderr)), 1, done.stderr)
            self.assertIn(word, done.stderr)


class FaultTest(unittest.TestCase):
    def generate(self, *arguments, ranks=1):
        launcher = [str(ferry_job.ROOT / "launch/mpirun.sh"), "-np", str(ranks)] if ranks > 1 else []
        command = [*launcher, FERRY, "generate", "--model", "demo", "--prompt", "Once upon a time", "--max-tokens", "80", "--json"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["token_ids"], done.stderr

    def test_planned_faults_change_no_token(self):
        expected, _ = self.generate()
        for plan, words in (
            ("kill:2@step=5", ["kills rank 2", "rank 2 is masked"]),
            ("kill:1@step=4,kill:2@step=9", ["kills rank 1", "kills rank 2"]),
            ("stop:1@step=5+0.5s", ["stops rank 1"]),
            ("cut:0-1@step=3", ["cuts the link with rank 1", "cut by --fault", "rank 1 leaves"]),
            ("slow:2x5", []),
            ("nan:1@step=3", ["rank 1 reply with NaN", "rank 1 is masked: rank 1: its reply for layer 0 of step"]),
            ("nan:1,nan:2", ["rank 1 is masked", "rank 2 is masked"]),
        ):
            with self.subTest(plan):
                tokens, said = self.generate("--fault", plan, ranks=3)
                self.assertEqual(tokens, expected)
                for word in words:
                    self.assertIn(word, said)


    def test_a_nan_over_a_group_ends_with_an_error_that_names_the_rank(self):
        command = [str(ferry_job.ROOT / "launch/mpirun.sh"), "-np", "3", FERRY, "generate", "--model", "demo", "--prompt", "Once"]
        done = subprocess.run([*command, "--transport", "mpi", "--fault", "nan:2"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("rank 2: its reply for layer 0", done.stderr)
        self.assertNotIn("--check-weights", done.stderr)


if __name__ == "__main__":
    ferry_job.main()
