#!/usr/bin/env python3
"""Checks the source tree's own rules: sizes, who may include whom, where foreign headers may be seen, words that are not
used, files that nothing uses. Prints one line per violation; the exit code is 1 if there is any.

    tests/tidy/tidy.py [ROOT]
"""

import pathlib
import re
import statistics
import subprocess
import sys

FILE_LINES_MAX = 800
COMMENT_COLUMNS_MAX = 128  # clang-format keeps code to as many and leaves comments alone
FILE_LINES_P90_MAX = 400
FUNCTION_LINES_MAX = 70
# A type that is defined here, and not within another one.
ONE_TYPE = re.compile(r"(?:struct|class|union)(?: alignas\([^)]*\)| \[\[.*?\]\])* (\w+)(?: final)?(?: :(?!:).*)? ?\{")
LONG_FUNCTIONS = "tests/tidy/long_functions.txt"  # "path function lines": what is longer than allowed, and may only shrink

# Folder -> folders whose headers it may include, beside its own and runtime/base. The longest matching folder counts.
ARROWS = {
    "runtime/base": [],
    "runtime/net": [],
    "profiler": [],
    "kernels": ["profiler"],
    "comm": ["profiler", "runtime/net"],
    "moe": ["kernels", "comm", "profiler"],
    "runtime/plan": ["moe"],
    "runtime/actions": ["profiler", "moe", "runtime/plan", "runtime/schedule"],
    "runtime/state": ["kernels", "profiler"],
    "runtime/schedule": [],
    "runtime/checkpoint": ["kernels", "profiler"],
    "runtime/text": [],
    "runtime/vision": [],
    "runtime/grammar": ["runtime/text", "runtime/schedule"],
    "runtime/model": ["kernels", "moe", "runtime/checkpoint", "runtime/state", "runtime/schedule", "runtime/vision", "profiler"],
    "runtime/trace": ["comm", "moe", "profiler", "runtime/schedule"],
    "runtime": ["kernels", "comm", "moe", "profiler", "runtime/net", "runtime/state", "runtime/schedule", "runtime/checkpoint", "runtime/text",
                "runtime/model", "runtime/vision", "runtime/trace", "runtime/plan"],
    "runtime/server": ["runtime", "runtime/net", "runtime/text", "runtime/grammar", "runtime/schedule", "runtime/trace", "runtime/actions", "ferry", "profiler"],
    "launch": ["launch", "runtime", "runtime/checkpoint", "runtime/text", "runtime/model", "runtime/schedule", "runtime/server",
               "runtime/trace", "runtime/plan", "runtime/actions", "moe", "kernels", "comm", "profiler"],
}
GENERATED = ("ferry/", "grpc/reflection/", "vllm/", "smg/", "build_info.h", "runtime/build_info.h", "profiler/export/perfetto.pb.h", "profiler/export/pprof.pb.h")  # includes of files that the build makes

# Header pattern -> path patterns of the files that may include it.
QUARANTINE = {
    r"mpi\.h": [r"comm/mpi/[^/]*\.cpp"],
    r"gloo/.*": [r"comm/gloo/[^/]*\.cpp"],
    r"(oneapi/dnnl/)?dnnl.*": [r"kernels/onednn/.*"],
    r"vulkan/.*|volk\.h": [r"kernels/vulkan/.*", r"tests/e2e/empty_driver\.cpp"],
    r"grpc/.*|grpcpp/.*|.*\.pb\.h": [r"runtime/server/.*", r"launch/.*", r"tests/runtime/server/.*", r"(tests/)?profiler/.*",
                                    r"tests/fuzz/server_targets\.cpp"],
    r"boost/crc\.hpp": [r"runtime/server/vllm/tokenizer_archive\.cpp"],
    r"boost/(?!crc\.hpp).*": [r"runtime/server/http2?/.*", r"tests/runtime/server/.*", r"tests/fuzz/server_targets\.cpp"],
    r"png\.h|jpeglib\.h|jerror\.h|gif_lib\.h|webp/.*": [r"runtime/vision/(png|jpeg|gif|webp)\.cpp"],
    r"zlib\.h": [r"(tests/)?profiler/report/page_data/.*", r"(tests/)?profiler/export/.*", r"profiler/archive/packed_records\.cpp"],
    r"xxhash\.h": [r"runtime/base/content_hash\.cpp"],
    r"xgrammar/.*|dlpack/.*": [r"runtime/grammar/xgrammar_engine\.cpp"],
    r"curl/.*": [r"runtime/server/picture_fetch\.cpp", r"launch/top/status_client\.cpp",
                 r"runtime/server/otlp/http_sender\.cpp"],
    r"openssl/.*": [r"comm/rendezvous/join_wire\.cpp", r"runtime/server/.*", r"runtime/vision/medium\.cpp", r"runtime/unit_contents\.cpp",
                    r"tests/runtime/server/.*", r"tests/support/certificate\.cpp"],
}

