"""docs/browser in a real browser: a dropped image gets the answers that the classifier gives here; a bad file gets a line."""

import http.server
import json
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

import vitral
from tests.report.test_browser import BROWSER
from vitral.events import ignore

PAGE = Path(__file__).parents[2] / "docs" / "browser"
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
    shutil.copytree(PAGE, folder, ignore=shutil.ignore_patterns("node_modules", "package-lock.json"))
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    if (installed := subprocess.run(install, cwd=folder, capture_output=True, text=True)).returncode:
        pytest.skip(f"npm could not install onnxruntime-web: {installed.stderr.strip().splitlines()[-1:]}")
    return folder


def said(site: Path, names: list[str], profile: Path) -> list[Any]:
    """Return what the page says of itself and of each file that is dropped on it."""
    page = (site / "index.html").read_text().replace("</body>", PROBE.replace("NAMES", json.dumps(names)))
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
    other = onnx.load(PAGE / "model.onnx")
    names = next(entry for entry in other.metadata_props if entry.key == "class_names")
    names.value = json.dumps([f"<b>{name}</b>" for name in json.loads(names.value)])
    onnx.save(other, site / "other.onnx")
    (site / "broken.onnx").write_bytes(b"nothing")
    samples = sorted(path.name for path in PAGE.glob("sample-*.png"))
    return said(
        site,
        [*samples, "transparent.png", "broken.png", "broken.onnx", samples[0], "other.onnx", samples[0]],
        tmp_path_factory.mktemp("profile"),
    )


def test_the_page_answers_as_the_classifier_does(answered: list[Any]) -> None:
    samples = sorted(PAGE.glob("sample-*.png"))
    own = vitral.load(PAGE / "model.onnx").predict(samples, top=5, listener=ignore)
    assert "10 classes" in answered[0]["model"]
    for sample, prediction, found in zip(samples, own, answered[1:], strict=False):
        assert found["name"] == sample.name
        assert prediction.label == sample.stem.partition("-")[2]  # and rightly
        shown = [(row[0], float(row[2].removesuffix("%")) / 100) for row in found["rows"]]
        assert shown[0][0] == prediction.label
        assert shown[0][1] == pytest.approx(prediction.probability, abs=0.001)
        assert len(shown) == 5


def test_bad_files_are_a_line_and_the_page_goes_on(answered: list[Any]) -> None:
    statuses = [one["status"] for one in answered[1:]]
    assert statuses[-6].startswith("51×37 pixels")  # transparent
    assert statuses[-5] == "broken.png cannot be used: it is not a readable image"
    assert statuses[-4].startswith("broken.onnx cannot be used: ")
    assert "pixels" in statuses[-3]


def test_another_model_can_be_dropped_and_its_names_are_text(answered: list[Any]) -> None:
    assert answered[-1]["rows"][0][0] == f"<b>{answered[1]['rows'][0][0]}</b>"
