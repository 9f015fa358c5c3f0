"""Order, splits and parts of a source, against what they promise, example by example."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.cases import every_case
from vitral.data.batch import WINDOW, ClassDraw, batch_indices
from vitral.data.stored import Entry
from vitral.data.subset import DRAWN_ANEW, Joined, Redrawn, Renumbered, Subset, make_splits, stratified
from vitral.images.decode import Pixels, Shrink
from vitral.tasks.task import Label, classes_of


def epoch(number: int, examples: int, shards: tuple[int, ...] = (), seed: int = 0) -> list[int]:
    """Return the order of one epoch, drawn one example at a time."""
    steps = range(number * examples, (number + 1) * examples)
    return [int(batch_indices(examples, 1, seed=seed, step=step, shards=shards)[0]) for step in steps]


def test_every_epoch_is_its_own_permutation_whatever_the_batch_size() -> None:
    orders = [epoch(number, 23) for number in range(3)]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    flat = np.concatenate(orders)
    for size in (2, 5, 23, 40):
        batches = [batch_indices(23, size, seed=0, step=step) for step in range(len(flat) // size)]
        assert np.concatenate(batches).tolist() == flat[: len(batches) * size].tolist()
    assert epoch(0, 23, seed=1) != orders[0]


def stream(text: str) -> np.random.Generator:
    """Return the generator that a text of seed, purpose and counters stands for, on any machine."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    return np.random.Generator(np.random.Philox(number))


def test_the_order_is_drawn_from_its_own_stream_on_any_machine() -> None:
    assert epoch(2, 9, seed=7) == stream("7/order/2").permutation(9).tolist()
    endless = batch_indices(1000, 5, seed=7, step=3, endless=True)
    assert endless.tolist() == stream("7/order/3").integers(0, 1000, 5).tolist()
    members = stream("7/split/a/4").permutation(np.arange(20))
    assert stratified(np.full(20, 4), (0.25,), seed=7, purpose="a")[1].tolist() == sorted(members[:5].tolist())


def test_first_positions_are_uniform_over_seeds() -> None:
    first = Counter(epoch(0, 5, seed=seed)[0] for seed in range(500))
    assert set(first) == set(range(5))
    assert all(60 < count < 140 for count in first.values())


