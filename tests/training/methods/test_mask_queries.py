"""The method of mask queries: its annealing, its rates, and that a step follows from its number alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import every_case
from tests.conftest import TINY
from vitral.data.batch import Batch
from vitral.errors import ModelError, RecipeError
from vitral.images.run_lengths import Bitmap
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.families import build
from vitral.tasks.regions import Regions, RegionTargets
from vitral.training.methods.mask_queries import MaskQueries, MaskQueriesSettings, probability
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.settings.recipe import Recipe, build_recipe
from vitral.training.settings.sections import AdaptationSettings
from vitral.training.step import Step

STEPS = 6


class Task:
    name = "instances"


def recipe_of(**changes: Any) -> Recipe:  # noqa: ANN401  # sections of a recipe
    values = {"steps": STEPS, "batch_size": 4, "precision": "fp32", "method": {"name": "mask-queries", "points": 50}}
    return build_recipe(values | changes, "test")


def network(joint_blocks: int = 2) -> Any:  # noqa: ANN401  # any network
    backbone = dataclasses.replace(TINY, depth=4)
    head = QueryHeadConfig(queries=6, joint_blocks=joint_blocks)
    return build(DenseConfig(backbone=backbone, head=head, num_classes=3, image_size=(16, 16)), seed=0).train()


def box(top: int, left: int) -> Bitmap:
    mask = np.zeros((16, 16), dtype=bool)
    mask[top : top + 8, left : left + 8] = True
    return mask


def batch(step: int) -> Batch:
    drawn = np.random.default_rng(step)
    photos = [
        Regions.of_masks(
            (16, 16), drawn.integers(3, size=count).tolist(), [box(*drawn.integers(9, size=2)) for _ in range(count)]
        )
        for count in (2, 0, 7, 1)
    ]
    images = torch.from_numpy(drawn.integers(256, size=(4, 3, 16, 16), dtype=np.uint8))
    return Batch(images, RegionTargets(tuple(photos)), torch.arange(4))  # type: ignore[arg-type]  # stands for a tensor


def stepper(recipe: Recipe, model: Any = None) -> Step:  # noqa: ANN401  # any network
    method = MaskQueries(model or network(), recipe, Task())  # type: ignore[arg-type]
    step = Step(method, recipe, lambda pixels: pixels.float() / 128 - 1)
    step.gone = lambda number: number / STEPS
    return step


@every_case(("gone", "expected"), [(0.0, 1.0), (0.2, 1.0), (0.3, 0.5**0.9), (0.4, 0.0), (0.9, 0.0), (1.0, 0.0)])
def test_a_probability_falls_as_in_the_source_between_its_two_shares(gone: float, expected: float) -> None:
    assert probability(gone, 0.2, 0.4) == pytest.approx(expected)


def test_equal_phases_are_those_of_eomt_large_on_coco() -> None:
    steps = 118_287 // 16 * 12
    starts = [round(start * steps) for start, _ in MaskQueriesSettings().phases(4)]
    assert starts == pytest.approx([14782, 29564, 44346, 59128], rel=2e-4)
    assert MaskQueriesSettings(annealing=((0.0, 0.1),)).phases(1) == ((0.0, 0.1),)
    with pytest.raises(ModelError, match="has 1 phases, but queries go through 3 blocks"):
        MaskQueriesSettings(annealing=((0.0, 0.1),)).phases(3)
    with pytest.raises(RecipeError, match="must end after its start"):
        recipe_of(method={"name": "mask-queries", "annealing": [[0.3, 0.3]]})


def test_the_loop_tells_each_step_how_far_the_run_is() -> None:
    step = stepper(recipe_of())
    for number in range(STEPS):
        assert step(batch(number), number, 1e-3, 1e-3).finite
        expected = [probability(number / STEPS, *phase) for phase in ((0.25, 0.5), (0.5, 0.75))]
        assert step.method.network.head.masking.tolist() == pytest.approx(expected)  # type: ignore[operator]


def test_rates_fall_from_block_to_block_as_in_the_source() -> None:
    for joint in (True, False):
        recipe = recipe_of(
            optimizer={"layer_decay": 0.8, "weight_decay": 0.05, "decay_on": "all"},
            method={"name": "mask-queries", "backbone_wait": 3, "decay_joint_blocks": joint},
        )
        step = stepper(recipe)
        named = {parameter: name for name, parameter in step.method.network.named_parameters()}
        groups = step.optimizers[0].param_groups
        scales = {named[p]: (group["scale"], group.get("wait", 0)) for group in groups for p in group["params"]}
        assert scales.keys() == set(named.values())
        assert all(group["weight_decay"] == 0.05 for group in groups)
        for name, (scale, wait) in scales.items():
            block = int(name.split(".")[2]) if name.startswith("backbone.encoder.") else 0
            whole = name.startswith(("head.", "backbone.norm.")) or (not joint and block >= 2)
            assert scale == pytest.approx(1.0 if whole else 0.8 ** (3 - block)), name
            assert wait == (0 if name.startswith("head.") else 3)


def learn_in_two(whole: Step, first: Step, second: Step) -> None:
    """Let one learn without a stop, and a second go on from where a first ended; both must end in the same bits."""
    for number in range(4):
        whole(batch(number), number, 1e-3, 1e-3)
    for number in range(2):
        first(batch(number), number, 1e-3, 1e-3)
    second.method.network.load_state_dict(first.method.network.state_dict())
    second.optimizers[0].load_state_dict(first.optimizers[0].state_dict())
    torch.manual_seed(99)
    for number in range(2, 4):
        second(batch(number), number, 1e-3, 1e-3)
    expected = whole.method.network.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in second.method.network.state_dict().items())


def test_another_process_goes_on_in_the_same_bits() -> None:
    recipe = recipe_of(regularization={"dropout": 0.1, "stochastic_depth": 0.1})
    learn_in_two(stepper(recipe), stepper(recipe), stepper(recipe))


def decoder() -> Any:  # noqa: ANN401  # any network
    """Return a frozen backbone with a decoder of its own blocks, whose rotary positions move in training."""
    backbone, head = dataclasses.replace(TINY, depth=4), MaskDecoderConfig(queries=6, blocks=2)
    model = build(DenseConfig(backbone=backbone, head=head, num_classes=3, image_size=(16, 16)), seed=0)
    settings = AdaptationSettings(method="probe")
    adapt(model, settings, seed=0)
    training_mode(model, settings)
    return model


def test_a_decoder_learns_in_the_same_bits_in_another_process_and_leaves_the_backbones_bits() -> None:
    recipe = recipe_of(optimizer={"lr": 3e-3, "weight_decay": 0.05, "decay_on": "all", "clip_norm": 0.01})
    whole, first, second = (stepper(recipe, decoder()) for _ in range(3))
    before = {name: value.clone() for name, value in whole.method.network.state_dict().items()}
    learn_in_two(whole, first, second)
    after = whole.method.network.state_dict()
    still = {name for name, value in after.items() if torch.equal(value, before[name])}
    assert {name for name in after if name.startswith("backbone.")} <= still
    assert {name for name in still if name.startswith("head.") and not name.endswith("num_batches_tracked")} <= {
        "head.masking"
    }


def test_it_learns_a_few_photos_by_heart() -> None:
    for model in (network(), decoder()):
        step = stepper(recipe_of(optimizer={"lr": 3e-3, "weight_decay": 0.0}), model)
        losses = [step(batch(0), number % STEPS, 3e-3, 3e-3).figures()["loss"] for number in range(40)]
        assert losses[-1] < 0.6 * losses[0]


def test_a_network_without_queries_is_refused() -> None:
    with pytest.raises(ModelError, match="needs a network with a head of queries"):
        stepper(recipe_of(), build(TINY, seed=0))
