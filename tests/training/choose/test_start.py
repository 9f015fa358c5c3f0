"""Which published weights pay, as a function of facts: by their scores, the machine, the images and the time."""

from collections.abc import Sequence
from dataclasses import replace

from tests.cases import every_case
from tests.training.choose.situations import FACTS, changed
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.training.choose.draft import Draft, draft_of
from vitral.training.choose.start import (
    MOST_MEGABYTES,
    Start,
    choose_start,
    compared,
    images_to_probe,
    most_megabytes,
    rival,
    seconds_of,
    size_in_time,
    where_from,
    why_none_pays,
)
from vitral.training.facts import Facts
from vitral.training.request import Request
from vitral.training.starting.published_start import is_free, starts_of
from vitral.weights.named.table import rows

SMALL = Start("small@a", "a", 79.0, "k-NN", 88, "MIT", "host", False, 22_000_000, 224, 6e9)
BASE = replace(SMALL, name="base@a", score=82.1, megabytes=346, parameters=86_000_000, macs=23e9)
LABELS = replace(SMALL, name="small@labels", dataset="b", score=84.0, metric="fine-tuned", megabytes=121, macs=4.6e9)
TINY = replace(LABELS, name="tiny@labels", score=78.0, megabytes=39, parameters=6_000_000, macs=1.25e9)
# Two cores, 500 photos of 10 classes, as long as it needs.
PHOTOS = changed(FACTS, images=500, classes=10, side=300.0, macs_per_second=1e11)
CIFAR = changed(PHOTOS, images=50_000, side=32.0)
GPU = 5e13


def draft(image_size: int | None = None) -> Draft:
    return draft_of(Request("fine-tune", "photos", image_size=image_size))


def named(start: Start | None) -> str | None:
    return None if start is None else start.name


def best(starts: Sequence[Start], facts: Facts) -> Start | None:
    return choose_start(starts, facts)[0]


def why(starts: Sequence[Start], facts: Facts) -> str:
    return choose_start(starts, facts)[1]


@every_case(
    ("facts", "expected"),
    [
        (PHOTOS, "small@a"),
        (changed(PHOTOS, macs_per_second=GPU), "base@a"),
        (changed(PHOTOS, images=50), "base@a"),
        (changed(PHOTOS, images=50_000), "small@a"),
        (changed(PHOTOS, images=5_000, budget_seconds=300.0), "small@a"),  # for those of some there is time
        (changed(PHOTOS, images=50_000, budget_seconds=4.0), "tiny@labels"),
        (changed(PHOTOS, images=50_000, budget_seconds=1.0), None),
        (changed(PHOTOS, usable_bytes=18 * 10_000_000, budget_seconds=600.0), "tiny@labels"),
        (changed(PHOTOS, usable_bytes=18 * 1_000_000), None),
        (changed(CIFAR, budget_seconds=600.0), None),
        (changed(CIFAR, images=5_000, budget_seconds=600.0), "small@a"),
        (changed(CIFAR, budget_seconds=600.0, macs_per_second=GPU), "small@a"),
    ],
)
def test_the_best_score_is_taken_that_leaves_time_for_the_rest(facts: Facts, expected: str | None) -> None:
    assert named(best([TINY, BASE, LABELS, SMALL], facts)) == expected


def test_scores_of_two_kinds_are_never_compared() -> None:
    assert best([LABELS, SMALL], PHOTOS) == SMALL
    assert best([replace(LABELS, score=99.0), SMALL], PHOTOS) == SMALL
    assert best([LABELS], PHOTOS) == LABELS
    assert best([], PHOTOS) is None


def test_a_tenth_of_a_point_buys_nothing() -> None:
    registers = replace(SMALL, name="registers@a", score=79.1, macs=6.1e9)
    assert best([registers, SMALL], PHOTOS) == best([SMALL, registers], PHOTOS) == SMALL


def test_what_is_here_costs_no_download() -> None:
    slow_line = changed(PHOTOS, budget_seconds=120.0, macs_per_second=GPU)
    other = replace(SMALL, name="other@a", score=79.9, megabytes=400)
    assert best([SMALL, other], slow_line) == SMALL
    assert named(best([SMALL, replace(other, cached=True)], slow_line)) == "other@a"


def test_a_download_is_only_as_large_as_the_time_allows() -> None:
    assert most_megabytes(3600.0) == MOST_MEGABYTES
    assert TINY.megabytes < most_megabytes(120.0) < SMALL.megabytes < most_megabytes(180.0)


