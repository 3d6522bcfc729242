"""Starts Ferry jobs for the end-to-end tests and talks to them over gRPC.

Environment of the tests: FERRY_BINARY (default build/release/launch/ferry), FERRY_E2E_REPEATS (default 1, how often the tests
that kill ranks are repeated).
"""

import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
REPEATS = int(os.environ.get("FERRY_E2E_REPEATS", "1"))
DEMO = ROOT / "launch/demo"
# How long any test waits for anything. It is so long that only a fault outlasts it, also on a busy machine.
LIMIT_SECONDS = 240.0
START_SECONDS = LIMIT_SECONDS
CALL_SECONDS = LIMIT_SECONDS
ON_HOST = os.environ.get("FERRY_ON_HOST") == "1"  # run what needs real time or a quiet core, and nothing else
SKIPPED = 77  # the exit code that ctest takes for "skipped"


def _use_test_python():
    """Runs this script again with the Python of .venv if this one has no grpc; without either the tests are skipped."""
    try:
        import grpc  # noqa: F401
        import grpc_tools  # noqa: F401
    except ImportError:
        python = ROOT / ".venv/bin/python"
        if python.exists() and "FERRY_E2E_IN_VENV" not in os.environ:
            os.execve(python, [str(python), *sys.argv], {**os.environ, "FERRY_E2E_IN_VENV": "1"})
        print("skipped: grpcio is missing; launch/setup.sh installs it into .venv if PyPI can be reached")
        sys.exit(SKIPPED)


_use_test_python()

import grpc  # noqa: E402


def _generate_stubs():
    """The Python side of proto/, generated anew by each test program."""
    from grpc_tools import protoc

    folder = tempfile.TemporaryDirectory(prefix="ferry-stubs-")
    well_known = pathlib.Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={folder.name}", f"--grpc_python_out={folder.name}"]
    for proto in ("ferry/v1/inference", "ferry/v1/profile", "ferry/v1/cluster", "ferry/v1/experts", "smg/common", "vllm/engine", "vllm/inference"):
        if protoc.main([*arguments, f"{proto}.proto"]) != 0:
            raise RuntimeError(f"proto/{proto}.proto does not compile")
    sys.path.insert(0, folder.name)
    return folder


_stub_folder = _generate_stubs()

from ferry.v1 import inference_pb2 as pb  # noqa: E402
from ferry.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402

Completion = collections.namedtuple("Completion", "token_ids text finish_reason prompt_tokens completion_tokens")
_FINISH_REASONS = {
    pb.Completion.FINISH_REASON_STOP: "stop",
    pb.Completion.FINISH_REASON_LENGTH: "length",
    pb.Completion.FINISH_REASON_ABORTED: "abort",
    pb.Completion.FINISH_REASON_DEADLINE: "deadline",
}


def golden():
    return json.loads((DEMO / "golden.json").read_text())


def on_host(item):
    """Marks a case or a class of cases that needs real time or a quiet core. Such cases run in `launch/test.sh --host` alone."""
    if isinstance(item, type):
        for name in unittest.defaultTestLoader.getTestCaseNames(item):
            setattr(item, name, on_host(getattr(item, name)))
        return item
    item.is_on_host = True
    return item


def wait_for(condition, what, state=None):
    """Returns what `condition()` returns as soon as that is true. After LIMIT_SECONDS it fails the test, with what it waited for and
    `state()`, the state that it saw."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= end:
            seen = f"; the state is: {state()}" if state else ""
            raise AssertionError(f"waited {LIMIT_SECONDS:.0f} s for: {what}{seen}")
        time.sleep(0.02)


def wait_until(condition, seconds):
    """True as soon as `condition()` is; False if it is not within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def generate_alone(*arguments):
    """The answer of `ferry generate --json` in one process, the baseline of everything."""
    command = [FERRY, "generate", "--model", "demo", "--memory", "256MiB", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    return Completion(*(answer[field] for field in Completion._fields))


def ranks_of(job_id):
    """{rank: process id} of the living ferry processes with FERRY_E2E_JOB=`job_id` in their environment."""
    result = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.readlink(entry / "exe") != os.path.realpath(FERRY):
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # not ours to read, or gone meanwhile
        if f"FERRY_E2E_JOB={job_id}".encode() in environment:
            ranks = [int(e.split(b"=")[1]) for e in environment if e.startswith(b"OMPI_COMM_WORLD_RANK=")]
            result[ranks[0] if ranks else 0] = int(entry.name)
    return result


class Job:
    """`ferry serve --model demo` with `ranks` ranks (1: no mpirun), up when the constructor returns. `launch` is for mpirun."""

    def __init__(self, *arguments, ranks=3, transport="auto", model="demo", launch=(), memory="512MiB", http="127.0.0.1:0", grpc_at="127.0.0.1:0"):
        self._id = uuid.uuid4().hex  # in the environment of every rank, so that they can be found
        launcher = [] if ranks == 1 else [str(ROOT / "launch/mpirun.sh"), "-np", str(ranks), *launch]
        command = [*launcher, FERRY, "serve", "--model", str(model), "--grpc", grpc_at, "--http", http]
        command += ["--transport", transport]
        self.process = subprocess.Popen(
            [*command, "--memory", memory, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "FERRY_E2E_JOB": self._id},
        )
        self.output = []
        self.http_address = None
        self._address = None
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        if not self._is_up.wait(START_SECONDS) or self._address is None:
            self.kill()
            raise RuntimeError(f"ferry serve did not come up, it said:\n{self.log()}")
        self.channel = grpc.insecure_channel(self._address, options=[("grpc.max_receive_message_length", 64 << 20)])
        self.stub = pb_grpc.InferenceStub(self.channel)

    def _read_output(self):
        for line in self.process.stdout:
            self.output.append(line)
            found = re.search(r"ferry: serving http on (\S+)", line)
            if found:
                self.http_address = found[1]
            found = re.search(r"ferry: serving grpc on (\S+)", line)
            if found:
                self._address = found[1]
                self._is_up.set()
        self._is_up.set()

    def log(self):
        return "".join(self.output)

    def ranks(self):
        """{rank: process id} of the ferry processes that are alive."""
        return ranks_of(self._id)

    def kill_rank(self, rank):
        os.kill(self.ranks()[rank], signal.SIGKILL)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds):
        """The exit code of the coordinator; None if it is still there."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        """Ends the job as its operator would; returns the exit code."""
        self.channel.close()
        self.terminate()
        code = self.wait(60)
        self.kill()
        return code

    def kill(self):
        for process_id in self.ranks().values():
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.wait(20) is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        self.process.stdout.close()

    def generate(self, request, seconds=CALL_SECONDS):
        """Sends `request` and gathers its whole answer."""
        return gather(self.stub.Generate(request, timeout=seconds))

    def health(self, service="ferry.v1.Inference"):
        """SERVING, NOT_SERVING, or GONE when nobody answers."""
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        try:
            request = health_pb2.HealthCheckRequest(service=service)
            response = health_pb2_grpc.HealthStub(self.channel).Check(request, timeout=5)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED):
                return "GONE"
            raise
        return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


def gather(responses):
    """All messages of a stream as one Completion; raises the stream's error."""
    token_ids, text, last = [], "", None
    for response in responses:
        if last is not None:
            raise AssertionError("a message after the last one")
        token_ids += response.token_ids
        text += response.text
        if response.HasField("completion"):
            last = response.completion
    if last is None:
        raise AssertionError("the stream ended with OK but without a completion")
    return Completion(token_ids, text, _FINISH_REASONS[last.finish_reason], last.prompt_tokens, last.completion_tokens)


