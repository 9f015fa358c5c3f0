"""Hostile and damaged weights: refused in one line, nothing executed, no memory taken (R13)."""

import functools
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import vitral
from tests.cases import every_case
from tests.golden.reference import weights
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save as save_classifier
from vitral.errors import VitralError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.weights.containers import read_tensors

ARRAYS = weights("testing@32")

pytestmark = pytest.mark.requirement(id="R13")


class Payload:
    """Touches a canary file when unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.canary}",)


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def torch_file(content: object, *, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def safetensors_file(header: object, body: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # one of the archives holds a name twice
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(shape: str, descr: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@functools.cache
def zeros_in_zip() -> bytes:
    return zipped([("archive/data.pkl", bytes(100_000_000))])


def changed(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    merged = {**ARRAYS, **{name.replace("__", "/"): value for name, value in changes.items()}}
    return {name: value for name, value in merged.items() if value is not None}


def corpus(canary: Path) -> Iterator[tuple[str, bytes]]:
    """File names and bytes; none is a file that should load."""
    payload = Payload(canary)
    for name in ("a.pt", "b.pth", "c.bin", "d.npz", "e.safetensors"):
        yield name, torch_file({"head": payload})
        yield f"legacy-{name}", torch_file({"head": payload}, legacy=True)
        yield f"pickle-{name}", pickle.dumps(payload)
    with_objects = np.array([payload], dtype=object)
    yield "objects.npz", npz({"embedding/kernel": with_objects})
    yield "more-objects.npz", npz(changed(cls=with_objects))
    yield "objects.npy", npz({"x": with_objects})[:200]
    yield "modules.pth", torch_file(torch.nn.Linear(2, 2))
    yield "list.pth", torch_file([1, 2, 3])
    yield "unknown.pth", torch_file({"layer.weight": torch.zeros(3)})
    yield "unknown.safetensors", save({"layer.weight": torch.zeros(3)})
    yield "whole.safetensors", save({name.replace("/", "."): torch.from_numpy(array) for name, array in ARRAYS.items()})
    yield "header.safetensors", safetensors_file({}, length=200_000_000)
    yield "negative.safetensors", safetensors_file({"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}})
    overlap = {name: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} for name in "ab"}
    yield "overlap.safetensors", safetensors_file(overlap)
    yield "beyond.safetensors", safetensors_file({"a": {"dtype": "F32", "shape": [99], "data_offsets": [0, 396]}})
    yield "dtype.safetensors", safetensors_file({"a": {"dtype": "F99", "shape": [16], "data_offsets": [0, 64]}})
    yield "shape.safetensors", safetensors_file({"a": {"dtype": "F32", "shape": [-4, -4], "data_offsets": [0, 64]}})
    yield "json.safetensors", safetensors_file(b'{"a": [' + b"[" * 5000)
    yield "twice.safetensors", safetensors_file(b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},"a":{}}')
    yield "zeros.npz", zipped([("embedding/kernel.npy", npy("(16, 16, 3, 50000)") + bytes(153_600_000))])
    yield "claims.npz", zipped([("embedding/kernel.npy", npy("(99999999999,)"))])
    yield "negative.npz", zipped([("cls.npy", npy("(-1, 4)", data=b"\0" * 16))])
    yield "not-a-shape.npz", zipped([("cls.npy", npy("__import__('os')", data=b"\0" * 16))])
    yield "twice.npz", zipped([("cls.npy", npy("(4,)", data=b"\0" * 16))] * 2)
    yield "paths.npz", zipped([("../../etc/passwd.npy", npy("(4,)", data=b"\0" * 16))])
    yield "open.npz", zipped([("cls.npy", npy("(4,", data=b"\0" * 16))])
    yield "text.npz", zipped([("cls.npy", b"hello")])
    yield "integers.npz", npz(changed(cls=np.zeros((1, 1, 10), dtype=np.int64)))
    yield "strings.npz", npz(changed(cls=np.array(["a"])))
    yield "nan.npz", npz(changed(cls=np.full((1, 1, 10), np.nan, dtype=np.float32)))
    yield "missing.npz", npz(changed(head__bias=None))
    yield "extra.npz", npz(changed(neck__bias=np.zeros(3, dtype=np.float32)))
    yield "misshaped.npz", npz(changed(embedding__bias=np.zeros(11, dtype=np.float32)))
    yield "flat.npz", npz(changed(embedding__kernel=np.zeros(11, dtype=np.float32)))
    yield (
        "no-square.npz",
        npz(changed(Transformer__posembed_input__pos_embedding=np.zeros((1, 8, 10), dtype=np.float32))),
    )
    yield "hybrid.npz", npz(changed(conv_root__kernel=np.zeros((7, 7, 3, 64), dtype=np.float32)))
    yield "none.npz", npz({"x": np.zeros(3, dtype=np.float32)})
    whole, tensors = npz(ARRAYS), save({"a": torch.zeros(99)})
    for cut in (1, 10, 100, 1000, len(whole) // 2, len(whole) - 1):
        yield f"cut-{cut}.npz", whole[:cut]
    for cut in (1, 7, 9, 20, len(tensors) - 1):
        yield f"cut-{cut}.safetensors", tensors[:cut]
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    yield "flipped.npz", bytes(flipped)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        packed = bytearray(zipped([("cls.npy", whole)], method))
        packed[40:] = bytes(byte ^ 85 for byte in packed[40:80]) + packed[80:]
        yield f"packed-{method}.npz", bytes(packed)
    yield "strided.pth", torch_file({"layer.weight": torch.zeros(1).expand(1_700_000_000)})
    yield "strided-legacy.pth", torch_file({"layer.weight": torch.zeros(1).expand(1_700_000_000)}, legacy=True)
    yield "sparse.pth", torch_file({"layer.weight": torch.eye(4).to_sparse()})
    yield "meta.pth", torch_file({"layer.weight": torch.zeros(4, device="meta")})
    yield "bomb.pth", zeros_in_zip()
    yield "empty.npz", b""
    yield "text.pth", b"hello"
    yield "page.safetensors", b"<!doctype html>"


def test_the_corpus_does_no_harm(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    count = 0
    for name, data in corpus(canary):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(VitralError, match=name) as refused:
            vitral.load(path)
        assert "\n" not in str(refused.value), name
        path.unlink()
        count += 1
    assert count >= 50
    assert not canary.exists()


def test_torchs_own_warnings_do_not_reach_the_user(tmp_path: Path) -> None:
    path = tmp_path / "sparse.pth"
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save({"layer.weight": torch.eye(4).to_sparse_csr()}, path)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            with pytest.raises(VitralError, match=r"sparse.pth': 'layer.weight' is a sparse"):
                vitral.load(path)
    finally:
        torch.set_warn_always(always)
    assert [str(warning.message) for warning in heard] == []


@every_case(
    ("name", "says"),
    [
        ("missing.npz", "lacks head/bias"),
        ("extra.npz", "has neck/bias that the model does not have"),
        ("misshaped.npz", r"embedding/bias of \(11,\) cannot become \(10,\)"),
        ("hybrid.npz", "its patches have 3 channels"),
        ("no-square.npz", "not a square grid"),
        ("unknown.safetensors", "no known architecture"),
    ],
)
def test_the_tensor_is_named(name: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(dict(corpus(tmp_path / "canary"))[name])
    with pytest.raises(VitralError, match=says):
        vitral.load(path)


@every_case(
    ("name", "says"),
    [
        ("packed-8.npz", "damaged archive"),
        ("packed-12.npz", "damaged"),
        ("packed-14.npz", "damaged archive"),
        ("strided.pth", "far more than weights do"),
        ("strided-legacy.pth", "far more than weights do"),
        ("sparse.pth", "sparse, quantized or empty|holds more than tensors"),
        ("meta.pth", "'layer.weight' is a sparse, quantized or empty tensor"),
        ("bomb.pth", "far more than weights do"),
    ],
)
def test_a_reader_refuses_before_it_allocates(name: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(dict(corpus(tmp_path / "canary"))[name])
    with pytest.raises(VitralError, match=says):
        read_tensors(path)


# A process's own peak; what the kernel says of resource usage begins at the parent's.
MEASURED = """
import sys, vitral, vitral.classifier.load
def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
vitral.load("vit-mu16")
before = memory("VmRSS")
try:
    kept = vitral.load(sys.argv[1])
