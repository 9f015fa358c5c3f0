"""Find a classifier's int8 form: ranges on training images, and on validation images which layers stay in float32."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitral.advice import argument, function
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import folder_that_keeps, read, update_provenance, weights_hash
from vitral.classifier.load import as_classifier
from vitral.data.classes import Reading
from vitral.data.loader import load_evaluation
from vitral.data.source import DataSet, Source
from vitral.data.subset import spread_over
from vitral.deployment.judge import VALIDATION, Judge, check_judged
from vitral.errors import DataError, ModelError
from vitral.evaluation.evaluate import BATCH_SIZE
from vitral.evaluation.exactness import no_labels
from vitral.evaluation.opening import open_split
from vitral.events import Listener, Message, Progress, show
from vitral.images.preprocessing import Preprocessing
from vitral.inference.choice import INTEGERS, int8_speeds, predictor_in
from vitral.inference.quantization import Quantization, linear_layers
from vitral.inference.ranges import LayerFit, find_ranges
from vitral.models.families import describe
from vitral.models.model import Images
from vitral.tasks.shown import Presentable, Table, photos_of
from vitral.tasks.unlabelled import check_classifies

LOSS = 0.005  # of the headline figure that int8 may cost
RANGE_IMAGES = 256  # on which ranges are found, spread over the training images
MOST_IMAGES = 2000  # on which layers are chosen, spread over the validation images
RANGE_BATCH = 8
MOST_KEPT = 0.5  # of the layers in float32, beyond which int8 is worth nothing
SHOWN = 8  # layers in the table
TRAIN = "train"
ON_THE_SAME = (
    "There are no training images: the ranges are found on the validation images by which the form is then scored, so that its "
    "score flatters it."
)


@dataclass(frozen=True, repr=False)
class Quantized(Presentable):
    """An int8 form that keeps to the scores.

    Attributes:
        errors: The errors of each linear layer's answers in int8, as a share of their variation, the largest first.
        largest: The largest difference of a probability from fp32 on the validation images.
        speeds: The images/s here by runtime and precision, in a short measurement.
        figure: The name of the figure that the form holds.
    """

    quantization: Quantization
    errors: Mapping[str, float]
    largest: float
    speeds: Mapping[str, float]
    figure: str

    def sentence(self) -> str:
        """Return what was found in one sentence."""
        return self.quantization.sentence()

    def lines(self) -> tuple[str, ...]:
        """Return what a terminal shows above the table."""
        mine = self.speeds[str(INTEGERS)]
        others = [
            f"{mine / speed:.2f} times as fast as {name}"
            for name, speed in self.speeds.items()
            if name != str(INTEGERS)
        ]
        return (
            f"{self.quantization.sentence()} The figure is {self.figure}.",
            f"There {self.quantization.same_top:.1%} of the photos have the same most probable class as in fp32; probabilities "
            f"differ by at most {self.largest:.2g}.",
            f"Computes {mine:.3g} images/s here in a short measurement: {', '.join(others)}.",
        )

    def tables(self) -> tuple[Table, ...]:
        """Return the layers whose answers int8 changes most."""
        kept = self.quantization.kept
        rows = (
            (name, f"{error:.2%}", "fp32" if name in kept else "int8")
            for name, error in list(self.errors.items())[:SHOWN]
        )
        return (Table("Layers that int8 changes most", ("Layer", "Error", "Computes in"), tuple(rows)),)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the ranges as JSON values."""
        values = super().to_json()
        values["quantization"]["layers"] = list(self.quantization.layers)
        return values


