"""The paper's experiments as they are stated: their arms at every budget, and what is concluded from results."""

import math
from dataclasses import replace

import pytest

from tests.cases import every_case
from tests.studies.paper.opened import digits
from vitral.data.open import open_data
from vitral.errors import StudyError
from vitral.seeds import generator
from vitral.studies.paper.ablations import POSITION, SHAPES
from vitral.studies.paper.experiment import (
    Experiment,
    Trial,
    TrialFacts,
    TrialResult,
    against,
    chance,
    differs,
    how_selected,
    published,
    ranked,
    selected,
)
from vitral.studies.paper.experiment_plan import ExperimentPlan, StudyRecord
from vitral.studies.paper.operations import Operations
from vitral.studies.paper.run import EXPERIMENTS
from vitral.studies.paper.scale import LAPTOP, SCALES, Scale, chosen
from vitral.studies.paper.scaling import DATA_SIZE, SCALING
from vitral.training.settings.recipe import load_recipe

FACTS = TrialFacts(parameters=1, tokens=5, train_images=100, operations=Operations(macs=10, images=1000))


def result(name: str, series: str, *values: float, **facts: object) -> TrialResult:
    share = str(facts.pop("share", "1"))
    return TrialResult(Trial(name, series, name, share=share), replace(FACTS, **facts), values)  # type: ignore[arg-type]


