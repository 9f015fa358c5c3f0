"""What a benchmark sets beside Vitral: a training loop in plain PyTorch, a small CNN, linear models in closed form.

Only the images' split is Vitral's, so that all learn from the same images and are scored on the same others.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from vitral.machine import has_native_bf16, product_speed

SCORED_AT_ONCE = 256
WARM_STEPS = 3  # before a loop's own pace is believed
WARM_UP = 0.2  # of the time in which the learning rate rises; in the rest it falls to 0
BIAS = 10.0  # a constant input so large that the penalty hardly touches it; the others have a mean square of 1
PENALTIES = tuple(10.0 ** (exponent / 2) for exponent in range(-6, 9))  # on the squared weights
FORWARD_SHARE = 0.5  # of a training step's time that scoring as many images takes at most


@dataclass(frozen=True)
class Images:
    """Images in memory.

    Attributes:
        pixels: (images, height, width, 3), 8 bits.
        labels: (images,), classes.
    """

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def size(self) -> int:
        """Pixels a side."""
        return self.pixels.shape[1]


@dataclass(frozen=True)
class Settings:
    """A plain recipe: an optimizer with one cycle of its rate."""

    optimizer: str
    lr: float
    weight_decay: float
    batch_size: int
    label_smoothing: float = 0.1


def read(source: Any, size: int) -> Images:  # noqa: ANN401  # a vitral Source
    """Return all images of a split, squashed to `size` pixels a side."""

    def one(index: int) -> np.ndarray:
        image = source.image(index)
        if image.shape[:2] == (size, size):
            return np.asarray(image)
        return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pixels = np.stack(list(pool.map(one, range(len(source)))))
    return Images(torch.from_numpy(pixels), torch.from_numpy(source.labels()))


def joined(parts: Sequence[Images]) -> Images:
    """Return the images of several splits as one."""
    return Images(torch.cat([part.pixels for part in parts]), torch.cat([part.labels for part in parts]))


def small_cnn(classes: int) -> nn.Module:
    """Return four convolutions with batch norm, each halving the size, and a linear layer on the mean."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128), (128, 256)):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes))


@dataclass
class Plain:
    """A network trained by a plain loop, with the mean and deviation of its images."""

    network: nn.Module
    mean: Tensor
    std: Tensor

    def inputs(self, pixels: Tensor) -> Tensor:
        """Return images as the network takes them, (images, 3, height, width), channels last in memory."""
        return ((pixels.float() - self.mean) / self.std).permute(0, 3, 1, 2)

    def accuracy(self, images: Images) -> float:
        """Return the share of images classified right."""
        self.network.eval()
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=_bf16()):
            parts = [self.network(self.inputs(part)).argmax(dim=1) for part in images.pixels.split(SCORED_AT_ONCE)]
        return float((torch.cat(parts) == images.labels).double().mean())


