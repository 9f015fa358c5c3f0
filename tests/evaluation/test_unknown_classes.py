"""The limit for images of none of the classes: what is expected of it holds of images that it was not set on."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from vitral.classifier.novelty import KnownImages
from vitral.evaluation.unknown_classes import FEWEST, area_under, chosen, left_out, ranks, remembered, set_limit

CLASSES = 6
NAMES = tuple("abcdef")
CENTRES = torch.randn(CLASSES + 1, 8, generator=torch.Generator().manual_seed(0)) * 3


def drawn(count: int, *, seed: int, classes: int = CLASSES) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points around the centre of each class, and the classes."""
    labels = torch.arange(count) % classes
    return CENTRES[labels] + torch.randn(count, 8, generator=torch.Generator().manual_seed(seed)), labels


def test_new_images_are_refused_and_accepted_as_often_as_is_said() -> None:
    known = remembered(*drawn(3000, seed=1), seed=0)
    limit = set_limit(known, NAMES, learned=False)
    assert limit is not None
    assert limit.images == 600
    assert limit.refused == pytest.approx(1 - 571 / 601)  # the first of 601 that is 95 %
    own = known.space.novelty(known.where(known.held_out).features, limit.distance)
    assert int((own > limit.threshold).sum()) == 600 - 571
    new, labels = drawn(6000, seed=2)
    far = known.space.novelty(new, limit.distance)
    assert float((far > limit.threshold).double().mean()) == pytest.approx(limit.refused, abs=0.025)
    unseen = left_out(known, KnownImages(new, labels, torch.ones(6000).bool()))[limit.distance]
    assert float((unseen <= limit.threshold).double().mean()) == pytest.approx(limit.accepted, abs=0.05)
    assert limit.area == pytest.approx(roc_auc_score(np.repeat([0, 1], 6000), torch.cat([far, unseen])), abs=0.03)
    never_seen = CENTRES[-1] + torch.randn(500, 8, generator=torch.Generator().manual_seed(3))
    assert (known.space.novelty(never_seen, limit.distance) > limit.threshold).double().mean() > 0.8
    by_class = [float((unseen[labels == label] <= limit.threshold).double().mean()) for label in range(CLASSES)]
    assert limit.worst == pytest.approx(max(by_class), abs=0.1)
    assert limit.worst_class == NAMES[by_class.index(max(by_class))]


def test_nothing_is_set_where_it_would_mislead() -> None:
    features, labels = drawn(200, seed=1)
    known = remembered(features, labels, seed=0)
    assert set_limit(known, NAMES, learned=False) is not None
    few = torch.arange(len(known.labels))[known.held_out][FEWEST - 1 :]
    fewer = dataclasses.replace(known, held_out=known.held_out.clone())
    fewer.held_out[few] = False
    assert set_limit(fewer, NAMES, learned=False) is None
    assert set_limit(remembered(features, torch.zeros_like(labels), seed=0), NAMES, learned=False) is None
    noise = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    assert set_limit(remembered(noise, labels, seed=0), NAMES, learned=False) is None
    assert set_limit(remembered(torch.ones(200, 8), labels, seed=0), NAMES, learned=False) is None


def test_classes_share_the_images_that_are_kept() -> None:
    labels = torch.tensor([0] * 90 + [1] * 8 + [2] * 2)
    kept = chosen(labels, 30, seed=0)
    assert torch.equal(kept, kept.sort().values)
    assert labels[kept].bincount().tolist() == [20, 8, 2]
    assert not torch.equal(kept, chosen(labels, 30, seed=1))
    assert len(chosen(labels, 1000, seed=0)) == 100
    assert ranks(torch.tensor([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]


def test_the_area_is_that_of_scikit_learn_with_equal_ones_too() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = (torch.randint(0, high, (200,), generator=generator).float() for high in (10, 14))
    truth = np.repeat([0, 1], 200)
    assert area_under(inside, outside) == pytest.approx(roc_auc_score(truth, torch.cat([inside, outside])))


def test_a_class_that_is_never_held_out_is_known_all_the_same() -> None:
    features, labels = drawn(200, seed=1)
    known = KnownImages(features, labels, (torch.arange(200) >= 120) & (labels != 0))
    limit = set_limit(known, NAMES, learned=True)
    assert limit is not None
    assert "was trained on these classes" in limit.sentence()
    untouched = set_limit(known, NAMES, learned=False)
    assert untouched is not None
    assert "was trained on these classes" not in untouched.sentence()
