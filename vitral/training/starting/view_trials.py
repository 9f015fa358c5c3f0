"""How training images may vary, tried before a network learns from scratch: short trainings with and without what is in doubt.

A photo that is mirrored, or cut down to a third, shows the same thing for most classes; but not letters, signs that point, or
what its size tells apart. No look at the images says which: a small network that has learned for seconds does, by images that
it was not shown. Every combination of what is in doubt is trained from the same weights on the same batches, so that each doubt
is judged by all of them, image by image. benchmarks/views.py measures it on folders.
"""

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.data.image_cache import CachedImages
from vitral.data.loader import TrainingBatches
from vitral.data.source import DataSet, PixelSource, Source
from vitral.data.subset import Subset
from vitral.errors import ImageError
from vitral.evaluation.baselines import Stopwatch
from vitral.evaluation.evaluate import predict_probabilities
from vitral.images.augment import Augmentation
from vitral.images.decode import Pixels, Shrink
from vitral.images.preprocessing import PHOTOS
from vitral.machine import keep_freed_memory
from vitral.models.families import create_model
from vitral.seeds import generator
from vitral.tasks.task import Label
from vitral.training.clock import DECODING_SHARE
from vitral.training.facts import Compared, faster
from vitral.training.measuring import step_speeds
from vitral.training.methods.method import build_method
from vitral.training.optimization.optimizers import training_device
from vitral.training.settings.recipe import Recipe, load_recipe
from vitral.training.step import Step

MODEL = "conv-vit-ti8"
SIDE = 32  # pixels, at which it learns from 1,300 images/s on two cores
BATCH = 64
MOST_IMAGES = 1000  # that are looked at,
FEWEST_IMAGES = 100  # or nothing is tried;
HELD_OUT = 0.4  # of them, by which is judged
PASSES = 8  # over the others, at most
LEAST_STEPS = 24  # fewer teach nothing
WARMUP = 0.2  # of the updates
ROOM = 0.8  # of the time that is left, for which steps are planned
TIMED_STEPS = 4  # that say how long one takes

Changes = Mapping[str, object]  # of an augmentation, by name


class _Shrunk(PixelSource):
    """Images in memory, hardly larger than they are seen."""

    def __init__(self, train: Source, augmentation: Augmentation, seconds: float, seed: int) -> None:
        stopwatch, chosen = Stopwatch(seconds), generator(seed, "images to try views on").permutation(len(train))
        images = CachedImages(train, augmentation, (SIDE, SIDE), limit=0)
        self._images: list[Pixels] = []
        self._labels: list[Label] = []
        for index in chosen[:MOST_IMAGES].tolist():
            if stopwatch.left() < 0:
                break
            with suppress(ImageError):  # which the run reports when it comes to it
                self._images.append(images.image(index))
                self._labels.append(train.label(index))

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int, shrink: Shrink | None = None) -> Pixels:
        """Return an image, 0 to 255."""
        return self._images[index]

    def label(self, index: int) -> Label:
        """Return an image's class."""
        return self._labels[index]

    def labels(self) -> Int64[np.ndarray, " examples"]:
        """Return the classes of all images."""
        return np.array(self._labels, dtype=np.int64)

    def describe(self, index: int) -> str:
        """Return an image's number, for people."""
        return f"image {index}"


