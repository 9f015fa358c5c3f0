"""The predictor that computes with torch, on the network's own device and in its own precision, or by a copy in another."""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from vitral.inference.predictor import Attended, ClassAttention, ClassMaps, LayerAttention, Predictor
from vitral.inference.recording import attend, attend_in_layer, attend_to_class, heads_on_grids, last_maps
from vitral.models.families import count_parameters, describe
from vitral.models.model import ExplainedBy, Features, Images, Logits, Model
from vitral.models.position import RotaryPosition


def copy_in(network: Model, dtype: torch.dtype) -> Model:
    """Return a copy that computes in another precision, in evaluation mode and without gradients.

    What is of that precision already is shared with the network, not copied. Batch norms and the angles of rotary positions
    stay in float32, in which these layers compute: a batch norm divides by a deviation that bfloat16 has three digits of.
    """
    exact = [module for module in network.modules() if isinstance(module, _BatchNorm | RotaryPosition)]
    unchanged = {id(value) for module in exact for value in itertools.chain(module.parameters(), module.buffers())}
    taken: dict[int, Any] = {}
    for value in itertools.chain(network.parameters(), network.buffers()):
        same = id(value) in unchanged or not value.is_floating_point()
        cast = value.detach() if same else value.detach().to(dtype)
        taken[id(value)] = nn.Parameter(cast, requires_grad=False) if isinstance(value, nn.Parameter) else cast
    return copy.deepcopy(network, taken).eval()


def state_of(network: Model) -> tuple[Any, ...]:
    """Return what changes with the network: its config, and of each tensor where it is and how often it was written."""
    values = itertools.chain(network.parameters(), network.buffers())
    written = ((value.data_ptr(), 0 if value.is_inference() else value._version) for value in values)
    return network.config, *written


class TorchPredictor(Predictor):
    """Predicts with a network in torch; changes to the network (weights, device, size) take effect with the next call.

    What its methods refuse is said where `Predictor` has them.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""
        return self.model.image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self.model.num_classes

    @property
    def num_parameters(self) -> int:
        """The number of learned values."""
        return count_parameters(self.model)

    def describe(self) -> str:
        """Return the variant's name, or the family's where the network is of no variant."""
        return describe(self.model.config)

    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images."""
        return self._computed(self.model, images)

    def answers(self, images: Images) -> Any:  # noqa: ANN401  # as a head of regions answers
        """Return a network's answers about regions, in float32 on the CPU."""
        with evaluating(self.model), torch.inference_mode():
            return tree_map_only(Tensor, lambda value: value.float().cpu(), self.model(self._placed(images)))

    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images."""
        return self._computed(self.model.features, images)

    @property
    def explained_by(self) -> ExplainedBy:
        """What explains an answer best."""
        return self.model.explained_by

    @property
    def no_rollout(self) -> str:
        """Why attention cannot be followed from the answer to the image, as part of a sentence; empty if it can be."""
        config = self.model.config
        return str(config.obstacle_to("rollout"))

    @property
    def shown_heads(self) -> tuple[int, ...]:
        """Heads of each layer of attention that can be shown, first layer first."""
        return heads_on_grids(self.model)

    def attention(self, images: Images) -> Attended:
        """Return the attention of every layer."""
        with evaluating(self.model), torch.inference_mode():
            return attend(self.model, self._placed(images))

    def class_attention(self, images: Images, target: int | None = None) -> ClassAttention:
        """Return the attention of every layer with the gradients of a class."""
        with evaluating(self.model), torch.inference_mode(mode=False), torch.enable_grad():
            return attend_to_class(self.model, self._placed(images), target)

    def layer_attention(self, images: Images, layer: int | None = None) -> LayerAttention:
        """Return where one layer looks."""
        with evaluating(self.model), torch.inference_mode():
            return attend_in_layer(self.model, self._placed(images), layer)

    def class_maps(self, images: Images, target: int | None = None) -> ClassMaps:
        """Return the last feature maps with the gradients of a class."""
        with evaluating(self.model), torch.inference_mode(mode=False), torch.enable_grad():
            return last_maps(self.model, self._placed(images), target)

    def _computed(self, compute: Callable[[Images], Tensor], images: Images) -> Float[Tensor, "batch values"]:
        with evaluating(self.model), torch.inference_mode():
            return compute(self._placed(images)).float().cpu()

    def _placed(self, images: Images) -> Images:
        """Return the images on the network's device and in its precision."""
        like = next(self.model.parameters())
        return images.to(like.device, like.dtype)


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode; afterwards, even after an error, restore the mode of every module.

    Modules are restored one by one: a norm that a user keeps in evaluation mode while the rest trains stays in it.
    """
    training = [module for module in network.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True
