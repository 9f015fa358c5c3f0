"""Which start pays for a user's images: a linear probe on the frozen features of each, on the same images, nothing trained."""

import math
import time as clock
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import is_classifier
from vitral.classifier.load import HUB_ID, load
from vitral.classifier.provenance import RANDOM
from vitral.data.classes import Reading
from vitral.data.fingerprint import same_data
from vitral.data.open import open_data, path_in
from vitral.data.source import DataSet
from vitral.errors import DataError, ModelError, PluginError, StorageError, StudyError, WeightsError
from vitral.evaluation.baselines import MOST_TEST, MOST_TRAINING
from vitral.evaluation.features import Stopwatch, sample, unit_seconds
from vitral.evaluation.starts import Cost, Images, Probed, affordable, decide, measure_cost, probe_start, surely_better
from vitral.events import Listener, Message, ignore
from vitral.layout import CLASSIFIER, WEIGHTS
from vitral.outputs import check_file
from vitral.paths import is_folder, is_regular, look_at
from vitral.progress import show
from vitral.report.starts import JSON_FILE, MARKS, PIXELS, TABLE_FILE, StartRow, StartTable
from vitral.report.written import write_result
from vitral.studies.speech import PYTHON, Speech
from vitral.studies.start_names import read_names
from vitral.training.optimization.precision import autocast, training_device
from vitral.training.planning.durations import rounded
from vitral.training.planning.request import Asked, ask
from vitral.weights.hub import download
from vitral.weights.named.fetch import fetch, kept
from vitral.weights.named.find import row_of
from vitral.weights.named.reach import without_network
from vitral.weights.named.row import MEGABYTE, rows
from vitral.weights.recognize import weights_in

PIXEL_MODEL = "pixels-16"  # whose preprocessing the row of pixels has
NO_TIME = "there was no time for it"


def starts(
    data: str | Path,
    starts: str | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    image_size: int | None = None,
    time: str | float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    overwrite: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
    speech: Speech = PYTHON,
    told: Callable[[StartTable], object] | None = None,
) -> StartTable:
    """Compare starts for a training by linear probes on their frozen features, on the same images; nothing is trained.

    At most 4,000 training images and 2,000 validation images are looked at, drawn by the seed; without a validation split each
    training image is judged by the fit without it. The test split has no part in it. One start is in memory at a time; one that
    cannot be had is a row that says why.

    Args:
        data: what `vitral.data.open.open_data` takes, with one class an image.
        starts: names, in a list or with commas between them: whatever `source` of `finetune` takes, and "auto", which stands
            for the published weights on this machine that may be used in products, and the best small ones that are free.
        out: a folder for starts.json and starts.md; None writes nothing.
        image_size: pixels; each start's own if None.
        time: a budget for everything, from `started` on, downloads included, though none is broken off: fewer images are looked
            at then, as many for every start, and starts for which there is no time are left out.
        seed: of the images that are drawn; None for 0.
        classes: of nested folders, which one names the class.
        skip_bad_images: pass over unreadable images instead of an error.
        overwrite: replace files of those names in `out` that are not of this kind.
        offline: fetch nothing: what is not on this machine is a row that says so. The environment variable HF_HUB_OFFLINE
            means the same.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress.
        speech: the words for what to type next.
        told: hears the table before it is written, so that it is not lost with a disk that is full by then.

    Returns:
        A row a start, which one to take, and what to type for that.

    Raises:
        WeightsError: a name that means nothing, said before any work.
        DataError: the data cannot be read, or have several classes an image.
        StudyError: no start could be compared.
        StorageError: nothing can be written in `out`.
    """
    began = clock.monotonic() if started is None else started
    if distributed.world() > 1:
        raise StudyError("Starts are compared by one process; run it without torchrun.")
    asked = ask(
        "fine-tune", data, image_size=image_size, time=time, seed=seed, classes=classes, skip_bad_images=skip_bad_images
    )
    folder = None if out is None else Path(out)
    with without_network(offline):
        names = read_names(starts, listener)
        if folder is not None:
            _check_out(folder, [path_in(asked.required_data()), *names], overwrite=overwrite)
        opened = _open(asked, listener)
        budget = math.inf if asked.budget_seconds is None else asked.budget_seconds - (clock.monotonic() - began)
        table = _Comparison(asked, opened, names, Stopwatch(budget), listener, speech).table()
    if told is not None:
        told(table)
    if folder is not None:
        write_result(table, folder, json_file=JSON_FILE, table_file=TABLE_FILE)
    return table


