"""What the tasks do with labels, logits and probabilities, against formulas written out plainly."""

import math

import numpy as np
import pytest
import torch

from tests.cases import every_case
from vitral import plugins
from vitral.errors import DataError, ModelError, PluginError, VitralError
from vitral.tasks.chance import Standing
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.multi_label import MULTI_LABEL, MultiLabelEvaluation
from vitral.tasks.registry import described_task, task_named, task_of
from vitral.tasks.reliability import expected_calibration_error, reliability
from vitral.tasks.shown import ReliabilityBin
from vitral.tasks.single_label import SINGLE_LABEL, SingleLabel
from vitral.tasks.task import Figure, Label, classes_of

GENERATOR = torch.Generator().manual_seed(0)
BAD_SINGLE: list[list[Label]] = [[1, (2,)], [None], [(1, 2)]]
BAD_SEVERAL: list[list[Label]] = [[(1,), 2], [None]]
LOGITS = torch.randn(40, 6, generator=GENERATOR)


def average_precision(truth: list[bool], scores: list[float]) -> float:
    """Return the sum over thresholds of (recall gained) times precision, equal scores counted together."""
    total, seen, right, before = 0.0, 0, 0, 0
    for threshold in sorted(set(scores), reverse=True):
        group = [is_it for is_it, score in zip(truth, scores, strict=True) if score == threshold]
        seen, right = seen + len(group), right + sum(group)
        total += (right - before) / sum(truth) * right / seen
        before = right
    return total


def test_multi_label_scores_by_hand() -> None:
    probabilities = (torch.rand(60, 5, generator=GENERATOR) * 20).round() / 20  # with equal ones, and halves
    labels = (torch.rand(60, 5, generator=GENERATOR) < torch.tensor([0.5, 0.1, 0.9, 0.3, 0.0])).float()
    found = MULTI_LABEL.score(probabilities, labels, class_names=list("abcde"), describe=str)
    truth, given = labels.bool().numpy(), probabilities.double().numpy() >= 0.5
    precisions = [
        average_precision(truth[:, column].tolist(), probabilities[:, column].tolist())
        if truth[:, column].any()
        else None
        for column in range(5)
    ]
    assert precisions[4] is None
    assert found.average_precision[4] is None
    assert found.average_precision[:4] == pytest.approx(precisions[:4])
    assert found.mean_average_precision == pytest.approx(np.mean([each for each in precisions if each is not None]))

    def f1(truth: np.ndarray, given: np.ndarray) -> float:
        wrong = int((truth ^ given).sum())
        both = int((truth & given).sum())
        return 2 * both / (2 * both + wrong) if both or wrong else 0.0

    assert found.f1_micro == pytest.approx(f1(truth, given))
    assert found.f1_macro == pytest.approx(np.mean([f1(truth[:, column], given[:, column]) for column in range(5)]))
    assert found.exact_match == pytest.approx(np.mean([list(truth[row]) == list(given[row]) for row in range(60)]))
    assert found.support == tuple(truth.sum(axis=0).tolist())
    assert (found.num_examples, found.class_names) == (60, ("a", "b", "c", "d", "e"))
    assert all(type(value) is float for value in found.scores().values())
    assert MULTI_LABEL.validate(probabilities, labels) == {"map": found.mean_average_precision, "f1": found.f1_micro}
    scored = MULTI_LABEL.score(probabilities, labels, class_names=list("abcde"), describe=str)
    assert scored == found
    assert MULTI_LABEL.read(found.to_json()) == found


def test_a_label_at_exactly_a_half_is_given() -> None:
    found = MULTI_LABEL.score(
        torch.tensor([[0.5, 0.49]]), torch.tensor([[1.0, 0.0]]), class_names=["a", "b"], describe=str
    )
    assert (found.exact_match, found.f1_micro, found.f1_macro) == (1.0, 1.0, 0.5)


