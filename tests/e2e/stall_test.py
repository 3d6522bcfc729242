"""What health says of a job that stands still, and how it ends; results and shared memory that cannot be written."""

import array
import ctypes
import fcntl
import os
import pathlib
import signal
import subprocess
import tempfile
import termios
import time
import urllib.request

import ferry_job
from ferry_job import FERRY, LIMIT_SECONDS, ROOT, OpenCall, endless_request, on_host, pace, wait_for
from sockets import connect, listeners

MPIRUN = str(ROOT / "launch/mpirun.sh")
GENERATE = [FERRY, "generate", "--model", "demo", "--memory", "64MiB", "--prompt", "The kernel", "--max-tokens", "2"]


class StoppedThread:
    """A thread of another process that stands still while all others go on, as under a debugger."""

    SEIZE, INTERRUPT, ALL_CHILDREN = 0x4206, 0x4207, 0x40000000  # of ptrace(2) and waitpid(2)

    def __init__(self, process_id, name):
        tasks = pathlib.Path(f"/proc/{process_id}/task").iterdir()
        (self.thread_id,) = (int(task.name) for task in tasks if (task / "comm").read_text() == name + "\n")
        ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        for request in (self.SEIZE, self.INTERRUPT):
            if ptrace(request, self.thread_id, None, None) != 0:
                raise OSError(ctypes.get_errno(), "ptrace")
        os.waitpid(self.thread_id, self.ALL_CHILDREN)

    def has_ended(self):
        """To be asked until it says so: without it the system keeps the process."""
        return os.waitpid(self.thread_id, self.ALL_CHILDREN | os.WNOHANG)[0] == self.thread_id


class StallTest(ferry_job.JobTest):
    def start_busy(self, peer_timeout, transport, **options):
        job = self.start("--peer-timeout", str(peer_timeout), *pace(1, 2), transport=transport, **options)
        call = OpenCall(job, endless_request())
        # Waits for a message are overdue by what such waits usually take, so there must have been some.
        wait_for(lambda: len(call.token_ids) > 8 or call.ended_at is not None, "tokens", job.log)
        return job, call

    def assert_overdue_then_ended(self, job, calls, says):
        wait_for(lambda: job.health() != "SERVING", "a health that tells of it", job.log)
        for call in calls:
            self.assertTrue(call.wait(), "the client was not told")
        self.assertEqual(job.wait(), 1, job.log())
        self.assertRegex(job.log(), says)
        self.assert_no_ranks_left(job)

    def test_a_worker_that_goes_on_is_served_by_again(self):
        job, call = self.start_busy(600, "gloo")
        worker = job.ranks()[1]
        os.kill(worker, signal.SIGSTOP)
        try:
            wait_for(lambda: job.health() == "NOT_SERVING", "a health that tells of the worker", job.log)
        finally:
            os.kill(worker, signal.SIGCONT)
        wait_for(lambda: job.health() == "SERVING", "a health that tells that it is back", job.log)
        call.cancel()
        self.assertEqual(job.stop(), 0, job.log())

    def test_an_engine_that_stands_still_ends_the_process(self):
        """Whether it stands still in a step or between two, and however soon that is noticed."""
        job = self.start("--peer-timeout", "1", "--max-seqs", "1", ranks=1)
        calls = [OpenCall(job, endless_request(seed=i)) for i in range(8)]  # one after another
        wait_for(lambda: any(call.token_ids for call in calls), "a token", job.log)
        try:
            engine = StoppedThread(job.ranks()[0], "engine")
        except PermissionError:
            self.skipTest("no thread of another process can be stopped here")
        wait_for(lambda: job.health() != "SERVING", "a health that tells of it", job.log)
        wait_for(engine.has_ended, "the end of the engine's thread", job.log)
        self.assert_overdue_then_ended(job, calls, "not gone on")

    def test_mpi_that_blocks_ends_the_job(self):
        """Over TCP, which nobody has to use on one host, a few stray bytes block Open MPI for good."""
        job, call = self.start_busy(5, "mpi", launch=("--mca", "btl", "self,tcp"))
        strays = [connect(*at) for at in listeners(job.ranks()[0]) if at[0] in ("0.0.0.0", "::")]
        self.assertTrue(strays)
        for stray in strays:
            stray.sendall(bytes(8))
        self.assert_overdue_then_ended(job, [call], "not gone on|silent")


