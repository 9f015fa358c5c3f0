"""Write a classifier as a file for another runtime, and check there that it gives the same answers.

The text beside the file says what goes in, what comes out, and how it is used without Vitral.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from vitral.advice import in_markdown, printable
from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import described
from vitral.classifier.inputs import list_images
from vitral.classifier.load import load
from vitral.errors import ImageError, ModelError, WeightsError, did_you_mean
from vitral.events import Listener, Message, show
from vitral.exporting.export_regions import (
    LARGEST,
    RegionParity,
    compare_regions,
    regions_readme,
    write_regions_file,
)
from vitral.exporting.parity import (
    MOST_APART,
    MOST_APART_BY_STEPS,
    Parity,
    check_images,
    compare,
    first_different,
    layer_cosines,
)
from vitral.exporting.preparation import ClassifierPrograms, written_network
from vitral.exporting.readings import AnswerReading
from vitral.files import new_folder, sync_file, write_through
from vitral.inference.choice import INTEGERS, PLAIN, needed_form, predictor_in
from vitral.inference.engines import check_installed
from vitral.inference.exported.format import ExportFormat, Layers, Sample
from vitral.inference.exported.open import FORMATS, Format, own_files
from vitral.inference.predictor import Predictor
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import has_int8
from vitral.outputs import check_folder
from vitral.paths import CARD
from vitral.tasks.shown import Presentable
from vitral.tasks.unlabelled import check_knows_classes

WrittenPrecision = Literal["fp32", "int8"]
REGIONS_FILE = FORMATS["onnx"].files[0]  # the format of classifiers of regions


def readme(classifier: Classifier, kind: ExportFormat, metadata: Mapping[str, str]) -> str:
    """Return the text as Markdown."""
    threshold = json.loads(metadata.get("threshold", "null"))
    sure = f" Answers below {threshold:.1%} are not sure." if threshold is not None else ""
    lines = [
        f"# {kind.files[0]}",
        "",
        f"An image classifier as {kind.title}, written by Vitral: {in_markdown(metadata['network'])}, "
        f"{len(classifier.class_names)} {classifier.task.noun}. It needs neither Vitral nor any preprocessing: it "
        "resizes, crops and normalises images itself.",
        "",
        *([kind.warning] if kind.warning else []),
        "| | name | type | axes |",
        "|---|---|---|---|",
        "| in | `images` | uint8 | batch, height, width, 3: red, green, blue; any size, the same for all of a batch |",
        f"| out | `probabilities` | float32 | batch, classes: {classifier.task.meaning}.{sure} |",
        "| out | `logits` | float32 | batch, classes: what the network gives |",
        *kind.outputs,
        "",
        "Photographs have to be turned upright by their EXIF orientation first, as the Python below does.",
        "",
        *_deep(classifier.preprocessing.bits),
        *(line for sample in kind.samples for line in _block(sample)),
        "## What the file says of itself",
        "",
        f"Its metadata have the entries {', '.join(f'`{name}`' for name in metadata)}; all but plain texts are JSON.",
        f"Licence of the weights it started from: {in_markdown(metadata['license'])}",
        "",
        "## Classes, in order",
        "",
        *(f"{index}. {in_markdown(label)}" for index, label in enumerate(classifier.class_names)),
        "",
    ]
    return printable("\n".join(lines), lines=True)


def _deep(bits: int | None) -> list[str]:
    """Return what is to be done with 16-bit images, where it was trained on such."""
    if bits is None:
        return []
    return [
        f"Values of 16-bit images have to be made 8 bits first: times 255, divided by {(1 << bits) - 1}, at most 255.",
        "",
    ]


def _block(sample: Sample) -> list[str]:
    return [f"## {sample.title}", "", f"```{sample.language}", sample.code, "```", ""]


@dataclass(frozen=True)
class Exported(Presentable):
    """What was written, and how it compares with the classifier.

    Attributes:
        checks: One for each precision that its runtime computed it in, float32 first.
        images: The name of the images that it was checked on.
        cosines: Cosines between each layer's values here and in the file, by the layer's name; empty unless they were wanted,
            or the file's answers differ.
    """

    path: Path
    file: Path
    checks: tuple[Parity | RegionParity, ...]
    images: str
    cosines: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Whether the file gives the classifier's answers."""
        return all(check.holds is not False for check in self.checks)

    def failure(self) -> str:
        """Return in one sentence what differs; empty if nothing does."""
        if self.holds:
            return ""
        first = first_different(self.cosines)
        where = f"; the first layer with other values is '{first}'" if first else ""
        return f"'{self.file}' does not give the classifier's answers{where}; it is left there to be looked at."

    def lines(self) -> tuple[str, ...]:
        """Return it for people."""
        checked = [line for check in self.checks for line in check.lines()]
        cosines = [f"  {name}  {value:.6f}" for name, value in self.cosines.items()]
        return f"Wrote {self.file}", *checked, *(("Cosine of each layer's values:", *cosines) if cosines else ())

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        checks = [check.to_json() for check in self.checks]
        return {**asdict(self), "checks": checks, "path": str(self.path), "file": str(self.file), "holds": self.holds}


