"""Slurm starts Ferry, by mpirun within a job and by srun with PMIx, as launch/deploy/ferry.sbatch does it: three ranks make the tokens
of one process.

Runs where Slurm is installed, or can be: see private_slurm.sh.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import ferry_job

PRIVATE_SLURM = pathlib.Path(__file__).parent / "private_slurm.sh"
REQUEST = ["--prompt", "The PostgreSQL server", "--max-tokens", "24"]
SECONDS = 240  # most that installing, starting and both jobs may take

# Both jobs, one after the other: what each wrote, under a line with its name and its exit code.
JOBS = """
for launch in mpirun srun; do
  status=0
  FERRY_LAUNCH=$launch timeout 100 sbatch --quiet --wait --nodes=1 --ntasks-per-node=3 --overcommit --time=2 --output=/tmp/out --error=/tmp/err \
    launch/deploy/ferry.sbatch generate --model demo --memory 64MiB --threads 1 --json "$@" || status=$?
  echo "== $launch $status"
  cat /tmp/out
  cat /tmp/err >&2
done
"""


def run_jobs():
    """What Slurm said of both jobs. Ends the test, as skipped, where there can be none."""
    command = [str(PRIVATE_SLURM), "bash", "-c", JOBS, "bash", *REQUEST]
    done = subprocess.run(
        command, env={**os.environ, "FERRY": ferry_job.FERRY}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode == ferry_job.SKIPPED:
        print(done.stdout)
        sys.exit(ferry_job.SKIPPED)
    return done


class SlurmTest(unittest.TestCase):
    def test_three_ranks_make_the_tokens_of_one_process(self):
        jobs = dict(part.split("\n", 1) for part in self.done.stdout.split("== ")[1:])
        alone = ferry_job.generate_alone(*REQUEST)
        for launch in ("mpirun", "srun"):
            with self.subTest(launch):
                answer = jobs.get(f"{launch} 0")
                self.assertIsNotNone(answer, self.done.stdout + self.done.stderr)
                answer = json.loads(answer)
                self.assertEqual((answer["token_ids"], answer["expert_workers"]), (list(alone.token_ids), 2))


if __name__ == "__main__":
    SlurmTest.done = run_jobs()
    unittest.main(verbosity=2)
