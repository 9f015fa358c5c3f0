"""`vitral check resume`: the proof runs, and would tell a difference."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.forks import Fork, script
from tests.regions import DRAWN, FEW
from vitral.checks import check_resume as module
from vitral.checks.check_resume import _compare, check_resume
from vitral.data.digit_scenes import COUNTS
from vitral.errors import TrainingError

pytestmark = pytest.mark.long


class Forked(Fork):
    """A process as the check starts it, of a server that has imported everything."""

    returncode = 0

    def __init__(self, command: list[str]) -> None:
        super().__init__(_on_few_scenes, command[-1])

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for its end, and return what it printed."""
        self.process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a run", timeout or 0)
        done = self.ended()
        self.returncode = done.returncode
        return done.stdout.encode(), done.stderr.encode()


def _on_few_scenes(options: str) -> int:
    COUNTS.update(FEW)
    settings = json.loads(options)
    if settings["data"].endswith("panoptic"):
        settings["overrides"] += ["method.name=mask-queries", "method.points=200"]  # in place of 12,544
    return module.main(json.dumps(settings))


def check(data: str) -> None:
    outcome = check_resume(data)
    assert outcome.equal, outcome
    assert set(outcome.files.values()) == {True}
    assert outcome.kills
    assert outcome.folder is None


def test_the_proof_holds_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILLS", 1)
    check("digits")


@pytest.mark.parametrize("data", DRAWN)
def test_the_proof_holds_for_every_kind_of_regions(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILLS", 1)
    monkeypatch.setattr(module, "_start", Forked)
    Fork(script, "").ended()  # the server has imported before a run is timed
    check(data)


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
