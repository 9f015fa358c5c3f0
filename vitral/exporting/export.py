"""Write a classifier as a file for another runtime, and check there that it gives the same answers."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from vitral.classifier.classifier import Classifier
from vitral.classifier.exported import described
from vitral.classifier.inputs import list_images
from vitral.classifier.load import load
from vitral.errors import ImageError, ModelError, WeightsError, did_you_mean
from vitral.events import Listener, Message
from vitral.exporting.layers import first_different, layer_cosines
from vitral.exporting.parity import MOST_APART, MOST_APART_BY_STEPS, Answer, Parity, check_images, compare
from vitral.exporting.readme import readme
from vitral.exporting.whole import written_network
from vitral.files import new_folder, sync_file, write_through
from vitral.inference.choice import INTEGERS, PLAIN, needed_form, predictor_in
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import check_able
from vitral.inference.exported.graph import Decoded
from vitral.inference.exported.open import ENGINES, FILES, OWN, Format, open_graph, opened_by
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import Quantization
from vitral.inference.torch_predictor import TorchPredictor
from vitral.layout import CARD
from vitral.machine import has_int8, has_native_bf16
from vitral.outputs import check_folder
from vitral.progress import show
from vitral.tasks.unlabelled import check_knows_classes

WrittenPrecision = Literal["fp32", "int8"]
WRITERS: dict[Format, tuple[str, str]] = {  # imported where they are needed, for the packages that they need
    "onnx": ("vitral.exporting.onnx_file", "write_onnx"),
    "openvino": ("vitral.exporting.openvino_file", "write_openvino"),
    "torch": ("vitral.exporting.torch_file", "write_torch_package"),
}


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with the classifier.

    Attributes:
        path: the folder.
        file: the file in it.
        checks: one for each precision that its runtime computed it in, float32 first.
        images: of whose images it was checked.
        cosines: between each layer's values here and in the file, by the layer's name; empty unless they were asked for, or
            the file's answers differ.
    """

    path: Path
    file: Path
    checks: tuple[Parity, ...]
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
        said = [line for check in self.checks for line in check.lines()]
        cosines = [f"  {name}  {value:.6f}" for name, value in self.cosines.items()]
        return f"Wrote {self.file}", *said, *(("Cosine of each layer's values:", *cosines) if cosines else ())

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
        classifier: itself, or whatever `load` takes.
        target: a folder.
        format: "onnx", for ONNX Runtime and whatever reads ONNX; "openvino"; or "torch": machine code for this processor and
            this version of torch, which takes minutes to compile.
        data: images to check it on, whatever `finetune` takes; None for parts of two photographs that scikit-learn has.
        image_size: pixels that the network sees; None for the classifier's own. A setting that `tune` found is carried over
            where neither this nor precision and merging are given; in bf16 computes whatever runtime takes that for itself.
        precision: "fp32", or "int8" of a folder that `quantize` has found the ranges for: the linear layers multiply integers,
            and their weights take a quarter of the space; not of "torch". None for fp32, or what the classifier computes in.
        merge: tokens that each block of a Vision Transformer but the last has fewer (ToMe); None for what the classifier does.
        layers: compare the values of each layer, too, on the image whose answers differ most; not of "torch".
        overwrite: replace an export that is there.
        listener: receives progress and warnings; they are written to the screen if left out.

    Returns:
        What was written and how far its answers are from the classifier's; look at `holds`.

    Raises:
        WeightsError: there is no such classifier.
        ModelError: its network cannot be written in this format or so, the format's runtime is not installed, or layers of
            "torch" or another size of a classifier itself are asked for.
        DataError: there is no such data.
        ImageError: an image to check it on cannot be read.
        StorageError: the target cannot be written, or something stands there that would be lost.
    """
    if format not in get_args(Format):
        known = get_args(Format)
        raise WeightsError(
            f"There is no format '{format}'.{did_you_mean(format, known)} There are: {', '.join(known)}."
        )
    inputs = [one for one in (classifier, data) if isinstance(one, str | Path)]
    check_folder(target, own=OWN, inputs=inputs, overwrite=overwrite)
    if format in ENGINES:
        check_able(ENGINES[format], "fp32")
    elif layers:
        raise ModelError("The values within torch's package cannot be read; compare layers in another format.")
    loaded = _loaded(classifier, image_size, precision, merge, format, listener)
    check_knows_classes(loaded.task)
    own_images = None if data is None else list_images(data, listener)
    if own_images is not None and not own_images:
        raise ImageError(f"There is no image in '{data}' to check the file on.")
    size = loaded.preprocessing.image_size
    file = Path(target) / FILES[format][0]
    written = _write(loaded, file, format, listener)
    integers, reference = form_of(loaded) is not None, _reference(loaded)
    by_steps = integers or (isinstance(reference, EnginePredictor) and reference.merge > 0)
    checks = tuple(
        compare(
            loaded,
            answer,
            check_images(own_images, size),
            computed_by=how,
            has_to_hold=exact,
            listener=listener,
            reference=reference,
            most=MOST_APART_BY_STEPS if by_steps else MOST_APART,
        )
        for how, answer, exact in _answers(file, format, "int8" if integers else "fp32")
    )
    differs = any(check.holds is False for check in checks)
    cosines: dict[str, float] = {}
    if written and (layers or differs) and not checks[0].error:
        pixels = next(islice(check_images(own_images, size), checks[0].furthest, None))[1]
        cosines = layer_cosines(loaded, open_graph(file), written, pixels)
    whose = "parts of two photographs" if data is None else str(data)
    return Exported(file.parent, file, checks, whose, cosines)


def _loaded(
    classifier: Classifier | str | Path,
    image_size: int | tuple[int, int] | None,
    precision: WrittenPrecision | None,
    merge: int | None,
    format_name: Format,
    listener: Listener,
) -> Classifier:
    """Return the classifier, its predictor one that computes what the file is to compute."""
    asked = image_size is not None or precision is not None or merge is not None
    if isinstance(classifier, Classifier):
        if asked:
            raise ModelError(
                "A classifier that is given as itself is written at its own size, precision and merging; load it otherwise."
            )
        loaded = classifier
    else:
        loaded = load(
            classifier, image_size=image_size, precision="fp32" if precision else None, merge=merge, listener=listener
        )
    if precision == "int8":
        form = needed_form(loaded.quantization)
        loaded.predictor = EnginePredictor(loaded.model, INTEGERS.engine, INTEGERS.precision, form, merge or 0)
    if format_name == "torch" and form_of(loaded) is not None:
        raise ModelError("torch's package has no layers of integers; take another format, or the precision fp32.")
    return loaded


def form_of(classifier: Classifier) -> Quantization | None:
    """Return what a classifier computes its integers by; None where it does not compute in int8."""
    predictor = classifier.predictor
    return predictor.quantization if isinstance(predictor, EnginePredictor) else None


def _reference(classifier: Classifier) -> Predictor:
    """Return what the file's answers are held against: the classifier as it computes, but never in bf16."""
    predictor = classifier.predictor
    if not isinstance(predictor, EnginePredictor):
        return predictor.exact
    if predictor.quantization is None:
        return predictor_in(classifier.model, replace(PLAIN, merge=predictor.merge))
    if has_int8():
        return predictor_in(classifier.model, replace(INTEGERS, merge=predictor.merge), predictor.quantization)
    return TorchPredictor(written_network(classifier))  # this processor has no such products


