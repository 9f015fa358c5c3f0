"""EoMT's head: what it stands on, what masks let queries see, and what it gives in training and in use."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig, DenseModel
from vitral.models.dense.queries import QueryHead, QueryHeadConfig
from vitral.models.dense.upscale import doublings
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build, config_from_json, config_to_json
from vitral.models.model import ModelConfig
from vitral.models.vit_config import ViTConfig


def config_of(backbone: ModelConfig, **head: Any) -> DenseConfig:  # noqa: ANN401  # of a head
    settings = QueryHeadConfig(**{"queries": 5, "joint_blocks": 1, **head})
    return DenseConfig(backbone=backbone, head=settings, num_classes=3, image_size=backbone.image_size)


def network(backbone: ModelConfig, **head: Any) -> tuple[DenseModel, QueryHead]:  # noqa: ANN401  # of a head
    model = build(config_of(backbone, **head), seed=0)
    assert isinstance(model, DenseModel)
    assert isinstance(model.head, QueryHead)
    return model, model.head


@every_case(("stride", "steps"), [(4, 1), (8, 1), (14, 1), (16, 2), (32, 3)])
def test_maps_are_doubled_to_a_stride_of_four_as_far_as_powers_of_two_go(stride: int, steps: int) -> None:
    assert doublings(stride) == steps


def test_a_layer_answers_in_training_before_every_joint_block_and_in_use_once(tiny_config: ViTConfig) -> None:
    model, _ = network(tiny_config, joint_blocks=2)
    images = torch.randn(2, 3, 16, 16)
    answers = model.train()(images)
    assert [len(answers.earlier), *answers.classes.shape] == [2, 2, 5, 4]
    assert answers.masks.shape == (2, 5, 8, 8)
    assert model.eval()(images).earlier == ()


def test_queries_see_the_patches_of_their_masks_alone_and_nothing_else_is_hidden(tiny_config: ViTConfig) -> None:
    model, head = network(tiny_config)
    z = model.backbone.embed(model.backbone.patches(torch.randn(2, 3, 16, 16))).append(torch.randn(2, 5, 16))  # type: ignore[operator]
    answers = head.predict(z)
    expected = torch.nn.functional.interpolate(answers.masks, (4, 4), mode="bilinear").flatten(2) > 0  # type: ignore[arg-type]
    mask = head.visible(z, answers, 0)
    assert torch.equal(mask[:, 0, -5:, 1:-5], expected)
    mask[:, 0, -5:, 1:-5] = True
    assert mask.all()


def test_in_training_a_share_of_the_queries_sees_everything_and_each_draws_for_itself(tiny_config: ViTConfig) -> None:
    model, head = network(tiny_config, queries=400)
    model.train()
    z = model.backbone.embed(model.backbone.patches(torch.randn(2, 3, 16, 16))).append(torch.randn(2, 400, 16))  # type: ignore[operator]
    answers = dataclasses.replace(head.predict(z), masks=-torch.ones(2, 400, 8, 8))
    for probability in (0.0, 0.3, 1.0):
        head.masking.fill_(probability)
        hidden = ~head.visible(z, answers, 0)[:, 0, -400:, 1:-400]
        assert torch.equal(hidden.any(dim=2), hidden.all(dim=2))
        assert float(hidden.float().mean()) == pytest.approx(probability, abs=0.06)


def test_in_use_masks_hold_where_they_are_likelier_and_nothing_is_drawn(tiny_config: ViTConfig) -> None:
    model, head = network(tiny_config)
    images = torch.randn(1, 3, 16, 16)
    given = {}
    for probability in (0.0, 0.4, 0.6, 1.0):
        head.masking.fill_(probability)
        state = torch.get_rng_state()
        given[probability] = model(images).masks
        assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(given[0.0], given[0.4])
    assert torch.equal(given[0.6], given[1.0])
    assert not torch.equal(given[0.0], given[1.0])


def test_its_config_is_read_as_it_was_written(tiny_config: ViTConfig) -> None:
    config = config_of(tiny_config, doublings=3)
    assert config_from_json(config_to_json(config)) == config


REFUSED: dict[str, tuple[Any, dict[str, int], str]] = {
    "no ViT": (lambda tiny: variant("bit-r50x1"), {}, "it is no Vision Transformer"),
    "experts": (lambda tiny: dataclasses.replace(tiny, experts=ExpertsConfig(blocks=(1,))), {}, "its experts"),
    "relative": (lambda tiny: dataclasses.replace(tiny, position="relative-2d"), {}, "its blocks know where"),
    "in blocks": (lambda tiny: dataclasses.replace(tiny, position_at="layers"), {}, "its blocks know where"),
    "too deep": (lambda tiny: tiny, {"joint_blocks": 3}, "joint_blocks must be 1 to 2"),
    "no query": (lambda tiny: tiny, {"queries": 0}, "queries must be 1 to"),
    "too fine": (lambda tiny: tiny, {"doublings": 9}, "doublings must be 0 to 4"),
}


@every_case("name", REFUSED)
def test_what_it_cannot_stand_on_is_refused_in_one_line(name: str, tiny_config: ViTConfig) -> None:
    backbone, head, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        config_of(backbone(tiny_config), **head)
