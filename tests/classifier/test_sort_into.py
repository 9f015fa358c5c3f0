"""Photos sorted into folders: every one once, none overwritten, the originals untouched, and going on after a kill."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from vitral.classifier.bulk.sort_into import NOT_SURE, RECORD, folder_names, sort_into
from vitral.classifier.metadata import Calibration
from vitral.errors import ImageError, StorageError
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import PHOTOS

COUNT = 20


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos in two folders under the same names, one of them damaged, and a text."""
    rng = np.random.default_rng(0)
    for index in range(COUNT):
        path = tmp_path / "photos" / "ab"[index % 2] / f"{index // 2}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(path)
    (tmp_path / "photos" / "a" / "bad.jpg").write_bytes(b"no image")
    (tmp_path / "photos" / "notes.txt").write_text("x")
    return tmp_path / "photos"


@pytest.fixture
def classifier() -> vitral.Classifier:
    model = vitral.create_model("vit-mu4", num_classes=3)
    torch.nn.init.normal_(model.head.weight, std=2.0, generator=torch.Generator().manual_seed(0))
    return vitral.Classifier(model, PHOTOS.with_size(model.image_size), ["cat", "a/b", "../evil"])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_photo_has_one_copy_in_the_folder_of_its_class(
    photos: Path, classifier: vitral.Classifier, tmp_path: Path
) -> None:
    before, events, out = contents(photos), list[Event](), tmp_path / "sorted"
    result = sort_into(classifier, photos, out, listener=events.append)
    assert contents(photos) == before
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "sorted"}  # "../evil" leads nowhere
    copies = sorted(path for path in out.rglob("*.png"))
    assert len(copies) == COUNT == sum(result.counts.values())
    assert {path.parent.parent for path in copies} == {out}
    originals = sorted(content for name, content in before.items() if name.endswith(".png"))
    assert sorted(path.read_bytes() for path in copies) == originals
    assert [Path(name).name for name in result.unread] == ["bad.jpg"]
    assert any("bad.jpg" in event.text for event in events if isinstance(event, Message))
    labels = {str(Path(one.source).resolve()): one.label for one in classifier.predict(sorted(photos.rglob("*.png")))}
    with open(out / RECORD, newline="") as file:
        rows = list(csv.DictReader(file))
    folders = folder_names(classifier.class_names)
    assert {row["photo"]: row["copy"].partition("/")[0] for row in rows} == {
        name: folders[label] for name, label in labels.items()
    }
    assert (out / rows[0]["copy"]).stat().st_mtime == Path(rows[0]["photo"]).stat().st_mtime


def test_a_killed_command_goes_on(
    photos: Path, classifier: vitral.Classifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sort_into(classifier, photos, tmp_path / "whole", listener=ignore)
    out, copied = tmp_path / "sorted", 0

    def copy(source: Path, target: Path) -> None:
        nonlocal copied
        copied += 1
        if copied == 8:
            raise KeyboardInterrupt
        shutil.copyfile(source, target)

    monkeypatch.setattr(shutil, "copy2", copy)
    with pytest.raises(KeyboardInterrupt):
        sort_into(classifier, photos, out, listener=ignore)
    record = out / RECORD
    record.write_text(
        record.read_text().rstrip("\n").rpartition("\n")[0] + "\n/half of a row,"
    )  # killed before it was written
    result = sort_into(classifier, photos, out, listener=ignore)
    assert result.before == 6
    assert result.counts == whole.counts
    assert contents(out).keys() == contents(tmp_path / "whole").keys()
    again = sort_into(classifier, photos, out, listener=ignore)
    assert (again.before, again.counts) == (COUNT, whole.counts)


def test_what_is_not_sure_lies_apart(photos: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    assert not sort_into(classifier, photos, tmp_path / "all", listener=ignore).decided
    probabilities = sorted(one.probability for one in classifier.predict(sorted(photos.rglob("*.png"))))
    limit = (probabilities[4] + probabilities[5]) / 2
    classifier.calibration = Calibration(1.0, limit, 0.9, "photos", 10)
    result = sort_into(classifier, photos, tmp_path / "sorted", listener=ignore)
    assert result.counts[NOT_SURE] == 5
    assert result.decided


def test_what_would_be_lost_or_mixed_is_refused(photos: Path, classifier: vitral.Classifier, tmp_path: Path) -> None:
    for out in (photos, photos / "sorted", tmp_path):
        with pytest.raises(StorageError, match="beside them"):
            sort_into(classifier, photos, out, listener=ignore)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("x")
    with pytest.raises(StorageError, match=r"letter\.txt"):
        sort_into(classifier, photos, tmp_path / "other", listener=ignore)
    with pytest.raises(ImageError, match="nowhere"):
        sort_into(classifier, tmp_path / "nowhere", tmp_path / "sorted", listener=ignore)
    assert not (tmp_path / "sorted").exists()


@every_case(
    ("labels", "folders"),
    [
        (("cat", "dog"), ("cat", "dog")),
        (("a/b", "a:b"), ("a_b", "a_b 2")),
        (("Cat", "cat"), ("Cat", "cat 2")),
        (("..", "."), ("_", "_ 2")),
        (("con", "not sure", "=x"), ("con_", "not sure 2", "x")),
        (("日本", "x" * 300), ("日本", "x" * 100)),
    ],
)
def test_folders_of_classes_are_safe_and_different(labels: tuple[str, ...], folders: tuple[str, ...]) -> None:
    assert tuple(folder_names(labels).values()) == folders