def quantize(
    classifier: Classifier | str | Path,
    data: DataSet | str | Path,
    *,
    loss: float = LOSS,
    write: bool = False,
    classes: Reading | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int = 0,
    skip_bad_images: bool | None = None,
    listener: Listener = show,
) -> Quantized:
    """Find how a classifier computes in int8 on a CPU without losing more than it may, and how fast it is then.

    The linear layers of the blocks multiply 8-bit integers. The range of each one's inputs is found on training images; then
    those whose answers change most stay in float32, none at first, then 1, 2, 4, ..., until the headline figure on validation
    images holds. Test images are not opened. Nothing is changed unless `write` says so.

    Args:
        classifier: The classifier itself, or whatever `load` takes.
        data: The data that it was trained on, or a dataset with a validation split.
        loss: The loss of the headline figure (accuracy, or a mean average precision) that int8 may cost, 0 to 1.
        write: Whether the classifier's folder keeps the form, so that `precision="int8"` computes by it.
        classes: The folder that names the class where folders are nested; None for the one that has the classifier's names.
        batch_size: The number of images computed at once.
        workers: The number of processes that decode; 0 decodes here.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The receiver of progress and warnings; they are written to the screen by default.

    Raises:
        DataError: There are no validation images, or the loss is none.
        ModelError: The network has no linear layers in blocks, the CPU does not multiply 8-bit integers, int8 would be slower,
            or the figure does not hold.
        WeightsError: It is to be written, and the classifier is not a folder.
    """
    if not 0 <= loss < 1:
        raise DataError(f"The allowed loss is at least 0 and below 1, such as 0.005, not {loss:g}.")
    folder = folder_that_keeps(classifier, "an int8 form") if write else None
    exact = as_classifier(classifier, listener, tuned=False)
    check_classifies(exact.task, function("quantize"))
    if not linear_layers(exact.model):
        raise ModelError(
            f"int8 computes the linear layers of a transformer's blocks, and {describe(exact.model.config)} has none; take "
            "another precision."
        )
    opened, _ = open_split(
        data, [exact], split=None, classes=classes, skip_bad_images=skip_bad_images, listener=listener, validation=True
    )
    headline = check_judged(opened, "no layers are chosen")
    seen = opened.splits.get(TRAIN, opened.splits[VALIDATION])
    if TRAIN not in opened.splits:
        listener(Message(ON_THE_SAME, warning=True))
    found = find_ranges(exact.model, _batches(seen, exact.preprocessing, workers, listener))
    whole = _quantization(exact, found, (), opened.name)
    speeds = int8_speeds(exact.model, whole)
    judge = Judge(exact, opened, most=MOST_IMAGES, batch_size=batch_size, workers=workers, listener=listener)
    worst_first = sorted(found, key=lambda name: -found[name].error)
    quantization, largest = _that_holds(judge, opened.name, found, worst_first, loss)
    if quantization.kept:
        speeds = int8_speeds(exact.model, quantization)
    if folder is not None:
        stored = read(folder)
        stored.quantization = quantization = replace(quantization, weights=weights_hash(folder))
        update_provenance(stored, folder)
    return Quantized(
        quantization,
        {name: found[name].error for name in worst_first},
        largest,
        {str(way): speed for way, speed in speeds.items()},
        headline.title,
    )


def _that_holds(
    judge: Judge, data: str, found: Mapping[str, LayerFit], worst_first: list[str], loss: float
) -> tuple[Quantization, float]:
    """Return the form with the fewest layers in float32 that loses no more than it may, of 0, 1, 2, 4, ... such layers."""
    number = 0
    while True:
        form = _quantization(judge.classifier, found, tuple(worst_first[:number]), data)
        scores = judge.score(predictor_in(judge.classifier.model, INTEGERS, form))
        form = replace(form, images=len(judge.source), exact=judge.exact, score=scores.figure, same_top=scores.same_top)
        if form.exact - form.score <= loss + 1e-9:
            return form, scores.largest
        number = 2 * number or 1
        if number > MOST_KEPT * len(worst_first):
            raise ModelError(
                f"int8 loses more than {loss:.2%} on the {photos_of(VALIDATION, form.images)}: {form.score:.2%} against "
                f"{form.exact:.2%} in fp32, even with {len(form.kept)} of {len(worst_first)} layers in float32. Take "
                f"another precision, or allow more with {argument('loss', 0.01)}."
            )


def _quantization(
    classifier: Classifier, found: Mapping[str, LayerFit], in_float: tuple[str, ...], data: str
) -> Quantization:
    layers = {name: layer.inputs for name, layer in found.items() if name not in in_float}
    in_order = tuple(name for name in found if name in in_float)
    return Quantization(layers, in_order, classifier.model.image_size, data, 0, 0.0, 0.0, 0.0)


def _batches(source: Source, preprocessing: Preprocessing, workers: int, listener: Listener) -> Iterator[Images]:
    taken = spread_over(source, RANGE_IMAGES)
    done = 0
    for batch in load_evaluation(taken, preprocessing, batch_size=RANGE_BATCH, workers=workers, encode=no_labels):
        yield batch.images
        done += len(batch.images)
        listener(Progress("find ranges", done, len(taken)))
