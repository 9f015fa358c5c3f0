"""Several processes that evaluate together: every image once, in order, and every process knows all."""

from pathlib import Path

import pytest
import torch

from tests.forks import job
from tests.processes import evaluation_run
from tests.processes.evaluation_run import SIZES, rows
from vitral.data.generated import open_digits


@pytest.mark.long
def test_two_processes_end_with_the_rows_of_one(tmp_path: Path) -> None:
    for done in job(2, evaluation_run.main, tmp_path):
        assert done.returncode == 0, done.stderr[-3000:]
    for count in SIZES:
        alone = rows(count)
        assert alone["labels"].tolist() == open_digits().splits["validation"].labels()[:count].tolist()
        for rank in range(2):
            shared = torch.load(tmp_path / f"{count}-{rank}.pt", weights_only=True)
            for name in alone:
                torch.testing.assert_close(shared[name], alone[name], rtol=0, atol=1e-6)
