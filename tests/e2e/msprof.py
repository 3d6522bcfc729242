"""msprof-analyze as tests run it, and how they read what it writes. To be imported in build/ascend-venv (own_venv.py).

Its commands take a second or two to import what they need, and less to do their work. So that is imported here, once, and each
command is a fork of the test's process: nothing of one reaches the next one. So are the processes that commands start, which would
import everything again otherwise. Two commands run at a time.
"""

import collections
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree
import zipfile

SECONDS = 300.0
AT_ONCE = 2
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


class Command:
    """A command while it runs; its output is a file's, so that it never waits for a reader."""

    def __init__(self, arguments, folder):
        self.arguments = [str(argument) for argument in arguments]
        self.output = tempfile.TemporaryFile()
        self.end = time.monotonic() + SECONDS
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(folder)

    def _become(self, folder):
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            for stream in (1, 2):
                os.dup2(self.output.fileno(), stream)
            sys.argv = ["msprof-analyze", *self.arguments]
            msprof_analyze_cli(self.arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def has_ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.monotonic() > self.end:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError(f"msprof-analyze {' '.join(self.arguments)} did not end within {SECONDS} s: {self.text()}")
        if pid != 0 and os.waitstatus_to_exitcode(status) != 0:
            raise AssertionError(f"msprof-analyze {' '.join(self.arguments)} ended with {os.waitstatus_to_exitcode(status)}: {self.text()}")
        return pid != 0

    def text(self):
        self.output.seek(0)
        with self.output:
            return self.output.read().decode(errors="replace")


def msprof_analyze(commands, folder):
    """The output of each of `commands` (lists of arguments), all run in `folder`. One that fails ends the test."""
    waiting, running, outputs = collections.deque(enumerate(commands)), {}, [None] * len(commands)
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, arguments = waiting.popleft()
            running[number] = Command(arguments, folder)
        for number, command in list(running.items()):
            if command.has_ended():
                outputs[number] = running.pop(number).text()
        time.sleep(0.01)
    return outputs


def complaints_of(output):
    """Lines by which it says that something went wrong."""
    return [line for line in output.splitlines() if "[ERROR]" in line or "Traceback" in line or "Error: " in line]


def read_sheets(path):
    """{sheet: rows} of an .xlsx file, a row as its cells: texts and numbers; those left out are None."""
    with zipfile.ZipFile(path) as book:
        read = lambda name: xml.etree.ElementTree.fromstring(book.read(name))  # noqa: E731
        texts = ["".join(text.itertext()) for text in read("xl/sharedStrings.xml").iter(f"{SHEET}si")]
        names = [sheet.get("name") for sheet in read("xl/workbook.xml").iter(f"{SHEET}sheet")]
        return {name: [_cells(row, texts) for row in read(f"xl/worksheets/sheet{i}.xml").iter(f"{SHEET}row")] for i, name in enumerate(names, 1)}


def _cells(row, texts):
    cells = {}
    for cell in row.iter(f"{SHEET}c"):
        value = cell.find(f"{SHEET}v")
        if value is not None:
            column = "".join(c for c in cell.get("r") if c.isalpha())
            assert len(column) == 1, column
            cells[ord(column) - ord("A")] = texts[int(value.text)] if cell.get("t") == "s" else float(value.text)
    return [cells.get(column) for column in range(max(cells, default=-1) + 1)]


def _import_tool():
    """All that its commands use, before the first fork."""
    import pandas  # noqa: F401
    import sqlalchemy  # noqa: F401
    import xlsxwriter  # noqa: F401

    from msprof_analyze.cli.entrance import msprof_analyze_cli

    multiprocessing.set_start_method("fork", force=True)  # importing the tool sets another
    return msprof_analyze_cli


msprof_analyze_cli = _import_tool()
