"""A study: shared by processes, killed, resumed, with runs that fail and a budget; its rows, table and page."""

import json
import math
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.forks import CONTEXT
from tests.studies.shared_study import SCORE, SEEDS, Telling, design, take_part, told
from vitral.errors import StudyError, TrainingError, TrainingInterrupted
from vitral.events import Event, Listener, Message, Progress, ignore
from vitral.report.experiment_page import write_study
from vitral.report.study import Failure, Study, StudyArm, markdown_table
from vitral.seeds import generator
from vitral.studies.design import OWN_SEED, Arm, Cell, Design
from vitral.studies.run_study import plan_study, run_study
from vitral.studies.trainings import Training
from vitral.tasks.single_label import SingleLabel
from vitral.training.request import Request

NAMES = [f"{arm}-{seed}" for arm in ("one", "two") for seed in SEEDS]


@pytest.fixture
def start() -> Callable[..., BaseProcess]:
    """Starts a process that takes part in a study, from a server that has imported everything."""

    def begin(folder: Path, lasts: float = 0.0, others: int = 1) -> BaseProcess:
        process = CONTEXT.Process(target=take_part, args=(folder, lasts, others), daemon=True)
        process.start()
        return process

    return begin


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def texts(heard: list[Event]) -> list[str]:
    return [event.text for event in heard if isinstance(event, Message)]