# (pattern over code without comments and strings, why, path pattern of files where it is allowed)
BANNED_CODE = [
    (r"\bnew\b", "raw new; use a value, a container or std::make_unique", r"tests/support/allocation_count\.cpp"),
    (r"(?<!= )(?<!=)\bdelete\b", "raw delete", r"tests/support/allocation_count\.cpp"),
    (r"\busing\s+namespace\b", "using namespace", None),
    (r"\bstd::endl\b", "std::endl; write '\\n'", None),
    (r"\b\w*json::(sax_)?(parse|accept|from_\w+)\b", "JSON from outside; read it with runtime/base/json.h", r"runtime/base/json\.cpp|tests/.*"),
    (r"\bgetenv\b", "getenv; options come from the command line", r"comm/mpi/.*|runtime/options/options\.cpp|launch/listen_on\.cpp|tests/e2e/empty_driver\.cpp|tests/nccl/.*"),
]
BANNED_TEXT = re.compile(r"\b(TO[D]O|FIX[M]E|X{3})\b")


def strip_code(text):
    """`text` with comments, strings and character literals blanked; line breaks stay."""
    pattern = re.compile(
        r'R"(?P<tag>[^()\\ ]*)\(.*?\)(?P=tag)"'
        r"|//[^\n]*|/\*.*?\*/"
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'",
        re.S,
    )
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def functions(text):
    """[(name, first line, number of lines)] of the function bodies in C++ code: an estimate by matching braces."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), strip_code(text), flags=re.M)
    found, stack, header_start = [], [], 0
    for position, char in enumerate(code):
        if char == "{":
            header = code[header_start:position]
            kind = _block_kind(header, stack[-1][0] if stack else "namespace")
            stack.append((kind, header_start + len(header) - len(header.lstrip()), header))
            if kind != "init":
                header_start = position + 1
        elif char == "}" and stack:
            kind, start, header = stack.pop()
            if kind == "function":
                first = code.count("\n", 0, start) + 1
                name = re.search(r"([~\w]+|operator\s*\S+)\s*\(", header)
                found.append((name[1] if name else "?", first, code.count("\n", 0, position) + 2 - first))
            if kind != "init":
                header_start = position + 1
        elif char == ";" and not _in_parentheses(code[header_start:position]):
            header_start = position + 1
    return found


def _in_parentheses(header):
    return header.count("(") > header.count(")")


def _block_kind(header, outer):
    if outer in ("function", "block"):
        return "block"
    if re.search(r"\)[^()]*[^:]:[^:].*[\w>]\s*$", header, re.S) or re.search(r"=\s*$", header) or _in_parentheses(header):
        return "init"  # a member's initialiser, a braced value, a default argument
    if re.search(r"\bnamespace\b|\bextern\b\s*$", header):
        return "namespace"
    if "(" in header:
        return "function"
    return "type"


def folder_of(path, folders):
    """The longest of `folders` that holds `path`."""
    inside = [folder for folder in folders if path.startswith(folder + "/")]
    return max(inside, key=len, default=None)


class Tree:
    """The source files of a checkout, and what is wrong with them."""

    def __init__(self, root, files):
        self.root = root
        self.files = files  # {path: text}
        self.violations = []

    @classmethod
    def load(cls, root):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
        names = sorted(set(listed.stdout.splitlines()))
        wanted = re.compile(r".*(\.(h|cpp|c|py|sh|proto|cmake|comp)|CMakeLists\.txt)$")
        return cls(root, {name: (root / name).read_text() for name in names if wanted.match(name) and (root / name).is_file()})

    def report(self, path, line, message):
        self.violations.append(f"{path}:{line}: {message}")

    def cpp_files(self):
        return {path: text for path, text in self.files.items() if path.endswith((".h", ".cpp"))}

    def check(self):
        self.check_file_sizes()
        self.check_function_sizes()
        self.check_one_definition()
        self.check_comment_widths()
        self.check_includes()
        self.check_words()
        self.check_dead_files()
        return self.violations

    def check_file_sizes(self):
        sizes = {path: text.count("\n") for path, text in self.files.items()}
        for path, lines in sizes.items():
            if lines > FILE_LINES_MAX:
                self.report(path, lines, f"{lines} lines, at most {FILE_LINES_MAX} are allowed")
        if len(sizes) >= 20:
            p90 = statistics.quantiles(sizes.values(), n=10)[-1]
            print(f"{len(sizes)} files, {sum(sizes.values())} lines, median {statistics.median(sizes.values()):.0f}, p90 {p90:.0f}")
            if p90 > FILE_LINES_P90_MAX:
                self.report("(all files)", 0, f"a tenth of them is longer than {p90:.0f} lines; {FILE_LINES_P90_MAX} are allowed")

    def check_function_sizes(self):
        allowed = {}
        list_path = self.root / LONG_FUNCTIONS
        if list_path.exists():
            for line in list_path.read_text().splitlines():
                if line.strip() and not line.startswith("#"):
                    path, name, lines = line.split()
                    allowed[path, name] = int(lines)
        seen = {}
        for path, text in self.cpp_files().items():
            for name, first, lines in functions(text):
                if lines > FUNCTION_LINES_MAX:
                    seen[path, name] = max(lines, seen.get((path, name), 0))
                    limit = allowed.get((path, name), FUNCTION_LINES_MAX)
                    if lines > limit:
                        self.report(path, first, f"function {name} has {lines} lines, at most {limit} are allowed")
        for (path, name), lines in allowed.items():
            if seen.get((path, name), 0) < lines:
                self.report(LONG_FUNCTIONS, 1, f"{path} {name} has {seen.get((path, name), 'no more than 70')} lines now: lower or drop its entry")

    def check_one_definition(self):
        """Two types of one name are one to the linker, which keeps one of what templates make of each."""
        defined = {}
        for path, text in self.cpp_files().items():
            namespaces = []
            for number, line in enumerate(text.splitlines(), 1):
                if match := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{$", line):
                    namespaces.append(match[1])
                elif line.startswith("}  // namespace"):
                    namespaces.pop()
                elif (match := ONE_TYPE.match(line)) and all(namespaces):
                    name = "::".join([*namespaces, match[1]])
                    first = defined.setdefault(name, path)
                    if first != path:
                        self.report(path, number, f"{name} is another type in {first}")

    def check_comment_widths(self):
        for path, text in self.cpp_files().items():
            for number, line in enumerate(text.splitlines(), 1):
                if len(line) > COMMENT_COLUMNS_MAX and re.search(r"(^|\s)//", line):
                    self.report(path, number, f"a comment of {len(line)} columns, at most {COMMENT_COLUMNS_MAX} are allowed")

    def includes(self, path):
        for number, line in enumerate(self.files[path].splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                yield number, match[1], match[2]

    def check_includes(self):
        for path in self.cpp_files():
            folder = folder_of(path, ARROWS)
            for line, bracket, header in self.includes(path):
                for pattern, places in QUARANTINE.items():
                    if re.fullmatch(pattern, header) and not any(re.fullmatch(place, path) for place in places):
                        self.report(path, line, f"{header} may be included in {' and '.join(places)} only")
                if bracket == "<":
                    continue
                if header not in self.files and not header.startswith(GENERATED):
                    self.report(path, line, f'"{header}" is not a path from the root of the tree')
                target = folder_of(header, list(ARROWS) + ["ferry"])
                allowed = [folder, "runtime/base", *ARROWS.get(folder, [])]
                if folder is not None and target is not None and target not in allowed:
                    self.report(path, line, f"{folder} must not include {target} ({header})")

    def check_words(self):
        for path, text in self.files.items():
            if not path.startswith("tests/tidy/"):
                for number, line in enumerate(text.splitlines(), 1):
                    match = BANNED_TEXT.search(line)
                    if match:
                        self.report(path, number, f"{match[0]}: finish it or leave it out")
        for path, text in self.cpp_files().items():
            if path.endswith(".h") and not re.match(r"#pragma once\n", text):
                self.report(path, 1, "a header begins with #pragma once")
            code = re.sub(r"^\s*#\s*include.*$", "", strip_code(text), flags=re.M)
            for pattern, why, allowed in BANNED_CODE:
                if allowed is not None and re.fullmatch(allowed, path):
                    continue
                for match in re.finditer(pattern, code):
                    self.report(path, code.count("\n", 0, match.start()) + 1, why)

    def check_dead_files(self):
        included = {header for path in self.cpp_files() for _, _, header in self.includes(path)}
        for path in self.cpp_files():
            if path.endswith(".h"):
                if path not in included and not self.is_precompiled(path):
                    self.report(path, 1, "no file includes this header")
            elif not self.is_built(path):
                self.report(path, 1, "no CMakeLists.txt names this file")

    def is_precompiled(self, path):
        named = re.compile(rf"ferry_precompile\(\w+ {re.escape(path)}[ )]")
        return any(named.search(text) for name, text in self.files.items() if name.endswith("CMakeLists.txt"))

    def is_built(self, path):
        stem = pathlib.PurePosixPath(path).stem
        stems = [re.escape(name) for name in {stem, stem.removesuffix("_test"), stem.removesuffix("_bench")}]
        named = re.compile(rf"(?<!\w)({'|'.join(stems)})(?!\w)")
        for parent in pathlib.PurePosixPath(path).parents:
            text = self.files.get(str(parent / "CMakeLists.txt"), "")
            if named.search(text) or re.search(r"file\s*\(\s*GLOB", text):
                return True
        return False


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2])
    violations = Tree.load(root).check()
    print("\n".join(violations) if violations else "tidy")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
