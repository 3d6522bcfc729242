"""The report that `ferry bench --trace` writes, opened in a headless Chromium: nothing complains, nothing overflows, nothing is
fetched, and every number of its tables is the CSV's. Skipped where there is no Chromium.

Environment: FERRY_BINARY (default build/release/launch/ferry), FERRY_CHROMIUM (default: found on the PATH).
"""

import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
FERRY = os.environ.get("FERRY_BINARY", str(ROOT / "build/release/launch/ferry"))
BENCH = ("bench", "--model", "demo", "--memory", "256MiB", "-p", "23,61", "-b", "1,3", "-n", "7", "-r", "2")
BENCH_SECONDS = 300
SKIPPED = 77  # the exit code that ctest takes for "skipped"
WINDOWS = [(width, theme) for width in (1280, 400) for theme in ("light", "dark")]

# Opens every table and shows all its rows.
OPEN_TABLES = """(async () => {
  const frame = () => new Promise((done) => setTimeout(done, 20));
  for (const details of document.querySelectorAll("main details")) details.open = true;
  await frame();
  for (let button; (button = document.querySelector("button.more:not([hidden])")); await frame()) button.click();
})()"""

# {table id: [header names, rows of texts]}
READ_TABLES = """Object.fromEntries([...document.querySelectorAll("section[id^=view-]")].map((section) => [section.id.slice(5), [
  [...section.querySelectorAll("th")].map((header) => header.dataset.column),
  [...section.querySelectorAll("tbody tr")].filter((row) => !row.querySelector(".none"))
    .map((row) => [...row.cells].map((cell) => cell.textContent))]]))"""

# What a reader of the page needs: {complaint: elements}.
FIND_FAULTS = """(() => {
  const name = (element) => (element.getAttribute("aria-label") || element.textContent).trim();
  const faults = {
    "no name": [...document.querySelectorAll("button:not([hidden]), a, canvas, [role=application], [role=region]")].filter((e) => !name(e)),
    "same id": [...document.querySelectorAll("[id]")].filter((e) => document.querySelectorAll("#" + CSS.escape(e.id)).length > 1),
    "link to nowhere": [...document.querySelectorAll("a")].filter((a) => !document.getElementById(a.hash.slice(1))),
    "table without caption": [...document.querySelectorAll("table")].filter((table) => !table.caption?.textContent),
    "header without scope": [...document.querySelectorAll("th:not([scope])")],
  };
  return Object.fromEntries(Object.entries(faults).filter(([, found]) => found.length).map(([fault, found]) => [fault, found.map((e) => e.outerHTML.slice(0, 90))]));
})()"""

# [text, contrast] of what is harder to read than WCAG's 4.5 : 1.
FIND_PALE_TEXT = """(() => {
  const channels = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const luminance = (c) => c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const color = channels(getComputedStyle(element).backgroundColor);
      if (color.length && color[3] !== 0) return color;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const element of document.querySelectorAll("body *:not(script):not(style):not(option)")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), inDrawing = element.namespaceURI.endsWith("svg");
    const a = luminance(channels(inDrawing ? style.fill : style.color)), b = luminance(ground(element));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) pale.push([element.textContent.slice(0, 40), contrast.toFixed(2)]);
  }
  return pale.slice(0, 10);
})()"""


class ReportPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ferry-report-")
        cls.addClassCleanup(cls.folder.cleanup)
        command = [FERRY, *BENCH, "--trace", cls.folder.name]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BENCH_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        cls.report = pathlib.Path(cls.folder.name) / "report.html"
        cls.browser = browser.Browser(browser.find_chromium())
        cls.addClassCleanup(cls.browser.close)

    def show(self, width=1280, theme="light"):
        self.browser.show(self.report.as_uri(), width, 900, theme)
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.ready"), "true", self.browser.complaints)

    def test_is_small(self):
        self.assertLess(self.report.stat().st_size, 5_000_000)

    def test_every_window_and_theme(self):
        for width, theme in WINDOWS:
            with self.subTest(width=width, theme=theme):
                self.show(width, theme)
                self.browser.evaluate(OPEN_TABLES)
                self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), theme)
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width, "the page scrolls sideways")
                self.assertEqual(self.browser.evaluate(FIND_FAULTS), {})
                self.assertEqual(self.browser.evaluate(FIND_PALE_TEXT), [])
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual(set(self.browser.requests) - {self.report.as_uri(), "data:,"}, set(), "the page fetches something")

    def test_numbers_are_the_csvs(self):
        self.show()
        self.browser.evaluate(OPEN_TABLES)
        tables = self.browser.evaluate(READ_TABLES)
        files = sorted((self.report.parent / "csv").glob("*.csv"))
        self.assertEqual(sorted(tables), [file.stem for file in files])
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(table=file.stem), file.open(newline="", encoding="utf-8") as lines:
                header, *rows = csv.reader(lines)
                shown_header, shown_rows = tables[file.stem]
                self.assertEqual(shown_header, header)
                self.assertEqual(len(shown_rows), len(rows))
                self.assertEqual([(row, shown) for row, shown in zip(rows, shown_rows) if row != shown][:3], [])

    def test_pictures(self):
        self.show()
        drawn = self.browser.evaluate("[...document.querySelectorAll('section[id^=view-] .picture')].map((p) => p.parentElement.id.slice(5))")
        for table in ("run", "phase", "step", "layer", "operator", "expert", "request"):
            self.assertIn(table, drawn)
        blank = self.browser.evaluate(
            """[...document.querySelectorAll("canvas")].filter((canvas) => {
                 const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                 return new Set(new Uint32Array(pixels.buffer)).size < 3;
               }).map((canvas) => canvas.getAttribute("aria-label"))"""
        )
        self.assertEqual(blank, [])

    def test_heat_map_answers_to_keys(self):
        self.show(400)
        reading = "document.querySelector('#view-expert output').textContent"
        hint = self.browser.evaluate(reading)
        self.browser.evaluate("document.querySelector('#view-expert canvas').focus()")
        readings = [hint]
        for key in ("ArrowRight", "ArrowDown", "ArrowRight", "End"):
            self.browser.press(key)
            readings.append(self.browser.evaluate(reading))
            self.assertRegex(readings[-1], r"Layer \d+, expert \d+")
        self.assertEqual(len(set(readings)), len(readings), readings)

    def test_tables_sort(self):
        self.show()
        self.browser.evaluate(OPEN_TABLES)
        column = "[...document.querySelectorAll('#view-expert tbody tr')].map((row) => Number(row.cells[3].textContent))"
        before = self.browser.evaluate(column)
        for wanted in (sorted(before, reverse=True), sorted(before)):
            self.browser.evaluate("document.querySelector('#view-expert th[data-column=tokens] button').click()")
            self.browser.evaluate(OPEN_TABLES)
            self.assertEqual(self.browser.evaluate(column), wanted)

    def test_theme_button_and_skip_link(self):
        self.show(1280, "light")
        self.browser.evaluate("document.getElementById('theme').click()")
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "dark")
        self.show(1280, "light")
        self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate("document.activeElement.hash"), "#main")


if __name__ == "__main__":
    if browser.find_chromium() is None:
        print("skipped: no Chromium; install the package chromium or name one in FERRY_CHROMIUM")
        sys.exit(SKIPPED)
    unittest.main()
