"""An experiment from one file, an entry among the others and one of what the paper says, is a study like any other."""

import json
from pathlib import Path

import pytest

from tests.studies.paper.small import SMALL
from vitral.cli.main import main
from vitral.events import ignore
from vitral.report.chart import Axis
from vitral.studies.paper import experiment as reported
from vitral.studies.paper import scale
from vitral.studies.paper.experiment import Experiment, Results, Trial, ranked
from vitral.studies.paper.run import EXPERIMENTS, study

POOLINGS = ("token", "gap")


def conclude(results: Results) -> str:
    return f"Of {len(results)} poolings: {ranked(results)}"


POOLING = Experiment(
    "pooling",
    "Class token or average",
    "Which pooling of the tokens is better?",
    Axis("pooling"),
    lambda at: tuple(
        Trial(name, "networks", f"by {name}", name, changes=(*at.vits[-1].changes, "patch_size=16", f"pooling={name}"))
        for name in POOLINGS
    ),
    conclude,
)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, POOLING.name, POOLING)
    monkeypatch.setitem(reported._content(), POOLING.name, {"source": "Figure 9", "note": "They are equally good."})
    monkeypatch.setitem(scale.SCALES, SMALL.name, SMALL)


def test_its_arms_are_trained_and_shown(tmp_path: Path) -> None:
    out = tmp_path / "study"
    study(POOLING.name, "digits", budget=SMALL.name, runs=2, out=out, listener=ignore)
    rows = [json.loads(text) for text in (out / "rows.jsonl").read_text().splitlines()]
    assert [(row["arm"], row["seed"]) for row in rows] == [(name, seed) for name in POOLINGS for seed in (0, 1)]
    folders = [out / f"{name}-0" / "classifier" / "classifier.json" for name in POOLINGS]
    assert [json.loads(path.read_text())["architecture"]["pooling"] for path in folders] == list(POOLINGS)
    page = (out / "page.html").read_text()
    for text in (POOLING.question, "Of 2 poolings: ", "by token", "by gap", "They are equally good.", "Figure 9"):
        assert text in page, text


def test_the_command_line_plans_it_and_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", POOLING.name, "--data", "digits", "--plan", "--runs", "2"]) == 0
    assert "2 arms, 4 runs" in capsys.readouterr().out
    assert main(["study", "--json"]) == 0
    assert {"name": "pooling", "question": POOLING.question} in json.loads(capsys.readouterr().out)
