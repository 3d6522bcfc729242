"""The page at / in a headless Chromium, before a server with two workers, a key and requests that run. Skipped without a Chromium.

Environment: FERRY_BINARY (default build/release/launch/ferry), FERRY_CHROMIUM (default: found on the PATH).
"""

import json

import browser
import ferry_job
import page_checks
import traced_page
from live_view_test import KEY, WatchedJobTest

IS_READY = "document.documentElement.dataset.ready === 'true'"  # the page has asked once


class PageTest(WatchedJobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = browser.Browser(browser.find_chromium())
        cls.addClassCleanup(cls.browser.close)

    def open(self, width=1280, theme="light", key=KEY):
        """Shows the page, and waits until it has asked once."""
        address = f"http://{self.job.http_address}/"
        self.browser.show(address, width, 900, theme)
        self.wait_for(IS_READY)  # the complaint of an answer without a key has come, too
        self.browser.evaluate(f"sessionStorage.setItem('ferry-key', {json.dumps(key)})")
        self.browser.complaints.clear()
        self.browser.show(address, width, 900, theme)
        self.wait_for(IS_READY)

    def wait_for(self, condition):
        ferry_job.wait_for(lambda: self.browser.evaluate(condition), condition)

    def text_of(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_every_window_and_theme(self):
        for width in (360, 768, 1280, 2400):
            for theme in ("light", "dark"):
                with self.subTest(width=width, theme=theme), self.load():
                    self.open(width, theme)
                    self.wait_for("document.querySelectorAll('#requests tbody tr').length >= 3")
                    self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), theme)
                    self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width, "the page scrolls sideways")
                    self.assertEqual(self.browser.evaluate(page_checks.FIND_FAULTS), {})
                    self.assertEqual(self.browser.evaluate(page_checks.FIND_PALE_TEXT), [])
                    self.assertEqual(self.browser.complaints, [])
        asked = {address.split("?")[0] for address in self.browser.requests}
        own = f"http://{self.job.http_address}/"
        self.assertEqual(asked - {own, own + "status.json", "data:,"}, set(), "the page fetches something else")

    def test_it_shows_what_the_server_says(self):
        with self.load():
            self.open()
            self.wait_for("/^[1-9]/.test(document.querySelector('#overview .value').textContent)")  # two looks have a rate
            self.assertEqual(self.text_of("#state"), "Serving")
            self.assertEqual(self.text_of("#model"), "demo, bf16, 3 ranks over sockets")
            self.assertRegex(self.text_of("#overview"), r"2 of 2\s+1 of 256 wait")
            self.assertRegex(self.text_of("#phases"), r"decode\s+[1-9]")
            self.assertRegex(self.text_of("#ranks"), r"\b2\s+[1-9][0-9.]* %")
            self.assertRegex(self.text_of("#requests"), r"decoding")

    def test_the_key_is_asked_for(self):
        self.open(key="not-the-key")
        self.assertEqual(self.text_of("#state"), "This key is not the server's")
        self.assertTrue(self.browser.evaluate("document.getElementById('view').hidden"))
        self.browser.evaluate(f"document.getElementById('key').value = {json.dumps(KEY)}, document.querySelector('#key-form button').click()")
        self.wait_for("document.getElementById('state').textContent === 'Serving'")
        self.assertTrue(self.browser.evaluate("document.getElementById('key-form').hidden"))

    def test_keys_and_buttons(self):
        self.open(theme="light")
        self.browser.press("t")
        self.assertEqual(self.browser.evaluate("document.documentElement.dataset.theme"), "dark")
        self.browser.press("p")
        self.assertEqual(self.text_of("#state"), "Paused")
        self.browser.evaluate("document.getElementById('pause').click()")
        self.wait_for("document.getElementById('state').textContent === 'Serving'")


if __name__ == "__main__":
    traced_page.skip_without_chromium()
    ferry_job.main()
