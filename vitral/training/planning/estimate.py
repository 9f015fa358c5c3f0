"""What a run will cost, measured on one step of the very network before it starts."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.errors import RecipeError
from vitral.models.cost import count_macs, count_parameters
from vitral.models.model import Model
from vitral.objectives.classification import softmax_cross_entropy
from vitral.training.optimization.adaptation import adapt
from vitral.training.optimization.precision import autocast
from vitral.training.planning.memory import fit_memory, usable_bytes
from vitral.training.settings.recipe import Recipe

# Bytes a parameter: weight, gradient and two moments in float32, the average where there is one, and a bf16 copy.
STATE_BYTES = 4 * 4 + 2
WEIGHT_BYTES = 4 + 2  # of a parameter that does not learn
SAM_PASSES = 2  # through the network, in place of one
PROBE_IMAGES, PROBE_MACS = 16, 1e11  # images of a timed step, and multiply-accumulates beyond which there are fewer
FEWEST = 2  # images of a timed step, where there is no time for more
MEASURING_SHARE = 0.02  # of a time budget, for measuring beforehand
TIMED_STEPS = 3
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86_400, 365 * 86_400  # seconds


@dataclass(frozen=True)
class Cost:
    """What a run's training steps are expected to cost.

    Attributes:
        seconds: of all steps.
        images_per_second: over all processes.
        fixed_bytes: of weights, gradients and optimizer.
        image_bytes: that an image needs between its forward and backward pass.
    """

    seconds: float
    images_per_second: float
    fixed_bytes: int
    image_bytes: int

    def sentence(self, recipe: Recipe, budget_seconds: float | None) -> str:
        """Return the expectation as one line for the user; a time budget that is shorter cuts the run to it."""
        cut = ""
        if budget_seconds is not None and budget_seconds < self.seconds:
            cut = f", cut to the {duration(budget_seconds)} of --time"
        part = -(-_share(recipe) // (recipe.compute.accumulation or 1))
        memory = (self.fixed_bytes + part * self.image_bytes) / 2**30
        return (
            f"Expected: about {duration(self.seconds)} of training at {self.images_per_second:.3g} images/s{cut}; "
            f"{memory:.1f} GiB of memory beyond the libraries'."
        )


def duration(seconds: float) -> str:
    """Return a number of seconds in the unit that fits it, from seconds to years."""
    units = ((100, 1, "s"), (100 * MINUTE, MINUTE, "min"), (2 * DAY, HOUR, "h"), (2 * YEAR, DAY, "days"))
    size, unit = next(((size, unit) for limit, size, unit in units if seconds < limit), (YEAR, "years"))
    return f"{seconds / size:,.0f} {unit}"


def fit_machine(classifier: Classifier, recipe: Recipe, budget_seconds: float | None) -> tuple[Recipe, Cost, list[str]]:
    """Return the recipe as this machine can carry it out, and what that will cost, as figures and a line each.

    Raises:
        RecipeError: without a time budget the run would take years.
    """
    within = None if budget_seconds is None else MEASURING_SHARE * budget_seconds
    cost = estimate(classifier, recipe, within=within)
    usable = usable_bytes(next(classifier.model.parameters()).device)
    fitted, reasons = fit_memory(
        recipe, fixed=cost.fixed_bytes, an_image=cost.image_bytes, images=_share(recipe), usable=usable
    )
    if distributed.broadcast(cost.seconds) > YEAR and budget_seconds is None:  # refused by all processes or by none
        raise RecipeError(
            f"The recipe '{recipe.name}' would train for about {duration(cost.seconds)} on this machine "
            f"({recipe.steps:,} steps of {recipe.batch_size:,} images at {cost.images_per_second:.3g} images/s). "
            "Give the run a budget with --time 8h, or fewer steps with --set steps=1000."
        )
    return fitted, cost, [*reasons, cost.sentence(fitted, budget_seconds)]


def estimate(classifier: Classifier, recipe: Recipe, *, within: float | None = None) -> Cost:
    """Time forward and backward passes on a copy of the network; the network itself is not touched.

    Args:
        classifier: the network with its preprocessing.
        recipe: the settings; `steps` must be set.
        within: seconds that the measurement may take, about; it makes do with fewer images then.
    """
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
    total = (recipe.steps or 0) * recipe.batch_size
    return Cost(seconds=total / rate, images_per_second=rate, fixed_bytes=fixed, image_bytes=image_bytes)


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
        """Return images a second in the fastest of some steps."""
        return self.count / min(_timed(lambda: self.step(self.count), self.device) for _ in range(times))


def _share(recipe: Recipe) -> int:
    return recipe.batch_size // distributed.world()


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
