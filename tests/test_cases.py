"""A table of cases as one test: every case is tried, and every one that fails is named."""

import os
from pathlib import Path

import pytest

from tests.cases import CasesFail, every_case


def test_every_case_that_fails_is_named_with_its_error() -> None:
    @every_case(("name", "number"), [("first", 1), ("second", 2), ("third", 3), ("fourth", 4)])
    def check(name: str, number: int) -> None:
        if name == "third":
            pytest.fail("the third")
        assert number % 2, f"{number} is even"

    with pytest.raises(CasesFail) as error:
        check()
    lines = str(error.value).splitlines()
    assert lines[0] == "3 of 4 cases fail:"
    assert [label for label, _ in error.value.failures] == ["second-2", "third-3", "fourth-4"]
    for label, what in (("second-2", "2 is even"), ("third-3", "the third"), ("fourth-4", "4 is even")):
        assert any(label in line and what in line for line in lines), str(error.value)


def test_stacked_tables_make_every_combination() -> None:
    seen = []

    @every_case("name", ["a", "b"])
    @every_case("number", [1, 2])
    def check(name: str, number: int) -> None:
        seen.append((name, number))
        assert (name, number) != ("b", 1)

    with pytest.raises(CasesFail) as error:
        check()
    assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert [label for label, _ in error.value.failures] == ["b-1"]


@every_case("name", ["a", "b"])
class TestOfAClass:
    seen: list[str] = []  # that both tests share

    def test_first(self, name: str) -> None:
        self.seen.append(name)

    def test_second(self, name: str) -> None:
        assert name in self.seen


@every_case("name", ["a", "b"])
def test_every_case_has_a_folder_and_patches_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "FROM_THE_CASE_BEFORE" not in os.environ
    monkeypatch.setenv("FROM_THE_CASE_BEFORE", name)
    (tmp_path / "same").mkdir()
    print(name)
    assert capsys.readouterr().out.strip() == name


def test_cases_may_be_skipped_and_a_test_without_any_other_is() -> None:
    @every_case("name", ["a", "b"])
    def check(name: str, skipped: str) -> None:
        if name in skipped:
            pytest.skip("not here")

    check(skipped="a")
    with pytest.raises(pytest.skip.Exception):
        check(skipped="ab")


def test_a_table_needs_cases_and_a_test_that_takes_them() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        every_case("name", [])
    with pytest.raises(AssertionError, match=r"check takes no \['another'\]"):

        @every_case("another", ["a"])
        def check(name: str) -> None: ...
