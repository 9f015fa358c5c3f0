"""What happens to a whole batch on its device: random erasing, then MixUp or CutMix, by torchvision's own transforms."""

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.objectives.classification import Targets
from vitral.seeds import derive
from vitral.training.settings import MixingSettings

Images = Float[Tensor, "batch 3 height width"]


def erase(images: Images, share: float, *, seed: int, step: int, first: int, batch_size: int) -> Images:
    """Replace a random box in a share of the pictures by normal noise (arXiv 1708.04896), in place.

    Each picture's box is a function of (seed, step, its place in the whole batch).

    Args:
        images: normalised pictures.
        share: of the pictures that lose a box.
        seed: of the run.
        step: of the run.
        first: the first picture's place in the whole batch.
        batch_size: pictures in the whole batch.
    """
    from torchvision.transforms import v2  # a second of start-up for the few who ask for it

    transform = v2.RandomErasing(p=share, value="random")
    with torch.random.fork_rng(devices=[]):
        for row in range(len(images)):
            torch.manual_seed(derive(seed, "erasing", step, (first + row) % batch_size))
            images[row] = transform(images[row])
    return images


class Mixer:
    """Mixes every picture with the one before it in its batch, and their labels likewise.

    Args:
        settings: which kinds, and how strongly; with both, a batch takes one of the two at random (DeiT).
        num_classes: classes of the labels.
        seed: of the run.
    """

    def __init__(self, settings: MixingSettings, *, num_classes: int, seed: int) -> None:
        from torchvision.transforms import v2  # as above

        kinds = ((v2.MixUp, settings.mixup), (v2.CutMix, settings.cutmix))
        # Labels that are shares of the classes already are mixed as they are.
        self.transforms = [kind(alpha=alpha, num_classes=num_classes) for kind, alpha in kinds if alpha]
        self.seed = seed

    def __call__(self, images: Images, labels: Targets, *, step: int) -> tuple[Images, Float[Tensor, "batch classes"]]:
        """Return the mixed pictures and labels of a batch, whose first picture is only the second one's partner.

        The draws are a function of (seed, step), the same for every process that has a part of the batch.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.seed, "mixing", step))
            transform = self.transforms[int(torch.randint(len(self.transforms), ()))]
            mixed, shares = transform(images, labels)
        return mixed[1:], shares[1:]


def mixes(settings: MixingSettings) -> bool:
    """Tell whether pictures are mixed at all."""
    return bool(settings.mixup or settings.cutmix)
