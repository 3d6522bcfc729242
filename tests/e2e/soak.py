#!/usr/bin/env python3
"""Holds a job under load for as long as you like: many clients, cancelled calls, short deadlines, killed ranks, restarts.

    tests/e2e/soak.py [--minutes 60] [--ranks 3] [--clients 32] [--transport auto] [--json FILE]

Every answer is compared with what `ferry generate` says alone, token by token; a cancelled or overdue one must be a beginning of
it. The time is divided into lives of the server, the first twice as long as each other; a life ends by the kill of a worker, of
the coordinator or of the launcher, or by SIGTERM, in turn. After each the job must end as the README says, and leave no rank.
Memory is the resident set of each rank, every five seconds; its slope is a least-squares line after the warm-up of the life.

Prints a line a minute and a table; the exit code is 1 after a wrong answer, an error that nothing explains, or a rank that stays.
"""

import argparse
import collections
import json
import os
import random
import signal
import sys
import threading
import time

import ferry_job
import grpc
import streams_test

SAMPLE_SECONDS = 5
WARM_UP_SHARE = 0.25  # of a life; caches of the allocator and of gRPC fill in it
LEAST_SECONDS_FOR_SLOPE = 240
ENDINGS = ("worker killed", "drained", "coordinator killed", "launcher killed")
SECONDS_TO_END = {"worker killed": 10, "drained": 60, "coordinator killed": 15, "launcher killed": 15}