def train(
    network: nn.Module, images: Images, settings: Settings, seconds: float, *, flip: bool, to_score: int = 0
) -> tuple[Plain, int]:
    """Train until the time is up, less what scoring `to_score` images will take; return the network and its steps.

    Random crops of the images padded by an eighth, flips where `flip` allows them, bfloat16 where the CPU has it. The rate's
    cycle follows the clock, since nobody knows the number of steps beforehand.
    """
    begun, steps = time.perf_counter(), 0
    sample = images.pixels[:: max(1, len(images) // 2000)].float()
    plain = Plain(network.to(memory_format=torch.channels_last), sample.mean((0, 1, 2)), sample.std((0, 1, 2)) + 1.0)
    margin = images.size // 8
    padded = (
        functional.pad(images.pixels.permute(0, 3, 1, 2), (margin,) * 4, mode="reflect")
        .permute(0, 2, 3, 1)
        .contiguous()
    )
    make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[settings.optimizer]
    options: dict[str, Any] = {"momentum": 0.9, "nesterov": True} if settings.optimizer == "sgd" else {}
    optimizer = make(network.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, **options)
    network.train()
    order: list[Tensor] = []
    while True:
        elapsed = time.perf_counter() - begun
        scoring = FORWARD_SHARE * to_score / settings.batch_size * elapsed / steps if steps >= WARM_STEPS else 0.0
        done = elapsed / max(seconds - scoring, 1e-3)
        if done >= 1:
            return plain, steps
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(done / WARM_UP, (1 - done) / (1 - WARM_UP))
        order = order or [rows for rows in torch.randperm(len(images)).split(settings.batch_size) if len(rows) > 1]
        rows = order.pop()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=_bf16()):
            logits = network(plain.inputs(_crops(padded, rows, images.size, flip)))
        loss = functional.cross_entropy(logits.float(), images.labels[rows], label_smoothing=settings.label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1


def _crops(padded: Tensor, rows: Tensor, size: int, flip: bool) -> Tensor:
    """Return a random crop of each image, half of them mirrored."""
    reach = torch.arange(size)
    top, left = (torch.randint(padded.shape[1] - size + 1, (len(rows), 1)) + reach for _ in range(2))
    if flip:
        left = torch.where(torch.rand(len(rows), 1) < 0.5, left.flip(1), left)
    return padded[rows[:, None, None], top[:, :, None], left[:, None, :]]


def linear_accuracy(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> tuple[float, float]:
    """Fit regularised least squares onto targets of -1 and +1.

    The penalty is the one with the best leave-one-out accuracy on the training images, the largest among equals; it follows
    from one decomposition, without a fit for each image.

    Args:
        train: (images, values).
        labels: their classes.
        test: (other images, values).
        test_labels: their classes.

    Returns:
        The accuracy on the other images, and the leave-one-out accuracy on the training images.
    """
    mean = train.mean(0)
    scale = (train - mean).square().sum(1).mean().sqrt() + 1e-6
    train, test = (functional.pad((inputs - mean) / scale, (0, 1), value=BIAS) for inputs in (train, test))
    if len(train) < train.shape[1]:  # the same fit in as many directions as there are images
        left, singular, right = torch.linalg.svd(train, full_matrices=False)
        train, test = left * singular, test @ right.T
    targets = 2.0 * functional.one_hot(labels) - 1.0
    values, vectors = torch.linalg.eigh(train.T @ train)
    train, test = train @ vectors, test @ vectors
    cross, squares = train.T @ targets, train.square()

    def left_out(penalty: float) -> float:
        shrink = 1 / (values.clamp_min(0) + penalty)
        leverage = (squares @ shrink)[:, None]
        fitted = (train @ (shrink[:, None] * cross) - leverage * targets) / (1 - leverage).clamp_min(1e-6)
        return float((fitted.argmax(1) == labels).double().mean())

    scores = {penalty: left_out(penalty) for penalty in reversed(PENALTIES)}
    best = max(scores, key=scores.__getitem__)
    answers = (test @ (cross / (values.clamp_min(0) + best)[:, None])).argmax(1)
    return float((answers == test_labels).double().mean()), scores[best]


def pixels_accuracy(train: Images, test: Images, sizes: Sequence[int]) -> tuple[float, int]:
    """Return the accuracy of a linear model on pixels, and its size, of those given the best on the training images."""
    scored = []
    for size in sizes:
        inputs = [
            functional.interpolate(part.pixels.permute(0, 3, 1, 2).float(), size, mode="area") for part in (train, test)
        ]
        accuracy, left_out = linear_accuracy(inputs[0].flatten(1), train.labels, inputs[1].flatten(1), test.labels)
        scored.append((left_out, accuracy, size))
    _, accuracy, size = max(scored)
    return accuracy, size


def count_macs(network: nn.Module, size: int) -> int:
    """Return the multiply-accumulates of one image's forward pass."""
    was = network.training
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.eval()(torch.zeros(1, 3, size, size))
    network.train(was)
    return counter.get_total_flops() // 2


def measured_peak(seconds: float = 3.0) -> tuple[float, str]:
    """Return the FLOP/s of large dense products on this CPU, the best of some seconds, and the precision they are in.

    It is what all train in: bfloat16 where the CPU has it; elsewhere a single such product takes minutes.
    """
    precision, name = (torch.bfloat16, "bfloat16") if _bf16() else (torch.float32, "float32")
    return product_speed(precision, seconds), name


def share_of_peak(images: float, macs: float, seconds: float, peak: float) -> float:
    """Return the share of the measured limit that training on so many images came to: 6 FLOP for each multiply-accumulate."""
    return images * macs * 6 / seconds / peak


def _bf16() -> bool:
    return has_native_bf16(torch.device("cpu"))
