"""A classifier of regions as one ONNX file: from a decoded photo of any size to what is in it, in the photo's own pixels.

No node is a resize but within some heads, see `preparation.py`, and none a GridSample but in decoders that are made of it,
since TensorRT computes that one wrongly.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from vitral.advice import counted, in_markdown, printable
from vitral.classifier.classifier import Classifier
from vitral.errors import ModelError, one_line
from vitral.events import Listener, Progress
from vitral.exporting.parity import IMAGES as CHECKED
from vitral.exporting.preparation import EXAMPLE, PreparationGraph, written_network
from vitral.exporting.readings import AnswerReading, FoundBoxes, FoundMasks, MapReading, Outputs
from vitral.exporting.segments import FoundParts, FoundSegments
from vitral.images.decode import Pixels
from vitral.inference.engines import OPSET, onnxruntime_session, run_onnxruntime, thread_count
from vitral.inference.exported.format import ANSWERS, DECODED_AXES, IMAGES, PREPARED
from vitral.inference.exported.onnx_format import write_graph
from vitral.machine import vitral_version
from vitral.models.dense.answers import PointAnswers, QueryAnswers, named_parts
from vitral.tasks.boxes import BOXES
from vitral.tasks.dense import dense_task
from vitral.tasks.instances import INSTANCES
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.region_matches import overlaps
from vitral.tasks.regions import FoundRegions
from vitral.tasks.semantic import SEMANTIC

MOST_CLASSES = 255  # that a map of 8 bits holds beside the value for none
LEAST_ALIKE = 0.999
# Pixels of a photo that a file is checked on: memory and time of finding objects grow faster than they.
LARGEST = 1 << 20
CHECK_SECONDS = 60.0  # after which no further photo is checked,
LEAST_CHECKED = 16  # once these are: some of every size
COMPUTED_BY = "onnxruntime in fp32"
# Measured with onnxruntime on two cores.
GROWING = ", more than in proportion (2.4 s at 1000 x 1333, 68 s and 5.6 GB at 3000 x 4000 on two cores)"

PYTHON = """\
# pip install onnxruntime numpy pillow
import json
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("model.onnx")
metadata = session.get_modelmeta().custom_metadata_map
names, threshold = json.loads(metadata["class_names"]), float(metadata.get("threshold", 0.5))
image = np.asarray(ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB"))
outputs = dict(zip((output.name for output in session.get_outputs()), session.run(None, {"images": image[None]})))"""


class PhotoGraph(nn.Module):
    """Does all that a classifier of regions does with decoded photos, which are of one size in a batch.

    Raises:
        ModelError: Its answers cannot be written as a graph, or it does not show the network the whole photo.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        preprocessing, network = classifier.preprocessing, written_network(classifier)
        if preprocessing.resize != "squash" or preprocessing.crop_fraction != 1:
            raise ModelError(
                "Its network sees photos cropped or padded, which cannot be written yet; fine-tune it with "
                "preprocessing.resize='squash'."
            )
        self.preparation, self.network = PreparationGraph(preprocessing), network.eval()
        with torch.no_grad():
            answers = network(torch.zeros(1, 3, *preprocessing.image_size))
        self.reading, self.answers = _reading(answers, classifier), tuple(named_parts(answers))

    def forward(self, images: UInt8[Tensor, "batch rows columns 3"]) -> Outputs:
        """Return what the reading gives, then the network's input and its answers, by which the file can be cut."""
        prepared = self.preparation(images)
        answers = self.network(prepared)
        found: Outputs = self.reading(answers, images.shape[1], images.shape[2])
        return *found, prepared, *named_parts(answers).values()


def _reading(answers: object, classifier: Classifier) -> AnswerReading:
    """Return what reads such answers for the classifier's task."""
    task, view = classifier.task, classifier.preprocessing.image_size
    queries, few = isinstance(answers, QueryAnswers), len(classifier.class_names) <= MOST_CLASSES
    if task == SEMANTIC and few and (queries or isinstance(answers, Tensor)):
        return MapReading(view)
    if isinstance(task, Panoptic) and few and queries:
        return FoundSegments(view, task.things, task.sure)
    if task == INSTANCES and queries:
        return FoundMasks(view)
    if task in (INSTANCES, BOXES) and isinstance(answers, Tensor):
        return FoundParts(view, outlined=task == INSTANCES)
    if task == BOXES and (queries or isinstance(answers, PointAnswers)):
        return FoundBoxes()
    raise ModelError(
        f"{classifier.predictor.describe()}, whose photos {classifier.task.labelled}, cannot be written for another runtime "
        "yet; predict with its folder."
    )


def write_regions_file(classifier: Classifier, metadata: Mapping[str, str], path: Path) -> AnswerReading:
    """Write a classifier of regions as an ONNX file, see `PhotoGraph`, and return what its outputs are.

    Raises:
        ModelError: It cannot be written.
        OSError: The file cannot be written.
    """
    finding = PhotoGraph(classifier).eval()
    sizes = {axis: torch.export.Dim(name) for axis, name in DECODED_AXES.items()}
    try:
        with torch.no_grad():
            example = torch.zeros(*EXAMPLE, 3, dtype=torch.uint8)
            program = torch.export.export(finding, (example,), dynamic_shapes=(sizes,))
    except Exception as error:  # the tracer raises anything
        raise ModelError(
            f"{classifier.predictor.describe()} cannot be written as a graph ({one_line(error)})."
        ) from error
    within, metadata = (PREPARED, *finding.answers), {**metadata, ANSWERS: " ".join(finding.answers)}
    write_graph(program, finding.reading.names, within, metadata, path, version=vitral_version())
    return finding.reading


def regions_readme(classifier: Classifier, reading: AnswerReading, metadata: Mapping[str, str]) -> str:
    """Return the text beside the file as Markdown."""
    height, width = classifier.preprocessing.image_size
    growing = GROWING if isinstance(reading, FoundParts) else ""
    lines = [
        "# model.onnx",
        "",
        f"Finds what photos show, as ONNX of opset {OPSET}, written by Vitral: {in_markdown(metadata['network'])}, "
        f"{counted(len(classifier.class_names), 'class', classifier.task.noun)}; its photos {classifier.task.labelled}. It "
        "needs neither Vitral nor any preprocessing, and answers in the photo's own pixels.",
        "",
        "| | name | type | axes |",
        "|---|---|---|---|",
        "| in | `images` | uint8 | batch, height, width, 3: red, green, blue; any size, the same for all of a batch |",
        *(f"| out | `{name}` | {told} |" for name, told in zip(reading.names, reading.told, strict=True)),
        "",
        "Photographs have to be turned upright by their EXIF orientation first, as the Python below does. A photo is seen as a "
        f"whole, at {height} x {width} pixels: cut one that is more than twice as long as wide into parts. `regions` is as "
        "many as the image of the batch with the most has.",
        "",
        f"Memory and time grow with the photo{growing}: make a large one smaller first.",
        "",
        *("## Python", "", "```python", PYTHON, reading.used, "```", ""),
        f"Licence of the weights it started from: {in_markdown(metadata['license'])}",
        "",
        *("## Classes, in order", ""),
        *(f"{number}. {in_markdown(name)}" for number, name in enumerate(classifier.class_names)),
        "",
    ]
    return printable("\n".join(lines), lines=True)


@dataclass(frozen=True)
class RegionParity:
    """How far what a file finds is from what the classifier finds.

    Attributes:
        computed_by: The runtime and the precision.
        alike: The mean intersection over union of what both find, 0 to 1.
        least: The image where it is the lowest, and how low.
        error: Why the runtime could not compute an image; empty if it could compute all.
    """

    computed_by: str
    images: int
    alike: float
    least: tuple[str, float]
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether the file finds what the classifier finds."""
        return not self.error and self.alike >= LEAST_ALIKE

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "holds": self.holds}

    def lines(self) -> tuple[str, ...]:
        """Return it for people."""
        if self.error:
            return (f"Not computed by {self.computed_by}: {self.error}",)
        limit = "" if self.holds else f", and at least {LEAST_ALIKE} is needed"
        return (
            f"Checked with {self.computed_by} on {self.images:,} images of all sizes: what it finds covers what the classifier "
            f"finds by a mean IoU of {self.alike:.5f}{limit}; the lowest, {self.least[1]:.5f}, of {self.least[0]}.",
        )


def compare_regions(
    classifier: Classifier,
    reading: AnswerReading,
    file: Path,
    images: Iterable[tuple[str, Pixels]],
    *,
    listener: Listener,
) -> RegionParity:
    """Compare what a file finds in images with what the classifier finds; a runtime that fails is reported, not raised.

    Raises:
        ImageError: An image cannot be read.
    """
    session = onnxruntime_session(file, thread_count())
    alike: list[tuple[float, str]] = []
    begun = time.monotonic()
    for name, pixels in images:
        if len(alike) >= LEAST_CHECKED and time.monotonic() - begun > CHECK_SECONDS:
            break
        size = pixels.shape[0], pixels.shape[1]
        # As a whole, as the file sees it: not through the windows that very long photos are seen through.
        view = classifier.preprocessing.geometry(*size)
        own = classifier.find(classifier.preprocessing(pixels)[None], [view])[0]
        try:
            given = run_onnxruntime(session, list(reading.names), {IMAGES: pixels[None]})
        except Exception as error:  # a runtime raises anything
            return RegionParity(COMPUTED_BY, len(alike), 0.0, ("", 0.0), f"{name}: {one_line(error)}")
        found = reading.found(dict(zip(reading.names, given, strict=True)), size)
        alike.append((likeness(own, found, counted=dense_task(classifier.task).counted), name))
        listener(Progress("check the file", len(alike), CHECKED))
    value, least = min(alike)
    return RegionParity(COMPUTED_BY, len(alike), sum(same for same, _ in alike) / len(alike), (least, value))


def likeness(own: FoundRegions, other: FoundRegions, *, counted: bool) -> float:
    """Return the intersection over union of two answers, 0 to 1; of objects the mean over all of their best of a class."""
    if not counted:
        assert own.class_map is not None, "regions that are not counted have a map"
        assert other.class_map is not None
        same = float((own.class_map == other.class_map).mean())
        return same / (2 - same)
    if not len(own.regions) or not len(other.regions):
        return float(len(own.regions) == len(other.regions))
    masks = own.regions.masks is not None and other.regions.masks is not None
    shared, _ = overlaps(own.regions, other.regions, masks=masks)
    shared *= own.regions.classes[:, None] == other.regions.classes[None]
    return float((shared.max(axis=1).mean() + shared.max(axis=0).mean()) / 2)
