"""Find the most accurate way to compute a classifier within a time: over size, merging, precision and runtime."""

import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from vitral.advice import argument, counted, function
from vitral.classifier.classifier import Classifier, Tuning
from vitral.classifier.folder import folder_that_keeps, read, update_provenance
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.source import DataSet, Source
from vitral.data.subset import spread_over
from vitral.deployment.judge import VALIDATION, Judge, check_judged
from vitral.errors import DataError
from vitral.evaluation.candidates import MILLI, TimedSetting, at_size, candidates, milliseconds
from vitral.evaluation.opening import open_split
from vitral.events import Listener, Message, Progress, show
from vitral.images.preprocessing import Preprocessing
from vitral.inference.choice import predictor_in
from vitral.inference.engines import Computation
from vitral.inference.predictor import Predictor
from vitral.inference.quantization import linear_layers
from vitral.machine import has_int8, processor_name
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import Presentable, Table, photos_of, range_text, table_of
from vitral.tasks.unlabelled import check_classifies

LATENCY = re.compile(r"(\d+(?:\.\d*)?|\.\d+) ?(ms|s)?", re.ASCII)
SCORING_SECONDS = 300.0  # that the settings are scored for, about: so many images are taken
FEWEST_IMAGES = 200  # validation images
MOST_IMAGES = 2000
BATCH_SIZE = 8
PREPARED = 16  # images on which reading and preparing is timed


@dataclass(frozen=True)
class Tried:
    """A setting with its score.

    Attributes:
        candidate: The setting, and its time.
        score: The headline figure on the validation images, 0 to 1.
        same_top: The share of these whose most probable class is the network's own.
        largest: The largest difference of a probability from the network's own.
    """

    candidate: TimedSetting
    score: float
    same_top: float
    largest: float

    @property
    def way(self) -> Computation:
        """What computes, in which precision, and with how many tokens merged."""
        return self.candidate.way


@dataclass(frozen=True, repr=False)
class Tuned(Presentable):
    """The curve of accuracy against time, and the setting that was chosen on it.

    Attributes:
        setting: The most accurate setting within the limit; None where all take longer.
        tried: All settings that were scored, the fastest first.
        limit: The milliseconds that one image may take.
        exact: The headline figure of the network itself, at its own size in fp32.
        preparing: The milliseconds that reading and preparing one of the images takes, which comes on top.
        remarks: What was left out, and what to do next.
    """

    setting: Tuning | None
    tried: tuple[Tried, ...]
    limit: float
    network: str
    exact: float
    figure: str
    data: str
    images: int
    machine: str
    threads: int
    preparing: float
    remarks: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return in one sentence what was chosen, or why nothing was."""
        return self.failure() if self.setting is None else self.setting.sentence()

    def failure(self) -> str:
        """Return in one sentence why nothing was chosen; empty where something was."""
        if self.setting is not None:
            return ""
        fastest = self.tried[0].candidate
        return (
            f"No setting computes a photo within {self.limit:.4g} ms here: the fastest, {fastest}, takes "
            f"{fastest.milliseconds:.3g} ms."
        )

    def frontier(self) -> tuple[Tried, ...]:
        """Return those that no faster one is as good as, the fastest first."""
        frontier: list[Tried] = []
        for tried in self.tried:
            if not frontier or tried.score > frontier[-1].score:
                frontier.append(tried)
        return tuple(frontier)

    def is_chosen(self, tried: Tried) -> bool:
        """Tell whether a setting is the chosen one."""
        chosen, candidate = self.setting, tried.candidate
        return chosen is not None and (candidate.image_size, candidate.way) == (chosen.image_size, chosen.way)

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        interval = range_text(wilson_interval(round(self.exact * self.images), self.images), 1)
        return (
            *([] if self.setting is None else [self.setting.sentence()]),
            f"Tried {counted(len(self.tried), 'setting')} of {self.network}, by {self.figure} on "
            f"{photos_of(VALIDATION, self.images)} of {self.data}; unchanged, in fp32, it has {self.exact:.2%} (95% interval "
            f"{interval}).",
            f"Times are of the network, one photo at a time; reading and preparing it takes {self.preparing:.3g} ms more.",
            *self.remarks,
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the settings that are worth it."""
        columns: Sequence[tuple[str, Callable[[Tried], str]]] = (
            ("ms", lambda tried: f"{tried.candidate.milliseconds:.2f}"),
            (self.figure, lambda tried: f"{tried.score:.2%}"),
            ("Pixels", lambda tried: "x".join(map(str, tried.candidate.image_size))),
            ("dtype", lambda tried: tried.way.precision),
            ("Merged", lambda tried: str(tried.way.merge)),
            ("Engine", lambda tried: tried.way.engine),
            ("", lambda tried: "chosen" if self.is_chosen(tried) else ""),
        )
        return (table_of("No faster setting is as good", self.frontier(), columns),)


