"""The predictor that leaves the logits and the features to a runtime, and everything else to the network in torch."""

from vitral.errors import ModelError, VitralError, one_line
from vitral.inference.engines import Computation, Engine, Precision
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import Quantization
from vitral.inference.runtimes import Answers, Compute, compute_of
from vitral.inference.torch_predictor import TorchPredictor, state_of
from vitral.machine import keep_freed_memory
from vitral.models.model import Features, Images, Logits, Model


class EnginePredictor(TorchPredictor):
    """Computes logits and features by a runtime in a precision; attention and gradients are the network's own, in float32.

    The runtime takes the network as it is at the first call, and again after a change of its weights or its size. A change that
    torch does not count, in place through `.data` (`weight.data.mul_(3)`), is not seen: write under `torch.no_grad()` instead.

    A predictor that is pickled or copied leaves behind what was made of the network; the next call makes it again.
    See `compute_of` for the arguments.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        precision: Precision,
        quantization: Quantization | None = None,
        merge: int = 0,
    ) -> None:
        super().__init__(model)
        self.engine, self.precision, self.quantization, self.merge = engine, precision, quantization, merge
        self._made: tuple[object, Compute] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled or copied: all but what a runtime made, which holds memory of its own kind."""
        return {**self.__dict__, "_made": None}

    @property
    def computed_by(self) -> str:
        """The runtime and the precision, and how many tokens are merged."""
        return str(Computation(self.engine, self.precision, self.merge))

    @property
    def fingerprint(self) -> str:
        """Of the integers that the network becomes; empty in other precisions."""
        return "" if self.quantization is None else repr(self.quantization)

    @property
    def exact(self) -> Predictor:
        """The network in torch, as it is."""
        return TorchPredictor(self.model)

    def logits(self, images: Images) -> Logits:
        """Return the logits of prepared images.

        Raises:
            ModelError: The runtime is not installed, or cannot compute this network; or images of another size.
        """
        return self._answers(images).logits

    def features(self, images: Images) -> Features:
        """Return the pooled representations of prepared images; raises what `logits` does."""
        return self._answers(images).features

    def _answers(self, images: Images) -> Answers:
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
            made = compute_of(self.model, self.engine, self.precision, self.quantization, self.merge)
            self._made = state, made
        return self._made[1]
