"""Distil a classifier into a smaller network, and set both side by side: accuracy, latency, size."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.fingerprint import fingerprint
from vitral.classifier.load import load
from vitral.data.classes import Reading
from vitral.data.names import side_by_side
from vitral.data.open import is_selectable, open_data
from vitral.data.source import DataSet
from vitral.data.unlabelled import PREFIX, is_unlabelled
from vitral.errors import DataError, ModelError, TrainingError
from vitral.evaluation.candidates import milliseconds
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.opening import match_classes
from vitral.events import Listener, Message
from vitral.machine import processor_name
from vitral.models.catalog import list_models
from vitral.models.cost import count_macs, count_parameters
from vitral.models.create import configure
from vitral.models.naming import describe
from vitral.paths import look_at
from vitral.progress import show
from vitral.studies.finetune import finetune
from vitral.tasks.shown import NO_VALUE, Table, fitting_digits, percent
from vitral.training.optimization.precision import training_device
from vitral.training.records.recipe_file import RECIPE_FILE
from vitral.training.records.run_file import stored_request
from vitral.training.result import RunResult
from vitral.training.settings.recipe import load_recipe
from vitral.weights.dialect import NO_HEAD

STUDENT = "vit-ti16"
RECIPE = "distill"
ALONE = ("method.answers=0", "method.answers=0.0")  # the features without the answers
MEGA, GIGA = 1e6, 1e9


@dataclass(frozen=True)
class Side:
    """One of the two.

    Attributes:
        name: of its network.
        score: the share of the images that it gets right, or of which it says what the teacher says; None where there is none.
        milliseconds: that its network takes for one image in torch in fp32, the median.
        megabytes: of its weights.
        parameters: of its network.
        macs: multiply-accumulates of an image.
        image_size: height and width of its images, pixels.
    """

    name: str
    score: float | None
    milliseconds: float
    megabytes: float
    parameters: int
    macs: int
    image_size: tuple[int, int]


@dataclass(frozen=True, repr=False)
class Distilled:
    """A student beside its teacher.

    Attributes:
        result: the run that trained the student.
        teacher: what it learned from.
        student: what it is.
        figure: what the scores are: "accuracy", or "agreement" with the teacher.
        machine: the processor that took the times.
        threads: that computed.
    """

    result: RunResult
    teacher: Side
    student: Side
    figure: str
    machine: str
    threads: int

    def __repr__(self) -> str:
        """Return the two in a line each."""
        return "\n".join(self.lines())

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        faster = self.teacher.milliseconds / self.student.milliseconds
        smaller = self.teacher.megabytes / self.student.megabytes
        if self.student.score is None or self.teacher.score is None:
            kept = "nothing was scored: what it is worth shows once it is fine-tuned"
        elif self.figure == "agreement":
            kept = f"it says what the teacher says of {percent(self.student.score)} of the {self.result.split} images"
        else:
            points = 100 * (self.student.score - self.teacher.score)
            kept = f"{points:+.1f} points of accuracy on the {self.result.split} images"
        pace = f"is {faster:.3g} times as fast" if faster >= 1 else f"takes {1 / faster:.3g} times as long"
        size = f"{smaller:.3g} times smaller" if smaller >= 1 else f"{1 / smaller:.3g} times larger"
        return (f"The student {pace} as the teacher, and is {size}; {kept}.",)

    def tables(self) -> tuple[Table, ...]:
        """Return the two, side by side."""
        digits = fitting_digits(self.result.evaluation.num_examples)
        rows = tuple(
            (
                role,
                side.name,
                NO_VALUE if side.score is None else percent(side.score, digits),
                f"{side.milliseconds:.3g}",
                f"{side.megabytes:.3g}",
                f"{side.parameters / MEGA:.3g}",
                f"{side.macs / GIGA:.3g}",
                "x".join(map(str, side.image_size)),
            )
            for role, side in (("teacher", self.teacher), ("student", self.student))
        )
        return (
            Table(
                "",
                ("", "Network", self.figure.capitalize(), "ms", "MB", "M parameters", "GMACs", "Pixels"),
                rows,
                names=2,
                note=f"One image at once in torch, fp32, {self.threads} threads of {self.machine}.",
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without those of the run."""
        return {
            "figure": self.figure,
            "teacher": asdict(self.teacher),
            "student": asdict(self.student),
            "machine": self.machine,
            "threads": self.threads,
        }


