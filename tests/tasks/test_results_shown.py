"""What a result says of itself, word for word: in a line, in a terminal, in a notebook, on a page."""

import dataclasses
import json

import pytest
import torch

from tests.cases import every_case
from vitral.tasks.metrics import Confusion, Evaluation, evaluate_probabilities
from vitral.tasks.multi_label import MultiLabelEvaluation
from vitral.tasks.shown import (
    ConfusionMatrix,
    ReliabilityDiagram,
    Table,
    Tile,
    fitting_digits,
    left_out,
    percent,
    worst_first,
)

NAMES = tuple(f"class {index}" for index in range(7))


def evaluation(images: int = 1200) -> Evaluation:
    """Return the scores of 1,200 images of seven classes, in which class 0 is taken for class 1 now and then."""
    labels = torch.arange(images) % 7
    probabilities = torch.full((images, 7), 0.05)
    picked = torch.where((labels == 0) & (torch.arange(images) % 2 == 0), 1, labels)
    picked = torch.where((labels == 3) & (torch.arange(images) % 30 == 3), 6, picked)
    probabilities[labels == 3, 3] = 0.0  # so that a mistake of this class is not among the five most probable
    probabilities[torch.arange(images), picked] = 0.7
    descriptions = [f"{index}.png" for index in range(images)]
    return evaluate_probabilities(probabilities, labels, class_names=NAMES, descriptions=descriptions)


FOUND = dataclasses.replace(evaluation(), top5=0.995)  # as of more classes
MULTI = MultiLabelEvaluation(1234, ("a", "b"), 0.7777, (0.9, 0.6554), 0.8049, 0.7123, 0.5015, (1000, 7))
S = "%"


def test_an_evaluation_in_a_line() -> None:
    said = {
        repr(FOUND): ("92.3% of 1,200", "90.7% to 93.7%", "14.3%", "7 classes", "0.223"),
        FOUND.sentence("test"): ("92.3% of 1,200 test ",),
        FOUND.announcement("test"): ("92.3% of 1,200 test ", "90.7% to 93.7%"),
        FOUND.announcement("validation"): ("1,200 validation ",),
        FOUND.announcement("train"): ("92.3% of 1,200 training ",),
        FOUND.sentence("train"): ("92.3% of 1,200 training ",),
        FOUND.lead("test"): ("1,200 test ", "7 classes"),
        repr(MULTI): ("77.8%", "80.5%", "1,234 ", "2 labels"),
        MULTI.sentence("test"): ("77.8%", "80.5%", "1,234 test ", "2 labels"),
        MULTI.announcement("train"): ("1,234 training ",),
        MULTI.lead("test"): ("1,234 test ", "2 labels"),
    }
    assert not {line: facts for line, facts in said.items() if not all(fact in line for fact in facts)}
    assert "interval" not in FOUND.announcement("train"), "it tells nothing of new ones"
    assert MULTI.announcement("test") == MULTI.sentence("test")


def test_of_few_photos_it_is_said_how_many_are_right() -> None:
    few = dataclasses.replace(FOUND, num_examples=27, top1=24 / 27, top1_interval=(0.72, 0.96))
    assert few.sentence("test").startswith("24 of 27 test ")
    assert all(fact in few.announcement("test") for fact in ("24 of 27 test ", "88.9%", "72.0% to 96.0%"))


def test_an_evaluation_in_figures() -> None:
    assert FOUND.headline() == FOUND.top1 == pytest.approx(1108 / 1200)
    assert FOUND.scores() == {
        "top1": FOUND.top1,
        "top1_low": FOUND.top1_interval[0],
        "chance": pytest.approx(172 / 1200),
        "ece": FOUND.ece,
        "nll": FOUND.nll,
    }
    assert (FOUND.standing.share, FOUND.standing.low, FOUND.standing.chance) == (
        FOUND.top1,
        FOUND.top1_interval[0],
        FOUND.chance,
    )
    assert MULTI.headline() == 0.7777
    assert MULTI.scores() == {"map": 0.7777, "f1": 0.8049, "exact_match": 0.5015}
    assert MULTI.standing is None
    assert MULTI.at_chance is False
    assert MULTI.mistakes == ()
    assert MULTI.drawings() == ()


def test_an_evaluation_in_a_terminal() -> None:
    assert FOUND.lines() == (
        "92.3% of 1,200 photos right, 7 classes",
        "accuracy  92.33%  (95% interval 90.69% to 93.71%)",
        "top-5 accuracy  99.50%",
        "calibration error  0.2233   negative log-likelihood  0.6822",
    )
    few = dataclasses.replace(FOUND, top5=None)
    assert few.lines() == (*FOUND.lines()[:2], FOUND.lines()[3])
    assert MULTI.lines() == (
        "1,234 photos, 2 labels",
        "mean average precision  77.77%",
        "F1  80.49% over all decisions, 71.23% the labels' mean",
        "exactly the right labels  50.15%",
    )


