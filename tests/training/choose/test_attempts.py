"""Which ways to learn are tried: a function of facts, which keeps the time and tries the cheapest first."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.cases import every_case
from tests.training.choose.situations import FACTS, LAPTOP, SERVER, changed, planned
from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.models.families import build, count_parameters
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.training.choose.attempts import COST, SMALL_NETWORK, Option, choose_attempts, finer_size, frozen_blocks
from vitral.training.choose.decide import SEVERAL_TRIED
from vitral.training.clock import LEAST_UPDATES, PATIENCE_SECONDS, TRAINING_SHARE
from vitral.training.facts import Facts, MachineFacts, Measured, WeightsFacts
from vitral.training.plan import ALL, ANEW, FINER, LAST, LORA, SEVERAL, TRAINED, Attempt, Cost, Plan
from vitral.training.settings.durations import rounded
from vitral.training.settings.recipe import load_recipe

RECIPE = load_recipe("finetune", ["steps=468", "batch_size=64"])
MEASURED = Measured(images_per_second=40.0, fixed_bytes=1 << 28, image_bytes=1 << 24)
FAST = replace(MEASURED, images_per_second=340.0)
BUDGETS = (1.0, 10.0, 60.0, 180.0, 600.0, 3600.0, 36_000.0)


def names(attempts: Sequence[Attempt | Option]) -> list[str]:
    return [attempt.name for attempt in attempts]


@every_case("images", [60, 500, 5_000, 60_000])
@every_case(("blocks", "low_rank"), [(1, False), (1, True), (6, True), (12, False), (24, True)])
@every_case("rate", [0.5, 5.0, 50.0, 5_000.0])
@every_case("finer", [None, 336])
def test_as_many_as_there_is_time_for_the_cheapest_first(
    images: int, blocks: int, low_rank: bool, rate: float, finer: int | None
) -> None:
    counts = []
    for budget in BUDGETS:
        facts = changed(LAPTOP, images=images, blocks=blocks, low_rank=low_rank, budget_seconds=budget)
        attempts = choose_attempts(facts, RECIPE, rate, finer=finer)
        counts.append(len(attempts))
        tried = names(attempts)
        assert tried == [name for name in COST if name in tried]
        assert LORA not in tried or low_rank
        assert LAST not in tried or blocks > 1
        assert FINER not in tried or (finer is not None and ALL in tried)
        if attempts:
            assert sum(attempt.share for attempt in attempts) == pytest.approx(1.0)
            for attempt in attempts:
                seconds = attempt.share * TRAINING_SHARE * budget
                updates = seconds * rate / (RECIPE.batch_size * COST[attempt.name])
                assert updates >= LEAST_UPDATES - 1e-6
                RECIPE.with_changes(attempt.changes)  # which are settings that there are
    assert counts == sorted(counts)  # more time never means less


SMALL_WEIGHTS = WeightsFacts(variant("conv-vit-8"), 3_000_000, 128_000_000, blocks=2, low_rank=True)
SMALL = replace(FACTS, weights=SMALL_WEIGHTS)


@every_case(
    ("parameters", "rate", "budget", "tried"),
    [
        (3_000_000, 340.0, 36_000.0, [LAST, LORA, ALL, ANEW]),  # whatever else is tried takes none of its length
        (3_000_000, 340.0, 600.0, [LORA, ANEW]),
        (3_000_000, 340.0, 400.0, [ANEW]),
        (3_000_000, 340.0, 60.0, [ANEW]),  # 10,000 images
        (3_000_000, 340.0, 55.0, [LORA]),
        (3_000_000, 40.0, 600.0, [ANEW]),
        (3_000_000, 100.0, None, [LAST, LORA, ALL, ANEW]),
        (3_000_000, 40.0, None, [ANEW]),
        (3_000_000, 2.0, None, []),  # eight hours, and no way takes less than one: not unasked
        (SMALL_NETWORK + 1, 340.0, 600.0, [LAST, LORA, ALL]),  # worth more than what could be learned in that time
    ],
)
def test_a_small_network_learns_as_from_scratch_and_other_ways_get_what_that_leaves(
    parameters: int, rate: float, budget: float | None, tried: list[str]
) -> None:
    facts = changed(SMALL, images=5_000, side=32.0, parameters=parameters, budget_seconds=budget)
    found = choose_attempts(facts, RECIPE.with_changes({"steps": 900}), rate)
    assert names(found) == tried
    if ANEW in tried and len(tried) > 1:
        seconds = PATIENCE_SECONDS if budget is None else TRAINING_SHARE * budget
        (share,) = [option.share for option in found if option.name == ANEW]
        assert share * seconds * rate / COST[ANEW] >= 900 * 64


def test_of_many_images_each_of_several_ways_sees_one_pass() -> None:
    facts = changed(SMALL, images=45_000, side=32.0, parameters=SMALL_NETWORK + 1)
    recipe = RECIPE.with_changes({"steps": 21_093})
    counts = {}
    for budget in (300.0, 600.0, 1200.0):
        tried = choose_attempts(replace(facts, budget_seconds=budget), recipe, 348.0)
        counts[budget] = names(tried)
        if len(tried) > 1:
            updates = TRAINING_SHARE * budget * 348.0 / 64 / sum(COST[option.name] for option in tried)
            assert updates * 64 >= facts.data.images
    assert counts == {300.0: [LORA], 600.0: [LAST, LORA, ALL], 1200.0: [LAST, LORA, ALL]}


@every_case(("side", "crop", "min_area"), [(32.0, "padded", 0.05), (400.0, "inception", 0.35)])
def test_as_from_scratch_is_the_recipe_of_the_default_without_weights(side: float, crop: str, min_area: float) -> None:
    recipe = RECIPE.with_changes({"augmentation": Augmentation(), "mixing.mixup": 0.1})
    facts = changed(SMALL, images=5_000, side=side, budget_seconds=600.0)
    (anew,) = [option for option in choose_attempts(facts, recipe, 340.0) if option.name == ANEW]
    tried, scratch = anew.attempt(recipe).recipe, load_recipe("scratch")
    assert tried.optimizer == scratch.optimizer
    assert tried.regularization == scratch.regularization
    assert tried.mixing == scratch.mixing
    assert tried.schedule.decay == scratch.schedule.decay
    assert tried.schedule.warmup_steps == round(0.2 * 468)
    assert tried.augmentation is not None
    assert (tried.augmentation.crop, tried.augmentation.min_area) == (crop, min_area)
    assert (tried.augmentation.flip, tried.augmentation.decode) == ("alternating", "kept")
    assert (tried.steps, tried.batch_size) == (recipe.steps, recipe.batch_size)


@every_case(("images", "batch"), [(45_000, 256), (9_000, 128), (400, 100)])
def test_the_only_way_as_from_scratch_has_the_batches_of_that_default_and_its_lines(images: int, batch: int) -> None:
    facts = changed(SMALL, images=images, side=32.0)
    request: dict[str, Any] = {"source": "start/", "time": 600.0 if images > 9_000 else 60.0}
    plan = planned(replace(facts, measured=FAST), **request)
    (attempt,) = plan.attempts
    assert (attempt.name, attempt.recipe, attempt.from_probe) == (TRAINED, plan.recipe, False)
    scratch, before = load_recipe("scratch"), planned(facts, **request).recipe
    assert plan.recipe.optimizer == scratch.optimizer
    assert plan.recipe.batch_size == batch
    assert before.steps is not None
    assert plan.recipe.steps == round(before.steps * before.batch_size / batch)  # as many images
    assert plan.recipe.schedule.warmup_steps == round(0.2 * plan.recipe.steps)
    assert plan.augmentation.crop == "padded"
    said = "\n".join(plan.reasons)
    assert f"{plan.recipe.steps} steps of {batch} images, " in said
    assert "(muon, learning rate 0.02, " in said
    for replaced in ("adamw", "MixUp", "crops of", "steps of 64"):
        assert replaced not in said
    (line,) = [line for line in plan.reasons if line.startswith("There is time for one training")]
    assert f": {ANEW} (" in line


def test_who_says_the_batch_keeps_it_where_the_only_way_is_as_from_scratch() -> None:
    facts = changed(SMALL, images=45_000, side=32.0)
    request: dict[str, Any] = {"source": "start/", "time": 600.0, "overrides": ("batch_size=96",)}
    plan = planned(replace(facts, measured=FAST), **request)
    assert plan.recipe.optimizer == load_recipe("scratch").optimizer
    assert (plan.recipe.batch_size, plan.recipe.steps) == (96, planned(facts, **request).recipe.steps)


def test_as_from_scratch_keeps_what_was_said() -> None:
    recipe = RECIPE.with_changes({"augmentation": Augmentation(flip=False)})
    facts = changed(SMALL, images=5_000, side=32.0, budget_seconds=600.0)
    overridden = {"augmentation.crop", "regularization.label_smoothing"}
    options = choose_attempts(facts, recipe, 340.0, overridden=overridden)
    (tried,) = [option.attempt(recipe).recipe for option in options if option.name == ANEW]
    assert tried.augmentation is not None
    assert (tried.augmentation.crop, tried.augmentation.flip) == ("inception", False)
    assert tried.regularization.label_smoothing == recipe.regularization.label_smoothing


COSTS = Cost(seconds=60.0, images_per_second=40.0, bytes=2 << 30)


@every_case(
    ("side", "size", "usable", "finer"),
    [
        (400.0, None, None, 336),
        (336.0, 224, None, 336),
        (335.0, 224, None, None),  # the images show no more
        (400.0, 96, None, 144),
        (400.0, 384, None, None),
        (400.0, 224, 10 << 30, None),  # attention at five times the memory
        (400.0, 224, 11 << 30, 336),
    ],
)
def test_larger_images_are_tried_where_they_show_more_and_fit_the_memory(
    side: float, size: int | None, usable: int | None, finer: int | None
) -> None:
    recipe = RECIPE.with_changes({"image_size": size})
    assert finer_size(changed(LAPTOP, side=side, usable_bytes=usable), recipe, COSTS) == finer


@every_case("given", [{"image_size": 224}, {"overrides": ("image_size=224",)}])
def test_who_sets_a_size_gets_no_other(given: dict[str, Any]) -> None:
    assert FINER in names(adapted(36_000.0).attempts)
    assert FINER not in names(adapted(36_000.0, **given).attempts)


@every_case("gpu_bytes", [None, 80 << 30])
def test_without_a_budget_several_take_no_longer_than_patience_on_any_device(gpu_bytes: int | None) -> None:
    tried = {}
    for rate in (1.0, 8.0, 8.4, 12.0, 19.0, 21.0, 38.0, 39.0, 1000.0):
        attempts = choose_attempts(changed(LAPTOP, gpu_bytes=gpu_bytes), RECIPE, rate, finer=336)
        tried[rate] = names(attempts)
        whole = (RECIPE.steps or 0) * RECIPE.batch_size / rate
        assert (gpu_bytes and len(attempts) == 1) or sum(COST[name] for name in tried[rate]) * whole <= PATIENCE_SECONDS
    one, three, four = [ALL], [LAST, LORA, ALL], [LAST, LORA, ALL, FINER]
    slow = [one, one] if gpu_bytes else [[], [LORA]]  # who has a GPU came to train; a CPU is not busy for a day unasked
    assert list(tried.values()) == [*slow, one, one, one, three, three, four, four]


def test_a_gpu_has_no_room_for_everything() -> None:
    assert choose_attempts(changed(SERVER, parameters=5_000_000_000), RECIPE, 1000.0) == ()


def test_a_long_training_without_a_budget_says_that_one_way_is_tried() -> None:
    plan = adapted(facts=replace(SERVER, measured=replace(MEASURED, images_per_second=1.0)))
    assert (names(plan.attempts), plan.why_none, plan.recipe.adaptation.method) == ([TRAINED], "", "full")
    (line,) = [line for line in plan.reasons if line.startswith("One training, ")]
    assert "60 min" in line
    assert ": all weights (" in line


@every_case(("blocks", "frozen"), [(2, 1), (3, 2), (6, 4), (12, 8), (24, 16), (32, 21)])
def test_about_a_third_of_the_blocks_are_the_last(blocks: int, frozen: int) -> None:
    assert frozen_blocks(blocks) == frozen


def adapted(time: float | None = None, facts: Facts = LAPTOP, **request: Any) -> Plan:  # noqa: ANN401
    """Return the plan of a run from trained weights that were measured."""
    given: dict[str, Any] = {"source": "start/", "time": time, **request}
    before = planned(replace(facts, measured=None), **given)
    after = planned(replace(facts, measured=facts.measured or MEASURED), **given)
    if after.several:  # what the network is built by is settled before it is measured
        assert before.recipe.with_changes({"compute.accumulation": 1}) == after.recipe
    return after


def test_a_plan_says_what_is_tried_and_what_all_of_it_costs() -> None:
    plan = adapted()
    assert names(plan.attempts) == [LAST, LORA, ALL, FINER]
    for option in choose_attempts(LAPTOP, plan.recipe, 40.0, finer=336):
        assert option.attempt(plan.recipe) in plan.attempts
    assert all(attempt.line() in plan.reasons for attempt in plan.attempts)
    assert plan.cost is not None
    costs = sum(COST[attempt.name] for attempt in plan.attempts)
    assert plan.cost.seconds == pytest.approx(costs * (plan.recipe.steps or 0) * 64 / 40.0)
    recipes = [attempt.recipe for attempt in plan.attempts]
    methods = [(recipe.adaptation.method, recipe.adaptation.frozen_blocks) for recipe in recipes]
    assert methods == [("full", 8), ("lora", 0), ("full", 0), ("full", 0)]
    assert [recipe.image_size for recipe in recipes] == [224, 224, 224, 336]
    assert plan.attempts[-1].relative_cost == pytest.approx((336 / 224) ** 2)


def test_with_little_time_the_one_that_pays_most_and_with_none_the_probe() -> None:
    little = adapted(60.0)
    assert (names(little.attempts), little.recipe.adaptation.method) == ([TRAINED], "lora")
    assert any(line.startswith("There is time for one training: LoRA") for line in little.reasons)
    none = adapted(5.0)
    assert none.attempts == ()
    assert none.why_none in none.reasons


@every_case(
    "given",
    [
        {"recipe": "finetune"},
        {"overrides": ("adaptation.method=lora",)},
        {"overrides": ("steps=400",)},
        {"overrides": ("epochs=4",)},
        {"overrides": ("optimizer.lr=0.001",)},
        {"baselines": False},
        {"source": "vit-ti16"},
    ],
)
def test_what_is_set_means_one_way_to_learn(given: dict[str, Any]) -> None:
    plan = adapted(3600.0, **given)
    assert names(plan.attempts) == [TRAINED]
    assert plan.why_none == ""


def test_one_way_where_the_images_leave_no_other() -> None:
    assert adapted(facts=changed(LAPTOP, images=30)).recipe.adaptation.method == "probe"
    assert names(adapted(facts=changed(LAPTOP, task=MULTI_LABEL)).attempts) == [TRAINED]
    none = adapted(facts=replace(changed(LAPTOP, images=100_000), machine=MachineFacts()))
    assert none.attempts == ()
    assert none.cost is not None
    assert all(fact in none.why_none for fact in (rounded(none.cost.seconds), rounded(PATIENCE_SECONDS), "`time`"))


def test_quick_plans_no_training() -> None:
    plan = planned(LAPTOP, source="start/", quick=True)  # whose network is not measured
    assert (plan.attempts, plan.cost) == ((), None)
    assert SEVERAL_TRIED not in plan.reasons
    assert not any(line.startswith(f"  {name}, ") for line in plan.reasons for name in SEVERAL)


def test_a_published_network_of_few_weights_and_classes_is_not_small() -> None:
    assert count_parameters(build(replace(variant("t2t-vit-7"), num_classes=2), seed=None)) > SMALL_NETWORK
    assert count_parameters(build(replace(variant("conv-vit-16"), num_classes=100), seed=None)) < SMALL_NETWORK
