"""Attacks on the job as a whole: stray connections, an engine or a worker that stands still, full disks, tiny limits."""

import ctypes
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import tempfile
import unittest

import ferry_job
from ferry_job import FERRY, ROOT, OpenCall, endless_request, wait_until

OVERDUE_SECONDS = 20.0  # within which health must tell; 2 on a machine that has time
PEER_TIMEOUT = 4.0
END_SECONDS = 40.0  # from a stall to the end of the job, far above peer timeout and a few seconds
TRANSPORTS = ("mpi", "gloo")
MPIRUN = str(ROOT / "launch/mpirun.sh")
GENERATE = [FERRY, "generate", "--model", "demo", "--memory", "64MiB", "--prompt", "The kernel", "--max-tokens", "2"]


def listeners(process_id):
    """[(address, port)] on which the process listens for TCP connections."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{process_id}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        except OSError:
            continue
        if found:
            inodes.add(found[1])
    result = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/{process_id}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or fields[9] not in inodes:
                continue
            address, port = fields[1].split(":")
            words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
            result.append((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return result


def launcher_of(job):
    """The process id of the job's mpirun."""
    children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
    return next(int(p) for p in children if pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "mpirun")


def connect(address, port):
    host = "::1" if address in ("::1", "::") else "127.0.0.1"
    return socket.create_connection((host, port), timeout=0.5)


def pester(address, port):
    """Stray connections to a port: the ones to hold on to."""
    held = []
    for data in (b"", bytes(8), bytes(12), b"OMPI" + bytes(4), os.urandom(12), os.urandom(4096), None):
        try:
            stray = connect(address, port)
            if data is None:
                stray.close()
            else:
                stray.sendall(data)
                held.append(stray)
        except OSError:
            continue  # refused, which is fine
    return held


class StrayConnectionTest(ferry_job.JobTest):
    def test_no_rank_has_a_port_but_its_services_and_strays_do_no_harm(self):
        for transport in TRANSPORTS:
            with self.subTest(transport):
                self.check(transport)

    def check(self, transport):
        job = self.start(ranks=3, transport=transport)
        served = {int(job.http_address.rsplit(":", 1)[1]), int(job._address.rsplit(":", 1)[1])}
        ranks = job.ranks()
        self.assertEqual({port for _, port in listeners(ranks[0])}, served)
        self.assertEqual(listeners(ranks[1]) + listeners(ranks[2]), [])
        launcher = listeners(launcher_of(job))
        self.assertTrue(launcher)
        for address, _ in launcher:
            self.assertIn(address, ("127.0.0.1", "::1"))
        call = OpenCall(job, endless_request(max_tokens=400))
        held = [stray for at in launcher + listeners(ranks[0]) for stray in pester(*at)]
        self.assertTrue(call.wait())
        self.assertIsNone(call.error)
        self.assertEqual(job.health(), "SERVING")
        self.assertEqual(job.stop(), 0, job.log())
        for stray in held:
            stray.close()


