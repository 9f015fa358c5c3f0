"""Deciding between two classifiers on the same images: the formulas written anew, classes by name, what cannot be compared."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import Provenance
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import DataError
from vitral.evaluation import compare as module
from vitral.evaluation.comparison import Comparison, difference_interval, holm, images_needed, mcnemar_exact
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import Preprocessing
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig


def compare(*arguments: Any, **more: Any) -> Comparison:  # noqa: ANN401  # those of the function
    """Return the comparison of two classifiers of images as a whole."""
    found = module.compare(*arguments, **more)
    assert isinstance(found, Comparison)
    return found


SHADES = {"dark": 40, "middle": 120, "light": 200}


def shade_classifier(
    config: ViTConfig, names: Sequence[str], confuse: Sequence[int] = (), trained_on: str = ""
) -> Classifier:
    """Build a network that names an image by its red, and takes one whose green is in `confuse` for the next class."""
    model = ViT(config)
    model.init_weights(0)
    provenance = Provenance(training={"data_fingerprint": trained_on} if trained_on else {})
    classifier = Classifier(model, Preprocessing(image_size=(16, 16)), names, provenance=provenance)
    known = list(SHADES)

    def forward(images: torch.Tensor) -> torch.Tensor:
        values = (images.mean(dim=(2, 3)) * 127.5 + 127.5).round()
        logits = torch.zeros(len(images), len(names))
        for row, (red, green, _) in enumerate(values.tolist()):
            shade = (round((red - 40) / 80) + (round(green) in confuse)) % 3
            logits[row, list(names).index(known[shade])] = 3.0 + green / 100
        return logits

    model.forward = forward  # type: ignore[method-assign]
    return classifier


def write_shades(folder: Path, count: int, names: Sequence[str] = tuple(SHADES)) -> Path:
    """Write for every class images that are told apart by their green: 0, 1, 2, ..."""
    for name in names:
        for split in ("train", "test"):
            (folder / split / name).mkdir(parents=True)
            for index in range(count):
                pixels = np.full((16, 16, 3), (SHADES[name], index, 0), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{index}.png")
    return folder


def exact_by_hand(first: int, second: int) -> float:
    images = first + second
    tail = sum(math.comb(images, count) for count in range(min(first, second) + 1))
    return min(1.0, 2 * tail / 2**images)


def test_the_chance_of_a_difference_is_the_binomial_tail_on_both_sides() -> None:
    for first, second in [(0, 0), (5, 0), (0, 5), (6, 0), (7, 3), (3, 3), (20, 9), (131, 97), (1, 1)]:
        assert mcnemar_exact(first, second) == pytest.approx(exact_by_hand(first, second), abs=1e-12)
    assert mcnemar_exact(5, 0) == pytest.approx(0.0625, abs=1e-12)
    assert mcnemar_exact(30_000, 29_000) < 0.05 < mcnemar_exact(30_000, 29_900)


def test_the_interval_is_the_exact_one_of_the_images_on_which_one_alone_is_right() -> None:
    only_first, only_second, images = 31, 12, 400
    apart = only_first + only_second
    shares = [(bound * images / apart + 1) / 2 for bound in difference_interval(only_first, only_second, images)]

    def tail(share: float, counts: Sequence[int]) -> float:
        return sum(math.comb(apart, count) * share**count * (1 - share) ** (apart - count) for count in counts)

    assert tail(shares[0], range(only_first, apart + 1)) == pytest.approx(0.025, abs=1e-9)
    assert tail(shares[1], range(only_first + 1)) == pytest.approx(0.025, abs=1e-9)
    low, high = difference_interval(only_first, only_second, images)
    assert difference_interval(only_second, only_first, images) == pytest.approx((-high, -low), abs=1e-12)
    assert difference_interval(0, 0, 10) == (0.0, 0.0)


def test_the_interval_excludes_no_difference_exactly_where_the_test_decides() -> None:
    for first in range(25):
        for second in range(25):
            low, high = difference_interval(first, second, 100)
            assert (low > 0 or high < 0) == (exact_by_hand(first, second) < 0.05), (first, second)
            assert low <= (first - second) / 100 <= high


def test_the_images_that_would_decide_do_decide() -> None:
    needed = images_needed(30, 20, 1000)
    assert needed is not None
    rng = np.random.default_rng(2)
    drawn = rng.multinomial(needed, [0.03, 0.02, 0.95], size=2000)
    decided = np.mean([mcnemar_exact(int(one), int(other)) < 0.05 for one, other, _ in drawn])
    assert decided == pytest.approx(0.8, abs=0.04)
    assert images_needed(7, 7, 100) is None


def test_many_classes_are_corrected_for() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_better_one_is_said_with_the_images_that_tell(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 12)
    good = shade_classifier(tiny_config, ["dark", "middle", "light"], confuse=[3])
    poor = shade_classifier(tiny_config, ["light", "dark", "middle"], confuse=[0, 1, 2, 3])
    found = compare(good, poor, folder, listener=ignore)
    assert found.verdict == "better"
    assert (found.images, found.first.alone, found.second.alone) == (36, 9, 0)
    assert (found.both_right, found.both_wrong, found.same_answer) == (24, 3, 27 / 36)
    assert (found.first.top1, found.second.top1, found.difference) == (33 / 36, 24 / 36, 9 / 36)
    assert found.p_value == pytest.approx(2 / 2**9, abs=1e-12)
    assert found.images_needed is None
    assert {one.name: (one.first, one.second, one.images) for one in found.classes} == dict.fromkeys(
        SHADES, (11 / 12, 8 / 12, 12)
    )
    # Three images each decide nothing, nor all three classes together.
    assert {one.p_value for one in found.classes} == {min(1.0, 3 * exact_by_hand(3, 0))}
    assert {one.verdict for one in found.classes} == {"not decided"}
    assert "Holm's method for the 3 classes on which they differ" in found.tables()[1].title
    surest = found.only_first[0]
    assert surest.description.endswith("2.png")
    assert surest.answer == {"dark": "middle", "middle": "light", "light": "dark"}[surest.truth]
    assert not found.only_second
    other_way = compare(poor, good, folder, listener=ignore)
    assert (other_way.verdict, other_way.difference) == ("worse", -9 / 36)
    assert other_way.only_second == found.only_first
    assert found.lines()[0].startswith("the first is better than the second: 33 against 24 of 36 test photos")
    assert json.loads(json.dumps(found.to_json()))["verdict"] == "better"
    assert repr(found).startswith("Comparison: ")


def test_a_difference_that_chance_explains_decides_nothing(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 12)
    names = ["dark", "middle", "light"]
    whole = shade_classifier(tiny_config, names)
    found = compare(whole, shade_classifier(tiny_config, names, confuse=[4]), folder, listener=ignore)
    assert (found.verdict, found.first.alone, found.second.alone) == ("not decided", 3, 0)
    assert found.images_needed is not None
    assert found.images_needed > 36
    assert any(str(found.images_needed) in line for line in found.lines())
    same = compare(whole, whole, folder, listener=ignore)
    assert (same.verdict, same.p_value, same.difference_interval) == ("not decided", 1.0, (0.0, 0.0))
    assert same.lines()[0].startswith("Not decided")


def test_a_class_that_the_data_lack_hinders_nothing_and_is_shown(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 4, ["dark", "light"])
    one = shade_classifier(tiny_config, ["dark", "light", "middle"])
    two = Classifier(one.model, one.preprocessing, ["dark", "light", "grey"])
    found = compare(one, two, folder, listener=ignore)
    assert found.images == 8
    assert found.unshared == (("", "grey"), ("middle", ""))
    assert found.tables()[-1].rows == (("–", "grey"), ("middle", "–"))


@pytest.mark.parametrize("opened", [False, True])
def test_a_class_that_one_of_them_does_not_know_is_shown_side_by_side(
    tmp_path: Path, tiny_config: ViTConfig, opened: bool
) -> None:
    folder = write_shades(tmp_path / "shades", 2)
    one = shade_classifier(tiny_config, ["dark", "middle", "light"])
    two = Classifier(one.model, one.preprocessing, ["dark", "middles", "light"])
    data: DataSet | Path = open_data(folder) if opened else folder
    heard: list[Event] = []
    with pytest.raises(DataError, match=r"the second .*1 of the 3 classes .*'middles'\?"):
        compare(one, two, data, listener=heard.append)
    said = [event.text.split() for event in heard if isinstance(event, Message)]
    assert ["middle", "middle", "–"] in said
    assert ["–", "–", "middles"] in said
    assert ["dark", "dark", "dark"] in said


def test_one_that_may_have_learned_the_images_is_said(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 4)
    names = ["dark", "middle", "light"]
    mine = open_data(folder).fingerprint
    one = shade_classifier(tiny_config, names, trained_on=mine)
    two = shade_classifier(tiny_config, names, trained_on="others")
    assert "is not known" in compare(one, two, folder, listener=ignore).remarks[0]
    assert compare(one, one, folder, listener=ignore).remarks == ()
    assert "trained on these photos" in compare(two, one, folder, split="train", listener=ignore).remarks[0]


def test_images_without_splits_are_those_that_training_left_out(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 20) / "train"
    names = ["dark", "middle", "light"]
    data = open_data(folder)
    one = shade_classifier(tiny_config, names, trained_on="others")
    two = shade_classifier(tiny_config, names, trained_on=data.fingerprint)
    assert compare(one, two, folder, listener=ignore).images == len(data.splits["test"]) == 6
    assert compare(one, one, folder, listener=ignore).images == 60


def test_only_images_of_one_class_each_can_be_compared(tmp_path: Path, tiny_config: ViTConfig) -> None:
    folder = write_shades(tmp_path / "shades", 2)
    one = shade_classifier(tiny_config, ["dark", "middle", "light"])
    several = Classifier(one.model, one.preprocessing, one.class_names, multi_label=True)
    with pytest.raises(DataError, match="the second is a classifier of the task 'multi-label'"):
        compare(one, several, folder, listener=ignore)