class LimitTest(ferry_job.JobTest):
    def test_a_result_that_cannot_be_written_is_an_error(self):
        for command in (GENERATE, [*GENERATE, "--json"], [FERRY, "--help"], [FERRY, "--version"]):
            with self.subTest(command[-1]), open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stderr.count("cannot write the result"), 1, done.stderr)

    def test_a_file_beyond_its_limit_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"ulimit -f 1; exec {FERRY} dump --model demo --token-ids 1,2 --out {folder}/dump"
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)

    def check_slow_reader(self, seconds, *arguments):
        """The text fills a small pipe that nobody reads for so long."""
        words = [*GENERATE[:-4], "--threads", "1", *arguments, "--token-ids", "11,21,31", "--ignore-eos"]
        read, write = os.pipe()
        room = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        process = subprocess.Popen([*words, "--max-tokens", "2700"], stdout=write, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        os.close(write)
        waiting = array.array("i", [0])

        def num_waiting():
            fcntl.ioctl(read, termios.FIONREAD, waiting)
            return waiting[0]

        # What has no room as a whole waits, and the rest of it is soon there.
        wait_for(lambda: num_waiting() > room // 2, "a full pipe", num_waiting)
        time.sleep(seconds)
        with open(read, "rb") as pipe:
            self.assertGreater(len(pipe.read()), room)
        _, said = process.communicate(timeout=LIMIT_SECONDS)
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("2700 new", said)

    def test_a_completion_waits_for_its_reader(self):
        self.check_slow_reader(0)

    @on_host
    def test_a_completion_waits_longer_than_an_engine_may_stand_still(self):
        self.check_slow_reader(5, "--peer-timeout", "1")

    def test_a_server_outlives_who_reads_its_log(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [FERRY, "serve", "--model", "demo", "--threads", "1", "--grpc", "off", "--http", "127.0.0.1:0"]
            server = subprocess.Popen([*command, "--trace-dir", folder], stderr=subprocess.PIPE, text=True)
            self.addCleanup(server.kill)
            address = next(line.split()[-1] for line in server.stderr if "serving http on" in line)
            self.assertNotIn("grpc", server.stderr.readline(), "gRPC is off")
            server.stderr.close()
            for path in ("start_profile", "stop_profile"):
                body = b"{}" if path == "start_profile" else b'{"wait": true}'
                request = urllib.request.Request(f"http://{address}/{path}", body, {"Content-Type": "application/json"})
                self.assertEqual(urllib.request.urlopen(request, timeout=LIMIT_SECONDS).status, 200)
            self.assertEqual(urllib.request.urlopen(f"http://{address}/health", timeout=LIMIT_SECONDS).status, 200)
            server.terminate()
            self.assertEqual(server.wait(LIMIT_SECONDS), 0)

    def test_nothing_takes_the_number_of_a_closed_stream(self):
        script = f"exec {FERRY} serve --model demo --threads 1 --grpc 127.0.0.1:0 --http 127.0.0.1:0 <&- >&- 2>&-"
        server = subprocess.Popen(["sh", "-c", script])
        self.addCleanup(server.kill)
        fds = pathlib.Path(f"/proc/{server.pid}/fd")

        def has_a_socket():
            try:
                return any(os.readlink(fd).startswith("socket:") for fd in fds.iterdir())
            except FileNotFoundError:  # closed meanwhile
                return False

        wait_for(has_a_socket, "a socket of the server")
        self.assertEqual([os.readlink(fds / stream) for stream in ("1", "2")], ["/dev/null"] * 2)
        server.terminate()
        self.assertEqual(server.wait(LIMIT_SECONDS), 0)

    def test_full_shared_memory_is_no_bus_error(self):
        with tempfile.TemporaryDirectory() as folder:
            script = (
                "mount -t tmpfs -o size=64k tmpfs /dev/shm && head -c 1m /dev/zero >/dev/shm/full 2>/dev/null; "
                f"exec {MPIRUN} -np 2 --mca btl_vader_backing_directory {folder} {' '.join(GENERATE[:-4])} --prompt x --max-tokens 2"
            )
            done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no mount namespaces here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("no shared memory to wake neighbours with"), 1, done.stderr)


if __name__ == "__main__":
    ferry_job.main()