def tune(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    latency: str | float,
    write: bool = False,
    classes: Reading | None = None,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Tuned:
    """Find the setting of a classifier that is the most accurate of those that answer within a time on this machine.

    Settings are the network's size (from half to five quarters of its own), the precision (int8 where the folder keeps a form,
    see `quantize`), the tokens merged in each block (ToMe) and the runtime. Each is timed with one image at once, and scored on
    validation images, of equal ones by how near their probabilities are to the network's own; test images are not opened.
    Nothing is changed unless `write` says so.

    Args:
        classifier: The classifier itself, or whatever `load` takes; as it was trained, whatever setting it has.
        data: The data that it was trained on, or a dataset with a validation split.
        latency: The time that one prepared image may take, the median: "10ms", "0.5s", or a number of milliseconds.
        write: Whether the classifier's folder keeps the setting, so that `load` takes it where nothing else is asked for.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: There are no validation images, or the latency is none.
        ModelError: No runtime computes the network.
        WeightsError: It is to be written, and the classifier is not a folder.
    """
    limit = read_latency(latency)
    folder = folder_that_keeps(classifier, "a setting") if write else None
    own = as_classifier(classifier, listener, tuned=False)
    check_classifies(own.task, function("tune"))
    opened, _ = open_split(
        data, [own], split=None, classes=classes, skip_bad_images=skip_bad_images, listener=listener, validation=True
    )
    headline = check_judged(opened, "no setting is chosen")
    found = _to_score(candidates(own, listener), own.model.image_size, limit)
    source = opened.splits[VALIDATION]
    preparing = _preparing(source, own.preprocessing)
    count, seconds = _images(found, preparing, len(source))
    listener(
        Message(f"Scores {counted(len(found), 'setting')} on {photos_of(VALIDATION, count)}, in about {seconds:.0f} s.")
    )
    judge = Judge(own, opened, most=count, batch_size=BATCH_SIZE, workers=workers, listener=listener)
    tried = _tried(own, found, judge, listener)
    setting, tried = _chosen(own, tried, limit, judge, opened.name)
    if folder is not None and setting is not None:
        stored = read(folder)
        stored.setting = setting
        update_provenance(stored, folder)
    return Tuned(
        setting=setting,
        tried=tuple(sorted(tried, key=lambda each: each.candidate.milliseconds)),
        limit=limit,
        network=own.predictor.describe(),
        exact=judge.exact,
        figure=headline.title,
        data=opened.name,
        images=len(judge.source),
        machine=processor_name(),
        threads=torch.get_num_threads(),
        preparing=preparing,
        remarks=tuple(_remarks(own)),
    )


def read_latency(latency: str | float) -> float:
    """Return the milliseconds of "10ms", "0.5s" or 10.

    Raises:
        DataError: It is no such time.
    """
    match = LATENCY.fullmatch(str(latency).strip().lower())
    limit = float(match[1]) * (MILLI if match[2] == "s" else 1.0) if match else 0.0
    if not 0 < limit < math.inf:
        raise DataError(f"'{str(latency):.40}' is no time for a photo; write it like 10ms or 0.5s.")
    return limit


def _to_score(found: Sequence[TimedSetting], own: tuple[int, int], limit: float) -> list[TimedSetting]:
    """Return the settings within the limit, and of the others those that show what more time would give."""
    within = [candidate for candidate in found if candidate.milliseconds <= limit]
    beyond = [
        candidate
        for candidate in found
        if candidate.milliseconds > limit
        and not candidate.way.merge
        and math.prod(candidate.image_size) <= math.prod(own)
    ]
    return within + beyond or list(found)


def _images(found: Sequence[TimedSetting], preparing: float, most: int) -> tuple[int, float]:
    """Return how many images all settings can be scored on in time, and the seconds that this takes."""
    each = sum(candidate.milliseconds + preparing for candidate in found) / MILLI
    wanted = min(MOST_IMAGES, max(FEWEST_IMAGES, int(SCORING_SECONDS / each)))
    count = min(most, wanted)
    return count, count * each


def _preparing(source: Source, preprocessing: Preprocessing) -> float:
    """Return the milliseconds that reading and preparing an image takes, the median of a few."""
    seconds = []
    taken = spread_over(source, PREPARED)
    for index in range(len(taken)):
        began = time.perf_counter()
        preprocessing(taken.image(index))
        seconds.append(time.perf_counter() - began)
    return MILLI * statistics.median(seconds)


def _tried(own: Classifier, found: Sequence[TimedSetting], judge: Judge, listener: Listener) -> list[Tried]:
    tried = []
    for number, candidate in enumerate(found):
        score = judge.score(*_made(own, candidate))
        tried.append(Tried(candidate, score.figure, score.same_top, score.largest))
        listener(Progress("score settings", number + 1, len(found)))
    return tried


def _made(own: Classifier, candidate: TimedSetting) -> tuple[Predictor, Preprocessing]:
    sized = at_size(own, candidate.image_size)
    assert sized is not None, "it was timed at this size"
    return predictor_in(sized.model, candidate.way, sized.quantization), sized.preprocessing


def _chosen(
    own: Classifier, tried: list[Tried], limit: float, judge: Judge, data: str
) -> tuple[Tuning | None, list[Tried]]:
    """Return the best within the limit, timed once more, and all with what that found.

    Of equal ones that which answers most as the network does: on few images many are equal, and the fastest is the worst.
    """
    ranked = sorted(tried, key=lambda each: (-each.score, each.largest, each.candidate.milliseconds))
    for best in ranked:
        if best.candidate.milliseconds > limit:
            continue
        again = milliseconds(_made(own, best.candidate)[0])
        tried = [
            replace(each, candidate=replace(each.candidate, milliseconds=again)) if each == best else each
            for each in tried
        ]
        if again > limit:
            continue
        way = best.candidate.way
        setting = Tuning(
            image_size=best.candidate.image_size,
            engine=way.engine,
            precision=way.precision,
            merge=way.merge,
            milliseconds=again,
            limit=limit,
            machine=processor_name(),
            threads=torch.get_num_threads(),
            data=data,
            images=len(judge.source),
            exact=judge.exact,
            score=best.score,
        )
        return setting, tried
    return None, tried


def _remarks(own: Classifier) -> list[str]:
    remarks = []
    if own.quantization is None and has_int8() and linear_layers(own.model):
        remarks.append(
            f"int8 is not among them: {function('quantize')} with {argument('write', True)} finds a form for it first."
        )
    if own.calibration is not None:
        remarks.append(
            f"Its calibration was fitted before: {function('calibrate')} with {argument('write', True)} fits it to the setting."
        )
    return remarks
