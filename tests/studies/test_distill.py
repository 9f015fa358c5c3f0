"""`vitral distill`: a small network beside its teacher, on images with labels, with others, and with none."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vitral
from tests.cli.conftest import write_images
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save
from vitral.classifier.load import load
from vitral.classifier.metadata import Provenance
from vitral.cli.main import main
from vitral.errors import DataError, ModelError, TrainingError, TrainingInterrupted, UsageError
from vitral.events import Event, Message, Scalars, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import VARIANTS
from vitral.models.families import build, replace
from vitral.studies.distill import Distilled, distill
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.unlabelled import UNLABELLED
from vitral.weights.dialect import NO_HEAD

NAMES = ("blue", "green", "red")
SMALL = ("depth=1", "steps=4", "batch_size=8", "workers=0", "evaluation.every_steps=2", "mixing.mixup=0.0")


def teacher(path: Path, names: tuple[str, ...] = NAMES, **given: Any) -> Path:  # noqa: ANN401
    """A network whose answers differ from image to image."""
    config = replace(VARIANTS["vit-mu16"], image_size=(32, 32), num_classes=len(names), depth=2)
    model = build(config, seed=3)
    nn.init.normal_(model.head.weight, std=3.0, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        tints = (40 + 120 * torch.eye(3))[:, :, None, None].expand(3, 3, 32, 32).to(torch.uint8)
        model.head.bias.sub_(model(PHOTOS.normalize(tints)).mean(dim=0))  # so that not all are of one class
    return save(Classifier(model, PHOTOS.with_size((32, 32)), names, **given), path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in classes, the same in no order, and a teacher."""
    folder = tmp_path_factory.mktemp("home")
    write_images(folder / "photos", {"red": 12, "green": 12, "blue": 12})
    (folder / "album").mkdir()
    for number, path in enumerate(sorted((folder / "photos").rglob("*.jpg"))):
        shutil.copy(path, folder / "album" / f"{number}.jpg")
    teacher(folder / "teacher")
    return folder


def small(home: Path, data: str, out: Path, *more: str, known: str | Classifier = "teacher", **given: Any) -> Distilled:  # noqa: ANN401
    listener = given.pop("listener", ignore)
    taught_by = home / known if isinstance(known, str) else known
    return distill(taught_by, data, student="vit-mu16", out=out, overrides=(*SMALL, *more), listener=listener, **given)


def test_a_stop_names_the_teacher_that_continues_it(home: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Scalars):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(TrainingInterrupted, match=str(home / "teacher")) as caught:
        small(home, str(home / "photos"), tmp_path / "run", listener=stop)
    assert f"`out={str(tmp_path / 'run')!r}`" in str(caught.value)
    assert distill(home / "teacher", out=tmp_path / "run", resume=True, listener=ignore).result.training.steps == 4


def test_images_with_labels_score_both(home: Path, tmp_path: Path) -> None:
    found = small(home, str(home / "photos"), tmp_path / "run")
    assert found.figure == "accuracy"
    split = found.result.split
    assert (
        found.teacher.score
        == vitral.evaluate(home / "teacher", home / "photos", split=split, listener=ignore).headline()
    )
    assert found.student.score == found.result.evaluation.headline()
    assert found.teacher.image_size == found.student.image_size == (32, 32)
    assert found.teacher.megabytes == pytest.approx(
        sum(value.numel() for value in read(home / "teacher").model.state_dict().values()) * 4e-6
    )
    assert min(found.teacher.milliseconds, found.student.milliseconds) > 0
    assert found.student.parameters < found.teacher.parameters
    (table,) = found.tables()
    assert [row[0] for row in table.rows] == ["teacher", "student"]
    recipe = found.result.run.recipe
    assert recipe.method.name == "feature-distillation"
    assert recipe.method.model_dump()["teacher"] == str(home / "teacher")


@pytest.mark.parametrize("prefix", ["", "unlabelled:"])
def test_images_without_labels_score_agreement(home: Path, tmp_path: Path, prefix: str) -> None:
    events: list[Event] = []
    found = small(home, f"{prefix}{home / 'album'}", tmp_path / "run", listener=events.append)
    assert found.figure == "agreement"
    data, known = found.result.run.data, load(home / "teacher", listener=ignore)
    assert data.class_names == NAMES
    source = data.splits["train"]
    answers = known.predict([source.describe(index) for index in range(len(source))], listener=ignore)
    assert [NAMES[label] for label in source.labels()] == [answer.label for answer in answers]
    assert len(set(source.labels().tolist())) > 1
    assert any("accuracy means agreement with it" in note for note in data.notes)
    said = [event.text for event in events if isinstance(event, Message)]
    assert any("Its images are taken without labels" in text for text in said) == (not prefix)
    assert load(tmp_path / "run", listener=ignore).class_names == NAMES


