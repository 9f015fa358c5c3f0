"""Exported files of other programs: what they and the files beside them say of the network, and what is left to guess.

They say little of themselves, and each program says it in its own way: Ultralytics in the metadata, transformers' exporters and
timm's users in JSON files beside the graph, OpenVINO's tools in its runtime information. Whether the answers are logits is seen
in the graph's last operation, and in answers: those of a softmax add up to 1 for any image.
"""

import ast
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.classifier.metadata import Provenance
from vitral.errors import ModelError, VitralError, WeightsError, one_line
from vitral.events import Listener, Message
from vitral.files import text_of
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.inference.exported.format import ROUNDED, Graph, Port
from vitral.inference.exported.predictor import FLOATS, Ending, ExportedPredictor
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.dialect import Stored
from vitral.weights.names import timm, transformers
from vitral.weights.recognize import CONFIG, CONFIG_LIMIT, foreign_config, foreign_preprocessor

LARGEST_SIDE = 4096  # pixels of prepared images
LONGEST = 1 << 20  # characters of an entry that is read
# Entries with class names.
NAMES = ("names", "class_names", "classes", "labels", "id2label", "label_names", "class_labels")
# Entries with means and deviations.
SCALES = (("mean", "std"), ("image_mean", "image_std"), ("mean_values", "scale_values"))
YAML = "metadata.yaml"  # Ultralytics' beside a file of OpenVINO's
# ultralytics/data/augment.py: the shorter side to the size, a centre crop, values of 0 to 1.
ULTRALYTICS = Preprocessing(resize="crop", antialias=True, mean=(0, 0, 0), std=(1, 1, 1), resampler="pillow")
NEAR = 1e-3  # from 1, for the sum of an image's probabilities
ENDINGS: dict[str, Ending] = {"Softmax": "softmax", "Sigmoid": "sigmoid"}  # by the names that both runtimes have
TAKEN = (*FLOATS, "uint8")  # the types of prepared images, the last for values from 0 to 255


@dataclass(frozen=True)
class Said:
    """What is said of a network.

    Attributes:
        preprocessing: the preparation of its images; None where nothing says it.
        class_names: the names of its classes; None where nothing says them.
        task: what its answers mean, where something says that; None else.
        whole: whether the preparation is said whole, rather than means and deviations alone.
    """

    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] | None = None
    task: Task | None = None
    whole: bool = True


def read_foreign(graph: Graph, listener: Listener) -> Classifier:
    """Return the classifier in a file of another program; the listener hears what it says, and what is guessed.

    Raises:
        WeightsError: its input is no image or its output no row of values, or it answers with numbers instead of classes.
        ModelError: its runtime cannot compute it.
    """
    _image_size(graph, Said(PHOTOS))  # what takes no images is refused for that
    outputs = _outputs(graph)
    said = _said(graph, outputs)
    size, channels_last = _image_size(graph, said)
    preprocessing = (said.preprocessing or PHOTOS).with_size(size)
    common: dict[str, Any] = {"name": "a network", "image_size": size, "channels_last": channels_last}
    raw = ExportedPredictor(graph, num_classes=outputs, **common)
    ends_in = _ending(graph, _answers(raw, _shown(preprocessing)))
    task = _task(said, ends_in, outputs)
    two = outputs == 1 and task is SINGLE_LABEL
    names = said.class_names[-outputs:] if said.class_names and not two else said.class_names
    predictor = ExportedPredictor(graph, num_classes=2 if two else outputs, two_classes=two, ends_in=ends_in, **common)
    listener(_message(graph, said, preprocessing, ends_in, two=two))
    return Classifier(predictor, preprocessing, names, provenance=Provenance(source=f"{graph.path}"), task=task)


def _task(said: Said, ends_in: Ending, outputs: int) -> Task:
    """Return what the answers mean: a softmax is of one class an image, sigmoids are of classes each for itself."""
    if ends_in == "softmax":
        return SINGLE_LABEL
    return MULTI_LABEL if ends_in == "sigmoid" and outputs > 1 else said.task or SINGLE_LABEL


