"""A peer in another Python: it is asked for passes, and what it lacks is said in its own words."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from zentorch_peer import ZentorchPeer

from vitral.errors import ModelError

pytestmark = pytest.mark.peers
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 5}
# A backend of that name which computes the graph as it is, and notes what it was asked for.
BACKEND = """\
import json, os, torch
from torch._dynamo import register_backend

@register_backend
def zentorch(graph, inputs):
    def noted(*values):
        with open(os.environ["NOTES"], "a") as file:
            print(json.dumps([list(one.shape) for one in values if torch.is_tensor(one) and one.dim() == 4]), file=file)
        return graph(*values)
    return noted
"""


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """zentorch itself needs another torch; the process, timm and torch.compile are real."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs timm")
    (tmp_path / "zentorch.py").write_text(BACKEND)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    return tmp_path / "notes"


def test_the_other_process_computes_what_is_asked_for(backend: Path) -> None:
    peer = ZentorchPeer(Path(sys.executable), "vit_tiny_patch16_224", SMALL, (32, 32), "fp32")
    for count in (1, 3, 3):
        assert peer(torch.zeros(count, 3, 32, 32)).shape == (count, 5)
    shapes = [shape for line in backend.read_text().splitlines() for shape in json.loads(line)]
    assert [shape for shape in shapes if shape[2:] == [32, 32]] == [[count, 3, 32, 32] for count in (1, 3, 3)]
    number = peer._process.pid
    del peer
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_what_it_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    peer = ZentorchPeer(Path(sys.executable), "vit_tiny_patch16_224", SMALL, (32, 32), "fp32")
    with pytest.raises(ModelError, match="No module named '(zentorch|timm)'"):
        peer(torch.zeros(1, 3, 32, 32))
    with pytest.raises(ModelError, match="is no Python that can be run"):
        ZentorchPeer(tmp_path / "none", "vit_tiny_patch16_224", SMALL, (32, 32), "fp32")
