"""What a task says that it can is all that commands go by: a task of one file has everything, or is refused in one line."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from tests.evaluation.test_compare import SHADES, shade_classifier, write_shades
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.deployment.calibrate import calibrate
from vitral.errors import DataError
from vitral.evaluation.compare import compare
from vitral.evaluation.slices import slices
from vitral.events import ignore
from vitral.models.vit_config import ViTConfig
from vitral.tasks.any_right_label import ANY_RIGHT_LABEL
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL, SingleLabel
from vitral.tasks.unlabelled import UNLABELLED


class Shades(SingleLabel):
    """One class an image by another name: all that the single-label task can."""

    name: ClassVar[str] = "shades"
    folder_version: ClassVar[int] = 2


class Bare(Shades):
    """One class an image, without a word on what else can be done with it."""

    closed_form: ClassVar[bool] = False
    mixable: ClassVar[bool] = False
    calibrated: ClassVar[bool] = False
    comparable: ClassVar[bool] = False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos of three shades with all three splits."""
    folder = write_shades(tmp_path / "photos", 8)
    (folder / "train").rename(folder / "val")
    write_shades(tmp_path / "more", 8)
    (tmp_path / "more" / "train").rename(folder / "train")
    return folder


def network(config: ViTConfig, task: SingleLabel) -> Classifier:
    classifier = shade_classifier(config, list(SHADES), confuse=(1, 2))
    classifier.task = task
    return classifier


def test_a_task_of_ones_own_has_all_that_it_says(folder: Path, tiny_config: ViTConfig, tmp_path: Path) -> None:
    own = network(tiny_config, Shades())
    plain = network(tiny_config, SINGLE_LABEL)
    assert compare(own, plain, folder, listener=ignore).images == 24
    fitted = calibrate(own, folder, listener=ignore).calibration
    assert fitted == calibrate(plain, folder, listener=ignore).calibration
    assert slices(own, folder, by="folder", listener=ignore).accuracy == 0.75
    for classifier in (own, plain):
        saved = save(classifier, tmp_path / classifier.task.name)
        description = json.loads((saved / "classifier.json").read_text())
        assert (description["task"], description["version"]) == (classifier.task.name, classifier.task.folder_version)


def test_a_task_that_says_nothing_is_refused_in_one_line(folder: Path, tiny_config: ViTConfig) -> None:
    bare = network(tiny_config, Bare())
    for refused in (
        lambda: compare(bare, bare, folder, listener=ignore),
        lambda: calibrate(bare, folder, listener=ignore),
        lambda: slices(bare, folder, by="folder", listener=ignore),
    ):
        with pytest.raises(DataError, match="one class each") as raised:
            refused()
        assert "\n" not in str(raised.value)


def test_the_task_of_the_data_says_by_what_a_classifier_is_scored() -> None:
    own = Shades()
    assert ANY_RIGHT_LABEL.scoring(own) is ANY_RIGHT_LABEL  # any right label counts for whoever gives one answer
    assert ANY_RIGHT_LABEL.scoring(MULTI_LABEL) is MULTI_LABEL
    assert UNLABELLED.scoring(own) is SINGLE_LABEL.scoring(own) is own
