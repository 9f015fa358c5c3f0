"""Photos that a server collects: the least sure stay, within bounds; a full disk, a kill or a person's hand lose nothing."""

import json
from pathlib import Path

import pytest

from tests.serving.conftest import encoded
from vitral.checks.corrections import table_rows
from vitral.classifier.prediction import Prediction
from vitral.errors import StorageError, TrainingError, VitralError
from vitral.events import ignore
from vitral.serving import collected
from vitral.serving.collected import Collection
from vitral.serving.refusals import RequestRefused
from vitral.serving.server import serve
from vitral.serving.sources import NamedClassifier


def guess(probability: float) -> Prediction:
    return Prediction("", "a", probability, (("a", probability), ("b", 1 - probability)))


def offered(folder: Path, *probabilities: float, first: int = 0) -> list[str]:
    """Collect photos of answers of such probabilities, and return what could not be written."""
    told: list[str] = []
    collection = Collection(folder, told.append)
    for seed, probability in enumerate(probabilities, first):
        collection._take(encoded(seed), guess(probability))
    collection.end()
    return told


def listed(folder: Path) -> list[tuple[str, float, str | None]]:
    collection = Collection(folder, print)
    collection.end()
    photos = collection.listed()
    assert {name for name, _, _ in photos} == {path.name for path in (folder / "photos").iterdir()}
    return [(name, photo.sureness, label) for name, photo, label in photos]


def test_the_least_sure_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "collected"
    monkeypatch.setattr(collected, "MOST_PHOTOS", 3)
    offered(folder, 0.9, 0.5, 0.8, 0.6, 0.95, 0.7)
    assert [sureness for _, sureness, _ in listed(folder)] == [0.5, 0.6, 0.7]
    offered(folder, 0.4, 0.5, first=1)  # one that is there already, and one that is as sure as another
    assert [sureness for _, sureness, _ in listed(folder)] == [0.5, 0.5, 0.6]
    monkeypatch.setattr(collected, "MOST_BYTES", 2 * len(encoded(0)) + 500)
    offered(folder, 0.3, first=20)
    assert len(listed(folder)) == 2


def test_a_name_is_a_row_and_goes_back(tmp_path: Path) -> None:
    folder = tmp_path / "collected"
    offered(folder, 0.5, 0.6)
    collection = Collection(folder, print)
    (first, _, _), (second, _, _) = collection.listed()
    collection.name(first, "b")
    collection.name(second, "a")
    table = folder / "labels.csv"
    table.write_text(table.read_text().replace(",a,a,", ",c,a,"))  # by hand, meanwhile
    collection.name(first, "a")
    assert [(row["image"], row["label"], row["suggestion"]) for row in table_rows(table)] == [
        (f"photos/{second}", "c", "a"),
        (f"photos/{first}", "a", "a"),
    ]
    collection.name(first, None)
    assert [(name, label) for name, _, label in collection.listed()] == [(first, None), (second, "c")]
    collection.remove(second)
    with pytest.raises(RequestRefused):
        collection.photo(second)
    collection.end()
    assert [name for name, _, _ in listed(folder)] == [first]


def test_a_photo_with_a_name_makes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "collected"
    monkeypatch.setattr(collected, "MOST_PHOTOS", 1)
    offered(folder, 0.9)
    collection = Collection(folder, print)
    collection.name(collection.listed()[0][0], "b")
    collection.end()
    offered(folder, 0.5, 0.4, first=1)
    assert [(sureness, label) for _, sureness, label in listed(folder)] == [(0.4, None), (0.9, "b")]


def test_a_disk_that_fails_is_told_and_the_next_photo_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "collected"
    told: list[str] = []
    collection = Collection(folder, told.append)
    (folder / "photos").rmdir()
    (folder / "photos").write_text("")  # no folder, so that nothing can be written in it
    collection.offer(encoded(0), guess(0.5))
    while not told:
        pass
    (folder / "photos").unlink()
    collection.offer(encoded(1), guess(0.6))
    collection.end()
    assert [sureness for _, sureness, _ in listed(folder)] == [0.6]


def test_what_a_kill_left_is_deleted_and_only_that(tmp_path: Path) -> None:
    folder = tmp_path / "collected"
    offered(folder, 0.5)
    (folder / "photos" / f"{'0' * 32}.jpeg").write_bytes(encoded(9))
    (folder / "photos" / "mine.jpg").write_bytes(encoded(8))
    collection = Collection(folder, print)
    collection.end()
    assert len(collection.listed()) == 1
    assert {path.name for path in (folder / "photos").iterdir()} == {collection.listed()[0][0], "mine.jpg"}


def test_photos_are_not_for_everybody(tmp_path: Path) -> None:
    with pytest.raises(VitralError, match="token"):
        serve([NamedClassifier("noise")], collect=tmp_path / "collected", open=True, listener=ignore)
    assert not (tmp_path / "collected").exists()


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("x")
    with pytest.raises(StorageError, match="holds something else"):
        Collection(tmp_path, print)
    folder = tmp_path / "collected"
    collection = Collection(folder, print)
    with pytest.raises(TrainingError):
        Collection(folder, print)
    collection.end()
    (folder / ".vitral-collected.json").write_text(json.dumps({"x": 3}))
    with pytest.raises(StorageError, match="damaged"):
        Collection(folder, print)
