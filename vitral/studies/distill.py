"""Distil a classifier into a smaller network, and set both side by side: accuracy, latency, size."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitral.advice import argument, counted
from vitral.classifier.classifier import Classifier, fingerprint
from vitral.classifier.folder import is_classifier, save
from vitral.classifier.load import load
from vitral.data.classes import Reading
from vitral.data.names import side_by_side
from vitral.data.open import is_selectable, open_data
from vitral.data.source import DataSet
from vitral.data.unlabelled import PREFIX, is_unlabelled
from vitral.errors import DataError, ModelError, TrainingError, TrainingInterrupted, UsageError
from vitral.evaluation.candidates import milliseconds
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.opening import match_classes
from vitral.events import Listener, Message, show
from vitral.machine import processor_name
from vitral.models.catalog import list_models
from vitral.models.families import configure, count_macs, count_parameters, describe
from vitral.paths import RECIPE_FILE, RUNS, look_at
from vitral.studies.finetune import finetune_request
from vitral.tasks.shown import NO_VALUE, Presentable, Table, fitting_digits, images_of, percent
from vitral.training.candidates.result import RunResult
from vitral.training.optimization.optimizers import training_device
from vitral.training.records.run_folder import stored_request
from vitral.training.request import Request, request_of
from vitral.training.settings.recipe import load_recipe
from vitral.weights.dialect import UNTRAINED

STUDENT = "vit-ti16"
RECIPE = "distill"
FEATURES_ALONE = "method.answers=0"
DIGEST = 12  # hexadecimal digits in the name of a saved teacher's folder
MEGA = 1e6
GIGA = 1e9


@dataclass(frozen=True)
class NetworkFigures:
    """What a network of the two is worth and takes.

    Attributes:
        score: The share of images classified right, or as the teacher classifies them; None without a score.
        milliseconds: The median time for one image, in torch and fp32.
        macs: The multiply-accumulates of an image.
        image_size: The height and width of its images, pixels.
    """

    name: str
    score: float | None
    milliseconds: float
    megabytes: float
    parameters: int
    macs: int
    image_size: tuple[int, int]

    def cells(self, digits: int) -> tuple[str, ...]:
        """Return the figures as texts; `digits` are the decimals of the score in percent."""
        return (
            self.name,
            NO_VALUE if self.score is None else percent(self.score, digits),
            f"{self.milliseconds:.3g}",
            f"{self.megabytes:.3g}",
            f"{self.parameters / MEGA:.3g}",
            f"{self.macs / GIGA:.3g}",
            "x".join(map(str, self.image_size)),
        )


@dataclass(frozen=True, repr=False)
class Distilled(Presentable):
    """A student beside its teacher.

    Attributes:
        figure: The kind of score: "accuracy", or "agreement" with the teacher.
    """

    result: RunResult
    teacher: NetworkFigures
    student: NetworkFigures
    figure: str
    machine: str
    threads: int

    def __repr__(self) -> str:
        """Return the summary."""
        return "\n".join(self.lines())

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        faster = self.teacher.milliseconds / self.student.milliseconds
        smaller = self.teacher.megabytes / self.student.megabytes
        if self.student.score is None or self.teacher.score is None:
            worth = "nothing was scored: what it is worth shows once it is fine-tuned"
        elif self.figure == "agreement":
            worth = (
                f"it says what the teacher says of {percent(self.student.score)} of the {images_of(self.result.split)}"
            )
        else:
            points = 100 * (self.student.score - self.teacher.score)
            worth = f"{points:+.1f} points of accuracy on the {images_of(self.result.split)}"
        pace = f"is {faster:.3g} times as fast" if faster >= 1 else f"takes {1 / faster:.3g} times as long"
        size = f"{smaller:.3g} times smaller" if smaller >= 1 else f"{1 / smaller:.3g} times larger"
        return (f"The student {pace} as the teacher, and is {size}; {worth}.",)

    def tables(self) -> tuple[Table, ...]:
        """Return the two, side by side."""
        evaluation = self.result.evaluation
        digits = fitting_digits(evaluation.num_examples)
        columns = ("", "Network", self.figure.capitalize(), "ms", "MB", "M parameters", "GMACs", "Pixels")
        rows = (("teacher", *self.teacher.cells(digits)), ("student", *self.student.cells(digits)))
        note = f"One photo at a time in torch, fp32, {counted(self.threads, 'thread')} of {self.machine}."
        return (Table("", columns, rows, names=2, note=note),)

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without those of the run."""
        both = {"teacher": asdict(self.teacher), "student": asdict(self.student)}
        return {"figure": self.figure, **both, "machine": self.machine, "threads": self.threads}


