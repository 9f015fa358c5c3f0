"""Which of many images without labels to label next, as a table to fill in.

They are those of which a classifier is unsure, and that are unlike the known and the chosen ones.
"""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vitral.advice import counted
from vitral.classifier.bulk.parts import for_spreadsheets
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.classifier.novelty import KnownImages, Space
from vitral.data.image_files import LazyImage, plain_images, prepare
from vitral.errors import DataError, ImageError, ModelError
from vitral.evaluation.probes import check_features, fit_probe
from vitral.evaluation.unknown_classes import FEWEST, chosen, needed
from vitral.events import Listener, Progress, show
from vitral.files import write_file
from vitral.inference.predictor import in_batches
from vitral.models.model import Features
from vitral.outputs import check_file
from vitral.paths import look_at, nearest_path
from vitral.seeds import generator
from vitral.tasks.shown import Presentable, Table, percent
from vitral.tasks.task import Probabilities
from vitral.tasks.unlabelled import check_classifies

BATCH_SIZE = 16
SHOWN = 10
COLUMNS = ("image", "label", "guess", "probability")
# Of the choice, and of the curve that says how many more images one point of accuracy takes.
PART = 1024  # images whose distances are computed at once
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the images, that the curve is measured with
DRAWS = 3
RESAMPLES = 500
POINT = 0.01
LEVEL = (0.025, 0.975)


@dataclass(frozen=True)
class Chosen:
    """An image to label by its path, its most probable class and the probability of that, 0 to 1."""

    image: str
    guess: str
    probability: float


