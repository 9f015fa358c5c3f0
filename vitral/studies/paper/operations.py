"""What a run costs in operations, and the hours that these take a GPU: counted, on no machine.

An operation is a multiplication or an addition. The count is the field's: two for each multiply-accumulate of an image's
forward pass, and the backward pass twice the forward pass, so six to train; the update, norms, softmax and activations are left
out.
"""

from dataclasses import dataclass

from vitral.models.families import count_macs, replace
from vitral.models.model import ModelConfig
from vitral.training.choose.layout import fit_length
from vitral.training.measuring import SAM_PASSES
from vitral.training.settings.durations import HOUR
from vitral.training.settings.recipe import Recipe

TRAINING = 6  # operations for each multiply-accumulate of a forward pass


@dataclass(frozen=True)
class Gpu:
    """A GPU by its data sheet: its peak in operations a second in bfloat16, of dense products.

    The share of the peak is what training a ViT-B/16 reaches, as the source has it.
    """

    name: str
    peak: float
    share: float
    source: str


# The share is the best published of an H100, whose products are as fast.
H200 = Gpu(
    "H200",
    989e12,
    0.226,
    "2,119 images/s a GPU of ViT-5-Base on 8 H100 (NVIDIA-BioNeMo/nvSubquadratic, benchmarks/README.md)",
)


@dataclass(frozen=True)
class Operations:
    """What a run computes: multiply-accumulates of a forward pass, images, one as often as it is seen, and passes for each.

    A pass is forward and backward; with SAM there are two.
    """

    macs: int
    images: int
    passes: int = 1

    @property
    def total(self) -> int:
        """Operations of the whole training."""
        return TRAINING * self.macs * self.images * self.passes

    def hours(self, gpu: Gpu = H200, *, count: int = 1, share: float | None = None) -> float:
        """Return the hours of the training on a GPU, without input, validation or start.

        Of several GPUs none waits for another. `share` is the share of the peak that is reached; None for the GPU's own.
        """
        return self.total / (gpu.peak * (gpu.share if share is None else share) * count) / HOUR


def operations_of(config: ModelConfig, recipe: Recipe, images: int) -> Operations:
    """Return what a recipe computes to train all weights of a network; frozen weights would take less.

    Without an image size in the recipe the network's own holds; `images` is the number of training images in an epoch.

    Raises:
        ModelError: The network cannot take images of that size.
    """
    if recipe.image_size is not None:
        config = replace(config, image_size=(recipe.image_size, recipe.image_size))
    fitted, _ = fit_length(recipe, images)
    assert fitted.steps is not None, "a length in epochs becomes one in steps"
    passes = 1 if recipe.optimizer.sam_rho is None else SAM_PASSES
    return Operations(count_macs(config), fitted.steps * fitted.batch_size, passes)
