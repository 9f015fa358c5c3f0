"""Which start pays for a user's images: a linear probe on the frozen features of each, on the same images, nothing trained.

Starts are those that the user named, each checked before any work, or those that "auto" stands for.
"""

import math
import time as clock
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from vitral import distributed
from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import is_classifier
from vitral.classifier.load import HUB_ID, load, refuse_unknown
from vitral.data.classes import Reading
from vitral.data.open import open_data, path_in
from vitral.data.source import DataSet, same_data
from vitral.errors import DataError, ModelError, PluginError, StorageError, StudyError, WeightsError
from vitral.evaluation.baselines import MOST_TEST, MOST_TRAINING, Stopwatch, sample, unit_seconds
from vitral.evaluation.start_probes import (
    Images,
    ProbeCost,
    Probed,
    affordable,
    decide,
    measure_cost,
    probe_start,
    surely_better,
)
from vitral.events import Listener, Message, ignore, show
from vitral.outputs import check_file
from vitral.paths import CLASSIFIER, WEIGHTS, is_folder, is_regular, look_at
from vitral.report.start_table import JSON_FILE, MARKS, PIXELS, TABLE_FILE, StartRow, StartTable
from vitral.report.written import write_result
from vitral.studies.speech import PYTHON, Speech
from vitral.tasks.shown import photos_of
from vitral.training.optimization.optimizers import autocast_here, training_device
from vitral.training.request import Request, request_of
from vitral.training.settings.durations import rounded
from vitral.training.starting.published_start import is_free
from vitral.weights.hub import download
from vitral.weights.named.fetch import fetch
from vitral.weights.named.table import (
    MEGABYTE,
    PublishedWeights,
    answering,
    host,
    kept,
    may_fetch,
    row_of,
    rows,
    switched_off,
    without_network,
)
from vitral.weights.recognize import weights_in

AUTO = "auto"
LARGEST_MEGABYTES = 100  # of a file that is fetched without being named
LARGEST_SIZE = 256  # pixels, beyond which an image costs several times as much as the others'
NO_NETWORK = "there is no internet"
PIXEL_MODEL = "pixels-16"  # its preprocessing is that of the row of pixels
NO_TIME = "there was no time for it"
NO_MEMORY = "it does not fit into memory."


def read_names(starts: str | Sequence[str | Path], listener: Listener) -> tuple[str, ...]:
    """Return the names of the starts, each once, in the order given.

    "auto" among them stands for several, and the listener is warned if no network answers and it therefore stands for less.

    Raises:
        WeightsError: A name is unknown; the message proposes the nearest.
        StudyError: There is no name.
    """
    parts = starts.split(",") if isinstance(starts, str) else map(str, starts)
    given = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for name in given:
        if name != AUTO:
            refuse_unknown(name)
    if not given:
        raise StudyError(f"No start is named; name some with commas between them, or '{AUTO}'.")
    if AUTO not in given:
        return tuple(given)
    automatic, missing = _automatic()
    place = given.index(AUTO)
    names = tuple(dict.fromkeys([*given[:place], *automatic, *given[place + 1 :]]))
    if not names:
        raise StudyError(
            f"'{AUTO}' means published weights, of which this machine has none that may be used in products, and {missing}: "
            "name files or folders."
        )
    if missing == NO_NETWORK:
        listener(
            Message(
                f"There is no internet, so '{AUTO}' means only the published weights on this machine.", warning=True
            )
        )
    return names


def _automatic() -> tuple[list[str], str]:
    """Return the names that "auto" stands for now, and why weights that are not here are missing, if so."""
    listed = list(rows().values())
    cached = {row.name for row in listed if kept(row) is not None}
    every = automatic_names(listed, cached)
    if cached.issuperset(every):
        return every, ""
    reached = answering(row for row in listed if _worth_fetching(row) and row.name not in cached)
    near = [row for row in listed if row.name in cached or host(row) in reached]
    return automatic_names(near, cached), "" if reached else NO_NETWORK if may_fetch() else switched_off()


