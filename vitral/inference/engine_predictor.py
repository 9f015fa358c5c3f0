"""The predictor that leaves the logits to a runtime, and everything else to the network in torch."""

from vitral.errors import ModelError, VitralError, one_line
from vitral.inference.copies import state_of
from vitral.inference.engines import Engine, Precision
from vitral.inference.predictor import Attended, ClassAttention, ClassMaps, LayerAttention, Predictor
from vitral.inference.quantization import Quantization
from vitral.inference.runtimes import RUNTIMES, Compute, integers, merging
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import keep_freed_memory
from vitral.models.model import Features, Images, Logits, Model


def said_of_merging(count: int) -> str:
    """Return what is added to the name of a computation that merges so many tokens in a block; nothing for none."""
    return f", {count} tokens merged a block" if count else ""


class EnginePredictor(Predictor):
    """Computes the logits by a runtime in a precision; features, attention and gradients are the network's own, in float32.

    The runtime takes the network as it is at the first call, and anew after a change of its weights or its size. A change that
    torch does not count, in place through `.data` (`weight.data.mul_(3)`), is not seen: write under `torch.no_grad()` instead.

    A predictor that is pickled or copied leaves behind what was made of the network; it is made anew at the next call.

    Args:
        model: the network, which stays as it is.
        engine: the runtime.
        precision: in which the runtime computes.
        quantization: of the network, for int8.
        merge: tokens that each block but the last is to have fewer; 0 for the network as it is.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        precision: Precision,
        quantization: Quantization | None = None,
        merge: int = 0,
    ) -> None:
        self.model, self.engine, self.precision = model, engine, precision
        self.quantization, self.merge = quantization, merge
        self._own = TorchPredictor(model)
        self._made: tuple[object, Compute] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled or copied: all but what a runtime made, which holds memory of its own kind."""
        return {**self.__dict__, "_made": None}

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""
        return self._own.image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self._own.num_classes

    @property
    def num_parameters(self) -> int:
        """The number of learned values."""
        return self._own.num_parameters

    @property
    def computed_by(self) -> str:
        """The runtime and the precision, and how many tokens are merged."""
        return f"{self.engine} in {self.precision}{said_of_merging(self.merge)}"

    @property
    def fingerprint(self) -> str:
        """Of the integers that the network becomes; empty in other precisions."""
        return "" if self.quantization is None else repr(self.quantization)

    @property
    def exact(self) -> Predictor:
        """The network in torch, as it is."""
        return self._own

    def describe(self) -> str:
        """Return the variant's name, or the family's where the network is of no variant."""
        return self._own.describe()

    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images.

        Raises:
            ModelError: the runtime is not installed, or cannot compute this network; or images of another size.
        """
        try:
            return self._compute()(images)
        except VitralError:
            raise
        except Exception as error:  # a runtime raises anything
            raise ModelError(
                f"{self.computed_by} cannot compute {self.describe()} ({one_line(error)}); take another engine."
            ) from error

    def _compute(self) -> Compute:
        state = state_of(self.model)
        if self._made is None or self._made[0] != state:
            keep_freed_memory()
            self._made = state, self._make()
        return self._made[1]

    def _make(self) -> Compute:
        if self.merge:
            return merging(self.model, self.engine, self.precision, self.merge, self.quantization)
        if self.quantization is not None:
            return integers(self.model, self.quantization)
        return RUNTIMES[self.engine](self.model, self.precision)

    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images."""
        return self._own.features(images)

    @property
    def has_attention(self) -> bool:
        """Whether the network is explained by its attention."""
        return self._own.has_attention

    @property
    def is_linear(self) -> bool:
        """Whether the network is a linear layer on the shrunk image."""
        return self._own.is_linear

    @property
    def no_rollout(self) -> str:
        """Why attention cannot be followed from the answer to the image; empty if it can be."""
        return self._own.no_rollout

    def attention(self, images: Images) -> Attended:
        """Return the attention of every layer."""
        return self._own.attention(images)

    def class_attention(self, images: Images, target: int | None = None) -> ClassAttention:
        """Return the attention of every layer with the gradients of a class."""
        return self._own.class_attention(images, target)

    def layer_attention(self, images: Images, layer: int | None = None) -> LayerAttention:
        """Return where one layer looks."""
        return self._own.layer_attention(images, layer)

    def class_maps(self, images: Images, target: int | None = None) -> ClassMaps:
        """Return the last feature maps with the gradients of a class."""
        return self._own.class_maps(images, target)