def test_no_labels_at_all_score_nothing_and_no_images_are_an_error() -> None:
    found = MULTI_LABEL.score(torch.full((3, 2), 0.1), torch.zeros(3, 2), class_names=["a", "b"], describe=str)
    assert found == MultiLabelEvaluation(3, ("a", "b"), 0.0, (None, None), 0.0, 0.0, 1.0, (0, 0))
    with pytest.raises(DataError, match="^There are no images to evaluate; name a split that has some.$"):
        MULTI_LABEL.score(torch.zeros(0, 2), torch.zeros(0, 2), class_names=["a", "b"], describe=str)
    says = (
        r"^The network gives no number \(NaN\) for 1 of 1 images: its weights are damaged; load an earlier checkpoint.$"
    )
    with pytest.raises(ModelError, match=says):
        MULTI_LABEL.score(torch.tensor([[0.5, math.nan]]), torch.zeros(1, 2), class_names=["a", "b"], describe=str)


def test_labels_become_numbers_or_marks() -> None:
    assert SINGLE_LABEL.encode([2, 0, 5], 6).tolist() == [2, 0, 5]
    assert SINGLE_LABEL.encode([2], 6).dtype == SINGLE_LABEL.encode([], 6).dtype == torch.int64
    marks = MULTI_LABEL.encode([(0, 2), (), (1,)], 3)
    assert marks.tolist() == [[1.0, 0.0, 1.0], [0.0] * 3, [0.0, 1.0, 0.0]]
    assert marks.dtype == torch.float32
    assert SINGLE_LABEL.label([4]) == 4
    assert MULTI_LABEL.label([4, 1, 4]) == (1, 4)
    assert [SINGLE_LABEL.takes(label) for label in (3, (3,), None)] == [True, False, False]
    assert [MULTI_LABEL.takes(label) for label in (3, (3,), (), None)] == [False, True, True, False]
    assert [classes_of(label) for label in (3, (1, 2), (), None)] == [(3,), (1, 2), (), ()]
    for labels in BAD_SINGLE:
        with pytest.raises(DataError, match="^An image has not exactly one class, which is what the network learns.$"):
            SINGLE_LABEL.encode(labels, 6)
    for labels in BAD_SEVERAL:
        with pytest.raises(DataError, match="^An image has no list of labels, which is what the network learns.$"):
            MULTI_LABEL.encode(labels, 6)


def test_logits_become_a_softmax_or_sigmoids_in_float32() -> None:
    logits = LOGITS.bfloat16()
    values = logits.double().numpy()
    softmax = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(SINGLE_LABEL.probabilities(logits).numpy(), softmax, rtol=1e-5)
    np.testing.assert_allclose(MULTI_LABEL.probabilities(logits).numpy(), 1 / (1 + np.exp(-values)), rtol=1e-5)
    for task in (SINGLE_LABEL, MULTI_LABEL):
        assert task.probabilities(logits).dtype == torch.float32
        assert task.probabilities(logits.view(2, 20, 6)).shape == (2, 20, 6)


@every_case("smoothing", [0.0, 0.3])
def test_each_task_has_its_loss(smoothing: float) -> None:
    values = LOGITS.double().numpy()
    labels = torch.arange(40) % 6
    shares = (1 - smoothing) * np.eye(6)[labels.numpy()] + smoothing / 6
    softmax = -(shares * (values - np.log(np.exp(values).sum(axis=1, keepdims=True)))).sum(axis=1).mean()
    assert float(SINGLE_LABEL.loss(LOGITS, labels, label_smoothing=smoothing)) == pytest.approx(softmax, rel=1e-5)
    marks = MULTI_LABEL.encode([tuple(range(number % 4)) for number in range(40)], 6)
    shares = (1 - smoothing) * marks.numpy() + smoothing / 6
    sigmoid = (shares * np.log1p(np.exp(-values)) + (1 - shares) * np.log1p(np.exp(values))).sum(axis=1).mean()
    assert float(MULTI_LABEL.loss(LOGITS, marks, label_smoothing=smoothing)) == pytest.approx(sigmoid, rel=1e-5)
    plain = (SINGLE_LABEL.loss(LOGITS, labels), MULTI_LABEL.loss(LOGITS, marks))
    assert plain == (
        SINGLE_LABEL.loss(LOGITS, labels, label_smoothing=0.0),
        MULTI_LABEL.loss(LOGITS, marks, label_smoothing=0.0),
    )


