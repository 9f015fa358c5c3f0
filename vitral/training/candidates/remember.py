"""What a run's classifier remembers of its images: their features, and its limit for images of none of its classes."""

import torch

from vitral.classifier.classifier import Classifier
from vitral.classifier.novelty import KnownImages, Novelty
from vitral.data.source import Source
from vitral.data.subset import Subset
from vitral.errors import ModelError
from vitral.evaluation.baselines import Labels, extract_features
from vitral.evaluation.probes import check_features
from vitral.evaluation.unknown_classes import BYTES, LEAST_AREA, MOST_BYTES, chosen, remembered, set_limit
from vitral.events import Message
from vitral.models.model import Features
from vitral.training.session import Run

JUDGED_SHARE = 1 / 3  # of the images there is time for, that the limit is set on


def remembered_images(
    run: Run, classifier: Classifier, fitted_on: tuple[Features, Labels] | None, images: int | None
) -> tuple[KnownImages | None, Novelty | None]:
    """Return the images that a run's classifier is to remember, and its limit for images of none of its classes, which is said.

    Args:
        run: The run.
        classifier: What it delivers.
        fitted_on: What its head was fitted on, and the labels, if it learned nothing but that; else None.
        images: How many there is time to look at otherwise; None for as many as are kept.
    """
    unfit = not (run.task.exclusive and run.task.scored) or run.splits["train"].endless
    if unfit or (fitted_on is None and images == 0):
        return None, None
    try:
        known = _known(run, classifier, fitted_on, images)
    except ModelError:  # the network gives no finite numbers, of which the diagnosis speaks
        return None, None
    limit = set_limit(known, classifier.class_names, learned=fitted_on is None)
    if limit is None:
        line = "Photos of none of the classes will not be recognised: too few photos, or features that do not tell them"
        run.listener(Message(f"{line} (AUROC below {LEAST_AREA:g}).", detail=True))
    else:
        run.listener(Message(limit.sentence(), detail=True))
    return known, limit


def _known(
    run: Run, classifier: Classifier, fitted_on: tuple[Features, Labels] | None, images: int | None
) -> KnownImages:
    seed = run.recipe.seed
    if fitted_on is not None:
        return remembered(*fitted_on, seed=seed)
    most = MOST_BYTES // (BYTES * classifier.model.num_features)
    most = most if images is None else min(most, images)
    validation = run.splits.get("validation")
    judged = 0 if validation is None else min(len(validation), round(JUDGED_SHARE * most))
    parts = [_seen(run, classifier, run.splits["train"], most - judged)]
    if validation is not None:
        parts.append(_seen(run, classifier, validation, judged))
    features, labels = (torch.cat([part[column] for part in parts]) for column in (0, 1))
    check_features(features)
    return KnownImages(features, labels, torch.arange(len(labels)) >= len(parts[0][1]))


def _seen(run: Run, classifier: Classifier, source: Source, most: int) -> tuple[Features, Labels]:
    few = chosen(torch.from_numpy(source.labels()), most, seed=run.recipe.seed).tolist()
    return extract_features(classifier, Subset(source, few), listener=run.listener)