@every_case("batch_size", [6, 7, 12])
def test_repeats_show_a_fraction_of_the_epoch_several_times(batch_size: int) -> None:
    """DeiT's samplers.py: every index `repeats` times in a row, cut to the epoch's length, dealt out in turn."""
    order = epoch(0, 12)
    dealt = np.repeat(order, 3)[:12]
    for step in range(12 // batch_size):
        part = dealt[step * batch_size : (step + 1) * batch_size]
        expected = [part[place] for turn in range(3) for place in range(turn, batch_size, 3)]
        assert batch_indices(12, batch_size, seed=0, step=step, repeats=3).tolist() == expected


def test_an_endless_source_is_drawn_from_evenly_and_each_draw_repeated() -> None:
    drawn = np.concatenate([batch_indices(4, 50, seed=3, step=step, endless=True) for step in range(40)])
    assert all(420 < count < 580 for count in Counter(drawn.tolist()).values())
    assert set(drawn.tolist()) == {0, 1, 2, 3}
    for size in (6, 7, 8):
        batch = batch_indices(1 << 40, size, seed=3, step=2, endless=True, repeats=2)
        assert len(batch) == size
        half = -(-size // 2)
        assert batch[half:].tolist() == batch[: size // 2].tolist()
        assert len(set(batch.tolist())) == half
    steps = [batch_indices(1 << 40, 6, seed=3, step=step, endless=True).tolist() for step in (0, 0, 1)]
    assert steps[0] == steps[1] != steps[2]
    assert batch_indices(1 << 40, 6, seed=4, step=0, endless=True).tolist() != steps[0]


def test_shards_are_shuffled_and_only_a_few_of_them_are_open_at_once() -> None:
    sizes = np.random.default_rng(0).integers(1, 9, 3 * WINDOW + 2)
    shards = tuple(np.cumsum(sizes).tolist())
    shard_of = np.repeat(np.arange(len(sizes)), sizes)
    orders = [epoch(number, shards[-1], shards) for number in range(2)]
    assert orders[0] != orders[1]
    seen = set()
    for order in orders:
        assert sorted(order) == list(range(shards[-1]))
        visited = shard_of[order]
        firsts = list(dict.fromkeys(visited.tolist()))
        seen.add(tuple(firsts))
        start = 0
        windows = []
        while start < len(order):
            # A window ends where everything of its shards has come.
            members: set[int] = set()
            end = start
            while not members or end < start + sum(int(sizes[shard]) for shard in members):
                members.add(int(visited[end]))
                end += 1
            windows.append(members)
            start = end
        assert max(map(len, windows)) == WINDOW
        assert [len(members) for members in windows][-1] <= 2
        assert any(np.diff(order[: int(sizes.sum() // 3)]) < 0)
    assert len(seen) == 2
    assert any(list(order) != sorted(order) for order in seen)
    assert WINDOW == 8


def test_examples_within_a_window_are_shuffled_across_its_shards() -> None:
    order = epoch(0, 40, (10, 20, 30, 40))
    assert len({place // 10 for place in order[:10]}) > 1


@every_case("seed", range(3))
@every_case(
    ("sizes", "shares", "counts"),
    [
        ([50, 10, 2], (0.1, 0.2), [[35, 5, 10], [7, 1, 2], [2, 0, 0]]),
        ([3, 4, 1], (0.1, 0.1), [[1, 1, 1], [2, 1, 1], [1, 0, 0]]),
        ([2, 1, 25], (0.1,), [[1, 1], [1, 0], [23, 2]]),  # 2.5 is rounded to even
        ([4], (0.5, 0.5), [[2, 1, 1]]),  # nothing would be left to train on, so one each
        ([10], (0.6, 0.6), [[8, 1, 1]]),
        ([6, 6], (0.34,), [[4, 2], [4, 2]]),
        ([10], (0.5, 0.4), [[1, 5, 4]]),
        ([3], (0.6, 0.1), [[1, 1, 1]]),
    ],
)
def test_every_class_is_split_separately(
    sizes: list[int], shares: tuple[float, ...], counts: list[list[int]], seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 3 - 1, sizes))
    parts = stratified(labels, shares, seed=seed, purpose="test")
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all((np.diff(part) > 0).all() for part in parts)
    found = [[int((labels[part] == 3 * number - 1).sum()) for part in parts] for number in range(len(sizes))]
    assert found == counts


def test_a_split_is_drawn_by_seed_purpose_and_class() -> None:
    labels = np.repeat(np.arange(2), 40)

    def second(seed: int, purpose: str) -> list[int]:
        return stratified(labels, (0.25,), seed=seed, purpose=purpose)[1].tolist()

    assert second(0, "a") == second(0, "a")
    assert len({tuple(second(seed, purpose)) for seed in (0, 1) for purpose in ("a", "b")}) == 4
    drawn = second(0, "a")
    assert [place for place in drawn if place < 40] != [place - 40 for place in drawn if place >= 40]
    # A class is drawn alike whatever other classes there are.
    assert [place for place in drawn if place < 40] == stratified(labels[:40], (0.25,), seed=0, purpose="a")[1].tolist()


class Numbered:
    """A source whose image i is a pixel of value `first` + i, of class i % 3."""

    def __init__(self, count: int, first: int = 0, shards: tuple[int, ...] = (), *, endless: bool = False) -> None:
        self.count, self.first, self.shards, self.endless = count, first, shards, endless
        self.shrinks: list[Shrink | None] = []

    def __len__(self) -> int:
        return self.count

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        self.shrinks.append(shrink)
        return np.full((1, 1, 3), self.first + index, dtype=np.uint8)

    def encoded(self, index: int) -> Path:
        return Path(f"{self.first + index}.png")

    def label(self, index: int) -> Label:
        return (self.first + index) % 3

    def labels(self) -> np.ndarray:
        if self.endless:
            raise AssertionError("an endless source has no list of labels")
        return (self.first + np.arange(self.count)) % 3

    def describe(self, index: int) -> str:
        return f"number {self.first + index}"


def contents(source: Subset | Joined) -> list[int]:
    """Return the values of all images, after checking that everything else about an image belongs to it."""
    values = [int(source.image(index)[0, 0, 0]) for index in range(len(source))]
    for index, value in enumerate(values):
        assert source.label(index) == value % 3
        assert source.describe(index) == f"number {value}"
        assert source.encoded(index) == Path(f"{value}.png")
    return values


def shrink(height: int, width: int) -> int:
    return 2


@every_case("endless", [False, True])
def test_a_subset_is_the_wholes_images_in_its_own_order(endless: bool) -> None:
    whole = Numbered(20, first=5, endless=endless)
    part = Subset(whole, [7, 0, 19, 7])
    expected = [12, 5, 24, 12]
    assert contents(part) == expected
    assert part.labels().tolist() == [value % 3 for value in expected]
    assert part.labels().dtype == np.int64
    assert part.endless is False
    part.image(2, shrink)
    assert whole.shrinks[-1] is shrink
    part.image(2)
    assert whole.shrinks[-1] is None


@every_case(
    ("indices", "shards"),
    [
        (range(12), (4, 6, 12)),
        ([1, 2, 5, 6, 11], (2, 3, 5)),
        ([4, 5], (2,)),
        ([0, 7, 8], (1, 3)),
        ([3, 2, 8], ()),  # not in the whole's order any more
        ([3, 3, 8], (2, 3)),
        ([], ()),
    ],
)
def test_a_subset_keeps_the_shards_that_it_has_images_of(indices: Sequence[int], shards: tuple[int, ...]) -> None:
    found = Subset(Numbered(12, shards=(4, 6, 12)), indices).shards
    assert found == shards
    assert all(type(end) is int for end in found)
    assert Subset(Numbered(12), [0, 1]).shards == ()


def test_joined_sources_follow_one_another() -> None:
    sources = [Numbered(3, first=10, shards=(1, 3)), Numbered(2, first=50, shards=(2,)), Numbered(4, shards=(3, 4))]
    joined = Joined(sources)
    values = [10, 11, 12, 50, 51, 0, 1, 2, 3]
    assert len(joined) == 9
    assert contents(joined) == values
    assert joined.labels().tolist() == [value % 3 for value in values]
    assert joined.shards == (1, 3, 5, 8, 9)
    assert joined.endless is False
    joined.image(4, shrink)
    assert sources[1].shrinks[-1] is shrink
    assert Joined([Numbered(3, shards=(3,)), Numbered(2)]).shards == ()
    assert Joined([Numbered(3), Numbered(2, shards=(2,))]).shards == ()
    assert all(type(end) is int for end in joined.shards)


class Labelled(Numbered):
    """A source with labels as given."""

    def __init__(self, given: Sequence[Label], *, endless: bool = False) -> None:
        super().__init__(len(given), shards=(1, len(given)), endless=endless)
        self.given = given

    def label(self, index: int) -> Label:
        return self.given[index]

    def labels(self) -> np.ndarray:
        return np.array([(*classes_of(label), -1)[0] for label in self.given])


def test_an_endless_sources_images_without_a_class_count_as_minus_one() -> None:
    part = Subset(Labelled([2, None, (3, 1), ()], endless=True), [1, 0, 2, 3])
    assert part.labels().tolist() == [-1, 2, 3, -1]
    assert [part.label(index) for index in range(4)] == [None, 2, (3, 1), ()]


def test_classes_get_their_new_numbers_and_nothing_else_changes() -> None:
    whole = Labelled([2, 0, None, 1, (0, 2), ()])
    source = Renumbered(whole, np.array([5, 0, 3]))
    assert len(source) == 6
    labels = [source.label(index) for index in range(6)]
    assert labels == [3, 5, None, 0, (3, 5), ()]
    assert all(type(number) is int for label in labels for number in classes_of(label))
    assert source.labels().tolist() == [3, 5, -1, 0, 5, -1]
    assert (source.endless, source.shards) == (False, (1, 6))
    assert Renumbered(Labelled([0], endless=True), np.array([1])).endless is True
    for index in range(6):
        assert source.image(index)[0, 0, 0] == index
        assert source.describe(index) == f"number {index}"
        assert source.encoded(index) == Path(f"{index}.png")
    source.image(2, shrink)
    assert whole.shrinks[-1] is shrink


def test_redrawn_images_keep_their_labels_and_names() -> None:
    whole = Labelled([2, None, (0, 2)])
    source = Redrawn(whole, lambda image, index: image + 10 * index)
    assert [source.image(index)[0, 0, 0] for index in range(3)] == [0, 11, 22]
    assert [source.label(index) for index in range(3)] == [2, None, (0, 2)]
    assert source.labels().tolist() == [2, -1, 0]
    assert [source.describe(index) for index in range(3)] == ["number 0", "number 1", "number 2"]
    assert [source.encoded(index) for index in range(3)] == [None] * 3  # the stored file shows another image
    assert (len(source), source.endless, source.shards) == (3, False, (1, 3))
    source.image(2, shrink)
    assert whole.shrinks[-1] is shrink


def entries(classes: Sequence[str], start: int = 0) -> list[Entry]:
    return [Entry(index, f"{index}.png", (name,) if name else (), 1) for index, name in enumerate(classes, start)]


def shared(
    given: Mapping[str, list[Entry]], hashes: Mapping[int, str] | None = None, *, whole: bool = False
) -> tuple[dict[str, list[int]], list[str]]:
    """Return the store indices by split, and the notes."""
    notes: list[str] = []
    splits = make_splits(given, ("cat", "dog"), notes, hashes or {}, whole=whole)
    return {split: [entry.store_index for entry in found] for split, found in splits.items()}, notes


NO_TRAIN = "No train/ folder, so the images of each class were split: 80% train, 10% validation, 10% test."
NO_VALIDATION = "No val/ folder, so 10% of the training images of each class became the validation split."
NO_TEST = "No test photos with classes: scores are on the validation photos."
ALL_SCORED = (
    "The data have no train and test splits and are not just as the classifier was trained on them, so all of them are "
    "scored: the scores are too good if it was trained on some of these photos."
)


def test_images_without_splits_are_split_by_class() -> None:
    given = entries(["cat"] * 30 + ["dog"] * 20)
    splits, notes = shared({"all": given})
    assert list(splits) == ["train", "validation", "test"]
    assert notes == [NO_TRAIN]
    for split, cats, dogs in (("train", 24, 16), ("validation", 3, 2), ("test", 3, 2)):
        assert splits[split] == sorted(splits[split])
        assert [sum(place < 30 for place in splits[split]), sum(place >= 30 for place in splits[split])] == [cats, dogs]
    parts = stratified(np.repeat([0, 1], (30, 20)), (0.1, 0.1), seed=0, purpose="folder")  # the same forever
    assert [part.tolist() for part in parts] == [splits[split] for split in ("train", "validation", "test")]


def test_data_other_than_the_training_data_are_scored_as_a_whole() -> None:
    assert shared({"all": entries(["cat", "dog"])}, whole=True) == ({"test": [0, 1]}, [ALL_SCORED])
    splits, notes = shared({"train": entries(["cat"] * 20), "test": entries(["cat"], 50)}, whole=True)
    assert notes == [DRAWN_ANEW, NO_VALIDATION]
    assert splits["test"] == [50]


@every_case("names", [("train",), ("train", "test"), ("train", "validation"), ("test",), ("validation",)])
def test_splits_of_the_data_are_kept_and_missing_ones_are_noted(names: tuple[str, ...]) -> None:
    given = {name: entries(["cat"] * 20 + ["dog"] * 20, 100 * number) for number, name in enumerate(names)}
    splits, notes = shared(given)
    if "train" in names and "validation" not in names:
        assert [len(splits["train"]), len(splits["validation"])] == [36, 4]
        assert sorted(splits["train"] + splits["validation"]) == list(range(40))
    for name in names:
        if name != "train" or "validation" in names:
            assert splits[name] == [entry.store_index for entry in given[name]]
    said = [NO_VALIDATION] if "train" in names and "validation" not in names else []
    assert notes == said + ([] if "test" in names else [NO_TEST])
    assert "test" in splits or "test" not in names


def test_an_empty_split_is_dropped() -> None:
    splits, _ = shared({"train": entries(["cat"] * 20), "validation": [], "test": entries(["cat"], 30)})
    assert list(splits) == ["train", "test"]


def test_identical_images_count_as_one_of_the_first_ones_class() -> None:
    """20 cats of which each occurs twice, the second time as a dog, and 10 other dogs."""
    given = entries(["cat"] * 20 + ["dog"] * 30)
    hashes = {place: f"content {place % 20}" for place in range(40)}
    splits, notes = shared({"all": given}, hashes)
    together, mixed, divided = notes
    assert (together, divided) == ("Identical images are in the same split: 20 groups.", NO_TRAIN)
    assert "20 groups of identical images are of different classes" in mixed
    for found in splits.values():
        assert {place % 20 for place in found if place < 20} == {place % 20 for place in found if 20 <= place < 40}
    assert [len(splits[split]) for split in ("train", "validation", "test")] == [16 * 2 + 8, 2 * 2 + 1, 2 * 2 + 1]
    assert sorted(place for found in splits.values() for place in found) == list(range(50))


def test_a_class_that_is_only_in_other_parts_is_moved_to_the_first() -> None:
    """All dogs equal one cat: wherever the cat falls, the dogs are trained on, and each image is in one part."""
    for first in range(20):
        hashes = {first: "same", 20: "same", 21: "same"}
        splits, notes = shared({"all": entries(["cat"] * 20 + ["dog"] * 2)}, hashes)
        assert {first, 20, 21} <= set(splits["train"])
        assert sum(map(len, splits.values())) == 22
        assert notes[0].startswith("Identical images are in the same split: 1 group.")
        assert splits["train"] == sorted(splits["train"])


def test_images_without_a_label_are_split_as_a_class_of_their_own() -> None:
    splits, _ = shared({"all": entries(["cat"] * 10 + ["dog"] * 10 + [""] * 10)})
    for split, count in (("train", 8), ("validation", 1), ("test", 1)):
        assert [sum(index // 10 == part for index in splits[split]) for part in range(3)] == [count] * 3
    ten_dogs = stratified(np.repeat([0, 1, -1], 10), (0.1, 0.1), seed=0, purpose="folder")
    assert [part.tolist() for part in ten_dogs] == list(splits.values())


def test_only_what_brings_a_missing_class_is_moved_to_the_first_part() -> None:
    for first in range(20):
        hashes = {first: "same", 20: "same"}
        splits, _ = shared({"all": entries(["cat"] * 20 + ["dog"] + [""] * 20)}, hashes)
        assert [sum(index > 20 for index in splits[split]) for split in ("train", "validation", "test")] == [16, 2, 2]
        assert sum(index < 20 for index in splits["test"]) >= 1


def test_classes_are_drawn_by_their_shares_and_images_of_a_class_alike() -> None:
    labels = np.array([2, 0, 0, 0, -1, 0, 2, 0, 0, 0])
    draw = ClassDraw(labels, np.array([0.5, 0.0, 0.5], dtype=np.float32))
    drawn = np.concatenate([draw.indices(50, seed=3, step=step) for step in range(200)])
    counts = np.bincount(drawn, minlength=10)
    assert counts[4] == 0
    expected = np.where(labels == 2, 2500, 10_000 / 14)
    reached = labels >= 0
    assert (np.abs(counts - expected)[reached] < 4 * np.sqrt(expected[reached])).all()
    assert (draw.indices(50, seed=3, step=7) == draw.indices(50, seed=3, step=7)).all()
    assert (draw.indices(50, seed=4, step=7) != draw.indices(50, seed=3, step=7)).any()
    assert (
        draw.indices(6, seed=3, step=0, repeats=3).reshape(3, 2) == draw.indices(6, seed=3, step=0, repeats=3)[:2]
    ).all()