def _check_out(folder: Path, inputs: Sequence[str], *, overwrite: bool) -> None:
    for name, mark in MARKS.items():
        check_file(folder / name, inputs=inputs, mark=mark, overwrite=overwrite)
    data = Path(inputs[0])
    if is_folder(data) and folder.resolve().is_relative_to(data.resolve()):
        raise StorageError(f"'{folder}' lies in the data, which are never written to; choose another folder.")


def _open(asked: Asked, listener: Listener) -> DataSet:
    data = open_data(
        asked.required_data(), classes=asked.classes, skip_bad_images=asked.skip_bad_images, listener=listener
    )
    if not data.task.exclusive:
        raise DataError(
            f"The images of {data.name} {data.task.labelled}; starts are compared by a linear probe, which is for one class an "
            "image."
        )
    for note in data.notes:
        listener(Message(note))
    return data


@dataclass(eq=False)
class _Comparison:
    """One comparison: what was asked, and what is known so far.

    Attributes:
        asked: the training that the comparison is for, without its start.
        data: the images.
        names: of the starts.
        stopwatch: says what is left of the time.
        listener: hears of it.
        speech: the words for what to type.
        found: the rows so far.
        probed: what their probes made of those that could be compared.
        seen: starts that have learned from these data before, so that to leave a training image out of the fit is not enough.
    """

    asked: Asked
    data: DataSet
    names: Sequence[str]
    stopwatch: Stopwatch
    listener: Listener
    speech: Speech
    found: dict[str, StartRow] = field(default_factory=dict)
    probed: dict[str, Probed] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def table(self) -> StartTable:
        """Compare the starts."""
        images = self._images()
        if self.asked.budget_seconds is not None:
            images = self._affordable(images)
        for name in (PIXELS, *self.names):
            self._attempt(name, partial(self._probe, name, images))
            self._tell(name, images)
        if not any(name in self.probed for name in self.names):
            first = self.found[self.names[0]]
            raise StudyError(f"No start could be compared. {first.reason()}")
        return self._concluded(images)

    def _images(self) -> Images:
        seed, splits = self.asked.seed or 0, self.data.splits
        train = sample(splits["train"], MOST_TRAINING, seed=seed, purpose="images that starts are compared on")
        judging = splits.get("validation")
        if judging is not None:
            judging = sample(judging, MOST_TEST, seed=seed, purpose="images that judge starts")
        return Images(train, judging, len(self.data.class_names))

    def _affordable(self, images: Images) -> Images:
        """Return as many of the images as there is time for, and note the starts for which there is none."""
        costs: dict[str, Cost] = {}
        for name in [PIXELS, *self.names]:
            self._attempt(name, partial(self._measure, name, images, costs))
        judging = 0 if images.judging is None else len(images.judging)
        counts, left_out = affordable(
            costs, len(images.train), judging, images.classes, seconds=self.stopwatch.left(), unit=unit_seconds()
        )
        for name in left_out:
            self.found[name] = self._failed(name, NO_TIME)
        fewer = images.thinned(*counts)
        if counts != (len(images.train), judging):
            self.listener(
                Message(f"There is time for {_counted(fewer)} of {_counted(images)}, the same for every start.")
            )
        return fewer

    def _measure(self, name: str, images: Images, costs: dict[str, Cost]) -> None:
        """Note what a start takes."""
        if self.stopwatch.left() <= 0:
            raise StudyError(NO_TIME)
        _fetch(name, self.listener)  # which loading it again does not take
        began = clock.perf_counter()
        classifier = self._load(name, self.listener)
        loading = clock.perf_counter() - began
        costs[name] = measure_cost(classifier, images, loading, network=name != PIXELS, context=_context)

    def _probe(self, name: str, images: Images) -> None:
        """Compare a start."""
        if self.stopwatch.left() <= 0:
            raise StudyError(NO_TIME)
        began = clock.perf_counter()
        timed = self.asked.budget_seconds is not None  # then it was loaded before, and all was said
        classifier = self._load(name, ignore if timed else self.listener)
        loading = clock.perf_counter() - began
        probed = probe_start(classifier, images, self.listener, network=name != PIXELS, context=_context)
        self.found[name] = self._row(name, classifier, replace(probed, seconds=probed.seconds + loading))
        self.probed[name] = replace(probed, left_out=probed.left_out[:0]) if name in self.seen else probed

    def _load(self, name: str, listener: Listener) -> Classifier:
        if name == PIXELS:
            return load(PIXEL_MODEL, listener=ignore)
        return load(name, image_size=self.asked.image_size, tuned=False, listener=listener).to(training_device())

    def _attempt(self, name: str, work: Callable[[], object]) -> None:
        """Do something with a start; if it cannot be had, its row says so."""
        if name in self.found:
            return
        try:
            work()
        except (WeightsError, ModelError, PluginError, StorageError, StudyError) as error:
            self.found[name] = self._failed(name, str(error))
        except (torch.OutOfMemoryError, MemoryError):
            self.found[name] = self._failed(name, "it does not fit into memory.")

    def _failed(self, name: str, problem: str) -> StartRow:
        row = rows().get(name)
        known = StartRow(name, problem=" ".join(problem.split()))
        if row is None:
            return known
        return replace(known, megabytes=float(row.megabytes), licence=row.licence, products=row.products)

    def _row(self, name: str, classifier: Classifier, probed: Probed) -> StartRow:
        (low, high), provenance = probed.interval, classifier.provenance
        figures = StartRow(
            name, probed.accuracy, low, high, image_seconds=probed.image_seconds, seconds=probed.seconds, weights="none"
        )
        if name == PIXELS:
            return figures
        random = provenance.source.startswith(RANDOM) and not provenance.training
        row = row_of(provenance.source)
        remarks = ["random weights, for comparison."] if random else []
        if same_data(str(provenance.training.get("data_fingerprint", "")), self.data.fingerprint):
            self.seen.add(name)
            remarks.append("it has learned from these data before.")
        if row is not None and (caution := row.caution()):
            remarks.append(caution)
        return replace(
            figures,
            parameters=classifier.predictor.num_parameters,
            megabytes=None if random else _bytes(name, classifier) / MEGABYTE,
            licence="" if row is None else row.licence,
            products="" if row is None else row.products,
            weights="random" if random else "trained",
            remarks=tuple(remarks),
        )

    def _tell(self, name: str, images: Images) -> None:
        row, number = (
            self.found[name],
            "" if name == PIXELS else f"Start {self.names.index(name) + 1} of {len(self.names)}: ",
        )
        if row.accuracy is None or row.seconds is None:
            self.listener(Message(f"{number}{row.reason()}", warning=True))
        else:
            reached = f"{row.accuracy:.1%} of {images.judged:,} images after {rounded(row.seconds)}"
            self.listener(Message(f"{number}{name}: {reached}."))

    def _concluded(self, images: Images) -> StartTable:
        every = [self.found[name] for name in (*self.names, PIXELS)]
        ranked = sorted(every, key=lambda row: (row.accuracy is None, -(row.accuracy or 0.0)))
        pixels = self.probed.get(PIXELS)
        decision = decide({name: self.probed[name] for name in self._eligible()})
        table = StartTable(
            self.data.name,
            tuple(ranked),
            len(images.train),
            images.judged,
            "training" if images.judging is None else "validation",
        )
        if decision is None:
            return table
        best = self.probed[decision.best]
        return replace(
            table,
            best=decision.best,
            tied=decision.tied,
            beats_pixels=None if pixels is None else surely_better(best, pixels),
            next=self.speech.ask(replace(self.asked, source=decision.best, budget_seconds=None)),
        )

    def _eligible(self) -> list[str]:
        """Return the starts that may be proposed: trained ones that did not learn from what judges them."""
        trained = [name for name in self.names if name in self.probed and self.found[name].weights == "trained"]
        return [name for name in trained if "validation" in self.data.splits or name not in self.seen]


def _fetch(name: str, listener: Listener) -> None:
    """Fetch what comes from the network, and leave the rest to `load`."""
    if (row := rows().get(name)) is not None:
        fetch(row, listener)
    elif HUB_ID.fullmatch(name) and look_at(Path(name)) is None:
        download(name)


def _context() -> AbstractContextManager[object]:
    return autocast(training_device(), "auto")


def _counted(images: Images) -> str:
    judging = "" if images.judging is None else f" and {len(images.judging):,} validation images"
    return f"{len(images.train):,} training{judging or ' images'}"


def _bytes(name: str, classifier: Classifier) -> int:
    """Return the size of a start's file; of one that is several, or in the Hub's cache, that of its tensors."""
    row, path = rows().get(name), Path(name)
    for folder in (path, path / CLASSIFIER):
        if is_classifier(folder):
            path = folder / WEIGHTS
    if is_folder(path):
        path = weights_in(path) or path
    file = kept(row) if row is not None else path
    if file is not None and is_regular(file) and file.suffix != ".json":
        return file.stat().st_size
    return sum(tensor.numel() * tensor.element_size() for tensor in classifier.model.state_dict().values())