def test_what_is_right_in_a_batch() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [-1.0, -2.0, -3.0], [0.0, 0.5, 0.2]])
    assert SINGLE_LABEL.right(logits, torch.tensor([0, 1, 1])).tolist() == [True, False, True]
    mixed = torch.tensor([[0.4, 0.6, 0.0], [0.7, 0.0, 0.3], [0.5, 0.5, 0.0]])
    assert SINGLE_LABEL.right(logits, mixed).tolist() == [False, True, True]
    marks = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert MULTI_LABEL.right(logits, marks).tolist() == [True, True, False]
    assert MULTI_LABEL.right(logits, torch.zeros(3, 3)).tolist() == [False, True, False]
    assert MULTI_LABEL.right(torch.zeros(1, 3), torch.zeros(1, 3)).tolist() == [False]  # a half is given


def test_a_validation_of_single_labels_by_hand() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.2, 0.8], [1.0, 0.0], [0.6, 0.4]])
    found = SINGLE_LABEL.validate(probabilities, torch.tensor([0, 1, 1, 1]))
    assert list(found) == ["accuracy", "loss"]
    assert found["accuracy"] == 0.5
    expected = -(math.log(0.7) + math.log(0.8) + math.log(1e-12) + math.log(0.4)) / 4
    assert found["loss"] == pytest.approx(expected, rel=1e-6)


def test_a_score_describes_its_mistakes() -> None:
    probabilities = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])
    found = SINGLE_LABEL.score(
        probabilities, torch.tensor([0, 0, 0]), class_names=["cat", "dog"], describe=lambda index: f"image {index}"
    )
    (mistake,) = found.mistakes
    assert (mistake.index, mistake.description, mistake.truth, mistake.predicted) == (1, "image 1", "cat", "dog")
    assert SINGLE_LABEL.read(found.to_json()) == found


def test_tasks_by_name_and_in_descriptions() -> None:
    assert task_named("single-label") is SINGLE_LABEL
    assert task_named("multi-label") is MULTI_LABEL
    assert task_of(several=True) is MULTI_LABEL
    assert task_of(several=False) is SINGLE_LABEL
    for description, task in (
        ({}, SINGLE_LABEL),
        ({"multi_label": False}, SINGLE_LABEL),
        ({"multi_label": True}, MULTI_LABEL),
        ({"task": "multi-label"}, MULTI_LABEL),
        ({"task": "single-label", "multi_label": True}, SINGLE_LABEL),
    ):
        assert described_task(description) is task
    with pytest.raises(VitralError, match="^its task is no name.$"):
        described_task({"task": 3})
    with pytest.raises(VitralError, match="^its multi_label is neither true nor false.$"):
        described_task({"multi_label": 1})
    says = (
        "^There is no task 'multi-lable', only single-label, multi-label.*; one of your own must be registered first."
    )
    with pytest.raises(VitralError, match=says + ".*multi-label"):
        task_named("multi-lable")


def test_a_name_is_registered_once() -> None:
    class Other(SingleLabel):
        pass

    with pytest.raises(PluginError, match="^There is already a task 'single-label'; give yours another name.$"):
        plugins.register("task", "single-label", Other())


def test_losses_that_fit() -> None:
    assert SINGLE_LABEL.objective("sigmoid") == "sigmoid"
    assert SINGLE_LABEL.objective("softmax") == "softmax"
    assert MULTI_LABEL.objective("softmax") == "sigmoid"
    assert MULTI_LABEL.objective("task") == "task"
    assert SINGLE_LABEL.objective("masked-patches") == "softmax"
    assert (SINGLE_LABEL.outputs(7), MULTI_LABEL.outputs(7)) == (7, 7)


def test_figures_compare_by_what_is_better() -> None:
    share, error = Figure("top1", "accuracy"), Figure("mae", "error", more_is_better=False, is_share=False)
    assert (share.text(0.12345), error.text(0.123456)) == ("12.3%", "0.1235")
    assert [share.improves(0.5, than) for than in (None, 0.4, 0.5, 0.6)] == [True, True, False, False]
    assert [error.improves(0.5, than) for than in (None, 0.4, 0.5, 0.6)] == [True, False, False, True]


