"""The page of a classifier in a real browser: a dropped image is answered as by the classifier; a bad file gets a line."""

import http.server
import json
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitral
from tests.report.test_browser import AXE, BROWSER, axe
from vitral.errors import ModelError, StorageError
from vitral.events import ignore
from vitral.report.browser_page import FILES, write_browser_page

DIGITS = Path(__file__).parent / "digits"  # a network that reads handwritten digits, and digits that are new to it
SECONDS = 120.0  # for the browser to start, the runtime to compile and the page to answer
# Drops one file after the other, waits for what the page says to each, and posts all that to the test.
PROBE = """
<script type="module">
const wait = async (until) => { while (!until()) await new Promise((done) => setTimeout(done, 50)); };
const said = [];
await wait(() => document.body.dataset.ready);
said.push({ model: document.getElementById("model").textContent });
for (const name of NAMES) {
  const file = new File([await (await fetch(name)).blob()], name);
  const dropped = new DataTransfer();
  dropped.items.add(file);
  const status = document.getElementById("status");
  status.textContent = "";
  document.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true, cancelable: true }));
  await wait(() => status.textContent && !status.textContent.endsWith("…"));
  const rows = [...document.querySelectorAll("#answers tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  said.push({ name, rows, status: status.textContent });
}
if (window.axe) said[0].violations = (await axe.run()).violations.map((it) => it.id);
await fetch("/said", { method: "POST", body: JSON.stringify(said) });
</script></body>
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """Gives files, and takes what the page says."""

    said: list[Any]
    told: threading.Event
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}

    def do_POST(self) -> None:
        self.said.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.told.set()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if BROWSER is None or shutil.which("npm") is None:
        pytest.skip("needs Chromium and npm")
    folder = tmp_path_factory.mktemp("site") / "browser"
    try:
        write_browser_page(DIGITS / "model.onnx", folder, title="<b>digits</b>", listener=ignore)
    except ModelError as error:
        pytest.skip(str(error))
    for sample in DIGITS.glob("*.png"):
        shutil.copy(sample, folder)
    return folder


def said(site: Path, names: list[str], profile: Path) -> list[Any]:
    """Return what the page says of itself and of each file that is dropped on it."""
    page = (site / "index.html").read_text()
    assert "connect-src 'none'" in page
    page = page.replace("connect-src 'none'", "connect-src 'self'")  # for the probe alone
    page = page.replace("</body>", axe() + PROBE.replace("NAMES", json.dumps(names)))
    (site / "probed.html").write_text(page)
    Handler.said, Handler.told = [], threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/probed.html"
        assert BROWSER is not None
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        browser = subprocess.Popen([BROWSER, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert Handler.told.wait(SECONDS), "the page did not answer"
        finally:
            browser.kill()
            browser.wait()
            server.shutdown()
    return list(Handler.said)


@pytest.fixture(scope="module")
def answered(site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (37, 51, 4), dtype=np.uint8)).save(site / "transparent.png")
    (site / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    samples = sorted(path.name for path in DIGITS.glob("sample-*.png"))
    return said(
        site,
        [*samples, "transparent.png", "broken.png", samples[0]],
        tmp_path_factory.mktemp("profile"),
    )


def test_the_page_answers_as_the_classifier_does(answered: list[Any]) -> None:
    samples = sorted(DIGITS.glob("sample-*.png"))
    own = vitral.load(DIGITS / "model.onnx").predict(samples, top=5, listener=ignore)
    assert "10 classes" in answered[0]["model"]
    for sample, prediction, found in zip(samples, own, answered[1:], strict=False):
        assert found["name"] == sample.name
        assert prediction.label == sample.stem.partition("-")[2]  # and rightly
        shown = [(row[0], float(row[2].removesuffix("%")) / 100) for row in found["rows"]]
        assert shown[0][0] == prediction.label
        assert shown[0][1] == pytest.approx(prediction.probability, abs=0.001)
        assert len(shown) == 5


@pytest.mark.skipif(AXE is None, reason="axe-core is not installed")
def test_axe_finds_nothing(answered: list[Any]) -> None:
    assert answered[0]["violations"] == []


def test_bad_files_are_a_line_and_the_page_goes_on(answered: list[Any]) -> None:
    statuses = [one["status"] for one in answered[1:]]
    assert statuses[-3].startswith("51×37 pixels")  # transparent
    assert statuses[-2] == "broken.png cannot be used: it is not a readable image"
    assert "pixels" in statuses[-1]


def test_the_folder_needs_no_server(site: Path, tmp_path: Path) -> None:
    assert BROWSER is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--enable-logging=stderr"]
    page = (site / "index.html").read_text()
    told = "document.body.dataset.ready && console.log('MODEL ' + document.getElementById('model').textContent)"
    report = f"<script>setInterval(() => {told}, 200)</script>"
    (site / "alone.html").write_text(page.replace("</body>", f"{report}</body>"))
    command = [BROWSER, *flags, "--remote-debugging-port=0", f"file://{site}/alone.html"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
        ending = threading.Timer(SECONDS, browser.kill)
        ending.start()
        assert browser.stderr is not None
        line = next((line for line in browser.stderr if "MODEL " in line), "")
        ending.cancel()
        browser.kill()
    assert "10 classes" in line


def test_names_are_text_and_only_the_page_itself_is_replaced(site: Path, tmp_path: Path) -> None:
    page = (site / "index.html").read_text()
    assert "&lt;b&gt;digits" in page
    assert "<b>digits" not in page
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "letter.txt").write_text("x")
    with pytest.raises(StorageError, match="letter"):
        write_browser_page(DIGITS / "model.onnx", tmp_path / "web", listener=ignore)
    (tmp_path / "web" / "letter.txt").rename(tmp_path / "letter.txt")
    for _ in range(2):
        write_browser_page(DIGITS / "model.onnx", tmp_path / "web", listener=ignore)
    assert {path.name for path in (tmp_path / "web").iterdir()} == set(FILES)
