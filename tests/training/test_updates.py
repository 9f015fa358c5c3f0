"""What an update does, whatever it is made of."""

import dataclasses
from typing import Any

import pytest
import torch

from tests.training.conftest import CONFIG, Run
from vitral.data.batch import Batch
from vitral.data.generated import open_digits
from vitral.errors import RecipeError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.training.methods.method import training_batches
from vitral.training.methods.supervised import Supervised
from vitral.training.step import Step, StepResult

pytestmark = pytest.mark.long


def test_the_backbone_has_a_curve_of_its_own(run: Run) -> None:
    seen: list[tuple[float, float]] = []

    class Watched(Step):
        def __call__(self, batch: Batch, step: int, rate: float, backbone_rate: float) -> StepResult:
            made = super().__call__(batch, step, rate, backbone_rate)
            named = dict(self.method.network.named_parameters())
            rates = {id(p): group["lr"] for group in self.optimizers[0].param_groups for p in group["params"]}
            assert {rates[id(p)] for name, p in named.items() if not name.startswith("head.")} == {backbone_rate}
            assert rates[id(named["head.weight"])] == rates[id(named["head.bias"])] == rate
            seen.append((rate, backbone_rate))
            return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitral.training.loop.Step", Watched)
        run.train(
            optimizer={"name": "sgd", "lr": 0.05, "backbone_lr": 0.01},
            schedule={"warmup_steps": 0, "final_lr": 2e-4},
        )
    assert seen[0] == pytest.approx((0.05, 5e-4))
    assert seen[15] == pytest.approx((0.0251, 3.5e-4))  # half way; each is on its way to the same floor
    assert seen[-1][1] > 2e-4


def test_a_network_learns_the_colours_of_hidden_patches(run: Run) -> None:
    _, result = run.train(
        steps=200, objective={"name": "masked-patches"}, optimizer={"lr": 0.003}, averaging={}, batch_size=32
    )
    losses = [row["loss"] for row in result.history if "loss" in row]
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"mixing": {"mixup": 0.5, "cutmix": 0.5}},
        {"optimizer": {"sam_rho": 0.05}},
        {"optimizer": {"name": "sgd", "sam_rho": 0.05, "sam_images": 4, "weight_decay": 0.01, "nesterov": True}},
        {"optimizer": {"name": "sgd", "momentum_dtype": "bfloat16", "backbone_lr": 0.1}},
        {"optimizer": {"momentum_dtype": "bfloat16", "decay_on": "all", "weight_decay": 0.1}},
        {"optimizer": {"name": "lamb"}},
        {"optimizer": {"name": "adafactor"}},
        {"optimizer": {"name": "muon", "weight_decay": 0.1}},
        {"optimizer": {"name": "sgd", "lr": 0.1}},
        {"adaptation": {"method": "lora"}},
        {"compute": {"accumulation": 4, "checkpointing": True}},
        {"objective": {"name": "sigmoid", "binary_targets": True, "mean_over_classes": True}},
        {"objective": {"name": "masked-patches"}},
    ],
    ids=str,
)
def test_every_way_of_training_resumes_to_the_same_bits(run: Run, other_run: Run, changes: dict[str, Any]) -> None:
    run.train(**changes)
    other_run.train(steps=30, **changes, checkpoint={"every_steps": 7})
    for path in sorted((other_run.folder / "checkpoints").glob("step-*"))[-1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    _, again = other_run.train(resume=True, **changes, checkpoint={"every_steps": 7})
    assert again.steps == 30
    assert run.bits() == other_run.bits()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixing": {"mixup": 0.1}, "objective": {"name": "masked-patches"}}, "does not learn from mixed images"),
        ({"objective": {"binary_targets": True}}, "belong to the sigmoid objective"),
        ({"objective": {"mean_over_classes": True}}, "belong to the sigmoid objective"),
        ({"adaptation": {"method": "probe", "frozen_blocks": 2}}, "freezes all blocks anyway"),
        ({"schedule": {"milestones": [0.5]}}, "belong to the decay 'steps'"),
        ({"augmentation": {"min_area": 7.0}}, "less than or equal to 1"),
        ({"optimizer": {"layer_decay": 1.5}}, "less than or equal to 1"),
        ({"compute": {"expert_parallel": True}}, "needs a network with experts"),
        ({"optimizer": {"nesterov": True}}, "nesterov belongs to 'sgd'"),
        ({"optimizer": {"name": "lamb", "momentum_dtype": "bfloat16"}}, "momentum_dtype belongs to 'sgd'"),
        ({"optimizer": {"factored_from": 33}}, "factored_from belongs to 'adafactor'"),
        ({"optimizer": {"sam_images": 4}}, "set sam_rho, too"),
        ({"optimizer": {"gsam_alpha": 0.4}}, "gsam_alpha belongs to SAM"),
        ({"optimizer": {"sam_final_rho": 0.1}}, "sam_final_rho belongs to SAM"),
        ({"optimizer": {"sam_rho": 0.1}, "compute": {"expert_parallel": True}}, "SAM needs every gradient"),
        ({"optimizer": {"sam_rho": 0.1, "sam_images": 4}, "compute": {"sharding": "full"}}, "needs whole gradients"),
    ],
)
def test_settings_that_do_not_go_together(run: Run, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        run.train(**changes)


@pytest.mark.parametrize("mixing", [{}, {"mixup": 0.8}, {"mixup": 0.8, "cutmix": 1.0}])
@pytest.mark.parametrize("parts", [2, 3, 16])
def test_a_batch_in_parts_is_mixed_and_erased_as_one(run: Run, mixing: dict[str, float], parts: int) -> None:
    data, recipe = open_digits(), run.recipe(mixing=mixing)
    augmentation = dataclasses.replace(data.augmentation, erasing=0.5)
    batch = training_batches(data.splits["train"], recipe, image_size=(8, 8), augmentation=augmentation).batch(3)
    prepare = Step(Supervised(build(CONFIG, seed=0), recipe, SINGLE_LABEL), recipe, PHOTOS.normalize).prepare
    whole = prepare(batch, 3)
    cut = [prepare(piece, 3) for piece in batch.cut(-(-16 // parts))]
    assert len(cut) == len(range(0, 16, -(-16 // parts)))
    for name in ("images", "pixels", "targets"):
        assert torch.equal(torch.cat([getattr(part, name) for part in cut]), getattr(whole, name))
