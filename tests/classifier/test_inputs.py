"""Whatever a user has as an image is read in order, by name, and refused by name."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cases import every_case
from vitral.classifier.inputs import list_images, to_pixels
from vitral.data.image_files import prepare
from vitral.errors import ImageError
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import Preprocessing

SMALL = Preprocessing(image_size=(8, 8))


def write(path: Path, grey: int) -> Path:
    """Write an image of one grey."""
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (9, 7), (grey, grey, grey)).save(path)
    return path


def test_images_come_in_the_order_given_folders_by_name(tmp_path: Path) -> None:
    second, first = write(tmp_path / "folder" / "b.png", 20), write(tmp_path / "folder" / "a.png", 10)
    single = write(tmp_path / "single.png", 30)
    pixels = np.full((5, 6, 3), 40, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels + 10).save(buffer, "PNG")
    listed = list_images([str(single), pixels, tmp_path / "folder", buffer.getvalue()], ignore)
    assert [image.name for image in listed] == [str(single), "image 1", str(first), str(second), "image 3"]
    assert [int(image.read()[0, 0, 0]) for image in listed] == [30, 40, 10, 20, 50]


@every_case("kind", ["path", "text", "bytes", "array of bytes", "view", "buffer", "image", "array"])
def test_one_image_alone_is_as_good_as_a_list(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "one.png", 60)
    pixels = np.full((7, 9, 3), 60, dtype=np.uint8)
    forms: dict[str, Any] = {
        "path": path,
        "text": str(path),
        "bytes": path.read_bytes(),
        "array of bytes": bytearray(path.read_bytes()),
        "view": memoryview(path.read_bytes()),
        "buffer": io.BytesIO(path.read_bytes()),
        "image": Image.fromarray(pixels),
        "array": pixels,
    }
    forms["buffer"].read()  # as what has shown an uploaded file leaves it
    given = forms[kind]
    (alone,), (listed,) = list_images(given, ignore), list_images([given], ignore)
    assert alone.name == listed.name == (str(path) if kind in ("path", "text") else "image 0")
    assert alone.read().tolist() == alone.read().tolist() == pixels.tolist()
    assert to_pixels(given).tolist() == pixels.tolist()
    with open(path, "rb") as file:
        assert [image.read().tolist() for image in list_images(file, ignore)] == [pixels.tolist()]


@every_case(
    "given", [None, 5, {"bytes": b""}, torch.zeros(3, 4, 4), [None], [{"image": 1}], [torch.zeros(3, 4, 4)]], ids=repr
)
def test_what_is_no_image_is_named_by_its_type(given: Any) -> None:  # noqa: ANN401
    name = type(given[0] if isinstance(given, list) else given).__name__
    with pytest.raises(ImageError, match=rf"Image 0 is of the type {name}; give .*array \(height, width, 3\)"):
        list_images(given, ignore)
    with pytest.raises(ImageError, match="gives str.*'rb'"):
        list_images(io.StringIO("no bytes"), ignore)


def test_a_damaged_image_that_pillow_has_opened_is_left_out_like_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-900])
    heard: list[Event] = []
    with Image.open(path) as cut:
        listed = list_images([cut, Image.new("RGB", (9, 7))], ignore)
        prepared = list(prepare(listed, SMALL, skip_bad_images=True, listener=heard.append))
    assert [name for name, _ in prepared] == ["image 1"]
    assert "damaged or cut short" in str(heard)


def test_nothing_is_read_before_it_is_needed(tmp_path: Path) -> None:
    listed = list_images([write(tmp_path / "one.png", 1), tmp_path / "missing.png"], ignore)
    prepared = prepare(listed, SMALL, skip_bad_images=False, listener=ignore)
    assert next(prepared)[1].shape == (3, 8, 8)
    with pytest.raises(ImageError, match="missing.png"):
        next(prepared)


def test_bad_images_are_left_out_only_if_asked_and_said(tmp_path: Path) -> None:
    paths = [write(tmp_path / "one.png", 1), tmp_path / "bad.png", write(tmp_path / "two.png", 2)]
    paths[1].write_bytes(b"no image")
    heard: list[Event] = []
    prepared = prepare(list_images(paths, ignore), SMALL, skip_bad_images=True, listener=heard.append)
    assert [name for name, _ in prepared] == [str(paths[0]), str(paths[2])]
    (message,) = heard
    assert isinstance(message, Message)
    assert message.warning
    assert message.text.startswith("Skipped: ")
    assert "bad.png" in message.text


def test_grey_arrays_and_images_become_three_channels() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert to_pixels(grey).tolist() == np.repeat(grey[:, :, None], 3, axis=2).tolist()
    assert to_pixels(Image.fromarray(grey)).tolist() == to_pixels(grey).tolist()


@every_case("kind", ["float32", "int64", "bool"])
def test_arrays_of_other_numbers_are_refused_rather_than_guessed_at(kind: str) -> None:
    with pytest.raises(ImageError, match=f"must be uint8 with values 0 to 255, not {kind}"):
        to_pixels(np.zeros((4, 4, 3), dtype=kind))


@every_case("shape", [(3, 4, 5), (4, 4, 4), (4,), (1, 4, 4, 3), (0, 4, 3), (4, 0), ()])
def test_arrays_of_other_shapes_are_one_line(shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageError, match=r"must be \(height, width, 3\)") as refused:
        to_pixels(np.zeros(shape, dtype=np.uint8))
    assert str(shape) in str(refused.value)