def automatic_names(listed: Iterable[PublishedWeights], cached: Collection[str]) -> list[str]:
    """Return the starts to compare if none is named: those that are here, and those that are worth a download.

    All may be used in products. Those to download are small and free, and the best of each kind of published score in whole
    points: two kinds cannot be compared, and a tenth of a point says nothing of other images.

    `listed` are the weights that are here or can be fetched, `cached` the names of those on this machine.
    """
    every = list(listed)
    here = [row.name for row in every if row.name in cached and row.products != "no"]
    best: dict[str, PublishedWeights] = {}
    for row in filter(_worth_fetching, every):
        if row.metric not in best or round(row.score or 0.0) > round(best[row.metric].score or 0.0):
            best[row.metric] = row
    return list(dict.fromkeys([*here, *(row.name for row in best.values())]))


def _worth_fetching(row: PublishedWeights) -> bool:
    return is_free(row) and row.megabytes <= LARGEST_MEGABYTES and row.image_size <= LARGEST_SIZE


def starts(
    data: str | Path,
    starts: str | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    image_size: int | None = None,
    time: str | float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    group: str | None = None,
    skip_bad_images: bool | None = None,
    overwrite: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
    speech: Speech = PYTHON,
    told: Callable[[StartTable], object] | None = None,
) -> StartTable:
    """Compare starts for a training by linear probes on their frozen features, on the same images; nothing is trained.

    The comparison uses at most 4,000 training images and 2,000 validation images, drawn by the seed; without a validation split
    each training image is judged by the fit without it. The test split has no part in it. One start is in memory at a time; one
    that cannot be had becomes a row that says why.

    Args:
        data: The data, as `vitral.data.open.open_data` takes them, with one class an image.
        starts: The names, in a list or with commas between them: whatever `source` of `finetune` takes, and "auto", which
            stands for the published weights on this machine that may be used in products, and the best small free ones.
        out: The folder for starts.json and starts.md; None writes nothing.
        image_size: The size of the images in pixels; None for each start's own.
        time: The budget for everything from `started` on, such as "10m". Downloads count, but none is broken off. Fewer images
            are then used, as many for every start, and starts for which there is no time are left out.
        seed: The seed that draws the images; None for 0.
        classes: The part of the path that names the class in nested folders.
        group: What tells images that belong together, a column or "folder" or "series"; see `open_data`.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        overwrite: Whether to replace files of those names in `out` that are not of this kind.
        offline: Whether to fetch nothing, so that what is not on this machine becomes a row that says so. The environment
            variable HF_HUB_OFFLINE does the same.
        started: The `time.monotonic()` at which the budget began; None for now.
        listener: Receives messages and progress.
        speech: The words for what to type next.
        told: Receives the table before it is written, so that it is not lost if the disk is full by then.

    Returns:
        A row for each start, which one to take, and what to type for that.

    Raises:
        WeightsError: A name is unknown; that is found before any work.
        DataError: The data cannot be read, or have several classes an image.
        StudyError: No start could be compared.
        StorageError: Nothing can be written in `out`.
    """
    given = dict(locals())
    for name in ("starts", "started", "listener", "speech", "told"):
        del given[name]
    request = request_of("fine-tune", **given)
    return starts_request(request, starts, started=started, listener=listener, speech=speech, told=told)


def starts_request(
    request: Request,
    starts: str | Sequence[str | Path],
    *,
    started: float | None,
    listener: Listener,
    speech: Speech,
    told: Callable[[StartTable], object] | None,
) -> StartTable:
    """Compare starts for the training that a request asks for; see `starts`."""
    began = clock.monotonic() if started is None else started
    data, folder = request.required_data(), request.out
    if distributed.world() > 1:
        raise StudyError("Starts are compared by one process; run it without torchrun.")
    with without_network(request.offline):
        names = read_names(starts, listener)
        if folder is not None:
            _check_out(folder, [path_in(data), *names], overwrite=request.overwrite)
        opened = _open(request, listener)
        budget = math.inf if request.budget_seconds is None else request.budget_seconds - (clock.monotonic() - began)
        table = _Comparison(request, opened, names, Stopwatch(budget), listener, speech).table()
    if told is not None:
        told(table)
    if folder is not None:
        write_result(table.to_json(), table.markdown(), folder, json_file=JSON_FILE, table_file=TABLE_FILE)
    return table


