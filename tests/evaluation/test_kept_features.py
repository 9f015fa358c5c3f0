"""Features are computed once for an image and a network, and nothing that goes wrong with what is kept is noticed."""

import errno
import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.data.open import open_data
from vitral.data.source import DIGEST_BYTES, Source
from vitral.data.subset import Joined, Subset
from vitral.evaluation import baselines, kept_features
from vitral.evaluation.baselines import Describer, extract_features
from vitral.evaluation.feature_engine import feature_column
from vitral.evaluation.kept_features import image_keys, missing_share, read_rows, write_rows
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import Preprocessing
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.torch_predictor import TorchPredictor
from vitral.models.model import Features, Images
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig
from vitral.weights.containers import write_safetensors


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vitral" / "features"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight images of noise in two classes."""
    rng = np.random.default_rng(0)
    for index in range(8):
        folder = tmp_path / "photos" / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return tmp_path / "photos"


@pytest.fixture
def train(photos: Path) -> Source:
    """The images as a source."""
    return all_of(photos)


def all_of(photos: Path) -> Source:
    return Joined(list(open_data(photos, listener=ignore).splits.values()))


class Counting(TorchPredictor):
    """Computes by the network itself, and counts the images."""

    images = 0

    def features(self, images: Images) -> Features:
        """Return the features."""
        self.images += len(images)
        return super().features(images)


class Counted:
    """A classifier whose predictor counts the images that it computes."""

    def __init__(self, config: ViTConfig, seed: int = 0) -> None:
        model = ViT(config)
        model.init_weights(seed)
        model.replace_head(2)
        self.predictor = Counting(model)
        self.classifier = Classifier(self.predictor, Preprocessing(image_size=(16, 16)), ["a", "b"])

    def computed(self, source: Source) -> int:
        """Return how many images are computed for the features of a source."""
        before = self.predictor.images
        extract_features(self.classifier, source)
        return self.predictor.images - before


@pytest.fixture
def counted(tiny_config: ViTConfig, cached: Path) -> Counted:
    """A classifier that counts, with nothing kept."""
    return Counted(tiny_config)


def test_features_are_computed_once(counted: Counted, train: Source) -> None:
    first = Describer.of(counted.classifier).describe(train, batch_size=3)
    assert counted.predictor.images == len(train)
    again = Describer.of(counted.classifier).describe(train)
    features, labels = extract_features(counted.classifier, train)
    assert counted.predictor.images == len(train)
    assert first.features is not None
    assert again.features is not None
    for values in (again.features, features):
        assert torch.equal(values, first.features)
    assert torch.equal(again.pixels, first.pixels)
    assert labels.tolist() == first.labels.tolist() == train.labels().tolist()


def test_new_images_alone_are_computed(counted: Counted, train: Source) -> None:
    assert counted.computed(Subset(train, [5, 0])) == 2
    assert counted.computed(train) == len(train) - 2
    kept, _ = extract_features(counted.classifier, train)
    plain, _ = extract_features(counted.classifier, train, keep=False)
    torch.testing.assert_close(kept, plain)


def test_they_are_known_by_content_and_not_by_name(counted: Counted, photos: Path, train: Source) -> None:
    counted.computed(train)
    shutil.copytree(photos, photos.parent / "elsewhere")
    file = next((photos.parent / "elsewhere" / "a").iterdir())
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(file)
    assert counted.computed(all_of(photos.parent / "elsewhere")) == 1


def test_another_head_has_the_same_features_all_else_has_others(
    counted: Counted, tiny_config: ViTConfig, train: Source
) -> None:
    counted.computed(train)
    counted.classifier.model.replace_head(5, seed=1)
    assert counted.computed(train) == 0
    counted.classifier.preprocessing = replace(counted.classifier.preprocessing, std=(0.4, 0.5, 0.5))
    assert counted.computed(train) == len(train)
    assert Counted(tiny_config, seed=1).computed(train) == len(train)
    rounding = Counted(tiny_config).classifier
    rounding.predictor = EnginePredictor(rounding.model, "torch", "bf16")
    exact = extract_features(Counted(tiny_config).classifier, train)[0]
    assert not torch.equal(extract_features(rounding, train)[0], exact)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _foreign(path: Path) -> None:
    write_safetensors({"other": torch.zeros(3)}, path)