def test_what_a_score_cannot_tell_is_left_to_probes_where_there_is_time() -> None:
    every = [TINY, BASE, LABELS, SMALL]
    assert named(rival(SMALL, every, PHOTOS)) == "small@labels"  # not tiny, which is too small to be better
    assert rival(SMALL, [SMALL, BASE], PHOTOS) is None  # of the same family
    second = replace(BASE, name="base@c", dataset="c")
    assert named(rival(SMALL, [SMALL, second], PHOTOS)) == "base@c"
    assert rival(SMALL, every, changed(PHOTOS, budget_seconds=3.0)) is None  # no time
    assert rival(SMALL, every, changed(PHOTOS, task=MULTI_LABEL)) is None  # nothing that a probe could tell
    assert rival(SMALL, every, changed(PHOTOS, images=20)) is None  # too few to tell
    assert rival(SMALL, every, changed(PHOTOS, budget_seconds=200.0)) is None  # two downloads would take too long
    here = [replace(one, cached=True) for one in (SMALL, TINY)]
    assert named(rival(here[0], here, PHOTOS)) == "tiny@labels"  # which costs no download


def test_starts_are_compared_by_as_many_images_as_there_is_time_for() -> None:
    many = changed(PHOTOS, images=100_000)
    assert images_to_probe((SMALL, LABELS), many) == 1000
    assert 30 <= images_to_probe((SMALL, LABELS), changed(many, budget_seconds=60.0)) < 1000
    assert images_to_probe((SMALL, LABELS), PHOTOS) == 500
    assert images_to_probe((SMALL, LABELS), changed(PHOTOS, classes=400)) == 0


def test_features_are_of_the_largest_images_that_there_is_time_for() -> None:
    def cost(size: int) -> float:
        return 6e9 * (size / 224) ** 2

    sizes = (128, 224)
    assert size_in_time(changed(PHOTOS, budget_seconds=60.0), sizes, cost) == 224  # 500 images in 12 s, of 20
    assert size_in_time(changed(PHOTOS, budget_seconds=30.0), sizes, cost) == 128
    assert size_in_time(changed(PHOTOS, budget_seconds=1.0), sizes, cost) == 128


def test_of_equal_probes_the_cheaper_start_is_taken() -> None:
    start, line = compared([(SMALL, 0.9), (LABELS, 0.9)], 500)
    assert start == LABELS
    assert line.endswith("small@labels 90.0%, small@a 90.0%.")
    assert compared([(SMALL, 0.91), (LABELS, 0.9)], 500)[0] == SMALL


def test_images_smaller_than_any_network_has_seen_need_no_published_start() -> None:
    assert why_none_pays(1797, 8.0)
    assert not why_none_pays(500, 28.0)


def test_the_reason_says_what_decided() -> None:
    line = why([SMALL], PHOTOS)
    assert "79 k-NN" in line
    assert SMALL.name in line
    assert "500 photos" in line
    assert "12 s" in line
    assert "too short to train" in why([SMALL], changed(CIFAR, budget_seconds=60.0))
    late = why([SMALL], changed(PHOTOS, images=5_000, budget_seconds=5.0))
    assert "100 photos" in late
    assert "a third of 5 s" in late
    assert "memory" in why([SMALL], changed(PHOTOS, usable_bytes=1))
    assert "size" in why([], PHOTOS)


def test_where_it_comes_from_is_said_with_size_and_licence() -> None:
    assert "from host: 88 MB, licence MIT." in where_from(SMALL, fetching=True)
    here = where_from(replace(SMALL, cached=True), fetching=False)
    assert "on this machine: 88 MB, licence MIT." in here
    assert "host" not in here
    planned = where_from(SMALL, fetching=False, other=LABELS)
    assert "from host: 88 MB" in planned
    assert "small@labels from host: 121 MB" in planned


def test_the_published_starts_that_are_chosen_are_free_and_confirmed() -> None:
    """The table as it is: on two cores and in an hour DINOv2's smallest; never what has terms or is not for products."""
    free = [row for row in rows().values() if is_free(row)]
    assert free
    assert {row.products for row in free} == {"yes"}
    assert not any("score" in row.unverified for row in free)
    offered = starts_of(free, draft(), PHOTOS, cached=False)
    small = [start for start in offered if start.megabytes <= most_megabytes(seconds_of(PHOTOS))]
    chosen = best(small, PHOTOS)
    assert chosen is not None
    assert (chosen.name, chosen.size) == ("vit-s14@dinov2", 224)
    assert named(best(small, changed(PHOTOS, macs_per_second=GPU))) == "vit-b14@dinov2"
    tiny = starts_of(free, draft(), changed(PHOTOS, side=32.0), cached=False)
    assert next(start.size for start in tiny if start.name == "vit-s14@dinov2") == 126
    asked = starts_of(free, draft(image_size=32), PHOTOS, cached=False)
    assert "vit-s14@dinov2" not in {start.name for start in asked}
    assert {start.size for start in asked} == {32}
