"""What the reliability tests share: where their counts go."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Record = Callable[[str, dict[str, int]], None]


@pytest.fixture
def record_counts() -> Record:
    """Write a test's counts and seed as JSON into the folder named by VITRAL_RELIABILITY_OUT, if it is set."""

    def record(name: str, counts: dict[str, int]) -> None:
        if folder := os.environ.get("VITRAL_RELIABILITY_OUT"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.json").write_text(json.dumps(counts))

    return record
