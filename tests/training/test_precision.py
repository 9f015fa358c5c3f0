"""The precision of a training step: measured once for a machine and a network, the faster one taken and written down."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.training.choose.situations import LAPTOP, planned
from vitral.classifier.classifier import Classifier
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import create_model
from vitral.paths import cache
from vitral.training import measuring
from vitral.training.facts import Measured, faster
from vitral.training.measuring import measure
from vitral.training.settings.recipe import load_recipe

MEASURED = Measured(images_per_second=40.0, fixed_bytes=1 << 28, image_bytes=1 << 24, image_seconds=0.03)


@every_case(
    ("bf16", "fp32", "taken", "said"),
    [
        (165.0, 100.0, "bf16", "1.6 times as fast"),
        (128.0, 183.0, "fp32", "1.4 times as fast"),
        (109.0, 100.0, "fp32", "about as fast"),  # which may be chance
    ],
)
def test_the_faster_precision_is_taken_by_every_attempt_and_said(
    bf16: float, fp32: float, taken: str, said: str
) -> None:
    known = replace(LAPTOP, measured=replace(MEASURED, speeds={"bf16": bf16, "fp32": fp32}))
    plan = planned(known, source="start/")
    assert len(plan.attempts) > 1
    assert {recipe.precision for recipe in (plan.recipe, *(attempt.recipe for attempt in plan.attempts))} == {taken}
    assert [line for line in plan.reasons if said in line and line.startswith(f"Precision: {taken}")]


def test_what_the_user_says_holds_whatever_is_faster() -> None:
    known = replace(LAPTOP, measured=replace(MEASURED, speeds={"bf16": 10.0, "fp32": 90.0}))
    plan = planned(known, source="start/", overrides=("precision=bf16",))
    assert plan.recipe.precision == "bf16"
    assert not [line for line in plan.reasons if line.startswith("Precision")]


def test_it_is_measured_once_for_a_machine_and_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measuring, "has_native_bf16", lambda device: True)
    model = create_model("vit-nano4", image_size=8, num_classes=2)
    classifier, recipe = Classifier(model, PHOTOS.with_size(model.image_size), ["0", "1"]), load_recipe("scratch")
    first = measure(classifier, recipe).speeds
    assert set(first) == {"bf16", "fp32"}
    assert measure(classifier, recipe).speeds == first
    (kept,) = cache("engines").iterdir()
    kept.write_text(json.dumps({"bf16": 1.0, "fp32": 3.0}))
    assert faster(measure(classifier, recipe).speeds) == "fp32"
    kept.write_text("damaged")
    assert set(measure(classifier, recipe).speeds) == {"bf16", "fp32"}
    assert measure(classifier, load_recipe("scratch", ["precision=bf16"])).speeds == {}
    assert measure(classifier, recipe, budget_seconds=1e-6).speeds, "what is kept takes no time"
    kept.unlink()
    assert measure(classifier, recipe, budget_seconds=1e-6).speeds == {}, "there is no time to measure"
