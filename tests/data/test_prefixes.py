"""A prefix of names of data is one row of one table: a toy in it is opened, listed, selected from, and its path is known."""

from pathlib import Path

import pytest

from tests.cases import every_case
from tests.data.written import WRITERS
from vitral.data import prefixes
from vitral.data.folder import list_folder
from vitral.data.image_stream import list_unlabelled
from vitral.data.listing import Listing, Opening
from vitral.data.open import is_data_name, open_data, parts_of_name, path_in, seen_from_here, tables_in
from vitral.data.prefixes import PREFIXES, Prefix, prefix_of
from vitral.errors import DataError


def list_toy(spec: str, how: Opening) -> Listing:
    return list_folder(Path(spec.removeprefix("toy:")), how=how)


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "PREFIXES", (*PREFIXES, Prefix(name="toy", images=list_toy)))


@pytest.mark.usefixtures("_toy")
def test_a_row_is_all_that_a_prefix_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = Path(WRITERS["folder"](tmp_path))
    plain, toy = open_data(photos), open_data(f"toy:{photos}")
    assert (toy.fingerprint, toy.class_names, toy.counts()) == (plain.fingerprint, plain.class_names, plain.counts())
    assert open_data(f"part:50%:toy:{photos}").fingerprint == open_data(f"part:50%:{photos}").fingerprint
    assert open_data(f"unlabelled:toy:{photos}").class_names == ("unlabelled",)
    assert len(list_unlabelled(f"toy:{photos}")) == sum(map(len, plain.splits.values()))
    assert is_data_name("toy:anything")
    assert tables_in(f"toy:{photos}") == tables_in(f"part:50%:toy:{photos}") == []
    monkeypatch.chdir(photos.parent)
    assert path_in(f"part:10%:unlabelled:toy:{photos}") == str(photos)
    assert parts_of_name("part:10%:toy:~/x") == ("part:10%:toy:", str(Path.home() / "x"), "")
    Path("near").mkdir()
    assert seen_from_here("toy:near", str(photos.parent)) == f"toy:{photos.parent}/near"
    Path("toy:here").mkdir()  # what is there by the whole name is no prefix
    assert prefix_of("toy:here") is None


def test_without_its_row_it_is_nothing(tmp_path: Path) -> None:
    assert not is_data_name("toy:anything")
    with pytest.raises(DataError, match="no folder 'toy:anything'"):
        open_data("toy:anything")


@every_case("inside", ["digits", "part:10%:digits", "unlabelled:x", "frequent:10:x", "vtab:x:pets"])
@every_case("before", ["unlabelled:", "frequent:10:", "columns:image=x:"])
def test_images_are_selected_only_of_what_lists_them(before: str, inside: str) -> None:
    with pytest.raises(DataError, match="is opened as it is; .*'unlabelled:'.*'frequent:'.*'columns:'"):
        open_data(before + inside)


def test_a_prefix_is_told_from_others_by_its_colon() -> None:
    named = {
        spec: prefix_of(spec) for spec in ("hf:a/b", "hf-stream:a/b", "part:10%:x", "part", "cifar10", "cifar100:x")
    }
    found = {spec: prefix and prefix.name for spec, prefix in named.items()}
    assert found == {
        "hf:a/b": "hf",
        "hf-stream:a/b": "hf-stream",
        "part:10%:x": "part",
        "part": None,
        "cifar10": "cifar10",
        "cifar100:x": "cifar100",
    }
