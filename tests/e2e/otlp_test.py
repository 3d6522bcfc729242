"""Spans of `ferry serve --otlp-traces-endpoint` and of `ferry trace export --otlp`, as OTLP's JSON says them."""

import csv
import http.server
import json
import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import unittest.mock
import urllib.request

import ferry_job
from ferry_job import LIMIT_SECONDS

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER = 2  # span.kind of whoever serves a request


def check_export(body):
    """What otlp_messages_test.py has in this place reads the export as OpenTelemetry does."""


class Span:
    def __init__(self, fields):
        self.name, self.kind = fields["name"], fields["kind"]
        self.trace_id, self.span_id, self.parent_span_id = fields["traceId"], fields["spanId"], fields.get("parentSpanId", "")
        self.trace_state = fields.get("traceState", "")
        self.start, self.end = int(fields["startTimeUnixNano"]), int(fields["endTimeUnixNano"])
        self.links = [link["spanId"] for link in fields.get("links", [])]
        self.values = values_of(fields.get("attributes", []))


def values_of(attributes):
    """{key: value}; OTLP says whole numbers as text."""
    values = {}
    for attribute in attributes:
        ((kind, value),) = attribute["value"].items()
        values[attribute["key"]] = int(value) if kind == "intValue" else value
    return values


def read_export(body):
    """[(what is said of the process, its spans)]"""
    check_export(body)
    resources = json.loads(body)["resourceSpans"]
    spans = lambda resource: [Span(span) for scope in resource["scopeSpans"] for span in scope["spans"]]
    return [(values_of(resource["resource"]["attributes"]), spans(resource)) for resource in resources]


class Collector:
    """Takes spans over HTTP."""

    def __init__(self, says=b"{}"):
        exports = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                exports.put((self.path, self.headers["Content-Type"], body))
                self.send_response(200)
                self.send_header("Content-Length", str(len(says)))
                self.end_headers()
                self.wfile.write(says)

            def log_message(self, *arguments):
                pass

        self.exports = exports
        self._seen = set()  # ids of spans: one that is not acknowledged in time is sent again
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next_spans(self, count):
        """So many that have not come before, in one message or in several."""
        spans = []
        while len(spans) < count:
            path, kind, body = self.exports.get(timeout=LIMIT_SECONDS)
            assert (path, kind) == ("/v1/traces", "application/json"), (path, kind)
            ((process, exported),) = read_export(body)
            assert process["service.name"] == "my-ferry", process
            spans += [span for span in exported if span.span_id not in self._seen]
            self._seen.update(span.span_id for span in exported)
        assert len(spans) == count, [span.span_id for span in spans]
        return spans

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class OtlpTest(ferry_job.JobTest):
    def setUp(self):
        self.collector = Collector()
        self.addCleanup(self.collector.close)

    def serve(self, endpoint):
        environment = {**os.environ, "OTEL_SERVICE_NAME": "my-ferry"}
        with unittest.mock.patch.dict(os.environ, environment):
            job = ferry_job.Job("--otlp-traces-endpoint", endpoint, ranks=1, memory="256MiB")
        self.addCleanup(job.kill)
        self.addCleanup(job.channel.close)
        return job

    def complete(self, job, **headers):
        body = {"prompt": [443, 3808, 1132], "max_tokens": 5, "temperature": 0.7, "seed": 1, "ignore_eos": True, "n": 2}
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"http://{job.http_address}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            return json.loads(answer.read())

    def test_spans_go_on_with_their_callers_traces(self):
        job = self.serve(self.collector.url)
        self.complete(job, traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=b")
        spans = self.collector.next_spans(2)
        for span in spans:
            self.assertEqual((span.trace_id, span.parent_span_id, span.trace_state), (TRACE, PARENT, "a=b"))
            self.assertEqual((span.name, span.kind), ("llm_request", SERVER))
            values = span.values
            self.assertEqual(values["gen_ai.usage.prompt_tokens"], 3)
            self.assertEqual(values["gen_ai.usage.completion_tokens"], 5)
            self.assertEqual(values["gen_ai.request.temperature"], 0.7)
            self.assertEqual(values["gen_ai.request.n"], 2)
            seconds = (span.end - span.start) * 1e-9
            self.assertAlmostEqual(values["gen_ai.latency.e2e"], seconds, places=6)
            self.assertLess(values["gen_ai.latency.time_in_queue"], values["gen_ai.latency.time_to_first_token"])

        request = ferry_job.ids_request([443, 3808, 1132], max_tokens=5)
        request.request_id = "by-grpc"
        list(job.stub.Generate(request, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),), timeout=LIMIT_SECONDS))
        [span] = self.collector.next_spans(1)
        self.assertEqual((span.trace_id, span.parent_span_id), (TRACE, PARENT))
        self.assertEqual(span.values["gen_ai.request.id"], "by-grpc")

        self.complete(job, traceparent=f"00-{TRACE}-{PARENT}-00")  # not recorded by its caller
        self.complete(job)
        spans = self.collector.next_spans(2)
        self.assertEqual([span.parent_span_id for span in spans], ["", ""])
        self.assertNotIn(TRACE, [span.trace_id for span in spans])
        self.assertEqual(job.stop(), 0)

    def test_a_collector_that_is_away_costs_spans_and_nothing_else(self):
        job = self.serve("http://127.0.0.1:1")
        self.complete(job)
        job.terminate()
        self.assertEqual(job.wait(), 0)
        self.assertIn("spans are dropped: http://127.0.0.1:1/v1/traces:", job.log())

    def test_what_is_no_address_is_refused(self):
        command = [ferry_job.FERRY, "serve", "--model", "demo", "--otlp-traces-endpoint", "localhost:4317"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "ferry: error: --otlp-traces-endpoint: 'localhost:4317'; allowed: http[s]://HOST[:PORT][/PATH]\n")


