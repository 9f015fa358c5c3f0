"""A start of convolutions: its last blocks learn from what its first ones made of the photos once."""

from pathlib import Path

import pytest

import vitral
from tests.training.candidates.attempts_run import contents, go_on, tune
from tests.training.candidates.material import Killed, killed_when
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.events import Event, Progress
from vitral.images.preprocessing import PHOTOS
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.families import build
from vitral.training.settings.recipe import load_recipe

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = EfficientNetConfig(image_size=(32, 32), num_classes=2, width=0.25, depth=0.5, lite=True)
    classifier = Classifier(build(config, seed=0), PHOTOS.with_size((32, 32)), ("a", "b"))
    save(classifier, folder := tmp_path_factory.mktemp("start") / "convolutions")
    return folder


def is_training(event: Event) -> bool:
    return isinstance(event, Progress) and event.task == "train" and event.done == 10


@pytest.mark.long
def test_a_kill_changes_no_bit_of_it(tmp_path: Path, data: Path, convolutions: Path) -> None:
    """What was kept is gone then, and is made anew."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tune(data, whole, convolutions, image_size=32)
    last = load_recipe(whole / "attempts" / "last-blocks" / "recipe.toml")
    assert last.adaptation.keep_frozen
    assert last.augmentation is not None
    assert (last.augmentation.crop, last.augmentation.flip) == ("none", False)
    everything = load_recipe(whole / "attempts" / "all-weights" / "recipe.toml")
    assert not everything.adaptation.keep_frozen
    with pytest.raises(Killed):
        tune(data, killed, convolutions, image_size=32, listener=killed_when(is_training))
    go_on(killed)
    assert contents(killed) == contents(whole)
    assert vitral.load(killed).model.image_size == (32, 32)
