"""What is timed of the very network: steps of copies of it, in each precision, and images that it scores."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Parameter

from vitral import distributed, torchrun
from vitral.classifier.classifier import Classifier
from vitral.data.batch import Batch
from vitral.data.source import Source
from vitral.data.subset import Subset
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.region_scores import tally_source
from vitral.inference.kept_speeds import Effort, keep_speeds, known_speeds
from vitral.machine import has_native_bf16
from vitral.models.families import count_macs
from vitral.tasks.regions import Regions
from vitral.tasks.task import Label, Targets
from vitral.training.clock import MEASURING_SHARE, TIMED_IMAGES_SHARE
from vitral.training.facts import STATE_BYTES, Measured, faster, timed
from vitral.training.methods.method import Context, build_method
from vitral.training.methods.views import View
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import mixes
from vitral.training.step import Step

WEIGHT_BYTES = 4 + 2  # a parameter that does not learn: its weight in float32 and a bf16 copy
SAM_PASSES = 2  # through the network, instead of one
FEW_REGIONS = 10  # in an image of a timed step
PROBE_IMAGES = 16  # of a timed step,
PROBE_MACS = 4e10  # multiply-accumulates beyond which there are fewer
FEWEST = 3  # images of a timed step, where there is no time for more; a batch norm cannot learn from less than two
TIMED_STEPS = 2  # the steps that measured the memory have warmed the kernels up
WARM_IMAGES = 2  # images of the timed predictions, to warm up,
MORE_IMAGES = 16  # and so many more if there is time
# Where precisions are compared:
COMPARED_MACS = 4e9  # multiply-accumulates: a step of fewer takes as long as calling its layers;
COMPARED_IMAGES = 64  # at most;
COMPARED_TURNS = 2  # steps of each, of which the fastest counts
# What a measured step goes without: the whole batch at once, in this process, as it is, and nothing besides.
PLAIN = {
    "compute.accumulation": 1,
    "compute.checkpointing": False,
    "compute.compile": False,
    "compute.sharding": "none",
    "compute.expert_parallel": False,
    "averaging.decay": None,
}


def measure(
    classifier: Classifier, recipe: Recipe, *, budget_seconds: float | None = None, scored: Source | None = None
) -> Measured:
    """Time gradients of the training's own step on a copy of the network; the network and the random state stay as they are.

    The update itself is left out: it takes little beside a batch's gradients, and its memory is known; only Muon's, which
    orthogonalises every matrix, is timed by itself.

    Args:
        classifier: The network with its preprocessing.
        recipe: The settings.
        budget_seconds: What the whole command may take; the measurement makes do with fewer images then.
        scored: Images on which the run is scored, some of which are timed with a budget; None for none.
    """
    within = None if budget_seconds is None else MEASURING_SHARE * budget_seconds
    device = next(classifier.model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        speeds = step_speeds(classifier, recipe, within)
        if speeds:
            recipe = recipe.with_changes({"precision": faster(speeds)})
        probe = _Probe(classifier, recipe)
        most = max(FEWEST, min(PROBE_IMAGES, int(PROBE_MACS // count_macs(classifier.model.config))))
        few = FEWEST if within is not None else most
        image_bytes = probe.image_bytes(few)
        rate = probe.rate(few, times=2 if within is not None else TIMED_STEPS)
        if within is not None:
            more = min(most, int(within * distributed.broadcast(rate) / (1 + TIMED_STEPS)))
            rate = probe.rate(more, times=1 + TIMED_STEPS) if more > few else rate
        rate = max(rate, speeds.get(recipe.precision, 0.0))  # a machine that was busy for these seconds is faster
        update_seconds = probe.update_seconds() if recipe.optimizer.name == "muon" else 0.0
    rate *= distributed.world() / (1 if recipe.optimizer.sam_rho is None else SAM_PASSES)
    image_seconds = None
    if budget_seconds is not None and scored is not None:
        image_seconds = distributed.broadcast(time_images(classifier, scored, TIMED_IMAGES_SHARE * budget_seconds))
    return distributed.broadcast(
        Measured(rate, probe.fixed_bytes(), image_bytes, update_seconds, image_seconds, speeds)
    )


def step_speeds(classifier: Classifier, recipe: Recipe, within: float | None) -> dict[str, float]:
    """Return the images/s that learn in each precision which "auto" leaves open, measured in turns, once for a machine.

    Whether bfloat16 is faster is a matter of processor and network, which no flag tells: of two processors that have its
    instructions one multiplies half as fast in it, and convolutions of single channels are slower in it on both. On a GPU it
    halves the memory besides, and is taken.

    Args:
        classifier: The network with its preprocessing.
        recipe: The settings.
        within: Seconds that a measurement may take, of few images if need be; None for as long as it needs.

    Returns:
        The speeds by precision; empty where there is none to choose, or a few images would take longer.
    """
    device = next(classifier.model.parameters()).device
    if recipe.precision != "auto" or device.type != "cpu" or not has_native_bf16(device):
        return {}
    config = classifier.model.config
    of = ["step", torch.__version__, repr(config), recipe.method.name, recipe.adaptation.model_dump(mode="json")]
    speeds = distributed.by_main(lambda: known_speeds(of, device))
    if not speeds:
        count = max(FEWEST, min(recipe.batch_size, COMPARED_IMAGES, int(COMPARED_MACS // count_macs(config))))
        effort = Effort()
        speeds = _compared(classifier, recipe, count, within)
        if speeds and torchrun.is_main():
            keep_speeds(of, device, speeds, effort)
    return speeds


def _compared(classifier: Classifier, recipe: Recipe, count: int, within: float | None) -> dict[str, float]:
    probes = {name: _Probe(classifier, recipe.with_changes({"precision": name})) for name in ("bf16", "fp32")}
    few, turns = min(FEWEST, count), COMPARED_TURNS
    for probe in probes.values():  # a few images, which warm the kernels up, tell whether there is time for more
        seconds = few / distributed.broadcast(probe.rate(few, times=1))
        if within is not None and seconds > within:
            return {}
        if within is not None and seconds * count / few * len(probes) * COMPARED_TURNS > within:
            count, turns = few, 1  # convolutions learn half as fast in the wrong precision
    rates = dict.fromkeys(probes, 0.0)
    for _ in range(turns):
        rates |= {name: max(rates[name], probe.rate(count, times=1)) for name, probe in probes.items()}
    return distributed.broadcast(rates)


def time_images(classifier: Classifier, source: Source, seconds: float) -> float:
    """Return the seconds of one image read and put through the network: two are timed, and more where `seconds` allow."""

    def an_image(count: int) -> float:
        images = Subset(source, range(min(count, len(source))))
        start = time.perf_counter()
        if classifier.task.dense:
            tally_source(classifier, images)
        else:
            predict_probabilities(classifier, images)
        return (time.perf_counter() - start) / len(images)

    an_image(WARM_IMAGES)
    cost = an_image(WARM_IMAGES)
    enough = distributed.broadcast(cost * MORE_IMAGES > seconds)  # the processes share the images
    return cost if enough or len(source) <= WARM_IMAGES else an_image(WARM_IMAGES + MORE_IMAGES)


class _Probe:
    """Steps of a copy of all that a run trains, on so many empty images."""

    def __init__(self, classifier: Classifier, recipe: Recipe) -> None:
        self.recipe, self.task = recipe.with_changes(PLAIN), classifier.task
        self.num_classes = len(classifier.class_names)
        model = copy.deepcopy(classifier.model)
        adapt(model, recipe.adaptation, seed=0)
        training_mode(model, recipe.adaptation)
        normalize = classifier.preprocessing.normalize
        # Equal classes take the same time as any.
        context = Context(tuple(classifier.class_names), normalize, class_images=(1,) * self.num_classes)
        self.image_size = model.image_size
        self.method = build_method(model, self.recipe, self.task, context)
        self.step = Step(self.method, self.recipe, normalize)

    def batch(self, count: int) -> Batch:
        """Return a batch of empty images, in every view and with as many of further sources as a whole batch would have."""
        recipe, views = self.recipe, self.method.views(self.recipe)
        partner = mixes(recipe.mixing) and any(view.mixed for view in views)
        labels = self.task.encode([self._label()] * (count + partner), self.num_classes)
        extra = {}
        for name, source in self.method.sources(recipe).items():
            further = max(1, round(count * source.batch_size / recipe.batch_size))
            extra[name] = self._empty(further, source.views, torch.full((further,), -1))
        return replace(self._empty(count, views, labels, partner=partner), extra=extra)

    def _label(self) -> Label:
        """Return a label of the task: of regions a few, which take the time that most photos' take."""
        if not self.task.dense:
            return self.task.label([0])
        height, width = self.image_size
        masks = np.zeros((FEW_REGIONS, height, width), dtype=bool)
        masks[:, : height // 2, : width // 2] = True
        return Regions.of_masks((height, width), [0] * FEW_REGIONS, list(masks))

    def _empty(self, count: int, views: Sequence[View], labels: Targets, *, partner: bool = False) -> Batch:
        images = torch.zeros(count + partner, 3, *self.image_size, dtype=torch.uint8)
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
        return count / min(timed(lambda: self.learn(batch), self.step.device) for _ in range(times))

    def update_seconds(self) -> float:
        """Return the seconds of an update by gradients that are there; the copy is of no use afterwards."""
        for parameter in self._parameters():
            if parameter.requires_grad:
                parameter.grad = torch.ones_like(parameter)

        def update() -> None:
            for optimizer in self.step.optimizers:
                optimizer.step()

        update()  # which makes its state
        return timed(update, self.step.device)

    def _parameters(self) -> list[Parameter]:
        module = self.method.module
        return list(module.parameters())

    def fixed_bytes(self) -> int:
        """Return what weights, gradients and optimizers take, whatever the batch."""
        parameters = self._parameters()
        learned = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        return learned * STATE_BYTES + (sum(p.numel() for p in parameters) - learned) * WEIGHT_BYTES


def _saved_bytes(step: Callable[[], None]) -> int:
    """Run a step and return the bytes that it keeps for its backward pass; it warms the kernels up, too."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        step()
    return sum(kept.values())
