"""`ferry front` before two coordinators: same answers, calls by session and cached prompt, and a coordinator that dies."""

import concurrent.futures
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import unittest

import ferry_job
import grpc
from ferry_job import CALL_SECONDS, FERRY, LIMIT_SECONDS, OpenCall, endless_request, generate_alone, pace, pb, pb_grpc, text_request, wait_for
from sockets import keep_port, own_host

SERVE = ("--max-seqs", "8", "--speculate", "0", *pace(1))
PATIENT = ("--lost-after", "600", "--drain-timeout", "600")  # a coordinator that stood still is not down
ENDLESS = 8000  # tokens: minutes at that pace
COMPARED = 200  # tokens
QUESTION = "What does river mean?"
INSTRUCTIONS = "You are a dictionary. " * 40  # several units of the prefix cache


class Front:
    """A `ferry front` process, up when the constructor returns; it can be used as a Job can be by OpenCall."""

    def __init__(self, test, coordinators, *arguments):
        command = [FERRY, "front", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *PATIENT, *arguments]
        for job in coordinators:
            command += ["--coordinator", f"{job.http_address},{job._address}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.http_address = self._await(r"ferry: serving http on (\S+)")
        self.channel = grpc.insecure_channel(self._await(r"ferry: serving grpc on (\S+)"), options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = pb_grpc.InferenceStub(self.channel)

    def _await(self, pattern):
        line = self.process.stderr.readline()
        found = re.search(pattern, line)
        if not found:
            raise RuntimeError(f"ferry front says: {line}")
        return found[1]

    def end(self):
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def call(server, path, body=None, headers=()):
    """(status, body as JSON) of one request."""
    connection = http.client.HTTPConnection(server.http_address, timeout=CALL_SECONDS)
    try:
        method = "GET" if body is None else "POST"
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **dict(headers)} if body is not None else {})
        answer = connection.getresponse()
        content = answer.read().decode()
        return answer.status, json.loads(content) if content.startswith("{") else content
    finally:
        connection.close()


def chat(messages, **fields):
    return {"messages": messages, "max_tokens": 16, "temperature": 0, **fields}


def user(content):
    return {"role": "user", "content": content}


def metric(server, name):
    """The sum of the samples of /metrics whose names and labels match `name`."""
    found = re.findall(rf"^{name} ([0-9.e+]+)$", call(server, "/metrics")[1], re.M)
    return sum(map(float, found))


def num_answered(job):
    return metric(job, r"vllm:request_success_total\{.*\}")


