"""Scores worked by hand, and against torchmetrics."""

import json
import math
import tracemalloc

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int64
from sklearn.metrics import balanced_accuracy_score, precision_recall_fscore_support
from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
    multiclass_confusion_matrix,
)

from tests.cases import every_case
from vitral.errors import DataError, ModelError
from vitral.tasks.chance import Standing
from vitral.tasks.class_sizes import ClassSizes
from vitral.tasks.metrics import (
    MAX_CONFUSED,
    Confusion,
    Evaluation,
    evaluate_probabilities,
    wilson_interval,
)
from vitral.tasks.reliability import expected_calibration_error, reliability
from vitral.tasks.shown import AnswerCounts, ReliabilityBin
from vitral.tasks.task import MAX_MISTAKES


def score(probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"]) -> Evaluation:
    """Evaluate with made-up names."""
    names = [f"class {index}" for index in range(probabilities.shape[1])]
    files = [f"{index}.png" for index in range(len(labels))]
    return evaluate_probabilities(probabilities, labels, class_names=names, descriptions=files)


@every_case("classes", (2, 5, 300))
def test_precision_and_recall_are_scikit_learn_s_to_the_bit(classes: int) -> None:
    generator = np.random.default_rng(classes)
    truth, predicted = generator.integers(0, classes, (2, 200))
    made = score(functional.one_hot(torch.from_numpy(predicted), classes).float(), torch.from_numpy(truth))
    *expected, _, support = precision_recall_fscore_support(
        truth, predicted, labels=np.arange(classes), zero_division=np.nan
    )
    for own, theirs in zip((made.precision, made.recall), expected, strict=True):
        np.testing.assert_array_equal(np.array(own, dtype=float), theirs)
    assert made.support == tuple(support)


def random_case(examples: int, classes: int) -> tuple[Float[Tensor, "n k"], Int64[Tensor, " n"]]:
    """Make probabilities that lean towards the right class."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(classes, (examples,), generator=generator)
    logits = torch.randn(examples, classes, generator=generator)
    logits[torch.arange(examples), labels] += 1.0
    return logits.softmax(dim=1), labels


def test_small_case_by_hand() -> None:
    probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.2, 0.8, 0.0], [0.0, 1.0, 0.0]])
    evaluation = score(probabilities, torch.tensor([0, 1, 1, 0]))
    assert evaluation.num_examples == 4
    assert evaluation.top1 == 0.5
    assert evaluation.top5 is None
    assert evaluation.confusion == ((0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 1, 1))
    assert evaluation.precision == (0.5, 0.5, None)
    assert evaluation.recall == (0.5, 0.5, None)
    assert evaluation.support == (2, 2, 0)
    likelihood = [0.9, 0.4, 0.8, 1e-12]
    assert evaluation.nll == pytest.approx(-sum(map(math.log, likelihood)) / 4, rel=1e-6)


def test_mistakes_are_sorted_by_how_sure_they_are() -> None:
    probabilities = torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    mistakes = score(probabilities, torch.tensor([1, 1, 1, 0])).mistakes
    assert [(mistake.index, mistake.description) for mistake in mistakes] == [(1, "1.png"), (3, "3.png"), (0, "0.png")]
    assert (mistakes[0].truth, mistakes[0].predicted) == ("class 1", "class 0")
    assert mistakes[0].probability == pytest.approx(0.9)


def test_the_list_of_mistakes_is_bounded() -> None:
    evaluation = score(torch.tensor([[0.9, 0.1]]).repeat(80, 1), torch.ones(80, dtype=torch.int64))
    assert len(evaluation.mistakes) == MAX_MISTAKES
    assert [mistake.index for mistake in evaluation.mistakes] == list(range(MAX_MISTAKES))


def test_top5_counts_the_five_most_probable() -> None:
    ranking = torch.tensor([[0.3, 0.25, 0.2, 0.15, 0.07, 0.03, *[0.0] * 14]]).repeat(6, 1)
    assert score(ranking, torch.arange(6)).top5 == pytest.approx(5 / 6)
    assert score(ranking[:, :6], torch.arange(6)).top5 is None


def test_images_whose_answer_has_less_than_half_are_unsure() -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]])
    found = score(probabilities, torch.tensor([0, 0, 1, 0]))
    assert found.answer_counts() == AnswerCounts(right=1, wrong=3, unsure_right=1, unsure_wrong=2)
    assert Evaluation.from_json(found.to_json()) == found
    earlier = {name: value for name, value in found.to_json().items() if name != "unsure"}
    assert Evaluation.from_json(earlier).answer_counts() == AnswerCounts(1, 3)


def test_equal_probabilities_never_make_a_class_count_twice() -> None:
    evaluation = score(torch.full((20, 20), 0.05), torch.arange(20))
    assert evaluation.top1 == 0.05
    assert evaluation.top5 == 0.25
    assert evaluation.confusion == tuple((index, 0, 1) for index in range(20))


def test_agrees_with_torchmetrics() -> None:
    probabilities, labels = random_case(500, 20)
    evaluation = score(probabilities, labels)
    for top_k, found in ((1, evaluation.top1), (5, evaluation.top5)):
        expected = multiclass_accuracy(probabilities, labels, num_classes=20, average="micro", top_k=top_k)
        assert found == pytest.approx(float(expected))
    error = multiclass_calibration_error(probabilities.double(), labels, num_classes=20, n_bins=15)
    assert evaluation.ece == pytest.approx(float(error), abs=1e-6)
    matrix = multiclass_confusion_matrix(probabilities, labels, num_classes=20).numpy()
    assert evaluation.confusion == tuple(
        (int(i), int(j), int(matrix[i, j])) for i, j in zip(*matrix.nonzero(), strict=True)
    )


def test_ties_stand_in_the_order_of_the_classes() -> None:
    # Quarters, so that many probabilities are equal; the reference sorts all classes by a stable sort.
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.randint(4, (300, 20), generator=generator) / 4
    labels = torch.randint(20, (300,), generator=generator)
    ranked = np.argsort(-probabilities.numpy(), axis=1, kind="stable")
    evaluation = score(probabilities, labels)
    assert evaluation.top5 == (ranked[:, :5] == labels.numpy()[:, None]).any(axis=1).mean()
    assert evaluation.top1 == (ranked[:, 0] == labels.numpy()).mean()


def test_confused_pairs_are_sorted_by_count_and_have_examples() -> None:
    labels = torch.tensor([0, 0, 0, 1, 2, 0])
    probabilities = torch.eye(3)[torch.tensor([1, 1, 0, 2, 2, 1])] * torch.tensor([0.7, 0.9, 1, 1, 1, 0.8])[:, None]
    assert score(probabilities, labels).confused == (
        Confusion("class 0", "class 1", 3, 0.75, (1, 5, 0)),
        Confusion("class 1", "class 2", 1, 1.0, (3,)),
    )


def test_few_pairs_are_kept_of_many() -> None:
    evaluation = score(*random_case(3000, 60))
    assert len(evaluation.confused) == MAX_CONFUSED
    counts = [pair.count for pair in evaluation.confused]
    assert counts == sorted(counts, reverse=True)
    assert max(count for row, column, count in evaluation.confusion if row != column) == counts[0]


def test_thousands_of_classes_take_little_memory_and_a_small_file() -> None:
    probabilities, labels = random_case(2000, 4000)
    tracemalloc.start()
    evaluation = score(probabilities, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6  # the probabilities themselves are 32 MB; a dense matrix alone would be 128
    assert len(json.dumps(evaluation.to_json(), indent=2)) < 1.2e6
    assert sum(count for _, _, count in evaluation.confusion) == 2000


def test_chance_is_what_the_commonest_class_gets() -> None:
    labels = torch.tensor([0] * 70 + [1] * 30)
    always, good = torch.eye(2)[torch.zeros(100, dtype=torch.int64)], torch.eye(2)[labels]
    assert score(always, labels).chance == 0.7
    assert score(always, labels).at_chance
    assert not score(good, labels).at_chance
    assert score(good, labels).scores()["chance"] == 0.7


def test_few_images_tell_nothing_unless_they_are_all_wrong() -> None:
    two = score(torch.eye(2)[torch.tensor([0, 1])], torch.tensor([0, 1]))
    assert not two.at_chance
    said = two.standing.sentence("test")
    assert all(fact in said for fact in ("2 of 2 test", " 1)", "4 would")), said
    assert "too few photos" in two._repr_html_()
    four = score(torch.eye(2)[torch.tensor([0, 1, 0, 1])], torch.tensor([0, 1, 0, 1]))
    assert not four.at_chance
    assert four.standing.sentence("test") == ""
    half = score(torch.eye(2)[torch.tensor([0, 0])], torch.tensor([0, 1]))
    assert not half.at_chance  # 1 of 2: three quarters right may look like that
    wrong = score(torch.eye(2)[torch.tensor([1, 0])], torch.tensor([0, 1]))
    assert wrong.at_chance
    single = score(torch.eye(2)[torch.tensor([0, 0])], torch.tensor([0, 0]))
    assert not single.at_chance
    assert "one class" in single.standing.sentence("test")


@every_case(("right", "images"), [(1, 1), (2, 2), (3, 4), (26, 200), (199, 200), (5000, 10_007)])
def test_the_images_are_known_from_share_and_interval(right: int, images: int) -> None:
    assert Standing(right / images, wilson_interval(right, images)[0], 0.5).images == images


@every_case("values", [(0.0, 0.0, 0.0), (1e-200, 0.0, 0.0), (1.0, 0.0, 1.0), (1e-200, 0.0, 1e-201)])
def test_any_shares_that_a_file_may_claim_have_a_sentence(values: tuple[float, float, float]) -> None:
    assert Standing(*values).sentence("test")


def test_json_round_trip() -> None:
    evaluation = score(*random_case(60, 7))
    assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json()))) == evaluation


def test_wilson_interval_by_hand() -> None:
    # 8 of 10: centre (0.8 + z²/20) / (1 + z²/10), as in Newcombe (1998).
    assert wilson_interval(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775328), abs=1e-6)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(360, 360)[1] == 1.0


def test_wilson_interval_holds_the_share() -> None:
    for trials in range(1, 40):
        for successes in range(trials + 1):
            low, high = wilson_interval(successes, trials)
            assert 0.0 <= low <= successes / trials <= high <= 1.0


def test_calibration_error_by_hand() -> None:
    # Two bins are used: 0.9 three times, two right (gap 0.9 - 2/3), and 0.5 once, wrong (gap 0.5).
    bins = reliability(np.array([0.9, 0.9, 0.9, 0.5]), np.array([True, True, False, False]))
    assert expected_calibration_error(bins) == pytest.approx(3 / 4 * (0.9 - 2 / 3) + 1 / 4 * 0.5)
    assert sum(bin.count for bin in bins) == 4


def test_a_probability_on_an_edge_belongs_to_the_bin_below() -> None:
    bins = reliability(np.array([0.0, 0.2, 0.4, 1.0]), np.ones(4, dtype=bool), num_bins=5)
    assert [bin.count for bin in bins] == [2, 1, 0, 0, 1]
    assert bins[2] == ReliabilityBin(bins[2].low, bins[2].high, 0, None, None)


def test_no_images_is_a_clear_error() -> None:
    with pytest.raises(DataError, match="^There are no images to evaluate; name a split that has some.$"):
        score(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))


def test_damaged_weights_are_a_clear_error() -> None:
    with pytest.raises(ModelError, match="for 1 of 2 images"):
        score(torch.tensor([[0.5, 0.5], [math.nan, math.nan]]), torch.tensor([0, 1]))


@every_case(
    ("images", "ratio", "rare"),
    [
        ((), 1.0, ()),
        ((5, 5, 0), 1.0, ()),  # a class without images is none
        ((10, 29), 2.9, ()),
        ((10, 30), 3.0, (0,)),
        ((1000, 1), 1000.0, (1,)),
        ((10, 10, 30), 3.0, ()),  # one large class makes no class rare
        ((300, 97, 31, 1, 10), 300.0, (3, 4, 2)),
    ],
)
def test_rare_classes(images: tuple[int, ...], ratio: float, rare: tuple[int, ...]) -> None:
    sizes = ClassSizes(images)
    assert (sizes.ratio, sizes.rare, sizes.unequal) == (ratio, rare, ratio >= 3)


def test_unequal_classes_by_hand() -> None:
    labels = torch.tensor([0] * 8 + [1] * 4 + [2])
    picked = torch.tensor([0] * 8 + [1, 0, 0, 0] + [0])
    found = score(functional.one_hot(picked, 4).float(), labels)
    assert found.top1 == pytest.approx(9 / 13)
    assert found.balanced_accuracy == pytest.approx((1 + 1 / 4 + 0) / 3)
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, picked))
    known = found.trained_on((50, 2, 40, 1))
    assert known.scores()["balanced_accuracy"] == known.balanced_accuracy
    assert [row[0] for row in known.tables()[-1].rows] == ["class 3", "class 1", "class 2", "class 0"]
    said = known.rare_sentence("test")
    assert all(fact in said for fact in ("2 rare classes", "class 3 (1), class 1 (2)", "25% of 4 test", "89%"))
    assert "balanced accuracy 41.7%" in known.announcement("test")
    assert said in known.lead("test")
    assert Evaluation.from_json(json.loads(json.dumps(known.to_json()))) == known
    older = {name: value for name, value in known.to_json().items() if name != "class_images"}
    assert Evaluation.from_json(older).class_images == ()
    equal = found.trained_on((5, 6, 7, 8))
    assert "balanced_accuracy" not in equal.scores()
    assert equal.rare_sentence("test") == ""
    assert found.trained_on((5, 6)) == found  # counts of other classes
