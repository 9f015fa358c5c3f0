"""Progress as text: occasional lines without a terminal, one overwritten line in a notebook, silence on request."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from vitral.cli.console import ConsoleListener
from vitral.events import Message, NotebookBar, PlainLines, Progress, Scalars, in_notebook, show


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_job_is_reported_every_ten_seconds_and_later_every_thirty() -> None:
    stream, clock = io.StringIO(), Time()
    lines = PlainLines(stream, clock)
    told: list[int] = []
    for second in range(301):
        clock.now = float(second)
        lines(Progress("train", second, 400, {"loss": 1.5}))
        if len(stream.getvalue().splitlines()) > len(told):
            told.append(second)
    assert told == [10, 20, 30, 40, 50, *range(80, 301, 30)]
    assert "train 10/400  loss 1.500  6 min left" in stream.getvalue()


def test_the_time_left_is_not_guessed_from_nothing() -> None:
    stream, clock = io.StringIO(), Time()
    lines = PlainLines(stream, clock)
    lines(Progress("baselines", 1, 2))
    clock.now = 11.0
    lines(Progress("train", 5, 40))  # heard of for the first time, when a line is due
    clock.now = 22.0
    lines(Progress("train", 15, 40))  # ten steps in eleven seconds
    assert stream.getvalue().splitlines() == ["train 5/40", "train 15/40  28 s left"]
    stream = io.StringIO()
    bar = NotebookBar(stream, clock)
    for done in (500, 501):  # a run that continues
        bar(Progress("train", done, 600))
        clock.now += 1.0
    assert "left" not in stream.getvalue()
    clock.now += 8.0
    bar(Progress("train", 510, 600))
    assert "90 s left" in stream.getvalue()


def test_a_short_job_prints_nothing_and_a_message_is_printed_at_once() -> None:
    stream, clock = io.StringIO(), Time()
    lines = PlainLines(stream, clock)
    for done in range(9):
        clock.now = float(done)
        lines(Progress("predict", done, 8))
    lines(Message("Found photos."))
    lines(Message("Batch: 8 images.", detail=True))  # for those who want to know everything
    lines(Message("Left out: a.jpg", warning=True))
    assert stream.getvalue().splitlines() == ["Found photos.", "Warning: Left out: a.jpg"]


def test_a_reported_task_is_reported_when_it_ends_with_the_last_validation() -> None:
    stream, clock = io.StringIO(), Time()
    lines = PlainLines(stream, clock)
    lines(Progress("train", 1, 3))
    lines(Scalars(1, {"validation/accuracy": 0.25, "loss": 2.0}))
    clock.now = 11.0
    lines(Progress("train", 2, 3))
    clock.now = 12.0
    lines(Scalars(3, {"validation/accuracy": 0.5}))
    lines(Progress("train", 3, 3))
    clock.now = 23.0
    lines(Progress("train", 1, 9))  # another training
    middle, end, other = stream.getvalue().splitlines()
    assert "train 2/3  validation 25.0%" in middle
    assert end.startswith("train 3/3")
    assert "50.0%" in end
    assert "%" not in other


def test_a_training_after_one_that_was_given_up_has_figures_and_a_time_of_its_own() -> None:
    stream, clock = io.StringIO(), Time()
    lines = PlainLines(stream, clock)
    for done in range(50):
        clock.now += 1.0
        lines(Progress("train", done, 100))
    lines(Scalars(49, {"validation/accuracy": 0.25}))
    given_up = len(stream.getvalue().splitlines())
    for done in range(1, 22):
        clock.now += 2.0
        lines(Progress("train", done, 31))
    first, second = stream.getvalue().splitlines()[given_up:]
    assert "%" not in first + second
    assert second == "train 16/31  30 s left"


def test_a_terminal_has_one_bar_for_a_training_and_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    with ConsoleListener() as listener:
        for done in (49, 50):
            listener(Progress("train", done, 100))
        (given_up,) = listener.progress.tasks
        for done in (1, 2):
            listener(Progress("train", done, 31))
        (bar,) = listener.progress.tasks
        assert (bar.completed, bar.total) == (2, 31)
        assert bar.id != given_up.id  # whose pace says nothing of this one
        for task in ("train", "score"):
            listener(Progress(task, 31, 31))
        listener(Progress("train", 1, 40))
        assert [(bar.description, bar.completed) for bar in listener.progress.tasks] == [("score", 31), ("train", 1)]


def test_a_notebook_gets_one_line_that_is_overwritten() -> None:
    stream, clock = io.StringIO(), Time()
    bar = NotebookBar(stream, clock)
    for done in range(1, 5):
        clock.now += 1.0
        bar(Progress("train", done, 4, {"loss": 1.0}))
    bar(Message("Done."))
    text = stream.getvalue()
    assert text.count("\r") == 3
    assert text.splitlines()[-1] == "Done."
    assert "█" * 24 + " 4/4" in text


def test_a_notebook_is_recognised_without_importing_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    for shell, answer in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        loaded = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", loaded)
        assert in_notebook() == answer


def test_messages_are_shown_without_a_listener(capsys: pytest.CaptureFixture[str]) -> None:
    show(Message("Found photos."))
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Found photos.\n")
