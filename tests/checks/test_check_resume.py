"""`vitral check resume`: the proof runs, and would tell a difference."""

from pathlib import Path

import pytest

from vitral.checks import check_resume as module
from vitral.checks.check_resume import _compare, check_resume
from vitral.errors import TrainingError

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "data", ["digits", "digit-scenes", "digit-scenes-boxes", "digit-scenes-semantic", "digit-scenes-panoptic"]
)
def test_the_proof_holds_here(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILLS", 1)
    outcome = check_resume(data)
    assert outcome.equal, outcome
    assert set(outcome.files.values()) == {True}
    assert outcome.kills
    assert outcome.folder is None


def test_a_difference_is_told(tmp_path: Path) -> None:
    for name in ("one", "other"):
        for file in ("classifier/weights.safetensors", "metrics.jsonl", "evaluation.json"):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name if "weights" in file else "same")
        state = tmp_path / name / "checkpoints" / "step-00000001" / "state.json"
        state.parent.mkdir(parents=True)
        state.write_text('{"files": {"a": "1"}}')
    assert _compare(tmp_path / "one", tmp_path / "other") == {
        "weights": False,
        "weights, average and optimizer at the end": True,
        "metrics log": True,
        "scores": True,
    }


def test_a_run_that_fails_by_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS", 0)
    with pytest.raises(TrainingError, match="failed by itself: .*steps"):
        check_resume()
