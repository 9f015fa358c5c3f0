"""What a plan depends on besides the request: the data, the weights, the machine; `measuring` times the network itself."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn import functional

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.images.augment import Augmentation
from vitral.images.decode import detail_side
from vitral.machine import memory_bytes
from vitral.models.costs import CLASSES, COSTS
from vitral.models.families import count_macs, count_parameters, variant_name
from vitral.models.model import ModelConfig
from vitral.tasks.dense import DenseTask, dense_task
from vitral.tasks.regions import VOID, Regions
from vitral.tasks.task import Task
from vitral.training.clock import (
    BASELINES_SHARE,
    ENDING_SECONDS,
    READING_SECONDS,
    REMEMBERED_SHARE,
    SCORING_SHARE,
    TRAINING_SHARE,
    VALIDATION_SHARE,
)
from vitral.training.optimization.adaptation import batch_norms, linear_layers
from vitral.training.optimization.optimizers import autocast, training_device
from vitral.training.settings.sections import Precision

SIZES = (32, 48, 64, 80, 96, 112, 128, 160)  # pixels, of images from which a network learns without weights
TENTH = 0.1
SAMPLED_IMAGES = 16  # whose sizes are looked at

# Of all memory, and not of what happens to be free: the number of parts decides the order of sums, and with it the last bits.
HOST_FRACTION = 0.5
DEVICE_FRACTION = 0.85
# Bytes a parameter: weight, gradient and two moments in float32, the average where there is one, and a bf16 copy.
STATE_BYTES = 4 * 4 + 2

# The convolution of a usual size by which the machine's speed is measured before any network is chosen:
SPEED_IMAGES = 64
SPEED_CHANNELS = 256
SPEED_SIDE = 8
SPEED_ROUNDS = 4  # of which the fastest counts: the first one allocates
NETWORK_EFFICIENCY = 0.8  # of that speed, which a whole network reaches
BF16_WORTH = 1.1  # times fp32's speed from which bf16 is taken: less is chance, and bf16 rounds


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
        small_regions: The shorter side of the regions of which a tenth are smaller, as a share of the photo's shorter side;
            None where no objects are marked.
        judged: Whether there are validation images, by which a trained network is compared with the first classifier.
    """

    images: int
    an_epoch: int
    classes: int
    task: Task
    augmentation: Augmentation
    side: float | None = None
    detail: float | None = None
    small_regions: float | None = None
    judged: bool = True

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
        margin: The shorter side of photos in use before their middle is cut out, as a multiple of the size; None where the
            whole photo is squashed.
    """

    config: Any
    parameters: int
    macs: int
    blocks: int
    low_rank: bool
    convolutional: bool = False
    margin: float | None = None


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
class ClosedForms:
    """How good the linear layers in closed form are that were fitted before training.

    Attributes:
        head: That on a start's features: the figure of the validation images, or of these and of training images, each left
            out of the fit that judges it, where that is lower.
        pixels: Right answers of that on bare pixels for each of the head's, beyond those by chance.
    """

    head: float
    pixels: float


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
        left_seconds: What is left of `budget_seconds` when training is planned; None before that, and without a budget.
        closed_forms: How good a head on the start's features is already; None where that is unknown.
        views: What was tried of how images vary, by what was in doubt; see `view_trials`.
    """

    data: DataFacts
    machine: MachineFacts
    budget_seconds: float | None = None
    weights: WeightsFacts | None = None
    measured: Measured | None = None
    fresh: Measured | None = None
    left_seconds: float | None = None
    closed_forms: ClosedForms | None = None
    views: Mapping[str, Compared] = field(default_factory=dict)

    def at(self, spent: float, budget_seconds: float | None) -> "Facts":
        """Return the facts when the plan is made: after `spent` seconds of what the whole command may take, or None."""
        left = None if budget_seconds is None else budget_seconds - max(spent - READING_SECONDS, 0.0)
        return replace(self, budget_seconds=left)

    def of_time(self, share: float) -> "Facts":
        """Return the facts with a share of the time."""
        budget, left = (
            None if seconds is None else share * seconds for seconds in (self.budget_seconds, self.left_seconds)
        )
        return replace(self, budget_seconds=budget, left_seconds=left)

    @property
    def training_seconds(self) -> float | None:
        """What training from trained weights may take; None without a budget."""
        if self.budget_seconds is None:
            return None
        usual = TRAINING_SHARE * self.budget_seconds
        if self.left_seconds is None:
            return usual
        besides = (VALIDATION_SHARE + SCORING_SHARE + REMEMBERED_SHARE) * self.left_seconds
        besides += BASELINES_SHARE * self.budget_seconds + 2 * ENDING_SECONDS  # on a machine half as fast as ours
        return min(usual, self.left_seconds - besides)

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
            small_regions=small_regions(train, dense_task(data.task)) if data.task.dense else None,
            judged="validation" in data.splits,
        ),
        machine=look_at_machine(timed=timed),
    )


