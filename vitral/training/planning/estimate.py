"""What a run will cost, measured on one step of the very network before it starts."""

import copy
import time
from collections.abc import Callable

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.models.cost import count_macs, count_parameters
from vitral.models.model import Model
from vitral.objectives.classification import softmax_cross_entropy
from vitral.training.optimization.adaptation import adapt
from vitral.training.optimization.precision import autocast
from vitral.training.planning.facts import Measured
from vitral.training.planning.memory import STATE_BYTES, WEIGHT_BYTES
from vitral.training.settings.recipe import Recipe

SAM_PASSES = 2  # through the network, instead of one
PROBE_IMAGES, PROBE_MACS = 16, 1e11  # images of a timed step, and multiply-accumulates beyond which there are fewer
FEWEST = 2  # images of a timed step, where there is no time for more
MEASURING_SHARE = 0.02  # of a time budget, for measuring beforehand
TIMED_STEPS = 3


def measure(classifier: Classifier, recipe: Recipe, *, budget_seconds: float | None = None) -> Measured:
    """Time forward and backward passes on a copy of the network; the network itself is not touched.

    Args:
        classifier: the network with its preprocessing.
        recipe: the settings.
        budget_seconds: what the whole command may take; the measurement makes do with fewer images then.
    """
    within = None if budget_seconds is None else MEASURING_SHARE * budget_seconds
    model = copy.deepcopy(classifier.model).train()
    adapt(model, recipe.adaptation, seed=0)
    most = max(FEWEST, min(PROBE_IMAGES, int(PROBE_MACS // count_macs(model.config))))
    few = _Probe(model, recipe, FEWEST if within is not None else most)
    image_bytes = few.image_bytes()
    rate = few.rate(times=2 if within is not None else TIMED_STEPS)
    if within is not None and (1 + TIMED_STEPS) * most / rate <= within:
        rate = _Probe(model, recipe, most).rate(times=1 + TIMED_STEPS)
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    fixed = learned * STATE_BYTES + (count_parameters(model) - learned) * WEIGHT_BYTES
    rate *= distributed.world() / (1 if recipe.optimizer.sam_rho is None else SAM_PASSES)
    return Measured(images_per_second=rate, fixed_bytes=fixed, image_bytes=image_bytes)


class _Probe:
    """Steps of a copy of the network on so many empty images."""

    def __init__(self, model: Model, recipe: Recipe, count: int) -> None:
        self.model, self.recipe, self.count = model, recipe, count
        self.device = next(model.parameters()).device
        self.images = torch.zeros(count, 3, *model.image_size, device=self.device)
        self.labels = torch.zeros(count, dtype=torch.int64, device=self.device)

    def step(self, count: int) -> None:
        """Go forward and back with some of the images."""
        with autocast(self.device, self.recipe.precision):
            loss = softmax_cross_entropy(self.model(self.images[:count]), self.labels[:count])
        loss.backward()  # type: ignore[no-untyped-call]

    def image_bytes(self) -> int:
        """Return what an image keeps for the backward pass; it warms the kernels up, too."""
        # Two sizes, since weights and their bf16 copies are kept as well, whatever the batch.
        half = self.count // 2
        kept = _saved_bytes(lambda: self.step(self.count)) - _saved_bytes(lambda: self.step(half))
        return max(kept, 0) // (self.count - half)

    def rate(self, *, times: int) -> float:
        """Return images per second in the fastest of some steps."""
        return self.count / min(_timed(lambda: self.step(self.count), self.device) for _ in range(times))


def _saved_bytes(step: Callable[[], None]) -> int:
    """Run a step and return the bytes that it keeps for its backward pass; it warms the kernels up, too."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        step()
    return sum(kept.values())


def _timed(step: Callable[[], None], device: torch.device) -> float:
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
