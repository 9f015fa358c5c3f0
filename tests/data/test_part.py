"""A share of the training images: nested, the same in every order and on every machine, and nothing but training images."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import vitral
from tests.cases import every_case
from tests.cli.conftest import write_images
from tests.data.written import CLASSES, EXPECTED, WRITERS, contents, encode
from vitral import plugins
from vitral.checks.check_data import check_data
from vitral.cli.main import main
from vitral.data.generated import open_digits
from vitral.data.image_stream import list_unlabelled
from vitral.data.open import is_data_name, open_data, path_in, seen_from_here
from vitral.data.part import members, read_part
from vitral.data.source import DataSet, whole
from vitral.errors import DataError, TrainingError
from vitral.events import ignore

EACH = 1000  # images of a class
SHARES = ("1%", "5%", "0.1", "1/4", "50%", "1")
NAMES = [f"train/{label}/{number}.jpg" for label in "abcd" for number in range(EACH)]


def names(data: DataSet, split: str = "train") -> list[str]:
    return [data.splits[split].describe(index) for index in range(len(data.splits[split]))]


def images(files: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, (name.split("/")[1],)) for name in files]


def chosen(files: Sequence[str], share: Fraction) -> set[str]:
    indices, _ = members(images(files), share)
    assert indices == sorted(set(indices))
    return {files[index] for index in indices}


def test_shares_are_nested_and_about_as_large_as_they_say() -> None:
    smaller: set[str] = set()
    for text in SHARES:
        share = read_part(f"part:{text}:photos")[0]
        larger = chosen(NAMES, share)
        assert smaller <= larger
        for label in "abcd":  # five standard deviations of a fair draw
            count = sum(name.split("/")[1] == label for name in larger)
            assert abs(count - EACH * share) <= 5 * (EACH * share * (1 - share)) ** 0.5
        smaller = larger
    assert smaller == set(NAMES)


def test_an_image_is_in_a_share_or_not_whatever_is_around_it() -> None:
    shuffled = random.Random(0).sample(NAMES, len(NAMES))
    share = Fraction(1, 10)
    assert chosen(shuffled, share) == chosen(NAMES, share)
    some = [name for name in NAMES if not name.endswith("7.jpg")]
    assert chosen(some, share) == chosen(NAMES, share) & set(some)


def test_every_process_and_every_machine_chooses_the_same() -> None:
    assert members([(f"{number}.png", ()) for number in range(100)], Fraction(1, 10))[0] == PINNED
    composed, decomposed = "m\u00fcnster.png", "mu\u0308nster.png"  # the same file as two systems name it
    for share in (Fraction(number, 50) for number in range(1, 50)):
        assert len(members([(composed, ()), (decomposed, ())], share)[0]) in (0, 2)


PINNED = [0, 5, 15, 26, 27, 46, 85, 91, 94, 96]  # by hand: blake2b of "0.png" and so on, below a tenth of 2^64


def test_a_class_never_loses_its_last_image_and_shares_stay_nested() -> None:
    files = [f"train/{label}/{number}.jpg" for label in range(200) for number in range(3)]
    small, bare = members(images(files), Fraction(1, 100))
    assert Counter(files[index].split("/")[1] for index in small).keys() == {str(label) for label in range(200)}
    under = set(members([(name, ()) for name in files], Fraction(1, 100))[0])
    assert bare == 200 - len({files[index].split("/")[1] for index in under}) > 150
    for denominator in (50, 10, 3, 1):
        larger = set(members(images(files), Fraction(1, denominator))[0])
        assert set(small) <= larger
        small = sorted(larger)
    assert members(images(files), Fraction(1))[1] == 0


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", WRITERS)
def test_of_every_source_only_the_training_images_are_cut(tmp_path: Path, kind: str) -> None:
    source = WRITERS[kind](tmp_path)
    data, half = open_data(source), open_data(f"part:50%:{source}")
    assert contents(data) == EXPECTED
    for split in ("validation", "test"):
        assert names(half, split) == names(data, split)
    assert set(names(half)) < set(names(data))
    assert {half.splits["train"].label(index) for index in range(len(half.splits["train"]))} == set(range(len(CLASSES)))
    assert half.name == f"{data.name}-1-of-2"
    assert half.fingerprint != data.fingerprint
    assert whole(half.fingerprint) == data.fingerprint
    assert sum(count for count, _ in half.inventory["train"].values()) == len(half.splits["train"])
    assert any("50% of the training" in note for note in half.notes)


def test_the_folder_of_a_table_is_no_part_of_an_images_name(tmp_path: Path) -> None:
    table = pa.table({"image": [encode(number % 3, number) for number in range(60)], "label": [0, 1, 2] * 20})
    rows = []
    for name in ("one", "other/deeper"):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(table, tmp_path / name / "photos.parquet")
        data = open_data(f"part:40%:{tmp_path / name / 'photos.parquet'}")
        rows.append([image.rpartition(":")[2] for image in names(data)])
    assert rows[0] == rows[1]
    assert 3 < len(rows[0]) < 40


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos of three classes, without splits."""
    write_images(tmp_path / "photos", {"red": 30, "green": 30, "blue": 30})
    return tmp_path / "photos"


