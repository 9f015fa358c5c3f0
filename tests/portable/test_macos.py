"""A Mac's GPU trains where there is one."""

import pytest
import torch

from vitral.machine import has_native_bf16, precise
from vitral.training.optimization.optimizers import computes_in_bf16, training_device

MPS = torch.device("mps")


def test_a_macs_gpu_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert training_device().type == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert training_device() == MPS
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)  # of a job, whose processes could not exchange what they have computed
    assert training_device().type == "cpu"


def test_a_macs_gpu_is_given_no_numbers_that_it_lacks() -> None:
    assert precise(MPS) == torch.float32
    assert precise(torch.device("cpu")) == torch.float64
    assert not has_native_bf16(MPS)
    assert not computes_in_bf16(MPS, "auto")
