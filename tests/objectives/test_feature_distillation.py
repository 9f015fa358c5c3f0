"""Features are compared through one linear map: by the angle where they are pooled, by the distance in every place."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from tests.cases import every_case
from vitral.models.catalog import VARIANTS
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build, replace
from vitral.models.layers import BatchPart
from vitral.objectives.feature_distillation import FeatureStudent, patches_loss, pooled_loss

SMALL: dict[str, dict[str, Any]] = {
    "vit-ti16": {"depth": 2},
    "vit-b16-map": {"dim": 32, "mlp_dim": 48, "num_heads": 2, "depth": 2},
    "resnet-10": {},
    "bit-r50x1": {"stages": (1,)},
    "cvt-13": {"dims": (16, 24, 32), "depths": (1, 1, 1), "num_heads": (1, 1, 2)},
    "t2t-vit-7": {"depth": 2},
    "coatnet-0": {"stem_dim": 8, "dims": (8, 12, 32, 32), "depths": (1, 1, 1, 1), "head_dim": 16},
    "efficientnet-b0": {"width": 0.25, "depth": 0.25},
}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_pooled_features_are_compared_by_their_angle() -> None:
    one = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    other = torch.tensor([[5.0, 5.0], [0.0, -1.0]])
    assert float(pooled_loss(one, other)) == pytest.approx(((1 - math.sqrt(0.5)) + 2) / 2)
    assert float(pooled_loss(7 * one, other)) == pytest.approx(float(pooled_loss(one, other)))


def test_patches_are_compared_with_the_teachers_of_mean_0_and_variance_1_in_every_place() -> None:
    theirs = 5 + 3 * drawn(2, 8, 3, 3)
    normal = (theirs - theirs.mean(dim=1, keepdim=True)) / theirs.std(dim=1, keepdim=True, unbiased=False)
    assert float(patches_loss(normal, theirs)) == pytest.approx(0.0, abs=1e-6)
    assert float(patches_loss(torch.zeros_like(theirs), theirs)) == pytest.approx(1.0, abs=1e-4)
    assert float(patches_loss(normal + 0.5, theirs)) == pytest.approx(0.25, abs=1e-4)


def test_a_teacher_of_a_finer_grid_is_averaged_over_the_students_places() -> None:
    theirs = torch.zeros(1, 2, 4, 4)
    theirs[:, 0, :, :2], theirs[:, 1, :, 2:] = 1.0, 1.0  # the left half is one channel, the right half the other
    ours = torch.tensor([[[[1.0, -1.0]] * 2, [[-1.0, 1.0]] * 2]])
    assert float(patches_loss(ours, theirs)) < 0.05
    assert float(patches_loss(-ours, theirs)) > 3.5


def test_a_finer_grid_is_resized_with_a_triangle_as_wide_as_the_students_places() -> None:
    theirs, ours = drawn(2, 5, 4, 4), drawn(2, 5, 2, 2, seed=1)
    half = torch.tensor([[3.0, 3.0, 1.0, 0.0], [0.0, 1.0, 3.0, 3.0]]) / 7  # by 1 - |distance| / 2, together 1
    resized = torch.einsum("ij,bcjk,lk->bcil", half, theirs, half)
    normal = (resized - resized.mean(dim=1, keepdim=True)) / resized.std(dim=1, keepdim=True, unbiased=False)
    expected = float((ours - normal).square().mean())
    assert float(patches_loss(ours, theirs)) == pytest.approx(expected, rel=1e-3)


@every_case("name", SMALL)
def test_a_student_of_any_family_gives_what_it_predicts_and_its_features_in_the_teachers_widths(name: str) -> None:
    network = build(replace(VARIANTS[name], image_size=(64, 64), num_classes=3, **SMALL[name]), seed=0).eval()
    nn.init.normal_(network.head.weight, std=0.1, generator=torch.Generator().manual_seed(1))
    images = drawn(2, 3, 64, 64)
    encoded = network.encode(images)
    torch.testing.assert_close(network.pool(encoded), network.features(images), rtol=1e-4, atol=1e-5)
    student = FeatureStudent(network, encoded.maps.shape[1], teacher_pooled=7, teacher_patches=5, seed=0)
    logits, pooled, maps, _ = student(images)
    torch.testing.assert_close(logits, network(images), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pooled, student.pooled(network.features(images)), rtol=1e-4, atol=1e-5)
    assert maps.shape == (2, 5, *encoded.maps.shape[-2:])
    place = (0, slice(None), 1, 0)
    torch.testing.assert_close(maps[place], student.patches(encoded.maps[place]), rtol=1e-4, atol=1e-5)


def test_a_student_of_experts_gives_their_losses_and_any_other_none() -> None:
    config = replace(VARIANTS["vit-ti16"], image_size=(32, 32), num_classes=3, depth=2, dim=24, mlp_dim=32, num_heads=2)
    experts = replace(config, experts=ExpertsConfig(blocks=(1,), num_experts=2, num_selected=1))
    for network, losses in ((build(config, seed=0), False), (build(experts, seed=0), True)):
        student = FeatureStudent(network.train(), 24, teacher_pooled=7, teacher_patches=5, seed=0)
        found = student(drawn(2, 3, 32, 32))[3]
        assert bool(found) == losses
        assert all(torch.isfinite(value) for value in found.values())


def test_a_part_of_a_batch_loses_the_branches_that_it_would_lose_in_the_whole() -> None:
    config = replace(VARIANTS["vit-mu16"], image_size=(64, 64), num_classes=3, depth=3, stochastic_depth=0.5)
    network = build(config, seed=0).train()
    student = FeatureStudent(network, network.num_features, teacher_pooled=7, teacher_patches=5, seed=0)
    images, part = drawn(4, 3, 64, 64), BatchPart(5, 9)
    torch.manual_seed(3)
    pooled = student(images, part)[1]
    torch.manual_seed(3)
    torch.testing.assert_close(pooled, student.pooled(network.features(images, part)))
    torch.manual_seed(3)
    assert not torch.allclose(student(images)[1], pooled)
