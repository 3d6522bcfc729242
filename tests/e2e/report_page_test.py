"""The report that `ferry bench --trace` writes, opened in a headless Chromium: nothing complains, nothing overflows, nothing is
fetched, every number of its tables is the CSV's, and what it says is in units for people. Skipped where there is no Chromium.
"""

import csv
import pathlib
import re

import traced_page
from traced_page import FIND_FAULTS, FIND_LOST_LANDMARKS, FIND_PALE_TEXT, OPEN_TABLES

WIDTHS = (360, 400, 768, 1024, 1061, 1280, 1500, 2560)

# {table id: [header names, rows of exact texts]}
READ_TABLES = """Object.fromEntries([...document.querySelectorAll("section[id^=view-]")].map((section) => [section.id.slice(5), [
  [...section.querySelectorAll("th[data-column]")].map((header) => header.dataset.column),
  [...section.querySelectorAll("details tbody tr")].filter((row) => !row.querySelector(".none"))
    .map((row) => [...row.cells].map((cell) => cell.querySelector("data")?.value ?? cell.textContent))]]))"""

# [tag, class, what it is cut by] of text that its box cuts, and that no box around it lets scroll.
FIND_CUT_TEXT = """(() => {
  const scrolls = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
  const cut = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    if (!e.getClientRects().length || e.closest(".hidden, svg, canvas, .results")) continue;
    const inside = (f) => { for (; f && f !== document.body; f = f.parentElement) if (scrolls(f)) return true; return false; };
    const r = e.getBoundingClientRect();
    if (!inside(e) && (r.right > innerWidth + 0.5 || r.left < -0.5)) cut.push([e.tagName, e.className, "the window"]);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX === "hidden" && !e.matches("td, .timeline-box, .result-label, .bar-track"))
      cut.push([e.tagName, e.className, "its box"]);
  }
  return cut.slice(0, 8);
})()"""

# Pairs of controls or headings that lie on one another.
FIND_OVERLAPS = """(() => {
  const all = [...document.querySelectorAll("main button, main select, main h2, main h3, main label, .bar-name, .bar-total, header button, header input, .brand")]
    .filter((e) => e.getClientRects().length && !e.closest(".scroll")).map((e) => [e, e.getBoundingClientRect()]);
  const pairs = [];
  all.forEach(([a, r], i) => all.slice(i + 1, i + 12).forEach(([b, q]) => {
    if (a.contains(b) || b.contains(a) || a.closest("header") !== b.closest("header")) return;
    if (Math.min(r.right, q.right) - Math.max(r.left, q.left) > 1 && Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top) > 1)
      pairs.push([a.textContent.slice(0, 30), b.textContent.slice(0, 30)]);
  }));
  return pairs.slice(0, 8);
})()"""


