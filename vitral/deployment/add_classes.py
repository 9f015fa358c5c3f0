"""Further classes without training: a head in closed form, on the features that a classifier keeps and those of new images."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import TOLD, folder_that_keeps, read, save
from vitral.classifier.metadata import Provenance
from vitral.classifier.novelty import KnownImages
from vitral.data.bad_images import left_out
from vitral.data.classes import Reading
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.data.subset import Joined, Relabelled
from vitral.data.unlabelled import PREFIX
from vitral.errors import DataError, ModelError, WeightsError
from vitral.evaluation.baselines import extract_features
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.heads import fit_head, logit_factor
from vitral.evaluation.probes import LinearProbe, check_features, fit_probe
from vitral.evaluation.unknown_classes import HELD_OUT, bounded, needed, ranks, set_limit
from vitral.events import Listener, Message, show
from vitral.models.catalog import list_models
from vitral.models.pixels import PixelsConfig
from vitral.outputs import check_folder
from vitral.paths import CLASSIFIER, CLASSIFIER_FILES, is_folder, look_at, nearest_path
from vitral.tasks.metrics import wilson_interval
from vitral.tasks.shown import NO_VALUE, Presentable, Table, percent, range_text
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.weights.named.table import is_named

FEWEST = 2  # images of a new class
FEWEST_TOLD = 5  # earlier images that were held out, of fewer of which nothing is said
HELD = "Of photos that were held out; in brackets the 95% interval."
WITHOUT = "Before, of earlier photos: a head fitted without them, since its own may have learned from them."
TOO_FEW = "Too few earlier photos were held out to tell."


@dataclass(frozen=True)
class HeldOutScore:
    """Images that were not learned from, and how many of them are classified right.

    Attributes:
        before: The share that the classifier had right, 0 to 1; None of classes that it did not have, and of too few images.
        after: The share that the new one has right, 0 to 1; None of too few images.
    """

    name: str
    images: int
    before: float | None
    after: float | None


@dataclass(frozen=True, repr=False)
class Added(Presentable):
    """A classifier with further classes or images.

    Attributes:
        parts: What that costs the earlier classes, and how well the new ones are told.
        limit: What is said of images of none of the classes; empty where they are not told.
        note: What the figures are of.
    """

    path: str
    classes: tuple[str, ...]
    images: int
    parts: tuple[HeldOutScore, ...]
    limit: str
    note: str

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        number = counted(len(self.classes), "class", "classes")
        what = f"{number} ({', '.join(self.classes)})" if self.classes else "no new class"
        return (
            f"{self.path}: {what} from {counted(self.images, 'photo')}, without training.",
            *filter(None, [self.limit]),
        )

    def tables(self) -> tuple[Table, ...]:
        """Return what it costs."""
        rows = tuple(
            (f"{part.name}: {counted(part.images, 'photo')}", percent(part.before), _range(part)) for part in self.parts
        )
        return (Table("Right answers", ("", "Before", "After"), rows, note=self.note),)


def _range(part: HeldOutScore) -> str:
    if part.after is None:
        return NO_VALUE
    interval = wilson_interval(round(part.after * part.images), part.images)
    return f"{percent(part.after)} ({range_text(interval, 1)})"


def add_classes(
    data: DataSet | str | Path,
    to: str | Path,
    *,
    out: str | Path | None = None,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    skip_bad_images: bool | None = None,
    overwrite: bool = False,
    listener: Listener = show,
) -> Added:
    """Extend a classifier by the classes of new images, at once and without training.

    Its network stays; its head is fitted anew in closed form, on the features that its folder keeps and on those of the new
    images. Images of classes that it has already are further examples of these. Every fifth image of a class is held out.

    Args:
        data: The new images, as `finetune` takes them: a folder with one sub-folder per class, or of the images of one class.
        to: The classifier folder, or the run folder around it, which stays as it is.
        out: The folder for the new classifier; None for one beside `to`.
        classes: The folder that names the class where folders are nested.
        batch_size: The number of images computed at once.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        overwrite: Whether to replace a classifier in `out`.
        listener: The receiver of progress and notes; they are written to the screen by default.

    Raises:
        WeightsError: There is no `to`, or it is no such folder, or keeps no features.
        DataError: The images have not one class each, or a new class has one image only.
        ImageError: An image cannot be read.
        ModelError: The network has two heads, or gives no finite numbers.
        StorageError: `out` cannot be written.
    """
    _refuse_unknown(to)
    folder = folder_that_keeps(to, "further classes")
    place = Path(to) if folder.name != CLASSIFIER else folder.parent
    target = place.with_name(f"{place.name}-extended") if out is None else Path(out)
    check_folder(target, own=CLASSIFIER_FILES, inputs=[to], overwrite=overwrite)
    old = read(folder)
    known = _kept(old, folder)
    if not isinstance(data, DataSet):
        data = _opened(data, classes, listener, skip_bad_images=skip_bad_images)
    names = (*old.class_names, *(name for name in data.class_names if name not in old.class_names))
    new = _seen(old, data, names, batch_size, listener)
    grown = _grown(old, names, known, new)
    limit = (
        None if (every := grown.known_images) is None else set_limit(every, names, learned=old.provenance.is_trained)
    )
    grown.remember(every, limit)
    parts = _parts(old, grown, known, new)
    grown.provenance = _provenance(old, grown, joined(known, new), parts)
    if old.calibration is not None:
        listener(Message(f"Fitted to other classes, and left out: {old.calibration.sentence()}", warning=True))
    save(grown, target)
    said = "" if limit is None else limit.sentence()
    return Added(str(target), names[len(old.class_names) :], len(new.labels), parts, said, _note(old, parts[0]))


def _refuse_unknown(to: str | Path) -> None:
    """Refuse a path at which nothing is; names of models are refused as such.

    Raises:
        WeightsError: There is no such file or folder; the message proposes the nearest name.
    """
    name = str(to)
    if look_at(to) is None and name not in list_models() and not is_named(name) and not name.startswith("hf:"):
        raise WeightsError(f"There is no file or folder '{name}'.{nearest_path(name)}")


def _opened(data: str | Path, classes: Reading | None, listener: Listener, *, skip_bad_images: bool | None) -> DataSet:
    """Open new images; those of a folder of one class as images without labels, since no data have one class alone."""
    alone = lone_class(Path(data))
    spec = data if alone is None else f"{PREFIX}{alone}"
    opened = open_data(spec, classes=classes, skip_bad_images=skip_bad_images, hold_out=False, listener=listener)
    for note in left_out(opened.bad_images):
        listener(Message(note, warning=True))
    if alone is None:
        return opened
    images = Joined(list(opened.splits.values()))
    labelled = Relabelled(images, np.zeros(len(images), dtype=np.int64))
    return replace(opened, class_names=(alone.name,), task=SINGLE_LABEL, splits={"train": labelled})


def lone_class(path: Path) -> Path | None:
    """Return the folder of the only class that a path names, itself or in it; None where there are several, or no folder."""
    if not is_folder(path):
        return None
    inside = [entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return None if len(inside) > 1 else next(iter(inside), path)


def _kept(old: Classifier, folder: Path) -> KnownImages:
    """Return the images that a classifier remembers.

    Raises:
        WeightsError: There are none.
        DataError: Its images have several classes.
        ModelError: It has two heads.
    """
    if not old.task.exclusive:
        raise DataError(f"The images of '{folder}' {old.task.labelled}; classes are added where images have one each.")
    if getattr(old.model, "distillation_head", None) is not None:
        raise ModelError(
            f"'{folder}' has two heads (DeiT's distillation), of which one cannot be fitted without its teacher."
        )
    return needed(old, folder)


def _seen(old: Classifier, data: DataSet, names: Sequence[str], batch_size: int, listener: Listener) -> KnownImages:
    """Return new images as the network sees them."""
    if not data.task.exclusive:
        raise DataError(f"The images of {data.name} {data.task.labelled}; name images that have one class each.")
    seen = [extract_features(old, source, batch_size=batch_size, listener=listener) for source in data.splits.values()]
    features, labels = (torch.cat([part[column] for part in seen]) for column in (0, 1))
    check_features(features)
    labels = torch.tensor([names.index(name) for name in data.class_names])[labels]
    counts = labels.bincount(minlength=len(names))
    if few := [
        name for name, count in zip(names, counts, strict=True) if 0 < count < FEWEST and name not in old.class_names
    ]:
        raise DataError(f"'{few[0]}' has one image only; a new class needs at least {FEWEST}.")
    return KnownImages(features, labels, ranks(labels) % HELD_OUT == HELD_OUT - 1)


def joined(first: KnownImages, second: KnownImages) -> KnownImages:
    """Return the images of both."""
    pairs = zip(*((part.features, part.labels, part.held_out) for part in (first, second)), strict=True)
    return KnownImages(*map(torch.cat, pairs))


def _grown(old: Classifier, names: Sequence[str], known: KnownImages, new: KnownImages) -> Classifier:
    """Return a classifier of more classes, whose head is fitted on the images that are not held out."""
    every = joined(known, new)
    probe = _fitted(old, every, len(names))
    model = copy.deepcopy(old.model)
    model.replace_head(len(names))
    probe.become_head(model)
    grown = Classifier(model, old.preprocessing, names, task=old.task)
    grown.remember(bounded(every))
    return grown


def _fitted(old: Classifier, known: KnownImages, classes: int) -> LinearProbe:
    """Return a head that is fitted on the images that are not held out, as that of a run's first classifier is."""
    learned = known.where(~known.held_out)
    if not isinstance(old.model.config, PixelsConfig):
        return fit_head(learned.features, learned.labels, classes=classes)
    probe = fit_probe(learned.features, learned.labels, classes=classes)
    factor = logit_factor(probe.left_out, learned.labels)
    return replace(probe, weight=factor * probe.weight, bias=factor * probe.bias)


