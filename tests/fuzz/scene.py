"""A scene: what lies in a user's folder, and the commands typed there, as text, so that a finding is a file of the corpus."""

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import tarfile
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
from PIL import Image

from tests.conftest import TINY
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build

Thing = Mapping[str, Any]  # what is made: its kind, its path, and what the kind needs
CLASSES = ("a", "b", "c")  # of the classifier that scenes have
SIDE = 16
MAKING_SECONDS = 20  # that a thing of a scene may take to make


@dataclass(frozen=True)
class Step:
    """A command, and what is made before it.

    Attributes:
        command: words after "vitral"; a word in which "*" stands N times is written "N*...": 5000*9 is 5,000 nines.
        make: things.
        status: the exit status that is expected; None for any of 0, 1 and 2.
        says: what the output must hold.
        writes: what of the user's the command may change, such as the run that it continues with.
        environment: variables that the command sees.
        accident: what befalls it: {"kind": "ENOSPC" or a signal, "call": before which of its writes to the disk}.
        memory: MiB of address space that it may take; 0 for the rule's own.
        hub: the answers of the Hub that it sees, by their name among `HUBS`, or "sound"; empty for none that answers.
    """

    command: tuple[str, ...]
    make: tuple[Thing, ...] = ()
    status: int | None = None
    says: str = ""
    writes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    accident: Mapping[str, Any] = field(default_factory=dict)
    memory: int = 0
    hub: str = ""


FURTHER = ("environment", "accident", "memory", "hub")  # of a step, as they are in a file of the corpus


@dataclass(frozen=True)
class Scene:
    """Steps in one folder, and why they are in the corpus."""

    steps: tuple[Step, ...]
    why: str = ""
    name: str = field(default="", compare=False)

    def to_toml(self) -> str:
        """Return the scene as a file of the corpus."""
        steps = [
            {
                "command": list(step.command),
                **({"make": [dict(thing) for thing in step.make]} if step.make else {}),
                **({} if step.status is None else {"status": step.status}),
                **({"says": step.says} if step.says else {}),
                **({"writes": list(step.writes)} if step.writes else {}),
                **{name: value for name in FURTHER if (value := getattr(step, name))},
            }
            for step in self.steps
        ]
        return tomli_w.dumps({"why": self.why, "step": steps})


def read_scene(path: Path) -> Scene:
    """Return a scene of the corpus."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    steps = tuple(
        Step(
            command=tuple(step["command"]),
            make=tuple(step.get("make", ())),
            status=step.get("status"),
            says=step.get("says", ""),
            writes=tuple(step.get("writes", ())),
            **{name: step[name] for name in FURTHER if name in step},
        )
        for step in values["step"]
    )
    return Scene(steps, values.get("why", ""), path.stem)


def spell(word: str) -> str:
    """Return a word or a path as it is meant: "%e9" is that byte, and "300*x" is three hundred of them."""
    count, star, rest = word.partition("*")
    if star and count.isdecimal() and rest:
        return rest * int(count)
    return os.fsdecode(unquote_to_bytes(word)) if "%" in word else word


def set_up(step: Step, home: Path, *, strict: bool) -> None:
    """Make what a step needs; if not `strict`, leave out what no file system takes or what others stand in the way of."""
    for thing in step.make:
        path = home / spell(thing.get("path", "."))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _without_waiting():
                MAKERS[thing["kind"]](path, thing)
        except (OSError, ValueError, LookupError, TypeError):
            if strict:
                raise


@contextlib.contextmanager
def _without_waiting() -> Iterator[None]:
    """Raise TimeoutError for what takes long: to write into a pipe that an earlier step made waits for a reader for ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAKING_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def encoded(seed: int, kind: str = "PNG", side: int = SIDE, **options: Any) -> bytes:  # noqa: ANN401  # Pillow's own
    """Return an image of noise."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def _images(path: Path, thing: Thing) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for number in range(thing.get("count", 4)):
        (path / f"{number}.png").write_bytes(encoded(number))


def _photos(path: Path, thing: Thing) -> None:
    """A folder of classes, the classifier's own unless others are named."""
    for place, name in enumerate(thing.get("classes", CLASSES)):
        folder = path / spell(name)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(thing.get("count", 4)):
            (folder / f"{number}.png").write_bytes(encoded(1000 * place + number))


def _classifier(path: Path, thing: Thing) -> None:
    model = build(TINY)
    if thing.get("nan"):
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
    save(Classifier(model, PHOTOS.with_size(SIDE), CLASSES), path)


def _text(path: Path, thing: Thing) -> None:
    path.write_text("".join(spell(part) for part in thing["text"]), encoding="utf-8")


