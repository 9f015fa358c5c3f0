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


def test_the_free_memory_is_what_machine_and_container_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MEMORY_FILE", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert machine.free_bytes() > 1 << 20
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n")
    assert machine.free_bytes() == 400 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.free_bytes() == 400 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.free_bytes() == 4000
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 800\nfile 4200\ninactive_file 3900\nactive_file 300\n")
    assert machine.free_bytes() == 3900


def test_all_memory_is_the_least_of_what_machine_and_container_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "MEMORY_FILE", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert machine.memory_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # as on macOS
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemFree: 100 kB\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_bytes() == 900 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine.memory_bytes() == 5000


def test_a_system_that_says_nothing_of_its_memory_is_planned_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "MEMORY_FILE", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory_bytes() is None
    assert machine.free_bytes() > 1 << 30
