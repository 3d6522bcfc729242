"""The report page of a small traced bench, opened in a headless Chromium: what the tests of the page share.

As a program, `traced_page.py FOLDER` makes the bench's capture for all of them.
Environment: FERRY_BINARY (default build/release/launch/ferry), FERRY_CHROMIUM (default: found on the PATH), FERRY_PAGE_CAPTURE (that
folder; default: each test makes a capture of its own).
"""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
MPIRUN = ROOT / "launch/mpirun.sh"
RANKS = 3
BENCH = ("bench", "--model", "demo", "--memory", "256MiB", "-p", "23,61", "-b", "1,3", "-n", "7", "-r", "2")
COMMAND_SECONDS = 300
SKIPPED = 77  # the exit code that ctest takes for "skipped"

# Opens every table, which shows its first rows.
OPEN_DETAILS = """(async () => {
  for (const details of document.querySelectorAll("main details")) details.open = true;
  await new Promise((done) => setTimeout(done, 20));
})()"""


def open_all_rows(within):
    """Opens every table within a CSS selector and shows all its rows."""
    return f"""(async () => {{
      for (const details of document.querySelectorAll("{within} details")) details.open = true;
      await new Promise((done) => setTimeout(done, 20));
      for (let button; (button = document.querySelector("{within} button.more:not([hidden])"));) button.click();
    }})()"""


OPEN_TABLES = open_all_rows("main")


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def read_data(page):
    """The JSON that the page is drawn from."""
    return json.loads(re.search(r'id="report-data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S).group(1))


class Step:
    """A step's packed columns, read back: lists with an element a slice. Times are ns since the step's begin."""

    def __init__(self, facts, timelines):
        numbers = self._numbers(zlib.decompress(base64.b64decode(facts["data"])))
        column = lambda count: [next(numbers) for _ in range(count)]
        early = next(numbers)
        self.lanes = []  # (rank, kind, name, first, last)
        count = 0
        for _ in range(next(numbers)):
            lane, size = next(numbers), next(numbers)
            self.lanes.append((*timelines["lanes"][lane], count, count + size))
            count += size
        zones, _, _, self.a, self.b = (column(count) for _ in range(5))
        self.name = [timelines["zones"][zone][0] for zone in zones]
        self.begin = []
        for *_, first, last in self.lanes:
            at = -early
            for delta in column(last - first):
                at += delta
                self.begin.append(at)
        self.duration = column(count)
        self.length = facts["length_ns"]
        column(count)  # flags
        for _ in range(3):  # arrows
            column(2 * next(numbers))
        pieces = next(numbers)
        kinds, self.path_rank, _, self.path_slice, self.path_duration = (column(pieces) for _ in range(5))
        place = at = 0
        for i, move in enumerate(self.path_slice):
            self.path_slice[i] = place = place + (-(move // 2) - 1 if move % 2 else move // 2)
        for i, code in enumerate(self.path_duration):
            own, following = self.path_slice[i] - 1, self.path_slice[min(i + 1, pieces - 1)] - 1
            end = {0: self.begin[own] + self.duration[own], 1: self.begin[following]}.get(code, at + code - 2)
            self.path_duration[i], at = end - at, end
        self.path_kind = [timelines["path_kinds"][kind] for kind in kinds]

    @staticmethod
    def _numbers(data):
        value = shift = 0
        for byte in data:
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                yield value
                value = shift = 0

    def lane(self, rank, name):
        """(first, last) of that lane's slices."""
        return next((first, last) for r, _, n, first, last in self.lanes if (r, n) == (rank, name))

    def at(self, rank, name, ns):
        """Names of the slices of that lane at a moment, the outermost first."""
        return [self.name[i] for i in range(*self.lane(rank, name)) if self.begin[i] <= ns < self.begin[i] + self.duration[i]]


def make_capture(folder):
    run(MPIRUN, "-np", str(RANKS), FERRY, *BENCH, "--trace", folder)


def borrow_capture(shared, folder):
    """A capture whose report may be written anew, without a copy of what a report is made from."""
    folder.mkdir()
    for entry in shared.iterdir():
        if entry.name == "csv":
            shutil.copytree(entry, folder / entry.name)
        elif entry.stem == "report":
            shutil.copy(entry, folder)
        else:
            (folder / entry.name).symlink_to(entry)


class TracedPageTest(unittest.TestCase):
    """A bench's report in `report`."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ferry-report-")
        cls.addClassCleanup(cls.folder.cleanup)
        capture, shared = pathlib.Path(cls.folder.name) / "capture", os.environ.get("FERRY_PAGE_CAPTURE")
        if shared:
            borrow_capture(pathlib.Path(shared), capture)
        else:
            make_capture(capture)
        cls.report = capture / "report.html"
        cls.browser = browser.Browser(browser.find_chromium())
        cls.addClassCleanup(cls.browser.close)

    def show(self, width=1280, theme="light", page=None, place=""):
        self.browser.complaints.clear()
        self.browser.call("Page.navigate", url="about:blank")  # a page at another place of its own is not loaded anew
        self.browser.show((page or self.report).as_uri() + place, width, 900, theme)
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.ready"), "true", self.browser.complaints)

    def press(self, *keys):
        for key in keys:
            self.browser.press(key)

    def box(self, selector):
        """(left, top, width, height) of an element in the window, scrolled into it."""
        return self.browser.evaluate(
            f"(() => {{ const e = document.querySelector('{selector}'); e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()")


def skip_without_chromium():
    if browser.find_chromium() is None:
        print("skipped: no Chromium; install the package chromium or name one in FERRY_CHROMIUM")
        sys.exit(SKIPPED)


def main():
    skip_without_chromium()
    unittest.main()


if __name__ == "__main__":
    skip_without_chromium()
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    make_capture(sys.argv[1])
