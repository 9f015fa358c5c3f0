"""What is written down of a classifier beside its weights.

That is where it came from and what it scored, how it is calibrated, the plugins that it needs, and its metadata in an exported
file, which is read without torch.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from vitral import plugins
from vitral.described import LATER, Kept, fits
from vitral.errors import PluginError, VitralError, WeightsError
from vitral.images.depth import read_bits
from vitral.inference.exported.format import IMAGES, Graph
from vitral.tasks.chance import Standing, significantly_below
from vitral.tasks.shown import images_of, photos_of

RANDOM = "random weights"  # prefix of an untrained network's source
BASELINE = "/baseline_"  # between a split and a simple classifier's name, in the name of its accuracy among the scores
# After a split, the names of how many images its accuracy and those of the simple classifiers are of: whole numbers.
SCORED_IMAGES = "/images"
BASELINE_IMAGES = "/images_of_baselines"
BASELINES = {
    "knn": "nearest-neighbour vote",
    "pixel_neighbour": "nearest neighbour on bare pixels",
    "pixel_linear": "linear model on bare pixels",
}
COLDEST = 0.05  # temperatures: beyond these two, the images are too few to find one
HOTTEST = 20.0
PLUGINS_KEY = "plugins"
CLASS_IMAGES = "class_images"  # in what training was: the number of training images of each class, in order
CLASS_WEIGHTS = "class_weights"  # there, too: what the same weight for every class changed in a linear model
LOGIT_ADJUSTMENT = "logit_adjustment"  # there, too: what was done to the logits for unequal classes
RARE_CLASSES = "rare_classes"  # there, too: how well the rare classes do
# Entries of the metadata, each of which is JSON.
CLASSES = "class_names"
PREPROCESSING = "preprocessing"
PROVENANCE = "provenance"
CALIBRATION = "calibration"


@dataclass(frozen=True)
class Provenance:
    """Where a classifier came from and what it scored; plain JSON values throughout.

    Attributes:
        source: the weights that it started from.
        training: recipe, steps, data and versions, as they were; empty for weights as published.
        scores: figures by name, such as "test/top1".
        notes: what a user should know of it, one line each.
    """

    source: str = RANDOM
    training: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def is_random(self) -> bool:
        """Whether the weights are random: nothing was trained, and they came from nowhere."""
        return self.source.startswith(RANDOM) and not self.training

    @property
    def is_trained(self) -> bool:
        """Whether its network was trained, by what is known of it, and not its head alone in closed form."""
        return "steps" in self.training

    @property
    def data_fingerprint(self) -> str:
        """The fingerprint of the data that it learned from; empty where none is known."""
        return str(self.training.get("data_fingerprint") or "")

    @property
    def class_images(self) -> tuple[int, ...]:
        """The number of training images of each class, in order; empty where it is not known."""
        listed = self.training.get(CLASS_IMAGES, ())
        counts = listed if isinstance(listed, list | tuple) else ()
        return tuple(counts) if all(type(count) is int and count >= 0 for count in counts) else ()

    def doubt(self) -> str:
        """Return in one sentence why the scores make the predictions doubtful; empty if they do not."""
        if self.is_random:
            return "The weights are random: its predictions mean nothing until it is trained."
        for split in (name.removesuffix("/top1_low") for name in self.scores if name.endswith("/top1_low")):
            known = [self.scores.get(f"{split}/{name}", math.nan) for name in ("top1", "top1_low", "chance")]
            if all(0 <= value <= 1 for value in known) and (said := Standing(*known).sentence(split)):
                return said
        return ""

    def shortfall(self) -> str:
        """Return in one sentence which simple classifier did best, if it beat the network; empty if none is known to.

        It did if the network is significantly below it, for the images that each was scored on. Folders of earlier versions do
        not tell their numbers: such a folder gets no sentence, because any difference may be one of few images.
        """
        rivals = [name for name in self.scores if BASELINE in name and self._is_below(name)]
        if not rivals:
            return ""
        best = max(rivals, key=lambda name: self.scores[name])
        split, _, baseline = best.partition(BASELINE)
        own = self.scores[f"{split}/top1"]
        plain = BASELINES.get(baseline, baseline.replace("_", " "))
        photos = images_of(split)
        return f"Worse than a simple {plain}: {own:.1%} of its {photos} right, where that one gets {self.scores[best]:.1%}."

    def _is_below(self, rival: str) -> bool:
        """Tell whether the network is significantly below a simple classifier; False where figures are missing or damaged."""
        split, theirs = rival.partition(BASELINE)[0], self.scores[rival]
        own, images, others = (
            self.scores.get(split + name, math.nan) for name in ("/top1", SCORED_IMAGES, BASELINE_IMAGES)
        )
        if not (isinstance(images, int) and isinstance(others, int) and min(images, others) > 0):
            return False
        return 0 <= own <= 1 and 0 <= theirs <= 1 and significantly_below(own, images, theirs, others)


def read_provenance(described: Any) -> Provenance:  # noqa: ANN401  # a JSON value
    """Return a provenance from its entries.

    Raises:
        VitralError: they are others.
    """
    hints = get_type_hints(Provenance)
    if not isinstance(described, dict) or not described.keys() <= hints.keys():
        raise VitralError(f"its provenance has other entries than {', '.join(hints)}.")
    if wrong := [name for name, value in described.items() if not fits(hints[name], value)]:
        raise VitralError(f"its provenance has an entry of the wrong type, '{wrong[0]}'.")
    return Provenance(**{**described, "notes": tuple(described.get("notes", ()))})


@dataclass(frozen=True)
class Calibration(Kept):
    """Fitted on validation images; kept in the classifier's folder.

    Attributes:
        temperature: The divisor of logits before the softmax (arXiv 1706.04599); 1 changes nothing.
        threshold: probability of the answer, 0 to 1, below which it is given as not sure; None for none.
        wanted: The accuracy of the sure answers that the threshold was fitted for, 0 to 1.
        data: The dataset whose validation images it was fitted on.
        images: The number of these images.
        image_size: Height and width of the network's images as it was fitted, pixels; None for the network's own.
    """

    called = "Its calibration"

    temperature: float
    threshold: float | None
    wanted: float | None
    data: str
    images: int
    image_size: tuple[int, int] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and COLDEST <= self.temperature <= HOTTEST):
            raise VitralError(f"A temperature is between {COLDEST:g} and {HOTTEST:g}, not {self.temperature}.")
        for share in (self.threshold, self.wanted):
            if share is not None and not 0 <= share <= 1:
                raise VitralError(f"A threshold and a wanted accuracy are between 0 and 1, not {share}.")

    @classmethod
    def of_regions(cls, threshold: float | None, data: str, images: int) -> "Calibration | None":
        """Return from where on a region is shown, by a validation on so many images; None where that told nothing."""
        return None if threshold is None else cls(1.0, threshold, None, data, images)

    def sentence(self) -> str:
        """Return what it says, in one sentence."""
        fitted = f"fitted on {photos_of('validation', self.images)} of {self.data}"
        if self.threshold is None:
            return f"Temperature {self.temperature:.3f}, {fitted}."
        heat = "No temperature" if self.temperature == 1 else f"Temperature {self.temperature:.3f}"
        aim = "" if self.wanted is None else f", for {self.wanted:.1%} right among the sure answers"
        return f"{heat}; answers below {self.threshold:.1%} are not sure{aim}; {fitted}."

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; without a size where that is the network's own, as earlier versions read it."""
        values = super().to_json()
        if self.image_size is None:
            del values["image_size"]
        return values