def _write(classifier: Classifier, file: Path, format_name: Format, listener: Listener) -> dict[str, str]:
    """Write the folder, and return the names of the file's values by the layers that give them; none of torch's."""
    metadata = described(classifier)
    listener(Message(f"Writing {file}: the network's graph is traced and converted."))
    with new_folder(file.parent, own=OWN) as partial:
        module, name = WRITERS[format_name]
        written = getattr(importlib.import_module(module), name)(classifier, metadata, partial / file.name)
        for part in partial.iterdir():
            sync_file(part)
        write_through(partial / CARD, readme(classifier, format_name, metadata).encode())
    return written or {}


def _answers(file: Path, format_name: Format, precision: WrittenPrecision) -> Iterator[tuple[str, Answer, bool]]:
    """Give what computes the file, its name, and whether it has to give the classifier's answers."""
    if format_name == "torch":
        yield "torch's package in fp32", _packaged(file), True
        return
    yield f"{ENGINES[format_name]} in {precision}", open_graph(file).whole, True
    if format_name == "openvino" and has_native_bf16(torch.device("cpu")):
        how = f"openvino in {'int8 and ' if precision == 'int8' else ''}bf16, its default on this processor"
        yield how, opened_by(file, "openvino", "bf16").whole, False


def _packaged(file: Path) -> Answer:
    package = torch._inductor.aoti_load_package(str(file))

    def answer(images: Decoded) -> np.ndarray:
        with torch.no_grad():
            return package(torch.from_numpy(images))[0].numpy()

    return answer
