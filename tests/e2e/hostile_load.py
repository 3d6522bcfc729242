#!/usr/bin/env python3
"""Sends hostile requests to a job by the million, over HTTP and gRPC, and holds it to right answers in between.

    tests/e2e/hostile_load.py [--requests 1000000] [--minutes 600] [--ranks 1] [--clients 24] [--context 512]
                              [--memory 64MiB] [--seed 1] [--json FILE] [-- OPTIONS OF ferry serve]

hostile_requests.py makes what is sent; here is how: whole, in small pieces, chunked, pipelined, with the sending half closed, left
in the middle, reset, read slowly; beside it connections that say nothing. What must hold, else the exit code is 1:

- Every answer to what is HTTP has a status that blames the client, or 200, or 503; never 500. Its body is JSON; an error says so in
  one line. A stream that was read to its end has an end.
- Greedy and seeded questions, every 50th request, are answered as they were before the load, those of a text as by `ferry generate`.
- Counters of /metrics never fall. When the clients have gone, nothing runs or waits, and SIGTERM, sent while others ask, ends the
  job with code 0.
- Memory: the resident set of each rank every five seconds; the slope is a least-squares line over the last two thirds.

With FERRY_API_KEY in the environment the server wants that key, and the clients have it. Prints a line every ten seconds and a
summary.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import re
import socket
import struct
import sys
import time

import ferry_job
import grpc
import hostile_requests
import soak

ANSWER_SECONDS = 300  # for many ranks on few cores
BROKEN_SECONDS = 0.2  # that an answer to what is no HTTP is waited for; the server may wait for more of it
ALLOWED = (200, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 417, 421, 426, 431, 501, 503, 505)
MANNERS = {"whole": 76, "pieces": 3, "chunked": 5, "half closed": 3, "left": 6, "reset": 3, "slow reader": 1, "pipelined": 3}
SAMPLE_SECONDS = 5
SLOPE_FROM = 1 / 3  # of the run
COMPARED_EVERY = 50  # requests
SHOWN = 3000  # characters of what is wrong, at most
IDLE_CONNECTIONS = 300
GRPC_SHARE = 0.1
# gRPC itself answers UNIMPLEMENTED to bytes that are no message.
GRPC_MAY_END = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED")


KEY = os.environ.get("FERRY_API_KEY")
# What glibc's malloc is told, so that memory which is free does not look like a leak.
FREE_MEMORY_GOES = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "1048576", "MALLOC_MMAP_THRESHOLD_": "1048576"}


class Wrong(Exception):
    """An answer that should not be."""


class Answer:
    def __init__(self, status, headers, body, is_whole):
        self.status, self.headers, self.body, self.is_whole = status, headers, body, is_whole


async def read_body(reader, headers, slowly):
    """The body, and whether it had an end."""
    size = 100 if slowly else 1 << 16
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while length := int(await reader.readline() or b"-1", 16):
            if length < 0:
                return body, False
            body += await reader.readexactly(length)
            await reader.readexactly(2)
            if slowly:
                await asyncio.sleep(0.02)
        await reader.readline()
        return body, True
    left = int(headers.get("content-length", 0))
    while left > 0:
        piece = await reader.read(min(left, size))
        if not piece:
            return body, False
        body, left = body + piece, left - len(piece)
        if slowly and left < 2000:
            await asyncio.sleep(0.002)
    return body, True


async def read_answer(reader, slowly=False):
    """None if the connection ended first."""
    line = await reader.readline()
    while line.startswith(b"HTTP/1.1 100"):
        await reader.readline()
        line = await reader.readline()
    if not line:
        return None
    if not re.fullmatch(rb"HTTP/1\.[01] [0-9]{3} [^\r\n]*\r\n", line):
        raise Wrong(f"status line {line!r}")
    headers = {}
    while (header := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = header.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    body, is_whole = await read_body(reader, headers, slowly)
    return Answer(int(line.split()[1]), headers, body, is_whole)


def check_stream(body):
    events = body.decode().split("\n\n")
    if events[-2:] != ["data: [DONE]", ""]:
        raise Wrong(f"a stream without an end: {body[-300:]!r}")
    for event in events[:-2]:
        if event.startswith("data: "):
            json.loads(event[6:])
        elif not event.startswith(":"):
            raise Wrong(f"event {event[:200]!r}")


def check_answer(answer, generates):
    if answer.status not in ALLOWED:
        raise Wrong(f"status {answer.status}: {answer.body[:300]!r}")
    if not answer.is_whole:
        raise Wrong(f"the answer breaks off: {answer.body[-300:]!r}")
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return check_stream(answer.body)
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return None
    told = json.loads(answer.body)
    if answer.status == 200:
        return check_choices(told) if generates else None
    error = told["error"]
    message = error["message"] if isinstance(error, dict) else error
    if not message.strip() or "\n" in message or len(message) > 2000:
        raise Wrong(f"error message {message!r}")
    return None


def check_choices(told):
    usage = told["usage"]
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
        raise Wrong(f"usage {usage}")
    if [choice["index"] for choice in told["choices"]] != list(range(len(told["choices"]))):
        raise Wrong("indices of choices")
    for choice in told["choices"]:
        if choice["finish_reason"] not in ("stop", "length", "tool_calls"):
            raise Wrong(f"finish_reason {choice['finish_reason']}")


def chunked(body, choose):
    pieces, begin = [], 0
    while begin < len(body):
        piece = body[begin : begin + choose.randrange(1, max(200, len(body) // 20))]
        pieces.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        begin += len(piece)
    return b"".join(pieces) + b"0\r\n\r\n"


class Client:
    """Asks over one connection after another until the load is over."""

    def __init__(self, load, number):
        self._load = load
        self._choose = random.Random(f"{load.options.seed} {number}")
        self._requests = hostile_requests.HostileRequests(self._choose, load.job.http_address, KEY)
        self._reader = self._writer = None

    async def run(self):
        while self._load.goes_on():
            if self._load.comparison_is_due():
                await self._load.compare(self._choose)
            await self._one()
        self._leave()

    async def _one(self):
        choose, load = self._choose, self._load
        hostile = self._requests.next()
        manner = choose.choices(list(MANNERS), list(MANNERS.values()))[0]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._send(hostile, manner)
        except Wrong as wrong:
            load.report_wrong(f"{manner}: {wrong}; asked {hostile.wire()[:1500]!r}")
            self._leave()
        except (ValueError, KeyError, TypeError) as error:
            load.report_wrong(f"{manner}: {error!r}; asked {hostile.wire()[:1500]!r}")
            self._leave()
        except TimeoutError:
            load.report_wrong(f"{manner}: no answer within {ANSWER_SECONDS} s; asked {hostile.wire()[:1500]!r}")
            self._leave()
        except (ConnectionError, asyncio.IncompleteReadError, OSError) as error:
            load.add("connections that broke")
            if hostile.is_http and manner in ("whole", "chunked", "slow reader", "half closed") and not load.server_may_close:
                load.report_wrong(f"{manner}: {error!r}; asked {hostile.wire()[:1500]!r}")
            self._leave()

    async def _connect(self):
        host, port = self._load.job.http_address.rsplit(":", 1)
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=1 << 20)

    def _leave(self):
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _send(self, hostile, manner):
        load = self._load
        if self._writer is None or self._writer.is_closing() or self._reader.at_eof():
            self._leave()
            await self._connect()
        load.add("requests")
        if not hostile.is_http:
            return await self._send_broken(hostile)
        if manner in ("left", "reset"):
            return await self._send_and_go(hostile, manner == "reset")
        if manner == "chunked" and hostile.body:
            head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", hostile.head)
            self._writer.write(head + chunked(hostile.body, self._choose))
        elif manner == "pieces":
            await self._write_in_pieces(hostile.wire())
        else:
            self._writer.write(hostile.wire() * (3 if manner == "pipelined" else 1))
        if manner == "half closed":
            self._writer.write_eof()
        for _ in range(3 if manner == "pipelined" else 1):
            answer = await read_answer(self._reader, slowly=manner == "slow reader")
            if answer is None:
                raise ConnectionError("closed without an answer")
            load.add(f"status {answer.status}")
            check_answer(answer, hostile.generates)
            if answer.headers.get("connection") == "close":
                return self._leave()
        if manner in ("half closed", "pipelined"):
            self._leave()

    async def _write_in_pieces(self, wire):
        size = max(1, len(wire) // 8)
        for begin in range(0, len(wire), size):
            self._writer.write(wire[begin : begin + size])
            await self._writer.drain()
            await asyncio.sleep(0.005)

    async def _send_and_go(self, hostile, resets):
        wire = hostile.wire()
        self._writer.write(wire if self._choose.random() < 0.7 else wire[: self._choose.randrange(len(wire))])
        if self._choose.random() < 0.5:
            try:
                async with asyncio.timeout(self._choose.choice((0.001, 0.05))):
                    await self._reader.read(200)
            except TimeoutError:
                pass
        if resets:
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort() if resets else self._leave()
        self._reader = self._writer = None

    async def _send_broken(self, hostile):
        self._writer.write(hostile.wire())
        try:
            async with asyncio.timeout(BROKEN_SECONDS):
                answer = await read_answer(self._reader)
            if answer is not None:
                self._load.add(f"status {answer.status}")
                if answer.status not in ALLOWED:
                    raise Wrong(f"status {answer.status}: {answer.body[:300]!r}")
        except TimeoutError:
            self._load.add("broken requests without an answer")  # more of them is waited for
        except (ConnectionError, asyncio.IncompleteReadError):
            self._load.add("broken requests that were cut")
        self._leave()


def fill_at_random(message, choose, depth=3):
    """Sets some fields of a protobuf message to values of their types, extremes among them."""
    for field in message.DESCRIPTOR.fields:
        if choose.random() < 0.75:
            continue
        for _ in range(choose.choice((1, 2, 20)) if field.label == field.LABEL_REPEATED else 1):
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                inner = getattr(message, field.name)
                if field.message_type.GetOptions().map_entry:
                    key, value = field.message_type.fields
                    inner[value_of_type(key, choose)] = value_of_type(value, choose)
                elif depth > 0:
                    fill_at_random(inner.add() if field.label == field.LABEL_REPEATED else inner, choose, depth - 1)
                continue
            value = value_of_type(field, choose)
            if field.label == field.LABEL_REPEATED:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def value_of_type(field, choose):
    if field.cpp_type == field.CPPTYPE_STRING:
        text = choose.choice(hostile_requests.WORDS + hostile_requests.MARKERS)
        return text if field.type == field.TYPE_STRING else text.encode()
    if field.cpp_type == field.CPPTYPE_BOOL:
        return choose.random() < 0.5
    if field.cpp_type == field.CPPTYPE_ENUM:
        return choose.choice((0, 1, 2, 99))
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return choose.choice((0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("nan"), float("inf")))
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return choose.choice((0, 1, 2, 2**32 - 1))
    return choose.choice((0, 1, -1, 2, 20, 6143, 6144, 2**31 - 1, -(2**31)))


class GrpcClient:
    """Sends GenerateRequests: right ones, some of random fields, and bytes that were one once."""

    def __init__(self, load):
        self._load = load
        self._choose = random.Random(f"{load.options.seed} grpc")
        self._seeds = [ferry_job.text_request("The kernel", max_tokens=2)]
        self._seeds.append(ferry_job.chat_request("What does river mean?", max_tokens=2))
        self._seeds.append(ferry_job.chat_request("a", max_tokens=3, temperature=1, seed=5, top_k=3, stop=["e"]))

    def _next(self):
        choose = self._choose
        request = ferry_job.pb.GenerateRequest()
        request.CopyFrom(choose.choice(self._seeds))
        if choose.random() < 0.6:
            fill_at_random(request, choose)
        body = bytearray(request.SerializeToString())
        if choose.random() < 0.6:
            return bytes(body)
        for _ in range(choose.randrange(1, 4)):
            at = choose.randrange(len(body) + 1)
            kind = choose.randrange(4)
            if kind == 0 and body:
                body[at % len(body)] = choose.randrange(256)
            elif kind == 1:
                body[at:at] = choose.randbytes(choose.randrange(1, 9))
            elif kind == 2:
                del body[at : at + choose.randrange(1, 9)]
            else:
                body += body[at:]
        return bytes(body)

    async def run(self, address):
        async with grpc.aio.insecure_channel(address) as channel:
            method = channel.unary_stream("/ferry.v1.Inference/Generate", request_serializer=None, response_deserializer=None)
            while self._load.goes_on():
                if self._load.count("gRPC calls") > GRPC_SHARE * self._load.count("requests"):
                    await asyncio.sleep(0.01)
                    continue
                await asyncio.gather(*(self._one(method) for _ in range(8)))

    async def _one(self, method):
        load, choose = self._load, self._choose
        load.add("gRPC calls")
        body = self._next()
        metadata = (("x-api-key", KEY),) if KEY else ()
        call = method(body, timeout=choose.choice((60, 60, 0.005)), metadata=metadata)
        code = "OK"
        try:
            async for _ in call:
                if choose.random() < 0.05:
                    call.cancel()
        except grpc.RpcError as error:
            code = error.code().name
        except asyncio.CancelledError:
            if not call.cancelled():
                raise
            code = "CANCELLED"
        load.add(f"gRPC {code}")
        if code not in GRPC_MAY_END:
            load.report_wrong(f"gRPC ended with {code}: asked {body!r}")


ASKED_FOR_WEATHER = {"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 30, "temperature": 0}
QUESTIONS = [
    ("/v1/completions", {"prompt": "The kernel", "max_tokens": 12, "temperature": 0}),
    ("/v1/completions", {"prompt": "A river is", "max_tokens": 8, "temperature": 1, "seed": 5, "logprobs": 2}),
    ("/v1/completions", {"prompt": [443, 3808, 1132] * 40, "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": "Say", "max_tokens": 6, "temperature": 0, "guided_regex": "[a-z]{2,5}-[0-9]{3}"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What does river mean?"}], "max_tokens": 24, "temperature": 0}),
    ("/v1/chat/completions", {**ASKED_FOR_WEATHER, "tools": [hostile_requests.TOOL], "tool_choice": "required"}),
]


def told_by(body):
    """What may not change from one answer to the next."""
    answer = json.loads(body)
    for choice in answer["choices"]:
        for call in (choice.get("message") or {}).get("tool_calls", ()):
            call["id"] = ""
    answer["usage"].pop("prompt_tokens_details")  # what is cached may change
    return answer["choices"], answer["usage"]


class Load:
    def __init__(self, job, options):
        self.job, self.options = job, options
        self.server_may_close = False
        self.wrong = []
        self.memory = collections.defaultdict(list)  # of each rank: [(seconds, MB)]
        self._counts = collections.Counter()
        self._expected = []
        self._next_comparison = 0
        self._counters = {}
        self._ends_at = time.monotonic() + options.minutes * 60
        self._start = time.monotonic()

    def seconds(self):
        """Since the beginning."""
        return time.monotonic() - self._start

    def goes_on(self):
        return self._counts["requests"] + self._counts["gRPC calls"] < self.options.requests and time.monotonic() < self._ends_at

    def add(self, what):
        self._counts[what] += 1

    def count(self, what):
        return self._counts[what]

    def report_wrong(self, text):
        text = text if len(text) < SHOWN else text[:SHOWN] + "…"
        self.wrong.append(text)
        print(f"hostile_load: WRONG: {text}", flush=True)

    async def ask(self, path, fields=None, seconds=ANSWER_SECONDS):
        host, port = self.job.http_address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
        try:
            body = b"" if fields is None else json.dumps(fields).encode()
            head = f"{'GET' if fields is None else 'POST'} {path} HTTP/1.1\r\nHost: {self.job.http_address}\r\n"
            head += f"Authorization: Bearer {KEY}\r\n" if KEY else ""
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            async with asyncio.timeout(seconds):
                return await read_answer(reader)
        finally:
            writer.close()

    async def learn(self):
        """What the questions' answers are while nobody else asks."""
        for path, fields in QUESTIONS:
            answer = await self.ask(path, fields)
            if answer.status == 501:  # structured output is not built
                continue
            if answer.status != 200:
                raise RuntimeError(f"{fields}: {answer.body!r}")
            self._expected.append((path, fields, told_by(answer.body)))
        alone = ferry_job.generate_alone("--prompt", "The kernel", "--max-tokens", 12)
        if self._expected[0][2][0][0]["text"] != alone.text:
            self.report_wrong(f"alone: {alone.text!r}, served {self._expected[0][2]}")

    def comparison_is_due(self):
        is_due = self._counts["requests"] >= self._next_comparison
        if is_due:
            self._next_comparison += COMPARED_EVERY
        return is_due

    async def compare(self, choose):
        path, fields, expected = choose.choice(self._expected)
        try:
            answer = await self.ask(path, fields)
            if answer is None or answer.status == 503:
                self.add("comparisons without a place")
                return
            self.add("comparisons")
            if answer.status != 200 or told_by(answer.body) != expected:
                self.report_wrong(f"{fields}: {answer.body[:2000]!r} instead of {expected}")
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            self.report_wrong(f"{fields}: {error!r}")

    async def watch(self):
        """Memory and counters, until cancelled."""
        ranks = self.job.ranks()
        num_samples = 0
        while True:
            now = self.seconds()
            for rank, process_id in ranks.items():
                mb = soak.resident_mb(process_id)
                if mb is None:
                    self.report_wrong(f"rank {rank} is gone")
                    self._ends_at = 0
                    return
                self.memory[rank].append((now, mb))
            await self._read_metrics()
            if num_samples % 2 == 0:
                self.print_state(now)
            num_samples += 1
            await asyncio.sleep(SAMPLE_SECONDS)

    def print_state(self, now):
        num = self._counts["requests"] + self._counts["gRPC calls"]
        memory = " ".join(f"{series[-1][1]:.0f}" for _, series in sorted(self.memory.items()))
        state = f"{now:.0f} s, {num} requests ({num / max(now, 1):.0f}/s), {self._counts['comparisons']} compared"
        print(f"hostile_load: {state}, {memory} MB, {len(self.wrong)} wrong", flush=True)

    async def _read_metrics(self):
        try:
            answer = await self.ask("/metrics")
        except (TimeoutError, OSError) as error:
            return self.report_wrong(f"/metrics: {error!r}")
        for name, value in re.findall(r"^([a-z:_]+(?:_total|_bucket|_count|_sum)(?:\{[^}]*\})?) (\S+)$", answer.body.decode(), re.M):
            if float(value) < self._counters.get(name, 0):
                self.report_wrong(f"{name} fell from {self._counters[name]} to {value}")
            self._counters[name] = float(value)
        return None

    async def values(self, name):
        """Of a metric, for each of its labels."""
        body = (await self.ask("/metrics")).body.decode()
        return [float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", body, re.M)]

    async def check_quiet(self):
        """Nothing runs or waits any more, and every request has ended once."""
        for _ in range(600):
            load = json.loads((await self.ask("/load")).body)["server_load"]
            gauges = await self.values("vllm:num_requests_(?:running|waiting)")
            if load == 0 and gauges and not any(gauges):
                break
            await asyncio.sleep(0.1)
        else:
            self.report_wrong(f"a minute after the last client /load is {load}, and {gauges} run and wait")
        ends, timed = await self.values("vllm:request_success_total"), await self.values("vllm:e2e_request_latency_seconds_count")
        if sum(ends) != sum(timed):
            self.report_wrong(f"{sum(ends)} requests have ended, and the time of {sum(timed)} was counted")

    async def stay_idle(self):
        """Holds connections that say nothing, or half a request."""
        host, port = self.job.http_address.rsplit(":", 1)
        held = []
        try:
            while True:
                held = [(r, w) for r, w in held if not r.at_eof()]
                while len(held) < IDLE_CONNECTIONS:
                    reader, writer = await asyncio.open_connection(host, int(port))
                    if len(held) % 2:
                        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
                    held.append((reader, writer))
                await asyncio.sleep(1)
        finally:
            for _, writer in held:
                writer.close()

    def slopes(self):
        """MB an hour of each rank."""
        last = max((series[-1][0] for series in self.memory.values()), default=0)
        late = {rank: [s for s in series if s[0] > SLOPE_FROM * last] for rank, series in self.memory.items()}
        return {rank: round(soak.slope_per_hour(series), 1) for rank, series in late.items() if len(series) > 5}

    def counts(self):
        return dict(sorted(self._counts.items()))


async def end_under_load(load):
    """SIGTERM while clients ask; what they get then is theirs."""
    load.server_may_close = True
    questions = [asyncio.ensure_future(load.ask(*QUESTIONS[0])) for _ in range(8)]
    await asyncio.sleep(0.01)
    load.job.terminate()
    await asyncio.gather(*questions, return_exceptions=True)
    code = await asyncio.to_thread(load.job.wait, 60)
    if code != 0:
        load.report_wrong(f"SIGTERM under load: code {code}")


async def run(job, options):
    load = Load(job, options)
    await load.learn()
    watching = [asyncio.ensure_future(load.watch()), asyncio.ensure_future(load.stay_idle())]
    clients = [Client(load, number).run() for number in range(options.clients)]
    await asyncio.gather(*clients, GrpcClient(load).run(job._address))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    if not job.ranks():
        return load
    load.print_state(load.seconds())
    await load.check_quiet()
    await load.compare(random.Random(0))
    await end_under_load(load)
    return load


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000000)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--context", type=int, default=512, help="tokens, so that who asks for no end comes to one")
    parser.add_argument("--memory", default="64MiB", help="so little that it is full soon, and memory that grows later is a leak")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="file for the result")
    parser.add_argument("serve", nargs="*", help="options of ferry serve, behind --")
    options = parser.parse_args()
    for name, value in FREE_MEMORY_GOES.items():
        os.environ.setdefault(name, value)
    job = ferry_job.Job("--max-context", str(options.context), *options.serve, ranks=options.ranks, memory=options.memory)
    try:
        load = asyncio.run(run(job, options))
    finally:
        job.channel.close()
        job.kill()
    result = {"counts": load.counts(), "wrong": load.wrong, "mb_per_hour": load.slopes(), "memory": load.memory}
    print(f"hostile_load: {result['counts']}; MB an hour: {result['mb_per_hour']}; wrong: {len(load.wrong)}")
    if load.wrong:
        print(job.log()[-5000:])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