def test_processes_share_a_study_and_no_run_is_carried_out_twice(
    tmp_path: Path, start: Callable[..., BaseProcess]
) -> None:
    processes = [start(tmp_path, lasts=0.1, others=3) for _ in range(3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(told(tmp_path, "begin")) == sorted(NAMES)
    workers = {line.split()[2] for line in (tmp_path / "log").read_text().splitlines()}
    assert len(workers) == 3
    assert [(row["arm"], row["seed"]) for row in rows(tmp_path / "study")] == [
        (name[:3], int(name[4:])) for name in NAMES
    ]
    assert "| two | 3 ± 2.6 | 4 |" in (tmp_path / "study" / "study.md").read_text()


def test_another_process_finishes_what_a_killed_one_was_working_on(
    tmp_path: Path, start: Callable[..., BaseProcess]
) -> None:
    (tmp_path / "one-0.stuck").touch()
    victim = start(tmp_path)
    while told(tmp_path, "begin") != ["one-0"]:
        time.sleep(0.01)

    def on_waiting(event: Event) -> None:
        if isinstance(event, Message) and "waiting for them" in event.text:
            assert sorted(told(tmp_path, "end")) == sorted(set(NAMES) - {"one-0", "two-0"})
            (tmp_path / "one-0.stuck").unlink()
            kill(victim)

    study = run_study(design(tmp_path), tmp_path / "study", listener=on_waiting)
    assert study.complete
    assert victim.exitcode == -signal.SIGKILL
    assert told(tmp_path, "begin").count("one-0") == 2
    assert sorted(told(tmp_path, "end")) == sorted(NAMES)


def test_a_study_killed_at_any_moment_goes_on_to_the_same_rows(
    tmp_path: Path, start: Callable[..., BaseProcess]
) -> None:
    for folder in ("unbroken", "unbroken again"):  # the first has to wait for the server
        (tmp_path / folder).mkdir()
        began = time.monotonic()
        start(tmp_path / folder, lasts=0.05).join()
        seconds = time.monotonic() - began
    rng, kills, ended = generator(0, "kills"), 0, False
    while not ended:
        process = start(tmp_path, lasts=0.05)
        process.join(float(rng.uniform(0.1, 0.8)) * seconds)
        ended = process.exitcode == 0
        if not ended:
            kill(process)
            kills += 1
        assert kills < 50
    assert kills >= 1
    found = rows(tmp_path / "study")
    assert [row["figures"]["score"] for row in found] == [0.0, 1.0, 2.0, 3.0, 0.0, 2.0, 4.0, 6.0]
    # Only the run in whose midst, or before whose row, it was killed began anew.
    assert len(told(tmp_path, "begin")) <= len(NAMES) + kills
    assert not list((tmp_path / "study").rglob(".vitral-partial-*"))


def test_a_row_that_a_kill_kept_from_the_table_is_in_it_after_the_next_call(tmp_path: Path) -> None:
    run_study(design(tmp_path), tmp_path / "study", listener=ignore)
    table = tmp_path / "study" / "rows.jsonl"
    whole = table.read_text()
    table.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    run_study(design(tmp_path), tmp_path / "study", listener=ignore)
    assert table.read_text() == whole


@dataclass(frozen=True)
class Failing:
    """Work that fails as long as a file is there."""

    error: Exception
    cause: Path

    def question(self) -> Mapping[str, Any]:
        return {}

    def seconds(self) -> float | None:
        return None

    def run(self, cell: Cell, listener: Listener) -> Mapping[str, float]:
        if self.cause.exists():
            raise self.error
        return {"score": 7.0}


def test_a_run_that_fails_is_said_and_does_not_stop_the_others_and_the_next_time_is_tried_again(
    tmp_path: Path,
) -> None:
    cause, log = tmp_path / "cause", tmp_path / "log"
    cause.touch()
    failing = Design(
        "Some fail",
        SCORE,
        (
            Arm("bad", Failing(TrainingError("No number\nany more."), cause), OWN_SEED),
            Arm("worse", Failing(ZeroDivisionError("by zero"), cause), OWN_SEED),
            Arm("after", Telling(5.0, log), (1,), after="bad"),
            Arm("good", Telling(3.0, log), (1,)),
        ),
    )
    heard: list[Event] = []
    study = run_study(failing, tmp_path / "study", listener=heard.append)
    bad, worse = (event.text for event in heard if isinstance(event, Message) and event.warning)
    assert re.search(r"^bad failed.*: No number any more\.$", bad)
    assert re.search(r"^worse failed.*: ZeroDivisionError: by zero$", worse)
    assert not study.complete
    assert study.left == 1  # what waits for the failed one
    assert study.arm("good").values("score") == (3.0,)
    assert study.failures == (Failure("bad", "No number any more."), Failure("worse", "ZeroDivisionError: by zero"))
    assert "bad failed: No number any more." in (tmp_path / "study" / "study.md").read_text()
    by_arm = {row["arm"]: row for row in rows(tmp_path / "study")}
    assert "ZeroDivisionError" in by_arm["worse"]["traceback"]
    assert by_arm["bad"]["traceback"] == ""
    run_study(failing, tmp_path / "study", listener=ignore)
    assert {row["arm"]: row["attempt"] for row in rows(tmp_path / "study")} == {"bad": 2, "worse": 2, "good": 1}
    cause.unlink()
    study = run_study(failing, tmp_path / "study", listener=ignore)
    assert study.complete
    assert told(tmp_path, "begin") == ["good-1", "after-1"]


def test_a_study_of_which_every_run_fails_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "cause").touch()
    work = Failing(TrainingError("No such data."), tmp_path / "cause")
    with pytest.raises(StudyError, match=r"Every run .*/study' failed.* No such data\.$"):
        run_study(Design("All fail", SCORE, (Arm("bad", work, SEEDS),)), tmp_path / "study", listener=ignore)


def test_the_user_stopping_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cause").touch()
    stopping = Failing(TrainingInterrupted("Stopped", advice="resume that run", exit_code=130), tmp_path / "cause")
    plan = Design("Stopped", SCORE, (Arm("run", stopping, OWN_SEED),))
    with pytest.raises(TrainingInterrupted, match=r"^Stopped, in 'run'; .*/study'"):
        run_study(plan, tmp_path / "study", listener=ignore)
    assert not (tmp_path / "study" / "rows.jsonl").exists()
    (tmp_path / "cause").unlink()
    assert run_study(plan, tmp_path / "study", listener=ignore).complete


def test_the_plan_and_what_it_costs_come_first_and_a_budget_that_is_too_short_is_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arms = (
        Arm("one", Telling(1.0, log, expected=100.0), (0, 1)),
        Arm("two", Telling(2.0, log, expected=300.0), (0, 1)),
    )
    plan = Design("Budgets", SCORE, arms)
    cost = plan_study(plan, tmp_path / "study")
    assert not (tmp_path / "study").exists()
    assert [(arm.name, arm.runs, arm.left, arm.seconds) for arm in cost.arms] == [
        ("one", 2, 2, 100.0),
        ("two", 2, 2, 300.0),
    ]
    assert cost.seconds == 800
    assert [cost.fitting(budget) for budget in (50, 150, 250, 600, 900)] == [0, 1, 2, 3, 4]
    with pytest.raises(StudyError, match="too short for a single run"):
        run_study(plan, tmp_path / "study", budget_seconds=90.0, listener=ignore)
    assert told(tmp_path, "begin") == []
    heard: list[Event] = []
    began: list[int] = []

    def listen(event: Event) -> None:
        heard.append(event)
        began.append(len(told(tmp_path, "begin")))

    study = run_study(plan, tmp_path / "study", budget_seconds=250.0, listener=listen)
    warning = next(place for place, text in enumerate(texts(heard)) if "about 2 of 4 runs fit" in text)
    assert began[warning] == 0
    assert re.search(r"^2 arms, 4 runs\..* 13 min", texts(heard)[0])
    assert (study.left, told(tmp_path, "end")) == (2, ["one-0", "one-1"])
    assert "2 of 4 runs have not ended yet." in (tmp_path / "study" / "study.html").read_text()
    heard.clear()
    study = run_study(plan, tmp_path / "study", listener=listen)
    assert texts(heard)[0].startswith("2 arms, 4 runs, 2 of them finished.")
    assert study.complete
    assert told(tmp_path, "end") == ["one-0", "one-1", "two-0", "two-1"]


def test_a_study_grows_by_seeds_and_arms_but_does_not_become_another(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "study"
    run_study(Design("Grows", SCORE, (Arm("one", Telling(1.0, log), (0, 1)),)), folder, listener=ignore)
    arms = (Arm("one", Telling(1.0, log), (0, 1, 2)), Arm("two", Telling(2.0, log), (1,)))
    assert run_study(Design("Grows", SCORE, arms), folder, listener=ignore).complete
    assert told(tmp_path, "begin") == ["one-0", "one-1", "one-2", "two-1"]
    other = Design("Grows", SCORE, (Arm("one", Telling(9.0, log), (0, 1)),))
    with pytest.raises(StudyError, match=r"another 'one' \(factor 1.0, now 9.0\)"):
        run_study(other, folder, listener=ignore)
    assert len(told(tmp_path, "begin")) == 4


def test_a_damaged_row_counts_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    run_study(design(tmp_path), folder, listener=ignore)
    (folder / "cells" / "two-2" / "row.json").write_bytes(b'{"arm": "two", "seed')
    (folder / "cells" / "one-1" / "row.json").write_bytes(b"[1]")
    assert run_study(design(tmp_path), folder, listener=ignore).complete
    assert told(tmp_path, "begin")[len(NAMES) :] == ["one-1", "two-2"]


def test_the_table_has_mean_and_deviation_over_the_seeds() -> None:
    study = Study(
        "What helps | hurts",
        SingleLabel.headline,
        (
            StudyArm("a|b", ({"loss": 2.0, "top1": 0.5}, {"loss": 4.0, "top1": 0.7}, {"loss": 3.0, "top1": 0.9})),
            StudyArm("one", ({"top1": 0.25},)),
            StudyArm("none", ()),
        ),
        (Failure("none-0", "No number any more."),),
        left=2,
    )
    assert study.arms[0].mean("top1") == pytest.approx(0.7)
    assert study.arms[0].deviation("top1") == pytest.approx(0.2)
    assert math.isnan(study.arms[1].deviation("top1"))
    assert markdown_table(study).splitlines() == [
        "# What helps | hurts",
        "",
        "| arm | accuracy | loss | runs |",
        "| --- | ---: | ---: | ---: |",
        "| a\\|b | 70.00% ± 20.00% | 3 ± 1 | 3 |",
        "| one | 25.00% | – | 1 |",
        "| none | – | – | 0 |",
        "",
        "- 2 of 7 runs have not ended yet.",
        "- none-0 failed: No number any more.",
    ]


def test_the_page_shows_every_run_as_a_dot_and_no_text_as_code(tmp_path: Path) -> None:
    runs = tuple({"top1": value} for value in (0.1, 0.2, 0.4))
    study = Study("<script>alert(1)", SingleLabel.headline, (StudyArm("<b>arm", runs), StudyArm("$x$", runs[:1])))
    write_study(study, tmp_path / "study.md", tmp_path / "study.html")
    page = (tmp_path / "study.html").read_text()
    assert page.count("<figure") == 1
    assert "<script" not in page
    assert "<b>arm" not in page
    assert len(re.findall(r"<use ", page.split("</figure>")[0])) >= 4
    write_study(
        Study("Empty", SingleLabel.headline, (StudyArm("arm", ()),), left=3),
        tmp_path / "study.md",
        tmp_path / "empty.html",
    )
    assert "<figure" not in (tmp_path / "empty.html").read_text()


def trainings() -> Design:
    """A pre-training and a fine-tuning from it, some seconds each."""
    quick = ("steps=6", "batch_size=8", "workers=0", "checkpoint.every_steps=2")
    before = Request("pre-train", "digits", model="vit-mu4", overrides=quick, image_size=16, baselines=False)
    after = Request("fine-tune", "digits", "vit-mu4", recipe="finetune", overrides=quick, image_size=16)
    return Design(
        "Trainings",
        SingleLabel.headline,
        (Arm("before", Training(before), OWN_SEED), Arm("after", Training(after), (0, 1), after="before")),
    )


def test_trainings_interrupted_in_their_midst_end_in_the_figures_of_those_that_were_not(tmp_path: Path) -> None:
    whole = run_study(trainings(), tmp_path / "whole", listener=ignore)
    assert len(set(whole.arms[1].values("nll"))) == 2  # the seeds matter

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "after-1" and event.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(trainings(), tmp_path / "broken", listener=interrupt)
    assert len(rows(tmp_path / "broken")) == 2
    resumed = run_study(trainings(), tmp_path / "broken", listener=ignore)
    assert resumed == whole
    weights = [tmp_path / name / "after-1" / "classifier" / "weights.safetensors" for name in ("whole", "broken")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    started = json.loads((tmp_path / "whole" / "after-0" / "run.json").read_text())["from"]
    assert started == str(tmp_path / "whole" / "before" / "classifier")
    # The frozen features are the same for every seed, and scored once.
    assert [(tmp_path / "whole" / f"after-{seed}" / "baselines.json").exists() for seed in (0, 1)] == [True, False]
    assert plan_study(trainings(), tmp_path / "whole").left == 0
    expected = plan_study(trainings(), tmp_path / "new")
    assert expected.seconds is not None
    assert 0 < expected.seconds < 60