def _no_number(path: Path) -> None:
    rows = {"keys": torch.zeros(8, 16, dtype=torch.uint8), "rows": torch.full((8, 16), torch.nan)}
    write_safetensors(rows, path)


@pytest.mark.parametrize("damage", [_cut, _foreign, _no_number])
def test_a_damaged_file_is_made_again(
    counted: Counted, train: Source, cached: Path, damage: Callable[[Path], None]
) -> None:
    counted.computed(train)
    (file,) = cached.rglob("*.safetensors")
    damage(file)
    assert counted.computed(train) == len(train)
    assert counted.computed(train) == 0


def test_rows_of_another_width_do_not_come_with_others(cached: Path) -> None:
    write_rows("name", [b"a" * 16], torch.ones(1, 3))
    write_rows("name", [b"b" * 16], torch.ones(1, 4))
    assert read_rows("name", {b"a" * 16, b"b" * 16}) == {}


def test_a_file_of_another_network_is_not_taken(
    cached: Path, counted: Counted, tiny_config: ViTConfig, train: Source
) -> None:
    other = Counted(tiny_config, seed=1)
    assert other.computed(train) == len(train)
    (theirs,) = cached.iterdir()
    counted.computed(train)
    (own,) = set(cached.iterdir()) - {theirs}
    expected, _ = extract_features(counted.classifier, train)
    shutil.rmtree(own)
    shutil.copytree(theirs, own)
    features, _ = extract_features(counted.classifier, train)
    torch.testing.assert_close(features, expected)


def test_a_full_disk_fails_nothing(counted: Counted, train: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept_features, "write_safetensors", full)
    assert counted.computed(train) == counted.computed(train) == len(train)
    said: list[Event] = []
    describer = Describer.of(counted.classifier)
    describer.image_seconds(train, 2)
    for source in (train, Subset(train, [0, 1])):
        describer.describe(source, listener=said.append)
    (line,) = [event.text for event in said if isinstance(event, Message)]
    assert "No space left on device" in line


def test_what_was_not_used_for_longest_goes(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_features, "LIMIT", 3000)  # two files
    key, row = b"k" * DIGEST_BYTES, torch.ones(1, 256)
    for name, age in (("first", 20), ("second", 10)):
        write_rows(name, [key], row)
        (file,) = (cached / name).iterdir()
        os.utime(file, (time.time() - age, time.time() - age))
    read_rows("first", {key})
    write_rows("third", [key], row)
    assert {name for name in ("first", "second", "third") if read_rows(name, {key})} == {"first", "third"}


def test_what_may_be_deep_has_no_key(photos: Path) -> None:
    Image.fromarray(np.zeros((8, 8), dtype=np.uint16)).save(photos / "a" / "deep.png")
    source = all_of(photos)
    names = [Path(source.describe(index)).name for index in range(len(source))]
    assert {name for name, key in zip(names, image_keys(source), strict=True) if not key} == {"deep.png"}


def test_kept_images_take_next_to_no_time(counted: Counted, train: Source) -> None:
    Describer.of(counted.classifier).describe(Subset(train, [0, 1]))
    columns = [feature_column(counted.classifier)]
    assert missing_share(columns, train) == 1 - 2 / len(train)
    Describer.of(counted.classifier).describe(train)
    assert missing_share(columns, train) == 0
    before = counted.predictor.images
    Describer.of(counted.classifier).image_seconds(train)
    assert counted.predictor.images > before, "what is kept says nothing of the time"


def test_images_that_were_timed_are_not_computed_again(
    counted: Counted, train: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "LONG", math.inf)
    describer = Describer.of(counted.classifier)
    describer.image_seconds(train, 3)
    before = counted.predictor.images
    described = describer.describe(train)
    assert counted.predictor.images - before == len(train) - 2 * 3
    plain = Describer.of(counted.classifier).describe(train, columns=[each.unkept(train) for each in describer.columns])
    assert described.features is not None
    assert plain.features is not None
    torch.testing.assert_close(described.features, plain.features, rtol=0, atol=1e-5)
    assert torch.equal(described.pixels, plain.pixels)