def test_what_is_held_out_is_the_same_for_every_share_and_trained_on_in_none(photos: Path) -> None:
    data = open_data(photos)
    held = {split: names(data, split) for split in ("validation", "test")}
    assert all(held.values())
    for text in SHARES:
        part = open_data(f"part:{text}:{photos}")
        assert {split: names(part, split) for split in held} == held
        assert set(names(part)) <= set(names(data))
        assert part.shared_out == data.shared_out
    assert names(open_data(f"part:100%:{photos}")) == names(data)


def test_a_classifier_of_a_share_is_scored_on_images_that_it_has_not_seen(photos: Path) -> None:
    part = open_data(f"part:50%:{photos}")
    scored = open_data(photos, class_names=part.class_names, trained_on=part.fingerprint)
    assert names(scored, "test") == names(part, "test")
    other = open_data(photos, class_names=part.class_names, trained_on="2-another")
    assert len(other.splits["test"]) == 90


def test_a_built_in_set_and_a_plugins_have_shares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    data, part = open_data("digits"), open_data("part:10%:digits")
    assert set(names(part)) < set(names(data))
    assert names(part, "test") == names(data, "test")
    assert set(part.splits["train"].labels().tolist()) == set(range(10))
    assert abs(len(part.splits["train"]) - 126) < 50
    assert part.name == "digits-1-of-10"
    assert len({open_data(f"part:{text}:digits").fingerprint for text in ("10%", "0.1", "1/10", "11%")}) == 2
    monkeypatch.setitem(plugins._things["data"], "mine", lambda text: open_digits())
    assert names(open_data("part:10%:mine:this")) == names(part)


def test_check_and_predict_see_the_share(photos: Path) -> None:
    check = check_data(f"part:20%:{photos}")
    counts = {split: sum(classes.values()) for split, classes in check.counts.items()}
    part = open_data(f"part:20%:{photos}")
    assert counts == {split: len(source) for split, source in part.splits.items()}
    assert check.fingerprint == part.fingerprint
    assert len(list_unlabelled(f"part:20%:{photos}")) == sum(counts.values())
    assert is_data_name(f"part:20%:{photos}")


def test_the_path_in_a_share_is_the_sources(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for before in ("part:10%:", "part:1/8:cifar10:"):
        assert path_in(f"{before}here") == "here"
        assert seen_from_here(f"{before}here", str(tmp_path)) == f"{before}{tmp_path / 'here'}"
    assert path_in("part:10%:~/photos") == str(Path.home() / "photos")
    assert read_part("part:10%:~/photos")[1] == str(Path.home() / "photos")


@every_case(
    ("spec", "message"),
    [
        ("part:", "'' in 'part:' is no share; .*part:10%:photos/"),
        ("part:digits", "'digits' in 'part:digits' is no share"),
        ("part:ten:digits", "'ten' .* is no share"),
        ("part:1e-1:digits", "'1e-1' .* is no share"),
        ("part:-10%:digits", "'-10%' .* is no share"),
        ("part:1/0:digits", "'1/0' .* is no share"),
        ("part:nan:digits", "'nan' .* is no share"),
        (f"part:{'9' * 9999}:digits", "is no share"),
        ("part:0:digits", "share '0' .* must be above 0 and at most 1"),
        ("part:0%:digits", "must be above 0"),
        ("part:101%:digits", "must be above 0 and at most 1"),
        ("part:10:digits", "must be above 0 and at most 1, which is 100%"),
        ("part:3/2:digits", "must be above 0 and at most 1"),
        ("part:10%", "does not say of which data"),
        ("part:10%:", "does not say of which data"),
        ("part:10%:part:10%:digits", "is a share of a share"),
        ("part:10%:nowhere", "There is no folder 'nowhere'"),
        ("part:10%:visualatom", "'visualatom' is endless, so that it has no share"),
    ],
)
def test_what_is_no_share_is_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        open_data(spec)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_folder_of_that_name_is_a_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos.parent)
    shutil.copytree("photos", "part:10%:photos")
    assert open_data("part:10%:photos").name == "part:10%:photos"


@pytest.mark.long
def test_a_run_on_a_share_goes_on_with_that_share_alone(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = [word for one in ("steps=2", "batch_size=4", "workers=0") for word in ("--set", one)]
    command = ["finetune", "--recipe", "scratch", "--from", "vit-mu16", "--image-size", "32", "--out", "run", *few]
    assert main([*command, "--data", "part:10%:digits"]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["data_fingerprint"] == open_data("part:1/10:digits").fingerprint
    assert "digits-1-of-10" in (tmp_path / "run" / "report.html").read_text()
    assert vitral.load("run").provenance.training["data_fingerprint"] == run["data_fingerprint"]
    capsys.readouterr()
    assert main(["finetune", "--out", "run", "--resume", "--data", "part:20%:digits"]) == 1
    assert "1/5 of the training photos is used, was 1/10" in capsys.readouterr().err
    assert main(["finetune", "--out", "run", "--resume", "--data", "part:0.1:digits"]) == 0
    with pytest.raises(TrainingError, match="of the training photos is used, was 1/10"):
        vitral.finetune("digits", out="run", resume=True, listener=ignore)
    assert main(["evaluate", "--data", "digits", "--classifier", "run", "--json"]) == 0