def distill(
    teacher: str | Path,
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
    skip_bad_images: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    data_changed: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> Distilled:
    """Train a small network to answer as a large classifier does, on images that need no labels.

    It learns the teacher's features and answers; no label is read. Where the images have labels that the teacher knows, both
    are scored by them; where they have others or none, the student is scored by how often it says what the teacher says.

    Args:
        teacher: a classifier or run folder, a weights file, published weights by name.
        data: images: what `finetune` takes, or a folder of images in whatever sub-folders.
        student: a model's name, for random weights, or trained weights; "vit-ti16" if None.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; "distill" if None.
        overrides: changes to the recipe, such as "method.answers=0".
        image_size: of the student, pixels; the teacher's if None and the student can take that.
        time: a budget for training, scores and report: "10m", "8h", or a number of seconds; that the teacher is scored, too,
            comes on top.
        seed: of every random choice; None for the recipe's.
        classes: of nested folders, which one names the class.
        skip_bad_images: train without unreadable images, and list them, instead of an error.
        resume: continue with the run in `out`.
        overwrite: begin in `out` though it holds a run, which is deleted, or other files; those of the same names are lost.
        data_changed: go on though the data are not those that the run began with, and note that.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    asked = None if out is None or not resume else stored_request(Path(out))
    features_alone = any(change.replace(" ", "") in ALONE for change in overrides)
    known, headless = _known(str(teacher), features_alone=features_alone, listener=listener)
    spec = str(data) if data is not None else None if asked is None else asked.data
    if spec is None:
        raise TrainingError(f"Which images? Name them with {argument('data')}.")
    if asked is not None and out is not None:
        _check_same_teacher(Path(out), str(teacher), known, listener)
    spec, labelled = _as_learned(spec, known, headless, classes, skip_bad_images, listener)
    said = () if asked is not None else _method(str(teacher), headless)
    begun: dict[str, Any] = {"source": student, "image_size": image_size, "recipe": recipe}
    if asked is None:
        begun = _beginning(known, student or STUDENT, image_size, recipe)
    result = finetune(
        spec,
        out=out,
        overrides=(*said, *overrides),
        time=time,
        seed=seed,
        classes=classes,
        skip_bad_images=skip_bad_images,
        resume=resume,
        overwrite=overwrite,
        data_changed=data_changed,
        started=started,
        listener=listener,
        **begun,
    )
    return _beside(known, result, labelled=labelled, listener=listener)


def _known(teacher: str, *, features_alone: bool, listener: Listener) -> tuple[Classifier, bool]:
    """Return the teacher, and whether its features alone can be learned.

    Raises:
        ModelError: its images have not one class each, and its answers are to be learned.
    """
    known = load(teacher, tuned=False, listener=listener)
    headless = features_alone or not known.task.scored or NO_HEAD in known.provenance.notes
    if not headless and not known.task.exclusive:
        raise ModelError(
            f"'{teacher}' cannot teach its answers so: its images {known.task.labelled}, not one class each; learn its "
            f"features alone with {argument('overrides', list(ALONE[:1]))}."
        )
    return known.to(training_device()), headless


def _check_same_teacher(folder: Path, teacher: str, known: Classifier, listener: Listener) -> None:
    """Refuse another teacher than a run began with.

    Raises:
        TrainingError: it is another.
    """
    path = folder / RECIPE_FILE
    began = getattr(load_recipe(path).method, "teacher", None) if path.is_file() else None
    if began is not None and fingerprint(load(str(began), tuned=False, listener=listener)) != fingerprint(known):
        raise TrainingError(
            f"The run in '{folder}' began with another teacher, '{began}', than '{teacher}'; name that one."
        )


def _method(teacher: str, headless: bool) -> tuple[str, ...]:
    there = str(Path(teacher).resolve()) if Path(teacher).exists() else teacher
    return ("method.name=feature-distillation", f"method.teacher={there}", *(ALONE[:1] if headless else ()))


def _beginning(known: Classifier, student: str, image_size: int | None, recipe: str | Path | None) -> dict[str, Any]:
    size = image_size
    if size is None and student in list_models() and known.model.image_size[0] == known.model.image_size[1]:
        side = known.model.image_size[0]
        size = side if _takes(student, side) else None
    return {"source": student, "image_size": size, "recipe": recipe or RECIPE}


def _takes(student: str, size: int) -> bool:
    try:
        configure(student, {"image_size": size})
    except ModelError:
        return False
    return True


def _as_learned(
    spec: str, known: Classifier, headless: bool, classes: Reading | None, skip_bad_images: bool, listener: Listener
) -> tuple[str, bool]:
    """Return how the images are opened, and whether by labels that the teacher knows.

    Raises:
        DataError: they cannot be opened, or are built in and of other classes.
    """
    if is_unlabelled(spec):
        return spec, False
    opened: Callable[[], DataSet] = partial(
        open_data, spec, classes=classes, skip_bad_images=skip_bad_images, verify=False, listener=listener
    )
    fixed = not is_selectable(spec)
    try:
        data = opened()
    except DataError as error:
        if fixed or look_at(spec) is None:
            raise
        listener(Message(f"{error} Its images are taken without labels."))
        return f"{PREFIX}{spec}", False
    if headless or (data.task.exclusive and set(data.class_names) <= set(known.class_names)):
        return spec, not headless
    others = side_by_side(known.class_names, data.class_names)
    if fixed:
        raise DataError(f"The teacher does not know the classes of '{spec}'. {others}")
    listener(Message(f"The teacher does not know all classes of {data.name}, so its labels are not read. {others}"))
    return f"{PREFIX}{spec}", False


def _beside(known: Classifier, result: RunResult, *, labelled: bool, listener: Listener) -> Distilled:
    data, evaluation = result.run.data, result.evaluation
    own = evaluation.headline() if data.task.scored else None
    taught = 1.0 if data.task.scored else None
    if labelled:
        taught = _accuracy(known, data, result.split, listener)
    return Distilled(
        result,
        _side(known, taught),
        _side(result.classifier, own),
        "accuracy" if labelled else "agreement",
        processor_name(),
        torch.get_num_threads(),
    )


def _accuracy(known: Classifier, data: DataSet, split: str, listener: Listener) -> float:
    """Return the share that the teacher gets right, asked for the data's classes alone, as the student is."""
    source = data.splits[split]
    probabilities, labels = predict_probabilities(known, source, task=data.task, listener=listener)
    columns = match_classes(data, known.class_names)
    return float((probabilities[:, columns].argmax(dim=1) == labels).double().mean())


def _side(classifier: Classifier, score: float | None) -> Side:
    model = classifier.model.cpu()
    return Side(
        name=describe(model.config),
        score=score,
        milliseconds=milliseconds(classifier.predictor),
        megabytes=sum(value.numel() * value.element_size() for value in model.state_dict().values()) / MEGA,
        parameters=count_parameters(model),
        macs=count_macs(model.config),
        image_size=model.image_size,
    )
