"""The demo: its photos are unpacked beside the run, an interrupted demo goes on, and a finished one begins anew."""

from dataclasses import replace
from pathlib import Path

import pytest

from vitral.data.open import open_data
from vitral.errors import StorageError
from vitral.events import Event, Message, ignore
from vitral.studies.demo import demo_request
from vitral.studies.finetune import finetune_request


def test_the_photos_are_whole_and_a_folder_like_the_users(tmp_path: Path) -> None:
    request = demo_request(tmp_path / "demo")
    data = open_data(request.required_data())
    assert {split: len(source) for split, source in data.splits.items()} == {
        "train": 220,
        "validation": 20,
        "test": 100,
    }
    assert len(data.class_names) == 10
    assert (tmp_path / "demo-photos" / "LICENSE.CC0").is_file()


def test_an_interrupted_demo_goes_on_and_a_finished_one_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "demo"

    def interrupt(event: Event) -> None:
        if isinstance(event, Message) and (out / "first.json").is_file():
            raise KeyboardInterrupt

    first = demo_request(out)
    assert (first.resume, first.overwrite) == (False, False)
    with pytest.raises(KeyboardInterrupt):
        finetune_request(replace(first, time=None, quick=True, offline=True), listener=interrupt)
    (out.with_name("demo-photos") / "mine.txt").write_text("mine")
    again = demo_request(out)
    assert (again.resume, again.overwrite) == (True, False)
    finetune_request(replace(again, time=None, quick=True, offline=True), listener=ignore)
    (out / "report.html").write_text("the page")
    anew = demo_request(out)
    assert (anew.resume, anew.overwrite) == (False, True)
    assert (out.with_name("demo-photos") / "mine.txt").read_text() == "mine"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"mine\.txt"):
        demo_request(out)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "mine.txt"]
