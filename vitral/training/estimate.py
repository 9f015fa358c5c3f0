"""What a run will cost, measured on one step of the very network before it starts."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.models.cost import count_parameters
from vitral.objectives.classification import softmax_cross_entropy
from vitral.training.adaptation import adapt
from vitral.training.precision import autocast
from vitral.training.recipe import Recipe

# Bytes a parameter: weight, gradient and two moments in float32, the average where there is one, and a bf16 copy.
STATE_BYTES = 4 * 4 + 2
WEIGHT_BYTES = 4 + 2  # of a parameter that does not learn
SAM_PASSES = 2  # through the network, in place of one
PROBE_IMAGES = 16
TIMED_STEPS = 3


@dataclass(frozen=True)
class Cost:
    """Expected seconds and bytes of a run's training steps."""

    seconds: float
    images_per_second: float
    bytes: int

    def sentence(self, budget_seconds: float | None) -> str:
        """Return the expectation as one line for the user; a time budget that is shorter cuts the run to it."""
        cut = ""
        if budget_seconds is not None and budget_seconds < self.seconds:
            cut = f", cut to the {_duration(budget_seconds)} of --time"
        return (
            f"Expected: about {_duration(self.seconds)} of training at {self.images_per_second:.0f} images/s{cut}; "
            f"{self.bytes / 2**30:.1f} GiB of memory beyond the libraries'."
        )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 100 else f"{seconds:.0f} s"


def estimate(classifier: Classifier, recipe: Recipe) -> Cost:
    """Time one forward and backward pass on a copy of the network; the network itself is not touched."""
    model = copy.deepcopy(classifier.model).train()
    adapt(model, recipe.adaptation, seed=0)
    device = next(model.parameters()).device
    count = min(PROBE_IMAGES, recipe.batch_size)
    pictures = torch.zeros(count, 3, *model.image_size, device=device)
    labels = torch.zeros(count, dtype=torch.int64, device=device)

    def step() -> None:
        with autocast(device, recipe.precision):
            loss = softmax_cross_entropy(model(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]

    saved = _saved_bytes(step)
    rate = count / min(_timed(step, device) for _ in range(TIMED_STEPS))
    here = recipe.batch_size // (distributed.world() * recipe.compute.accumulation)
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    memory = saved * here // count + learned * STATE_BYTES + (count_parameters(model) - learned) * WEIGHT_BYTES
    rate *= distributed.world() / (1 if recipe.optimizer.sam_rho is None else SAM_PASSES)
    images = (recipe.steps or 0) * recipe.batch_size
    return Cost(seconds=images / rate, images_per_second=rate, bytes=memory)


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