class HttpStream:
    """A streamed chat that a thread reads."""

    def __init__(self, server, body):
        self.events = []
        self.error = None  # what the stream said, or how it broke off
        self.is_done = False
        self._has_event = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(server, body), daemon=True)
        self._thread.start()

    def _read(self, server, body):
        connection = self._connection = http.client.HTTPConnection(server.http_address, timeout=CALL_SECONDS)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            for line in connection.getresponse():
                self._take(line.decode().strip())
        except (OSError, http.client.HTTPException) as error:
            self.error = self.error or repr(error)
        finally:
            connection.close()
        self._has_event.set()

    def _take(self, line):
        if line == "data: [DONE]":
            self.is_done = True
        elif line.startswith("data: ") and line.endswith("}"):
            event = json.loads(line.removeprefix("data: "))
            self.error = event["error"]["message"] if "error" in event else self.error
            self.events.append(event)
            self._has_event.set()

    def text(self):
        return "".join(choice["delta"].get("content") or "" for event in self.events for choice in event.get("choices", []))

    def wait_for_event(self):
        return self._has_event.wait(CALL_SECONDS) and self.is_open()

    def is_open(self):
        return self._thread.is_alive()

    def close(self):
        """Leaves while the server streams."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.wait()

    def wait(self):
        """True when the stream has ended."""
        self._thread.join(CALL_SECONDS)
        return not self._thread.is_alive()


class FrontTest(ferry_job.JobTest):
    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            cls.jobs = list(pool.map(lambda _: cls.coordinator(f"{own_host()}:0", f"{own_host()}:0"), range(2)))

    @staticmethod
    def coordinator(http_address, grpc_address):
        return ferry_job.Job(*SERVE, ranks=2, http=http_address, grpc_at=grpc_address)

    @classmethod
    def tearDownClass(cls):
        for job in cls.jobs:
            job.channel.close()
            job.kill()

    def front(self, *arguments):
        return Front(self, self.jobs, *arguments)

    def ask(self, server, messages, headers=(), **fields):
        status, answer = call(server, "/v1/chat/completions", chat(messages, **fields), headers)
        self.assertEqual(status, 200, answer)
        return answer

    def content(self, server, messages, **fields):
        return self.ask(server, messages, **fields)["choices"][0]["message"]["content"]

    def test_answers_are_those_of_one_coordinator(self):
        front = self.front()
        expected = self.content(self.jobs[0], [user(QUESTION)])
        for _ in range(3):
            self.assertEqual(self.content(front, [user(QUESTION)]), expected)
        stream = HttpStream(front, chat([user(QUESTION)]))
        self.assertTrue(stream.wait())
        self.assertIsNone(stream.error)
        self.assertTrue(stream.is_done)
        self.assertGreater(len(stream.events), 5)
        self.assertEqual(stream.text(), expected)
        models = [model["id"] for model in call(front, "/v1/models")[1]["data"]]
        self.assertEqual(models, [model["id"] for model in call(self.jobs[0], "/v1/models")[1]["data"]])
        status, message = call(front, "/v1/messages", {"max_tokens": 16, "temperature": 0, "messages": [user(QUESTION)]})
        self.assertEqual((status, message["content"][0]["text"]), (200, expected))
        self.assertEqual(call(front, "/v1/chat/completions", {"messages": 7})[0], 400)
        request = text_request("The kernel", max_tokens=24)
        self.assertEqual(ferry_job.gather(front.stub.Generate(request, timeout=CALL_SECONDS)), self.jobs[0].generate(request))

    def test_who_sends_nothing_more_gets_an_answer(self):
        """As `nc -N` asks: of a coordinator itself and through the front, a whole answer and a stream."""
        front = self.front()
        expected = self.content(self.jobs[0], [user(QUESTION)])
        for server in (self.jobs[0], front):
            for is_stream in (False, True):
                body = json.dumps({**chat([user(QUESTION)]), "stream": is_stream}).encode()
                host, port = server.http_address.rsplit(":", 1)
                with socket.create_connection((host, int(port)), timeout=CALL_SECONDS) as connection:
                    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    connection.sendall(head.encode() + body)
                    connection.shutdown(socket.SHUT_WR)
                    answer = http.client.HTTPResponse(connection)
                    answer.begin()
                    content = answer.read().decode()
                self.assertEqual(answer.status, 200, content)
                if is_stream:
                    self.assertTrue(content.endswith("data: [DONE]\n\n"), content)
                else:
                    self.assertEqual(json.loads(content)["choices"][0]["message"]["content"], expected)

    def test_a_session_stays_and_others_spread(self):
        front = self.front()
        before = [num_answered(job) for job in self.jobs]
        for i in range(6):
            self.ask(front, [user(f"{i}?")], {"X-Session-Id": "s"}.items(), max_tokens=1)
        counts = [num_answered(job) - count for job, count in zip(self.jobs, before)]
        self.assertEqual(sorted(counts), [0, 6])
        for i in range(6):
            self.ask(front, [user(f"{i}?")], max_tokens=1)
        counts = [num_answered(job) - count for job, count in zip(self.jobs, before)]
        self.assertEqual(counts, [6, 6])  # those without a session go where fewer calls were
        self.assertEqual(metric(front, r'ferry:front_choices_total\{by="session"\}'), 5)

    def test_the_next_turn_goes_where_the_last_one_was_computed(self):
        front = self.front()
        turns = [[user(f"{i} {INSTRUCTIONS}")] for i in range(6)]
        before = [num_answered(job) for job in self.jobs]
        for turn in turns:
            turn.append({"role": "assistant", "content": self.content(front, turn, max_tokens=4)})
        self.assertTrue(all(num_answered(job) > count for job, count in zip(self.jobs, before)), "one coordinator had all of them")
        for turn in turns:
            usage = self.ask(front, [*turn, user("And?")], max_tokens=1)["usage"]
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 64)
        self.assertEqual(metric(front, r'ferry:front_choices_total\{by="prefix"\}'), len(turns))

    def test_abort_finds_a_request_wherever_it_is(self):
        front = self.front()
        calls = [OpenCall(front, endless_request(seed=i, request_id=f"front-{i}")) for i in range(4)]
        for i, open_call in enumerate(calls):
            self.assertTrue(open_call.wait_for_token(), open_call.error)
            self.assertTrue(front.stub.Abort(pb.AbortRequest(request_id=f"front-{i}"), timeout=LIMIT_SECONDS).found)
            self.assertTrue(open_call.wait())
            self.assertEqual(open_call.error.code(), grpc.StatusCode.CANCELLED)
        self.assertFalse(front.stub.Abort(pb.AbortRequest(request_id="nobody's"), timeout=LIMIT_SECONDS).found)

    def test_whoever_leaves_ends_the_request(self):
        front = self.front()
        num_running = lambda: sum(metric(job, r"vllm:num_requests_running\{.*\}") for job in self.jobs)
        connection = http.client.HTTPConnection(front.http_address, timeout=CALL_SECONDS)
        body = chat([user(QUESTION)], max_tokens=ENDLESS, ignore_eos=True, stream=True)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().readline()
        wait_for(lambda: num_running() == 1, "one request that runs", num_running)
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        wait_for(lambda: num_running() == 0, "no request that runs", num_running)

    def test_a_killed_coordinator_ends_its_own_streams_alone(self):
        front = self.front()
        expected = generate_alone("--token-ids", "10,20,30", "--ignore-eos", "--max-tokens", COMPARED).token_ids
        text = generate_alone("--chat", QUESTION, "--ignore-eos", "--max-tokens", COMPARED).text
        calls = [OpenCall(front, endless_request(seed=0)) for _ in range(4)]
        self.assertTrue(all(one.wait_for_token() for one in calls))  # two at each, before there are others
        streams = [HttpStream(front, chat([user(QUESTION)], max_tokens=ENDLESS, ignore_eos=True)) for _ in range(4)]
        self.assertTrue(all(one.wait_for_event() for one in streams))
        num_lost = [self.num_given(front, self.jobs[1], port) for port in ("grpc", "http")]
        self.assertTrue(all(0 < number < 4 for number in num_lost), num_lost)
        self.jobs[1].kill_rank(0)
        for i in range(4):
            self.ask(front, [user(f"{i}?")], max_tokens=1)
            self.assertEqual(len(ferry_job.gather(front.stub.Generate(ids_of(i), timeout=CALL_SECONDS)).token_ids), 1)
        ended = lambda: [sum(one.ended_at is not None for one in calls), sum(not one.is_open() for one in streams)]
        wait_for(lambda: ended() == num_lost, f"the end of {num_lost} streams", ended)
        for one in (one for one in calls if one.ended_at is not None):
            self.assertEqual(one.error.code(), grpc.StatusCode.UNAVAILABLE)
        for one in (one for one in streams if not one.is_open()):
            self.assertIn("was lost", one.error)
        for one in (one for one in calls if one.ended_at is None):
            self.assertEqual(one.token_ids[:COMPARED], expected[: len(one.token_ids)])
            num_before = len(one.token_ids)
            wait_for(lambda: len(one.token_ids) > num_before + 5, "more tokens of a stream at the other coordinator")
            one.cancel()
        for one in (one for one in streams if one.is_open()):
            length = min(len(one.text()), len(text))
            self.assertEqual(one.text()[:length], text[:length])
            one.close()
        wait_for(lambda: call(front, "/health")[1] != {}, "a health that tells of it", lambda: call(front, "/health"))
        self.assertEqual(call(front, "/health")[1]["status"], "DEGRADED")
        self.restart(1)
        wait_for(lambda: call(front, "/health")[1] == {}, "a health that has nothing to tell", lambda: call(front, "/health"))
        self.ask(front, [user("back?")], max_tokens=1)
        wait_for(lambda: self.reaches(front, 1), "calls that reach the new one")

    def num_given(self, front, job, port):
        """How many calls over that port a front has given to a coordinator."""
        address = re.escape(job.http_address)
        return metric(front, rf'ferry:front_requests_total\{{coordinator="{address}",port="{port}"\}}')

    def restart(self, index):
        """The coordinator again, at its addresses, which nobody takes meanwhile."""
        old = self.jobs[index]
        old.channel.close()
        keepers = [keep_port(address) for address in (old.http_address, old._address)]
        old.kill()
        self.jobs[index] = self.coordinator(old.http_address, old._address)
        for keeper in keepers:
            keeper.close()

    def reaches(self, front, index):
        """Whether both ports of a front bring calls to a coordinator."""
        for i in range(4):
            self.ask(front, [user(f"new {i}?")], max_tokens=1)
            ferry_job.gather(front.stub.Generate(ids_of(50 + i), timeout=CALL_SECONDS))
        ports = [self.num_given(front, self.jobs[index], port) for port in ("http", "grpc")]
        return num_answered(self.jobs[index]) > 1 and min(ports) > 0

    def test_a_front_that_is_told_to_leave_lets_streams_end(self):
        front = self.front()
        stream = HttpStream(front, chat([user(QUESTION)], max_tokens=100, ignore_eos=True))
        open_call = OpenCall(front, endless_request(max_tokens=100))
        stream.wait_for_event()
        open_call.wait_for_token()
        front.process.send_signal(signal.SIGTERM)
        self.assertTrue(stream.wait() and open_call.wait())
        self.assertIsNone(stream.error)
        self.assertTrue(stream.is_done)
        self.assertIsNone(open_call.error)
        self.assertEqual(front.process.wait(LIMIT_SECONDS), 0)

    def test_what_cannot_be_is_one_line(self):
        taken, other = (job.http_address for job in self.jobs)
        port = taken.rsplit(":", 1)[1]
        for arguments, said in (
            (["--coordinator", "nowhere"], "'nowhere'"),
            (["--coordinator", other, "--http", taken], f"cannot serve http on {taken}"),
            (["--coordinator", taken, "--http", taken], f"this front's own --http {taken}"),
            (["--coordinator", f"localhost:{port}", "--http", f"0.0.0.0:{port}"], f"this front's own --http 0.0.0.0:{port}"),
        ):
            done = subprocess.run([FERRY, "front", *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(said, done.stderr)


def ids_of(seed):
    return ferry_job.ids_request([10 + seed, 20 + seed], max_tokens=1, ignore_eos=True)


if __name__ == "__main__":
    ferry_job.main()
