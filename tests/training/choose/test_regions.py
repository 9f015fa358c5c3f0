"""Every method, head, setting and recipe over every kind of regions: it learns them, or is refused in one line."""

import dataclasses
import math
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.choose.situations import FACTS, changed, planned
from vitral.classifier.classifier import Classifier
from vitral.data.digit_scenes import SCENES, open_digit_scenes
from vitral.errors import VitralError
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import HEADS
from vitral.models.families import build
from vitral.training.choose.fit_regions import OF_WHOLE, SMOOTHING
from vitral.training.clock import PATIENCE_SECONDS
from vitral.training.facts import Facts, Measured
from vitral.training.measuring import measure
from vitral.training.plan import Plan
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.methods import method_names
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import OPTIMIZERS
from vitral.training.starting.prepare import adapt_network

NETWORK = "vit-nano4"
PLAIN = ("image_size=32", "batch_size=4", "precision=fp32", "steps=2")
LEARNED: dict[str, dict[str, tuple[str, ...]]] = {
    "digit-scenes": {"supervised": ("rims",), "mask-queries": ("queries", "mask-decoder")},
    "digit-scenes-semantic": {"supervised": ("detail", "linear"), "mask-queries": ("queries", "mask-decoder")},
    "digit-scenes-boxes": {"supervised": ("points",)},
    "digit-scenes-panoptic": {"mask-queries": ("queries", "mask-decoder")},
}
OTHER_VALUES: dict[str, Any] = {
    "evaluation.few_shot": "[5]",
    "sampling": "class-balanced",
    "objective.class_weights": "balanced",
    "head.representation": "true",
}


def facts_of(name: str) -> Facts:
    return changed(FACTS, task=SCENES[name], images=400, classes=11, side=96.0, small_regions=0.2)


def tried(name: str, *overrides: str, recipe: str | None = None) -> Plan | str:
    """Return the plan, or the one line that refuses it."""
    try:
        return planned(facts_of(name), source=NETWORK, recipe=recipe, overrides=(*PLAIN, *overrides))
    except VitralError as refusal:
        line = str(refusal)
    assert "\n" not in line
    return line


def check_it_learns(name: str, plan: Plan) -> None:
    data = open_digit_scenes(name)
    config = dataclasses.replace(variant(NETWORK), num_classes=len(data.class_names))
    classifier = Classifier(build(config, seed=0), PHOTOS.with_size((32, 32)), data.class_names, task=data.task)
    adapt_network(classifier, data, plan.recipe)
    assert math.isfinite(measure(classifier, plan.recipe).images_per_second)


@pytest.mark.long
@every_case("name", list(SCENES))
@every_case("method", list(method_names()))
def test_every_method_learns_regions_or_is_refused(name: str, method: str) -> None:
    plan = tried(name, f"method.name={method}", *_needs(method))
    if method in LEARNED[name]:
        assert isinstance(plan, Plan), plan
        check_it_learns(name, plan)
    else:
        assert isinstance(plan, str), "it would be trained"
        assert method in plan or "queries" in plan


def _needs(method: str) -> tuple[str, ...]:
    """Return what a method's section needs to be complete."""
    needed = {
        "distillation": ("teacher",),
        "feature-distillation": ("teacher",),
        "noisy-student": ("teacher", "unlabelled"),
        "meta-pseudo-labels": ("unlabelled",),
        "semantic-softmax": ("tree",),
    }
    return tuple(f"method.{key}=digits" for key in needed.get(method, ()))


@every_case("name", list(SCENES))
@every_case("kind", list(HEADS))
@pytest.mark.long
def test_every_head_learns_its_tasks_and_is_refused_of_others(name: str, kind: str) -> None:
    plan = tried(name, f"head.kind={kind}")
    if any(kind in kinds for kinds in LEARNED[name].values()):
        assert isinstance(plan, Plan), plan
        check_it_learns(name, plan)
    else:
        assert isinstance(plan, str), "it would be trained"
        assert all(other in plan for other in (kind, *SCENES[name].heads))  # type: ignore[attr-defined]


@every_case("name", list(SCENES))
@every_case("key", [*OF_WHOLE, SMOOTHING])
def test_settings_of_whole_images_are_not_passed_over(name: str, key: str) -> None:
    plan = tried(name, f"{key}={OTHER_VALUES.get(key, 0.5)}")
    if key == SMOOTHING and name == "digit-scenes-semantic":
        assert isinstance(plan, Plan)
        assert plan.recipe.regularization.label_smoothing == 0.5
    else:
        assert isinstance(plan, str), "it would be passed over"
        assert key in plan
    usual = Recipe().leaves[key]
    assert isinstance(tried(name, f"{key}={str(usual).lower()}"), Plan)


def test_queries_and_their_method_need_each_other() -> None:
    for overrides in (("method.name=mask-queries", "head.kind=rims"), ("method.name=supervised", "head.kind=queries")):
        refusal = tried("digit-scenes", *overrides)
        assert isinstance(refusal, str)
        assert "mask-queries" in refusal
    stride = tried("digit-scenes", "head.stride=4")
    assert isinstance(stride, str)
    assert "head.stride" in stride


@every_case("optimizer", list(OPTIMIZERS))
def test_an_optimizer_that_is_set_stays(optimizer: str) -> None:
    plan = tried("digit-scenes-boxes", f"optimizer.name={optimizer}")
    assert isinstance(plan, Plan), plan
    assert plan.recipe.optimizer.name == optimizer


@every_case("recipe", list_recipes())
def test_every_recipe_keeps_what_it_says_or_is_refused(recipe: str) -> None:
    name = f"digit-scenes-{recipe.rpartition('-')[2]}"
    plan = tried(name if name in SCENES else "digit-scenes-semantic", recipe=recipe)
    if recipe.startswith("eomt"):
        assert isinstance(plan, Plan), plan
    if isinstance(plan, Plan):
        own, usual = plan.recipe.leaves, Recipe().leaves
        assert all(own[key] == usual[key] for key in OF_WHOLE)
        assert plan.recipe.method.learns_regions


@pytest.mark.parametrize("speed", [1.0, 5.0, 1000.0])
def test_without_a_budget_a_run_takes_no_longer_than_it_promises(speed: float) -> None:
    facts = changed(facts_of("digit-scenes-boxes"), measured=Measured(speed, 1, 1))
    plan = planned(facts, source=NETWORK)
    assert plan.cost is not None
    assert plan.cost.seconds <= PATIENCE_SECONDS * 1.01
    assert plan.recipe.steps is not None
    assert plan.recipe.steps * plan.recipe.batch_size <= 121 * 400
