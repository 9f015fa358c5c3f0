"""LeJEPA: views of an image agree, and all features together are an isotropic Gaussian (arXiv 2511.08544, and its MINIMAL.md).

SIGReg, the second part, compares projections on random directions with the standard normal distribution by their empirical
characteristic functions (the test of Epps and Pulley).
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.nn import functional as differentiable

from vitral.models.layers import BatchPart, init_torch_default, seeded
from vitral.models.model import Model

Projections = Float[Tensor, "views batch dimensions"]
KNOTS = 17  # points of the quadrature, from 0 on; the other half is its mirror image
REACH = 3.0  # standard deviations: the last of these points
NORM_EPS = 1e-5


class LatentViews(nn.Module):
    """A network and a projector, thrown away in the end: three linear layers with batch norm and ReLU between them."""

    def __init__(self, network: Model, *, hidden: int, dimensions: int, seed: int) -> None:
        super().__init__()
        self.network = network
        widths = (network.num_features, hidden, hidden, dimensions)
        self.layers = nn.ModuleList(nn.Linear(*both) for both in pairwise(widths))
        self.norms = nn.ModuleList(BatchNormOfAll(hidden) for _ in widths[1:-1])
        self.to(next(network.parameters()).device)
        generator = seeded(network, seed)
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            init_torch_default(layer, generator)

    def forward(
        self, views: tuple[Float[Tensor, "batch 3 height width"], ...], part: BatchPart | None = None
    ) -> Projections:
        """Return the projections of every view of the images."""
        features = torch.cat([self.network.features(images, part) for images in views])
        for layer, norm in zip(self.layers, self.norms, strict=False):
            features = norm(layer(features)).relu()
        return self.layers[-1](features).unflatten(0, (len(views), -1))


class BatchNormOfAll(nn.Module):
    """A batch norm over the batches of all processes, so that a batch is normalised alike however many share it.

    It keeps no statistics: it is never used but to train.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, values: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        """Return the values with the mean and the deviation that the parameters say."""
        wide = values.float()
        mean = _mean_of_all(wide.mean(dim=0))
        variance = _mean_of_all((wide - mean).square().mean(dim=0))
        normal = (wide - mean) * (variance + NORM_EPS).rsqrt()
        return (normal * self.weight + self.bias).to(values.dtype)


def _mean_of_all(values: Tensor) -> Tensor:
    """Return the mean of the processes' values; gradients flow back to all of them."""
    if not dist.is_initialized():
        return values
    summed: Tensor = differentiable.all_reduce(values)  # type: ignore[no-untyped-call]
    return summed / dist.get_world_size()


def agreement_loss(projections: Projections) -> Float[Tensor, ""]:
    """Return the mean squared difference of the views' projections from their mean."""
    wide = projections.float()
    return (wide - wide.mean(dim=0)).square().mean()


def draw_directions(dimensions: int, count: int) -> Float[Tensor, "dimensions directions"]:
    """Draw unit vectors from torch's generator, on the CPU."""
    return nn.functional.normalize(torch.randn(dimensions, count), dim=0)


def gaussian_loss(projections: Projections, directions: Float[Tensor, "dimensions directions"]) -> Float[Tensor, ""]:
    """Return SIGReg: how far the projections of all processes are from an isotropic standard Gaussian.

    N times the integral of |c(t) - exp(-t²/2)|² exp(-t²/2) over t, where c is the empirical characteristic function of N
    images along a direction; the mean over directions and views. In every process the same, with the gradients of its own
    images: their mean over the processes is the whole's.
    """
    along = projections.float() @ directions.to(projections.device)  # views, batch, directions
    step = REACH / (KNOTS - 1)
    processes = dist.get_world_size() if dist.is_initialized() else 1
    points = [number * step for number in range(KNOTS)]
    waves = torch.stack([torch.stack([(along * t).cos().mean(dim=1), (along * t).sin().mean(dim=1)]) for t in points])
    waves = _of_all(waves)  # knots, cosine and sine, views, directions
    target = torch.tensor([math.exp(-(t**2) / 2) for t in points], device=waves.device)
    weights = target * 2 * step
    weights[[0, -1]] /= 2  # the trapezoid rule, and its mirror image
    shape = (-1, 1, 1)
    error = (waves[:, 0] - target.view(shape)).square() + waves[:, 1].square()
    return (error * weights.view(shape)).sum(dim=0).mean() * along.shape[1] * processes


def _of_all(values: Tensor) -> Tensor:
    """Return the mean of the processes' values, with the gradient of this process's alone."""
    if not dist.is_initialized():
        return values
    mean = values.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size() + (values - values.detach())