class ReportPageTest(traced_page.TracedPageTest):
    ranks = 2

    def test_is_small(self):
        self.assertLessEqual(self.report.stat().st_size, 3_000_000)

    def test_every_window_and_theme(self):
        self.browser.requests.clear()
        for width in WIDTHS:
            for theme in ("light", "dark") if width in (400, 1280) else ("light",):
                with self.subTest(width=width, theme=theme):
                    self.show(width, theme)
                    self.browser.until("document.querySelector('#timeline canvas')")
                    self.browser.evaluate(OPEN_TABLES)
                    self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), theme)
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width, "the page scrolls sideways")
                    self.assertEqual(self.browser.evaluate(FIND_CUT_TEXT), [])
                    self.assertEqual(self.browser.evaluate(FIND_OVERLAPS), [])
                    self.assertEqual(self.browser.evaluate(FIND_FAULTS), {})
                    self.assertEqual(self.browser.evaluate(FIND_LOST_LANDMARKS), [])
                    self.assertEqual(self.browser.evaluate(FIND_PALE_TEXT), [])
                    self.assertEqual(self.browser.complaints, [])
        self.assertEqual(set(self.browser.requests) - {self.report.as_uri(), "about:blank", "data:,"}, set(), "the page fetches something")

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

    def test_units_are_for_people(self):
        self.show()
        self.browser.evaluate(OPEN_TABLES)
        shown = self.browser.evaluate(
            "[...document.querySelectorAll('main td data, dd data')].map((d) => [d.value, d.title, d.textContent.replaceAll('\\u00a0', ' ')])")
        self.assertGreater(len(shown), 500)
        units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6, "%": 0.01, "": 1,
                 "FLOP": 1, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12}
        seen = set()
        for exact, title, text in shown:
            self.assertTrue(title.startswith(exact))
            number, unit = re.fullmatch(r"(-?[\d,.]+(?:e[+-]\d+)?) ?([A-Za-zµ%]*)", text).groups()
            seen.add(unit)
            value = float(number.replace(",", "")) * units[unit]
            given = float(exact) * {"ms": 1e3, "s": 1e6, "ns": 1e-3, "MiB": 2**20, "%": 0.01}.get((title.split() + [""])[1], 1)
            self.assertAlmostEqual(value, given, delta=max(0.006 * abs(given), 1e-9), msg=f"{exact} is shown as {text}")
            if unit in ("ns", "µs", "ms", "KiB", "MiB"):
                self.assertLess(abs(float(number.replace(",", ""))), 1024)
        self.assertLessEqual({"KiB", "MiB", "µs", "ms", "s", "%", "MFLOP"}, seen)

    def test_pictures(self):
        self.show()
        self.browser.until("document.querySelector('#timeline canvas')")
        drawn = self.browser.evaluate("[...document.querySelectorAll('section[id^=view-] .picture')].map((p) => p.parentElement.id.slice(5))")
        for table in ("critical_path", "run", "phase", "step", "layer", "layer_type", "operator", "expert", "request"):
            self.assertIn(table, drawn)
        self.browser.evaluate("new Promise((done) => setTimeout(done, 100))")
        blank = self.browser.evaluate(
            """[...document.querySelectorAll("canvas")].filter((canvas) => {
                 const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                 return new Set(new Uint32Array(pixels.buffer)).size < 3;
               }).map((canvas) => canvas.getAttribute("aria-label"))"""
        )
        self.assertEqual(blank, [])

    def test_types_of_layers_are_compared(self):
        self.show()
        with (self.report.parent / "csv/layer.csv").open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["layer"] != "-1"]
        phase = self.browser.evaluate("document.querySelector('.layer-diff .choice').textContent")
        mean = {}
        for kind, part in (("linear_attention", "deltanet_us"), ("full_attention", "attention_us")):
            times = [float(row[part]) for row in rows if row["layer_type"] == kind and row["phase"] == phase]
            mean[part] = sum(times) / len(times)
        row = self.browser.evaluate(
            "[...document.querySelectorAll('.butterfly tbody tr')].find((r) => r.cells[0].textContent === 'deltanet / attention')"
            ".textContent.replaceAll('\\u00a0', ' ')")
        numbers = [float(number) for number in re.findall(r"([\d.]+) µs", row)]
        self.assertAlmostEqual(numbers[0], mean["deltanet_us"], delta=0.01 * mean["deltanet_us"])
        self.assertAlmostEqual(numbers[1], mean["attention_us"], delta=0.01 * mean["attention_us"])

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
        column = """[...document.querySelectorAll('#view-expert tbody tr')].map(
            (row) => Number(row.cells[3].querySelector('data')?.value ?? row.cells[3].textContent))"""
        before = self.browser.evaluate(column)
        for wanted in (sorted(before, reverse=True), sorted(before)):
            self.browser.evaluate("document.querySelector('#view-expert th[data-column=tokens] button').click()")
            self.browser.evaluate(OPEN_TABLES)
            self.assertEqual(self.browser.evaluate(column), wanted)

    def test_links_lead_to_files_that_are_there(self):
        self.show()
        links = self.browser.evaluate("[...document.querySelectorAll('a:not([href^=\"#\"])')].map((a) => a.getAttribute('href'))")
        self.assertIn("trace.pftrace", links)
        self.assertIn("csv/step.csv", links)
        for link in links:
            self.assertTrue((self.report.parent / link).is_file(), link)

    def test_findings_lead_to_their_step(self):
        self.show()
        named = traced_page.read_data(self.report)["timelines"]["finding_steps"]
        shown = self.browser.evaluate("[...document.querySelectorAll('.card')].map((c) => c.querySelector('[href^=\"#step-\"]')?.hash ?? null)")
        self.assertEqual(shown, [None if step is None else f"#step-{step}" for step in named])

    def test_actions_are_shown_with_what_they_save(self):
        made = pathlib.Path(self.folder.name) / "actions.html"
        text = self.report.read_text(encoding="utf-8")
        action = '"actions":[{"text":"Give rank 1 two cores.","command":"ferry serve --threads 2","saved_ms":1234.5,"saved_share":0.142}],'
        made.write_text(re.sub(r'("findings":\[\{)', lambda found: found.group(1) + action, text, count=1), encoding="utf-8")
        self.show(page=made)
        card = self.browser.evaluate("document.querySelector('.card').innerText.replaceAll('\\u00a0', ' ')")
        for part in ("Give rank 1 two cores.", "predicted to save 1.23 s, 14.2 %", "ferry serve --threads 2"):
            self.assertIn(part, card)
        self.browser.evaluate("document.querySelector('.copy').click()")
        self.browser.until("['Copied', 'Selected'].includes(document.querySelector('.copy').textContent)")

    def test_theme_button_and_skip_link(self):
        self.show(1280, "light")
        self.browser.evaluate("document.getElementById('theme').click()")
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "dark")
        self.show(1280, "light")
        self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate("document.activeElement.hash"), "#main")

    def test_focus_is_seen_and_reaches_every_control(self):
        self.show()
        self.browser.until("document.querySelector('#timeline canvas')")
        wanted = self.browser.evaluate("document.querySelectorAll('button:not([hidden]):not(:disabled), a, input, select, summary, [tabindex=\"0\"]').length")
        reached = set()
        for _ in range(wanted + 30):
            self.browser.press("Tab")
            at, is_seen = self.browser.evaluate(
                """(() => { const e = document.activeElement; e.dataset.reached ??= String(document.querySelectorAll("[data-reached]").length);
                     return [e.dataset.reached, e === document.body || getComputedStyle(e).outlineStyle !== "none"]; })()""")
            self.assertTrue(is_seen, self.browser.evaluate("document.activeElement.outerHTML.slice(0, 120)"))
            reached.add(at)
        missed = self.browser.evaluate(
            """[...document.querySelectorAll('button:not([hidden]):not(:disabled), a, input, select, summary, [tabindex="0"]')]
                 .filter((e) => !e.dataset.reached && e.getClientRects().length).map((e) => e.outerHTML.slice(0, 90))""")
        self.assertEqual(missed, [])


if __name__ == "__main__":
    traced_page.main()
