"""Images to label next: unsure, unlike one another, and a table that can be learned from once it is filled in."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.novelty import KnownImages, Space
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.deployment.select_images import further, learning_curve, select, select_images, unsureness
from vitral.errors import DataError, StorageError, VitralError, WeightsError
from vitral.evaluation.unknown_classes import remembered
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig


def drawn(count: int, *, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(count) % 2
    noise = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return noise + 1.2 * labels[:, None] * torch.eye(6)[0], labels


@pytest.fixture
def known(tiny_config: ViTConfig, tmp_path: Path) -> Path:
    """A classifier that remembers noise, and a folder of photos."""
    (tmp_path / "photos").mkdir()
    random = np.random.default_rng(0)
    for number in range(6):
        pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    made = Classifier(build(tiny_config, seed=0), PHOTOS.with_size(16), ("a", "b", "c"))
    torch.nn.init.normal_(made.model.head.weight, generator=torch.Generator().manual_seed(0))
    features = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    made.remember(remembered(features, torch.arange(60) % 3, seed=0))
    return save(made, tmp_path / "kept")


def test_unsure_images_come_first_and_none_twice() -> None:
    space = Space(KnownImages(*drawn(40, seed=0), torch.zeros(40, dtype=torch.bool)))
    features = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
    features[20] = features[10]
    unsure = torch.full((30,), 0.01)
    unsure[[10, 20]] = 0.9
    chosen = select(space, features, unsure, 100).tolist()
    assert sorted(chosen) == list(range(30))
    assert chosen[0] in (10, 20)
    assert chosen[-1] in (10, 20)  # which is the other's copy
    margins = unsureness(torch.tensor([[0.5, 0.5, 0.0], [0.9, 0.06, 0.04]]))
    assert margins.tolist() == pytest.approx([1.0, 0.16])


def test_a_power_law_is_found_again() -> None:
    sizes = [100, 200, 400, 800]
    errors = 2 * np.array(sizes) ** -0.5
    needed = (2 / (errors[-1] - 0.01)) ** 2 - 800
    assert further(sizes, errors) == pytest.approx(needed)
    assert math.isinf(further(sizes, errors[::-1]))
    assert math.isinf(further(sizes, errors / 20))


def test_the_curve_holds_of_images_that_it_has_not_seen() -> None:
    curve = learning_curve(remembered(*drawn(400, seed=0), seed=0), 2)
    assert curve is not None
    assert curve.interval[0] <= curve.more <= curve.interval[1]
    assert list(curve.errors) == [40, 80, 160, 320]
    assert "more photos" in curve.sentence() or "hardly" in curve.sentence()
    assert learning_curve(remembered(*drawn(40, seed=0), seed=0), 2) is None


def test_the_table_is_data_once_it_is_filled_in(
    known: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "next.csv"
    photos = str(tmp_path / "photos")
    assert main(["select", photos, "--classifier", str(known), "--count", "4", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [one["image"] for one in said["chosen"]]
    for number, row in enumerate(rows):
        row["label"] = "ab"[number % 2]
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert open_data(out, listener=ignore).class_names == ("a", "b")
    with pytest.raises(StorageError):
        select_images(photos, known, out=out, listener=ignore)


def test_what_cannot_be_chosen_from_is_refused(known: Path, tiny_config: ViTConfig, tmp_path: Path) -> None:
    photos, network = tmp_path / "photos", build(tiny_config, seed=0)
    plain = Classifier(network, PHOTOS.with_size(16))
    faults: list[tuple[type[VitralError], object, object, dict[str, object]]] = [
        (WeightsError, photos, plain, {}),
        (DataError, "digits", known, {}),
        (DataError, photos, known, {"count": 0}),
        (DataError, photos, known, {"out": tmp_path / "next.txt"}),
    ]
    for error, images, classifier, more in faults:
        with pytest.raises(error):
            select_images(images, classifier, listener=ignore, **more)  # type: ignore[arg-type]