def _message(graph: Graph, said: Said, preprocessing: Preprocessing, ends_in: Ending, *, two: bool) -> Message:
    height, width = preprocessing.image_size
    resized = f"{'cropped' if preprocessing.resize == 'crop' else 'squashed'} to {height}x{width} pixels"
    scaled = f"scaled by mean {preprocessing.mean[0]:.3g} and std {preprocessing.std[0]:.3g}"
    if graph.inputs[0].dtype not in FLOATS:
        scaled = "of values from 0 to 255"
    if said.preprocessing is None:
        images = f"{resized} and scaled to -1 to 1, which is a guess"
    elif said.whole:
        images = f"{resized} and {scaled}, as it says"
    else:
        images = f"{scaled}, as it says, and {resized}, which is a guess"
    names = "classes have numbers" if said.class_names is None else "classes have the names that it says"
    output = f"its output '{graph.outputs[graph.taken].name}'" if len(graph.outputs) > 1 else "its output"
    answers = f"{output} is {'logits' if ends_in == 'logits' else f'probabilities, by its last {ends_in}'}"
    one = ", of the second of two classes (a network that learned to give a number does not tell)" if two else ""
    guessed = two or said.preprocessing is None or not said.whole or said.class_names is None
    return Message(
        f"'{graph.path}' was not written by Vitral: images are {images}; {names}; {answers}{one}.", warning=guessed
    )


def _said(graph: Graph, outputs: int) -> Said:
    """Return what a file, its metadata, and where they are silent the files beside it say."""
    said = _told(graph, outputs)
    if graph.inputs[0].dtype in FLOATS:
        return said
    pixels = dataclasses.replace(said.preprocessing or PHOTOS, mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255))
    return dataclasses.replace(said, preprocessing=pixels, whole=said.preprocessing is not None and said.whole)


def _told(graph: Graph, outputs: int) -> Said:
    """Return what the file's metadata say, and where they are silent what the files beside it say."""
    metadata = {**_from_yaml(graph), **graph.metadata}
    names = next((names for key in NAMES if (names := _names(metadata.get(key, ""), outputs))), None)
    if metadata.get("author") == "Ultralytics" and metadata.get("task") == "classify":
        side = _numbers(metadata.get("imgsz", ""))
        size = (int(side[0]), int(side[-1])) if side and min(side) >= 1 else ULTRALYTICS.image_size
        return Said(ULTRALYTICS.with_size(size), names, SINGLE_LABEL)
    own = _normalization(metadata)
    beside = _beside(graph, outputs)
    return Said(own or beside.preprocessing, names or beside.class_names, beside.task, whole=own is None)


def _beside(graph: Graph, outputs: int) -> Said:
    """Return what the JSON files of transformers or timm say, in the file's folder, or above one that is called "onnx"."""
    folder = graph.path.parent
    if folder.name == "onnx" and not (folder / CONFIG).is_file():
        folder = folder.parent
    config, preprocessor = foreign_config(folder), foreign_preprocessor(folder)
    if not config and not preprocessor:
        return Said()
    transformers.check_answers_with_classes(config, str(graph.path))
    stored = Stored(str(graph.path), graph.path.name, {}, config=config, preprocessor=preprocessor)
    library = timm if "pretrained_cfg" in config or "architecture" in config else transformers
    try:
        usage = library.usage(stored, PHOTOS)
    except (ValueError, TypeError, AttributeError, KeyError, VitralError) as error:
        raise WeightsError(f"What stands beside '{graph.path}' cannot be used: {error}") from error
    task = transformers.task_of_problem(config) if "problem_type" in config else None
    return Said(None if usage.notes else usage.preprocessing, _fitting(usage.class_names, outputs), task)


def _from_yaml(graph: Graph) -> Mapping[str, str]:
    path = graph.path.with_name(YAML)
    if graph.path.suffix != ".xml" or not path.is_file() or path.stat().st_size > CONFIG_LIMIT:
        return {}
    import yaml  # a part of the Hub's client, which is always there

    try:
        values = yaml.safe_load(text_of(path))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise WeightsError(f"'{path}' cannot be read as YAML; remove it, or export the file again.") from error
    return {str(name): str(value) for name, value in values.items()} if isinstance(values, dict) else {}


