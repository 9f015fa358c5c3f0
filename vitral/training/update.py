"""One update of a network: from a batch to a loss, a gradient and new weights."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral import distributed
from vitral.data.loader import Batch
from vitral.models.experts import MixtureOfExperts
from vitral.models.model import Model
from vitral.models.stochastic_depth import BatchPart
from vitral.seeds import derive
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.training.mixing import Mixer, erase, mixes
from vitral.training.objective import Part, build_objective
from vitral.training.optimization.averaging import Average
from vitral.training.optimization.optimizers import add_penalty, build_optimizer, set_learning_rate
from vitral.training.optimization.precision import autocast
from vitral.training.optimization.sharpness import perturbed, put_gradients, take_gradients
from vitral.training.parallel import Engine
from vitral.training.records.checkpoints import Checkpoint, Piece, pack, unpack
from vitral.training.settings.recipe import Recipe

Normalize = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Update:
    """What came out of a batch, over all processes.

    Attributes:
        loss: mean over the batch; with SAM where the weights stood before they were perturbed.
        accuracy: share that is right, 0 to 1.
        finite: whether loss and gradient are finite numbers; if not, no weight was changed.
        stop: whether any process was asked to stop.
    """

    loss: float
    accuracy: float
    finite: bool
    stop: bool


class Updater:
    """Makes a run's updates.

    Args:
        network: what is trained, with its starting weights.
        recipe: the settings.
        normalize: from values 0 to 255 to the network's input.
        erasing: share of the images in which a random box is erased.
        task: what a label is.
    """

    def __init__(
        self, network: Model, recipe: Recipe, normalize: Normalize, *, erasing: float, task: Task = SINGLE_LABEL
    ) -> None:
        self.network, self.recipe, self.normalize, self.erasing = network, recipe, normalize, erasing
        self.device = next(network.parameters()).device
        self.objective = build_objective(network, recipe, task)
        self.module = self.objective.module
        self.engine = Engine(self.module, network, recipe)
        self.optimizer = build_optimizer(self.module, network, recipe.optimizer)
        decay = recipe.averaging.decay
        self.average = None if decay is None else Average(self.module, decay)
        self.mixer = None
        if mixes(recipe.mixing):
            self.mixer = Mixer(recipe.mixing, num_classes=network.num_classes, seed=recipe.seed)
        rates = recipe.regularization
        experts = any(isinstance(layer, MixtureOfExperts) for layer in network.modules())
        # What draws by element must draw otherwise in every process; stochastic depth draws by example, and the same in all.
        self.own_draws = bool(rates.dropout or rates.attention_dropout or experts)
        self.buffers = [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]

    def __call__(self, batch: Batch, step: int, rate: float, backbone_rate: float, *, stop: bool) -> Update:
        """Learn from one batch at a learning rate; a loss or gradient that is no finite number changes nothing."""
        statistics = [buffer.clone() for buffer in self.buffers]  # a batch norm learns in the forward pass already
        rho = self.recipe.optimizer.sam_rho
        if rho is None:
            loss, right = self.gradients(batch, step)
        else:
            loss, right = self.sharp_gradients(batch, step, rho)
        norm = self.engine.clip(self.recipe.optimizer.clip_norm)
        sums = distributed.total(torch.stack([loss.double(), right.double(), loss.new_tensor(float(stop)).double()]))
        world = distributed.world()
        mean_loss, accuracy, stops = (float(value) for value in sums)
        finite = bool(torch.isfinite(sums[0] + norm))
        if finite:
            set_learning_rate(self.optimizer, rate, backbone_rate)
            self.optimizer.step()
            if self.average is not None:
                self.average.update(step)
        else:
            self.restore_buffers(statistics)
        self.optimizer.zero_grad()
        return Update(mean_loss / world, accuracy / world, finite, stops > 0)

    def restore_buffers(self, kept: list[Tensor]) -> None:
        """Put a batch norm's statistics back, where there are any."""
        for buffer, before in zip(self.buffers, kept, strict=True):
            buffer.copy_(before)

    def prepare(self, batch: Batch, step: int) -> Part:
        """Bring a batch to the device; normalise, erase and mix it there."""
        pixels = batch.images.to(self.device, non_blocking=True)
        targets = batch.labels.to(self.device, non_blocking=True)
        images = self.normalize(pixels)
        if self.erasing:
            lead = 1 if self.mixer is not None else 0
            images = erase(
                images,
                self.erasing,
                seed=self.recipe.seed,
                step=step,
                first=batch.first - lead,
                batch_size=self.recipe.batch_size,
            )
        if self.mixer is not None:
            images, targets = self.mixer(images, targets, step=step)
            pixels = pixels[1:]
        return Part(images, BatchPart(batch.first, self.recipe.batch_size), pixels, targets)

    def sharp_gradients(self, batch: Batch, step: int, rho: float) -> tuple[Tensor, Tensor]:
        """Add to the gradients those of SAM, for `sam_images` after `sam_images`; return loss and share right before the climb.

        Each group of images climbs by its own gradient; with no such setting the whole batch of all processes is one group.
        A batch norm's statistics move once, by the mean of the groups' first passes, as over the original's devices.
        """
        own = self.recipe.optimizer.sam_images
        groups = list(self.cut(batch, own or self.images_of(batch)))
        losses, rights = [], []
        before = [buffer.clone() for buffer in self.buffers]
        after = [torch.zeros_like(buffer) for buffer in self.buffers]
        for number, group in enumerate(groups):
            share = self.images_of(group) / self.images_of(batch)
            held = take_gradients(self.module.parameters())
            add_penalty(self.optimizer)
            loss, right = self.gradients(group, step, together=own is None)
            for mean, buffer in zip(after, self.buffers, strict=True):
                mean.add_(buffer, alpha=share)
            with perturbed(self.module.parameters(), rho):
                put_gradients(held)
                add_penalty(self.optimizer, share)
                self.gradients(group, step, share=share, together=number == len(groups) - 1)
            self.restore_buffers(before)  # the second pass leaves none
            losses.append(loss * share)
            rights.append(right * share)
        self.restore_buffers(after)
        return torch.stack(losses).sum(), torch.stack(rights).sum()

    def gradients(self, batch: Batch, step: int, *, share: float = 1.0, together: bool = True) -> tuple[Tensor, Tensor]:
        """Add to the gradients `share` times those of this process's mean loss, part by part; return loss and share right.

        Unless `together`, the processes do not bring their gradients together.
        """
        pieces = list(self.pieces(batch))
        seed = derive(self.recipe.seed, "dropout", step, *([distributed.rank()] if self.own_draws else []))
        losses, rights = [], []
        for number, piece in enumerate(pieces):
            part = self.prepare(piece, step)  # one at a time: a large batch as float32 would fill the memory by itself
            # Torch's own generator, seeded by the step, has no state to save; each part draws the same, as in the original.
            torch.manual_seed(seed)
            weight = len(part.images) / self.images_of(batch)
            last = together and number == len(pieces) - 1
            with self.engine.accumulating(last=last):
                with autocast(self.device, self.recipe.precision):
                    loss, right = self.objective(self.engine.call, part)
                (loss * (weight * share)).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach() * weight)
            rights.append(right * weight)
        return torch.stack(losses).sum(), torch.stack(rights).sum()

    def images_of(self, batch: Batch) -> int:
        """Return how many images a batch trains on: all but the one before the first, which only mixing looks at."""
        return len(batch.images) - (self.mixer is not None)

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """Cut a batch into the parts that go through the network one after another."""
        return self.cut(batch, -(-self.images_of(batch) // (self.recipe.compute.accumulation or 1)))

    def cut(self, batch: Batch, size: int) -> Iterator[Batch]:
        """Cut a batch into parts of `size` images, each with the image before its first where that is looked at."""
        lead, count = int(self.mixer is not None), self.images_of(batch)
        for start in range(0, count, size):
            held = slice(start, min(start + size, count) + lead)
            yield Batch(batch.images[held], batch.labels[held], batch.indices[held], batch.first + start)

    def pack(self) -> dict[str, Piece]:
        """Return copies of everything that a checkpoint holds."""
        return pack(self.module, self.average, self.optimizer)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put everything that a checkpoint holds back in place.

        Raises:
            TrainingError: it is of another network.
        """
        unpack(checkpoint, self.module, self.average, self.optimizer)

    def weights_are_finite(self) -> bool:
        """Tell whether every weight is a finite number."""
        return bool(torch.stack([torch.isfinite(p).all() for p in self.module.parameters()]).all())
