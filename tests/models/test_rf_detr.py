"""RF-DETR without its peer: windows, samples between places, groups of queries, new classes, what cannot be built."""

import dataclasses
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.cases import every_case
from vitral.errors import ModelError
from vitral.models.families import build, config_from_json, config_to_json, variant_name
from vitral.models.layers import TokenGrid
from vitral.models.rf_detr import RFDetr, RFDetrConfig
from vitral.models.rf_detr_decoder import sampled
from vitral.objectives.box_queries import query_loss
from vitral.objectives.points import MarkedRegions

CONFIG = RFDetrConfig(
    image_size=(64, 96),
    num_classes=3,
    patch_size=8,
    dim=32,
    depth=3,
    mlp_dim=48,
    num_heads=2,
    taps=(1, 3),
    width=32,
    projector_blocks=1,
    queries=6,
    groups=2,
    query_heads=4,
    sampling_heads=4,
    decoder_mlp_dim=48,
)


def network() -> RFDetr:
    made = build(CONFIG, seed=0)
    assert isinstance(made, RFDetr)
    return made


def test_windows_are_parts_of_the_image_and_are_joined_again() -> None:
    model = network()
    tokens = torch.arange(1 + 8 * 12).float()[None, :, None]
    windows = model._windowed(TokenGrid(tokens, (8, 12), prefix=1))
    assert windows.shape == (4, 1 + 24, 1)
    grid = tokens[0, 1:, 0].view(8, 12)
    assert windows[:, 0, 0].tolist() == [0] * 4
    assert torch.equal(windows[1, 1:, 0].view(4, 6), grid[:4, 6:])
    assert torch.equal(windows[2, 1:, 0].view(4, 6), grid[4:, :6])
    assert torch.equal(model._joined(windows)[0, 0], grid)


def test_samples_between_places_are_those_of_grid_sample() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 3, 5 * 7, 4, generator=generator)
    places = torch.rand(2, 3, 50, 2, generator=generator) * 1.4 - 0.2
    maps = values.transpose(2, 3).reshape(6, 4, 5, 7)
    expected = functional.grid_sample(maps, 2 * places.flatten(0, 1)[:, None] - 1, align_corners=False)
    found = sampled(values, places, (5, 7)).flatten(0, 1).transpose(1, 2)
    assert torch.allclose(found, expected[:, :, 0], atol=1e-5)


def test_every_group_learns_while_training_and_one_answers_afterwards() -> None:
    model, images = network().train(), torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    answers = model.outputs(images).logits
    assert answers.classes.shape == (2, 12, 3)  # type: ignore[attr-defined]
    assert len(answers.earlier) == CONFIG.decoder_layers  # type: ignore[attr-defined]
    truth = MarkedRegions(torch.tensor([1]), torch.tensor([[0.1, 0.2, 0.5, 0.6]]), torch.zeros(0, 4))
    query_loss(answers, [truth, truth]).backward()  # type: ignore[arg-type, no-untyped-call]
    untouched = [name for name, value in model.named_parameters() if value.grad is None]
    assert untouched == []
    with torch.no_grad():
        found = model.eval()(images)
    assert found.classes.shape == (2, 6, 3)
    assert found.earlier == ()


def test_an_image_without_regions_teaches_classes_alone() -> None:
    model, images = network().train(), torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    nothing = MarkedRegions(torch.zeros(0, dtype=torch.long), torch.zeros(0, 4), torch.zeros(0, 4))
    loss = query_loss(model(images), [nothing])
    assert loss.isfinite()
    assert loss > 0


@torch.no_grad()
def test_new_classes_leave_what_finds_boxes() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.replace_head(5, seed=1)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {
        f"{place}head.{part}" for place in ("", "proposers.0.", "proposers.1.") for part in ("weight", "bias")
    }
    assert model(torch.zeros(1, 3, 64, 96)).classes.shape == (1, 6, 5)
    model.resize((96, 96))
    assert model(torch.zeros(1, 3, 96, 96)).boxes.shape == (1, 6, 4)


def test_a_config_is_kept_as_json_and_known_by_its_name() -> None:
    assert config_from_json(config_to_json(CONFIG)) == CONFIG
    assert variant_name(CONFIG) is None
    assert variant_name(RFDetrConfig(num_classes=3)) == "rf-detr-nano"


@every_case(
    ("changes", "message"),
    [
        ({"image_size": (72, 96)}, "multiples of 16 pixels"),
        ({"queries": 97}, "97 queries need as many patches"),
        ({"taps": (3, 1)}, "rising numbers of blocks, at most 3"),
        ({"taps": (1, 4)}, "rising numbers of blocks, at most 3"),
        ({"width": 34}, "divided by 4"),
        ({"groups": 0}, "groups must be at least 1"),
    ],
)
def test_what_cannot_be_built_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(CONFIG, **changes)
