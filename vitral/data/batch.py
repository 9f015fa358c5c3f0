"""A batch of training images, which may be cut into parts that go through a model one after another."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Int64, UInt8
from torch import Tensor

from vitral.tasks.task import Targets


@dataclass(frozen=True)
class Batch:
    """Training images with their labels.

    Attributes:
        images: The pixels, values 0 to 255.
        labels: The labels as the task encodes them; -1 where they are not read.
        indices: The indices of the images in their source.
        first: The index of the first image in the whole batch, of which this may be one process's part.
        whole: The number of images in the whole batch; None where this is all of it.
        partner: Whether there is an image before the first, which only mixing uses.
        more: Further views of the same images.
        erasing: The fraction of the images of each view in which a random box is still to be erased.
        extra: The images of further sources, by the source's name.
    """

    images: UInt8[Tensor, "batch 3 height width"]
    labels: Targets
    indices: Int64[Tensor, " batch"]
    first: int = 0
    whole: int | None = None
    partner: bool = False
    more: tuple[UInt8[Tensor, "batch 3 other_height other_width"], ...] = ()
    erasing: tuple[float, ...] = (0.0,)
    extra: Mapping[str, "Batch"] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images) - self.partner

    @property
    def total(self) -> int:
        """How many images the whole batch has."""
        return len(self) if self.whole is None else self.whole

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory, from which a GPU copies without waiting."""
        return replace(
            self,
            images=self.images.pin_memory(),
            labels=self.labels.pin_memory(),
            more=tuple(view.pin_memory() for view in self.more),
            extra={name: batch.pin_memory() for name, batch in self.extra.items()},
        )

    def cut(self, size: int) -> Iterator["Batch"]:
        """Cut the batch into parts of `size` images, the last of which has the rest; further sources are cut evenly."""
        starts = range(0, len(self), size)
        for number, start in enumerate(starts):
            yield self._part(start, min(start + size, len(self)), number, len(starts))

    def _part(self, start: int, end: int, number: int, parts: int) -> "Batch":
        held = slice(start, end + self.partner)
        extra = {
            name: other._part(number * len(other) // parts, (number + 1) * len(other) // parts, number, parts)
            for name, other in self.extra.items()
        }
        return Batch(
            self.images[held],
            self.labels[held],
            self.indices[held],
            self.first + start,
            self.total,
            self.partner,
            tuple(view[held] for view in self.more),
            self.erasing,
            extra,
        )
