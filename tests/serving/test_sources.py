"""What a folder of classifiers is served as, and under which names."""

from pathlib import Path

import pytest

from tests.serving.conftest import Running
from vitral.errors import VitralError
from vitral.events import Event, Message, ignore
from vitral.serving.sources import NamedClassifier, names_of


def places(*texts: str, heard: list[Event] | None = None) -> dict[str, str]:
    found = names_of([NamedClassifier(text) for text in texts], ignore if heard is None else heard.append)
    return {name: source.name for name, source in found.items()}


@pytest.fixture
def shelf(tmp_path: Path, served_home: Path) -> Path:
    """A folder of a classifier, a run with another, a folder without one, and what is hidden."""
    (tmp_path / "a").symlink_to(served_home / "noise")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "classifier").symlink_to(served_home / "plain")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").symlink_to(served_home / "plain")
    return tmp_path


def test_a_folder_of_classifiers_serves_all_of_them(shelf: Path) -> None:
    heard: list[Event] = []
    assert set(places(str(shelf), heard=heard).values()) == {str(shelf / "a"), str(shelf / "run")}
    (said,) = heard
    assert isinstance(said, Message)
    assert "empty" in said.text
    assert "run" not in said.text.split(":")[-1]


def test_one_classifier_is_served_under_a_name_of_one_s_own(shelf: Path, served_home: Path) -> None:
    assert places("mine=" + str(shelf / "a"), str(served_home / "noise")) == {
        "mine": str(shelf / "a"),
        "noise": str(served_home / "noise"),
    }
    (shelf / "a").unlink()
    assert places(f"mine={shelf}") == {"mine": str(shelf / "run")}
    (shelf / "x=y").symlink_to(served_home / "plain")  # a path that is there is no name
    assert set(places(str(shelf / "x=y")).values()) == {str(shelf / "x=y")}


def test_names_that_do_not_tell_classifiers_apart_are_refused(shelf: Path, served_home: Path) -> None:
    for texts in ((f"mine={shelf}",), (str(served_home), str(served_home / "plain"))):
        with pytest.raises(VitralError) as refused:
            places(*texts)
        assert "plain" in str(refused.value) or "run" in str(refused.value)


def test_load_balancers_look_by_head(server: Running) -> None:
    for path in ("/healthz", "/readyz"):
        reply = server.request("HEAD", path)
        assert (reply.status, reply.body) == (200, b"")