def required_plugins(network: str, task: str) -> dict[str, Any]:
    """Return the entry of a classifier's description that names the plugins it needs; nothing if it needs none."""
    parts: tuple[tuple[plugins.Kind, str], ...] = (("network", network), ("task", task))
    needed = [
        {"file": plugin.path.name, "sha256": plugin.digest, "kind": kind, "name": name}
        for kind, name in parts
        if (plugin := plugins.origin(kind, name)) is not None
    ]
    return {PLUGINS_KEY: needed} if needed else {}


def check_plugins(description: Mapping[str, Any], path: Path) -> None:
    """Refuse a classifier whose plugins were not loaded; none is ever imported because a folder names it.

    Raises:
        PluginError: the first that is missing, by its file's name.
    """
    listed = description.get(PLUGINS_KEY, ())
    for need in listed if isinstance(listed, list) else ():
        kind, name, file = (need.get(key) if isinstance(need, Mapping) else None for key in ("kind", "name", "file"))
        if kind in plugins.KINDS and name not in plugins.registered(kind):
            raise PluginError(
                f"'{path}' needs the plugin '{file}' for its {kind} '{name}': load that first, if you trust the file."
            )


@dataclass(frozen=True)
class FileMetadata:
    """What does not depend on the runtime of the file.

    Attributes:
        calibration: The temperature and threshold of its probabilities; None for the network's own.
        bits: The bits that 16-bit images use, as its preprocessing has it.
    """

    class_names: list[str]
    provenance: Provenance
    calibration: Calibration | None
    bits: int | None = None


def read_metadata(graph: Graph) -> FileMetadata:
    """Return the metadata of a file that Vitral wrote.

    Raises:
        WeightsError: it takes no decoded images, or its metadata are damaged; the message names it.
        PluginError: it needs a plugin that was not loaded.
    """
    entries = graph.metadata
    if [(port.name, port.dtype, port.shape[3:]) for port in graph.inputs] != [(IMAGES, "uint8", (3,))]:
        raise WeightsError(
            f"'{graph.path}' does not take decoded images, as Vitral's files do; export the classifier again."
        )
    with naming_damage(graph):
        needed = json.loads(entries.get(PLUGINS_KEY, "[]"))
    check_plugins({PLUGINS_KEY: needed}, graph.path)
    with naming_damage(graph):
        return FileMetadata(
            read_class_names(json.loads(entries[CLASSES])),
            read_provenance(json.loads(entries[PROVENANCE])),
            Calibration.from_json(json.loads(entries.get(CALIBRATION, "null"))),
            read_bits(json.loads(entries.get(PREPROCESSING, "{}"))),
        )


@contextlib.contextmanager
def naming_damage(graph: Graph) -> Iterator[None]:
    """Name the file where an entry of its metadata is missing, damaged or does not fit the others.

    Raises:
        WeightsError: that.
    """
    try:
        yield
    except KeyError as error:
        raise WeightsError(
            f"'{graph.path}' lacks the entry {error} in its metadata; export the classifier again."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise WeightsError(f"'{graph.path}' has damaged metadata ({error}); export the classifier again.") from error
    except WeightsError:
        raise
    except VitralError as error:
        raise WeightsError(f"'{graph.path}' cannot be used: {error}") from error


def read_class_names(described: Any) -> list[str]:  # noqa: ANN401  # a JSON value
    """Return class names in order.

    Raises:
        VitralError: they are no list of texts.
    """
    if not fits(list[str], described):
        raise VitralError("its class_names are no list of names in UTF-8.")
    return list(described)
