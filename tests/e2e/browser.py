"""A headless Chromium for the end-to-end tests, spoken to over its debugging pipe: nothing but the browser is needed."""

import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CALL_SECONDS = 60.0
CHANGE_SECONDS = 15.0  # until a page has reacted


def find_chromium():
    """The program's path, or None. FERRY_CHROMIUM names one that is not on the PATH."""
    return os.environ.get("FERRY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. What it writes to the console and what it throws gathers in `complaints`; `requests` are the addresses it asked for."""

    def __init__(self, program):
        self._folder = tempfile.TemporaryDirectory(prefix="ferry-chromium-", ignore_cleanup_errors=True)
        child_in, self._to = os.pipe()
        self._from, child_out = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4; the shell puts the pipes there.
        script = f'exec "$@" 3<&{child_in} 4>&{child_out}'
        # Without a sandbox, because the tests may run as root; it opens files that the test made, nothing else.
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                     "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(["bash", "-c", script, "bash", program, *arguments], pass_fds=(child_in, child_out),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(child_in)
        os.close(child_out)
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session = None
        self.complaints, self.requests, self._events = [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Sends a command and returns its result; events that arrive meanwhile are noted."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data):]
        end = time.monotonic() + CALL_SECONDS
        while True:
            answer = self._read(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _read(self, end, what):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError(f"{what}: Chromium {'went away' if ready else f'did not answer within {CALL_SECONDS:.0f} s'}")
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(argument.get("value", argument.get("description"))) for argument in parameters["args"]))
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._events.append(method)

    def show(self, address, width, height, theme):
        """Opens `address` in a window of that size whose system theme is "light" or "dark", and waits until it is loaded."""
        self._set_size(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])
        self._events.clear()
        self.call("Page.navigate", url=address)
        end = time.monotonic() + CALL_SECONDS
        while not self._events:
            self._note(self._read(end, address))
        self._wait_until_drawn()

    def resize(self, width, height):
        """Gives the window of the open page another size, and waits until the page has followed."""
        self._set_size(width, height)
        self._wait_until_drawn()

    def _set_size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def _wait_until_drawn(self):
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression):
        """The value of a JavaScript expression, awaited if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def until(self, expression, seconds=CHANGE_SECONDS):
        """Waits until a JavaScript expression is true (an element, say)."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise RuntimeError(f"not true within {seconds:.0f} s: {expression}")
            time.sleep(0.02)

    def press(self, key):
        """One key: "Tab", "ArrowRight", … or a character."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                 "ArrowDown": 40}
        text = {} if key in codes else {"text": key}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes.get(key) or ord(key.upper()),
                      **(text if kind == "keyDown" else {}))

    def type(self, text):
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def point(self, kind, x, y, **more):
        """A mouse event of that kind at a place of the window: "mousePressed", "mouseReleased", "mouseMoved", "mouseWheel"."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.point(kind, x, y, button="left", clickCount=1)

    def drag(self, x0, y0, x1, y1):
        self.point("mousePressed", x0, y0, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.6, 1.0):
            self.point("mouseMoved", x0 + part * (x1 - x0), y0 + part * (y1 - y0), button="left", buttons=1)
        self.point("mouseReleased", x1, y1, button="left", clickCount=1)

    def pinch(self, x, y, before, after):
        """Two fingers whose distance around a place goes from `before` to `after` pixels."""
        def touch(kind, distance):
            points = [{"x": x + side * distance / 2, "y": y, "id": i} for i, side in enumerate((-1, 1))]
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=points if kind != "touchEnd" else [])
        touch("touchStart", before)
        for part in (0.25, 0.5, 0.75, 1.0):
            touch("touchMove", before + part * (after - before))
        touch("touchEnd", after)

    def close(self):
        for end in (self._to, self._from):
            os.close(end)
        try:
            self._process.wait(10)  # the browser ends with its pipe
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()
