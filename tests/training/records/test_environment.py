"""What a run notes down of where it ran."""

from pathlib import Path

import pytest


def test_git_state_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    from vitral.training.records.run_folder import git_state

    monkeypatch.chdir(tmp_path)
    assert git_state() is None
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    state = git_state()
    assert state is not None
    assert len(str(state["commit"])) == 40
    assert state["changed"] is False
