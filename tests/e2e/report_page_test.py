"""The report that `ferry bench --trace` writes, opened in a headless Chromium: nothing complains, nothing overflows, nothing is
fetched, every number of its tables is the CSV's, and what it says is in units for people. Skipped where there is no Chromium.
"""

import collections
import csv
import itertools
import json
import pathlib
import re

import traced_page
from page_checks import FIND_CUT_TEXT, FIND_FAULTS, FIND_LOST_LANDMARKS, FIND_OVERLAPS, FIND_PALE_TEXT, FIND_UNSEEN_FOCUS, NOTE_DRAWN_TEXTS, PLANTED
from traced_page import OPEN_DETAILS, OPEN_TABLES

WINDOWS = {"light": (360, 768, 1024, 1061, 1280, 1500, 2560, 400), "dark": (400, 1280)}  # widths, the page being opened in the first

# {table id: [header names, rows of exact texts]}
READ_TABLES = """Object.fromEntries([...document.querySelectorAll("section[id^=view-]")].map((section) => [section.id.slice(5), [
  [...section.querySelectorAll("th[data-column]")].map((header) => header.dataset.column),
  [...section.querySelectorAll("details tbody tr")]
    .map((row) => [...row.cells].map((cell) => cell.querySelector("data")?.value ?? cell.textContent))]]))"""


def bytes_of(told):
    """Of "KV cache 1.5 MiB (3.0 %)"."""
    number, unit = re.search(r"(-?[\d.]+) ([KMG]?i?B)", told).groups()
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