def _check_out(folder: Path, inputs: Sequence[str], *, overwrite: bool) -> None:
    for name, mark in MARKS.items():
        check_file(folder / name, inputs=inputs, mark=mark, overwrite=overwrite)
    data = Path(inputs[0])
    if is_folder(data) and folder.resolve().is_relative_to(data.resolve()):
        raise StorageError(f"'{folder}' lies in the data, which are never written to; choose another folder.")


def _open(request: Request, listener: Listener) -> DataSet:
    data = open_data(
        request.required_data(),
        classes=request.classes,
        group=request.group,
        skip_bad_images=request.skip_bad_images,
        listener=listener,
    )
    if not data.task.exclusive:
        raise DataError(
            f"The photos of {data.name} {data.task.labelled}; starts are compared by a linear probe, which is for one class a "
            "photo."
        )
    for note in data.notes:
        listener(Message(note))
    return data


@dataclass(eq=False)
class _Comparison:
    """A comparison for a training, and the rows and probes found so far, by the starts' names.

    `seen` are the starts that have learned from these data, for which leaving a training image out of the fit is not enough.
    """

    request: Request
    data: DataSet
    names: Sequence[str]
    stopwatch: Stopwatch
    listener: Listener
    speech: Speech
    rows: dict[str, StartRow] = field(default_factory=dict)
    probed: dict[str, Probed] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def table(self) -> StartTable:
        """Compare the starts."""
        images = self._images()
        if self.request.budget_seconds is not None:
            images = self._affordable(images)
        for name in (PIXELS, *self.names):
            self._attempt(name, lambda name: self._probe(name, images))
            self._report(name, images)
        if not any(name in self.probed for name in self.names):
            raise StudyError(f"No start could be compared. {self.rows[self.names[0]].reason()}")
        return self._concluded(images)

    def _images(self) -> Images:
        seed, splits = self.request.seed or 0, self.data.splits
        train = sample(splits["train"], MOST_TRAINING, seed=seed, purpose="images that starts are compared on")
        judging = splits.get("validation")
        if judging is not None:
            judging = sample(judging, MOST_TEST, seed=seed, purpose="images that judge starts")
        return Images(train, judging, len(self.data.class_names))

    def _affordable(self, images: Images) -> Images:
        """Return as many of the images as there is time for, and note the starts for which there is none."""
        costs: dict[str, ProbeCost] = {}

        def measure(name: str) -> None:
            _fetch(name, self.listener)  # a download is no part of what loading costs
            classifier, loading = self._load(name, self.listener)
            costs[name] = measure_cost(classifier, images, loading, network=name != PIXELS, context=autocast_here)

        for name in (PIXELS, *self.names):
            self._attempt(name, measure)
        whole = len(images.train), 0 if images.judging is None else len(images.judging)
        counts, left_out = affordable(costs, *whole, images.classes, seconds=self.stopwatch.left(), unit=unit_seconds())
        for name in left_out:
            self._fail(name, NO_TIME)
        fewer = images.thinned(*counts)
        if counts != whole:
            self.listener(
                Message(f"There is time for {_counted(fewer)} of {_counted(images)}, the same for every start.")
            )
        return fewer

    def _attempt(self, name: str, work: Callable[[str], None]) -> None:
        """Do something with a start that has no row yet; if it fails, the row says why."""
        if name in self.rows:
            return
        try:
            if self.stopwatch.left() <= 0:
                raise StudyError(NO_TIME)
            work(name)
        except (WeightsError, ModelError, PluginError, StorageError, StudyError) as error:
            self._fail(name, str(error))
        except (torch.OutOfMemoryError, MemoryError):
            self._fail(name, NO_MEMORY)

    def _probe(self, name: str, images: Images) -> None:
        timed = self.request.budget_seconds is not None  # then it was loaded before, with every message
        classifier, loading = self._load(name, ignore if timed else self.listener)
        probed = probe_start(classifier, images, self.listener, network=name != PIXELS, context=autocast_here)
        self.rows[name] = self._row(name, classifier, replace(probed, seconds=probed.seconds + loading))
        self.probed[name] = replace(probed, left_out=probed.left_out[:0]) if name in self.seen else probed

    def _load(self, name: str, listener: Listener) -> tuple[Classifier, float]:
        """Return a start, and the seconds that loading it took."""
        began = clock.perf_counter()
        if name == PIXELS:
            classifier = load(PIXEL_MODEL, listener=ignore)
        else:
            classifier = load(name, image_size=self.request.image_size, tuned=False, listener=listener)
            classifier = classifier.to(training_device())
        return classifier, clock.perf_counter() - began

    def _fail(self, name: str, problem: str) -> None:
        row = StartRow(name, problem=" ".join(problem.split()))
        if published := rows().get(name):
            row = replace(
                row, megabytes=float(published.megabytes), licence=published.licence, products=published.products
            )
        self.rows[name] = row

    def _row(self, name: str, classifier: Classifier, probed: Probed) -> StartRow:
        (low, high), provenance = probed.interval, classifier.provenance
        figures = StartRow(
            name, probed.accuracy, low, high, image_seconds=probed.image_seconds, seconds=probed.seconds, weights="none"
        )
        if name == PIXELS:
            return figures
        random = provenance.is_random
        remarks = ["random weights, for comparison."] if random else []
        if same_data(provenance.data_fingerprint, self.data.fingerprint):
            self.seen.add(name)
            remarks.append("it was trained on these data before.")
        published = row_of(provenance.source)
        if published is not None and (caution := published.caution()):
            remarks.append(caution)
        return replace(
            figures,
            parameters=classifier.predictor.num_parameters,
            megabytes=None if random else _bytes(name, classifier) / MEGABYTE,
            licence="" if published is None else published.licence,
            products="" if published is None else published.products,
            weights="random" if random else "trained",
            remarks=tuple(remarks),
        )

    def _report(self, name: str, images: Images) -> None:
        """Send the listener what came of a start."""
        row = self.rows[name]
        number = "" if name == PIXELS else f"Start {self.names.index(name) + 1} of {len(self.names)}: "
        if row.accuracy is None or row.seconds is None:
            self.listener(Message(f"{number}{row.reason()}", warning=True))
        else:
            reached = f"{row.accuracy:.1%} of {counted(images.judged, 'photo')} after {rounded(row.seconds)}"
            self.listener(Message(f"{number}{name}: {reached}."))

    def _concluded(self, images: Images) -> StartTable:
        every = [self.rows[name] for name in (*self.names, PIXELS)]
        trained = [name for name in self.names if name in self.probed and self.rows[name].weights == "trained"]
        # One that has learned from the images that judge it is not proposed.
        eligible = [name for name in trained if images.judging is not None or name not in self.seen]
        best, tied = decide({name: self.probed[name] for name in eligible})
        pixels = self.probed.get(PIXELS)
        return StartTable(
            self.data.name,
            tuple(sorted(every, key=lambda row: (row.accuracy is None, -(row.accuracy or 0.0)))),
            len(images.train),
            images.judged,
            "training" if images.judging is None else "validation",
            best,
            tied,
            surely_better(self.probed[best], pixels) if best and pixels else None,
            self.speech.ask(replace(self.request, source=best, time=None)) if best else "",
        )


def _fetch(name: str, listener: Listener) -> None:
    """Fetch what comes from the network, and leave the rest to `load`."""
    if published := rows().get(name):
        fetch(published, listener)
    elif HUB_ID.fullmatch(name) and look_at(Path(name)) is None:
        download(name)


def _counted(images: Images) -> str:
    judging = "" if images.judging is None else f" and {photos_of('validation', len(images.judging))}"
    return f"{photos_of('train', len(images.train))}{judging}"


def _bytes(name: str, classifier: Classifier) -> int:
    """Return the size of a start's file; for several files, or one in the Hub's cache, the size of its tensors."""
    published, path = rows().get(name), Path(name)
    for folder in (path, path / CLASSIFIER):
        if is_classifier(folder):
            path = folder / WEIGHTS
    if is_folder(path):
        path = weights_in(path) or path
    file = path if published is None else kept(published)
    if file is not None and is_regular(file) and file.suffix != ".json":
        return file.stat().st_size
    return classifier.model.weights_bytes
