"""Panoptic quality is panopticapi's, on the photos of its sample; resampling, and what is shown."""

import json

import numpy as np
import pytest

from tests.cases import every_case
from tests.tasks.panoptic_sample import FIGURES, VARIANTS, changed, found, sample
from vitral.errors import DataError
from vitral.tasks.panoptic_quality import PanopticEvaluation, PanopticScores, PanopticTally
from vitral.tasks.regions import FoundRegions, Regions
from vitral.tasks.resampling import paired_difference


def tally(variant: str) -> PanopticTally:
    names, things, photos = sample()
    adding = PanopticTally(names, things)
    for index, (truth, answers) in enumerate(changed(photos, VARIANTS[variant])):
        adding.add([found(answers)], [truth.regions()], [f"{index}.png"])
    return adding


@every_case("variant", VARIANTS)
def test_the_figures_are_panopticapis(variant: str) -> None:
    result, theirs = tally(variant).result(), json.loads(FIGURES.read_text())[variant]
    for ours, name in ((result.all, "all"), (result.things, "things"), (result.stuff, "stuff")):
        assert isinstance(ours, PanopticScores)
        expected = theirs[name]
        assert (ours.pq, ours.sq, ours.rq) == pytest.approx((expected["pq"], expected["sq"], expected["rq"]), abs=1e-12)
        assert ours.classes == expected["n"]
    for index in range(len(result.class_names)):
        known = theirs["classes"].get(str(index))
        ours_of_class = result.class_pq[index], result.class_sq[index], result.class_rq[index]
        assert ours_of_class == (
            pytest.approx((known["pq"], known["sq"], known["rq"]), abs=1e-12) if known else (None,) * 3
        )
        counts = [result.found[index], result.invented[index], result.missed[index]]
        assert counts == (known["counts"] if known else [0, 0, 0])


def test_resampled_photos_are_scored_as_if_they_were_there_so_often() -> None:
    names, things, photos = sample()
    twice = PanopticTally(names, things)
    first, second = changed(photos, VARIANTS["all"])
    for truth, answers in (first, first, first, second):
        twice.add([found(answers)], [truth.regions()], ["photo"])
    drawn = tally("all").by_class(np.array([[3.0, 1.0]]))[0]
    np.testing.assert_allclose(drawn, np.array(twice.result().class_pq, dtype=float), atol=1e-12)
    assert twice.result().interval is not None


def test_two_networks_are_compared() -> None:
    difference = paired_difference(tally("shifted"), tally("far"))
    assert difference.difference == pytest.approx(tally("shifted").result().all.pq - tally("far").result().all.pq)
    assert difference.difference > 0


def test_nothing_to_score_is_refused() -> None:
    nothing = Regions.of_masks((8, 8), [], [])
    empty = PanopticTally(("a", "b"))
    with pytest.raises(DataError, match="no images"):
        empty.result()
    empty.add([FoundRegions(nothing, np.zeros(0))], [nothing], ["photo"])
    with pytest.raises(DataError, match="Nothing is marked in 1 photo"):
        empty.figures()


def test_what_is_shown() -> None:
    result = tally("all").result()
    assert PanopticEvaluation.from_json(json.loads(json.dumps(result.to_json()))) == result
    found_ones, missed, invented = sum(result.found), sum(result.missed), sum(result.invented)
    assert f"Of {found_ones + missed} segments in 2 test photos: {found_ones} found" in result.sentence("test")
    assert f"{missed} missed; {invented} invented. Panoptic quality" in result.sentence("test")
    assert list(result.scores()) == ["pq", "pq_low", "sq", "rq", "pq_things", "pq_stuff"]
    assert result.headline() == result.all.pq
    classes, worst, doubtful, best = result.tables()
    assert len(classes.rows) == len(result.class_names)
    assert worst.rows[0][0] == result.worst[0].description != best.rows[0][0]
    assert doubtful.rows[0][1].endswith("invented")
    names, _, photos = sample()
    unknown = PanopticTally(names)
    for truth, answers in changed(photos, VARIANTS["all"]):
        unknown.add([found(answers)], [truth.regions()], ["photo"])
    assert (unknown.result().things, unknown.result().stuff) == (None, None)
    assert unknown.result().all == result.all
