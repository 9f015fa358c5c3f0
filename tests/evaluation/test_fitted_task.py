"""How sure a query must be to have pixels is what validation photos tell, and stays with the classifier."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import TINY
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.data.open import open_data
from vitral.data.source import Source
from vitral.data.subset import Subset
from vitral.evaluation.region_scores import TRIED, fitted_task
from vitral.images.geometry import Geometry
from vitral.images.preprocessing import PHOTOS
from vitral.images.to_photo import bands_in_photo
from vitral.models.catalog import variant
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.dense_model import HEADS, DenseConfig
from vitral.models.families import build
from vitral.tasks import query_answers
from vitral.tasks.panoptic import PANOPTIC, Panoptic
from vitral.tasks.panoptic_quality import PanopticTally
from vitral.tasks.query_answers import SURE
from vitral.tasks.regions import Regions

RIGHT, WRONG = 0.56, 0.45  # the probabilities of queries that stand for a region, and of those that invent one


def _logits(number: int, share: float, classes: int) -> list[float]:
    """Return logits of a class and "no object", which share the probability."""
    shares = [share if each == number else (1 - share if each == classes else 1e-6) for each in range(classes + 1)]
    return [math.log(each) for each in shares]


def _answers(source: Source, index: int, classes: int) -> QueryAnswers:
    """Return the true regions of a photo, and inventions over half of it."""
    truth = source.label(index)
    assert isinstance(truth, Regions)
    masks = torch.from_numpy(truth.bitmaps()).float()
    half = torch.zeros_like(masks[:1])
    half[:, :, : truth.size[1] // 2] = 1
    known = [_logits(number, RIGHT, classes) for number in truth.classes.tolist()]
    shapes = torch.cat([masks, half, 1 - half]) * 20 - 10
    logits = torch.tensor([*known, _logits(1, WRONG, classes), _logits(2, WRONG, classes)])
    return QueryAnswers(logits[None], shapes[None])


def test_the_sureness_of_the_best_quality_is_chosen_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data("digit-scenes-panoptic")
    classes = len(data.class_names)
    config = DenseConfig(
        backbone=variant("vit-nano4"), head=HEADS["queries"][0](), num_classes=classes, image_size=(96, 96)
    )
    classifier = Classifier(build(config, seed=3), PHOTOS.with_size((96, 96)), data.class_names, task=data.task)
    few = Subset(data.splits["validation"], range(4))
    given = iter([_answers(few, index, classes) for index in range(4)])
    monkeypatch.setattr(classifier.predictor, "answers", lambda images: next(given))
    chosen = fitted_task(classifier, few)
    assert isinstance(chosen, Panoptic)
    assert chosen.sure == 0.5  # the only one that is tried between them
    assert chosen == data.task  # of the same photos
    monkeypatch.undo()
    classifier.task = chosen
    again = load(save(classifier, tmp_path / "classifier")).task
    assert isinstance(again, Panoptic)
    assert (again.sure, again.things) == (0.5, chosen.things)


def _one_by_one(task: Panoptic, source: Source, answers: list[QueryAnswers], names: tuple[str, ...]) -> float:
    """Return the sureness of the best quality, each tried by itself from the masks on; of equal ones the nearest to EoMT's."""
    qualities = {}
    for sure in sorted(TRIED, key=lambda sure: abs(sure - SURE)):
        tally = PanopticTally(names, task.things)
        for index, answer in enumerate(answers):
            truth = source.label(index)
            assert isinstance(truth, Regions)
            found = replace(task, sure=sure).find(answer, [PHOTOS.with_size((16, 16)).geometry(96, 96)])
            tally.add(found, [truth], [""])
        qualities[sure] = tally.figures()["pq"]
    return max(qualities, key=lambda sure: qualities[sure])


def _doubtful(source: Source, index: int, classes: int, drawn: torch.Generator) -> QueryAnswers:
    """Return true regions, shifted and blurred, and inventions, of which it is more or less sure."""
    answers = _answers(source, index, classes)
    assert answers.masks is not None
    shifted = [
        mask.roll(tuple(torch.randint(-9, 9, (2,), generator=drawn).tolist()), (0, 1)) for mask in answers.masks[0]
    ]
    noise = torch.randn(answers.classes.shape, generator=drawn) * 1.5
    small = torch.nn.functional.avg_pool2d(torch.stack(shifted)[None], 4)
    return QueryAnswers(answers.classes + noise, small + torch.randn(small.shape, generator=drawn))


def test_all_at_once_is_what_each_gives_and_masks_are_enlarged_once_a_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    data, chosen = open_data("digit-scenes-panoptic"), set()
    task, classes, few = data.task, len(data.class_names), Subset(data.splits["validation"], range(3))
    assert isinstance(task, Panoptic)
    config = DenseConfig(backbone=TINY, head=HEADS["linear"][0](), num_classes=classes, image_size=(16, 16))
    model = build(config, seed=3)
    classifier = Classifier(model, PHOTOS.with_size((16, 16)), data.class_names, task=task)
    enlarged: list[int] = []

    def bands(masks: torch.Tensor, view: Geometry, *, fill: float) -> Iterator[torch.Tensor]:
        enlarged.append(len(masks))
        return bands_in_photo(masks, view, fill=fill)

    for seed in range(6):
        drawn = torch.Generator().manual_seed(seed)
        answers = [_doubtful(few, index, classes, drawn) for index in range(3)]
        given = iter(answers)
        enlarged.clear()
        with monkeypatch.context() as patched:
            patched.setattr(classifier.predictor, "answers", lambda images, given=given: next(given))
            patched.setattr(query_answers, "bands_in_photo", bands)
            fitted = fitted_task(classifier, few)
        assert len(enlarged) == 3
        assert isinstance(fitted, Panoptic)
        assert fitted.sure == _one_by_one(task, few, answers, data.class_names)
        chosen.add(fitted.sure)
    assert len(chosen) > 1


def test_what_validation_photos_do_not_tell_stays() -> None:
    assert PANOPTIC.sure == PANOPTIC.as_described({"things": []}).sure == SURE
