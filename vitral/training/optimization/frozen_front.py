"""What the first blocks of a network make of an image, computed once: blocks that do not learn give the same each time.

The last blocks then learn without the work of the first ones, which is most of it where maps are large. It pays where images
are seen as they are, or mirrored at most.
"""

from collections.abc import Callable
from hashlib import blake2b

import torch
from torch import Tensor

from vitral import distributed
from vitral.data.image_cache import SHARE
from vitral.images.augment import Augmentation
from vitral.machine import free_bytes, has_native_bf16
from vitral.models.model import Model
from vitral.models.staged import StagedModel
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import mixes

STILL = ("none", "centre")  # crops that give an image the same view each time
# Computed together, always as many: so no map depends on how many others of a batch are kept, as after a kill none is.
TOGETHER = 8
KEPT = torch.bfloat16  # half of the memory


class FrozenFront:
    """The maps behind a network's first blocks, by the content of the image that they are of.

    Where the memory is full further maps are computed each time, to the same values.

    Attributes:
        blocks: How many blocks these are.
    """

    def __init__(self, blocks: int, *, limit: int) -> None:
        self.blocks, self._free = blocks, limit
        self._low = has_native_bf16(torch.device("cpu"))
        self._maps: dict[bytes, Tensor] = {}

    def __call__(self, images: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the maps of images, (batch, channels, height, width), as `compute` makes them, in bfloat16 if that is fast."""
        names = [blake2b(memoryview(image.numpy()), digest_size=16).digest() for image in images.contiguous()]
        unknown = {name: row for row, name in enumerate(names) if name not in self._maps}
        made: dict[bytes, Tensor] = {}
        rows = list(unknown.values())
        for start in range(0, len(rows), TOGETHER):
            some = rows[start : start + TOGETHER]
            padded = some + some[:1] * (TOGETHER - len(some))
            with torch.no_grad(), torch.autocast("cpu", KEPT, enabled=self._low):
                computed = compute(images[padded])
            made.update((names[row], maps.to(KEPT, copy=True)) for row, maps in zip(some, computed, strict=False))
        for name, maps in made.items():
            if maps.nbytes <= self._free:
                self._free -= maps.nbytes
                self._maps[name] = maps
        together = torch.stack([made[name] if name in made else self._maps[name] for name in names])
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else images.dtype
        return together.to(kind).contiguous(memory_format=torch.channels_last)


def keep_front(network: Model, recipe: Recipe, augmentation: Augmentation) -> None:
    """Let a network keep the maps of the blocks that a recipe freezes, if it says so and that is worth it; on a CPU only."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if not isinstance(network, StagedModel) or not on_cpu or not keeps_front(recipe, augmentation):
        return
    limit = int(SHARE * free_bytes() / distributed.world())
    network.frozen_front = FrozenFront(recipe.adaptation.frozen_blocks, limit=limit)


def keeps_front(recipe: Recipe, augmentation: Augmentation) -> bool:
    """Tell whether a recipe keeps what its first blocks make of an image, and they make the same of it each time."""
    compute = recipe.compute
    if not recipe.adaptation.keep_frozen or recipe.method.name != "supervised":
        return False
    changing = recipe.regularization.stochastic_depth or compute.compile or compute.sharding != "none"
    return not changing and is_still(recipe, augmentation)


def is_still(recipe: Recipe, augmentation: Augmentation) -> bool:
    """Tell whether an image looks the same each time it is learned from, or mirrored at most."""
    moved = augmentation.shift or augmentation.rotate or augmentation.scale
    changed = augmentation.policy != "none" or augmentation.jitter or augmentation.erasing
    drawn = augmentation.crop not in STILL or augmentation.interpolation == "random"
    return not (moved or changed or drawn or mixes(recipe.mixing))
