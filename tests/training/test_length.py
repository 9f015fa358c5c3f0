"""A run is as long as its recipe says, on the data and the machine at hand, and says what it changed."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tests.cases import every_case
from tests.training.choose.situations import FACTS
from vitral.classifier.classifier import Classifier
from vitral.data.generated import open_digits, open_generated
from vitral.errors import RecipeError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import create_model
from vitral.models.model import Model
from vitral.tasks.task import Task
from vitral.training import measuring
from vitral.training.choose.layout import fit_length, fit_machine, fit_memory
from vitral.training.facts import Facts, MachineFacts, Measured, look_at_machine, usable_bytes
from vitral.training.measuring import measure
from vitral.training.methods.method import Context, Method
from vitral.training.methods.supervised import SupervisedSettings
from vitral.training.methods.views import Part
from vitral.training.settings.durations import roughly, rounded
from vitral.training.settings.recipe import Recipe, load_recipe

IMAGENET = 1_281_167


@every_case(
    ("name", "images", "steps", "batch", "warmup"),
    [
        ("finetune-flowers", 1_020, 500, 512, 100),  # paper Table 4: 512, whatever the dataset
        ("finetune-vtab", 800, 2_500, 512, 200),
        ("finetune-pets", 3_312, 500, 512, 100),
        ("vmoe-s32-last2-imagenet", IMAGENET, 46_918, 8192, 10_000),
        ("deit-384", 500, 29, 512, 5),
    ],
)
def test_a_published_recipe_keeps_its_batch_length_and_warm_up(
    name: str, images: int, steps: int, batch: int, warmup: int
) -> None:
    fitted, reasons = fit_length(load_recipe(name), images)
    assert (fitted.steps, fitted.batch_size, fitted.schedule.warmup_steps) == (steps, batch, warmup)
    assert not any(line.startswith(("Batch", "Warm-up")) for line in reasons)


def test_our_own_recipe_gives_way_to_a_small_dataset_and_says_so() -> None:
    fitted, reasons = fit_length(load_recipe("scratch"), 100)
    assert (fitted.steps, fitted.batch_size, fitted.schedule.warmup_steps) == (300, 25, 30)
    assert reasons[0] == "Batch: 25 images in place of 128, because there are only 100 to train on."
    assert reasons[2] == "Warm-up: 30 steps in place of 200, because the run has only 300."
    assert fit_length(fitted, 100) == (fitted, [])


def test_a_rate_that_stands_for_an_epoch_stands_for_as_many_steps() -> None:
    fitted, _ = fit_length(load_recipe("deit-b16"), 10_240)
    assert (fitted.schedule.hold_steps, fitted.schedule.hold_epochs, fitted.schedule.warmup_steps) == (10, None, 50)
    assert fit_length(fitted, 10_240) == (fitted, [])


def test_a_warm_up_longer_than_half_the_run_is_cut_and_said() -> None:
    fitted, reasons = fit_length(load_recipe("vit-b16-imagenet"), 40_960)
    assert (fitted.steps, fitted.schedule.warmup_steps) == (3_000, 300)
    assert reasons[-1] == "Warm-up: 300 steps in place of 10000, because the run has only 3000."


def rates(name: str, overrides: list[str], images: int) -> list[float]:
    """The learning rates of a whole run."""
    recipe, _ = fit_length(load_recipe(name, overrides), images)
    assert recipe.steps is not None
    return [recipe.schedule.rate(step, recipe.optimizer.lr, recipe.steps) for step in range(recipe.steps)]


@every_case(
    ("name", "override", "images"),
    [
        ("deit-s16", "steps=500", IMAGENET),  # less than one of its epochs, which have a rate each
        ("deit3-b16-imagenet", "steps=60", 1_000),
        ("t2t-finetune", "steps=500", 50_000),
        ("cvt-13", "steps=300", IMAGENET),
        ("t2t-vit-14", "epochs=5", 50_000),  # 10 epochs of cool-down
        ("t2t-vit-14", "epochs=12", 50_000),
        ("vit-giant14-jft3b", "steps=1000", IMAGENET),  # 50,000 steps of cool-down
        ("vit-giant14-jft3b", "steps=20000", IMAGENET),
        ("vmoe-15b", "steps=1095", IMAGENET),
    ],
)
def test_a_run_of_any_length_reaches_its_rate_and_comes_down_from_it(name: str, override: str, images: int) -> None:
    made, peak = rates(name, [override], images), load_recipe(name).optimizer.lr
    assert max(made) > 0.9 * peak
    assert made[-1] < 0.5 * max(made)
    assert sum(rate > peak / 3 for rate in made) > len(made) / 4


@every_case(
    ("name", "data", "steps"),
    [
        ("visualatom1k-deit-ti16", "visualatom", 300 * 1_000_000 / 256),
        ("visualatom21k-deit-b16", "visualatom-21k", 90 * 21_000_000 / 8192),
    ],
)
def test_an_epoch_of_visualatom_is_a_thousand_images_a_class(name: str, data: str, steps: float) -> None:
    """fdsl.md 1.5: 1,000 classes times 1,000 instances, and 21,000 times 1,000."""
    fitted, _ = fit_length(load_recipe(name), open_generated(data).images_an_epoch())
    assert fitted.steps == round(steps)


def test_an_epoch_of_other_data_is_all_of_it() -> None:
    data = open_digits()
    assert data.images_an_epoch() == len(data.splits["train"])


def tiny() -> Classifier:
    network = create_model("vit-nano4", num_classes=3, image_size=16)
    return Classifier(network, PHOTOS.with_size(16), ("a", "b", "c"))


def known_by(measured: Measured, budget_seconds: float | None = None) -> Facts:
    """Return what is known of a machine on which steps were measured."""
    return replace(FACTS, machine=MachineFacts(), budget_seconds=budget_seconds, measured=measured)


class Twins(Method):
    """A method that trains a second network beside the first."""

    Settings = SupervisedSettings

    def __init__(self, network: Model, recipe: Recipe, task: Task, context: Context | None = None) -> None:
        super().__init__(network, recipe, task, context)
        self.module = nn.ModuleList([network, copy.deepcopy(network)])

    def optimizers(self) -> list[Optimizer]:
        return [SGD(self.module.parameters(), lr=0.1)]

    def loss(self, call: Callable[..., Any], part: Part) -> tuple[Tensor, dict[str, Tensor]]:
        losses = [self.task.loss(one(part.images), part.targets, label_smoothing=0.0) for one in self.module.children()]
        return torch.stack(losses).sum(), {}


def test_what_is_measured_is_the_methods_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("scratch")
    one = measure(tiny(), recipe)
    monkeypatch.setattr(measuring, "build_method", Twins)
    two = measure(tiny(), recipe)
    assert two.fixed_bytes == 2 * one.fixed_bytes
    assert two.image_bytes == pytest.approx(2 * one.image_bytes, rel=0.05)


def test_what_muon_takes_beside_the_gradients_is_measured_and_said() -> None:
    measured = measure(tiny(), load_recipe("scratch", ["optimizer.name=muon"]))
    assert measured.update_seconds > 0
    assert measure(tiny(), load_recipe("scratch", ["optimizer.name=adamw", "optimizer.lr=0.001"])).update_seconds == 0
    known = replace(measured, images_per_second=100.0, update_seconds=0.5, speeds={})
    recipe = load_recipe("scratch", ["steps=10", "batch_size=50"])
    _, cost, reasons = fit_machine(recipe, known_by(known))
    assert cost.seconds == pytest.approx(10 * (50 / 100 + 0.5))
    assert cost.images_per_second == pytest.approx(50)
    assert reasons == []
    assert all(fact in cost.sentence() for fact in ("50 images/s", "50%", "Muon"))


@every_case(
    "changes",
    [("mixing.mixup=0.8",), ("optimizer.sam_rho=0.05",), ("averaging.decay=0.9", "regularization.dropout=0.1")],
)
def test_measuring_changes_neither_the_network_nor_what_is_drawn_after_it(changes: tuple[str, ...]) -> None:
    classifier = tiny()
    before = {name: tensor.clone() for name, tensor in classifier.model.state_dict().items()}
    training = classifier.model.training
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    measure(classifier, load_recipe("scratch", changes))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.model.state_dict().items())
    assert not any(parameter.grad is not None for parameter in classifier.model.parameters())
    assert classifier.model.training == training


def test_a_network_whose_last_map_is_one_value_a_channel_is_measured_within_a_budget() -> None:
    model = create_model("resnet-18", image_size=32, num_classes=2)
    classifier = Classifier(model, PHOTOS.with_size(model.image_size), ["0", "1"])
    measured = measure(classifier, load_recipe("scratch"), budget_seconds=30.0)
    assert measured.images_per_second > 0
    assert measured.image_bytes > 0


def test_a_run_of_years_is_refused_unless_it_has_a_budget() -> None:
    recipe = load_recipe("scratch", ["steps=100_000_000_000", "batch_size=64"])
    measured = measure(tiny(), recipe)
    with pytest.raises(RecipeError, match=r"would train for about [\d,]+ (years|days).*`time='8h'`") as refused:
        fit_machine(recipe, known_by(measured))
    assert "\n" not in str(refused.value)
    assert fit_machine(recipe, known_by(measured, 60.0))[1].seconds > 60.0


@every_case(
    ("seconds", "text"),
    [(12, "12 s"), (99 * 60, "99 min"), (30 * 3600, "30 h"), (100 * 86_400, "100 days"), (3e13, "951,294 years")],
)
def test_durations_are_said_in_a_unit_that_fits(seconds: float, text: str) -> None:
    assert rounded(seconds) == text


@every_case(
    ("seconds", "text"),
    [(1, "5 s"), (43, "40 s"), (395, "7 min"), (1590, "25 min"), (3540, "60 min"), (10_000, "3 h"), (9e6, "104 days")],
)
def test_what_a_short_measurement_says_is_said_coarsely(seconds: float, text: str) -> None:
    assert roughly(seconds) == text


@every_case(("usable", "parts"), [(None, 1), (900, 1), (899, 2), (324, 4), (323, 8), (1, 64)])
def test_a_batch_is_cut_into_the_fewest_parts_that_fit(usable: int | None, parts: int) -> None:
    """132 bytes of weights and 64 images of 12 bytes make 900 at once, 516 in halves and 324 in quarters."""
    recipe, reasons = fit_memory(load_recipe("scratch"), fixed=132, an_image=12, images=64, usable=usable)
    assert recipe.compute.accumulation == parts
    assert bool(reasons) == (parts > 1)


def test_parts_that_a_recipe_names_are_kept() -> None:
    recipe = load_recipe("scratch", ["compute.accumulation=3"])
    assert fit_memory(recipe, fixed=100, an_image=12, images=64, usable=1) == (recipe, [])


def test_a_small_run_is_not_cut() -> None:
    recipe = load_recipe("scratch", ["steps=10"])
    fitted, _, reasons = fit_machine(recipe, replace(known_by(measure(tiny(), recipe)), machine=look_at_machine()))
    assert fitted.compute.accumulation == 1
    assert not any(line.startswith("Memory") for line in reasons)
    usable = usable_bytes(torch.device("cpu"))
    assert usable is None or 2**28 < usable < 2**50
