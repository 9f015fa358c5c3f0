"""ResNet against torchvision's own, on shared random weights read through its state_dict."""

from pathlib import Path

import pytest
import torch
import torchvision

import vitral
from tests.cases import every_case


@pytest.mark.long
@every_case("depth", [18, 34, 50, 101, 152])
def test_the_same_logits(depth: int, tmp_path: Path) -> None:
    torch.manual_seed(depth)
    theirs = torchvision.models.get_model(f"resnet{depth}", weights=None).train()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        theirs(images)  # fills the running statistics
        torch.save(theirs.eval().state_dict(), tmp_path / "resnet.pth")
        ours = vitral.load(tmp_path / "resnet.pth")
        expected = theirs(images)
        assert float((ours(images) - expected).abs().max() / expected.std()) < 1e-4
    assert f"(resnet-{depth})" in ours.provenance.source
    assert ours.preprocessing.mean == (0.485, 0.456, 0.406)
