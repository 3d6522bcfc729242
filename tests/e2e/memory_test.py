"""How much memory of a process is resident: caches are taken when they are used, not when they are allowed."""

import pathlib
import re
import unittest

import ferry_job
from ferry_job import text_request

SMALL = 32 << 20  # bytes of --memory
GROWTH_SHARE = 16  # what may become resident of what --memory is larger by: a sixteenth, for the books on its blocks and slots


def available_bytes():
    found = re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())
    return int(found[1]) << 10


def most_resident_bytes(process_id):
    found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{process_id}/status").read_text())
    return int(found[1]) << 10


class MemoryTest(ferry_job.JobTest):
    def serve_once(self, memory):
        """Most bytes that were resident after the start, and after one short answer; and the answer."""
        job = self.start("--max-seqs", "1024", ranks=1, memory=f"{memory}B")
        at_start = most_resident_bytes(job.process.pid)
        answer = job.generate(text_request("The kernel", max_tokens=8))
        behind_answer = most_resident_bytes(job.process.pid)
        self.assertEqual(job.stop(), 0, job.log())
        return at_start, behind_answer, answer

    def test_resident_memory_does_not_grow_with_what_is_allowed(self):
        large = min(8 << 30, available_bytes() // 3)
        few, many = self.serve_once(SMALL), self.serve_once(large)
        self.assertEqual(few[2], many[2])
        self.assertLess(many[0] - few[0], (large - SMALL) // GROWTH_SHARE, "at start")
        self.assertLess(many[1] - few[1], (large - SMALL) // GROWTH_SHARE, "behind an answer")

    def test_what_is_allowed_must_be_there(self):
        with self.assertRaisesRegex(RuntimeError, r"--memory \d+: the cache of \d+ tokens needs \d+ [MG]iB of memory; available: "):
            self.start("--max-seqs", "32768", "--token-budget", "40000", ranks=1, memory=f"{4 * available_bytes()}B")


if __name__ == "__main__":
    ferry_job.main()
