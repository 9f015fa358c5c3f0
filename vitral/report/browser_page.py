"""A folder with a classifier and a page that computes it in a browser, with onnxruntime-web and no server behind it.

The page is the one that a server of classifiers answers with: of its scripts one differs, that which gives the answers.

FOLDER/
  index.html    the page, in the look of the reports
  model.js      the exported network and its class names
  runtime.js    onnxruntime-web, as a text
  offline.js    keeps the page for later where it lies on a host
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.classifier.classifier import Classifier
from vitral.classifier.find_regions import shown_by
from vitral.classifier.load import as_classifier
from vitral.classifier.without_torch import ExportedFile, exported_file
from vitral.errors import ModelError, one_line
from vitral.events import Listener, Message, show
from vitral.exporting.export import export
from vitral.files import new_folder, write_through
from vitral.outputs import check_folder
from vitral.paths import cache, is_regular
from vitral.report.template import as_written, mark, render_page, scale
from vitral.tasks.shown import Presentable

PAGE = "index.html"
MODEL = "model.js"
RUNTIME = "runtime.js"
WORKER = "offline.js"
FILES = (PAGE, MODEL, RUNTIME, WORKER)
KIND = "classifier page"
STYLE = "browser.css"
SCRIPTS = ("elements.js", "browser_local.js", "browser.js", "browser_regions.js")
PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
INSTALL = f"npm install {PACKAGE}@{VERSION}"
MODULES = Path("node_modules") / PACKAGE / "dist"
# Of its files those that compute on a processor of any kind; one holds the code, the other the kernels.
CODE = "ort.wasm.bundle.min.mjs"
KERNELS = "ort-wasm-simd-threaded.wasm"
FETCH_SECONDS = 600
KEEP_OFFLINE = """const FILES = ["./", {files}];
const keep = () => caches.open("{stamp}").then((kept) => kept.addAll(FILES));
const answer = (request) => caches.match(request).then((kept) => kept ?? fetch(request));
addEventListener("install", (event) => event.waitUntil(keep()));
addEventListener("fetch", (event) => event.respondWith(answer(event.request)));
"""


@dataclass(frozen=True, repr=False)
class WrittenPage(Presentable):
    """The folder that was written, the page in it, the number of classes, and the size of all."""

    path: str
    page: str
    classes: int
    megabytes: float

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows."""
        return (
            f"Wrote {self.path}, {self.megabytes:.0f} MB: open {self.page} in a browser, or put the folder on any host of "
            "static files.",
            "It works without a network, and no photo leaves the page.",
        )


def write_browser_page(
    classifier: Classifier | str | Path,
    folder: str | Path,
    *,
    title: str = "",
    overwrite: bool = False,
    listener: Listener = show,
) -> WrittenPage:
    """Write a folder with a classifier and a page that computes it: drop, paste or take a photo, without a network.

    The classifier is given as itself, or by whatever `load` takes; an exported ONNX file goes in as it is. Without a title the
    heading is the folder's name. `overwrite` replaces a folder of such files that is there.

    Raises:
        ModelError: The network cannot be exported, or onnxruntime-web is not there and cannot be fetched by npm.
        StorageError: The folder cannot be written, or holds something else.
    """
    target = Path(folder)
    inputs = [classifier] if isinstance(classifier, str | Path) else []
    ours = is_regular(target / PAGE) and mark(KIND) in (target / PAGE).read_bytes()
    check_folder(target, own=FILES, inputs=inputs, replace=ours, overwrite=overwrite)
    given = None if isinstance(classifier, Classifier) else exported_file(str(classifier))
    values = _exported(as_classifier(classifier, listener), listener) if given is None else _of_file(given)
    model, runtime = f"globalThis.vitralModel = {json.dumps(values)};\n", _runtime(listener)
    named = title or target.resolve().name
    parts = {"own_style": as_written(STYLE), "script": as_written(*SCRIPTS), "scale": scale()}
    page = render_page("browser.html", KIND, title=named, served=False, runtime=RUNTIME, model=MODEL, **parts)
    files = {PAGE: page, MODEL: model, RUNTIME: runtime, WORKER: _worker(page, model)}
    with new_folder(target, own=FILES) as partial:
        for name, text in files.items():
            write_through(partial / name, text.encode())
    megabytes = sum(len(text) for text in files.values()) / 1e6
    return WrittenPage(str(target), str(target / PAGE), len(values["classes"]), megabytes)


