"""A teacher's answers in place of labels that there are not."""

from dataclasses import replace

from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.data.source import DataSet, Source
from vitral.data.subset import Relabelled
from vitral.errors import DataError, ModelError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.events import Listener, Message
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.unlabelled import UNLABELLED
from vitral.training.optimization.precision import training_device


def with_answers(data: DataSet, teacher: str, listener: Listener) -> DataSet:
    """Return images without labels with those classes as labels that a teacher finds most probable; other data as they are.

    What is called accuracy of them is agreement with the teacher, and a note says so. The answers are of whole images as the
    teacher predicts them; they are computed anew when a run goes on.

    Args:
        data: a dataset of which every split ends.
        teacher: what `load` takes.
        listener: receives progress.

    Raises:
        DataError: images have no end.
        ModelError: the teacher knows no classes, or an image may have several.
        WeightsError: there is no such teacher.
    """
    if data.task.scored:
        return data
    if any(source.endless for source in data.splits.values()):
        raise DataError(f"{data.name} is endless, so that no teacher can answer it; name a folder of images.")
    classifier = load(teacher, tuned=False, listener=listener)
    if not classifier.task.exclusive:
        raise ModelError(
            f"'{teacher}' cannot answer images without labels: its own {classifier.task.labelled}; name another "
            f"{argument('teacher')}, or learn its features alone with {argument('overrides', ['method.answers=0'])}."
        )
    images = sum(map(len, data.splits.values()))
    listener(Message(f"The teacher answers {images:,} images, by whose answers training is followed."))
    classifier.to(training_device())
    splits = {name: _answered(source, classifier, listener) for name, source in data.splits.items()}
    note = f"The images have no labels: what is called their class is the answer of '{teacher}', accuracy agreement with it."
    return replace(
        data, splits=splits, class_names=classifier.class_names, task=SINGLE_LABEL, notes=(*data.notes, note)
    )


def _answered(source: Source, teacher: Classifier, listener: Listener) -> Source:
    probabilities, _ = predict_probabilities(teacher, source, task=UNLABELLED, listener=listener)
    return Relabelled(source, probabilities.argmax(dim=1).numpy())