@dataclass(frozen=True, repr=False)
class Selection(Presentable):
    """Images to label next, those that tell most first, and how many more images one point of accuracy takes."""

    out: str
    images: int
    chosen: tuple[Chosen, ...]
    more: str

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        where = f", in {self.out}: fill in its column 'label'" if self.out else ""
        return (
            f"{len(self.chosen):,} of {counted(self.images, 'photo')} to label next{where}.",
            *filter(None, [self.more]),
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the first of them."""
        rows = tuple((one.image, one.guess, percent(one.probability)) for one in self.chosen[:SHOWN])
        return (Table("The first of them", ("Image", "Guess", "Probability"), rows),)


def select_images(
    images: str | Path | Iterable[str | Path],
    classifier: Classifier | str | Path,
    *,
    count: int = 50,
    out: str | Path | None = None,
    skip_bad_images: bool | None = None,
    overwrite: bool = False,
    listener: Listener = show,
) -> Selection:
    """Choose the images that tell a classifier most once they are labelled: those it is unsure of, each unlike the others.

    Args:
        images: Image files, and folders of such.
        classifier: The classifier, or whatever `load` takes, which keeps the features of its images.
        count: The number of images to choose.
        out: The .csv file to fill in, which `finetune` takes as data then; None to write none.
        skip_bad_images: Whether to leave out images that cannot be read, naming each; False for an error.
        overwrite: Whether to replace the file.
        listener: The receiver of progress and notes; they are written to the screen by default.

    Raises:
        DataError: Something else than image files and folders is named, or `count` is below 1.
        ImageError: An image cannot be read, or there are none.
        WeightsError: The classifier keeps no features.
        StorageError: The file cannot be written.
    """
    if count < 1:
        raise DataError(f"At least one image is chosen, not {count}.")
    names = [str(name) for name in ([images] if isinstance(images, str | Path) else images)]
    if out is not None:
        if Path(out).suffix.lower() != ".csv":
            raise DataError(f"The table to fill in is a .csv file, not '{out}'.")
        check_file(Path(out), inputs=names, overwrite=overwrite)
    listed = [image for name in names for image in _plain(name, listener)]
    classifier = as_classifier(classifier, listener, tuned=False)
    check_classifies(classifier.task, "A selection of photos")
    known = needed(classifier, classifier.folder or "The classifier")
    seen, features, probabilities = _looked_at(classifier, listed, listener, skip_bad_images=skip_bad_images)
    best = select(known.space, features, unsureness(probabilities), count).tolist()
    chosen = tuple(Chosen(seen[index], *classifier.name_top(probabilities[index], 1)[0]) for index in best)
    if out is not None:
        write_file(Path(out), _table(chosen))
    curve = learning_curve(known, len(classifier.class_names))
    return Selection("" if out is None else str(out), len(seen), chosen, "" if curve is None else curve.sentence())


def _plain(name: str, listener: Listener) -> list[LazyImage]:
    if (found := plain_images(name, listener)) is None:
        near = "" if look_at(name) else nearest_path(name)
        raise DataError(f"'{name}' is no image file and no folder of such, which alone can be chosen from.{near}")
    return found


def _looked_at(
    classifier: Classifier, images: list[LazyImage], listener: Listener, *, skip_bad_images: bool | None
) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return the names of images, their features and their probabilities."""
    prepared = prepare(
        images, classifier.preprocessing, skip_bad_images=skip_bad_images is not False, listener=listener
    )
    seen: list[str] = []
    rows: list[tuple[torch.Tensor, torch.Tensor]] = []
    for names, batch in in_batches(prepared, BATCH_SIZE):
        probabilities, features = classifier.with_features(torch.stack(batch))
        rows.append((features, probabilities))
        seen += names
        listener(Progress("look at images", len(seen), len(images)))
    if not seen:
        raise ImageError("None of the images can be read.")
    features, probabilities = (torch.cat([row[column] for row in rows]) for column in (0, 1))
    check_features(features)
    if probabilities.shape[1] < 2:
        raise ModelError("A classifier of one class is never unsure; give it two.")
    return seen, features, probabilities


def _table(chosen: Iterable[Chosen]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for one in chosen:
        path, guess = (for_spreadsheets(cell) for cell in (str(Path(one.image).absolute()), one.guess))
        writer.writerow((path, "", guess, f"{one.probability:.4f}"))
    return text.getvalue()


def unsureness(probabilities: Probabilities) -> Float[Tensor, " images"]:
    """Return how near the second class of each image comes to the first: 0 for sure, 1 for equal (margin sampling)."""
    first, second = probabilities.topk(2, dim=1).values.T
    return 1 - (first - second)


def select(space: Space, features: Features, unsure: Float[Tensor, " images"], count: int) -> Int64[Tensor, " chosen"]:
    """Return the images to label next, the first first: in turn that of the largest product of unsureness and distance.

    The distance is that to the nearest image that is known or was chosen before, as an angle in the space in which images of
    none of the classes are told, so that no two that are alike are chosen together. docs/selection.csv compares it with chance.
    """
    directions = functional.normalize(space.place(features), dim=1)
    far = torch.cat([1 - (part @ space.directions.T).amax(dim=1) for part in torch.split(directions, PART)])
    left, chosen = torch.ones(len(far), dtype=torch.bool), []
    for _ in range(min(count, len(far))):
        score = (far * unsure).masked_fill(~left, -1.0)
        best = int(score.argmax())
        chosen.append(best)
        left[best] = False
        far = torch.minimum(far, 1 - directions @ directions[best])
    return torch.tensor(chosen)


@dataclass(frozen=True)
class LearningCurve:
    """How many more images one point of accuracy takes, by a linear head on the frozen features.

    Attributes:
        images: The images that the head was fitted on.
        errors: The share of held-out images that is wrong, 0 to 1, by the number of images.
        more: The further images for one point; infinite where more do not help.
        interval: Its 95 % interval, by resampling the held-out images.
    """

    images: int
    errors: dict[int, float]
    more: float
    interval: tuple[float, float]

    def sentence(self) -> str:
        """Return it in one sentence."""
        if math.isinf(self.more):
            return "More photos of this kind would hardly help: the error does not fall as they grow in number."
        low, high = (format(round(end), ",") if math.isfinite(end) else "any number" for end in self.interval)
        return (
            f"One point more of accuracy would take about {counted(round(self.more), 'more photo')} (95% interval {low} to "
            f"{high}), chosen by chance, with the same network; from {self.images:,} a linear head gets "
            f"{1 - self.errors[self.images]:.1%} right."
        )


def learning_curve(known: KnownImages, classes: int) -> LearningCurve | None:
    """Return how many more images one point of accuracy takes; None where too few are held out, or nothing is left to gain.

    Heads are fitted on an eighth of the images, a quarter, a half and all, three draws each, and a power law on their errors
    (arXiv 1712.00409); the interval is the percentile bootstrap's over the held-out images.
    """
    judged, learned = known.where(known.held_out), known.where(~known.held_out)
    sizes = sorted({count for share in SHARES if (count := round(share * len(learned.labels))) >= 2 * classes})
    if len(judged.labels) < FEWEST or len(sizes) < 2:
        return None
    wrong = np.stack([_wrong(learned, judged, size, classes) for size in sizes])
    errors = wrong.mean(axis=1)
    if errors[-1] <= POINT:
        return None
    random, count = generator(0, "resamples of a learning curve"), wrong.shape[1]
    resampled = [further(sizes, wrong[:, random.integers(0, count, count)].mean(axis=1)) for _ in range(RESAMPLES)]
    low, high = np.quantile(resampled, LEVEL, method="nearest")
    by_size = dict(zip(sizes, errors.tolist(), strict=True))
    return LearningCurve(sizes[-1], by_size, further(sizes, errors), (float(low), float(high)))


def _wrong(learned: KnownImages, judged: KnownImages, size: int, classes: int) -> Float[np.ndarray, " judged"]:
    """Return how often each held-out image is wrong, by heads that are fitted on so many images."""
    found: list[Bool[Tensor, " judged"]] = []
    for draw in range(1 if size == len(learned.labels) else DRAWS):
        rows = chosen(learned.labels, size, seed=draw)
        probe = fit_probe(learned.features[rows], learned.labels[rows], classes=classes)
        found.append(probe.predict(judged.features) != judged.labels)
    return torch.stack(found).double().mean(dim=0).numpy()


def further(sizes: list[int], errors: Float[np.ndarray, " sizes"]) -> float:
    """Return how many further images take the error a point down, by a power law through errors at some sizes."""
    slope, begin = np.polyfit(np.log(sizes), np.log(np.maximum(errors, POINT / 2)), 1)
    last = math.exp(begin + slope * math.log(sizes[-1]))
    if slope >= 0 or last <= POINT:
        return math.inf
    exponent = math.log((last - POINT) / last) / slope
    return sizes[-1] * math.expm1(exponent) if exponent < 50 else math.inf