def test_an_evaluation_in_tiles() -> None:
    assert FOUND.tiles("test") == (
        Tile(f"92.3{S}", ("accuracy on 1,200 test photos", f"95{S} interval 90.7{S} to 93.7{S}")),
        Tile(f"99.5{S}", ("the true class is among the five most probable",)),
        Tile("0.223", ("expected calibration error", "0 is best")),
        Tile("0.682", ("negative log-likelihood, nats", "0 is best")),
    )
    assert len(dataclasses.replace(FOUND, top5=None).tiles("test")) == 3
    assert dataclasses.replace(FOUND, num_examples=2000).tiles("test")[0].value == f"92.33{S}"
    assert MULTI.tiles("test") == (
        Tile(f"77.8{S}", ("mean average precision on 1,234 test photos",)),
        Tile(f"80.5{S}", ("F1 over all decisions", "at a probability of 0.5")),
        Tile(f"50.1{S}", ("of the photos have exactly the right labels",)),
    )


def test_an_evaluation_in_tables() -> None:
    confused, classes = FOUND.tables()
    assert confused == Table(
        "Most often confused",
        ("True class", "taken for", "Photos", "of the class"),
        (("class 0", "class 1", "86", f"50.0{S}"), ("class 3", "class 6", "6", f"3.5{S}")),
        names=2,
        examples=tuple(pair.examples for pair in FOUND.confused),
        examples_title="The surest of them",
    )
    assert classes == Table(
        "Every class, the worst first",
        ("Class", "Recall", "Precision", "Photos"),
        (
            ("class 0", f"50.0{S}", f"100.0{S}", "172"),
            ("class 3", f"96.5{S}", f"100.0{S}", "171"),
            ("class 1", f"100.0{S}", f"66.7{S}", "172"),
            ("class 2", f"100.0{S}", f"100.0{S}", "172"),
            ("class 4", f"100.0{S}", f"100.0{S}", "171"),
            ("class 5", f"100.0{S}", f"100.0{S}", "171"),
            ("class 6", f"100.0{S}", f"96.6{S}", "171"),
        ),
        foldable=True,
    )
    assert MULTI.tables() == (
        Table(
            "Every label, the worst first",
            ("Label", "Average precision", "Photos"),
            (("b", f"65.5{S}", "7"), ("a", f"90.0{S}", "1,000")),
            foldable=True,
        ),
    )
    clean = dataclasses.replace(FOUND, confused=())
    assert clean.tables() == (classes,)
    many = dataclasses.replace(FOUND, confused=tuple(Confusion("a", "b", 1234, 0.5, (1,)) for _ in range(20)))
    assert len(many.tables()[0].rows) == len(many.tables()[0].examples) == 12
    assert many.tables()[0].rows[0][2] == "1,234"


def test_an_evaluation_in_drawings() -> None:
    matrix, diagram = FOUND.drawings()
    assert matrix == ConfusionMatrix(NAMES, FOUND.confusion, FOUND.support, FOUND.recall)
    assert diagram == ReliabilityDiagram(FOUND.reliability)


def test_an_evaluation_in_a_notebook() -> None:
    html = FOUND._repr_html_()
    for text in (
        "<b>Evaluation</b>",
        ">Accuracy<",
        ">92.3% of 1,200 photos<",
        ">95% interval<",
        ">90.7% to 93.7%<",
        ">Top 5<",
        ">99.5%<",
        ">Classes<",
        ">7 classes<",
        ">Calibration error<",
        ">0.223<",
        ">Worst classes<",
        ">class 0 50%, class 3 96%, class 1 100%, class 2 100%, class 4 100%<",
        ">Most confused<",
        ">class 0 as class 1 (86), class 3 as class 6 (6)<",
    ):
        assert text in html, text
    assert "Top 5" not in dataclasses.replace(FOUND, top5=None)._repr_html_()
    chance = dataclasses.replace(FOUND, top1=0.1, top1_interval=(0.09, 0.12))
    assert "9.0% to 12.0%, not clearly better than guessing<" in chance._repr_html_()
    shown = MULTI._repr_html_()
    for text in (
        "<b>Evaluation</b>",
        ">Mean average precision<",
        ">77.8% on 1,234 photos<",
        ">Labels<",
        ">2<",
        ">F1<",
        ">80.5%<",
        ">Exactly right<",
        ">50.1%<",
    ):
        assert text in shown, text


def test_results_go_through_a_file_and_back() -> None:
    for found in (FOUND, MULTI):
        assert type(found).from_json(json.loads(json.dumps(found.to_json()))) == found


@every_case(
    ("share", "digits", "text"),
    [(0.12345, 1, f"12.3{S}"), (0.12345, 2, f"12.35{S}"), (1.0, 0, f"100{S}"), (None, 1, "–"), (float("nan"), 1, "–")],
)
def test_a_share_as_a_percentage(share: float | None, digits: int, text: str) -> None:
    assert percent(share, digits) == text


def test_hundredths_are_told_of_two_thousand_images() -> None:
    assert [fitting_digits(images) for images in (1, 1999, 2000, 10**6)] == [1, 1, 2, 2]
    assert percent(0.5) == f"50.0{S}"


def test_the_worst_come_first_and_those_without_images_last() -> None:
    assert worst_first([0.5, None, 0.2, 0.5, 1.0, 0.5], [3, 9, 1, 7, 1, 3]) == [2, 3, 0, 5, 4, 1]
    assert worst_first([0.0] * 400, [1] * 400) == list(range(300))
    assert left_out(0) == ""
    assert left_out(1234) == "and 1,234 better ones, in the JSON output."
