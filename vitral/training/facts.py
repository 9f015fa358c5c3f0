"""What a plan depends on besides the request: the data, the weights, the machine; all that is timed is timed here, once."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Parameter, functional

from vitral import distributed, torchrun
from vitral.classifier.classifier import Classifier
from vitral.data.batch import Batch
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.evaluation.evaluate import predict_probabilities
from vitral.images.augment import Augmentation
from vitral.images.decode import detail_side
from vitral.inference.kept_speeds import keep_speeds, known_speeds
from vitral.machine import has_native_bf16, memory_bytes
from vitral.models.families import count_macs, count_parameters
from vitral.tasks.task import Targets, Task
from vitral.training.clock import MEASURING_SHARE, READING_SECONDS, TIMED_IMAGES_SHARE
from vitral.training.methods.method import Context, build_method
from vitral.training.methods.views import View, mixes
from vitral.training.optimization.adaptation import adapt, batch_norms, linear_layers, training_mode
from vitral.training.optimization.optimizers import autocast, training_device
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import Precision
from vitral.training.step import Step

SIZES = (32, 48, 64, 80, 96, 112, 128, 160)  # pixels, of images from which a network learns without weights
SAMPLED_IMAGES = 16  # whose sizes are looked at

# Of all memory, and not of what happens to be free: the number of parts decides the order of sums, and with it the last bits.
HOST_FRACTION = 0.5
DEVICE_FRACTION = 0.85
# Bytes a parameter: weight, gradient and two moments in float32, the average where there is one, and a bf16 copy.
STATE_BYTES = 4 * 4 + 2
WEIGHT_BYTES = 4 + 2  # of a parameter that does not learn

# The convolution of a usual size by which the machine's speed is measured before any network is chosen:
SPEED_IMAGES = 64
SPEED_CHANNELS = 256
SPEED_SIDE = 8
SPEED_ROUNDS = 4  # of which the fastest counts: the first one allocates
NETWORK_EFFICIENCY = 0.8  # of that speed, which a whole network reaches

SAM_PASSES = 2  # through the network, instead of one
PROBE_IMAGES = 16  # of a timed step,
PROBE_MACS = 4e10  # multiply-accumulates beyond which there are fewer
FEWEST = 3  # images of a timed step, where there is no time for more; a batch norm cannot learn from less than two
TIMED_STEPS = 2  # the steps that measured the memory have warmed the kernels up
WARM_IMAGES = 2  # images of the timed predictions, to warm up,
MORE_IMAGES = 16  # and so many more if there is time
# Where precisions are compared:
COMPARED_MACS = (
    4e9  # multiply-accumulates, by which a step is long enough to show more than what calling its layers takes;
)
COMPARED_TURNS = 3  # steps of each, of which the fastest counts
BF16_WORTH = 1.1  # times fp32's speed from which bf16 is taken: less is chance, and bf16 rounds
# What a measured step goes without: the whole batch at once, in this process, as it is, and nothing besides.
PLAIN = {
    "compute.accumulation": 1,
    "compute.checkpointing": False,
    "compute.compile": False,
    "compute.sharding": "none",
    "compute.expert_parallel": False,
    "averaging.decay": None,
}


@dataclass(frozen=True)
class DataFacts:
    """What the data are.

    Attributes:
        images: Training images; of an endless source as many as it counts.
        an_epoch: Images that count as a pass over them.
        classes: The number of classes.
        task: What a label is.
        augmentation: How images of this kind may vary.
        side: The images' shorter side, pixels, the middle of a sample; None where nothing depends on it.
        detail: The shorter side, pixels, at which they show as much, where they were enlarged; None where they were not, or
            nothing depends on it.
        judged: Whether there are validation images, by which a trained network is compared with the first classifier.
        reading_seconds: What the command took until its plan was made: reading them, without a start's download.
    """

    images: int
    an_epoch: int
    classes: int
    task: Task
    augmentation: Augmentation
    side: float | None = None
    detail: float | None = None
    judged: bool = True
    reading_seconds: float = 0.0

    @property
    def known_side(self) -> float:
        """The images' shorter side, pixels."""
        assert self.side is not None, "the images' size was not looked at"
        return self.side