class ReportPageTest(traced_page.TracedPageTest):
    def test_is_small(self):
        self.assertLessEqual(self.report.stat().st_size, 3_000_000)

    def test_every_window_and_theme(self):
        self.browser.requests.clear()
        for theme, widths in WINDOWS.items():
            self.show(widths[0], theme)
            self.browser.until("document.querySelector('#timeline canvas')")
            self.browser.evaluate(OPEN_DETAILS)
            for width in widths:
                with self.subTest(width=width, theme=theme):
                    self.browser.resize(width, 900)
                    if width == widths[-1]:  # all rows once in either theme: further ones have the columns and styles of the first
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

    def test_checks_see_planted_faults(self):
        self.show()
        place = "document.getElementById('planted')"
        for check, plant, complaint in PLANTED:
            with self.subTest(plant=plant):
                self.browser.evaluate("document.getElementById('main').append(Object.assign(document.createElement('div'), {id: 'planted'}))")
                self.assertNotIn(complaint, str(self.browser.evaluate(check)))
                self.browser.evaluate(plant.replace("{}.", f"{place}."))
                self.assertIn(complaint, str(self.browser.evaluate(check)))
                self.browser.evaluate(f"{place}.remove()")
        self.browser.evaluate("document.documentElement.lang = ''")
        self.assertIn("no language", self.browser.evaluate(FIND_FAULTS))

    def test_text_in_pictures_is_read_easily(self):
        note = self.browser.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_DRAWN_TEXTS)["identifier"]
        self.addCleanup(self.browser.call, "Page.removeScriptToEvaluateOnNewDocument", identifier=note)
        for theme in ("light", "dark"):
            with self.subTest(theme=theme):
                self.show(1280, theme)
                self.browser.until("document.querySelector('#timeline canvas')")
                drawn = self.browser.evaluate("drawnTexts")
                self.assertGreater(len(drawn), 100)
                self.assertEqual([text for text in drawn if text[1] < 4.5][:8], [])
        # And would be seen to be hard to read: a redraw in another colour.
        self.browser.evaluate("drawnTexts.length = 0, document.documentElement.style.setProperty('--muted', '#5e6468')")
        self.browser.evaluate("document.querySelector('#view-step canvas').focus()")
        self.press("ArrowRight")
        self.assertTrue([text for text, seen in self.browser.evaluate("drawnTexts") if seen < 4.5])

    def test_numbers_are_the_csvs_and_have_units_for_people(self):
        self.show()
        self.browser.evaluate(OPEN_TABLES)
        self.check_numbers()
        self.check_units()

    def check_numbers(self):
        tables = self.browser.evaluate(READ_TABLES)
        files = sorted((self.report.parent / "csv").glob("*.csv"))
        empty = [file for file in files if len(file.read_text(encoding="utf-8").splitlines()) == 1]
        files = [file for file in files if file not in empty]
        self.assertEqual(sorted(tables), [file.stem for file in files])
        self.assertGreater(len(files), 10)
        for file in files:
            with self.subTest(table=file.stem), file.open(newline="", encoding="utf-8") as lines:
                header, *rows = csv.reader(lines)
                shown_header, shown_rows = tables[file.stem]
                self.assertEqual(shown_header, header)
                self.assertEqual(len(shown_rows), len(rows))
                self.assertEqual([(row, shown) for row, shown in zip(rows, shown_rows) if row != shown][:3], [])

    def test_what_there_is_nothing_of_is_named_in_a_sentence(self):
        titles = [table["title"] for table in traced_page.read_data(self.report)["tables"] if not table["rows"]]
        self.assertIn("Drafts", titles)
        self.show()
        self.assertEqual(self.browser.evaluate("document.getElementById('empty-tables').textContent"),
                         f"Nothing of this capture is in: {', '.join(titles)}.")
        contents = self.browser.evaluate("[...document.querySelectorAll('.toc a')].map((link) => link.textContent)")
        self.assertEqual(set(contents) & set(titles), set())
        self.browser.evaluate(OPEN_DETAILS)
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('tbody')].filter((body) => body.rows.length === 0).length"), 0)

    def check_units(self):
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
        for table in ("critical_path", "run", "phase", "step", "layer", "layer_type", "kernel", "kernel_layer", "operator", "expert", "request",
                      "memory_timeline"):
            self.assertIn(table, drawn)
        self.browser.evaluate("new Promise((done) => setTimeout(done, 100))")
        blank = self.browser.evaluate(
            """[...document.querySelectorAll("canvas")].filter((canvas) => {
                 const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
                 return new Set(new Uint32Array(pixels.buffer)).size < 3;
               }).map((canvas) => canvas.getAttribute("aria-label"))"""
        )
        self.assertEqual(blank, [])

    def test_flame_graph_adds_up_and_is_searched(self):
        capture = self.report.parents[1] / "stacks"
        command = (traced_page.FERRY, "bench", "--model", "demo", "--memory", "256MiB", "-p", "200", "-b", "2", "-n", "20")
        traced_page.run(*command, "--threads", "2", "--profile", "2", "--trace", capture)
        for theme in ("light", "dark"):
            self.show(theme=theme, page=capture / "report.html")
            self.assertEqual(self.browser.evaluate(FIND_PALE_TEXT), [])
        graph = "document.querySelector('svg.flame')"
        with (capture / "csv" / "folded_stack.csv").open() as file:
            rows = list(csv.DictReader(file))
        self.assertGreater(len(rows), 10)
        whole = sum(float(row["cpu_ms"]) for row in rows)
        functions = {}
        for row in rows:
            for name in set(row["stack"].split(";")):
                functions[name] = functions.get(name, 0) + float(row["cpu_ms"])
        name = max((name for name in functions if name.startswith("ferry::")), key=functions.get)
        found = sum(float(row["cpu_ms"]) for row in rows if any(name.lower() in each.lower() for each in row["stack"].split(";")))
        self.browser.evaluate(
            f"(() => {{ const field = document.querySelector('[aria-label=\"Search the flame graph\"]'); field.value = {json.dumps(name)};"
            " field.dispatchEvent(new Event('input')); })()")
        said = self.browser.evaluate(f"{graph}.closest('section').innerText")
        share = float(re.search(r"([\d.]+)\s*% of the CPU time", said)[1])
        self.assertAlmostEqual(share, 100 * found / whole, delta=0.06)
        self.assertGreater(self.browser.evaluate("document.querySelectorAll('.flame-found').length"), 0)

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

    def read_csv(self, table):
        with (self.report.parent / f"csv/{table}.csv").open(newline="", encoding="utf-8") as lines:
            return list(csv.DictReader(lines))

    def told(self, table):
        """The parts of the readout of a table's first picture."""
        return self.browser.evaluate(f"[...document.querySelector('#view-{table} output').children].map((e) => e.textContent.replaceAll('\\u00a0', ' '))")

    def shown_phase(self, table):
        return self.browser.evaluate(f"document.querySelector('#view-{table} .choice[aria-pressed=true]').textContent")

    def test_kernels_of_a_step_are_told_by_keys(self):
        self.show()
        phase = self.shown_phase("kernel")
        self.assertRegex(phase, "decode")
        rows = sorted((row for row in self.read_csv("kernel") if row["phase"] == phase), key=lambda row: float(row["start_us"]))
        self.browser.evaluate("document.querySelector('#view-kernel canvas').focus()")
        self.press("Home")
        seen = [self.told("kernel")]
        for _ in range(30):
            self.press("ArrowRight")
            seen.append(self.told("kernel"))
        self.assertEqual([parts[0] for parts in seen], [row["kernel"] for row in rows[:31]])
        self.assertEqual([parts[1] for parts in seen], [row["layer_name"] for row in rows[:31]])
        self.press("Home", "ArrowDown")
        self.assertRegex(self.told("kernel")[1], r"layers\.0\b")
        self.press("ArrowDown")
        self.assertRegex(self.told("kernel")[1], r"layers\.1\b")
        layers = {row["layer"] for row in rows if row["layer"]}
        self.press(*["ArrowDown"] * (len(layers) - 1))
        self.assertNotIn("layers", self.told("kernel")[1], "what comes behind the layers is a strip of its own")
        self.press("End")
        self.assertEqual(self.told("kernel")[0], rows[-1]["kernel"])

    def point_along_kernels(self, layer, begin):
        """Names of the kernels of a layer's strip as the pointer comes upon them, from `begin`, a share of the picture's width, on."""
        self.browser.evaluate("new Promise((done) => setTimeout(done, 60))")
        left, top, width, _ = self.box("#view-kernel canvas")
        seen = []
        for at in range(int(begin * width), int(width), 16):  # less than a kernel is wide where each is as wide as the next
            self.browser.point("mouseMoved", left + at, top + 24 + (layer + 1) * 27 + 8)  # one strip before those of layers
            name, where = (self.told("kernel") or [None, None])[:2]
            if name is None:
                continue  # still among the layers' names
            self.assertRegex(where, rf"layers\.{layer}\b")
            seen += [name] if seen[-1:] != [name] else []
        return seen

    def test_kernels_of_a_step_are_told_by_pointing(self):
        self.show()
        phase = self.shown_phase("kernel")
        own = [row for row in self.read_csv("kernel") if row["phase"] == phase and row["layer"] and row["rank"] == "0"]
        layer = collections.Counter(row["layer"] for row in own).most_common(1)[0][0]  # its strip is the longest: it fills the width
        kernels = [row for row in own if row["layer"] == layer]
        longest = max(kernels, key=lambda row: float(row["duration_us"]))["kernel"]
        names = [name for name, _ in itertools.groupby(row["kernel"] for row in kernels)]
        for choice in ("by time", "by its layer's time", "each the same"):
            self.browser.evaluate(f"[...document.querySelectorAll('#view-kernel .choice')].find((b) => b.textContent === {choice!r}).click()")
            seen, wanted = self.point_along_kernels(int(layer), 0.06), iter(names)
            self.assertTrue(all(name in wanted for name in seen), f"{seen} is not their order")
            if choice != "by time":
                self.assertIn(longest, seen)
        self.assertEqual(seen, names, "each the same: all of them")

    def test_names_of_layers_leave_most_of_a_narrow_picture_to_kernels(self):
        self.show(360)
        self.browser.evaluate("[...document.querySelectorAll('#view-kernel .choice')].find((b) => b.textContent === 'each the same').click()")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 60))")
        left, top, width, _ = self.box("#view-kernel canvas")
        self.browser.point("mouseMoved", left + 0.4 * width, top + 24 + 27 + 8)
        self.assertRegex(self.told("kernel")[1], r"layers\.0\b")

    def test_kernels_of_layers_lie_side_by_side(self):
        self.show()
        phase = self.shown_phase("kernel_layer")
        rows = [row for row in self.read_csv("kernel_layer") if row["phase"] == phase]
        own = [row for row in rows if not (row["left_kernel"] or row["right_kernel"]).startswith("wait")]
        self.assertLess(len(own), len(rows))
        names = "[...document.querySelectorAll('#view-kernel_layer .bar-chart:last-child .bar-name')].map((e) => e.firstChild.data)"
        self.assertEqual(self.browser.evaluate(names), [row["left_kernel"] or row["right_kernel"] for row in own])
        # Bars are as long as the times that they stand for.
        widths = self.browser.evaluate("""[...document.querySelectorAll('#view-kernel_layer .bar-chart:last-child .bar-row')].map(
            (row) => [...row.querySelectorAll('.bar-track')].map((t) => (t.firstChild?.getBoundingClientRect().width ?? 0) / t.clientWidth))""")
        times = [[float(row["left_us"] or 0), float(row["right_us"] or 0)] for row in own]
        most = max(map(max, times))
        for width, time in zip(widths, times, strict=True):
            for side in (0, 1):
                self.assertAlmostEqual(width[side], time[side] / most, delta=0.01)
        self.browser.evaluate("[...document.querySelectorAll('#view-kernel_layer .choice')].find((b) => b.textContent === 'shown').click()")
        self.assertEqual(self.browser.evaluate(names), [row["left_kernel"] or row["right_kernel"] for row in rows])
        totals = self.browser.evaluate("[...document.querySelectorAll('#view-kernel_layer .bar-chart .bar-total')].slice(0, 2).map((e) => e.textContent)")
        for side, total in zip(("left_us", "right_us"), totals):
            number, unit = total.split("\u00a0")
            self.assertAlmostEqual(float(number) * {"µs": 1, "ms": 1e3}[unit], sum(float(row[side] or 0) for row in rows), delta=0.01 * float(number) * 1e3)

    def test_memory_over_time_adds_up(self):
        self.show()
        sums = {}
        for row in self.read_csv("memory_timeline"):
            of_rank = sums.setdefault(row["rank"], {})
            of_rank[row["at_ms"]] = of_rank.get(row["at_ms"], 0) + int(row["bytes"])
        self.assertEqual(sorted(sums), [str(rank) for rank in range(traced_page.RANKS)])
        self.browser.evaluate("document.querySelector('#view-memory_timeline canvas').focus()")
        for rank, keys in (("0", ("End",)), ("0", ("Home",)), ("1", ("ArrowDown", "Home"))):
            self.press(*keys)
            title, resident, *kinds = self.told("memory_timeline")
            at, wanted = list(sums[rank].items())[-1 if "End" in keys else 0]
            self.assertRegex(title, f"^Rank {rank} at ")
            self.assertAlmostEqual(bytes_of(resident), wanted, delta=0.006 * wanted)
            self.assertAlmostEqual(sum(map(bytes_of, kinds)), wanted, delta=0.006 * wanted)
            self.assertIn("weights", " ".join(kinds))
        self.browser.evaluate("document.activeElement.blur()")
        pictures = [self.browser.evaluate("document.querySelector('#view-memory_timeline canvas').toDataURL()")]
        self.browser.evaluate("[...document.querySelectorAll('#view-memory_timeline .choice')].find((b) => b.ariaPressed === 'false').click()")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 60))")
        pictures.append(self.browser.evaluate("document.querySelector('#view-memory_timeline canvas').toDataURL()"))
        self.assertNotEqual(*pictures)
        legend = self.browser.evaluate("document.querySelector('#view-memory_timeline .legend').innerText")
        for name in ("weights", "KV cache", "resident set"):
            self.assertIn(name, legend)

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
        self.browser.evaluate(traced_page.open_all_rows("#view-expert"))
        column = """[...document.querySelectorAll('#view-expert tbody tr')].map(
            (row) => Number(row.cells[3].querySelector('data')?.value ?? row.cells[3].textContent))"""
        before = self.browser.evaluate(column)
        for wanted in (sorted(before, reverse=True), sorted(before)):
            self.browser.evaluate("document.querySelector('#view-expert th[data-column=tokens] button').click()")
            self.browser.evaluate(traced_page.open_all_rows("#view-expert"))
            self.assertEqual(self.browser.evaluate(column), wanted)

    def test_links_lead_to_files_that_are_there(self):
        self.show()
        links = self.browser.evaluate("[...document.querySelectorAll('a:not([href^=\"#\"])')].map((a) => a.getAttribute('href'))")
        self.assertIn("trace.pftrace", links)
        self.assertIn("csv/step.csv", links)
        for link in links:
            self.assertTrue((self.report.parent / link).exists(), link)
        there = {entry.name + "/" * entry.is_dir() for entry in self.report.parent.iterdir()}
        there -= {"capture.json", "report.html", "csv/", *(f"rank-{rank}.spans" for rank in range(traced_page.RANKS))}
        self.assertEqual({link for link in links if not link.startswith("csv/")}, there)
        self.assertIn("kineto/", there)

    def test_numbers_of_actions_are_in_the_units_of_their_figures(self):
        columns = ["finding", "metric", "before", "after", "saved_ms", "saved_share"]
        rows = [["idle_cores", "decode \u00d71 tokens/s", 954.4123, 12242.1234, 12.5, 0.25], ["few_rows", "TTFT p50 ms", 1234.5678, 0.25, 3000, 0.5]]
        self.show_made({"id": "action", "title": "Actions", "note": "", "rows": rows,
                        "columns": [{"name": name, "decimals": 4 if name in ("before", "after", "saved_share") else 3} for name in columns]})
        shown = self.browser.evaluate(
            "[...document.querySelectorAll('#view-action tbody tr')].map((row) => [...row.cells].slice(2).map((c) => c.textContent.replaceAll('\u00a0', ' ')))")
        self.assertEqual(shown, [["954", "12,242", "12.5 ms", "25 %"], ["1.23 s", "250 \u00b5s", "3 s", "50 %"]])
        self.assertEqual(self.browser.evaluate("document.querySelector('#view-action tbody tr:last-child td:nth-child(3) data').title"), "1234.5678 ms")

    def test_steps_are_seen_beside_an_idle_server(self):
        columns = ("phase", "steps", "wall_us", "wall_share", "us_per_step", "computing_us", "exposed_us", "free_us")
        self.show_made({"id": "phase", "title": "Phases", "note": "",
                        "columns": [{"name": name, "decimals": 4} for name in columns],
                        "rows": [["decode", 8, 20000, 0.02, 2500, 15000, 4000, 1000], ["idle", 0, 980000, 0.98, None, 0, 0, 980000]]})
        bars = self.browser.evaluate("""[...document.querySelectorAll('#view-phase .bar-row')].map((row) => [
          row.querySelector('.bar-note').textContent.replaceAll('\u00a0', ' '), row.querySelector('.bar-total').textContent.replaceAll('\u00a0', ' '),
          [...row.querySelectorAll('.bar-part')].reduce((sum, part) => sum + parseFloat(part.style.width), 0)])""")
        self.assertEqual(bars, [["8 steps", "20 ms", 100], ["98 % of the capture, longer than drawn", "980 ms", 100]])
        shown = self.browser.evaluate("[...document.querySelectorAll('#view-phase th, #view-phase td')].map((c) => c.textContent.replaceAll('\u00a0', ' '))")
        self.assertIn("time per step", shown)
        self.assertIn("2.5 ms", shown)

    def test_columns_without_values_are_left_out_until_they_are_asked_for(self):
        self.show_made({"id": "counter", "title": "Counters", "note": "",
                        "columns": [{"name": name, "decimals": 0} for name in ("rank", "cycles", "minor_faults", "says")],
                        "rows": [[0, None, 3, ""], [1, None, 4, ""]]})
        seen = "[...document.querySelectorAll('#view-counter th, #view-counter tbody td')].filter((c) => c.offsetParent).map((c) => c.textContent)"
        self.assertEqual(self.browser.evaluate(seen), ["rank", "minor faults", "0", "3", "1", "4"])
        self.assertIn("Left out, as no row has a value: cycles, says.", self.browser.evaluate("document.querySelector('#view-counter').innerText"))
        self.browser.press("/")
        self.browser.type("cycles")
        self.browser.until("document.querySelector('[role=option]')")
        self.browser.press("Enter")
        self.browser.until("document.querySelector('#view-counter th[data-column=cycles]').offsetParent")
        self.assertEqual(self.browser.evaluate(seen), ["rank", "cycles", "minor faults", "0", "", "3", "1", "", "4"])

    def test_findings_lead_to_their_step(self):
        self.show()
        named = traced_page.read_data(self.report)["timelines"]["finding_steps"]
        shown = self.browser.evaluate("[...document.querySelectorAll('.card')].map((c) => c.querySelector('[href^=\"#step-\"]')?.hash ?? null)")
        self.assertEqual(shown, [None if step is None else f"#step-{step}" for step in named])

    def test_actions_are_shown_with_what_they_bring(self):
        made = pathlib.Path(self.folder.name) / "actions.html"
        text = self.report.read_text(encoding="utf-8")
        action = '"actions":[{"text":"Give rank 1 two cores.","command":"ferry serve --threads 2","prediction":"decode tokens/s from 9000 to 12000, 33 % more","saved_ms":1234.5}],'
        made.write_text(re.sub(r'("findings":\[\{)', lambda found: found.group(1) + action, text, count=1), encoding="utf-8")
        self.show(page=made)
        card = self.browser.evaluate("document.querySelector('.card').innerText.replaceAll('\\u00a0', ' ')")
        for part in ("Give rank 1 two cores.", "predicted: decode tokens/s from 9000 to 12000, 33 % more; 1.23 s of all steps together", "ferry serve --threads 2"):
            self.assertIn(part, card)
        self.browser.evaluate("document.querySelector('.copy').click()")
        self.browser.until("['Copied', 'Selected'].includes(document.querySelector('.copy').textContent)")

    def show_made(self, table):
        """Shows the page with the JSON of one more table, or of another one of that name."""
        made = pathlib.Path(self.folder.name) / "made.html"
        text = self.report.read_text(encoding="utf-8").replace(f'"id":"{table["id"]}"', '"id":"another"')
        made.write_text(text.replace('"tables":[', f'"tables":[{json.dumps(table)},', 1), encoding="utf-8")
        self.show(page=made)

    def test_changes_are_told_as_factors(self):
        self.show_made({"id": "made", "title": "Made", "columns": [{"name": "after_percent", "decimals": 2}], "rows": [[2539], [199.4], [-12.25]]})
        self.assertEqual(self.browser.evaluate("[...document.querySelectorAll('#view-made td')].map((e) => e.innerText.replaceAll('\\u00a0', ' '))"),
                         ["26.4 ×", "199 %", "-12.3 %"])

    def test_the_longest_of_averaged_steps_is_told(self):
        columns = [{"name": name, "decimals": 1} for name in ("step", "rank", "computing_us", "exposed_us", "free_us")]
        rows = [[step, 0, 1_012_000 if step == 700 else 2_000, 0, 0] for step in range(1200)]  # columns of two steps
        self.show_made({"id": "step", "title": "Made", "columns": columns, "rows": rows})
        told = self.browser.evaluate("document.querySelector('#view-step .picture').innerText")
        self.assertRegex(told, r"the longest step, 700, took 1\.01\ss")
        self.assertIn("A column is the mean of up to 2 steps", told)
        left, top, width, _ = self.box("#view-step canvas")
        self.browser.point("mouseMoved", left + 62 + (width - 64) * (350.5 / 600), top + 60)
        self.assertEqual(self.told("step")[0], "Steps 700 to 701 (mean), rank 0")
        self.assertRegex(self.told("step")[-1], r"^Enter opens the longest, step 700 of 1\.01\ss$")

    def test_memory_of_one_moment_fills_its_picture(self):
        columns = [{"name": name, "decimals": 1} for name in ("rank", "at_ms", "kind", "bytes")]
        self.show_made({"id": "memory_timeline", "title": "Made", "columns": columns,
                        "rows": [[0, 5.5, "weights", 100 << 20], [0, 5.5, "unaccounted", -(4 << 20)]]})
        left, top, width, _ = self.box("#view-memory_timeline canvas")
        self.browser.point("mouseMoved", left + width / 2, top + 60)
        self.assertEqual(self.told("memory_timeline")[:3], ["Rank 0 at 5.5 ms", "resident 96 MiB", "weights 100 MiB (104.2 %)"])
        self.assertIn("beyond the line", self.browser.evaluate("document.querySelector('#view-memory_timeline .picture').innerText"))
        painted = self.browser.evaluate("""(() => { const c = document.querySelector('#view-memory_timeline canvas'), y = c.height / 2;
            const at = (x) => c.getContext('2d').getImageData(x, y, 1, 1).data.join(); return [at(80), at(c.width - 10)]; })()""")
        self.assertEqual(painted[0], painted[1], "its areas are as wide as the picture")
        self.assertNotEqual(painted[0], "0,0,0,0")

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
        controls = """[...document.querySelectorAll('button:not([hidden]):not(:disabled), a, input, select, summary, [tabindex="0"]')]"""
        self.browser.evaluate(f"window.reached = new Map(), addEventListener('focusin', (event) => reached.set(event.target, {FIND_UNSEEN_FOCUS}))")
        for _ in range(self.browser.evaluate(f"{controls}.length") + 30):
            self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate("[...reached].filter(([, why]) => why).map(([e, why]) => [why, e.outerHTML.slice(0, 120)])"), [])
        missed = f"{controls}.filter((e) => !reached.has(e) && e.getClientRects().length).map((e) => e.outerHTML.slice(0, 90))"
        self.assertEqual(self.browser.evaluate(missed), [])
        self.assertGreater(self.browser.evaluate("reached.size"), 50)


if __name__ == "__main__":
    traced_page.main()
