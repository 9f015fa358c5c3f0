"""LeJEPA's loss of eight images, by any number of processes that share them; the mean of their gradients is written."""

from pathlib import Path

import torch
from torch import Tensor

from vitral import distributed, torchrun
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.objectives.latent_views import LatentViews, agreement_loss, draw_directions, gaussian_loss

CONFIG = ViTConfig(image_size=(8, 8), patch_size=(4, 4), dim=16, depth=1, mlp_dim=32, num_heads=2, num_classes=3)


def make() -> LatentViews:
    return LatentViews(build(CONFIG, seed=0), hidden=12, dimensions=5, seed=1)


def views() -> Tensor:
    return torch.randn(3, 8, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def loss(module: LatentViews, seen: Tensor) -> Tensor:
    torch.manual_seed(3)
    directions = draw_directions(5, 32)
    projections = module(tuple(seen))
    return 0.5 * agreement_loss(projections) + 0.5 * gaussian_loss(projections, directions)


def main(folder: Path) -> int:
    """Compute this process's part."""
    torch.set_num_threads(1)
    distributed.join()
    module, share = make(), 8 // distributed.world()
    first = share * distributed.rank()
    found = loss(module, views()[:, first : first + share])
    found.backward()  # type: ignore[no-untyped-call]
    world = distributed.world()
    gradients = {
        name: distributed.total(value.grad) / world
        for name, value in module.named_parameters()
        if value.grad is not None
    }
    gradients["loss"] = distributed.total(found.detach()) / world
    if torchrun.is_main():
        torch.save(gradients, folder / "gradients.pt")
    distributed.barrier()
    distributed.leave()
    return 0