@dataclass(frozen=True)
class WeightsFacts:
    """What the trained weights are that a run starts from.

    Attributes:
        config: The config of their network.
        parameters: The network's parameters.
        macs: Multiply-accumulates of an image at the network's own size.
        blocks: The network's blocks, as `Model.blocks` counts them.
        low_rank: Whether they have linear layers, which LoRA changes.
        convolutional: Whether they are convolutions with batch norms, and no linear layers.
    """

    config: Any
    parameters: int
    macs: int
    blocks: int
    low_rank: bool
    convolutional: bool = False


@dataclass(frozen=True)
class MachineFacts:
    """What the run is carried out on.

    Attributes:
        gpu_bytes: Memory of the GPU; None without one.
        usable_bytes: Memory that the run may plan with on its device; None where the system does not say.
        processes: The processes that share the work.
        macs_per_second: Multiply-accumulates of forward passes that training goes through in a second, backward passes
            included; None where nothing depends on it.
    """

    gpu_bytes: int | None = None
    usable_bytes: int | None = None
    processes: int = 1
    macs_per_second: float | None = None

    @property
    def has_gpu(self) -> bool:
        """Whether the run learns on a GPU."""
        return self.gpu_bytes is not None

    @property
    def known_speed(self) -> float:
        """Multiply-accumulates of forward passes that training goes through in a second."""
        assert self.macs_per_second is not None, "the machine's speed was not measured"
        return self.macs_per_second

    @property
    def own_speed(self) -> float:
        """The same of this process alone, where the others of a job wait for what it does."""
        return self.known_speed / self.processes


@dataclass(frozen=True)
class Measured:
    """What steps of the very network took on this machine.

    Attributes:
        images_per_second: Images that learn, over all processes.
        fixed_bytes: Memory of weights, gradients and optimizer.
        image_bytes: Memory that an image needs between its forward and backward pass.
        update_seconds: An update beside its gradients, where the optimizer multiplies matrices for it; otherwise it is
            nothing beside them, and 0.
        speeds: Images/s that learn in each precision, of a few at once; empty where there was none to choose.
        image_seconds: Seconds of one image read and put through the network, without a gradient; None without a budget.
    """

    images_per_second: float
    fixed_bytes: int
    image_bytes: int
    update_seconds: float = 0.0
    image_seconds: float | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """How short trainings with and without something compare, in answers about images that were held out.

    Attributes:
        kept: Right answers of networks that were trained with it.
        left_out: Right answers of those without it.
        different: Answers that only one of two has right which differ in nothing else.
        answers: All answers of each of the two kinds.
    """

    kept: int
    left_out: int
    different: int
    answers: int


@dataclass(frozen=True)
class Facts:
    """Everything that a plan depends on besides the request.

    Attributes:
        data: What the data are.
        machine: What the run is carried out on.
        budget_seconds: What the command may take, less what reading took beyond what is usual; None for as long as it needs.
        weights: What the run starts from; None for random weights.
        measured: What the network that was chosen takes; None before it is built.
        fresh: What a network takes that is tried from scratch beside a start; None where none is.
        views: What was tried of how images vary, by what was in doubt; see `view_trials`.
    """

    data: DataFacts
    machine: MachineFacts
    budget_seconds: float | None = None
    weights: WeightsFacts | None = None
    measured: Measured | None = None
    fresh: Measured | None = None
    views: Mapping[str, Compared] = field(default_factory=dict)

    def at(self, spent: float, budget_seconds: float | None) -> "Facts":
        """Return the facts when the plan is made: after `spent` seconds of what the whole command may take, or None."""
        left = None if budget_seconds is None else budget_seconds - max(spent - READING_SECONDS, 0.0)
        return replace(self, data=replace(self.data, reading_seconds=spent), budget_seconds=left)

    @property
    def task(self) -> Task:
        """What a label is."""
        return self.data.task

    @property
    def known_weights(self) -> WeightsFacts:
        """What the trained weights are."""
        assert self.weights is not None, "the weights were not looked at"
        return self.weights


