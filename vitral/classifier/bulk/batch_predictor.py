"""A classifier as a function of a batch of rows, as Ray Data, Hugging Face datasets, Spark and Daft carry it to workers."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from vitral.classifier.bulk.ahead import BATCH_SIZE, BatchAnswer, answer, batches, prepare_ahead
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import state_of_files
from vitral.classifier.inputs import InMemory
from vitral.classifier.load import load
from vitral.data.columns import IMAGES, known_column
from vitral.data.image_files import LazyImage, of_file, unreadable
from vitral.data.web_image import is_web_image, web_image
from vitral.errors import DataError, ModelError
from vitral.events import ignore
from vitral.machine import keep_freed_memory
from vitral.paths import local_path
from vitral.tasks.unlabelled import check_classifies

CONTENTS = ("image", "bytes", "content")  # names of columns that come before those of paths
LOADED_AT_ONCE = 4  # classifiers that a process keeps
ENCODED = (bytes, bytearray, memoryview)
NO_NUMBER = float("nan")

Batch = Any  # a mapping of columns, a pandas DataFrame, or an Arrow Table or RecordBatch
Column = Sequence[Any]


@dataclass(frozen=True)
class BatchPredictor:
    """A function of a batch of rows that gives them the classifier's answers, the same as `Classifier.predict`.

    It is small wherever it is sent: the classifier is loaded at the first batch, once in each process. A row that cannot be
    read has its error, and the others are answered. Everything but the images is passed on.

    A batch is a mapping of columns (lists or arrays), a pandas DataFrame, or an Arrow Table or RecordBatch, and what comes back
    is the same. An image is encoded bytes, a path or an http address, {"bytes": ..., "path": ...}, an array (height, width, 3)
    or (height, width) of uint8, or a PIL image.

    | column | what it is |
    |---|---|
    | `label`, `probability` | the most probable class; "" and NaN where the image cannot be read |
    | `top_labels`, `top_probabilities` | lists of the `top` most probable classes, highest first; only for `top` above 1 |
    | `sure` | whether the probability reaches the classifier's threshold, where it has one |
    | `known`, `novelty` | whether the image is like those of the classes, and how far it is, where the classifier tells |
    | `features` | what the network's last layer reads, if wanted |
    | `error` | why the image cannot be read; "" where it can |

    Args:
        classifier: What `load` takes, by name: a path that every worker can read, a Hub id, an exported file.
        column: The column of images; None for the only one, or the first called "image", "bytes" or "content", or else as in
            tables that `finetune` takes, such as "path".
        top: The number of classes to name.
        features: Whether to give the features, too.
        prefix: What the names of all columns of answers begin with, where the rows have a column "label" of their own.
        batch_size: The number of images that are computed at once, however many rows come.
        threads: The threads that decode and compute in a process; None for as many as torch has, which the environment
            says (OMP_NUM_THREADS; Ray and Spark set it) or the number of cores.

    Raises:
        ModelError: `top`, `batch_size` or `threads` is below 1, or the classifier is not given by its name.
    """

    classifier: str | Path
    column: str | None = None
    top: int = 5
    features: bool = False
    prefix: str = ""
    batch_size: int = BATCH_SIZE
    threads: int | None = None
    version: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.classifier, str | Path):
            raise ModelError("A classifier is sent to other processes by its name; give the folder that it is in.")
        if min(self.top, self.batch_size, 1 if self.threads is None else self.threads) < 1:
            raise ModelError("top, batch_size and threads are 1 or more.")
        path = Path(self.classifier)
        source = str(path.absolute() if path.exists() else self.classifier)  # workers have other current folders
        # Caches of answers, and of classifiers in processes that live long, are told by it that the classifier has changed.
        state = hashlib.sha256(repr(state_of_files(source)).encode()).hexdigest()
        object.__setattr__(self, "classifier", source)
        object.__setattr__(self, "version", state[:12])

    def __call__(self, batch: Batch) -> Batch:
        """Return a batch with the columns of answers in place of the images.

        Raises:
            DataError: There is no column of images, or one of the others has the name of an answer.
            WeightsError: There is no such classifier, or it cannot be read.
            ModelError: The network gives no number, as damaged weights do.
        """
        columns, build = _opened(batch, self.prefix)
        image = self.column or image_column(list(columns))
        if image not in columns:
            raise DataError(f"The batch has no column '{image}'; its columns: {', '.join(columns)}.")
        cells = columns[image]  # a list, an array, or a column of pandas or Arrow
        answers = self._answers(cells.to_pylist() if hasattr(cells, "to_pylist") else list(cells))
        if taken := sorted(answers.keys() & (columns.keys() - {image})):
            raise DataError(
                f"The batch has a column '{taken[0]}' of its own; BatchPredictor(..., prefix='predicted_') names the "
                "answers apart."
            )
        return build(image, answers)

    def _answers(self, cells: Column) -> dict[str, Column]:
        classifier = _loaded(str(self.classifier), self.version)
        if self.threads is not None and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        images = [image_of(index, cell) for index, cell in enumerate(cells)]
        found: dict[int, BatchAnswer] = {}
        errors = [""] * len(images)
        ready = prepare_ahead(
            enumerate(images),
            classifier.preprocessing,
            workers=torch.get_num_threads(),
            batch_size=self.batch_size,
        )
        for some in batches(ready, self.batch_size):
            found |= answer(classifier, some, top=self.top, features=self.features)
            for one in some:
                errors[one.index] = one.error
        rows = [found.get(index) for index in range(len(images))]
        columns = answer_columns(classifier, rows, top=self.top, features=self.features)
        return {f"{self.prefix}{name}": column for name, column in {**columns, "error": errors}.items()}


@functools.lru_cache(LOADED_AT_ONCE)
def _loaded(source: str, version: str) -> Classifier:  # another version is loaded anew
    keep_freed_memory()
    classifier = load(source, listener=ignore)
    check_classifies(classifier.task, "A batch predictor")
    return classifier


def answer_columns(
    classifier: Classifier, rows: Sequence[BatchAnswer | None], *, top: int, features: bool
) -> dict[str, Column]:
    """Return the columns of answers, without errors.

    All batches have columns of the same types and, of lists, lengths, because frameworks take the types from the first batch,
    which may hold no image that can be read: its texts are empty, its numbers NaN.
    """
    top = min(top, len(classifier.class_names))
    found = [None if row is None else row.prediction for row in rows]
    columns: dict[str, Column] = {
        "label": ["" if row is None else row.label for row in found],
        "probability": _numbers([NO_NUMBER if row is None else row.probability for row in found]),
    }
    if top > 1:
        unread = (("", NO_NUMBER),) * top
        ranked = [unread if row is None else row.top for row in found]
        columns["top_labels"] = [[label for label, _ in row] for row in ranked]
        columns["top_probabilities"] = [_numbers([probability for _, probability in row]) for row in ranked]
    if classifier.calibration is not None and classifier.calibration.threshold is not None:
        columns["sure"] = [row is not None and bool(row.sure) for row in found]
    if classifier.tells_novelty:
        columns["known"] = [row is not None and bool(row.known) for row in found]
        columns["novelty"] = _numbers(
            [NO_NUMBER if row is None or row.novelty is None else row.novelty for row in found]
        )
    if features:
        columns["features"] = _features(classifier, rows)
    return columns


def _numbers(values: Sequence[float]) -> Any:  # noqa: ANN401  # an array
    return np.array(values, dtype=np.float32)


def _features(classifier: Classifier, rows: Sequence[BatchAnswer | None]) -> Column:
    known = [row.features.numpy() for row in rows if row is not None and row.features is not None]
    if rows and not known:  # what their number is, an image must tell
        known = [classifier.predictor.features(torch.zeros(1, 3, *classifier.preprocessing.image_size))[0].numpy()]
    unread = np.full_like(known[0], NO_NUMBER) if known else None
    return [unread if row is None or row.features is None else row.features.numpy() for row in rows]


def image_column(names: Sequence[str]) -> str:
    """Return the column of images by its name, because a batch may hold none; the only column under any name.

    Raises:
        DataError: There is none.
    """
    image = names[0] if len(names) == 1 else known_column(names, (*CONTENTS, *IMAGES))
    if image is None:
        raise DataError(
            f"No column of the batch is named like images ({', '.join(names) or 'it has none'}); "
            "BatchPredictor(..., column='NAME') names it."
        )
    return image


def image_of(index: int, cell: object) -> LazyImage:
    """Return the image of a row, which is read when it is needed; of a cell without one, the error in its place."""
    if isinstance(cell, Mapping):
        content, path = cell.get("bytes"), cell.get("path")
        return image_of(index, path if content is None else content)
    if isinstance(cell, str | Path) and str(cell):
        return _of_path(str(cell))
    name = f"row {index}"
    if isinstance(cell, ENCODED):
        return LazyImage(name, InMemory(bytes(cell)))
    if isinstance(cell, np.ndarray | Image.Image):
        return LazyImage(name, InMemory(cell))
    what = "nothing" if cell is None or cell == "" else f"a value of type {type(cell).__name__}"
    return unreadable(name, f"The row has {what} in place of an image.")


def _of_path(path: str) -> LazyImage:
    if is_web_image(path):
        return web_image(path)
    return of_file(Path(local_path(path)), path)


Build = Callable[[str, dict[str, Column]], Batch]


def _opened(batch: Batch, prefix: str) -> tuple[Mapping[str, Any], Build]:
    """Return a batch's columns, and what makes a batch of the same kind of answers and all columns but the images'."""
    if isinstance(batch, Mapping):
        columns = dict(batch)
        return columns, lambda image, answers: {**_without(columns, image), **answers}
    if hasattr(batch, "append_column"):  # of Arrow
        return dict(zip(batch.schema.names, batch.columns, strict=True)), functools.partial(_arrow, batch, prefix)
    if hasattr(batch, "assign"):  # of pandas
        columns = {name: batch[name] for name in batch.columns}
        return columns, lambda image, answers: batch.drop(columns=image).assign(**answers)
    raise DataError(
        f"A batch is a mapping of columns, a pandas DataFrame or an Arrow table, not a {type(batch).__name__}; let the "
        "framework give batches (batched=True of datasets, map_batches of Ray)."
    )


def _without(columns: Mapping[str, Any], image: str) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if name != image}


def _arrow(batch: Batch, prefix: str, image: str, answers: Mapping[str, Column]) -> Batch:
    import pyarrow as pa  # there, as the batch is

    number, text = pa.float32(), pa.string()
    kinds = {"probability": number, "novelty": number, "sure": pa.bool_(), "known": pa.bool_()}
    kinds |= {"top_labels": pa.list_(text), "top_probabilities": pa.list_(number), "features": pa.list_(number)}
    batch = batch.drop_columns([image])
    for name, column in answers.items():
        batch = batch.append_column(name, pa.array(column, type=kinds.get(name.removeprefix(prefix), text)))
    return batch
