"""The few-shot accuracy of the network's frozen features while it trains, as its authors follow a pre-training."""

import math
from collections.abc import Callable

import torch

from vitral.classifier.classifier import Classifier
from vitral.data.source import DataSet, Source
from vitral.data.subset import Subset
from vitral.errors import RecipeError
from vitral.evaluation.features import extract_features
from vitral.evaluation.fewshot import Draws, score_few_shot
from vitral.events import Listener
from vitral.progress import few_shot_name
from vitral.training.settings.recipe import Recipe

# Gives figures by name, NaN where the network gives no finite numbers; asks between batches whether to stop, and raises
# Stopped where it is to.
Live = Callable[[Classifier, Listener, Callable[[], bool]], dict[str, float]]


def check_few_shot(recipe: Recipe, data: DataSet) -> None:
    """Refuse few-shot figures of data that cannot give any.

    Raises:
        RecipeError: the images have not one class each, or no end.
    """
    if not recipe.evaluation.few_shot:
        return
    why = "" if data.task.exclusive else f"whose images {data.task.labelled}"
    if any(split.endless for split in data.splits.values()):
        why = "which is endless"
    if "validation" not in data.splits:
        why = "which has no validation images"
    if why:
        raise RecipeError(
            f"'evaluation.few_shot' needs a dataset of one class an image, not {data.name}, {why}; leave it out."
        )


def live_few_shot(recipe: Recipe, data: DataSet, source: Source, workers: int) -> Live | None:
    """Return what scores few-shot regression on a network's features; None where the recipe asks for none.

    The images of the draws are settled here, by the training split alone: every validation, and every resumed run, has the
    same. They go through the network as they are to be classified, not as they are trained on.

    Args:
        recipe: says the numbers of images a class.
        data: what the network learns.
        source: the images of each validation.
        workers: processes that read them.
    """
    if not recipe.evaluation.few_shot:
        return None
    train, classes = data.splits["train"], len(data.class_names)
    draws = Draws.of(train.labels(), classes, shots=recipe.evaluation.few_shot)
    indices = draws.union()

    def score(classifier: Classifier, listener: Listener, stop: Callable[[], bool]) -> dict[str, float]:
        known, scored = (
            extract_features(classifier, part, workers=workers, listener=listener, stop=stop)
            for part in (Subset(train, indices), source)
        )
        if not all(torch.isfinite(features).all() for features, _ in (known, scored)):
            return {few_shot_name(shots): math.nan for shots in draws.images}
        figures: dict[str, float] = {}
        for few in score_few_shot(draws, indices, *known, *scored, classes=classes):
            figures[few_shot_name(few.shots)] = few.mean
            figures[f"{few_shot_name(few.shots)}_deviation"] = few.deviation
        return figures

    return score
