"""What a plan depends on besides the request: the data, the weights to start from and the machine, as they are."""

from dataclasses import dataclass
from typing import Any

from vitral.images.augment import Augmentation
from vitral.tasks.task import Task


@dataclass(frozen=True)
class DataFacts:
    """What the data are.

    Attributes:
        images: to train on; of an endless source as many as it counts.
        an_epoch: images that count as a pass over them.
        classes: how many there are.
        task: what a label is.
        augmentation: how images of this kind may vary.
        side: the images' shorter side, pixels, the middle of a sample; None where nothing depends on it.
        detail: the shorter side, pixels, at which they show as much, where they were enlarged; None where they were not, or
            nothing depends on it.
        judged: whether there are validation images, by which what is trained is compared with the first classifier.
        reading_seconds: that the command took until its plan was made, which is reading them but for a start's download.
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


@dataclass(frozen=True)
class WeightsFacts:
    """What the trained weights are that a run starts from.

    Attributes:
        config: of their network.
        parameters: of the network.
        macs: multiply-accumulates of an image at the network's own size.
        blocks: of the network, as `Model.blocks` counts them.
        low_rank: whether they have linear layers, which LoRA changes.
    """

    config: Any
    parameters: int
    macs: int
    blocks: int
    low_rank: bool


@dataclass(frozen=True)
class MachineFacts:
    """What the run is carried out on.

    Attributes:
        gpu_bytes: memory of the GPU; None without one.
        usable_bytes: that the run may plan with on its device; None where the system does not say.
        processes: that share the work.
        macs_per_second: multiply-accumulates of forward passes that training goes through in a second, backward passes
            included; None where nothing depends on it.
    """

    gpu_bytes: int | None = None
    usable_bytes: int | None = None
    processes: int = 1
    macs_per_second: float | None = None


@dataclass(frozen=True)
class Measured:
    """What steps of the very network took on this machine.

    Attributes:
        images_per_second: over all processes.
        fixed_bytes: of weights, gradients and optimizer.
        image_bytes: that an image needs between its forward and backward pass.
        update_seconds: of an update beside its gradients, where the optimizer multiplies matrices for it; otherwise it is
            nothing beside them, and 0.
    """

    images_per_second: float
    fixed_bytes: int
    image_bytes: int
    update_seconds: float = 0.0


@dataclass(frozen=True)
class Facts:
    """Everything that a plan depends on besides the request.

    Attributes:
        data: what the data are.
        machine: what the run is carried out on.
        weights: what it starts from; None for random weights.
        measured: what the network that was resolved takes; None before it is built.
    """

    data: DataFacts
    machine: MachineFacts
    weights: WeightsFacts | None = None
    measured: Measured | None = None