def export(
    classifier: Classifier | str | Path,
    target: str | Path,
    *,
    format: Format = "onnx",  # what every tool calls it
    data: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    precision: WrittenPrecision | None = None,
    merge: int | None = None,
    layers: bool = False,
    overwrite: bool = False,
    listener: Listener = show,
) -> Exported:
    """Write a classifier as one file that takes decoded images, and check it in its own runtime.

    The file takes uint8 images (batch, height, width, 3), red, green, blue, of any one size, and gives "probabilities" and
    "logits" (batch, classes). Resizing, cropping, normalising, the network and its softmax or sigmoid, at the classifier's
    temperature, are all in it. Its metadata hold class names, preprocessing, task, threshold, licence and a fingerprint; a
    README.md beside it shows how it is used from Python, C++ and JavaScript.

    Args:
        classifier: Itself, or whatever `load` takes.
        target: A folder.
        format: "onnx", for ONNX Runtime and whatever reads ONNX; "openvino"; or "torch": machine code for this processor and
            this version of torch, which takes minutes to compile.
        data: Images to check it on, whatever `finetune` takes; None for parts of two photographs that scikit-learn has.
        image_size: Pixels that the network sees; None for the classifier's own. A setting that `tune` found is carried over
            where neither this nor precision and merging are given; in bf16 computes whatever runtime takes that for itself.
        precision: "fp32", or "int8" of a folder that `quantize` has found the ranges for: the linear layers multiply integers,
            and their weights take a quarter of the space; not of "torch". None for fp32, or what the classifier computes in.
        merge: Tokens that each block of a Vision Transformer but the last has fewer (ToMe); None for what the classifier does.
        layers: Compare the values of each layer, too, on the image that is answered most differently; not of "torch".
        overwrite: Replace an export that is there.
        listener: What receives progress and warnings; the screen if left out.

    Returns:
        What was written and how far its answers are from the classifier's; look at `holds`.

    Raises:
        WeightsError: There is no such classifier.
        ModelError: Its network cannot be written in this format or so, the format's runtime is not installed, or layers of
            "torch" or another size of a classifier itself are asked for.
        DataError: There is no such data.
        ImageError: An image to check it on cannot be read.
        StorageError: The target cannot be written, or something stands there that would be lost.
    """
    kind = FORMATS.get(format)
    if kind is None:
        raise WeightsError(
            f"There is no format '{format}'.{did_you_mean(format, FORMATS)} There are: {', '.join(FORMATS)}."
        )
    inputs = [given for given in (classifier, data) if isinstance(given, str | Path)]
    check_folder(target, own=own_files(), inputs=inputs, overwrite=overwrite)
    check_installed(kind.engine, kind.packages)
    if layers and not kind.engine:
        raise ModelError(f"The values within {kind.title} cannot be read; compare layers in another format.")
    loaded = _loaded(classifier, image_size, precision, merge, listener)
    integers = loaded.predictor.quantization is not None
    if integers and not kind.writes_int8:
        raise ModelError(f"{kind.title} has no layers of integers; take another format, or the precision fp32.")
    check_knows_classes(loaded.task)
    if loaded.task.dense and (kind.files[0] != REGIONS_FILE or layers or merge or integers):
        raise ModelError(
            f"A classifier of photos that {loaded.task.labelled} is written as ONNX in fp32, whole; leave another format, "
            "precision, merging and layers out."
        )
    own_images = None if data is None else list_images(data, listener)
    if own_images is not None and not own_images:
        raise ImageError(f"There is no image in '{data}' to check the file on.")
    size, file = loaded.preprocessing.image_size, Path(target) / kind.files[0]
    images = "parts of two photographs" if data is None else str(data)
    if loaded.task.dense:
        reading = _write_regions(loaded, file, listener)
        same = compare_regions(loaded, reading, file, check_images(own_images, size, LARGEST), listener=listener)
        return Exported(file.parent, file, (same,), images, {})
    reference = _reference(loaded)
    written = _write(loaded, file, kind, listener)
    most = MOST_APART_BY_STEPS if integers or reference.merge else MOST_APART
    checks = tuple(
        compare(loaded, check, check_images(own_images, size), listener=listener, reference=reference, most=most)
        for check in kind.checks(file, "int8" if integers else "fp32")
    )
    differs = any(check.holds is False for check in checks)
    cosines: dict[str, float] = {}
    if written and (layers or differs) and not checks[0].error:
        pixels = next(islice(check_images(own_images, size), checks[0].furthest, None))[1]
        cosines = layer_cosines(loaded, kind.open(file, "fp32"), written, pixels)
    return Exported(file.parent, file, checks, images, cosines)


