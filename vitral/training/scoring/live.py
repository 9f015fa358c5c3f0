"""What the network's frozen features are worth while it trains: few-shot accuracy, nearest neighbours, effective rank."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from vitral.classifier.classifier import Classifier
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.errors import RecipeError
from vitral.evaluation.features import extract_features
from vitral.evaluation.fewshot import Draws, score_few_shot
from vitral.evaluation.probes import effective_rank, knn_accuracy
from vitral.events import Listener, Message, ignore
from vitral.progress import few_shot_name
from vitral.seeds import generator
from vitral.tasks.task import Task
from vitral.training.methods.method import method_of
from vitral.training.settings.recipe import Recipe

NEIGHBOURS_AMONG = 2_000  # training images, at most, among which the nearest are looked for
JUDGED = 2_000  # validation images, at most, of other data than those that are learned from
COLLAPSED = 2.0  # effective rank below which all features lie on one line
KNN, RANK = "validation/knn", "validation/rank"


def open_judging(
    recipe: Recipe, data: DataSet, *, skip_bad_images: bool = False, listener: Listener = ignore
) -> DataSet | None:
    """Return the data by which a recipe has features judged that are others than those that are learned from, or None.

    Args:
        recipe: the settings.
        data: what is learned from.
        skip_bad_images: leave out images that cannot be read, instead of an error.
        listener: hears of the reading.

    Raises:
        DataError: they cannot be opened.
        RecipeError: features are to be judged by images that have not one class each, or no end.
    """
    asked = recipe.evaluation
    judging = None
    if asked.data is not None:
        judging = open_data(asked.data, skip_bad_images=skip_bad_images, listener=listener)
        _check("evaluation.data", judging)
    elif asked.few_shot:
        _check("evaluation.few_shot", data)
    return judging


def _check(key: str, data: DataSet) -> None:
    why = "" if data.task.exclusive else f"whose images {data.task.labelled}"
    if any(split.endless for split in data.splits.values()):
        why = "which is endless"
    elif "validation" not in data.splits:
        why = "which has no validation images"
    if why:
        raise RecipeError(f"'{key}' needs a dataset of one class an image, not {data.name}, {why}; leave it out.")


@dataclass(frozen=True)
class Live:
    """What follows a network's features at every validation.

    The images are settled by the training split alone: every validation, and every resumed run, has the same. They go through
    the network as they are to be classified, not as they are trained on.

    Attributes:
        task: what a label is.
        classes: how many there are.
        scored: the images that are judged.
        near: those among which their neighbours are looked for; None for no neighbours.
        shots: those of few-shot regression; None for none.
        draws: which of `shots` each draw takes; None for no few-shot regression.
        ranked: whether the dimensions are counted that the features fill; the listener is warned where they collapse.
    """

    task: Task
    classes: int
    scored: Source
    near: Source | None
    shots: Source | None
    draws: Draws | None
    ranked: bool

    @property
    def images(self) -> int:
        """How many go through the network at each validation."""
        return sum(len(part) for part in (self.scored, self.near, self.shots) if part is not None)

    def figures(
        self, classifier: Classifier, workers: int, listener: Listener, stop: Callable[[], bool]
    ) -> dict[str, float]:
        """Return figures by name, NaN where the network gives no finite numbers.

        Args:
            classifier: the network.
            workers: processes that read images.
            listener: hears progress and warnings.
            stop: asked between batches whether to stop.

        Raises:
            Stopped: `stop` said so.
        """

        def features(part: Source) -> tuple[Tensor, Tensor]:
            encode = partial(self.task.encode, num_classes=self.classes)
            return extract_features(classifier, part, workers=workers, listener=listener, encode=encode, stop=stop)

        figures: dict[str, float] = {}
        scored = features(self.scored)
        if self.draws is not None and self.shots is not None:
            figures |= _few_shot(self.draws, features(self.shots), scored, self.classes)
        if self.near is not None:
            known = features(self.near)
            finite = all(torch.isfinite(values).all() for values, _ in (known, scored))
            figures[KNN] = knn_accuracy(*known, *scored) if finite else math.nan
        if self.ranked:
            figures[RANK] = _rank(scored[0], listener)
        return figures


def follow(
    recipe: Recipe, data: DataSet, source: Source | None, *, judging: DataSet | None = None, most: int | None = None
) -> Live | None:
    """Return what follows a network's features: few-shot regression where asked for, and what says whether they are worth it.

    A network that learns without a head has nothing else to show: its nearest neighbours are asked, where there are labels, and
    how many dimensions its features fill. By other data than those that are learned from, any network's are asked. None where
    there is nothing to follow.

    Args:
        recipe: says the numbers of images a class, and the method.
        data: what the network learns.
        source: the images of each validation; None where there are none.
        judging: other labelled data, whose images it is instead.
        most: images of which neighbours are looked for, and among which, for which there is time; None for as many as matter.
    """
    if judging is not None:
        data, source = judging, _some(judging.splits["validation"], most or JUDGED, recipe, "judging images")
    if source is None:
        return None
    train, classes = data.splits["train"], len(data.class_names)
    few = recipe.evaluation.few_shot
    draws = Draws.of(train.labels(), classes, shots=few) if few else None
    headless = not method_of(recipe).trains_head(recipe)
    asked = (headless or judging is not None) and data.task.exclusive and not train.endless
    near = _some(train, most or NEIGHBOURS_AMONG, recipe, "neighbours of validation images") if asked else None
    ranked = near is not None or (headless and not data.task.scored)
    if draws is None and not ranked:
        return None
    shots = None if draws is None else Subset(train, draws.union())
    return Live(data.task, classes, source, near, shots, draws, ranked)


def _some(source: Source, most: int, recipe: Recipe, what_for: str) -> Source:
    """Return so many of the images at most, the same in every run of the recipe's seed."""
    drawn = generator(recipe.seed, what_for).choice(len(source), size=min(most, len(source)), replace=False)
    return Subset(source, sorted(drawn.tolist()))


def _few_shot(
    draws: Draws, known: tuple[Tensor, Tensor], scored: tuple[Tensor, Tensor], classes: int
) -> dict[str, float]:
    if not all(torch.isfinite(features).all() for features, _ in (known, scored)):
        return {few_shot_name(shots): math.nan for shots in draws.images}
    figures: dict[str, float] = {}
    for few in score_few_shot(draws, draws.union(), *known, *scored, classes=classes):
        figures[few_shot_name(few.shots)] = few.mean
        figures[f"{few_shot_name(few.shots)}_deviation"] = few.deviation
    return figures


def _rank(features: Tensor, listener: Listener) -> float:
    """Return how many dimensions the features of validation images fill; NaN where they are no finite numbers."""
    if not torch.isfinite(features).all():
        return math.nan
    rank, width = effective_rank(features), features.shape[1]
    if rank < COLLAPSED and len(features) > COLLAPSED:
        listener(
            Message(
                f"The features have collapsed: {rank:.1f} of their {width} dimensions are in use, so that all images look "
                "alike to the network. A lower learning rate, a larger batch or more varied views help.",
                warning=True,
            )
        )
    return rank