def small_regions(train: Source, task: DenseTask) -> float | None:
    """Return the shorter side of small regions, as a share of their photo's shorter side.

    Of objects a tenth are smaller. Where pixels have classes, a tenth of those that are not of their photo's commonest class
    are in smaller connected parts: single stray pixels decide nothing.
    """
    sides: list[Float64[np.ndarray, " regions"]] = [np.empty(0)]
    pixels: list[Float64[np.ndarray, " regions"]] = [np.empty(0)]
    for index in np.linspace(0, len(train) - 1, min(len(train), SAMPLED_IMAGES)).astype(int):
        label = train.label(int(index))
        assert isinstance(label, Regions), "the label of another task"
        parts = label.boxes[:, 2:] - label.boxes[:, :2], np.ones(len(label))
        boxes, areas = parts if task.counted else _connected_parts(label)
        sides.append(boxes.min(axis=1) / min(label.size))
        pixels.append(areas)
    lengths, weights = np.concatenate(sides), np.concatenate(pixels)
    return float(np.quantile(lengths, TENTH, weights=weights, method="inverted_cdf")) if weights.sum() else None


def _connected_parts(label: Regions) -> tuple[Float64[np.ndarray, "parts 2"], Float64[np.ndarray, " parts"]]:
    """Return width and height of the connected parts of all classes but the commonest, and their pixels."""
    classes = label.class_map()
    numbers, counts = np.unique(classes[classes != VOID], return_counts=True)
    found = [np.empty((0, 5))]
    for number in np.delete(numbers, counts.argmax()) if len(numbers) else ():
        found.append(cv2.connectedComponentsWithStats((classes == number).astype(np.uint8))[2][1:])
    stats = np.concatenate(found)
    return stats[:, cv2.CC_STAT_WIDTH : cv2.CC_STAT_HEIGHT + 1], stats[:, cv2.CC_STAT_AREA]


def look_at_weights(loaded: Classifier) -> WeightsFacts:
    """Return what trained weights are."""
    model, seen = loaded.model, loaded.preprocessing
    return WeightsFacts(
        config=model.config,
        parameters=count_parameters(model),
        macs=macs_of(model.config),
        blocks=len(model.blocks()),
        low_rank=bool(linear_layers(model)),
        convolutional=bool(batch_norms(model)) and not linear_layers(model),
        margin=1 / seen.crop_fraction if seen.resize == "crop" else None,
    )


def macs_of(config: ModelConfig) -> int:
    """Return `count_macs` of a network: as the list of variants has it, if it is one; to count it here may take a second."""
    listed = COSTS.get(variant_name(config) or "")
    if listed is not None and (config.image_size, config.num_classes) == (listed.image_size, CLASSES):
        return listed.macs
    return count_macs(config)


def look_at_machine(*, timed: bool = False) -> MachineFacts:
    """Return what this machine has for a run, and how fast it is if that is to be measured."""
    device = training_device()
    speed = distributed.broadcast(training_speed(device)) if timed else None
    return MachineFacts(
        gpu_bytes=gpu_bytes(device),
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
    if (own := gpu_bytes(device)) is not None:
        return int(DEVICE_FRACTION * own)
    most = memory_bytes()
    return None if most is None else int(HOST_FRACTION * most)


def gpu_bytes(device: torch.device) -> int | None:
    """Return the bytes of memory of a GPU, of a Mac's those that it may take; None for a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(torch.mps.recommended_max_memory()) if device.type == "mps" else None


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


def faster(speeds: Mapping[str, float]) -> Precision:
    """Return the precision in which a step is faster: bfloat16 only by more than chance; "auto" where none was measured."""
    if not speeds:
        return "auto"
    return "bf16" if speeds["bf16"] >= BF16_WORTH * speeds["fp32"] else "fp32"


def timed(step: Callable[[], None], device: torch.device) -> float:
    """Return the seconds that a step takes on a device."""
    start = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()
    return time.perf_counter() - start
