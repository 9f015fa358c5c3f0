"""Scores ways to compute a classifier on its validation images, each beside its network in float32."""

from functools import partial
from typing import NamedTuple

from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet
from vitral.data.subset import Renumbered, spread_over
from vitral.errors import DataError
from vitral.evaluation.evaluate import predict_probabilities
from vitral.evaluation.exactness import apart
from vitral.evaluation.opening import match_classes
from vitral.events import Listener
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import Predictor
from vitral.tasks.task import Figure, Probabilities, Result, Targets

VALIDATION = "validation"


class Judgement(NamedTuple):
    """How good a way is.

    Attributes:
        figure: The headline figure on the validation images, 0 to 1.
        largest: The largest difference of a probability from the network in float32.
        same_top: The share of the images with the same most probable class as there.
    """

    figure: float
    largest: float
    same_top: float


class Judge:
    """Scores ways to compute a classifier on the same validation images, at most so many, spread over all.

    Attributes:
        source: The images that are taken.
        exact: The headline figure of the classifier's network in float32.

    Raises:
        ImageError: An image cannot be read.
    """

    def __init__(
        self, classifier: Classifier, data: DataSet, *, most: int, batch_size: int, workers: int, listener: Listener
    ) -> None:
        self.classifier, self.task = classifier, data.task
        self._computing = partial(
            predict_probabilities, task=data.task, batch_size=batch_size, workers=workers, listener=listener
        )
        taken = spread_over(data.splits[VALIDATION], most)
        self.source = Renumbered(taken, match_classes(data, classifier.class_names))
        self._exact, self._targets = self._answers(classifier.predictor.exact, classifier.preprocessing)
        self.exact = self._figure(self._exact)

    def score(self, predictor: Predictor, preprocessing: Preprocessing | None = None) -> Judgement:
        """Return how good a predictor is; of another image size with the preprocessing for that."""
        probabilities, _ = self._answers(predictor, preprocessing or self.classifier.preprocessing)
        return Judgement(self._figure(probabilities), *apart(probabilities, self._exact))

    def _answers(self, predictor: Predictor, preprocessing: Preprocessing) -> tuple[Probabilities, Targets]:
        own = self.classifier
        computed = Classifier(predictor, preprocessing, own.class_names, calibration=own.calibration, task=own.task)
        return self._computing(computed, self.source)

    def _figure(self, probabilities: Probabilities) -> float:
        result: Result = self.task.score(
            probabilities, self._targets, class_names=self.classifier.class_names, describe=self.source.describe
        )
        return result.headline()


def check_judged(data: DataSet, what: str) -> Figure:
    """Return the headline figure of validation images, of which shares may be lost; `what` is not done without them.

    Raises:
        DataError: There are no such images, or the figure is no share of 1.
    """
    if VALIDATION not in data.splits:
        raise DataError(
            f"{data.name} has no validation photos, and on others {what}; name the data that the classifier "
            "was trained on, or put photos into a val/ folder."
        )
    headline = data.task.headline
    if not (headline.is_share and headline.more_is_better):
        raise DataError(f"A loss is a share between 0 and 1, and {headline.title} is no share.")
    return headline
