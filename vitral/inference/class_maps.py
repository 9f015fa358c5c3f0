"""What Grad-CAM needs of a network, in torch: its last feature maps, with the gradients of a class."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.errors import ModelError
from vitral.inference.predictor import ClassMaps
from vitral.inference.recording import explained
from vitral.models.cvt import CvT
from vitral.models.model import Images, Model
from vitral.models.naming import describe
from vitral.models.record import record
from vitral.models.t2t import T2TViT
from vitral.models.vit import ViT

Maps = Float[Tensor, "batch channels rows columns"]
Reader = Callable[[], tuple[Callable[[Tensor], Maps], Tensor]]


def last_maps(model: Model, images: Images, target: int | None) -> ClassMaps:
    """Run prepared images through a network, with gradients, and keep the last feature maps.

    The maps are what the last block gives, or of a hybrid what its convolutions hand to the transformer. Of a network
    without such maps that reads its answer from a class token (T2T-ViT, CvT), the other tokens no longer matter in the last
    block; its maps are the tokens as they enter the attention of that block (after its first norm).

    Raises:
        ModelError: the network has no feature map.
    """
    with _watched(model) as read:
        logits = model(images.clone().requires_grad_())  # a graph, even if every weight is frozen
        as_maps, recorded = read()
        maps = as_maps(recorded.detach())
        gradient = torch.autograd.grad(explained(logits, target), recorded)[0]
    return ClassMaps(logits.detach().float().cpu(), maps.float().cpu(), as_maps(gradient).float().cpu())


@contextlib.contextmanager
def _watched(model: Model) -> Iterator[Reader]:
    """Watch the last maps; after a pass the reader gives them as recorded, and how such a tensor becomes maps."""
    last = f"blocks.{len(model.blocks()) - 1}"
    if isinstance(model, ViT) and model.stem is not None:
        last = "stem"
    if not isinstance(model, CvT | T2TViT):
        with record(model, last) as recorded:
            yield lambda: (partial(_as_maps, describe(model.config)), recorded[last])
        return
    name = f"{last}.norm1"
    with record(model, name) as recorded, contextlib.ExitStack() as stack:
        embedded = stack.enter_context(record(model, "stages.*.embedding")) if isinstance(model, CvT) else {}

        def read() -> tuple[Callable[[Tensor], Maps], Tensor]:
            grid = model.config.grid if isinstance(model, T2TViT) else embedded[max(embedded)].shape[2:]
            return lambda tokens: tokens[:, 1:].transpose(1, 2).unflatten(2, tuple(grid)), recorded[name]

        yield read


def _as_maps(name: str, recorded: Tensor) -> Maps:
    if recorded.ndim != 4:
        raise ModelError(f"{name} cannot be explained by Grad-CAM: without convolutions it ends in no feature map.")
    return recorded