def look(data: DataSet, *, sized: bool, timed: bool) -> Facts:
    """Return the facts of data and machine.

    Args:
        data: What to learn.
        sized: Whether the images' size decides anything: only then they are looked at.
        timed: Whether the network is to be chosen, by the machine's speed and the detail that the images show.
    """
    train = data.splits["train"]
    side, detail = median_sides(train, detailed=timed) if sized or timed else (None, None)
    return Facts(
        data=DataFacts(
            images=len(train),
            an_epoch=data.images_an_epoch(),
            classes=len(data.class_names),
            task=data.task,
            augmentation=data.augmentation,
            side=side,
            detail=detail,
            judged="validation" in data.splits,
        ),
        machine=look_at_machine(timed=timed),
    )


def look_at_weights(loaded: Classifier) -> WeightsFacts:
    """Return what trained weights are."""
    model = loaded.model
    return WeightsFacts(
        config=model.config,
        parameters=count_parameters(model),
        macs=count_macs(model.config),
        blocks=len(model.blocks()),
        low_rank=bool(linear_layers(model)),
        convolutional=bool(batch_norms(model)) and not linear_layers(model),
    )


def look_at_machine(*, timed: bool = False) -> MachineFacts:
    """Return what this machine has for a run, and how fast it is if that is to be measured."""
    device = training_device()
    speed = distributed.broadcast(training_speed(device)) if timed else None
    return MachineFacts(
        gpu_bytes=torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None,
        usable_bytes=usable_bytes(device),
        processes=distributed.world(),
        macs_per_second=None if speed is None else speed * distributed.world(),
    )


def median_sides(train: Source, *, detailed: bool) -> tuple[float, float | None]:
    """Return the shorter side, in pixels, of the middle one of some images, and the side at which it shows as much.

    The latter is None where most were not enlarged, or where `detailed` is false.
    """
    own, shown = [], []
    for index in np.linspace(0, len(train) - 1, min(len(train), SAMPLED_IMAGES)).astype(int):
        pixels = train.image(int(index))
        own.append(min(pixels.shape[:2]))
        shown.append((detail_side(pixels, SIZES) if detailed else None) or np.inf)  # whatever its own size
    side, detail = float(np.median(own)), float(np.median(shown))
    return side, detail if detail < side else None