@pytest.mark.long
@every_case("scale", SCALES.values(), ids=lambda scale: scale.name)
@every_case("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_every_arm_of_every_budget_is_a_recipe_with_a_network(experiment: Experiment, scale: Scale) -> None:
    plan = ExperimentPlan(experiment, scale, "digits", digits(), None, (0, 1))
    trials = plan.trials()
    assert len({trial.name for trial in trials}) == len(trials)
    for trial in trials:
        facts = plan.facts(trial)
        recipe = load_recipe(scale.tuning if trial.tuned else scale.recipe)
        assert facts.operations.images == round((recipe.steps or 0) * trial.length) * recipe.batch_size
        assert facts.flops - facts.before == 6 * facts.operations.macs * facts.operations.images
        assert facts.parameters > 0
    seconds = dict.fromkeys((trial.name for trial in trials), 1.0)
    replace(plan, record=StudyRecord(steps=10, seconds=seconds)).design()  # whose names and order must hold


def test_the_arms_of_positions_are_those_of_table_8() -> None:
    chart = published("position").chart
    assert chart is not None
    theirs = {(series.name, point.x) for series in chart.series for point in series.points}
    ours = {(trial.series, trial.at) for trial in POSITION.trials(LAPTOP)}
    assert ours - theirs == {("at the input", "fixed 2-D"), ("at the input", "rotary")}
    assert theirs <= ours


def test_the_shapes_change_one_thing_at_a_time_and_all_at_once() -> None:
    base, *others = SHAPES.trials(LAPTOP)
    for trial in others:
        changed = {change.split("=")[0] for change in set(trial.changes) - set(base.changes)}
        expected = {
            "depth": {"depth"},
            "width": {"width", "heads"},
            "MLP": {"mlp_width"},
            "patch size": {"patch_size"},
            "all": {"depth", "width", "heads", "mlp_width"},
        }
        assert changed == expected[trial.series]


def test_two_means_differ_by_more_than_chance_as_welchs_test_has_it() -> None:
    first, second = result("first", "a", 0.50, 0.52, 0.51), result("second", "b", 0.60, 0.66, 0.63)
    # By hand: t = 0.12 / sqrt(0.01^2 / 3 + 0.03^2 / 3) = 6.573 with 2.44 degrees of freedom.
    assert chance(first, second) == pytest.approx(0.0132, abs=2e-4)
    assert differs(first, second)
    said = against(second, first)
    assert all(fact in said for fact in ("second 63.0 ± 3.0%", "first 51.0 ± 1.0%", "12.0 points more")), said
    near = result("near", "b", 0.52, 0.54, 0.50)
    assert against(near, first).endswith("a difference that the seeds do not decide")
    assert not differs(result("one", "a", 0.1), result("other", "b", 0.9))  # one run each says nothing of chance
    assert not differs(result("still", "a", 0.1, 0.1), result("same", "b", 0.2, 0.2))  # nor do runs without a spread


def test_more_seeds_decide_more() -> None:
    few, more = (
        (result("a", "a", *[0.50, 0.52, 0.51] * times), result("b", "b", *[0.515, 0.535, 0.525] * times))
        for times in (1, 4)
    )
    assert not differs(*few)
    assert differs(*more)


def test_equal_arms_are_rarely_called_beaten() -> None:
    rng, claims = generator(0, "equal arms"), 0
    for _ in range(200):
        arms = [result(str(arm), "s", *rng.normal(0.5, 0.01, size=3).tolist()) for arm in range(9)]
        claims += "beats" in ranked(arms)
    assert claims / 200 < 0.2  # the best of nine is not one that was named beforehand, so that it is more than 0.05


def test_the_best_is_named_with_those_that_the_seeds_do_not_tell_from_it() -> None:
    results = [
        result("a", "s", 0.50, 0.51, 0.50),
        result("b", "s", 0.61, 0.63, 0.62),
        result("c", "s", 0.60, 0.62, 0.62),
    ]
    for among, equal, beats in ((results, True, True), (results[:2], False, True), (results[1:], True, False)):
        said = ranked(among)
        assert "b with 62.0 ± 1.0%" in said
        assert ("not tell it from c" in said) == equal
        assert ("beats the other" in said) == beats


def test_a_rate_is_chosen_by_other_images_than_those_that_score() -> None:
    lucky = replace(result("lucky", "s", 0.9, 0.9), judged=(0.5, 0.5))
    chosen = replace(result("chosen", "s", 0.8, 0.8), judged=(0.6, 0.6))
    assert selected([lucky, chosen]) is chosen
    assert how_selected([lucky, chosen]) == "chosen by validation images"
    assert "flatters" in how_selected([result("a", "s", 0.9)])


def data_size(*pairs: tuple[float, float]) -> str:
    results = []
    for index, (vit, resnet) in enumerate(pairs):
        share, images = f"1/{4 ** (len(pairs) - index)}", 100 * 4**index
        for name, value in (("ViT", vit), ("ResNet", resnet)):
            results.append(
                result(f"{name}{index}", name, value, value + 0.01, value + 0.02, share=share, train_images=images)
            )
    return DATA_SIZE.conclude(results)


def test_a_crossing_is_said_with_the_sizes_between_which_it_lies_whoever_takes_the_lead() -> None:
    assert "between 400 and 1,600 images the first takes the lead" in data_size((0.3, 0.5), (0.4, 0.6), (0.8, 0.7))
    assert "between 100 and 1,600 images the first takes the lead" in data_size((0.3, 0.5), (0.6, 0.6), (0.8, 0.7))
    assert "between 100 and 400 images the second takes the lead" in data_size((0.5, 0.3), (0.4, 0.6), (0.5, 0.7))
    assert "between 100 and 400 images the first takes the lead" in data_size((0.3, 0.5), (0.7, 0.6), (0.7, 0.7))


def test_no_crossing_is_said_to_be_none_and_who_is_ahead() -> None:
    assert "ResNet is ahead of ViT at every size" in data_size((0.3, 0.5), (0.4, 0.6))
    assert "ResNet is ahead of ViT wherever the seeds decide" in data_size((0.3, 0.5), (0.705, 0.7))
    assert "ViT is ahead of ResNet at every size" in data_size((0.5, 0.3), (0.6, 0.4))
    assert "the seeds decide at no size" in data_size((0.5, 0.5), (0.6, 0.6))


def test_all_starts_of_self_supervision_end_in_the_same_fine_tuning() -> None:
    for scale in SCALES.values():
        plan = ExperimentPlan(EXPERIMENTS["self-supervision"], scale, "digits", digits(), None, (0, 1))
        last = [plan.request(trial) for trial in plan.trials() if trial.series]
        assert len(last) == 3
        assert len({(asked.data, asked.source, asked.recipe, asked.overrides) for asked in last}) == 1


def test_the_images_of_a_share_are_those_that_a_run_learns_from() -> None:
    plan = ExperimentPlan(DATA_SIZE, LAPTOP, "digits", digits(), None, (0, 1))
    for share, count in plan.train_images.items():
        spec = "digits" if share == "1" else f"part:{share}:digits"
        assert count == len(open_data(spec).splits["train"])


def test_shorter_runs_warm_up_for_the_same_share() -> None:
    plan = ExperimentPlan(SCALING, SCALES["cluster"], "digits", digits(), None, (0, 1))
    trial = next(trial for trial in plan.trials() if trial.length == 0.25)
    assert plan.request(trial).overrides[-2:] == ("steps=25000", "schedule.warmup_steps=2500")


def test_what_weights_have_cost_includes_the_training_that_they_start_from() -> None:
    plan = ExperimentPlan(EXPERIMENTS["resolution"], LAPTOP, "digits", digits(), None, (0, 1), StudyRecord(steps=100))
    before, tuned = (plan.facts(plan.named(name)) for name in ("pretraining", "finetune-32"))
    assert tuned.flops == before.operations.total + tuned.operations.total


def test_a_law_is_refused_below_five_points() -> None:
    said = SCALING.conclude([result(f"p{n}", "ViT", 0.5, 0.51, operations=Operations(10, 10**n)) for n in range(4)])
    assert "5" in said
    assert "ViT: best 50.5" in said


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(StudyError, match="Did you mean 'position'"):
        chosen("study", "positions", EXPERIMENTS)
    with pytest.raises(StudyError, match="There are laptop, h200, cluster"):
        chosen("budget", "tpu", SCALES)


def test_a_result_without_runs_has_no_mean() -> None:
    assert math.isnan(result("none", "a").mean)


def test_starts_are_compared_at_each_number_of_labels() -> None:
    results = [
        result(f"{name}-{share.replace('/', 'of')}", label, *values, share=share, train_images=images)
        for share, images, rows in (
            ("1/10", 50, {"scratch": (0.30, 0.32, 0.31), "mae": (0.40, 0.42, 0.41), "lejepa": (0.33, 0.31, 0.32)}),
            ("1", 500, {"scratch": (0.50, 0.54, 0.52), "mae": (0.53, 0.51, 0.55)}),
        )
        for name, values in rows.items()
        for label in [{"scratch": "random weights", "mae": "MAE", "lejepa": "LeJEPA"}[name]]
    ]
    said = EXPERIMENTS["starts"].conclude(results)
    few, _, many = said.partition("500 labelled images")
    assert "50 labelled images" in few
    assert "MAE with 41.0 ± 1.0%" in few
    assert "More than two deviations above random weights: MAE." in few
    assert "MAE with 53.0 ± 2.0%" in many
    assert said.endswith("No start is two deviations above random weights.")