class CaptureTest(ferry_job.JobTest):
    """`ferry trace export --otlp`: a capture's steps and requests as spans, in a file and at a collector."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="ferry-otlp-")
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name) / "capture"
        cls.file = pathlib.Path(scratch.name) / "spans.jsonl"
        # Without drafts each token is a step, so that the steps fill more than one message of 512 spans.
        command = ["bench", "--model", "demo", "--memory", "256MiB", "--speculate", "0", "-p", "37", "-b", "2", "-n", "600", "-r", "1"]
        cls.ferry(*command, "--trace", cls.folder)
        cls.output = cls.ferry("trace", "export", cls.folder, "--otlp", cls.file)
        cls.messages = cls.file.read_text().splitlines()
        cls.spans = [span for line in cls.messages for span in cls.spans_of(line)]

    @staticmethod
    def ferry(*arguments):
        command = [str(word) for word in (ferry_job.FERRY, *arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    @staticmethod
    def spans_of(line):
        return [span for _, spans in read_export(line) for span in spans]

    def rows(self, table):
        with open(self.folder / f"csv/{table}.csv", newline="") as lines:
            return list(csv.DictReader(lines))

    def named(self, *names):
        return [span for span in self.spans if span.name in names]

    def test_steps_are_those_of_the_step_table(self):
        table = {int(row["step"]): round(float(row["window_us"]) * 1000) for row in self.rows("step")}
        found = {}
        for span in self.spans:
            if "ferry.step" in span.values:
                found[span.values["ferry.step"]] = span.end - span.start
        self.assertEqual(found, table)
        self.assertGreater(len(self.messages), 1)
        self.assertIn(f"{len(self.messages)} messages", self.output)

    def test_requests_are_those_of_the_request_table(self):
        table = {row["request"]: row for row in self.rows("request")}
        requests = {span.values["gen_ai.request.id"]: span for span in self.named("llm_request")}
        self.assertEqual(set(requests), set(table))
        for number, span in requests.items():
            row, values = table[number], span.values
            self.assertEqual(span.kind, SERVER)
            self.assertEqual(values["gen_ai.usage.prompt_tokens"], int(row["prompt_tokens"]))
            self.assertEqual(values["gen_ai.usage.completion_tokens"], int(row["new_tokens"]))
            self.assertEqual(len(span.links), int(row["own_steps"]))
            if row["began"] == "inside" and row["total_us"]:
                self.assertAlmostEqual((span.end - span.start) / 1000, float(row["total_us"]), places=3)

    def test_links_and_parents_lead_to_spans(self):
        ids = {span.span_id: span for span in self.spans}
        self.assertEqual(len(ids), len(self.spans))
        self.assertEqual(len({span.trace_id for span in self.spans}), 1)
        self.assertEqual([span.name for span in self.spans if not span.parent_span_id], ["ferry"])
        for span in self.spans:
            self.assertTrue(not span.parent_span_id or span.parent_span_id in ids)
            for link in span.links:
                step = ids[link]
                self.assertIn("ferry.step", step.values)
                self.assertLess(step.start, span.end)
                self.assertGreater(step.end, span.start)
        for span in self.named("queue", "prefill", "decode"):
            self.assertEqual(ids[span.parent_span_id].name, "llm_request")

    def test_a_collector_gets_the_same(self):
        collector = Collector()
        self.addCleanup(collector.close)
        self.ferry("trace", "export", self.folder, "--otlp", collector.url)
        for line in self.messages:
            path, kind, body = collector.exports.get(timeout=LIMIT_SECONDS)
            self.assertEqual((path, kind, body.decode()), ("/v1/traces", "application/json", line))
        self.assertTrue(collector.exports.empty())

    def export_to(self, rejected):
        says = {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": "too old"}}
        collector = Collector(json.dumps(says).encode())
        self.addCleanup(collector.close)
        command = [ferry_job.FERRY, "trace", "export", str(self.folder), "--otlp", collector.url]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS), f"{collector.url}/v1/traces"

    def test_what_a_collector_rejects_is_told(self):
        done, url = self.export_to(2)
        self.assertEqual(done.returncode, 0)
        rejected = 2 * len(self.messages)
        self.assertEqual(done.stderr, f"ferry: warning: {rejected} of {len(self.spans)} spans rejected: {url} rejects 2 spans: too old\n")
        done, url = self.export_to(10**6)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, rf"^ferry: .*{len(self.spans)} of {len(self.spans)} spans rejected: {url} rejects .*too old\n$")

    def test_what_is_no_address_is_refused(self):
        for target in ("http://", "https://user@host", "grpc://localhost:4317"):
            command = [ferry_job.FERRY, "trace", "export", str(self.folder), "--otlp", target]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"ferry: error: --otlp: '{target}'; allowed: http[s]://HOST[:PORT][/PATH]\n")

    def test_a_collector_that_is_away_is_an_error(self):
        command = [ferry_job.FERRY, "trace", "export", str(self.folder), "--otlp", "http://127.0.0.1:1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"^ferry: .*spans are not taken: http://127.0.0.1:1/v1/traces: .*\n$")


if __name__ == "__main__":
    ferry_job.main()