class Tally:
    """What the clients saw; any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self.counts = collections.Counter()
        self.wrong = []

    def add(self, what):
        with self._lock:
            self.counts[what] += 1

    def report_wrong(self, text):
        with self._lock:
            self.counts["WRONG"] += 1
            self.wrong.append(text)
        print(f"soak: WRONG: {text}", flush=True)


class Load:
    """Clients that ask a server again and again; the server may be replaced."""

    def __init__(self, num_clients, cases, expected, tally):
        self._cases, self._expected, self._tally = cases, expected, tally
        self._stub = None
        self._is_ending = False
        self._stop = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(num_clients)]
        for thread in self._threads:
            thread.start()

    def use(self, stub):
        with self._changed:
            self._stub, self._is_ending = stub, False
            self._changed.notify_all()

    def expect_end(self):
        """From here on calls may fail: the server is about to be ended."""
        with self._changed:
            self._is_ending = True

    def leave(self):
        with self._changed:
            self._stub = None

    def stop(self):
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(ferry_job.CALL_SECONDS)

    def _run(self, client):
        choose = random.Random(client)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stub is not None or self._stop)
                if self._stop:
                    return
                stub = self._stub
            self._ask(stub, choose)

    def _ask(self, stub, choose):
        which = choose.randrange(len(self._cases))
        manner = choose.choices(("whole", "cancelled", "overdue"), (80, 15, 5))[0]
        seconds = choose.uniform(0.02, 0.5) if manner == "overdue" else ferry_job.CALL_SECONDS
        cancel_after = choose.randrange(1, 20) if manner == "cancelled" else None
        token_ids, text, is_whole = [], "", False
        call = stub.Generate(self._cases[which][0], timeout=seconds)
        try:
            for response in call:
                token_ids += response.token_ids
                text += response.text
                is_whole = is_whole or response.HasField("completion")
                if cancel_after is not None and len(token_ids) >= cancel_after:
                    call.cancel()
            self._tally.add("whole answers" if is_whole else "answers without an end")
        except grpc.RpcError as error:
            is_whole = False
            self._count_error(error, manner)
        self._compare(which, token_ids, text, is_whole)

    def _compare(self, which, token_ids, text, is_whole):
        expected = self._expected[which]
        same_ids = token_ids == (expected.token_ids if is_whole else expected.token_ids[: len(token_ids)])
        same_text = text == expected.text if is_whole else expected.text.startswith(text)
        if not same_ids or not same_text:
            self._tally.report_wrong(f"case {which}: {token_ids} instead of {expected.token_ids}")

    def _count_error(self, error, manner):
        code = error.code()
        expected = {"cancelled": grpc.StatusCode.CANCELLED, "overdue": grpc.StatusCode.DEADLINE_EXCEEDED}.get(manner)
        with self._changed:
            is_ending = self._is_ending or self._stub is None
        if code == expected:
            self._tally.add(f"calls {manner}")
        elif is_ending and code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            self._tally.add("calls that ended with their server")
            time.sleep(0.1)
        else:
            self._tally.report_wrong(f"{manner} call ended with {code}: {error.details()}")
            time.sleep(1)


def resident_mb(process_id):
    """Resident memory of a process; None if it is gone."""
    try:
        with open(f"/proc/{process_id}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return None


def slope_per_hour(samples):
    """Least-squares slope of [(seconds, MB)], in MB an hour."""
    mean_t = sum(t for t, _ in samples) / len(samples)
    mean_m = sum(m for _, m in samples) / len(samples)
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 3600 * sum((t - mean_t) * (m - mean_m) for t, m in samples) / spread


def watch_memory(ranks, seconds):
    """{rank: [(seconds, MB)]} over the time."""
    samples = collections.defaultdict(list)
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        for rank, process_id in ranks.items():
            mb = resident_mb(process_id)
            if mb is not None:
                samples[rank].append((now, mb))
        time.sleep(SAMPLE_SECONDS)
    return samples


def end_life(job, ending):
    """Ends the server in that manner; what is wrong with how it ended, or None."""
    if ending == "worker killed":
        job.kill_rank(max(job.ranks()))
    elif ending == "coordinator killed":
        job.kill_rank(0)
    elif ending == "launcher killed":
        os.kill(job.process.pid, signal.SIGKILL)
    else:
        job.terminate()
    seconds = SECONDS_TO_END[ending]
    end = time.monotonic() + seconds
    while job.process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    code = job.process.poll()
    if code is None:
        return f"{ending}: the job has not ended after {seconds} s"
    if (code == 0) != (ending == "drained"):
        return f"{ending}: the job ended with {code}"
    while job.ranks() and time.monotonic() < end + seconds:
        time.sleep(0.1)
    if job.ranks():
        return f"{ending}: ranks {sorted(job.ranks())} are still there after {seconds} s"
    return None


def run_life(life, seconds, options, load, tally):
    """One server from start to end; its row of the table."""
    ending = ENDINGS[life % len(ENDINGS)]
    job = ferry_job.Job("--max-waiting", str(4 * options.clients), ranks=options.ranks, transport=options.transport)
    load.use(job.stub)
    samples = watch_memory(job.ranks(), seconds)
    load.expect_end()
    complaint = end_life(job, ending)
    load.leave()
    if complaint:
        tally.report_wrong(complaint)
        print(job.log(), flush=True)
    job.channel.close()
    job.kill()
    row = {"life": life, "seconds": round(seconds), "ending": ending, "counts": dict(tally.counts), "ranks": {}}
    for rank, series in sorted(samples.items()):
        warm = [s for s in series if s[0] >= WARM_UP_SHARE * seconds]
        measured = seconds >= LEAST_SECONDS_FOR_SLOPE and len(warm) > 10
        row["ranks"][rank] = {"mb": round(series[-1][1], 1), "mb_per_hour": round(slope_per_hour(warm), 2) if measured else None}
    print("soak: " + json.dumps(row), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--lives", type=int, default=5)
    parser.add_argument("--transport", default="auto")
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args()

    cases = streams_test.make_cases()
    expected = [ferry_job.generate_alone(*arguments) for _, arguments in cases]
    tally = Tally()
    load = Load(options.clients, cases, expected, tally)
    share = options.minutes * 60 / (options.lives + 1)
    rows = [run_life(life, share * (2 if life == 0 else 1), options, load, tally) for life in range(options.lives)]
    load.stop()
    print(f"soak: {dict(tally.counts)}; wrong: {len(tally.wrong)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "counts": dict(tally.counts), "wrong": tally.wrong}, file, indent=1)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