def usable_bytes(device: torch.device) -> int | None:
    """Return the bytes that a run may plan with on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(DEVICE_FRACTION * torch.cuda.get_device_properties(device).total_memory)
    most = memory_bytes()
    return None if most is None else int(HOST_FRACTION * most)


def training_speed(device: torch.device) -> float:
    """Return the multiply-accumulates of forward passes that training goes through in a second, backward passes included.

    It is that of the faster precision, as training takes it.
    """
    weight = torch.zeros(SPEED_CHANNELS, SPEED_CHANNELS, 3, 3, device=device).to(memory_format=torch.channels_last)
    maps = torch.zeros(SPEED_IMAGES, SPEED_CHANNELS, SPEED_SIDE, SPEED_SIDE, device=device).to(
        memory_format=torch.channels_last
    )
    maps.requires_grad_()
    weight.requires_grad_()
    precisions: tuple[Precision, ...] = ("fp32", "auto") if device.type == "cpu" else ("auto",)
    seconds = min(
        timed(partial(_convolve, maps, weight, precision), device)
        for _ in range(SPEED_ROUNDS)
        for precision in precisions
    )
    return NETWORK_EFFICIENCY * SPEED_IMAGES * SPEED_SIDE**2 * SPEED_CHANNELS**2 * 9 / seconds


def _convolve(maps: Tensor, weight: Tensor, precision: Precision) -> None:
    with autocast(maps.device, precision):
        result = functional.conv2d(maps, weight, padding=1)
    result.float().sum().backward()  # type: ignore[no-untyped-call]


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
        if within is not None and (1 + TIMED_STEPS) * most / distributed.broadcast(rate) <= within:
            rate = probe.rate(most, times=1 + TIMED_STEPS)
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
        within: Seconds that a measurement may take; None for as long as it needs.

    Returns:
        The speeds by precision; empty where there is none to choose, or no time to measure.
    """
    device = next(classifier.model.parameters()).device
    if recipe.precision != "auto" or device.type != "cpu" or not has_native_bf16(device):
        return {}
    config = classifier.model.config
    of = ["step", torch.__version__, repr(config), recipe.method.name, recipe.adaptation.model_dump(mode="json")]
    speeds = distributed.by_main(lambda: known_speeds(of, device))
    if not speeds:
        count = max(FEWEST, min(recipe.batch_size, int(COMPARED_MACS // count_macs(config))))
        speeds = _compared(classifier, recipe, count, within)
        if speeds and torchrun.is_main():
            keep_speeds(of, device, speeds)
    return speeds


def faster(speeds: Mapping[str, float]) -> Precision:
    """Return the precision in which a step is faster: bfloat16 only by more than chance; "auto" where none was measured."""
    if not speeds:
        return "auto"
    return "bf16" if speeds["bf16"] >= BF16_WORTH * speeds["fp32"] else "fp32"


def _compared(classifier: Classifier, recipe: Recipe, count: int, within: float | None) -> dict[str, float]:
    probes = {name: _Probe(classifier, recipe.with_changes({"precision": name})) for name in ("bf16", "fp32")}
    for probe in probes.values():  # which warms the kernels up
        seconds = count / distributed.broadcast(probe.rate(count, times=1))
        if within is not None and seconds * len(probes) * COMPARED_TURNS > within:
            return {}
    rates = dict.fromkeys(probes, 0.0)
    for _ in range(COMPARED_TURNS):
        rates |= {name: max(rates[name], probe.rate(count, times=1)) for name, probe in probes.items()}
    return distributed.broadcast(rates)


def time_images(classifier: Classifier, source: Source, seconds: float) -> float:
    """Return the seconds of one image read and put through the network: two are timed, and more where `seconds` allow."""

    def an_image(count: int) -> float:
        images = Subset(source, range(min(count, len(source))))
        start = time.perf_counter()
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
        self.method = build_method(model, self.recipe, self.task, Context(tuple(classifier.class_names), normalize))
        self.step = Step(self.method, self.recipe, normalize)

    def batch(self, count: int) -> Batch:
        """Return a batch of empty images, in every view and with as many of further sources as a whole batch would have."""
        recipe, views = self.recipe, self.method.views(self.recipe)
        partner = mixes(recipe.mixing) and any(view.mixed for view in views)
        labels = self.task.encode([self.task.label([0])] * (count + partner), self.num_classes)
        extra = {}
        for name, source in self.method.sources(recipe).items():
            further = max(1, round(count * source.batch_size / recipe.batch_size))
            extra[name] = self._empty(further, source.views, torch.full((further,), -1))
        return replace(self._empty(count, views, labels, partner=partner), extra=extra)

    def _empty(self, count: int, views: Sequence[View], labels: Targets, *, partner: bool = False) -> Batch:
        network = self.method.network
        images = torch.zeros(count + partner, 3, *network.image_size, dtype=torch.uint8)
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


def timed(step: Callable[[], None], device: torch.device) -> float:
    """Return the seconds that a step takes on a device."""
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
