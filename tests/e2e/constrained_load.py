#!/usr/bin/env python3
"""Asks a server for JSON under the schemas of wild_schemas.json by the thousand, and holds every answer against its schema.

    tests/e2e/constrained_load.py [--requests 10000] [--clients 8] [--seed 1] [--speculate 0 3 ngram:3] [-- OPTIONS OF ferry serve]

The schemas are kinds that people have (manifests, GeoJSON, parts of OpenAPI, functions, addresses, invoices, …). For each value of
--speculate a server of the demo model answers the same --requests requests: schemas in turn, every tenth greedy, the others seeded
at temperatures up to 1.5. Ids of quotes and brackets are favoured, since this small model would never end a string. What must
hold, else the exit code is 1:

- What ends by itself is valid for jsonschema, with its checks of formats. What was cut by max_tokens is counted, no more.
- Every answer is the same with drafts as without, character for character.
- A schema is refused at once, with status 400 and a reason, or never.

Needs PyPI once, for a virtual environment of its own (build/schema-venv). Environment: FERRY_BINARY, as the tests have it.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import sys
import time

import openai_test
import own_venv

SCHEMAS = pathlib.Path(__file__).parent / "wild_schemas.json"
SHOWN = 5  # answers that are wrong, at most
MAX_TOKENS = 400
FAVOUR = 7  # to the logits of CLOSERS
CLOSERS = ('"', '",', '"}', '"]', "}", "]", '":')
SECONDS = 300


def ask(address, path, fields):
    """The status and the answer."""
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def closer_bias(address):
    ids = [ask(address, "/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"] for text in CLOSERS]
    return {str(tokens[0]): FAVOUR for tokens in ids if len(tokens) == 1}


def fields_of(schema, number, seed, bias):
    choose = random.Random(f"{seed} {number}")
    topic = choose.choice(("river", "kernel", "courage", "database", "machine", "castle", "number", "garden"))
    return {
        "messages": [{"role": "user", "content": f"What does {topic} mean? Answer as JSON, number {choose.randrange(1000)}."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "wild", "schema": schema, "strict": True}},
        "temperature": 0 if number % 10 == 0 else choose.choice((0.5, 1, 1.5)),
        "seed": number,
        "max_tokens": MAX_TOKENS,
        "logit_bias": bias,
    }


class Round:
    """One server, and what it answered."""

    def __init__(self, speculate, cases, options):
        self.speculate, self._cases, self._options = speculate, cases, options
        self.counts = collections.Counter()
        self.answers = {}  # number of the request: text
        self.refused = {}  # name of the schema: why
        self.wrong = []
        self.seconds = 0.0

    def run(self):
        server = openai_test.Server("--speculate", self.speculate, "--max-context", "1024", *self._options.serve)
        try:
            self._address = server.url.removeprefix("http://")
            self._bias = closer_bias(self._address)
            self._sort_out()
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(self._options.clients) as pool:
                list(pool.map(self._one, range(self._options.requests)))
            self.seconds = time.monotonic() - begin
        finally:
            if server.stop() != 0:
                self.wrong.append("ferry serve did not end with 0")

    def _sort_out(self):
        """Leaves the schemas that are not refused."""
        kept = []
        for case in self._cases:
            status, answer = ask(self._address, "/v1/chat/completions", {**fields_of(case["schema"], 0, 0, {}), "max_tokens": 1})
            if status == 200:
                kept.append((case["name"], case["schema"], validator_of(case["schema"])))
            elif status == 400:
                self.refused[case["name"]] = answer["error"]["message"]
            else:
                self.wrong.append(f"{case['name']}: status {status}, {answer}")
        self._cases = kept

    def _one(self, number):
        name, schema, validator = self._cases[number % len(self._cases)]
        status, answer = ask(self._address, "/v1/chat/completions", fields_of(schema, number, self._options.seed, self._bias))
        if status != 200:
            self.counts["failed"] += 1
            return self.wrong.append(f"{name}, request {number}: status {status}, {answer}")
        choice = answer["choices"][0]
        text = self.answers[number] = choice["message"]["content"]
        self.counts["tokens"] += answer["usage"]["completion_tokens"]
        if choice["finish_reason"] != "stop":
            self.counts["cut"] += 1
            return None
        self.counts["ended"] += 1
        try:
            why = next((error.message for error in validator.iter_errors(json.loads(text))), None)
        except ValueError as error:
            why = f"is no JSON: {error}"
        if why is not None:
            self.counts["invalid"] += 1
            self.wrong.append(f"{name}, request {number}: {why}: {text}")
        return None

    def compare(self, plain):
        different = [number for number, text in self.answers.items() if plain.answers.get(number) != text]
        self.counts["different"] = len(different)
        self.wrong += [f"request {number}: {self.answers[number]!r} instead of {plain.answers.get(number)!r}" for number in different]


def validator_of(schema):
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speculate", nargs="+", default=["0", "3", "ngram:3"])
    parser.add_argument("serve", nargs="*", help="options of ferry serve, behind --")
    options = parser.parse_args()
    cases = json.loads(SCHEMAS.read_text())
    rounds = []
    for speculate in options.speculate:
        rounds.append(Round(speculate, cases, options))
        rounds[-1].run()
        if len(rounds) == 1:
            for name, why in rounds[0].refused.items():
                print(f"constrained_load: refused: {name}: {why}")
        else:
            rounds[-1].compare(rounds[0])
        counts = rounds[-1].counts
        share = f"{counts['ended'] - counts['invalid']} of {counts['ended']} valid, {counts['cut']} cut, {counts['failed']} failed"
        share += f", {counts['different']} other than without drafts" if len(rounds) > 1 else ""
        of = f"{len(cases) - len(rounds[-1].refused)} schemas"
        rate = f"{counts['tokens'] / rounds[-1].seconds:.0f} tokens/s"
        print(f"constrained_load: --speculate {speculate}: {of}: {share}; {rate}", flush=True)
        for wrong in rounds[-1].wrong[:SHOWN]:
            print(f"constrained_load: WRONG: {wrong}")
    return 1 if any(one.wrong for one in rounds) else 0


if __name__ == "__main__":
    own_venv.use_venv("schema-venv", "schema_requirements.txt")
    import jsonschema

    sys.exit(main())
