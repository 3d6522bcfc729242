"""`ferry top` on a terminal of its own, before a server with two workers, a key and requests that run; who may load the page at /."""

import codecs
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time
import urllib.error
import urllib.request

import ferry_job
import grpc
from ferry_job import CALL_SECONDS, FERRY, LIMIT_SECONDS, endless_request, pace

KEY = "key-of-a-watcher"
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"


class Terminal:
    """`ferry top` on a pseudo-terminal."""

    def __init__(self, *arguments, columns=80, rows=24, **environment):
        self._master, worker = pty.openpty()
        self.resize(columns, rows)
        self.settings = termios.tcgetattr(worker)
        self._worker = worker  # stays open, so that what is left of its settings can be read
        self.process = subprocess.Popen([FERRY, "top", *arguments], stdin=worker, stdout=worker, stderr=worker, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", "FERRY_API_KEY": KEY, **environment})
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern, seconds=CALL_SECONDS):
        """Reads on until what came since the last call has `pattern`; returns that text."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text):
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {pattern!r} within {seconds} s in {self.text!r}")
            self.text += self._decoder.decode(os.read(self._master, 1 << 16))
        text, self.text = self.text, ""
        return text

    def is_stopped(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        return status.rsplit(") ", 1)[1].startswith("T")

    def press(self, key):
        os.write(self._master, key.encode())

    def settings_now(self):
        return termios.tcgetattr(self._worker)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._worker)


class WatchedJobTest(ferry_job.JobTest):
    """A server with two workers and a key, which all tests of a class watch."""

    @classmethod
    def setUpClass(cls):
        cls.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        cls.addClassCleanup(cls.keys.close)
        cls.keys.write(KEY + "\n")
        cls.keys.flush()
        cls.job = ferry_job.Job("--api-key-file", cls.keys.name, "--max-seqs", "2", *pace(1, 2), ranks=3)
        cls.addClassCleanup(cls.job.kill)
        cls.addClassCleanup(cls.job.channel.close)

    @contextlib.contextmanager
    def load(self, count=3):
        """Requests that run while the body does, each again when it has ended; two have room."""
        metadata, calls, has_ended = (("authorization", f"Bearer {KEY}"),), {}, threading.Event()
        has_begun = threading.Event()

        def keep_asking(seed):
            while not has_ended.is_set():
                calls[seed] = self.job.stub.Generate(endless_request(seed), metadata=metadata, timeout=CALL_SECONDS)
                with contextlib.suppress(grpc.RpcError):  # cancelled below
                    for _ in calls[seed]:
                        has_begun.set()

        askers = [threading.Thread(target=keep_asking, args=(seed,)) for seed in range(1, count + 1)]
        for asker in askers:
            asker.start()
        try:
            self.assertTrue(has_begun.wait(CALL_SECONDS))
            yield
        finally:
            has_ended.set()
            for asker in askers:
                while asker.is_alive():
                    for call in list(calls.values()):
                        call.cancel()
                    asker.join(0.05)


class TopTest(WatchedJobTest):
    def top(self, *arguments, **options):
        terminal = Terminal(*(arguments or (self.job.http_address,)), **options)
        self.addCleanup(terminal.close)
        return terminal

    def once(self, *arguments, address=None, **environment):
        command = [FERRY, "top", address or self.job.http_address, "--once", "--interval", "0.3", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS,
                              env={**os.environ, "FERRY_API_KEY": KEY, "LC_ALL": "C.UTF-8", **environment})

    def test_once(self):
        patterns = (r"demo, bf16, 3 ranks over sockets", r"running 2 of 2", r"waiting 1 of", r"made [1-9]", r"decode [1-9]", r"balancedness 0\.\d",
                    r"touched [1-9]", r"(?m)^ +2 +[1-9].* MB/s|kB/s", r"decoding")
        shown = []

        def shows_all():
            """All that there is to show once steps have been seen."""
            shown.append(self.once())
            return all(re.search(pattern, shown[-1].stdout) for pattern in patterns)

        with self.load():
            ferry_job.wait_for(shows_all, patterns, lambda: shown[-1])
        done = shown[-1]
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for pattern in patterns:
            self.assertRegex(done.stdout, pattern)
        self.assertNotIn("\x1b", done.stdout)
        self.assertNotIn("archive", done.stdout)  # no steps are kept

    def test_json_is_what_the_route_says(self):
        done = self.once("--json")
        self.assertEqual((done.returncode, done.stderr, done.stdout.count("\n")), (0, "", 1))
        status = json.loads(done.stdout)
        self.assertEqual([rank["rank"] for rank in status["ranks"]], [1, 2])
        request = urllib.request.Request(f"http://{self.job.http_address}/status.json", headers={"x-api-key": KEY})
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            self.assertEqual(json.loads(answer.read()).keys(), status.keys())

    def test_the_key_is_asked_for(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{self.job.http_address}/status.json", timeout=LIMIT_SECONDS)
        self.assertEqual(refused.exception.code, 401)
        refused.exception.close()
        done = self.once(FERRY_API_KEY="another-key")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^ferry: error: http://\S+ answers with status 401: a key is missing or wrong.*\n$")

    def test_a_server_that_is_away(self):
        done = self.once(address="127.0.0.1:1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^ferry: error: http://127\.0\.0\.1:1 is away: .*\n$")
        terminal = self.top("127.0.0.1:1", "--interval", "0.1")
        for _ in range(2):  # asked again
            self.assertIn("is away", terminal.wait_for("it is asked again"))
        terminal.press("q")
        terminal.wait_for(re.escape(LEFT))

    def test_a_terminal_is_left_as_it_was(self):
        for end in ("q", "\x03", signal.SIGTERM):
            with self.subTest(end=end):
                terminal = self.top()
                self.assertIn(ENTERED, terminal.wait_for("requests"))
                self.assertNotEqual(terminal.settings_now(), terminal.settings)
                if isinstance(end, str):
                    terminal.press(end) if end == "q" else terminal.process.send_signal(signal.SIGINT)
                else:
                    terminal.process.send_signal(end)
                terminal.wait_for(re.escape(LEFT))
                self.assertEqual(terminal.process.wait(LIMIT_SECONDS), 0)
                self.assertEqual(terminal.settings_now(), terminal.settings)

    def test_it_stops_and_goes_on(self):
        terminal = self.top()
        terminal.wait_for("requests")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.wait_for(re.escape(LEFT))
        ferry_job.wait_for(terminal.is_stopped, "a stopped process")
        terminal.process.send_signal(signal.SIGCONT)
        self.assertIn("requests", terminal.wait_for(re.escape(ENTERED) + "(?s:.*)requests"))

    def test_sizes_and_colours(self):
        terminal = self.top("--interval", "600", self.job.http_address, columns=200, rows=50)
        terminal.wait_for("\x1b\\[1mrequests(?s:.*)\x1b\\[J")
        terminal.resize(60, 5)
        terminal.process.send_signal(signal.SIGWINCH)
        frame = terminal.wait_for(r"\x1b\[J").replace("\x1b[H", "").replace("\x1b[J", "")
        lines = [re.sub(r"\x1b\[[0-9;]*[mK]", "", line) for line in re.split(r"\r*\n", frame)]
        self.assertLessEqual(len(lines), 5)
        self.assertLessEqual(max(map(len, lines)), 60)
        plain = self.top(NO_COLOR="1")
        self.assertNotRegex(plain.wait_for("KV cache"), r"\x1b\[[0-9;]*m")

    def test_a_dumb_terminal_gets_lines(self):
        terminal = self.top("--interval", "0.1", self.job.http_address, TERM="dumb")
        frames = terminal.wait_for("KV cache(?s:.*)KV cache")
        self.assertNotIn("\x1b", frames)


class PageAloneTest(ferry_job.JobTest):
    def test_anybody_may_load_the_page_but_not_the_figures(self):
        job = self.start(ranks=1, memory="256MiB")
        for path, status in (("/", 200), ("/status.json", 403)):
            request = urllib.request.Request(f"http://{job.http_address}{path}", headers={"Host": "stranger.example"})
            with self.subTest(path=path), contextlib.closing(self.open(request)) as answer:
                self.assertEqual(answer.status, status)
        with contextlib.closing(self.open(urllib.request.Request(f"http://{job.http_address}/"))) as answer:
            self.assertIn("frame-ancestors 'none'", answer.headers["Content-Security-Policy"])

    def test_a_server_on_all_addresses_has_the_names_of_its_machine(self):
        job = self.start(ranks=1, memory="256MiB", http="0.0.0.0:0")
        name, port = socket.gethostname(), job.http_address.rpartition(":")[2]
        self.assertRegex(job.log(), rf"(?m)^ferry: http answers to the names localhost, {re.escape(name.lower())}.*; --allowed-host adds others$")
        for host, status in ((name, 200), (f"{name.upper()}:{port}", 200), (f"{name.split('.')[0]}.local", 200), ("stranger.example", 403)):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/status.json", headers={"Host": host})
            with self.subTest(host=host), contextlib.closing(self.open(request)) as answer:
                self.assertEqual(answer.status, status)

    @staticmethod
    def open(request):
        try:
            return urllib.request.urlopen(request, timeout=LIMIT_SECONDS)
        except urllib.error.HTTPError as refused:
            return refused


if __name__ == "__main__":
    ferry_job.main()