def _exported(classifier: Classifier, listener: Listener) -> dict[str, Any]:
    """Return what the page needs of a classifier, as JSON values."""
    with tempfile.TemporaryDirectory() as temporary:
        written = export(classifier, Path(temporary) / "onnx", listener=listener)
        if not written.holds:
            raise ModelError("The exported network does not give the classifier's answers, so that no page is written.")
        if not classifier.task.dense:
            file = exported_file(str(written.file))
            assert file is not None, "what was written is ours"
            return _of_file(file)
        return {
            "classes": classifier.class_names,
            "task": classifier.task.name,
            "regions": shown_by(classifier),
            "bits": classifier.preprocessing.bits,
            "onnx": _as_text(written.file),
        }


def _of_file(file: ExportedFile) -> dict[str, Any]:
    """Return what the page needs of an exported file of classes, as JSON values."""
    if file.graph.path.suffix != ".onnx":
        raise ModelError(
            f"'{file.graph.path}' is no ONNX file, which alone a browser computes; name the classifier itself."
        )
    calibration = file.metadata.calibration
    return {
        "classes": file.metadata.class_names,
        "threshold": None if calibration is None else calibration.threshold,
        "bits": file.metadata.bits,
        "onnx": _as_text(file.graph.path),
    }


def _as_text(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _worker(page: str, model: str) -> str:
    """Return the script that keeps the page offline, under a name of its own for every content."""
    stamp = f"vitral-{hashlib.sha256((page + model).encode()).hexdigest()[:16]}"
    return KEEP_OFFLINE.format(files=json.dumps([PAGE, MODEL, RUNTIME])[1:-1], stamp=stamp)


def _runtime(listener: Listener) -> str:
    """Return onnxruntime-web as a script that holds its code and kernels as texts."""
    folder = next((place for place in (MODULES, _kept() / MODULES) if is_regular(place / KERNELS)), None)
    folder = _fetched(listener) if folder is None else folder
    code = (folder / CODE).read_text(encoding="utf-8")
    kernels = base64.b64encode((folder / KERNELS).read_bytes()).decode()
    notice = f"// {PACKAGE}, by Microsoft, under the MIT licence.\n"
    return f"{notice}globalThis.vitralRuntime = {json.dumps({'module': code, 'wasm': kernels})};\n"


def _kept() -> Path:
    return cache("browser") / VERSION


def _fetched(listener: Listener) -> Path:
    """Fetch onnxruntime-web by npm into the cache, once, and return its folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise ModelError(
            f"The page needs {PACKAGE}, which pip cannot install, and npm is not there: install Node.js, or run '{INSTALL}' "
            "elsewhere and bring its folder node_modules here."
        )
    listener(Message(f"Fetching {PACKAGE} {VERSION} by npm, once (about 30 MB)."))
    try:
        with new_folder(_kept()) as partial:
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(partial)]
            done = subprocess.run(
                [npm, "install", *options, f"{PACKAGE}@{VERSION}"],
                cwd=partial,
                capture_output=True,
                text=True,
                timeout=FETCH_SECONDS,
                check=False,
            )
            if done.returncode or not is_regular(partial / MODULES / KERNELS):
                reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
                raise ModelError(f"npm could not fetch {PACKAGE} ({reason[:200]}); try '{INSTALL}' here.")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(f"npm could not fetch {PACKAGE} ({one_line(error)}); try '{INSTALL}' here.") from error
    return _kept() / MODULES
