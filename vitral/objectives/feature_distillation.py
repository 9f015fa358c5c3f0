"""Losses of another network's features, each through one linear map of the student's.

Pooled features are compared by their angle; those of the patches by their squared distance, the teacher's with a mean of 0 and
a variance of 1 in every place, so that no channel of a large norm speaks for all others. Our choice among what the field does.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.models.layers import BatchPart, Maps, TokenGrid, init_linear, seeded
from vitral.models.model import Features, Images, Model

Learned = tuple[Float[Tensor, "batch classes"], Features, Maps, dict[str, Tensor]]


class FeatureStudent(nn.Module):
    """A network, and what maps its features, pooled and of patches or maps, to a teacher's."""

    def __init__(self, network: Model, patches: int, *, teacher_pooled: int, teacher_patches: int, seed: int) -> None:
        super().__init__()
        self.network = network
        self.pooled = nn.Linear(network.num_features, teacher_pooled)
        self.patches = nn.Linear(patches, teacher_patches)
        self.to(next(network.parameters()).device)
        generator = seeded(network, seed)
        with torch.no_grad():
            for layer in (self.pooled, self.patches):
                init_linear(layer, generator)

    def forward(self, images: Images, part: BatchPart | None = None) -> Learned:
        """Return the logits, the pooled features and the maps in the teacher's widths, and the experts' auxiliary losses."""
        encoded = self.network.encode(images, part)
        features = self.network.pool(encoded)
        maps = self.patches(encoded.maps.movedim(1, -1)).movedim(-1, 1)
        losses = dict(encoded.losses) if isinstance(encoded, TokenGrid) else {}
        return self.network.head(features), self.pooled(features), maps, losses


def pooled_loss(student: Features, teacher: Features) -> Float[Tensor, ""]:
    """Return 1 minus the cosine of the angle between the features of an image, the mean over the images."""
    return 1 - functional.cosine_similarity(student.float(), teacher.float(), dim=1).mean()


def patches_loss(student: Maps, teacher: Maps) -> Float[Tensor, ""]:
    """Return the mean squared difference from the teacher's normalised features, these resized to the student's grid."""
    ours, theirs = student.float(), teacher.float()
    if theirs.shape[-2:] != ours.shape[-2:]:
        theirs = functional.interpolate(
            theirs, size=ours.shape[-2:], mode="bilinear", antialias=True, align_corners=False
        )
    normal = functional.layer_norm(theirs.movedim(1, -1), theirs.shape[1:2]).movedim(-1, 1)
    return functional.mse_loss(ours, normal)