def test_labels_that_the_teacher_does_not_know_are_not_read(home: Path, tmp_path: Path) -> None:
    teacher(tmp_path / "other", ("cat", "dog"))
    events: list[Event] = []
    found = small(tmp_path, str(home / "photos"), tmp_path / "run", known="other", listener=events.append)
    assert (found.figure, found.result.run.data.class_names) == ("agreement", ("cat", "dog"))
    said = [event.text for event in events if isinstance(event, Message)]
    assert any("does not know all classes of photos" in text for text in said)


def test_a_teacher_that_knows_more_teaches_the_classes_of_the_data(home: Path, tmp_path: Path) -> None:
    teacher(tmp_path / "more", ("x", "red", "y", "blue", "green"))
    found = small(tmp_path, str(home / "photos"), tmp_path / "run", known="more")
    assert (found.figure, found.result.classifier.class_names) == ("accuracy", NAMES)


def test_of_a_teacher_without_a_head_the_features_are_learned(home: Path, tmp_path: Path) -> None:
    teacher(tmp_path / "bare", provenance=Provenance("bare", notes=(NO_HEAD,)))
    found = small(tmp_path, f"unlabelled:{home / 'album'}", tmp_path / "run", known="bare")
    assert found.result.run.recipe.method.model_dump()["answers"] == 0
    assert found.student.score is None
    assert found.result.run.data.task == UNLABELLED
    assert "–" in found.tables()[0].rows[1]
    on_labels = small(tmp_path, str(home / "photos"), tmp_path / "labelled", known="bare")
    assert on_labels.result.classifier.class_names == NAMES  # by a head in closed form
    assert on_labels.result.classifier.model.head.weight.abs().sum() > 0


def test_it_goes_on_and_refuses_another_teacher(home: Path, tmp_path: Path) -> None:
    small(home, str(home / "photos"), tmp_path / "run")
    same = read(home / "teacher")
    found = distill(same, out=tmp_path / "run", overrides=("steps=6",), resume=True, listener=ignore)
    assert found.result.training.steps == 6
    other = teacher(tmp_path / "other", provenance=Provenance("another"))
    model = read(other)
    nn.init.ones_(model.model.head.bias)
    save(model, tmp_path / "changed")
    with pytest.raises(TrainingError, match="began with another teacher"):
        distill(tmp_path / "changed", out=tmp_path / "run", overrides=("steps=8",), resume=True, listener=ignore)
    with pytest.raises(TrainingError, match="began with"):
        distill(home / "teacher", out=tmp_path / "run", student="resnet-10", resume=True, listener=ignore)


def test_the_teacher_is_asked_for_the_datas_classes_alone(home: Path, tmp_path: Path) -> None:
    known = read(home / "teacher")
    more = teacher(tmp_path / "more", (*NAMES, "x"))
    widened = read(more)
    with torch.no_grad():
        for name, value in known.model.state_dict().items():
            widened.model.state_dict()[name][: len(value)].copy_(value)
        widened.model.head.bias[-1] = 50.0  # which it would always say
    plain = small(home, str(home / "photos"), tmp_path / "one")
    wide = small(tmp_path, str(home / "photos"), tmp_path / "two", known=widened)
    (saved,) = tmp_path.glob("teacher-*")  # beside the run, which reads it again when it is resumed
    assert wide.result.run.recipe.method.model_dump()["teacher"] == str(saved)
    assert wide.teacher.score == plain.teacher.score
    assert plain.teacher.score is not None
    assert plain.teacher.score > 0


def test_the_command(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["distill", str(home / "teacher"), "--data", str(home / "photos"), "--student", "vit-mu16"]
    typed += ["--out", str(tmp_path / "run"), *(part for change in SMALL for part in ("--set", change))]
    assert main(typed) == 0
    said = capsys.readouterr().out
    assert "as the teacher, and is" in said
    assert "points of accuracy on the test photos" in said
    assert "teacher" in said
    assert "GMACs" in said
    assert main([*typed, "--overwrite", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["distilled"]["figure"] == "accuracy"
    assert printed["distilled"]["student"]["milliseconds"] > 0
    assert printed["evaluation"]["num_examples"] > 0


def test_what_is_refused(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="Which images"):
        distill(home / "teacher", listener=ignore)
    with pytest.raises(DataError, match="does not know the classes of 'digits'"):
        small(home, "digits", out)
    with pytest.raises(DataError, match="nowhere"):
        small(home, "nowhere", out)
    teacher(tmp_path / "several", task=MULTI_LABEL)
    with pytest.raises(ModelError, match="cannot teach its answers so"):
        small(tmp_path, str(home / "photos"), out, known="several")
    teacher(tmp_path / "cats", ("cat", "dog"))
    with pytest.raises(DataError, match="does not know the classes of 'frequent:10"):
        small(tmp_path, f"frequent:10:{home / 'photos'}", out, known="cats")
    with pytest.raises(ModelError, match="second head"):
        distill(
            home / "teacher",
            home / "photos",
            student="deit-ti16-distilled",
            out=out,
            overrides=("workers=0",),
            listener=ignore,
        )
    assert not out.exists() or not (out / "classifier").exists()
