"""How a classifier is best computed on one machine, as `tune` has found it."""

import math
from dataclasses import dataclass

from vitral.described import Kept
from vitral.errors import VitralError
from vitral.inference.engines import Computation, Engine, Precision


@dataclass(frozen=True)
class Tuning(Kept):
    """The most accurate of the settings that answer within a time; kept in the classifier's folder.

    Attributes:
        image_size: Height and width of the network's images, pixels.
        engine: The engine that computes the network.
        precision: The engine's precision.
        merge: The number of tokens that each block but the last merges (ToMe); 0 for none.
        milliseconds: The median time that one prepared image takes.
        limit: The time that the user allowed, milliseconds.
        machine: The processor on which the time was measured.
        threads: The number of threads that computed.
        data: The dataset whose validation images it was chosen on.
        images: The number of these images.
        exact: The headline figure of the network itself on these images, at its own size in fp32, 0 to 1.
        score: The headline figure of this setting on the same images, 0 to 1.
    """

    called = "Its setting"

    image_size: tuple[int, int]
    engine: Engine
    precision: Precision
    merge: int
    milliseconds: float
    limit: float
    machine: str
    threads: int
    data: str
    images: int
    exact: float
    score: float

    def __post_init__(self) -> None:
        if self.merge < 0 or not all(math.isfinite(time) and time > 0 for time in (self.milliseconds, self.limit)):
            raise VitralError("A setting has times above 0, and merges 0 tokens or more.")

    @property
    def way(self) -> Computation:
        """What computes, in which precision, and with how many tokens merged."""
        return Computation(self.engine, self.precision, self.merge)

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        return (
            f"Tuned to {self.limit:.4g} ms an image: {self.way}, at {self.image_size[0]}x{self.image_size[1]} pixels, "
            f"{self.milliseconds:.3g} ms on {self.machine} with {self.threads} "
            f"{'thread' if self.threads == 1 else 'threads'}; {self.score:.2%} of {self.images:,} validation images of "
            f"{self.data}, against {self.exact:.2%} of the network itself."
        )
