"""The page's timeline of a step, its picture of all steps and its search, by mouse, fingers and keys. Skipped where there is no
Chromium.
"""

import base64
import collections
import csv
import pathlib
import statistics
import zlib

import traced_page

AXIS, RANK_HEAD, LINE = 24, 22, 18  # of the timeline, in pixels
LEFT = 132                          # where its lanes begin in a wide window
READING = "document.querySelector('#timeline output strong')?.textContent ?? ''"
PICTURE = "document.querySelector('#timeline canvas').toDataURL()"
SHOWN = "document.querySelector('.step-summary')?.textContent ?? ''"


class StepTimelineTest(traced_page.TracedPageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.timelines = traced_page.read_data(cls.report)["timelines"]
        cls.facts = {step["step"]: step for step in cls.timelines["steps"]}

    def open(self, number, width=1280):
        self.show(width, place=f"#step-{number}")
        self.browser.until(f"({SHOWN}).startsWith('Step {number}:') && document.querySelector('#timeline canvas').width > 300")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 80))")
        return traced_page.Step(self.facts[number], self.timelines)

    def a_decode_step(self):
        return next(number for number, facts in self.facts.items() if facts["group"].startswith("decode"))

    def place(self, view, ns, line):
        """Where a moment of the coordinator's engine at that depth is in the window, if the timeline shows `view` (ns, ns)."""
        left, top, width, _ = self.box("#timeline canvas")
        return left + LEFT + (ns - view[0]) / (view[1] - view[0]) * (width - LEFT), top + AXIS + RANK_HEAD + line * LINE + LINE / 2

    def read_at(self, view, ns, line=1):
        self.browser.point("mouseMoved", *self.place(view, ns, line))
        return self.browser.evaluate(READING)

    def wide_slices(self, step, view, least_pixels=6):
        """(name, middle) of the operators of the coordinator's engine that are wide enough to be pointed at."""
        pixel = (view[1] - view[0]) / 500
        first, last = step.lane(0, "engine")
        return [(step.name[i], step.begin[i] + step.duration[i] / 2) for i in range(first, last)
                if step.name[i] != "step" and step.duration[i] > least_pixels * pixel and view[0] < step.begin[i] and step.begin[i] + step.duration[i] < view[1]
                and len(step.at(0, "engine", step.begin[i] + step.duration[i] / 2)) == 2]

    def kinds_differ_by(self):
        """How many times as long as the quickest kind of step the slowest takes."""
        lengths = collections.defaultdict(list)
        with open(self.report.parent / "csv/step.csv", encoding="utf-8") as table:
            for row in csv.DictReader(table):
                lengths[row["phase"]].append(float(row["window_us"]))
        medians = [statistics.median(of_phase) for of_phase in lengths.values()]
        return max(medians) / min(medians)

    def whole(self, step):
        return (-0.01 * step.length, 1.01 * step.length)

    def test_data_is_decoded_by_its_own_function(self):
        source = (traced_page.ROOT / "profiler/report/page/varints.js").read_text(encoding="utf-8")
        # zlib.compress(bytes of 0, 127, 128, 300, 2^53 - 1), as profiler/report/page_data/packing.h writes them
        packed = base64.b64encode(zlib.compress(bytes([0, 127, 128, 1, 172, 2] + [255] * 7 + [15]))).decode()
        self.show()
        self.assertEqual(self.browser.evaluate(f"(async () => {{ {source}; const r = new VarintReader(await inflateBytes(bytesOfBase64('{packed}')));"
                                               " return [...r.column(5)]; })()"), [0, 127, 128, 300, 2**53 - 1])
        for numbers, complaint in (("[128]", "within a number"), ("[1, 2]", "before 3 more")):
            with self.assertRaisesRegex(RuntimeError, complaint):
                self.browser.evaluate(f"{{ {source}; new VarintReader(Uint8Array.from({numbers})).column({3 if '2' in numbers and '128' not in numbers else 1}) }}")

    def test_list_has_every_slice_of_its_lane(self):
        step = self.open(self.a_decode_step())
        first, last = step.lane(0, "engine")
        shown = self.browser.evaluate("[...document.querySelectorAll('.slices [role=option]')].map((e) => [e.querySelector('.slice-name').firstChild.data, Number(e.querySelector('data').value)])")
        wanted = [[step.name[i], step.duration[i]] for i in range(first, last)]
        self.assertGreater(len(shown), 50)
        self.assertEqual(shown, wanted[:len(shown)])
        self.assertEqual(len(shown), min(len(wanted), 240))

    def test_pointing_tells_what_was_done(self):
        step = self.open(self.a_decode_step())
        view = self.whole(step)
        self.assertEqual(self.read_at(view, step.length / 2, 0), "step")
        slices = self.wide_slices(step, view)
        self.assertGreater(len(slices), 2)
        for name, middle in slices:
            self.assertEqual(self.read_at(view, middle), name)

    def test_zoom_and_pan_by_keys(self):
        step = self.open(self.a_decode_step())
        pictures = [self.browser.evaluate(PICTURE)]
        self.browser.evaluate("document.querySelector('#timeline canvas').focus()")
        low, high = self.whole(step)
        for key in ("+", "+", "ArrowRight", "ArrowLeft", "-", "0"):
            self.browser.press(key)
            pictures.append(self.browser.evaluate(PICTURE))
            middle, span = (low + high) / 2, high - low
            if key in "+-":
                span *= 1 / 1.5 if key == "+" else 1.5
                low, high = middle - span / 2, middle + span / 2
            elif key != "0":
                low, high = (edge + (0.15 if key == "ArrowRight" else -0.15) * span for edge in (low, high))
            else:
                low, high = self.whole(step)
            for name, at in self.wide_slices(step, (low, high))[:4]:
                self.assertEqual(self.read_at((low, high), at), name, key)
            self.browser.point("mouseMoved", 2, 2)
        self.assertEqual(len(set(pictures[:4])), 4, "a key changed nothing")
        self.assertEqual(pictures[2], pictures[4], "left undoes right")

    def test_wheel_zooms_where_the_pointer_is(self):
        step = self.open(self.a_decode_step())
        name, at = max(self.wide_slices(step, self.whole(step)), key=lambda found: abs(found[1] - step.length / 2))
        x, y = self.place(self.whole(step), at, 1)
        before = self.browser.evaluate(PICTURE)
        self.browser.point("mouseWheel", x, y, deltaX=0, deltaY=-120, modifiers=2)
        self.browser.until(f"{PICTURE} !== {before!r}")
        self.browser.point("mouseMoved", x + 1, y)
        self.assertEqual(self.browser.evaluate(READING), name)

    def test_plain_wheel_scrolls_the_page_until_the_timeline_has_the_focus(self):
        step = self.open(self.a_decode_step())
        self.browser.evaluate("document.activeElement.blur()")
        x, y = self.place(self.whole(step), step.length / 2, 0)
        before, top = self.browser.evaluate(PICTURE), self.browser.evaluate("scrollY")
        self.browser.point("mouseWheel", x, y, deltaX=0, deltaY=60)
        self.browser.until(f"scrollY !== {top}")
        self.assertEqual(self.browser.evaluate(PICTURE), before)
        x, y = self.place(self.whole(step), step.length / 2, 0)
        self.browser.click(x, y)
        top = self.browser.evaluate("scrollY")
        before = self.browser.evaluate(PICTURE)
        self.browser.point("mouseWheel", x, y, deltaX=0, deltaY=-60)
        self.browser.until(f"{PICTURE} !== {before!r}")
        self.assertEqual(self.browser.evaluate("scrollY"), top)

    def test_drag_and_pinch(self):
        step = self.open(self.a_decode_step())
        self.browser.evaluate("document.querySelector('#timeline canvas').focus()")
        self.press("+", "+", "+")
        span = 1.02 * step.length / 1.5**3
        view = (step.length / 2 - span / 2, step.length / 2 + span / 2)
        x, y = self.place(view, step.length / 2, 0)
        _, _, width, _ = self.box("#timeline canvas")
        self.browser.drag(x, y, x - 100, y)
        view = tuple(edge + 100 / (width - LEFT) * span for edge in view)
        slices = self.wide_slices(step, view)
        self.assertGreater(len(slices), 0)
        for name, at in slices[:3]:
            self.assertEqual(self.read_at(view, at), name)
        before = self.browser.evaluate(PICTURE)
        self.browser.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        self.addCleanup(self.browser.call, "Emulation.setTouchEmulationEnabled", enabled=False)
        self.browser.pinch(x, y, 60, 240)
        self.browser.until(f"{PICTURE} !== {before!r}")

    def test_keys_go_from_slice_to_slice_and_the_list_follows(self):
        step = self.open(self.a_decode_step())
        chosen = "document.querySelector('.slices [aria-selected=true]')?.dataset.slice"
        first, last = step.lane(0, "engine")
        self.browser.evaluate("document.querySelector('#timeline canvas').focus()")
        self.press("n", "Home")
        self.assertEqual(self.browser.evaluate(chosen), str(first))
        self.press("n", "n", "p", "n")
        self.assertEqual(self.browser.evaluate(chosen), str(first + 2))
        self.assertEqual(self.browser.evaluate(READING), step.name[first + 2])
        self.press("End")
        self.assertEqual(self.browser.evaluate(chosen), str(last - 1))
        self.assertTrue(self.browser.evaluate("""(() => {
            const list = document.querySelector(".slices").getBoundingClientRect();
            const item = document.querySelector(".slices [aria-selected=true]").getBoundingClientRect();
            return item.top >= list.top - 1 && item.bottom <= list.bottom + 1; })()"""), "the list scrolls along")
        before = self.browser.evaluate(PICTURE)
        self.press("Enter")
        self.assertNotEqual(self.browser.evaluate(PICTURE), before, "Enter zooms to the slice")
        self.browser.evaluate("document.querySelector('.slices').focus()")
        self.press("ArrowUp", "ArrowUp")
        self.assertEqual(self.browser.evaluate(chosen), str(last - 3))
        self.assertEqual(self.browser.evaluate(READING), step.name[last - 3])
        self.assertEqual(self.browser.evaluate("document.querySelector('.slices').getAttribute('aria-activedescendant')"), f"slice-{last - 3}")

    def test_arrows_and_messages_can_be_hidden(self):
        self.open(self.a_decode_step())
        pictures = [self.browser.evaluate(PICTURE)]
        for place in (1, 0):
            self.browser.evaluate(f"document.querySelectorAll('.toggle input')[{place}].click()")
            pictures.append(self.browser.evaluate(PICTURE))
        self.assertEqual(len(set(pictures)), 3)

    def test_critical_path_lies_on_top(self):
        step = self.open(self.a_decode_step())
        self.assertEqual(sum(step.path_duration), step.length)
        self.assertIn(1, step.path_rank + step.path_kind.count("message") * [1])
        pictures = [self.browser.evaluate(PICTURE)]
        for _ in range(2):
            self.browser.evaluate("document.querySelectorAll('.toggle input')[2].click()")
            pictures.append(self.browser.evaluate(PICTURE))
        self.assertNotEqual(pictures[0], pictures[1])
        self.assertEqual(pictures[0], pictures[2])
        # Of the longest piece that is an operator the readout says how long it is on the path.
        length, number = max((length, place) for length, place in zip(step.path_duration, step.path_slice)
                             if place > 0 and step.lane(0, "engine")[0] <= place - 1 < step.lane(0, "engine")[1]
                             and step.name[place - 1] != "step")  # between operators
        self.browser.evaluate(f"document.querySelector('[data-slice=\"{number - 1}\"]').click()")
        told = self.browser.evaluate("document.querySelector('#timeline output').textContent.replaceAll('\\u00a0', ' ')")
        self.assertRegex(told, r"[\d.]+ (ns|µs|ms) of it on the critical path")

    def test_a_step_that_is_not_held_says_how_to_get_it(self):
        self.show(place="#step-123456789")
        self.assertIn("ferry trace report DIR --steps 123456789", self.browser.evaluate("document.querySelector('.absent').textContent"))
        self.assertEqual(self.browser.complaints, [])

    def test_damaged_data_is_told(self):
        number = self.a_decode_step()
        made = pathlib.Path(self.folder.name) / "damaged.html"
        data = self.facts[number]["data"]
        made.write_text(self.report.read_text(encoding="utf-8").replace(data, data[:len(data) // 2 // 4 * 4]), encoding="utf-8")
        self.show(page=made, place=f"#step-{number}")
        self.browser.until("document.querySelector('#timeline [role=alert]')?.textContent.startsWith('Step ')")

    def test_a_click_on_a_step_opens_it(self):
        self.show()
        left, top, width, _ = self.box("#view-step canvas")
        self.browser.click(left + 62 + (width - 62) * 0.7, top + 14 + 18 + 80)
        self.browser.until("/^#step-\\d+$/.test(location.hash)")
        number = int(self.browser.evaluate("location.hash.slice(6)"))
        self.browser.until(f"({SHOWN}).startsWith('Step {number}:')")
        self.browser.until("document.activeElement === document.querySelector('#timeline canvas')")
        self.assertIn(f"Step {number},", self.browser.evaluate("document.querySelector('#view-step output').textContent"))

    def test_enter_on_a_step_opens_it(self):
        self.show()
        self.browser.evaluate("document.querySelector('#view-step canvas').focus()")
        self.press("Home", "ArrowRight", "ArrowRight", "Enter")
        steps = sorted(self.facts)
        self.browser.until(f"({SHOWN}).startsWith('Step {steps[2]}:')")

    def test_steps_are_drawn_by_rank_or_by_size_on_either_axis(self):
        self.show()
        picture = "document.querySelector('#view-step canvas').toDataURL()"
        pressed = "[...document.querySelectorAll('#view-step .choice[aria-pressed=true]')].map((b) => b.textContent)"
        begins_as = self.browser.evaluate(pressed)
        ratio = self.kinds_differ_by()
        if ratio > 7 or ratio < 5:
            self.assertIn("logarithmic" if ratio > 7 else "linear", begins_as, f"kinds of steps differ by {ratio:.1f} times")
        pictures = [self.browser.evaluate(picture)]
        for choice in ("logarithmic", "linear", "each phase and size", "logarithmic"):
            self.browser.evaluate(f"[...document.querySelectorAll('#view-step .choice')].find((b) => b.textContent === '{choice}').click()")
            self.browser.evaluate("new Promise((done) => setTimeout(done, 60))")
            pictures.append(self.browser.evaluate(picture))
            self.assertIn(choice, self.browser.evaluate(pressed))
        self.assertIn(pictures[0], pictures[1:3], "it begins on one of the two axes")
        self.assertEqual(len(set(pictures[1:])), 4)

    def test_search_jumps(self):
        number = self.a_decode_step()
        wanted = {
            f"step {number}": f"location.hash === '#step-{number}' && document.activeElement.matches('#timeline canvas')",
            "lm_head": "document.activeElement.matches('#view-operator tr.found') && document.activeElement.cells[0].textContent === 'MatMul.lm_head'",
            "layer 3": "document.activeElement.matches('#view-layer tr.found') && document.activeElement.cells[0].textContent === '3'",
            "expert load": "location.hash === '#view-expert'",
            "request": "document.activeElement.closest('#view-request') || location.hash === '#view-request'",
        }
        self.show()
        for query, is_there in wanted.items():  # each is at another place than the one before
            with self.subTest(query=query):
                self.assertFalse(self.browser.evaluate(f"Boolean({is_there})"))
                self.browser.press("/")
                self.assertEqual(self.browser.evaluate("[document.activeElement.id, document.activeElement.value]"), ["search", ""])
                self.browser.type(query)
                self.browser.until("document.querySelector('.results [aria-selected=true]')")
                self.browser.press("Enter")
                self.browser.until(is_there)
                self.assertEqual(self.browser.complaints, [])

    def found(self, query):
        """[kind, label] of what the search finds."""
        self.show()
        self.browser.press("/")
        self.browser.type(query)
        return self.browser.evaluate("[...document.querySelectorAll('.results [role=option]')].map((e) => [...e.children].map((c) => c.textContent))")

    def test_search_finds_names_of_all_kinds(self):
        self.assertEqual(self.found("hcom dispatch send"), [["operator", "hcom_alltoallv.dispatch.send"]])
        self.assertIn(["layer kind", "linear_attention"], self.found("linear attention"))
        self.assertIn("column", dict(self.found("deltanet")))
        self.assertIn(["column", "p99, \u00b5s in " + self.browser.evaluate("document.getElementById('view-layer-title').textContent")], self.found("p99"))
        self.assertEqual(self.found("straggler")[0][0], "table", "by its name for scripts, too")

    def test_search_says_what_it_does_not_list(self):
        listed = self.found("e")
        said, last = self.browser.evaluate("['.search [role=status]', '.results li:last-child'].map((where) => document.querySelector(where).textContent)")
        self.assertEqual(len(listed), 30)
        count = int(said.split()[0])
        self.assertGreater(count, 30)
        self.assertEqual(said, f"{count} found, the first 30 are listed")
        self.assertEqual(last, f"{count - 30} more: another word makes them fewer.")
        self.assertLess(len(self.found("straggler")), 30)
        self.assertNotIn("more", self.browser.evaluate("document.querySelector('.results li:last-child').textContent"))

    def test_search_goes_to_columns(self):
        self.found("worker_experts_us")
        self.browser.press("Enter")
        self.browser.until("document.activeElement.closest('#view-layer th')?.dataset.column === 'worker_experts_us'")

    def test_a_number_belongs_to_the_word_before_it(self):
        self.assertEqual(self.found("rank 2")[0], ["rank", "Rank 2"])
        for kind, label in self.found("rank 2"):
            self.assertRegex(label.lower().replace("_", " "), r"\brank 2\b", kind)
        held = sorted(self.facts)
        self.assertEqual(self.found(f"step {held[0]}")[0], ["step", f"Step {held[0]}"])
        self.assertFalse([label for kind, label in self.found(f"step {held[0]}") if kind == "step"][1:])

    def test_opens_on_a_step_as_most_are(self):
        groups = {}
        for number, facts in self.facts.items():
            if "warm-up" not in facts["group"]:
                groups.setdefault(facts["group"], []).append((facts["length_ns"], number))
        self.assertEqual(len(self.facts), self.timelines["num_steps"])
        longest = max(groups.values(), key=lambda steps: sum(length for length, _ in steps))
        number = sorted(longest)[len(longest) // 2][1]
        self.show()
        self.browser.until(f"({SHOWN}).startsWith('Step {number}:')")

    def test_search_answers_to_keys(self):
        self.show()
        self.browser.press("/")
        self.browser.type("layer")
        chosen = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))?.textContent"
        seen = [self.browser.evaluate(chosen)]
        for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
            self.browser.press(key)
            seen.append(self.browser.evaluate(chosen))
        self.assertEqual(len(set(seen)), 3)
        self.assertEqual(seen[1], seen[3])
        self.assertEqual(self.browser.evaluate("document.activeElement.getAttribute('aria-expanded')"), "true")
        self.browser.press("Escape")
        self.assertEqual(self.browser.evaluate("[document.activeElement.value, document.activeElement.getAttribute('aria-expanded')]"), ["", "false"])
        self.browser.type("no such thing anywhere")
        self.assertIn("Nothing found", self.browser.evaluate("document.querySelector('.results').textContent"))

    def test_steps_that_are_asked_for_are_held(self):
        folder = self.report.parent
        held = sorted(self.facts)
        traced_page.run(traced_page.FERRY, "trace", "report", folder, "--steps", f"{held[3]}..{held[5]}")
        why = {step["step"]: step["why"] for step in traced_page.read_data(self.report)["timelines"]["steps"]}
        for number in held[3:6]:
            self.assertIn(why[number], ("", "asked for"))


if __name__ == "__main__":
    traced_page.main()
