"""Attacks on the job as a whole: stray connections, a full disk, tiny limits, killed jobs."""

import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import unittest

import ferry_job
from ferry_job import FERRY, ROOT, LIMIT_SECONDS, OpenCall, endless_request, wait_for
from sockets import connect, listeners

TRANSPORTS = ("mpi", "gloo")
MPIRUN = str(ROOT / "launch/mpirun.sh")
GENERATE = [FERRY, "generate", "--model", "demo", "--memory", "64MiB", "--prompt", "The kernel", "--max-tokens", "2"]


def launcher_of(job):
    """The process id of the job's mpirun."""
    children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
    return next(int(p) for p in children if pathlib.Path(f"/proc/{p}/comm").read_text().strip() == "mpirun")


def notes_of(job):
    """The name of the folder in which the job's script has its notes: an argument of the processes that it starts as ranks."""
    for child in pathlib.Path(f"/proc/{launcher_of(job)}/task/{launcher_of(job)}/children").read_text().split():
        words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "--as-rank" in words:
            return pathlib.Path(words[words.index("--as-rank") + 1])
    raise AssertionError("no rank is the child of mpirun")


def pester(address, port):
    """Stray connections to a port: the ones to hold on to."""
    held = []
    for data in (b"", bytes(8), bytes(12), b"OMPI" + bytes(4), os.urandom(12), os.urandom(4096), None):
        try:
            stray = connect(address, port, 0.5)
            if data is None:
                stray.close()
            else:
                stray.sendall(data)
                held.append(stray)
        except OSError:
            continue  # refused or not accepted, which is fine
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
        at_ranks = [stray for at in listeners(ranks[0]) for stray in pester(*at)]
        at_launcher = [stray for at in launcher for stray in pester(*at)]
        self.assertTrue(call.wait())
        self.assertIsNone(call.error)
        wait_for(lambda: job.health() == "SERVING", "health", job.health)
        for stray in at_launcher:  # PMIx listens on loopback and waits for whoever connects: see the README's limits
            stray.close()
        self.assertEqual(job.stop(), 0, job.log())
        for stray in at_ranks:
            stray.close()


class ListenOnTest(unittest.TestCase):
    """The library that mpirun's daemons preload."""

    BIND = "import socket; s = socket.socket(socket.{0}); s.bind(('{1}', 0)); print(s.getsockname()[0])"

    def bound(self, listen_on, family, address):
        library = pathlib.Path(FERRY).with_name("libferry_listen_on.so")
        environment = {**os.environ, "LD_PRELOAD": str(library), "FERRY_LISTEN_ON": listen_on}
        command = [sys.executable, "-c", self.BIND.format(family, address)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
        return done.stdout.strip()

    def test_what_has_no_such_address_is_not_open(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            self.skipTest("no IPv6 here")
        for listen_on in ("127.0.0.2", "none", "no-such-interface"):
            self.assertEqual(self.bound(listen_on, "AF_INET6", "::"), "::1", listen_on)
        self.assertEqual(self.bound("127.0.0.2", "AF_INET", "0.0.0.0"), "127.0.0.2")
        self.assertEqual(self.bound("127.0.0.2", "AF_INET", "127.0.0.1"), "127.0.0.1")
        self.assertEqual(self.bound("no-such-interface", "AF_INET", "0.0.0.0"), "0.0.0.0")


class LimitTest(unittest.TestCase):
    def launch(self, limit, value):
        def set_limit():
            resource.setrlimit(limit, (value, value))

        command = [MPIRUN, "-np", "2", *GENERATE]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, preexec_fn=set_limit)

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
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest("no mount namespaces here")
        self.assertNotEqual(done.returncode, 0, done.stderr)

    def test_mpi_finds_room_where_dev_shm_has_none(self):
        """In mount namespaces without /dev/shm, and with less of it than Open MPI's segments take."""
        devices = "for name in null zero urandom full; do touch /mnt/$name && mount --bind /dev/$name /mnt/$name; done"
        hosts = {
            "without": f"mount -t tmpfs tmpfs /mnt && {devices} && ln -s /proc/self/fd /mnt/fd && mount --rbind /mnt /dev",
            "4 MiB": "mount -t tmpfs -o size=4m tmpfs /dev/shm",
        }
        for host, mounts in hosts.items():
            for transport in ("auto", "mpi"):
                script = f'{mounts} && exec {MPIRUN} -np 3 "$@" --transport {transport}'
                done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *GENERATE], capture_output=True, text=True, timeout=LIMIT_SECONDS)
                if "unshare" in done.stderr or "mount:" in done.stderr:
                    self.skipTest("no mount namespaces here")
                with self.subTest(host=host, transport=transport):
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(" MiB free, 24 are needed; MPI puts its shared memory in ", done.stderr)
                    self.assertIn("2 new", done.stderr)


class LeftoverTest(ferry_job.JobTest):
    def test_a_killed_job_leaves_no_shared_memory(self):
        job = self.start(ranks=2, transport="mpi")
        mapped = (pathlib.Path(f"/proc/{process_id}/maps").read_text() for process_id in job.ranks().values())
        segments = {name for text in mapped for name in re.findall(r" /dev/shm/(vader_segment\S+)", text)}
        self.assertTrue(segments)
        for process_id in [launcher_of(job), *job.ranks().values()]:
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it followed another one
        self.assertIsNotNone(job.wait())
        left = lambda: segments & set(os.listdir("/dev/shm"))
        wait_for(lambda: not left(), "the end of the job's shared memory", left)

    def test_a_job_ends_with_its_killed_script_and_the_next_one_tidies_up(self):
        job = self.start(ranks=3)
        notes = notes_of(job)
        self.assertTrue(notes.is_dir())
        job.process.kill()
        job.wait()
        self.assert_no_ranks_left(job)
        self.start(ranks=2).stop()
        self.assertFalse(notes.exists())


if __name__ == "__main__":
    ferry_job.main()