def chat_request(content, **sampling):
    messages = [pb.ChatMessage(role="user", content=content)]
    return pb.GenerateRequest(chat=pb.Chat(messages=messages), sampling=pb.Sampling(**sampling))


def text_request(text, **sampling):
    return pb.GenerateRequest(text=text, sampling=pb.Sampling(**sampling))


def ids_request(ids, **sampling):
    return pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids), sampling=pb.Sampling(**sampling))


def pace(*workers):
    """Arguments with which workers sleep for most of a step, some milliseconds of the demo model: for streams that are to outlast
    what a test does to them. Faster ones keep a client on a busy machine from doing anything but reading them. They sleep as long
    each time: a worker that takes a number of times as long makes seconds of what a busy machine holds it up, and is suspected."""
    return ("--fault", ",".join(f"slow:{rank}+0.002s" for rank in workers))


def endless_request(seed=1, max_tokens=8000, request_id=""):
    """A request that runs for many seconds: different ids for every seed, and no stop id ends it."""
    request = ids_request([10 + seed, 20 + seed, 30 + seed], max_tokens=max_tokens, ignore_eos=True)
    request.request_id = request_id
    return request


class OpenCall:
    """A Generate call read by a thread of its own."""

    def __init__(self, job, request, seconds=CALL_SECONDS):
        self.token_ids = []
        self.error = None  # grpc.RpcError of a stream that did not end with OK
        self.last = None  # the Completion message
        self.ended_at = None  # time.monotonic()
        self._has_token = threading.Event()
        self._call = job.stub.Generate(request, timeout=seconds)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            for response in self._call:
                self.token_ids += response.token_ids
                if response.HasField("completion"):
                    self.last = response.completion
                if self.token_ids:
                    self._has_token.set()
        except grpc.RpcError as error:
            self.error = error
        self.ended_at = time.monotonic()
        self._has_token.set()

    def wait_for_token(self, seconds=CALL_SECONDS):
        """True when a token has arrived and the stream is still open."""
        return self._has_token.wait(seconds) and self.ended_at is None

    def wait(self, seconds=CALL_SECONDS):
        """True when the stream has ended."""
        self._thread.join(seconds)
        return self.ended_at is not None

    def cancel(self):
        self._call.cancel()


class JobTest(unittest.TestCase):
    """A test with a job of its own or one that its class shares; a failure shows the job's output."""

    def run(self, result=None):
        if getattr(getattr(self, self._testMethodName), "is_on_host", False) == ON_HOST:
            return super().run(result)
        return result

    def start(self, *arguments, **options):
        job = Job(*arguments, **options)

        def finish():
            job.channel.close()
            job.kill()
            if not self._outcome.success:
                print(f"--- output of the job:\n{job.log()}", file=sys.stderr)

        self.addCleanup(finish)
        return job

    def assert_status(self, code, call):
        """Runs `call`, which must end with `code` and a message of one line, and returns that message."""
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        details = caught.exception.details()
        self.assertEqual(caught.exception.code(), code, details)
        self.assertTrue(details.strip())
        self.assertNotIn("\n", details)
        return details

    def assert_no_ranks_left(self, job, seconds):
        self.assertTrue(wait_until(lambda: not job.ranks(), seconds), f"still running: {job.ranks()}")


def main():
    if not pathlib.Path(FERRY).exists():
        sys.exit(f"{FERRY} does not exist: build it first, or name it in FERRY_BINARY")
    unittest.main(verbosity=2)
