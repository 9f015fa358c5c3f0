"""A network from scratch beside a start that was chosen: when it is tried, with how much of the time, when it is given up."""

from dataclasses import replace

import pytest

from tests.cases import every_case
from tests.training.choose.situations import FACTS, LAPTOP, changed
from vitral.training.choose.attempts import (
    LEAST_SIDE,
    MOST_PASSES,
    SIMPLE_PHOTOS,
    choose_attempts,
    is_ahead,
    is_behind,
    learning_size,
)
from vitral.training.choose.decide import decide, fresh_attempt
from vitral.training.choose.draft import Draft, draft_of
from vitral.training.clock import FRESH_CHECKED
from vitral.training.facts import ClosedForms, Facts, Measured
from vitral.training.optimization.frozen_front import keeps_front
from vitral.training.plan import ALL, FRESH, LAST, LORA, TRAINED, ChosenStart
from vitral.training.request import Request
from vitral.training.settings.recipe import load_recipe
from vitral.training.starting.prepare import varies

CHOSEN = ChosenStart("vit-ti16@augreg-in21k", ("Start: chosen.",), 128)
MEASURED = Measured(images_per_second=40.0, fixed_bytes=1 << 28, image_bytes=1 << 24)
FASTER = replace(MEASURED, images_per_second=160.0)
PHOTOS = replace(changed(LAPTOP, macs_per_second=1e11), budget_seconds=180.0)


def draft(chosen: ChosenStart | None = CHOSEN, **request: object) -> Draft:
    return draft_of(Request("fine-tune", "photos", **{"time": 180.0, **request}), chosen)  # type: ignore[arg-type]


def test_it_has_most_of_the_time_and_the_longest_attempt_what_it_leaves() -> None:
    plan = decide(draft(), replace(PHOTOS, measured=MEASURED, fresh=FASTER))
    *others, fresh, longest = plan.attempts
    assert longest.name == LORA
    assert (fresh.name, fresh.network) == (FRESH, "conv-vit-16")
    assert fresh.relative_cost == pytest.approx(40.0 / 160.0)
    assert sum(attempt.share for attempt in plan.attempts) == pytest.approx(1.0)
    assert fresh.share > 0.5
    assert others
    assert not any(attempt.network for attempt in (*others, longest))
    assert (plan.start, plan.origin) == (CHOSEN.name, "weights")
    scratch = load_recipe("scratch")
    assert fresh.recipe.optimizer == scratch.optimizer
    assert fresh.recipe.schedule.decay == scratch.schedule.decay
    assert not fresh.from_probe
    assert plan.recipe.image_size == 128  # at which the features of all are had in time
    assert any("starts from zero" in line for line in plan.reasons)


@every_case(
    ("closed_forms", "tried"),
    [(ClosedForms(0.9, 0.6), True), (ClosedForms(0.9, 0.59), False), (ClosedForms(0.95, 0.9), False), (None, True)],
)
def test_it_is_tried_where_pixels_tell_about_as_much_as_the_start(closed_forms: ClosedForms, tried: bool) -> None:
    assert (fresh_attempt(draft(), replace(PHOTOS, closed_forms=closed_forms)) is not None) == tried


def test_an_attempt_is_planned_for_the_time_that_is_left() -> None:
    facts = changed(PHOTOS, convolutional=True, low_rank=False)
    facts = replace(facts, budget_seconds=60.0, measured=replace(MEASURED, images_per_second=40.0))
    made = draft(None, source="start/", time=60.0)
    tried, too_late = (decide(made, replace(facts, left_seconds=left)) for left in (None, 20.0))
    assert [attempt.recipe.adaptation.frozen_blocks for attempt in tried.attempts] == [8]
    assert not too_late.attempts


def test_beside_a_single_attempt_of_a_start_it_leaves_what_time_it_does_not_need_to_that() -> None:
    facts = replace(PHOTOS, measured=replace(MEASURED, images_per_second=8.0), fresh=FASTER)
    assert [attempt.name for attempt in decide(draft(), facts).attempts] == [FRESH, LORA]