class StallTest(ferry_job.JobTest):
    def start_busy(self, transport, **options):
        job = self.start("--peer-timeout", str(PEER_TIMEOUT), transport=transport, **options)
        call = OpenCall(job, endless_request())
        self.assertTrue(call.wait_for_token(), call.error)
        return job, call

    def assert_overdue_then_ended(self, job, call, says):
        self.assertTrue(wait_until(lambda: job.health() != "SERVING", OVERDUE_SECONDS), job.log())
        self.assertTrue(call.wait(END_SECONDS), "the client was not told")
        self.assertEqual(job.wait(END_SECONDS), 1, job.log())
        self.assertRegex(job.log(), says)
        self.assert_no_ranks_left(job, 5)

    def test_a_stopped_worker_ends_the_job(self):
        job, call = self.start_busy("mpi")
        os.kill(job.ranks()[2], signal.SIGSTOP)
        self.assert_overdue_then_ended(job, call, "error: rank 2: silent")

    def test_a_worker_that_goes_on_is_served_by_again(self):
        job, call = self.start_busy("gloo")
        worker = job.ranks()[1]
        os.kill(worker, signal.SIGSTOP)
        overdue = wait_until(lambda: job.health() == "NOT_SERVING", PEER_TIMEOUT - 0.5)
        os.kill(worker, signal.SIGCONT)
        self.assertTrue(overdue, job.log())
        self.assertTrue(wait_until(lambda: job.health() == "SERVING", OVERDUE_SECONDS), job.log())
        call.cancel()
        self.assertEqual(job.stop(), 0, job.log())

    def test_an_engine_thread_that_stands_still_ends_the_process(self):
        job, call = self.start_busy("auto", ranks=1)
        process_id = job.ranks()[0]
        threads = pathlib.Path(f"/proc/{process_id}/task").iterdir()
        engine = next(int(t.name) for t in threads if (t / "comm").read_text().strip() == "engine")
        libc = ctypes.CDLL(None, use_errno=True)
        seize, interrupt = 0x4206, 0x4207
        if libc.ptrace(seize, engine, None, None) != 0:
            self.skipTest("threads cannot be stopped here")
        libc.ptrace(interrupt, engine, None, None)
        self.assert_overdue_then_ended(job, call, "error: the engine has not gone on for .*--peer-timeout allows 4.0 s")

    def test_mpi_that_blocks_ends_the_job(self):
        """Over TCP, which nobody has to use on one host, a few stray bytes block Open MPI for good."""
        job, call = self.start_busy("mpi", launch=("--mca", "btl", "self,tcp"))
        strays = [connect(*at) for at in listeners(job.ranks()[0]) if at[0] in ("0.0.0.0", "::")]
        self.assertTrue(strays)
        for stray in strays:
            stray.sendall(bytes(8))
        self.assert_overdue_then_ended(job, call, "not gone on|silent")


class LimitTest(unittest.TestCase):
    def test_a_result_that_cannot_be_written_is_an_error(self):
        for command in (GENERATE, [*GENERATE, "--json"], [FERRY, "--help"], [FERRY, "--version"]):
            with self.subTest(command[-1]), open("/dev/full", "w") as full:
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stderr.count("cannot write the result"), 1, done.stderr)

    def launch(self, limit, value):
        def set_limit():
            resource.setrlimit(limit, (value, value))

        command = [MPIRUN, "-np", "2", *GENERATE]
        return subprocess.run(command, capture_output=True, text=True, timeout=150, preexec_fn=set_limit)

    def test_too_few_files_are_an_error(self):
        for allowed in (16, 24, 100):
            done = self.launch(resource.RLIMIT_NOFILE, allowed)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"ulimit -n is {allowed}", done.stderr)

    def test_a_full_disk_hides_no_end(self):
        """In a mount namespace whose /tmp has no room left."""
        script = (
            "mount -t tmpfs -o size=64k tmpfs /tmp && head -c 1m /dev/zero >/tmp/full 2>/dev/null; "
            f"exec {MPIRUN} -np 2 {FERRY} generate --model /no/such/folder --prompt x"
        )
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=150)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no mount namespaces here")
        self.assertNotEqual(done.returncode, 0, done.stderr)

    def test_full_shared_memory_is_no_bus_error(self):
        with tempfile.TemporaryDirectory() as folder:
            script = (
                "mount -t tmpfs -o size=64k tmpfs /dev/shm && head -c 1m /dev/zero >/dev/shm/full 2>/dev/null; "
                f"exec {MPIRUN} -np 2 --mca btl_vader_backing_directory {folder} {' '.join(GENERATE[:-4])} --prompt x --max-tokens 2"
            )
            done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=150)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no mount namespaces here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("no shared memory to wake neighbours with"), 1, done.stderr)


class LeftoverTest(ferry_job.JobTest):
    def test_a_killed_job_leaves_no_shared_memory(self):
        before = set(os.listdir("/dev/shm"))
        job = self.start(ranks=2, transport="mpi")
        segments = {name for name in os.listdir("/dev/shm") if name.startswith("vader_segment")} - before
        self.assertTrue(segments)
        for process_id in job.ranks().values():
            os.kill(process_id, signal.SIGKILL)
        os.kill(launcher_of(job), signal.SIGKILL)
        self.assertIsNotNone(job.wait(END_SECONDS))
        self.assertTrue(wait_until(lambda: not segments & set(os.listdir("/dev/shm")), 10))


if __name__ == "__main__":
    ferry_job.main()
