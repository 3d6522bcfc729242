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
GCC_ONLY = re.compile(r"-fsanitize=\S+|-fno-sanitize\S*|-Wno-restrict|-Wno-subobject-linkage|-Wno-tsan|-Wno-maybe-uninitialized|-Werror")


def sources(entry):
    """The entry, or one for each source that it compiles together with others."""
    if not re.search(r"/unity_\d+_cxx\.cxx$", entry["file"]):
        return [entry]
    files = re.findall(r'^#include "(.*)"$', pathlib.Path(entry["file"]).read_text(), re.M)
    return [{**entry, "file": file, "command": entry["command"].replace(entry["file"], file)} for file in files]


def commands(database, wanted):
    """One compile command per source of ours, without what only g++ knows."""
    chosen = {}
    for entry in (source for together in database for source in sources(together)):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in OURS:
            continue
        if wanted and not any(part in entry["file"] for part in wanted):
            continue
        entry["command"] = GCC_ONLY.sub("", re.sub(r"^\S*ccache ", "", entry["command"]))
        chosen.setdefault(entry["file"], entry)
    return list(chosen.values())


def lint(folder, file):
    done = subprocess.run(["clang-tidy", "--quiet", "-p", folder, file], capture_output=True, text=True)
    found = re.findall(r"^/\S+: (?:warning|error): .*$", done.stdout, re.M)
    return found if found or done.returncode == 0 else [f"{file}: clang-tidy ended with {done.returncode}: {done.stderr[-500:]}"]


def main():
    build = pathlib.Path(sys.argv[1])
    chosen = commands(json.loads((build / "compile_commands.json").read_text()), sys.argv[2:])
    if not chosen:
        sys.exit(f"no source is named in {build}/compile_commands.json")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(chosen))
        results = pool.map(lambda entry: lint(folder, entry["file"]), chosen)
        found = sorted({line for lines in results for line in lines})
    print("\n".join(found))
    print(f"{len(chosen)} sources, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
