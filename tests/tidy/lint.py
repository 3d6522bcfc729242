#!/usr/bin/env python3
"""Runs clang-tidy with the checks of .clang-tidy over the sources of a build folder that are no tests and not generated; of the
kernels, which are compiled once per instruction set, over one. Prints what it finds; the exit code is 1 if there is any.

    tests/tidy/lint.py BUILD_FOLDER [PART_OF_A_PATH...]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ("runtime", "moe", "comm", "kernels", "profiler", "launch")
GCC_ONLY = re.compile(r"-include \S*cmake_pch\.hxx|-Winvalid-pch|-fpch-preprocess|-fvect-cost-model=\S+|-fno-reorder-blocks-and-partition|"
                      r"-fsanitize=\S+|-fno-sanitize\S*|-Wno-restrict|-Wno-subobject-linkage|-Wno-tsan|-Wno-maybe-uninitialized|-Werror")
# Findings in these files are told; of those that are compiled together, none but the list of them is the compiler's own source.
TOLD = rf"^{re.escape(str(ROOT))}/({'|'.join(OURS)})/[^:]*\.(h|cpp)$"


def sources(entry):
    """The files that the entry compiles: one, or several together, which the compiler reads one after another with their headers."""
    if not re.search(r"/unity_\d+_cxx\.cxx$", entry["file"]):
        return [entry["file"]]
    return re.findall(r'^#include "(.*)"$', pathlib.Path(entry["file"]).read_text(), re.M)


def is_ours(file):
    path = pathlib.Path(file)
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in OURS


def commands(database, wanted):
    """Compile commands that read each of the wanted sources of ours once, without what only g++ knows: (entry, number of sources)."""
    seen, chosen = set(), []
    for entry in database:
        files = {file for file in sources(entry) if is_ours(file)} - seen
        if not files or wanted and not any(part in file for part in wanted for file in files):
            continue
        seen |= files
        command = GCC_ONLY.sub("", re.sub(r"^\S*ccache ", "", entry["command"]))
        chosen.append(({**entry, "command": command}, len(files)))
    return chosen


def lint(folder, file):
    done = subprocess.run(["clang-tidy", "--quiet", "-p", folder, f"--header-filter={TOLD}", file], capture_output=True, text=True)
    found = re.findall(r"^/\S+: (?:warning|error): .*$", done.stdout, re.M)
    return found if found or done.returncode == 0 else [f"{file}: clang-tidy ended with {done.returncode}: {done.stderr[-500:]}"]


def main():
    build = pathlib.Path(sys.argv[1])
    chosen = commands(json.loads((build / "compile_commands.json").read_text()), sys.argv[2:])
    if not chosen:
        sys.exit(f"no source is named in {build}/compile_commands.json")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        entries = [entry for entry, _ in chosen]
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(entries))
        results = pool.map(lambda entry: lint(folder, entry["file"]), entries)
        found = sorted({line for lines in results for line in lines})
    print("\n".join(found))
    print(f"{sum(count for _, count in chosen)} sources, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
