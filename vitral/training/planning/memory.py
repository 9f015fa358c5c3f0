"""How much memory a run may take on its device, and into how many parts its batch must be cut to stay below that."""

import contextlib
from pathlib import Path

import torch

from vitral.training.settings.recipe import Recipe

# Of all memory, and not of what happens to be free: the number of parts decides the order of sums, and with it the last bits.
HOST_SHARE, DEVICE_SHARE = 0.5, 0.85
CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")  # what a container may take, where Linux says it
MEMORY = Path("/proc/meminfo")
# Bytes a parameter: weight, gradient and two moments in float32, the average where there is one, and a bf16 copy.
STATE_BYTES = 4 * 4 + 2
WEIGHT_BYTES = 4 + 2  # of a parameter that does not learn


def usable_bytes(device: torch.device) -> int | None:
    """Return the bytes that a run may plan with on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(DEVICE_SHARE * torch.cuda.get_device_properties(device).total_memory)
    limits = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        limits.append(1024 * int(MEMORY.read_text().split()[1]))  # "MemTotal:  24590000 kB" is its first line
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(CONTROL_GROUP.read_text()))  # "max" without a limit
    return int(HOST_SHARE * min(limits)) if limits else None


def fit_memory(
    recipe: Recipe, *, fixed: int, an_image: int, images: int, usable: int | None
) -> tuple[Recipe, list[str]]:
    """Return the recipe with the fewest parts of a batch that fit the memory, a power of two, and why if there are several.

    A recipe that says its own number of parts keeps it. Parts change the order of sums, and a batch norm's statistics, which
    are then those of a part, as they are of a device in the published runs.

    Args:
        recipe: the settings.
        fixed: bytes of weights, gradients and optimizer.
        an_image: bytes that an image needs between its forward and backward pass.
        images: of a batch in this process.
        usable: bytes that the run may take; None for any number.
    """
    if recipe.compute.accumulation is not None:
        return recipe, []
    parts = 1
    while usable is not None and parts < images and fixed + an_image * -(-images // parts) > usable:
        parts *= 2
    fitted = recipe.with_changes({"compute.accumulation": parts})
    if parts == 1:
        return fitted, []
    return fitted, [
        f"Memory: {images} images at once would need {(fixed + an_image * images) / 2**30:.0f} GiB, so a batch goes through "
        f"the network in {parts} parts of {-(-images // parts)} (compute.accumulation)."
    ]
