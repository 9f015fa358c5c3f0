"""A study of the paper's from its command to its page, on real digits with tiny runs; killed, resumed and shared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tests.cases import every_case
from tests.data.written import write_folder
from tests.studies.paper.opened import digits
from tests.studies.paper.small import SMALL
from vitral.cli.main import main
from vitral.data import assemble
from vitral.errors import StudyError
from vitral.events import ignore
from vitral.studies.paper import experiment_plan, scale
from vitral.studies.paper.run import EXPERIMENTS, study
from vitral.studies.paper.scaling import SCALING


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of two networks and three steps; what is measured is not, since a slow machine would measure otherwise."""
    monkeypatch.setitem(scale.SCALES, SMALL.name, SMALL)


def rows(folder: Path) -> list[dict[str, Any]]:
    kept = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in ("arm", "seed", "figures", "error")} for row in kept]


def finished(folder: Path) -> list[dict[str, Any]]:
    study("patches", "digits", budget="small", runs=2, out=folder, listener=ignore)
    return rows(folder)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study carried out by one process without a break."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scale.SCALES, SMALL.name, SMALL)
        patch.setitem(EXPERIMENTS, "patches", replace(EXPERIMENTS["patches"], draws_positions=True))
        folder = tmp_path_factory.mktemp("study") / "once"
        finished(folder)
    return folder


def test_the_rows_stand_in_a_table_for_programs_with_what_is_known_of_each_run(once: Path) -> None:
    table = parquet.read_table(once / "rows.parquet").to_pylist()
    assert [(row["arm"], row["seed"]) for row in table] == [
        ("patch8-stride8", 0),
        ("patch8-stride8", 1),
        ("patch16-stride16", 0),
        ("patch16-stride16", 1),
    ]
    first = table[0]
    assert first["tokens"] == 17
    assert first["images"] == 3 * 128
    assert first["flops"] == 6 * first["macs"] * first["images"]
    assert first["top1"] == rows(once)[0]["figures"]["top1"]


def test_the_page_shows_the_papers_figure_beside_ours_and_what_it_cannot_show(once: Path) -> None:
    html = (once / "page.html").read_text()
    assert html.count("<figure") >= 2
    for text in (
        "The paper: ImageNet accuracy by patch size",
        "Ours, on digits",
        SMALL.shows,
        "vitral.study(&#39;patches&#39;, &#39;digits&#39;, budget=&#39;small&#39;, runs=2)",
    ):
        assert text in html


def test_the_page_of_positions_shows_how_alike_those_of_each_network_are(once: Path) -> None:
    title = "Position embeddings: patch 8, stride 8, seed 0"
    assert title in (once / "page.html").read_text()
    markdown = (once / "page.md").read_text()
    assert f"![{title}](page-network-0.svg)" in markdown
    assert "Cosine similarity of the position embeddings of 4 by 4 patches" in (once / "page-network-0.svg").read_text()


