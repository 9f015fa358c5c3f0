"""What is said of this machine is measured on it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vitral import machine

MANY = 200 << 20  # bytes


def fill() -> int:
    return int(np.ones(MANY, dtype=np.uint8).sum(dtype=np.int64))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system does not tell")
def test_memory_that_came_and_went_is_seen_each_time() -> None:
    for _ in range(2):  # what the first freed does not hide the second's
        done, memory = machine.peak_memory_of(fill)
        assert done == MANY
        assert memory == pytest.approx(MANY, rel=0.1)
    _, little = machine.peak_memory_of(lambda: None)
    assert little is not None
    assert little < MANY / 10


def test_where_the_system_does_not_tell_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CLEAR", tmp_path / "nowhere" / "clear_refs")
    assert machine.peak_memory_of(lambda: 3) == (3, None)


@pytest.mark.skipif(not machine.has_int8(), reason="needs a CPU that multiplies 8-bit integers")
@pytest.mark.parametrize(("instructions", "exact"), [("AVX2", "False"), ("AVX512_CORE", "False"), ("ALL", "True")])
def test_int8_is_there_only_where_its_sums_are_exact(instructions: str, exact: str) -> None:
    """What the processor has may be switched off for oneDNN, whose kernels then add in 16 bits."""
    program = "from vitral.machine import has_int8; print(has_int8())"
    settings = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}
    found = subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == exact