def _loaded(
    classifier: Classifier | str | Path,
    image_size: int | tuple[int, int] | None,
    precision: WrittenPrecision | None,
    merge: int | None,
    listener: Listener,
) -> Classifier:
    """Return the classifier, its predictor one that computes what the file is to compute."""
    if isinstance(classifier, Classifier):
        if image_size is not None or precision is not None or merge is not None:
            raise ModelError(
                "A classifier that is given as itself is written at its own size, precision and merging; load it otherwise."
            )
        loaded = classifier
    else:
        loaded = load(
            classifier, image_size=image_size, precision="fp32" if precision else None, merge=merge, listener=listener
        )
        for note in loaded.provenance.notes:
            listener(Message(note, warning=True))
    if precision == "int8":
        form = needed_form(loaded.quantization)
        loaded.predictor = predictor_in(loaded.model, replace(INTEGERS, merge=merge or 0), form)
    return loaded


def _reference(classifier: Classifier) -> Predictor:
    """Return what the file's answers are held against: the classifier as it computes, but never in bf16."""
    predictor = classifier.predictor
    if predictor.quantization is None and not predictor.merge:
        return predictor.exact
    if predictor.quantization is None:
        return predictor_in(classifier.model, replace(PLAIN, merge=predictor.merge))
    if has_int8():
        return predictor_in(classifier.model, replace(INTEGERS, merge=predictor.merge), predictor.quantization)
    return TorchPredictor(written_network(classifier))  # this processor has no such products


def _write(classifier: Classifier, file: Path, kind: ExportFormat, listener: Listener) -> Layers:
    """Write the folder, and return the names of the file's values by the layers that give them."""
    metadata = described(classifier)
    if classifier.novelty is not None:
        listener(Message("The file does not tell images of none of the classes; the classifier's folder does."))
    listener(Message(f"Writing {file}: the network's graph is traced and converted."))
    with new_folder(file.parent, own=own_files()) as partial:
        written = kind.write(ClassifierPrograms(classifier), metadata, partial / file.name)
        for part in partial.iterdir():
            sync_file(part)
        write_through(partial / CARD, readme(classifier, kind, metadata).encode())
    return written


def _write_regions(classifier: Classifier, file: Path, listener: Listener) -> AnswerReading:
    """Write the folder of a classifier of regions, and return what the file's outputs are."""
    metadata = described(classifier)
    listener(Message(f"Writing {file}: the network's graph is traced and converted."))
    with new_folder(file.parent, own=own_files()) as partial:
        reading = write_regions_file(classifier, metadata, partial / file.name)
        for part in partial.iterdir():
            sync_file(part)
        write_through(partial / CARD, regions_readme(classifier, reading, metadata).encode())
    return reading
