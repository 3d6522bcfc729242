#!/usr/bin/env python3
"""Compiles a GLSL compute shader to optimised SPIR-V, and writes OUTPUT.spv.d, which tells Ninja what it was made of.

    compile_shader.py COMPILER_LIB OUTPUT.spv SOURCE.comp [NAME[=VALUE]...]

The definitions follow the shader's #version. #include "file" means a file beside the one that includes it, or else one from the
root of the tree, and takes it once. Where a shader does not compile, the exit code is 1 and the first line names file and line.
"""

import ctypes
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
PRAGMA_ONCE = re.compile(r"\s*#\s*pragma\s+once\b")
VERSION = re.compile(r"\s*#\s*version\b")
ERROR = re.compile(r"^ERROR: (.*:\d+: .*\S)", re.M)


class Failure(Exception):
    """Why there is no SPIR-V, the first line in short."""


class Expansion:
    """The lines of a shader and of all it includes. #line tells the compiler whose they are. That a file is taken once is left to
    the preprocessor too, since an #include may stand under an #if."""

    def __init__(self, source):
        self.files = []
        self.lines = []
        self._open = []
        self._take(source)

    def _take(self, path):
        if path not in self.files:
            self.files.append(path)
        self._open.append(path)
        for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
            include = INCLUDE.match(line)
            if include:
                self._include(include[1], path)
                self.lines.append(line_directive(number + 1, path))
            else:
                self.lines.append("" if PRAGMA_ONCE.match(line) else line)
        self._open.pop()

    def _include(self, name, includer):
        places = [os.path.normpath(os.path.join(folder, name)) for folder in (os.path.dirname(includer), ROOT)]
        path = next(filter(os.path.isfile, places), None)
        if path is None:
            self.lines.append(f'#error "{name}" is not there to include')
        elif path not in self._open:
            guard = f"INCLUDED_{self.files.index(path) if path in self.files else len(self.files)}"
            self.lines += [f"#ifndef {guard}", f"#define {guard}", line_directive(1, path)]
            self._take(path)
            self.lines.append("#endif")


def line_directive(number, path):
    return f'#line {number} "{path}"'


def with_definitions(lines, source, definitions):
    """The lines with a #define for each NAME[=VALUE] behind #version, before which nothing but comments may stand."""
    for number, line in enumerate(lines, 1):
        if VERSION.match(line):
            defines = ["#define " + definition.replace("=", " ", 1) for definition in definitions]
            return lines[:number] + defines + [line_directive(number + 1, source)] + lines[number:]
    raise Failure(f"{source}:1: there is no #version")


Receiver = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class CompileRequest(ctypes.Structure):
    """glslang_CompileRequest_1_2 of source/slang-glslang/slang-glslang.h in shader-slang/slang."""

    _fields_ = [
        ("size_bytes", ctypes.c_size_t),
        ("source_path", ctypes.c_char_p),
        ("input_begin", ctypes.c_void_p),
        ("input_end", ctypes.c_void_p),
        ("on_message", Receiver),
        ("message_context", ctypes.c_void_p),
        ("on_output", Receiver),
        ("output_context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("action", ctypes.c_uint),
        ("optimisation_level", ctypes.c_uint),
        ("debug_info", ctypes.c_uint),
        ("target_name", ctypes.c_char_p),
        ("spirv_version", ctypes.c_int * 3),
        ("entry_point", ctypes.c_char_p),
    ]


def compile_glsl(compiler, source, text):
    """SPIR-V of a text, and what the compiler says of it.

    glslang_compile_1_2 is an internal C interface: slang calls its own copy of glslang by it and promises it to nobody. It cannot
    change under us, since the file is pinned to the byte: requirements.txt holds the hash of the wheel that it comes from.
    """
    spirv, messages = bytearray(), bytearray()
    keep_spirv = Receiver(lambda data, size, _: spirv.extend(ctypes.string_at(data, size)))
    keep_message = Receiver(lambda data, size, _: messages.extend(ctypes.string_at(data, size)))
    code = text.encode()
    buffer = ctypes.create_string_buffer(code)
    request = CompileRequest(
        size_bytes=ctypes.sizeof(CompileRequest),
        source_path=source.encode(),
        input_begin=ctypes.addressof(buffer),
        input_end=ctypes.addressof(buffer) + len(code),
        on_message=keep_message,
        on_output=keep_spirv,
        stage=6,  # compute
        action=0,  # GLSL to SPIR-V
        optimisation_level=2,  # the passes of spirv-opt -O
        debug_info=0,
        target_name=None,  # the version decides; the names known end before Vulkan 1.3
        spirv_version=(1, 6, 0),  # Vulkan 1.3's
        entry_point=b"main",
    )
    try:
        failed = ctypes.CDLL(compiler).glslang_compile_1_2(ctypes.byref(request))
    except (OSError, AttributeError) as error:
        raise Failure(f"{compiler}: not the shader compiler: {error}") from error
    said = messages.decode(errors="replace").strip()
    if failed or not spirv:
        first = ERROR.search(said)
        raise Failure(f"{first[1] if first else source + ': does not compile'}\n{said}")
    return bytes(spirv), said


def depfile(output, files):
    def escaped(path):
        return re.sub(r"([ #])", r"\\\1", path).replace("$", "$$")

    return f"{escaped(output)}: {' '.join(escaped(path) for path in files)}\n"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    compiler, output, source, *definitions = sys.argv[1:]
    try:
        expansion = Expansion(os.path.normpath(source))
        lines = with_definitions(expansion.lines, source, definitions)
        spirv, said = compile_glsl(compiler, source, "\n".join(lines) + "\n")
    except (Failure, OSError) as failure:
        sys.exit(f"{failure}\nin {pathlib.Path(output).name}, which is {' '.join([source, *definitions])}")
    if said:
        print(said, file=sys.stderr)
    pathlib.Path(output).write_bytes(spirv)
    pathlib.Path(output + ".d").write_text(depfile(output, expansion.files))


if __name__ == "__main__":
    main()
