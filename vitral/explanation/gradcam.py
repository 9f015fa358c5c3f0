"""Grad-CAM: which places of the last feature map speak for a class (arXiv 1610.02391, equations 1 and 2)."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.models.cvt import CvT
from vitral.models.model import Images, Logits, Model
from vitral.models.record import record
from vitral.models.t2t import T2TViT

Maps = Float[Tensor, "batch channels rows columns"]


@dataclass(frozen=True)
class ClassEvidence:
    """One pass of a batch through a network, and what speaks for the most probable class of each image.

    Attributes:
        logits: the network's answer.
        relevance: of each place of the last feature map, at least 0; all 0 where no place speaks for the class.
    """

    logits: Logits
    relevance: Float[Tensor, "batch rows columns"]


def grad_cam(model: Model, images: Images) -> ClassEvidence:
    """Explain the most probable class of each prepared image, in evaluation mode.

    The maps are what the last block gives. Of a network that reads its answer from a class token, the other tokens no
    longer matter there; its maps are the tokens as they enter the attention of the last block (after its first norm).

    Raises:
        ModelError: the network ends in no feature map.
    """
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(mode=False), torch.enable_grad(), _last_maps(model) as last_maps:
            logits = model(images.clone().requires_grad_())  # a graph, even if every weight is frozen
            maps, recorded = last_maps()
            # The images of a batch do not touch each other, so one sum gives each its own gradient.
            gradient = torch.autograd.grad(logits.amax(dim=1).sum(), recorded)[0]
    finally:
        model.train(training)
    return ClassEvidence(logits.detach(), class_activation(maps(recorded.detach()), maps(gradient)))


def class_activation(maps: Maps, gradients: Maps) -> Float[Tensor, "batch rows columns"]:
    """Weigh each channel by its gradient's mean over the places (equation 1), sum, and keep what is positive (2).

    Args:
        maps: the feature maps A.
        gradients: of the class's logit by A.
    """
    weights = gradients.float().mean(dim=(2, 3), keepdim=True)
    return (weights * maps.float()).sum(dim=1).relu()


Reader = Callable[[], tuple[Callable[[Tensor], Maps], Tensor]]


@contextlib.contextmanager
def _last_maps(model: Model) -> Iterator[Reader]:
    """Watch the last maps; after a pass the reader gives them as recorded, and how such a tensor becomes maps."""
    last = f"blocks.{len(model.blocks()) - 1}"
    if not isinstance(model, CvT | T2TViT):
        with record(model, last) as recorded:
            yield lambda: (_as_maps, recorded[last])
        return
    name = f"{last}.norm1"
    with record(model, name) as recorded, contextlib.ExitStack() as stack:
        embedded = stack.enter_context(record(model, "stages.*.embedding")) if isinstance(model, CvT) else {}

        def read() -> tuple[Callable[[Tensor], Maps], Tensor]:
            grid = model.config.grid if isinstance(model, T2TViT) else embedded[max(embedded)].shape[2:]
            return lambda tokens: tokens[:, 1:].transpose(1, 2).unflatten(2, tuple(grid)), recorded[name]

        yield read


def _as_maps(recorded: Tensor) -> Maps:
    if recorded.ndim != 4:
        raise ModelError("The network has neither attention to show nor a last feature map, so it cannot be explained.")
    return recorded