def _provenance(old: Classifier, grown: Classifier, every: KnownImages, parts: Sequence[HeldOutScore]) -> Provenance:
    """Return where a classifier comes from; nothing that was said of the earlier head, nor a score of too few images."""
    right = None if parts[0].after is None else _right(grown, every.where(every.held_out))
    added = counted(len(grown.class_names) - len(old.class_names), "class", "classes")
    return replace(
        old.provenance,
        training={name: value for name, value in old.provenance.training.items() if name not in TOLD},
        scores={} if right is None else {f"validation/{old.task.headline.name}": right},
        notes=(*old.provenance.notes, f"{added} added without training."),
    )


def _note(old: Classifier, earlier: HeldOutScore) -> str:
    """Return what figures are of."""
    if earlier.after is None:
        return f"{HELD} {TOO_FEW}"
    return HELD if old.provenance.is_trained else f"{HELD} {WITHOUT}"


def _parts(old: Classifier, grown: Classifier, known: KnownImages, new: KnownImages) -> tuple[HeldOutScore, ...]:
    """Return how often images that were held out are classified right."""
    is_new = new.labels >= len(old.class_names)
    earlier, count = known.where(known.held_out), int(known.held_out.sum())
    told = count >= FEWEST_TOLD
    before = _without_held_out(old, known) if told else None
    found = [HeldOutScore("Earlier photos", count, before, _right(grown, earlier) if told else None)]
    if len((more := new.where(new.held_out & ~is_new)).labels):
        found.append(
            HeldOutScore("More photos of its classes", len(more.labels), _right(old, more), _right(grown, more))
        )
    others = new.where(new.held_out & is_new)
    return (*found, HeldOutScore("Photos of new classes", len(others.labels), None, _right(grown, others)))


def _without_held_out(old: Classifier, known: KnownImages) -> float | None:
    """Return how often a classifier is right on what is held out; by a head that is fitted without it where its own was not."""
    judged = known.where(known.held_out)
    # A network that was trained learned from none of these; else the head alone was fitted, on all of them.
    if old.provenance.is_trained:
        return _right(old, judged)
    return _fitted(old, known, len(old.class_names)).accuracy(judged.features, judged.labels)


@torch.no_grad()
def _right(classifier: Classifier, images: KnownImages) -> float | None:
    if not len(images.labels):
        return None
    head = classifier.model.head
    answers = head(images.features.to(head.weight)).argmax(dim=1)
    return float((answers == images.labels).double().mean())
