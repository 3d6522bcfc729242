#!/usr/bin/env python3
"""What structured output costs a decode step: streams with a schema and without, in turn, from one server.

    tests/bench/constrained_steps.py --model DIR [--streams 1 16] [--pairs 6] [--tokens 64] [-- OPTIONS OF ferry serve]

DIR needs a tokenizer (that of a released model in the folder of `ferry_slice`). Both kinds have the same prompts, are greedy and
end by max_tokens: the schema is a long list of records with patterns, enums, integers and strings, so that masks change with every
token. Prints the median time between two tokens of each run, and for each number of streams the medians of the runs and of the
pairs' ratios. Environment: FERRY_BINARY (default build/release/launch/ferry).
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
RECORD = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "kind": {"enum": ["river", "lake", "canal", "spring"]},
        "length": {"type": "integer", "minimum": 0, "maximum": 6700},
        "since": {"type": "string", "format": "date"},
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,7}$"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["id", "kind", "length", "since", "name", "tags"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": RECORD, "minItems": 64}
SECONDS = 300


class Server:
    def __init__(self, model, arguments):
        command = [FERRY, "serve", "--model", model, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if found := re.search(r"ferry: serving http on (\S+)", line):
                self.address = found[1]
            if "serving grpc" in line:
                break
        else:
            raise RuntimeError("ferry serve did not come up, it said:\n" + "".join(lines))
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def stop(self):
        self._process.terminate()
        self._process.wait(60)


def times_of_tokens(address, fields):
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read())
    times = []
    for line in response:
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    connection.close()
    return times


def median_step(address, streams, tokens, is_constrained):
    """Seconds between two tokens while all streams run."""
    results = [None] * streams

    def run(number):
        prompt = [1000 + 37 * number + position for position in range(16)]
        fields = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        if is_constrained:
            fields["guided_json"] = SCHEMA
        results[number] = times_of_tokens(address, fields)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin, end = max(times[0] for times in results), min(times[-1] for times in results)
    gaps = [b - a for times in results for a, b in zip(times, times[1:]) if a >= begin and b <= end]
    return statistics.median(gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("serve", nargs="*", help="options of ferry serve, behind --")
    options = parser.parse_args()
    server = Server(options.model, options.serve)
    try:
        for streams in options.streams:
            for is_constrained in (False, True):  # the first of each compiles and warms
                median_step(server.address, streams, 8, is_constrained)
            pairs = []
            for number in range(options.pairs):
                order = (False, True) if number % 2 == 0 else (True, False)
                steps = {kind: median_step(server.address, streams, options.tokens, kind) for kind in order}
                pairs.append((steps[False], steps[True]))
                print(f"{streams} streams: plain {1e3 * steps[False]:.2f} ms, constrained {1e3 * steps[True]:.2f} ms", flush=True)
            plain, constrained = (statistics.median(column) for column in zip(*pairs))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"{streams} streams: medians {1e3 * plain:.2f} and {1e3 * constrained:.2f} ms, {100 * (ratio - 1):+.1f} % a step")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
