"""A run through torch.compile: every block compiled, whatever its stochastic depth, and a plain network at the end."""

import functools
import shutil
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from vitral.cli.main import main

KERNELS = [
    pytest.mark.slow,  # half a minute
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU"),
]


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=KERNELS)])
def test_a_run_is_compiled_and_ends_as_a_plain_network(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", functools.partialmethod(compiled, backend=backend))
    counters.clear()
    run = tmp_path / "run"
    arguments = ["finetune", "--data", "digits", "--from", "vit-mu4", "--image-size", "16", "--out", str(run)]
    settings = ["steps=4", "batch_size=8", "compute.compile=true", "regularization.stochastic_depth=0.2"]
    assert main([*arguments, *(part for setting in settings for part in ("--set", setting))]) == 0
    assert counters["frames"]["ok"] == counters["frames"]["total"] > 0
    assert (run / "report.html").is_file()  # which records attention by hooks on the blocks
