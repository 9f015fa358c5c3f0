"""The quality of a network's frozen features while it trains: few-shot accuracy, nearest neighbours, effective rank."""

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
from vitral.evaluation.baselines import extract_features, sample
from vitral.evaluation.probes import Draws, effective_rank, knn_accuracy, score_few_shot
from vitral.events import Listener, Message, few_shot_name, ignore
from vitral.tasks.task import Task
from vitral.training.methods.method import method_of
from vitral.training.settings.recipe import Recipe

NEIGHBOURS_AMONG = 2_000  # training images, at most, that are searched for neighbours
JUDGED = 2_000  # validation images, at most, of judging data
COLLAPSED = 2.0  # below this effective rank all features lie on a line
KNN = "validation/knn"
RANK = "validation/rank"


def open_judging(
    recipe: Recipe, data: DataSet, *, skip_bad_images: bool | None = None, listener: Listener = ignore
) -> DataSet | None:
    """Return the recipe's judging data, which score the features in place of the data that are learned; None for none.

    Args:
        recipe: The settings.
        data: The data that are learned.
        skip_bad_images: What becomes of images that cannot be read; see `open_data`.
        listener: The listener for messages and progress.

    Raises:
        DataError: The data cannot be opened.
        RecipeError: The images that would judge the features have several classes each, or are endless.
    """
    settings = recipe.evaluation
    judging = None
    if settings.data is not None:
        judging = open_data(settings.data, skip_bad_images=skip_bad_images, listener=listener)
        _check("evaluation.data", judging)
    elif settings.few_shot:
        _check("evaluation.few_shot", data)
    return judging


def _check(key: str, data: DataSet) -> None:
    why = "" if data.task.exclusive else f"its images {data.task.labelled}"
    if any(split.endless for split in data.splits.values()):
        why = "it is endless"
    elif "validation" not in data.splits:
        why = "it has no validation images"
    if why:
        raise RecipeError(
            f"'{key}' needs validation images of one class each, and {data.name} does not fit: {why}; leave it out."
        )


@dataclass(frozen=True)
class Live:
    """The images and settings that score a network's features at every validation.

    The images depend only on the training split, so every validation and every resumed run has the same. They go through the
    network as they do for classification, without training's augmentation.

    Attributes:
        task: The meaning of a label.
        classes: The number of classes.
        scored: The images that are scored.
        near: The images that are searched for neighbours; None for no neighbours.
        shots: The images of few-shot regression; None for none.
        draws: The images of `shots` in each draw; None for no few-shot regression.
        ranked: Whether the features' effective rank is computed; the listener is warned if they collapse.
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
        """The number of images that go through the network at each validation."""
        return sum(len(part) for part in (self.scored, self.near, self.shots) if part is not None)

    def figures(
        self, classifier: Classifier, workers: int, listener: Listener, stop: Callable[[], bool]
    ) -> dict[str, float]:
        """Return figures by name, NaN if the network gives no finite numbers.

        Args:
            classifier: The network.
            workers: The number of processes that read images.
            listener: The listener for progress and warnings.
            stop: A function that is called between batches and returns whether to stop.

        Raises:
            Stopped: `stop` returned True.
        """

        def features(part: Source) -> tuple[Tensor, Tensor]:
            encode = partial(self.task.encode, num_classes=self.classes)
            return extract_features(
                classifier, part, workers=workers, listener=listener, encode=encode, stop=stop, keep=False
            )

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
    """Return the scores of a network's features that a recipe needs; None for none.

    Few-shot regression is a setting of the recipe. A network that trains no head has no accuracy, so its features are scored by
    nearest neighbours, if there are labels, and by their effective rank. With judging data this holds for any network.

    Args:
        recipe: The settings, with the numbers of images a class and the method.
        data: The data that the network learns.
        source: The images of each validation; None for none.
        judging: Labelled judging data, with images that replace `source`.
        most: The number of images to search for neighbours, and to search among, that the time allows; None for no limit.
    """
    if judging is not None:
        data = judging
        source = sample(data.splits["validation"], most or JUDGED, seed=recipe.seed, purpose="judging images")
    if source is None:
        return None
    train, classes = data.splits["train"], len(data.class_names)
    few = recipe.evaluation.few_shot
    draws = Draws.of(train.labels(), classes, shots=few) if few else None
    headless = not method_of(recipe).trains_head(recipe)
    neighbours = (headless or judging is not None) and data.task.exclusive and not train.endless
    near = None
    if neighbours:
        near = sample(train, most or NEIGHBOURS_AMONG, seed=recipe.seed, purpose="neighbours of validation images")
    ranked = near is not None or (headless and not data.task.scored)
    if draws is None and not ranked:
        return None
    shots = None if draws is None else Subset(train, draws.union())
    return Live(data.task, classes, source, near, shots, draws, ranked)


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
    """Return the effective rank of the features of validation images; NaN if they are not finite."""
    if not torch.isfinite(features).all():
        return math.nan
    rank, width = effective_rank(features), features.shape[1]
    if rank < COLLAPSED and len(features) > COLLAPSED:
        listener(
            Message(
                f"The features have collapsed: {rank:.1f} of their {width} dimensions are in use, so all images look "
                "alike to the network. A lower learning rate, a larger batch or more varied views help.",
                warning=True,
            )
        )
    return rank
