"""What a run will cost, measured on steps of a copy of what it trains before it starts."""

import contextlib
import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.batch import Batch
from vitral.models.cost import count_macs
from vitral.tasks.task import Targets
from vitral.training.methods.method import Context, build_method
from vitral.training.methods.mixing import mixes
from vitral.training.methods.views import View
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.planning.facts import Measured
from vitral.training.planning.memory import STATE_BYTES, WEIGHT_BYTES
from vitral.training.settings.recipe import Recipe
from vitral.training.step import Step

SAM_PASSES = 2  # through the network, instead of one
PROBE_IMAGES, PROBE_MACS = 16, 4e10  # images of a timed step, and multiply-accumulates beyond which there are fewer
SCORED_IMAGES = 32  # of a timed pass that scores
FEWEST = 3  # images of a timed step, where there is no time for more; a batch norm cannot learn from less than two
MEASURING_SHARE = 0.02  # of a time budget, for measuring beforehand
TIMED_STEPS = 2  # the steps that measured the memory have warmed the kernels up
# What a measured step goes without: the whole batch at once, in this process, as it is, and nothing besides.
PLAIN = {
    "compute.accumulation": 1,
    "compute.checkpointing": False,
    "compute.compile": False,
    "compute.sharding": "none",
    "compute.expert_parallel": False,
    "averaging.decay": None,
}


def measure(classifier: Classifier, recipe: Recipe, *, budget_seconds: float | None = None) -> Measured:
    """Time gradients of the training's own step on a copy of the network; the network and the random state stay as they are.

    The update itself is left out: it takes little beside a batch's gradients, and its memory is known; only Muon's, which
    orthogonalises every matrix, is timed by itself.

    Args:
        classifier: the network with its preprocessing.
        recipe: the settings.
        budget_seconds: what the whole command may take; the measurement makes do with fewer images then.
    """
    within = None if budget_seconds is None else MEASURING_SHARE * budget_seconds
    with _same_random_state(classifier):
        probe = _Probe(classifier, recipe)
        most = max(FEWEST, min(PROBE_IMAGES, int(PROBE_MACS // count_macs(classifier.model.config))))
        few = FEWEST if within is not None else most
        image_bytes = probe.image_bytes(few)
        rate = probe.rate(few, times=2 if within is not None else TIMED_STEPS)
        if within is not None and (1 + TIMED_STEPS) * most / distributed.broadcast(rate) <= within:
            rate = probe.rate(most, times=1 + TIMED_STEPS)
        update_seconds = probe.update_seconds() if recipe.optimizer.name == "muon" else 0.0
    rate *= distributed.world() / (1 if recipe.optimizer.sam_rho is None else SAM_PASSES)
    return Measured(rate, probe.fixed_bytes(), image_bytes, update_seconds)


def scoring_rate(classifier: Classifier) -> float:
    """Return how many images a second the network's forward passes take in float32, images already in memory."""
    model = classifier.model
    device = next(model.parameters()).device
    images = torch.zeros(SCORED_IMAGES, 3, *model.image_size, device=device)

    def score() -> None:
        with torch.inference_mode():
            model(images)

    training = model.training
    model.eval()
    seconds = min(_timed(score, device) for _ in range(1 + TIMED_STEPS))
    model.train(training)
    return SCORED_IMAGES / seconds


@contextlib.contextmanager
def _same_random_state(classifier: Classifier) -> Iterator[None]:
    device = next(classifier.model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class _Probe:
    """Steps of a copy of all that a run trains, on so many empty images."""

    def __init__(self, classifier: Classifier, recipe: Recipe) -> None:
        self.recipe, self.task = recipe.with_changes(PLAIN), classifier.task
        self.num_classes = len(classifier.class_names or ())
        model = copy.deepcopy(classifier.model)
        adapt(model, recipe.adaptation, seed=0)
        training_mode(model)
        normalize = classifier.preprocessing.normalize
        context = Context(tuple(classifier.class_names), normalize)
        self.step = Step(build_method(model, self.recipe, self.task, context), self.recipe, normalize)

    def batch(self, count: int) -> Batch:
        """Return a batch of empty images, in every view and with as many of further sources as a whole batch would have."""
        method, recipe = self.step.method, self.recipe
        views = method.views(recipe)
        partner = mixes(recipe.mixing) and any(view.mixed for view in views)
        labels = self.task.encode([self.task.label([0])] * (count + partner), self.num_classes)
        extra = {}
        for name, source in method.sources(recipe).items():
            further = max(1, round(count * source.batch_size / recipe.batch_size))
            extra[name] = self._empty(further, source.views, torch.full((further,), -1))
        return replace(self._empty(count, views, labels, partner=partner), extra=extra)

    def _empty(self, count: int, views: Sequence[View], labels: Targets, *, partner: bool = False) -> Batch:
        images = torch.zeros(count + partner, 3, *self.step.method.network.image_size, dtype=torch.uint8)
        more = (images,) * (len(views) - 1)
        return Batch(images, labels, torch.arange(len(images)), partner=partner, more=more, erasing=(0.0,) * len(views))

    def learn(self, batch: Batch) -> None:
        """Add up a batch's gradients; of several processes each by itself."""
        self.step.gradients(batch, step=0, together=False)

    def image_bytes(self, count: int) -> int:
        """Return what an image keeps for the backward pass; it warms the kernels up, too."""
        # Two sizes, since weights and their bf16 copies are kept as well, whatever the batch.
        half = max(2, count // 2)
        kept = _saved_bytes(lambda: self.learn(self.batch(count))) - _saved_bytes(lambda: self.learn(self.batch(half)))
        return max(kept, 0) // (count - half)

    def rate(self, count: int, *, times: int) -> float:
        """Return images per second in the fastest of some steps."""
        batch = self.batch(count)
        return count / min(_timed(lambda: self.learn(batch), self.step.device) for _ in range(times))

    def update_seconds(self) -> float:
        """Return the seconds of an update by gradients that are there; the copy is of no use afterwards."""
        for parameter in self.step.method.module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.ones_like(parameter)

        def update() -> None:
            for optimizer in self.step.optimizers:
                optimizer.step()

        update()  # which makes its state
        return _timed(update, self.step.device)

    def fixed_bytes(self) -> int:
        """Return what weights, gradients and optimizers take, whatever the batch."""
        parameters = list(self.step.method.module.parameters())
        learned = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        return learned * STATE_BYTES + (sum(p.numel() for p in parameters) - learned) * WEIGHT_BYTES


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