except vitral.VitralError:
    pass
print(memory("VmHWM") - before)
"""


def extra_memory(path: Path) -> int:
    done = subprocess.run([sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    path.write_bytes(dict(corpus(tmp_path / "canary"))["zeros.npz"])
    assert extra_memory(path) < 60 << 20  # it would unpack to 146 MiB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_takes_half_as_much_again_as_the_file_at_most(tmp_path: Path) -> None:
    written = vitral.convert("vit-s16", tmp_path / "weights.npz", format="original")
    size = written.path.stat().st_size
    assert size < extra_memory(written.path) + (32 << 20)  # the weights are held, so the measure sees them
    assert extra_memory(written.path) < 1.5 * size


@pytest.fixture
def folder(tmp_path: Path, tiny_config: ViTConfig) -> Path:
    classifier = Classifier(build(tiny_config), PHOTOS.with_size(16), ["10", "2", "<b>"])
    return save_classifier(classifier, tmp_path / "classifier")


def _of_version_0_2(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "task"}


DAMAGE: dict[str, Callable[[dict[str, Any]], str]] = {
    "not-json": lambda values: "{",
    "a-list": lambda values: "[]",
    "nested": lambda values: "[" * 100_000,
    "no-format": lambda values: json.dumps({**values, "format": "other"}),
    "newer": lambda values: json.dumps({**values, "version": 99}),
    "no-names": lambda values: json.dumps({name: value for name, value in values.items() if name != "class_names"}),
    "few-names": lambda values: json.dumps({**values, "class_names": ["one"]}),
    "same-names": lambda values: json.dumps({**values, "class_names": ["one", "one", "two"]}),
    "names-number": lambda values: json.dumps({**values, "class_names": 3}),
    "other-width": lambda values: json.dumps({**values, "architecture": {**values["architecture"], "dim": 32}}),
    "huge": lambda values: json.dumps({**values, "architecture": {**values["architecture"], "depth": "many"}}),
    "family": lambda values: json.dumps({**values, "architecture": {"family": "resnet"}}),
    "architecture": lambda values: json.dumps({**values, "architecture": None}),
    "preprocessing": lambda values: json.dumps({**values, "preprocessing": {}}),
    "provenance": lambda values: json.dumps({**values, "provenance": {"secret": 1}}),
    "weights": lambda values: json.dumps({**values, "weights_sha256": "0" * 64}),
    "multi-label-text": lambda values: json.dumps({**_of_version_0_2(values), "multi_label": "x"}),
    "multi-label-list": lambda values: json.dumps({**_of_version_0_2(values), "multi_label": [[1]]}),
    "multi-label-object": lambda values: json.dumps({**_of_version_0_2(values), "multi_label": {"a": None}}),
    "multi-label-number": lambda values: json.dumps({**_of_version_0_2(values), "multi_label": 1}),
    "multi-label-null": lambda values: json.dumps({**_of_version_0_2(values), "multi_label": None}),
    "task-unknown": lambda values: json.dumps({**values, "task": "counting"}),
    "task-list": lambda values: json.dumps({**values, "task": [[1]]}),
    "task-number": lambda values: json.dumps({**values, "task": 1}),
    "task-null": lambda values: json.dumps({**values, "task": None}),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_classifier_folder_is_refused(case: str, folder: Path) -> None:
    path = folder / "classifier.json"
    path.write_text(DAMAGE[case](json.loads(path.read_text())))
    with pytest.raises(VitralError, match="classifier") as refused:
        vitral.load(folder)
    assert "\n" not in str(refused.value)


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the way to every part of a JSON value, the whole left out."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else []):
        yield (*at, key)
        yield from places(part, (*at, key))


WRONG: tuple[Any, ...] = (None, True, -1, 10**9, 10**30, 1e308, float("nan"), "x", [], {"a": {}}, [[1]], "\ud800")


def test_no_change_of_a_description_ends_in_anything_but_a_classifier_or_one_line(folder: Path) -> None:
    """Every entry is replaced by values of every kind: what loads can also predict and be saved."""
    path = folder / "classifier.json"
    values = json.loads(path.read_text())
    image = np.zeros((16, 16, 3), dtype=np.uint8)
    refused: list[str] = []
    every = list(places(values))
    for turn, at in enumerate(every):
        for wrong in WRONG[turn % 2 :: 2]:
            changed_values = json.loads(json.dumps(values))
            part = changed_values
            for key in at[:-1]:
                part = part[key]
            part[at[-1]] = wrong
            path.write_text(json.dumps(changed_values))
            try:
                classifier = vitral.load(folder)
                classifier.predict(image)
                save_classifier(classifier, folder.parent / "again")
            except VitralError as error:
                refused.append(str(error))
    assert len(refused) > 3 * len(every)
    assert not [line for line in refused if "\n" in line]


def test_missing_and_cut_weights_of_a_folder_are_refused(folder: Path) -> None:
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(VitralError, match="damaged or of another classifier"):
        vitral.load(folder)
    path.unlink()
    with pytest.raises(VitralError, match="is missing"):
        vitral.load(folder)