class _ViewTrials:
    """Trainings of the small network on most of some images, judged on the rest."""

    def __init__(self, data: DataSet, images: _Shrunk, augmentation: Augmentation, seed: int) -> None:
        count = round((1 - HELD_OUT) * len(images))
        self.data, self.augmentation = data, replace(augmentation, decode="full")
        self.fitting, self.judging = Subset(images, range(count)), Subset(images, range(count, len(images)))
        recipe = load_recipe("scratch").with_changes(
            {"seed": seed, "batch_size": min(BATCH, count), "compute.accumulation": 1}
        )
        speeds = step_speeds(self.classifier(recipe), recipe, None)
        self.recipe = recipe.with_changes({"precision": faster(speeds)})

    def classifier(self, recipe: Recipe) -> Classifier:
        """Return the network as it begins."""
        model = create_model(MODEL, num_classes=len(self.data.class_names), image_size=SIDE)
        model.init_weights(recipe.seed)
        preprocessing = PHOTOS.with_size(model.image_size)
        return Classifier(model, preprocessing, self.data.class_names, task=self.data.task).to(training_device())

    def learned(self, changes: Changes, steps: int) -> Classifier:
        """Return the network after so many updates by images that vary as the changes of the augmentation say."""
        recipe, task = self.recipe.with_changes({"schedule.warmup_steps": round(WARMUP * steps)}), self.data.task
        classifier = self.classifier(recipe)
        batches = TrainingBatches(
            self.fitting,
            batch_size=recipe.batch_size,
            image_size=(SIDE, SIDE),
            augmentation=replace(self.augmentation, **changes),  # type: ignore[arg-type]
            seed=recipe.seed,
            task=task,
            num_classes=len(self.data.class_names),
        )
        step = Step(build_method(classifier.model.train(), recipe, task), recipe, PHOTOS.normalize)
        for number in range(steps):
            rate = recipe.schedule.rate(number, recipe.optimizer.lr, steps)
            step(batches.batch(number), number, rate, rate)
        return classifier

    def steps(self, seconds: float) -> int:
        """Return how many updates there is time for, up to so many that small sets are seen often enough."""
        self.learned({}, 1)  # which warms the kernels up
        start = time.perf_counter()
        self.learned({}, 1)
        once = time.perf_counter()
        self.learned({}, 1 + TIMED_STEPS)
        a_step = max((time.perf_counter() - once) - (once - start), 1e-9) / TIMED_STEPS
        most = max(LEAST_STEPS, round(PASSES * len(self.fitting) / self.recipe.batch_size))
        return min(most, int(seconds / a_step))

    def right(self, changes: Changes, steps: int) -> Bool[Tensor, " images"]:
        """Return which of the held-out images the network has right after training."""
        classifier = self.learned(changes, steps)
        classifier.model.eval()
        probabilities, labels = predict_probabilities(classifier, self.judging)
        return probabilities.argmax(dim=1) == labels


def try_views(
    data: DataSet, augmentation: Augmentation, doubts: Mapping[str, Changes], seconds: float, *, seed: int = 0
) -> dict[str, Compared]:
    """Return of each thing in doubt how trainings with and without it compare; empty where there is no time to tell.

    Args:
        data: The images; of their training split some are held out.
        augmentation: How they vary, all that is in doubt included.
        doubts: What is in doubt, by name: what takes its place in the augmentation.
        seconds: That it may take.
        seed: Of the images that are taken, the weights, the order and the views.
    """
    train = data.splits["train"]
    if not doubts or not data.task.exclusive or train.endless or len(train) < FEWEST_IMAGES or distributed.world() > 1:
        return {}
    keep_freed_memory()
    stopwatch, device = Stopwatch(seconds), training_device()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        images = _Shrunk(train, augmentation, DECODING_SHARE * seconds, seed)
        if len(images) < FEWEST_IMAGES:
            return {}
        trials = _ViewTrials(data, images, augmentation, seed)
        ways = list(itertools.product((False, True), repeat=len(doubts)))
        steps = trials.steps(ROOM * stopwatch.left() / len(ways))
        if steps < LEAST_STEPS:
            return {}
        right: dict[tuple[bool, ...], Bool[Tensor, " images"]] = {}
        for way in ways:
            if stopwatch.left() < 0:  # the machine became busy
                return {}
            left_out = [changes for changes, without in zip(doubts.values(), way, strict=True) if without]
            right[way] = trials.right({key: value for changes in left_out for key, value in changes.items()}, steps)
    return {name: _compared(right, number) for number, name in enumerate(doubts)}


def _compared(right: Mapping[tuple[bool, ...], Bool[Tensor, " images"]], number: int) -> Compared:
    """Return how the networks that were trained with one of the doubted things compare with those without it."""
    kept = torch.cat([answers for way, answers in right.items() if not way[number]])
    left_out = torch.cat([answers for way, answers in right.items() if way[number]])  # in the same order of the others
    return Compared(int(kept.sum()), int(left_out.sum()), int((kept != left_out).sum()), len(kept))
