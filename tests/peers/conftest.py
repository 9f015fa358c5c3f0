"""What the comparisons share: random weights of a trained network's scale, and a photo of odd proportions."""

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

SIZE = (331, 243)  # width and height of the photo, odd on purpose


@torch.no_grad()
def scramble(model: nn.Module) -> None:
    """Draw every tensor of a network anew by its name, so that no layer passes its input through and no head is zero."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var"):
            tensor.copy_(1 + 0.1 * drawn.abs())
        elif tensor.ndim <= 1 or name.endswith("running_mean"):
            around = 1.0 if name.endswith("weight") or "gamma" in name else 0.0
            tensor.copy_(around + 0.1 * drawn)
        elif name.endswith(("weight", "kernel")):
            tensor.copy_(drawn * (tensor[0].numel() ** -0.5))
        else:
            tensor.copy_(0.3 * drawn)


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture with edges, gradients and noise, as a JPEG."""
    width, height = SIZE
    rows, columns = np.mgrid[:height, :width]
    channels = [rows * 255 / height, columns * 255 / width, 127 + 127 * np.sin(rows / 7) * np.cos(columns / 5)]
    noise = np.random.default_rng(0).normal(0, 12, (height, width, 3))
    path = tmp_path_factory.mktemp("photo") / "photo.jpg"
    Image.fromarray(np.clip(np.stack(channels, -1) + noise, 0, 255).astype(np.uint8)).save(path, quality=90)
    return path