def test_where_the_start_cannot_be_trained_in_time_it_is_the_only_attempt() -> None:
    slow = replace(MEASURED, images_per_second=0.5)
    plan = decide(draft(), replace(PHOTOS, measured=slow, fresh=FASTER))
    assert [attempt.name for attempt in plan.attempts] == [TRAINED]
    assert plan.attempts[0].network
    assert not plan.why_none


@every_case(
    ("made", "facts"),
    [
        (draft(None, source="vit-ti16@augreg-in21k"), PHOTOS),  # who names a start gets it
        (draft(time=None), replace(PHOTOS, budget_seconds=None)),
        (draft(overrides=("optimizer.lr=0.1",)), PHOTOS),
        (draft(), replace(changed(PHOTOS, images=1_000_000), budget_seconds=180.0)),  # too many to see in time
    ],
    ids=["named", "without a budget", "a setting", "no time"],
)
def test_otherwise_the_start_alone_is_tried(made: Draft, facts: Facts) -> None:
    assert fresh_attempt(made, facts) is None


def test_it_is_given_up_once_it_is_expected_to_end_behind() -> None:
    assert not is_behind(0.1, FRESH_CHECKED / 2, 0.99, 100)  # too early to tell
    assert is_behind(0.667, 0.32, 1.0, 72)  # flowers
    assert not is_behind(0.959, 0.28, 0.992, 243)  # signs, 100 % at the end
    assert not is_behind(0.862, 0.52, 0.894, 94)  # tiles, 93.6 % at the end
    assert not is_behind(0.99, 0.9, 0.97, 100)
    assert is_behind(0.9, 0.9, 0.97, 100)
    assert not is_behind(0.9, 0.9, 0.97, 10)  # which ten images cannot tell apart
    for best in (0.3, 0.6, 0.9, 0.99):
        verdicts = [is_behind(accuracy / 100, 0.4, best, 100) for accuracy in range(101)]
        assert verdicts == sorted(verdicts, reverse=True)  # the better it is, the less