def distill(
    teacher: Classifier | str | Path,
    data: str | Path | None = None,
    *,
    student: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    group: str | None = None,
    skip_bad_images: bool | None = None,
    resume: bool = False,
    overwrite: bool = False,
    data_changed: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> Distilled:
    """Train a small network to answer as a large classifier does, on images that need no labels.

    The student learns the teacher's features and answers; no label is read. If the images have labels that the teacher knows,
    both are scored by them; otherwise the student is scored by how often it agrees with the teacher.

    Args:
        teacher: The classifier, or a classifier or run folder, a weights file, or the name of published weights. A classifier
            given as an object is saved beside the run, as "teacher-DIGEST", because a resumed run reads it again.
        data: The images: whatever `finetune` takes, or a folder of images in any sub-folders.
        student: The name of a model, for random weights, or trained weights; "vit-ti16" if None.
        out: The run folder; runs/NAME if None.
        recipe: The name of a recipe or a TOML file; "distill" if None.
        overrides: Changes to the recipe, such as "method.answers=0".
        image_size: The size of the student's images in pixels; the teacher's if None and the student can take that.
        time: The budget for training, scores and report, such as "10m" or a number of seconds; scoring the teacher comes on
            top.
        seed: The seed of every random choice; None for the recipe's.
        classes: The part of the path that names the class in nested folders.
        group: What tells images that belong together, a column or "folder" or "series"; see `open_data`.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        resume: Whether to continue the run in `out`.
        overwrite: Whether to begin in `out` although it holds a run, which is deleted, or other files; those of the same names
            are lost.
        data_changed: Whether to continue although the data have changed since the run began, and note that.
        started: The `time.monotonic()` at which the budget began; None for now.
        listener: Receives messages and progress; they are printed if left out.

    Raises:
        VitralError: The input is wrong; one line that names the thing.
    """
    given = dict(locals())
    for name in ("teacher", "student", "started", "listener"):
        del given[name]
    request = request_of("fine-tune", source=student, **given)
    return distill_request(teacher, request, started=started, listener=listener)


def distill_request(
    teacher: Classifier | str | Path, request: Request, *, started: float | None = None, listener: Listener = show
) -> Distilled:
    """Train a student as a request says, whose source it is; see `distill`."""
    out = request.out
    before = stored_request(out) if out is not None and request.resume else None
    if isinstance(teacher, Classifier):
        place = RUNS if out is None else out.parent
        saved = place / f"teacher-{fingerprint(teacher)[:DIGEST]}"  # the digest tells it from others
        teacher = saved if is_classifier(saved) else save(teacher, saved)
    classifier, headless = _loaded(str(teacher), request.overrides, listener)
    spec = before.data if before is not None and request.data is None else request.data
    if spec is None:
        raise UsageError(f"Which images? Name them with {argument('data')}.")
    if before is not None and out is not None:
        _check_same_teacher(out, str(teacher), classifier, listener)
    spec, labelled = _as_learned(spec, classifier, headless, request, listener)
    request = replace(request, data=spec)
    if before is None:
        student, size = request.source or STUDENT, request.image_size
        request = replace(
            request,
            source=student,
            image_size=_image_size(classifier, student) if size is None else size,
            recipe=request.recipe or RECIPE,
            overrides=(*_method(str(teacher), headless), *request.overrides),
        )
    try:
        result = finetune_request(request, started=started, listener=listener)
    except TrainingInterrupted as stop:
        advice = f"{stop.advice} and the same teacher, '{teacher}'"
        raise TrainingInterrupted(stop.done, advice=advice, exit_code=stop.exit_code) from stop
    return _side_by_side(classifier, result, labelled=labelled, listener=listener)


def _loaded(teacher: str, overrides: Sequence[str], listener: Listener) -> tuple[Classifier, bool]:
    """Return the teacher, and whether only its features can be learned; refuse answers that are not one class an image."""
    classifier = load(teacher, tuned=False, listener=listener)
    untrained = any(note.endswith(UNTRAINED) for note in classifier.provenance.notes)
    features_alone = any(change.replace(" ", "") in (FEATURES_ALONE, f"{FEATURES_ALONE}.0") for change in overrides)
    headless = features_alone or not classifier.task.scored or untrained
    if not headless and not classifier.task.exclusive:
        raise ModelError(
            f"'{teacher}' cannot teach its answers so: its images {classifier.task.labelled}, not one class each; learn its "
            f"features alone with {argument('overrides', [FEATURES_ALONE])}."
        )
    return classifier.to(training_device()), headless


def _check_same_teacher(folder: Path, teacher: str, classifier: Classifier, listener: Listener) -> None:
    """Refuse another teacher than a run began with."""
    path = folder / RECIPE_FILE
    began = getattr(load_recipe(path).method, "teacher", None) if path.is_file() else None
    if began is not None and fingerprint(load(str(began), tuned=False, listener=listener)) != fingerprint(classifier):
        raise TrainingError(
            f"The run in '{folder}' began with another teacher, '{began}', than '{teacher}'; name that one."
        )


def _method(teacher: str, headless: bool) -> tuple[str, ...]:
    source = str(Path(teacher).resolve()) if Path(teacher).exists() else teacher
    changes = ("method.name=feature-distillation", f"method.teacher={source}")
    return (*changes, FEATURES_ALONE) if headless else changes


def _image_size(teacher: Classifier, student: str) -> int | None:
    """Return the side of the teacher's images if a model by that name can take it; otherwise None."""
    height, width = teacher.model.image_size
    if student not in list_models() or height != width:
        return None
    try:
        configure(student, {"image_size": height})
    except ModelError:
        return None
    return height


def _as_learned(
    spec: str, teacher: Classifier, headless: bool, request: Request, listener: Listener
) -> tuple[str, bool]:
    """Return how the images are opened, and whether by labels that the teacher knows; refuse built-in ones that it does not."""
    if is_unlabelled(spec):
        return spec, False
    fixed = not is_selectable(spec)
    try:
        data = open_data(
            spec,
            classes=request.classes,
            skip_bad_images=request.skip_bad_images,
            verify=False,
            near=False,
            listener=listener,
        )
    except DataError as error:
        if fixed or look_at(spec) is None:
            raise
        listener(Message(f"{error} Its images are taken without labels."))
        return f"{PREFIX}{spec}", False
    if headless or (data.task.exclusive and set(data.class_names) <= set(teacher.class_names)):
        return spec, not headless
    others = side_by_side(teacher.class_names, data.class_names)
    if fixed:
        raise DataError(f"The teacher does not know the classes of '{spec}'. {others}")
    listener(Message(f"The teacher does not know all classes of {data.name}, so its labels are not read. {others}"))
    return f"{PREFIX}{spec}", False


def _side_by_side(teacher: Classifier, result: RunResult, *, labelled: bool, listener: Listener) -> Distilled:
    data = result.run.data
    scored = data.task.scored
    taught = 1.0 if scored else None
    if labelled:
        taught = _accuracy(teacher, data, result.split, listener)
    return Distilled(
        result,
        _figures(teacher, taught),
        _figures(result.classifier, result.evaluation.headline() if scored else None),
        "accuracy" if labelled else "agreement",
        processor_name(),
        torch.get_num_threads(),
    )


def _accuracy(teacher: Classifier, data: DataSet, split: str, listener: Listener) -> float:
    """Return the teacher's accuracy among the data's classes alone, as the student's."""
    probabilities, labels = predict_probabilities(teacher, data.splits[split], task=data.task, listener=listener)
    columns = match_classes(data, teacher.class_names)
    return float((probabilities[:, columns].argmax(dim=1) == labels).double().mean())


def _figures(classifier: Classifier, score: float | None) -> NetworkFigures:
    model = classifier.model.cpu()
    return NetworkFigures(
        name=describe(model.config),
        score=score,
        milliseconds=milliseconds(classifier.predictor),
        megabytes=model.weights_bytes / MEGA,
        parameters=count_parameters(model),
        macs=count_macs(model.config),
        image_size=model.image_size,
    )
