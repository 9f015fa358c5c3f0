"""Processes that predict together compute by one runtime in one precision: one file holds one kind of answers."""

from pathlib import Path

import pytest

from tests.forks import job
from tests.processes import choice_run


@pytest.mark.long
def test_every_process_computes_by_what_the_first_measured(tmp_path: Path) -> None:
    for done in job(2, choice_run.main, tmp_path):
        assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        assert (tmp_path / f"{rank}.txt").read_text().splitlines() == ["packed in bf16", "process 0 cannot"]