def test_a_plan_says_the_cost_and_writes_nothing(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["study", "patches", "--data", "digits", "--budget", "cluster", "--plan"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "5 arms, 15 runs" in said
    assert "H200" in said
    assert "and 64 of them at best" in said
    assert list(tmp_path.iterdir()) == []


def test_the_list_says_what_each_study_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == 0
    said = capsys.readouterr().out
    assert "data-size" in said
    assert "overtake" in said


@every_case(
    ("arguments", "said"),
    [
        (["positions", "--data", "digits"], "Did you mean 'position'"),
        (["position"], "vitral study position photos/"),
        (["position", "--data", "digits", "--runs", "1"], "--runs"),
        (["position", "--data", "nowhere/"], "nowhere"),
        (["position", "--data", "digits", "--transfer", "nowhere/"], "nowhere"),
        (["position", "--data", "digits", "--transfer", "visualatom"], "cannot say how good features are"),
        (["data-size", "--data", "part:50%:digits"], "takes shares of the data itself"),
        (["data-size", "--data", "visualatom"], "endless"),
        (["position", "--data", "digits", "--budget", "cluster", "--time", "1h"], "--time"),
        (["position", "--data", "digits", "--time", "soon"], "soon"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) != 0
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_keeps_its_question(small: None, once: Path) -> None:
    with pytest.raises(StudyError, match="began with something else.*'patches', now 'head'"):
        study("head", "digits", budget="small", runs=2, out=once, listener=ignore)


def test_images_are_decoded_beforehand_once_and_not_anew_for_every_run(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, check = [], assemble._decode
    monkeypatch.setattr(assemble, "_decode", lambda *given: checked.append(1) or check(*given))  # type: ignore[func-returns-value]
    photos = write_folder(tmp_path)
    study("patches", str(photos), budget="small", runs=2, out=tmp_path / "out", listener=ignore)
    assert len(rows(tmp_path / "out")) == 4
    assert len(checked) == 1
    (photos / "train/10/3.png").write_bytes(b"no image")
    study("patches", str(photos), budget="small", runs=2, out=tmp_path / "other", listener=ignore)
    assert len(rows(tmp_path / "other")) == 4, "every run leaves out the image that the study left out"


def test_a_time_too_short_says_which_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_plan, "_timed", lambda plan, trial: experiment_plan.TrialSpeed(step=1.0, beside=2.0))
    with pytest.raises(StudyError, match="60 s is too short for 10 arms of 2 runs"):
        study("position", "digits", runs=2, time="1m", out=tmp_path / "out", listener=ignore)
    assert not (tmp_path / "out").exists()


def test_the_time_is_shared_out_over_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = experiment_plan.TrialSpeed(step=0.01, beside=5.0)
    monkeypatch.setattr(experiment_plan, "_timed", lambda plan, trial: speed)
    plan = experiment_plan.ExperimentPlan(SCALING, scale.LAPTOP, "digits", digits(), None, (0, 1, 2))
    pace = experiment_plan.paced(plan, 3600.0, ignore).record
    whole = 3 * sum(pace.seconds.values())
    assert 0.8 * 3600 < whole < 3600
    assert str(pace.steps).rstrip("0").isdigit()
    assert len(str(pace.steps).rstrip("0")) <= 2
    assert not pace.lengths


def test_starts_take_equally_long_however_many_steps_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"visualatom-start": 0.01, "lejepa-start": 0.04, "mae-start": 0.005}
    monkeypatch.setattr(
        experiment_plan,
        "_timed",
        lambda plan, trial: experiment_plan.TrialSpeed(step=costs.get(trial.name, 0.01), beside=5.0),
    )
    plan = experiment_plan.ExperimentPlan(EXPERIMENTS["starts"], scale.LAPTOP, "digits", digits(), None, (0, 1, 2))
    timed = experiment_plan.paced(plan, 7200.0, ignore)
    pace = timed.record
    assert pace.lengths == {
        **dict.fromkeys(("visualatom-start", "procedural-start", "masked-start"), 1.0),
        "mae-start": 2.0,
        "lejepa-start": 0.25,
    }
    steps = {trial.name: timed.steps(trial) for trial in timed.trials()}
    taken = {name: steps[name] * costs.get(name, 0.01) for name in pace.lengths}
    assert max(taken.values()) == pytest.approx(min(taken.values()), rel=0.02)
    assert 3 * sum(pace.seconds.values()) < 7200


def test_starts_learn_from_what_they_need_and_end_in_the_same_fine_tuning() -> None:
    for chosen in scale.SCALES.values():
        record = experiment_plan.StudyRecord(steps=100)
        plan = experiment_plan.ExperimentPlan(EXPERIMENTS["starts"], chosen, "digits", digits(), None, (0, 1), record)
        asked = {trial.name: plan.request(trial) for trial in plan.trials()}
        assert asked["procedural-start"].data == "blank"
        assert asked["visualatom-start"].data == chosen.generated
        assert asked["mae-start"].data == "digits"
        for share in chosen.few:
            ending = f"-{share.replace('/', 'of')}"
            tuned = [one for name, one in asked.items() if name.endswith(ending) and not name.startswith("scratch")]
            assert len(tuned) == 5
            assert len({(one.data, one.source, one.recipe, one.overrides) for one in tuned}) == 1
            bare = asked[f"scratch{ending}"]
            assert (bare.data, bare.recipe, bare.source) == (tuned[0].data, tuned[0].recipe, None)
            assert set(bare.overrides) - set(tuned[0].overrides) == set(chosen.vits[-1].changes)


def test_a_damaged_record_is_refused_and_one_of_earlier_versions_read(small: None, tmp_path: Path) -> None:
    asked = {
        "study": "patches",
        "budget": "small",
        "data": "digits",
        "fingerprint": digits().fingerprint,
        "transfer": None,
    }
    kept = {"asked": asked, "steps": None, "seconds": {"patch8-stride8": 1.5, "patch16-stride16": 2.5}}
    (tmp_path / "experiment.json").write_text(json.dumps(kept))  # without the fields that were added later
    planned = study("patches", "digits", budget="small", runs=2, out=tmp_path, plan=True, listener=ignore)
    assert planned.cost.seconds == 2 * (1.5 + 2.5)
    (tmp_path / "experiment.json").write_text(json.dumps(kept | {"seconds": {"patch8-stride8": "soon"}}))
    with pytest.raises(StudyError, match="experiment.json' is damaged"):
        study("patches", "digits", budget="small", runs=2, out=tmp_path, plan=True, listener=ignore)
