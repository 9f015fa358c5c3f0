"""The paper's numbers beside the studies: each with its source, and the same as in the tables of results."""

import math
import tomllib
from importlib import resources

import pytest

import vitral.evaluation
import vitral.studies.paper
from tests.cases import every_case
from vitral.report.chart import Series
from vitral.studies.paper.experiment import FILE, published
from vitral.studies.paper.run import EXPERIMENTS

STUDIES = set(EXPERIMENTS)
PRINTED_NOWHERE = {"shapes", "head"}  # figures whose values stand only in the drawing
WORDS_ONLY = PRINTED_NOWHERE | {"starts"}  # the last one is a question that the paper leaves open


def table(number: int) -> list[dict[str, object]]:
    text = (resources.files(vitral.evaluation) / "published.toml").read_text(encoding="utf-8")
    return [entry for entry in tomllib.loads(text)["results"] if entry["table"] == number]


def imagenet(number: int, title: str, pretraining: str) -> float:
    """Return the ImageNet accuracy of a model in a table of the paper, a share."""
    (entry,) = (one for one in table(number) if (one["title"], one["pretraining"]) == (title, pretraining))
    scores = entry["scores"]
    assert isinstance(scores, dict)
    return float(scores["imagenet"][0]) / 100


def series(study: str) -> dict[str, Series]:
    chart = published(study).chart
    assert chart is not None
    return {one.name: one for one in chart.series}


def test_every_study_has_a_source_and_says_where_there_are_no_values() -> None:
    assert set(tomllib.loads((resources.files(vitral.studies.paper) / FILE).read_text(encoding="utf-8"))) == STUDIES
    for name in STUDIES:
        said = published(name)
        assert any(word in said.source for word in ("Table", "Figure", "ection"))
        assert said.note.endswith(".")
        assert (said.chart is None) == (name in WORDS_ONLY)
        assert name not in PRINTED_NOWHERE or "only in the drawing" in said.note


def test_accuracies_are_shares() -> None:
    for name in STUDIES - WORDS_ONLY:
        for one in series(name).values():
            assert one.points
            for point in one.points:
                assert 0.6 < point.y < 1
                assert point.deviation is None or 0 < point.deviation < 0.001


def test_data_sizes_are_table_5() -> None:
    sizes = {1.3e6: "ImageNet", 14e6: "ImageNet-21k", 303e6: "JFT-300M"}
    shown = series("data-size")
    assert len(shown) == 6
    for name, one in shown.items():
        if name.startswith("ViT"):
            assert [(point.x, point.y) for point in one.points] == [
                (point.x, imagenet(5, name, sizes[float(point.x)])) for point in one.points
            ]
    assert [point.y for point in shown["BiT R152x4"].points] == pytest.approx([0.813, 0.8539, 0.8754])


def test_compute_is_table_6() -> None:
    shown = {(float(point.x), point.y) for one in series("scaling").values() for point in one.points}
    assert shown == {(float(str(row["exaflops"])), row["scores"]["imagenet"][0] / 100) for row in table(6)}  # type: ignore[index]
    assert len(shown) == 18


@every_case(("model", "compute"), [("B", (224, 55)), ("L", (783, 196))])
def test_patch_sizes_are_tables_5_and_6(model: str, compute: tuple[int, int]) -> None:
    shown = series("patches")
    for pretraining in ("ImageNet", "ImageNet-21k"):
        assert [(point.x, point.y) for point in shown[f"{model}, {pretraining}"].points] == [
            (size, imagenet(5, f"ViT-{model}/{size}", pretraining)) for size in (16, 32)
        ]
    rows = {(row["title"], row["exaflops"]): row["scores"]["imagenet"][0] / 100 for row in table(6)}  # type: ignore[index]
    expected = [rows[f"ViT-{model}/{size}", each] for size, each in zip((16, 32), compute, strict=True)]
    assert [point.y for point in shown[f"{model}, JFT-300M"].points] == expected
    assert all(str(each) in published("patches").note for each in compute)


def test_resolutions_are_tables_2_and_5() -> None:
    for name, one in series("resolution").items():
        model, pretraining = name.split(", ")
        values = {point.x: point.y for point in one.points}
        assert values[384] == imagenet(5, f"ViT-{model}", pretraining)
        for size in {512, 518} & values.keys():
            assert values[size] == imagenet(2, f"ViT-{model}", pretraining)


def test_means_over_datasets_are_the_means() -> None:
    for one in series("optimizer").values():
        *each, mean = one.points
        assert [point.x for point in one.points][-1] == "mean"
        assert math.isclose(mean.y, sum(point.y for point in each) / len(each), abs_tol=6e-5)


def test_self_supervision_is_between_the_others() -> None:
    (one,) = series("self-supervision").values()
    scratch, masked, supervised = (point.y for point in one.points)
    assert (scratch, supervised) == (imagenet(5, "ViT-B/16", "ImageNet"), imagenet(5, "ViT-B/16", "JFT-300M"))
    assert round(100 * (masked - scratch)) == 2
    assert round(100 * (supervised - masked)) == 4


def test_no_other_study_has_numbers() -> None:
    with pytest.raises(KeyError):
        published("colour")
