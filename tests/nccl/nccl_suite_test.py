#!/usr/bin/env python3
"""NVIDIA's nccl-tests over each of Ferry's groups: no wrong value may come of them, and one that is planted has to be found."""

import os
import pathlib
import re
import subprocess
import unittest

PROGRAMS = pathlib.Path(os.environ["FERRY_NCCL_PROGRAMS"])
MPIRUN = [os.environ["FERRY_MPIEXEC"], "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1"]

MOVES = ("sendrecv", "all_gather", "alltoall", "broadcast")
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")

# Sizes in bytes from -b to -e, each -f times the one before, checked after -n rounds of -m calls in one group.
MOVED = ["-b", "8", "-e", "4M", "-f", "8", "-d", "uint8"]
REDUCED = ["-b", "64", "-e", "64K", "-f", "32", "-d", "all", "-o", "all"]
ROUNDS = ["-w", "1", "-n", "2", "-m", "2", "-c", "1"]


def command(program, transport, num_ranks, in_threads):
    """What runs one of the programs, on ranks that are threads of it or processes of a job."""
    options = (MOVED if program in MOVES else REDUCED) + ROUNDS
    binary = str(PROGRAMS / f"ferry_nccl_{program}")
    if in_threads:
        return MPIRUN + ["-np", "1", binary, "-t", str(num_ranks), "-p", "1"] + options
    return MPIRUN + ["-np", str(num_ranks), binary] + options


def run(program, transport, num_ranks, in_threads, **variables):
    environment = dict(os.environ, FERRY_NCCL_TRANSPORT=transport, **variables)
    return subprocess.run(command(program, transport, num_ranks, in_threads), env=environment, capture_output=True, text=True, timeout=120)


def wrong_lines(result):
    """In how many lines of the table nccl-tests found a wrong value; nothing if it did not come to its end."""
    found = re.search(r"Out of bounds values : (\d+) (OK|FAILED)", result.stdout)
    return int(found[1]) if found and "Collective test concluded" in result.stdout else None


class NcclTests(unittest.TestCase):
    def check(self, transport, num_ranks, in_threads):
        for program in MOVES + REDUCTIONS:
            with self.subTest(program=program, transport=transport, num_ranks=num_ranks):
                result = run(program, transport, num_ranks, in_threads)
                self.assertEqual((wrong_lines(result), result.returncode), (0, 0), result.stdout[-3000:] + result.stderr[-2000:])
                self.assertIn(f"# {num_ranks} ranks over {transport}\n", result.stdout)

    def test_local_threads(self):
        for num_ranks in (2, 3, 4):
            self.check("local", num_ranks, in_threads=True)

    def test_gloo_threads(self):
        self.check("gloo", 3, in_threads=True)

    def test_gloo_processes(self):
        for num_ranks in (2, 4):
            self.check("gloo", num_ranks, in_threads=False)

    def test_mpi_processes(self):
        for num_ranks in (2, 3, 4):
            self.check("mpi", num_ranks, in_threads=False)

    def test_a_liar_is_found(self):
        for program in MOVES + REDUCTIONS:
            with self.subTest(program=program):
                root = ["-r", "2"] if program == "reduce" else []  # only the root gets something, and the last rank lies
                environment = dict(os.environ, FERRY_NCCL_TRANSPORT="local", FERRY_NCCL_LIAR="1")
                result = subprocess.run(command(program, "local", 3, True) + root, env=environment, capture_output=True, text=True, timeout=120)
                self.assertGreater(wrong_lines(result) or 0, 0, result.stdout[-3000:] + result.stderr[-2000:])
                self.assertNotEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main()
