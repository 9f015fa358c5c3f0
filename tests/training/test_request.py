"""What a call from Python becomes: a request, whose paths, numbers and budget mean what they mean on the command line."""

from pathlib import Path

import pytest

import vitral
from vitral.errors import RecipeError, TrainingError, UsageError
from vitral.events import ignore
from vitral.training.request import Request, request_of


def test_a_folder_without_a_name_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (vitral.finetune, vitral.pretrain, vitral.plan):
        for out in ("", "  "):
            with pytest.raises(TrainingError, match="`out` is empty"):
                call("digits", out=out, listener=ignore)
    assert list(tmp_path.iterdir()) == []


def test_paths_and_lists_are_taken_as_their_texts() -> None:
    given = request_of(
        "fine-tune", data=Path("photos"), source=Path("start"), recipe=Path("own.toml"), overrides=["seed=1"]
    )
    expected = Request("fine-tune", "photos", "start", recipe="own.toml", overrides=("seed=1",))
    assert given == expected
    assert given.stored() == expected.stored()


def test_what_is_no_list_and_no_kind_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"overrides=\['seed=1'\]"):
        request_of("fine-tune", data="photos", overrides="seed=1")
    with pytest.raises(UsageError, match="kind fine-tune or pre-train, not 'foo'"):
        request_of("foo", data="photos")  # type: ignore[arg-type]


def test_the_budget_has_an_older_name_and_is_given_once() -> None:
    assert request_of("pre-train", budget_seconds=90).time == request_of("pre-train", time="90s").time == 90
    with pytest.raises(RecipeError, match="give time alone"):
        request_of("pre-train", time="90s", budget_seconds=90)