def _value(text: str) -> Any:  # noqa: ANN401  # a value of JSON, or a literal of Python
    """Return what an entry's text says: JSON, a literal of Python, or the text itself; no code in it is run."""
    for parse in (json.loads, ast.literal_eval) if len(text) <= LONGEST else ():
        try:
            return parse(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return text


def _names(text: str, outputs: int) -> tuple[str, ...] | None:
    """Return the class names in an entry: a list, numbers with names or names with numbers, lines, or words."""
    if not text:
        return None
    value = _value(text)
    if isinstance(value, Mapping):
        if all(type(index) is int for index in value.values()):
            value = {index: name for name, index in value.items()}
        by_number = {str(index): name for index, name in value.items()}
        value = [by_number.get(str(index)) for index in range(len(value))]
    if isinstance(value, str):
        separators = ("\n", ";", ",", None)
        parts = [[part.strip() for part in value.strip().split(mark)] for mark in separators]
        counts = (2, 1) if outputs == 1 else (outputs,)
        value = next((found for count in counts for found in parts if len(found) == count), None)
    return _fitting(tuple(value), outputs) if isinstance(value, list | tuple) else None


def _fitting(names: tuple[Any, ...] | None, outputs: int) -> tuple[str, ...] | None:
    """Return names if there are as many as outputs; of one output, those of the two classes that it tells apart."""
    if not names or not all(isinstance(name, str) and name for name in names):
        return None
    if outputs == 1 and len(names) == 1:
        return f"not {names[0]}", names[0]
    return transformers.unique(names) if len(names) == (outputs if outputs > 1 else 2) else None


def _numbers(text: str) -> list[float]:
    """Return the numbers in an entry: a list, one alone, or several in a row; none of anything else."""
    value = _value(",".join(text.strip("[]() ").replace(",", " ").split()))
    values = value if isinstance(value, tuple) else (value,)
    return [float(number) for number in values if isinstance(number, int | float) and math.isfinite(number)]


def _normalization(metadata: Mapping[str, str]) -> Preprocessing | None:
    """Return the default with the means and deviations that entries say, of values of 0 to 1 or of 0 to 255."""
    for mean, std in SCALES:
        means, deviations = (_numbers(metadata.get(name, "")) for name in (mean, std))
        if not deviations or not {len(means), len(deviations)} <= {0, 1, 3} or min(deviations) <= 0:
            continue
        scale = 255 if max(deviations) > 1 else 1
        red, green, blue = (value / scale for value in (means * 3)[:3] or (0, 0, 0))
        red_std, green_std, blue_std = (value / scale for value in (deviations * 3)[:3])
        return dataclasses.replace(PHOTOS, mean=(red, green, blue), std=(red_std, green_std, blue_std))
    return None


def _image_size(graph: Graph, said: Said) -> tuple[tuple[int, int], bool]:
    """Return the height and width of the images that a file takes, and whether their channels come last.

    Where the file takes images of any size, it is the size that is said; one that takes bytes may well resize them itself.
    """
    if len(graph.inputs) == 1 and graph.inputs[0].dtype in TAKEN and len(graph.inputs[0].shape) == 4:
        _, *sides = graph.inputs[0].shape
        channels_last = sides[2] == 3 and sides[0] != 3
        channels, height, width = (sides[2], *sides[:2]) if channels_last else sides
        known = said.preprocessing if said.whole or graph.inputs[0].dtype in FLOATS else None
        own = known.image_size if known else (None, None)
        size = (height or own[0], width or own[1])
        if channels in (3, None) and size[0] and size[1] and max(size[0], size[1]) <= LARGEST_SIDE:
            return (size[0], size[1]), channels_last
    ports = ", ".join(f"{port.name}: {port.dtype} {list(port.shape)}" for port in graph.inputs)
    raise WeightsError(
        f"'{graph.path}' takes something else than images ({ports}); one input is needed, of floats or uint8, "
        "(batch, 3, height, width) or (batch, height, width, 3) of a fixed height and width, or of one that it says."
    )


def _outputs(graph: Graph) -> int:
    """Return how many values a file gives for each image, in the first of its outputs that is a row of them.

    Of several such the first is taken for which there are names of classes.
    """
    alone = graph.inputs[0].shape[0] == 1
    counts = [_count(port, alone=alone) for port in graph.outputs]
    rows = [place for place, count in enumerate(counts) if count is not None]
    if not rows:
        raise _no_row(graph, 0, graph.outputs[0].shape)
    several = rows if len(rows) > 1 else ()
    named = (place for place in several if _said(graph, counts[place] or 0).class_names)
    graph.taken = next(named, rows[0])
    return counts[graph.taken] or _counted(graph)


def _count(port: Port, *, alone: bool) -> int | None:
    """Return how many values an output has for each image: 0 where the file does not say, None where it is no row of them.

    Of a file that takes one image alone they may be all that there is, without an axis for the batch.
    """
    if port.dtype not in FLOATS:
        return None
    if not port.shape or None in port.shape[1:2]:
        return 0
    if alone and len(port.shape) == 1:
        return port.shape[0] or 0
    count = math.prod(axis or 0 for axis in port.shape[1:])
    return count if count and count in (1, *port.shape[1:2]) else None


def _counted(graph: Graph) -> int:
    """Return how many values a file gives for an image, by computing one: some exporters leave it open.

    Raises:
        WeightsError: They are no row, or the runtime cannot compute them.
    """
    taken = graph.inputs[0]
    (height, width), last = _image_size(graph, _said(graph, 0))
    shape = (taken.shape[0] or 1, *((height, width, 3) if last else (3, height, width)))
    try:
        found = np.atleast_1d(graph.answer(np.zeros(shape, taken.dtype)))
    except Exception as error:  # a runtime raises anything
        raise WeightsError(f"{graph.engine} cannot compute '{graph.path}': {one_line(error)}") from error
    count = _count(dataclasses.replace(graph.outputs[graph.taken], shape=found.shape), alone=len(found.shape) == 1)
    if not count:
        raise _no_row(graph, graph.taken, found.shape)
    return count


def _no_row(graph: Graph, place: int, shape: Sequence[int | None]) -> WeightsError:
    """Return the refusal of an output that is no row of values for each image."""
    port = graph.outputs[place]
    return WeightsError(
        f"The output '{port.name}' of '{graph.path}' is no row of values for each image ({port.dtype} {list(shape)}); floats "
        "(batch, classes) are needed."
    )


def _answers(raw: ExportedPredictor, images: Tensor) -> Tensor:
    """Return a file's answers to images, each computed alone.

    Where it gives others to several at once, it is given one at a time from now on: it was traced with one image, or quantizes
    all of a batch by one scale.
    """
    alone = torch.cat([raw.logits(image[None]) for image in images])
    taken = raw.graph.inputs[0]
    if taken.shape[0] is None:
        try:
            same = torch.allclose(raw.logits(images), alone, rtol=NEAR, atol=NEAR)
        except ModelError:
            same = False
        if not same:
            raw.graph.inputs = (dataclasses.replace(taken, shape=(1, *taken.shape[1:])),)
    return alone


def _shown(preprocessing: Preprocessing) -> Tensor:
    """Return four prepared images that have nothing in common: black, white, and two of noise."""
    height, width = preprocessing.image_size
    noise = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    plain = np.stack([np.full((height, width, 3), value, np.uint8) for value in (0, 255)])
    return torch.stack([preprocessing(image) for image in np.concatenate([plain, noise])])


def _ending(graph: Graph, found: Tensor) -> Ending:
    """Return what a file's answers are; those of a logarithm of a softmax are logits as well.

    Raises:
        WeightsError: it ends in a softmax over one value, which is 1 for every image, or over anything but its classes.
    """
    operation = graph.last_operation()
    last = ENDINGS.get(operation.removeprefix(ROUNDED), "logits")
    if found.shape[1] == 1:
        if last == "softmax":
            raise WeightsError(f"'{graph.path}' ends in a softmax over one value, which is 1 for every image.")
        return last
    positive = bool((found >= 0).all())
    if positive and bool(((found.sum(dim=1) - 1).abs() < NEAR).all()):
        return "softmax"
    if last == "softmax" and not operation.startswith(ROUNDED):
        raise WeightsError(f"'{graph.path}' ends in a softmax whose values do not add up to 1 over its classes.")
    return "sigmoid" if last == "logits" and positive and bool((found <= 1).all()) else last
