"""A server in a process of its own, on a free port, with two tiny classifiers; and a client that says what came back."""

import contextlib
import http.client
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.conftest import TINY
from tests.forks import Fork
from tests.regions import DRAWN, finding
from tests.serving.audited import audited
from vitral.classifier.folder import save
from vitral.classifier.metadata import Calibration
from vitral.classifier.novelty import KnownImages, Novelty
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build

pytest.importorskip("fastapi")
UNHURRIED = ("--deadline", "2m")  # where a machine that does other things, too, must refuse nobody
ADDRESS = re.compile(r"http://[\w.:\[\]]+:(\d+)")
LIMIT = Novelty("mahalanobis", 5.0, 0.05, 0.1, 0.2, "b", 0.9, 40, learned=False)


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # any JSON value
        return json.loads(self.body)


@dataclass
class Running:
    """A server."""

    process: Fork
    port: int

    def request(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return Reply(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: bytes, kind: str = "application/octet-stream", **headers: str) -> Reply:
        return self.request("POST", path, body, {"Content-Type": kind, **headers})

    def figures(self) -> dict[str, float]:
        """Return what /metrics says, each figure by its name and labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def resident(self) -> int:
        """Return the memory of the process, bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))

    def descriptors(self) -> int:
        """Return how many files and connections the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def calls(self) -> list[dict[str, Any]]:
        """Return what the server sent or looked up elsewhere of its own accord."""
        return [line for line in self.log() if "calls" in line]

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.process.err.read_text().splitlines() if line.startswith("{")]


Start = Callable[..., "contextlib.AbstractContextManager[Running]"]


@contextlib.contextmanager
def serving(
    folder: Path,
    *arguments: str,
    target: Callable[[tuple[str, ...]], int] = audited,
    environment: Mapping[str, str] = {},
    engine: str = "torch",
) -> Iterator[Running]:
    """Start `vitral serve` on a free port; it is killed at the end if it still runs, and has never called anybody."""
    words = ("serve", *arguments, "--port", "0", "--engine", engine)
    process = Fork(target, words, folder=folder, environment=environment)
    try:
        running = Running(process, _port(process))
        yield running
        if process.poll() is None:
            assert not running.calls()
    finally:
        if process.poll() is None:
            process.kill()


def _port(process: Fork) -> int:
    for _ in range(600):
        text = process.err.read_text() if process.err.exists() else ""
        if match := ADDRESS.search(text):
            return int(match[1])
        assert process.poll() is None, text
        time.sleep(0.05)
    raise TimeoutError(text)


def noise(seed: int, side: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side + 8, 3), dtype=np.uint8)


def encoded(seed: int, form: str = "JPEG", side: int = 40) -> bytes:
    held = io.BytesIO()
    Image.fromarray(noise(seed, side)).save(held, form)
    return held.getvalue()


def form(*files: tuple[str, bytes]) -> tuple[bytes, str]:
    """Return a form of files, and its type."""
    parts = [
        f'--edge\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, content in files
    ]
    return b"".join(parts) + b"--edge--\r\n", "multipart/form-data; boundary=edge"


@pytest.fixture(scope="session")
def served_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the classifier "noise", calibrated and knowing its images, and the classifier "plain"."""
    home = tmp_path_factory.mktemp("served")
    for name in ("noise", "plain"):
        model = build(TINY, seed=0)
        torch.nn.init.normal_(model.head.weight, std=2.0, generator=torch.Generator().manual_seed(0))
        made = vitral.Classifier(model, PHOTOS.with_size(16), ("a", "b", "c"))
        if name == "noise":
            seen = torch.stack([made.preprocessing(noise(seed)) for seed in range(60)])
            known = KnownImages(made.predictor.features(seen), torch.arange(60) % 3, torch.arange(60) >= 48)
            made.remember(known, LIMIT)
            made.calibration = Calibration(2.0, 0.9, 0.95, "noise", 60)
        save(made, home / name)
    return home


@pytest.fixture(scope="session")
def regions_home(tmp_path_factory: pytest.TempPathFactory, served_home: Path) -> Path:
    """A folder with a classifier of regions for each task, under the name of its data, beside "plain"."""
    home = tmp_path_factory.mktemp("regions")
    for data in DRAWN:
        save(finding(data), home / data)
    shutil.copytree(served_home / "plain", home / "plain")
    return home


@pytest.fixture(scope="session")
def regions_server(regions_home: Path) -> Iterator[Running]:
    """A server of all of these."""
    with serving(regions_home, *DRAWN, "plain", *UNHURRIED) as running:
        yield running


@pytest.fixture(scope="session")
def server(served_home: Path) -> Iterator[Running]:
    """A server of both."""
    with serving(served_home, "noise", "plain", *UNHURRIED) as running:
        yield running