@every_case("name", [LAST, ALL])
@every_case("images", [100, 1_000, 10_000])
def test_what_learns_does_so_at_the_largest_size_that_there_is_time_for(images: int, name: str) -> None:
    facts = changed(LAPTOP, images=images, convolutional=True, low_rank=False)
    recipe = load_recipe("finetune", ["image_size=224", "steps=100"])
    sizes = [learning_size(facts, recipe, name, float(seen))[0] for seen in range(100, 200_000, 1_000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 224
    assert min(sizes) >= (160 if name == LAST else LEAST_SIDE)
    size, cost = learning_size(facts, recipe, name, 0.0)
    assert cost == pytest.approx((size / 224) ** 2)
    small = recipe.with_changes({"image_size": 32})
    assert learning_size(facts, small, name, 0.0) == (32, 1.0)  # never below the run's own small size


def test_the_size_of_the_only_attempt_is_not_that_of_the_first_classifier() -> None:
    facts = changed(PHOTOS, convolutional=True, low_rank=False)
    facts = replace(facts, measured=replace(MEASURED, images_per_second=20.0), closed_forms=ClosedForms(0.9, 0.9))
    plan = decide(draft(None, source="start/"), facts)
    (attempt,) = plan.attempts
    assert attempt.recipe.adaptation.frozen_statistics
    assert (plan.recipe.image_size, attempt.recipe.image_size) == (224, 160)
    assert attempt.recipe == plan.recipe.with_changes({"image_size": 160})
    assert ALL in plan.reasons[-1]


@every_case(
    ("rate", "tried", "of_simple_photos"),
    [
        (0.01, [], []),
        (3.0, [], []),
        (8.0, [LAST], [LAST]),
        (20.0, [LAST], [ALL]),
        (40.0, [LAST, ALL], [ALL]),
        (500.0, [LAST, ALL], [LAST, ALL]),
    ],
)
def test_of_convolutions_learns_what_there_is_time_for(
    rate: float, tried: list[str], of_simple_photos: list[str]
) -> None:
    facts = changed(PHOTOS, convolutional=True, low_rank=False)
    recipe = load_recipe("finetune", ["image_size=224", "steps=468", "batch_size=64"])
    for pixels, expected in ((SIMPLE_PHOTOS - 0.01, tried), (SIMPLE_PHOTOS, of_simple_photos)):
        known = replace(facts, closed_forms=ClosedForms(0.9, pixels))
        options = choose_attempts(known, recipe, rate)
        assert [option.name for option in options] == expected
        assert sum(option.share for option in options) == pytest.approx(1.0 if expected else 0.0)


@every_case(("margin", "crop"), [(None, "none"), (8 / 7, "centre")])
def test_the_last_blocks_of_convolutions_see_photos_as_in_use(margin: float | None, crop: str) -> None:
    """So that what the first blocks make of a photo is the same each time, and is kept; how photos vary need not be tried."""
    facts = changed(PHOTOS, convolutional=True, low_rank=False, margin=margin)
    plan, longer = (
        decide(draft(None, source="start/"), replace(facts, measured=replace(MEASURED, images_per_second=rate)))
        for rate in (15.0, 100.0)
    )
    (attempt,) = plan.attempts
    assert not varies(plan)
    assert len(longer.attempts) == 2
    assert varies(longer)
    augmentation, steps = attempt.recipe.augmentation, attempt.recipe.steps
    assert augmentation is not None
    assert keeps_front(attempt.recipe, augmentation)
    assert augmentation.crop == crop
    assert augmentation.margin == pytest.approx(8 / 7)
    assert steps == round(MOST_PASSES * facts.data.images / attempt.recipe.batch_size)
    assert attempt.recipe.schedule.warmup_steps == steps // 10


@every_case(("overrides", "share"), [((), 10.0), (("optimizer.lr=0.001",), 1.0)])
def test_the_head_of_convolutions_learns_slower_unless_a_rate_is_set(overrides: tuple[str, ...], share: float) -> None:
    facts = changed(PHOTOS, convolutional=True, low_rank=False)
    made = decide(draft(None, source="start/", overrides=overrides), replace(facts, measured=MEASURED))
    assert {attempt.recipe.optimizer.backbone_lr for attempt in made.attempts} == {share}


@every_case(("head", "tried"), [(0.94, [FRESH, LAST]), (0.95, [TRAINED])])
def test_beside_a_network_from_scratch_convolutions_count_on_their_own_time(head: float, tried: list[str]) -> None:
    facts = changed(PHOTOS, convolutional=True, low_rank=False)
    facts = replace(facts, measured=replace(MEASURED, images_per_second=60.0), fresh=FASTER)
    facts = replace(facts, closed_forms=ClosedForms(head, 0.9))
    attempts = decide(draft(), facts).attempts
    assert [attempt.name for attempt in attempts] == tried
    assert attempts[-1].recipe.adaptation.frozen_blocks == (8 if LAST in tried else 0)


def test_facts_without_a_start_have_no_network_beside() -> None:
    assert FACTS.fresh is None


def test_it_is_ahead_only_where_the_images_can_tell() -> None:
    assert not is_ahead(0.99, FRESH_CHECKED / 2, 0.5, 100)
    assert is_ahead(0.8, 0.5, 0.7, 90)  # letters
    assert not is_ahead(0.78, 0.5, 0.7, 90)
    assert is_ahead(0.78, 0.5, 0.7, 900)
    assert not any(
        is_ahead(accuracy / 100, 0.5, 0.9, 50) and is_behind(accuracy / 100, 0.5, 0.9, 50) for accuracy in range(101)
    )