@every_case("num_bins", [1, 5, 15])
def test_reliability_by_counting(num_bins: int) -> None:
    """arXiv 1706.04599, equations 2 and 3: bins open below and closed above, gaps weighted by their images."""
    confidences = np.concatenate([np.random.default_rng(0).random(300), np.arange(num_bins + 1) / num_bins])
    correct = np.random.default_rng(1).random(len(confidences)) < confidences
    bins = reliability(confidences, correct, num_bins=num_bins)
    error = 0.0
    for number, found in enumerate(bins):
        low, high = np.linspace(0, 1, num_bins + 1)[number : number + 2]
        inside = (confidences > low) & (confidences <= high) | ((number == 0) & (confidences == 0))
        assert (found.low, found.high, found.count) == (low, high, int(inside.sum()))
        assert found.confidence == pytest.approx(confidences[inside].mean())
        assert found.accuracy == pytest.approx(correct[inside].mean())
        error += inside.mean() * abs(confidences[inside].mean() - correct[inside].mean())
    assert len(bins) == num_bins
    assert expected_calibration_error(bins) == pytest.approx(error)
    assert len(reliability(confidences, correct)) == 15


def test_empty_bins_count_for_nothing() -> None:
    bins = [ReliabilityBin(0.0, 0.5, 0, None, None), ReliabilityBin(0.5, 1.0, 4, 0.75, 0.5)]
    assert expected_calibration_error(bins) == 0.25
    assert expected_calibration_error(bins[:1]) == 0.0
    assert expected_calibration_error([]) == 0.0


@every_case(("right", "images"), [(0, 7), (1, 7), (5, 7), (7, 7), (90, 100), (500, 1000)])
def test_wilsons_interval_solves_its_equation(right: int, images: int) -> None:
    """Wilson (1927): the ends p with (share - p)^2 = z^2 p (1 - p) / n."""
    z = 1.959963984540054
    share = right / images
    for end in wilson_interval(right, images):
        assert (share - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / images, abs=1e-12)
        assert 0 <= end <= 1
    low, high = wilson_interval(right, images)
    assert low <= share <= high
    assert low < high


@every_case(
    ("right", "images", "chance", "at_chance", "untold"),
    [
        (90, 100, 0.5, False, False),  # clearly above
        (55, 100, 0.5, True, False),  # enough images, and not above
        (40, 100, 0.5, True, False),  # below
        (2, 3, 0.5, False, True),  # above, of too few
        (10, 10, 1.0, False, True),  # all of one class
        (1, 3, 0.5, False, True),  # below, of too few: 6 % to 79 % holds three quarters
        (0, 3, 0.5, True, False),  # 0 % to 56 % does not
        (4, 4, 0.5, False, False),
    ],
)
def test_a_share_stands_above_chance_at_it_or_cannot_be_told(
    right: int, images: int, chance: float, at_chance: bool, untold: bool
) -> None:
    standing = Standing(right / images, wilson_interval(right, images)[0], chance)
    assert (standing.at_chance, standing.untold) == (at_chance, untold)
    said = standing.sentence("test")
    assert said.startswith("Not clearly better" if at_chance else "Too few" if untold else "")
    assert bool(said) == (at_chance or untold)
    assert standing.sentence("") == said.replace("test photos", "photos")


def test_how_many_images_would_do() -> None:
    """Of so many, and of no fewer, Wilson's interval of that share begins above chance."""
    for right, images, chance in ((3, 4, 0.6), (2, 3, 0.5), (9, 10, 0.8)):
        share = right / images
        said = Standing(share, wilson_interval(right, images)[0], chance).sentence("test")
        needed = int(said.split("; ")[1].split(" ")[0])

        def low(count: int, share: float = share) -> float:
            z2 = 1.959963984540054**2
            spread = math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
            return (share + z2 / (2 * count) - 1.959963984540054 * spread) / (1 + z2 / count)

        assert low(needed) > chance
        assert low(needed - 1) <= chance