def _cut(path: Path, thing: Thing) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * thing.get("share", 0.5))])


def _flip(path: Path, thing: Thing) -> None:
    data = bytearray(path.read_bytes())
    for place in thing["places"]:
        if data:
            data[int(place * (len(data) - 1))] ^= thing.get("mask", 255)
    path.write_bytes(bytes(data))


def _scans(path: Path, thing: Thing) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (2000, 2000), (90, 120, 150)).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    path.write_bytes(data[:-2] + thing.get("count", 5000) * data[data.rfind(b"\xff\xda") : -2] + data[-2:])


def _archive(path: Path, thing: Thing) -> None:
    if path.suffix == ".zip":
        with (
            warnings.catch_warnings(),
            zipfile.ZipFile(path, "w", getattr(zipfile, thing.get("packing", "ZIP_DEFLATED"))) as packed,
        ):
            warnings.simplefilter("ignore")  # a name may come twice
            for number, name in enumerate(thing["members"]):
                packed.writestr(spell(name), encoded(number))
        return
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(thing["members"]):
            info = tarfile.TarInfo(spell(name))
            info.size = len(encoded(number))
            archive.addfile(info, io.BytesIO(encoded(number)))


def _backward_tar(path: Path, thing: Thing) -> None:
    header = bytearray(tarfile.TarInfo("a/0.png").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (-512 & (1 << 96) - 1).to_bytes(12, "big")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + bytes(1024))


def _torch(path: Path, thing: Thing) -> None:
    tensors = {
        "strided": lambda: torch.zeros(1).expand(1_700_000_000),
        "sparse": lambda: torch.eye(4).to_sparse(),
        "meta": lambda: torch.zeros(4, device="meta"),
        "plain": lambda: torch.zeros(4),
    }
    torch.save({"layer.weight": tensors[thing.get("tensor", "plain")]()}, path)


def _npz(path: Path, thing: Thing) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((1, 1, 10), np.float32))
    with zipfile.ZipFile(path, "w", getattr(zipfile, thing.get("packing", "ZIP_DEFLATED"))) as archive:
        archive.writestr("cls.npy", buffer.getvalue())


def _parquet(path: Path, thing: Thing) -> None:
    kinds = {
        "plain": pa.string(),
        "list": pa.list_(pa.string()),
        "large_list": pa.large_list(pa.string()),
        "fixed": pa.list_(pa.string(), 2),
    }
    labels: list[Any] = [["a", "b"], ["b", "c"], ["c", "a"]] * 8
    kind = thing.get("labels", "plain")
    values = [label[0] for label in labels] if kind == "plain" else labels
    table = {"image": [encoded(number) for number in range(24)], "label": pa.array(values, kinds[kind])}
    pq.write_table(pa.table(table), path)


def _entry(path: Path, thing: Thing) -> None:
    """Put a value at a place of a JSON file."""
    values = json.loads(path.read_text())
    part = values
    for key in thing["at"][:-1]:
        part = part[key]
    part[thing["at"][-1]] = json.loads(thing["value"])
    path.write_text(json.dumps(values))


def _vtab(path: Path, thing: Thing) -> None:
    """A task of VTAB as vtab-1k hands it on: lists of images, of which there are few."""
    folder = path / thing.get("task", "svhn")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(10):
        (folder / f"{number}.png").write_bytes(encoded(number))
    for name, count in (("train800", 800), ("val200", 200), ("test", 20)):
        (folder / f"{name}.txt").write_text("".join(f"{row % 10}.png {row % 10}\n" for row in range(count)))


def _link(path: Path, thing: Thing) -> None:
    if not path.is_symlink() and not path.exists():
        path.symlink_to(spell(thing["target"]))


def _remove(path: Path, thing: Thing) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


MAKERS: dict[str, Callable[[Path, Thing], Any]] = {
    "images": _images,
    "photos": _photos,
    "classifier": _classifier,
    "text": _text,
    "bytes": lambda path, thing: path.write_bytes(base64.b64decode(thing["base64"])),
    "image": lambda path, thing: path.write_bytes(encoded(thing.get("seed", 0), thing.get("format", "PNG"))),
    "folder": lambda path, thing: path.mkdir(parents=True, exist_ok=True),
    "link": _link,
    "pipe": lambda path, thing: None if path.exists() else os.mkfifo(path),
    "remove": _remove,
    "cut": _cut,
    "flip": _flip,
    "entry": _entry,
    "scans": _scans,
    "archive": _archive,
    "backward-tar": _backward_tar,
    "torch": _torch,
    "npz": _npz,
    "parquet": _parquet,
    "vtab": _vtab,
}

KINDS: Sequence[str] = tuple(MAKERS)
