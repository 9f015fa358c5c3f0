"""A gallery: which images come first, what it says of each, and what it cannot read; the nearest training images."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.metadata import Provenance
from vitral.cli.main import main
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import open_data
from vitral.errors import DataError, ImageError, StorageError
from vitral.events import Event, Message
from vitral.explanation import nearest
from vitral.explanation.explain import explain
from vitral.explanation.gallery import GallerySettings, explain_all, truth_of
from vitral.explanation.nearest import TrainingImages
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.report.pages import write_gallery


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    """An untrained network whose head is not zero."""
    model = build(tiny_config)
    model.init_weights(0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return Classifier(model, Preprocessing(image_size=(16, 16)), ["cat", "dog", "owl"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images in folders of two of the classes and of none."""
    random = np.random.default_rng(0)
    for name in ("cat", "dog", "else"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def quiet(event: Event) -> None:
    pass


def test_the_worst_come_first_by_the_probability_of_their_own_class(classifier: Classifier, folder: Path) -> None:
    listed = list_unlabelled(str(folder))
    gallery = explain_all(classifier, listed, GallerySettings(), worst_first=True, most=5, listener=quiet)
    expected = {}
    for image in listed:
        prediction = classifier.predict(image.name)[0]
        name = Path(image.name).parent.name
        expected[image.name] = dict(prediction.top).get(name, prediction.probability)
    assert [entry.name for entry in gallery.entries] == sorted(expected, key=lambda name: expected[name])[:5]
    assert gallery.num_images == 9
    assert {entry.truth for entry in gallery.entries} <= {"cat", "dog", None}


def test_of_many_images_some_are_shown_evenly_spaced(classifier: Classifier, folder: Path) -> None:
    gallery = explain_all(classifier, list_unlabelled(str(folder)), GallerySettings(), most=3, listener=quiet)
    names = [str(Path(entry.name).relative_to(folder)) for entry in gallery.entries]
    assert names == ["cat/0.png", "dog/1.png", "else/2.png"]
    assert [entry.truth for entry in gallery.entries] == ["cat", "dog", None]


@pytest.mark.parametrize("worst_first", [False, True])
def test_an_image_that_cannot_be_read_is_left_out_and_named(
    classifier: Classifier, folder: Path, worst_first: bool
) -> None:
    (folder / "cat" / "1.png").write_text("no image")
    heard: list[Event] = []
    gallery = explain_all(
        classifier, list_unlabelled(str(folder)), GallerySettings(), worst_first=worst_first, listener=heard.append
    )
    assert (len(gallery.entries), gallery.unreadable) == (8, (str(folder / "cat" / "1.png"),))
    assert len([event for event in heard if isinstance(event, Message) and event.warning]) == 1


def test_a_folder_of_nothing_readable_is_one_line(classifier: Classifier, folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(ImageError, match="None of the images"):
        explain_all(classifier, list_unlabelled(str(folder)), GallerySettings(), listener=quiet)


def test_the_page_shows_every_image_with_its_answer(classifier: Classifier, folder: Path, tmp_path: Path) -> None:
    gallery = explain_all(
        classifier, list_unlabelled(str(folder)), GallerySettings(label="owl", score=True), listener=quiet
    )
    write_gallery(gallery, tmp_path / "page.html", title="<i>photos</i>", classifier="mine")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") == 9
    assert page.count("deletion 0.") + page.count("deletion 1.") == 9
    assert "<i>photos" not in page
    assert "<script" not in page
    assert "by class-specific relevance" in page
    for entry in gallery.entries:
        assert entry.name in page
        assert entry.explanation.label == "owl"
    json.dumps([entry.to_json() for entry in gallery.entries])
    write_gallery(gallery, tmp_path / "page.html", title="again", classifier="mine")
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(StorageError, match="did not write it"):
        write_gallery(gallery, tmp_path / "mine.html", title="x", classifier="mine")


def test_a_map_of_one_value_is_said_to_be_and_stays_out_of_the_mean(
    tiny_config: ViTConfig, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(dataclasses.replace(tiny_config, position="none"))  # patches that are alike get attention alike
    model.init_weights(0)
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)), ["cat", "dog", "owl"])
    Image.new("RGB", (1, 1), (90, 30, 60)).save(folder / "cat" / "1.png")
    settings = GallerySettings("rollout", score=True)
    gallery = explain_all(classifier, list_unlabelled(str(folder)), settings, listener=quiet)
    even = [entry for entry in gallery.entries if entry.explanation.faithfulness is None]
    assert [entry.name for entry in even] == [str(folder / "cat" / "1.png")]
    scores = [entry.explanation.faithfulness for entry in gallery.entries if entry not in even]
    assert gallery.num_scored == 8
    assert gallery.faithfulness() == pytest.approx(
        (np.mean([one.deletion for one in scores if one]), np.mean([one.insertion for one in scores if one]))
    )
    assert "deletion" not in even[0].to_json()
    assert even[0].to_json()["unscored"].startswith("the map has one value throughout")
    write_gallery(gallery, tmp_path / "page.html", title="photos", classifier="mine")
    page = (tmp_path / "page.html").read_text()
    assert page.count("The map has one value throughout") == 1
    assert "mean deletion score of 8 maps" in page
    save(classifier, tmp_path / "mine")
    command = [
        "--faithful",
        "--method",
        "rollout",
        "--classifier",
        str(tmp_path / "mine"),
        "--out",
        str(tmp_path / "even.png"),
    ]
    assert main(["explain", str(folder / "cat" / "1.png"), *command]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "deletion and insertion are not measured." in said
    assert ", deletion 0" not in said


@every_case(
    ("name", "truth"),
    [("photos/cat/1.jpg", "cat"), ("p.zip:dog/1.jpg", "dog"), ("cat/x/1.jpg", None), ("cat.jpg", None)],
)
def test_the_folder_of_an_image_tells_its_class(name: str, truth: str | None) -> None:
    assert truth_of(name, ("cat", "dog")) == truth


def test_the_nearest_training_images_are_those_of_the_largest_cosine(classifier: Classifier, folder: Path) -> None:
    for path in (folder / "else").iterdir():
        path.unlink()
    (folder / "else").rmdir()
    data = open_data(folder)
    training = TrainingImages.of(classifier, data, listener=quiet)
    image = np.random.default_rng(5).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    explanation = explain(classifier, image, training=training)

    def features(pixels: np.ndarray) -> np.ndarray:
        return classifier.predictor.features(classifier.preprocessing(pixels)[None])[0].double().numpy()

    source, wanted = data.splits["train"], features(image)
    rows = []
    for index in range(len(source)):
        row = features(source.image(index))
        cosine = float(row @ wanted / np.linalg.norm(row) / np.linalg.norm(wanted))
        label = source.label(index)
        assert isinstance(label, int)
        rows.append((cosine, source.describe(index), data.class_names[label]))
    rows.sort(key=lambda row: -row[0])
    assert [(one.name, one.label) for one in explanation.nearest] == [row[1:] for row in rows[:5]]
    np.testing.assert_allclose([one.similarity for one in explanation.nearest], [row[0] for row in rows[:5]], atol=1e-6)
    assert explanation.to_json()["nearest"][0]["label"] == rows[0][2]
    assert explanation.draw().shape[0] > explain(classifier, image).draw().shape[0]


def test_an_image_is_not_its_own_neighbour(classifier: Classifier) -> None:
    training = TrainingImages.of(classifier, open_data("digits"), listener=quiet)
    shown = explain(classifier, training.source.image(17), training=training).nearest
    assert len(shown) == 5
    assert training.source.describe(17) not in {one.name for one in shown}
    almost = training.source.image(17).copy()
    almost[0, 0] ^= 1
    first = explain(classifier, almost, training=training).nearest[0]
    assert first.name == training.source.describe(17)
    assert first.similarity == pytest.approx(1.0, abs=1e-3)
    np.testing.assert_array_equal(first.image, training.source.image(17))


def test_of_many_images_some_are_looked_through_and_that_is_said(
    classifier: Classifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "MOST", 50)
    events: list[Event] = []
    training = TrainingImages.of(classifier, open_data("digits"), listener=events.append)
    assert len(training.source) == len(training.features) == 50
    messages = [event.text for event in events if isinstance(event, Message)]
    assert any("among 50 of the 1," in text for text in messages)
    shown = explain(classifier, training.source.image(17), training=training).nearest
    assert {one.name for one in shown} <= {training.source.describe(index) for index in range(50)}


def test_nearest_images_are_called_training_images_only_if_they_are(
    classifier: Classifier, folder: Path, tmp_path: Path
) -> None:
    data = open_data(folder)
    others = TrainingImages.of(classifier, data, listener=quiet)
    assert others.described == "photos of photos"
    classifier.provenance = Provenance(training={"steps": 3, "data_fingerprint": data.fingerprint})
    own = TrainingImages.of(classifier, data, listener=quiet)
    assert own.described == "training photos"
    for training, said, never in (
        (others, "photos of photos", "training photos"),
        (own, "training photos", "of photos"),
    ):
        gallery = explain_all(
            classifier, list_unlabelled(str(folder)), GallerySettings(training=training), listener=quiet
        )
        assert gallery.entries[0].to_json()["nearest_of"] == said
        write_gallery(gallery, tmp_path / "page.html", title="x", classifier="mine")
        page = (tmp_path / "page.html").read_text()
        assert f"Below each the nearest {said}" in page
        shown = sum(len(entry.explanation.nearest) for entry in gallery.entries)
        assert page.count(f'alt="one of the nearest {said}, of the class ') == shown > 9
        assert never not in page


def test_images_that_cannot_be_read_are_no_neighbours_and_that_is_said(classifier: Classifier, folder: Path) -> None:
    (folder / "cat" / "1.png").write_bytes(b"no image")
    events: list[Event] = []
    training = TrainingImages.of(classifier, folder, listener=events.append)
    names = {Path(training.source.describe(index)).name for index in range(len(training.source))}
    assert names
    warnings = [event.text for event in events if isinstance(event, Message) and event.warning]
    assert len(warnings) == 1
    assert warnings[0].startswith("1 image ")
    assert "1.png" in warnings[0]


def test_endless_images_have_no_nearest(classifier: Classifier) -> None:
    with pytest.raises(DataError, match="is endless"):
        TrainingImages.of(classifier, "visualatom-mini", listener=quiet)
