"""What a run that learns regions does otherwise: larger photos, small batches, one loss, views that keep what is in a photo.

The sizes, lengths and rates were tried on nuclei, blood cells and drawn scenes (docs/how-to/regions.md). All of it is a
pure function.
"""

from collections.abc import Collection
from dataclasses import replace

from vitral.errors import RecipeError
from vitral.models.catalog import VARIANTS
from vitral.models.costs import COSTS
from vitral.models.dense.dense_model import HEADS
from vitral.models.dense.detail import DetailHead
from vitral.models.dense.head import HeadConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.points import PointsHeadConfig, stride_for
from vitral.models.dense.queries import QueryHeadConfig
from vitral.tasks.dense import DenseTask
from vitral.training.choose.recipe import fitting_size
from vitral.training.clock import PATIENCE_SECONDS, TRAINING_SHARE
from vitral.training.facts import Facts
from vitral.training.settings.recipe import Recipe

SIZES = (64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640)  # pixels of a side, at which photos may be seen
LARGEST_ON_CPU = 384  # pixels
ENLARGED = 1.1  # times their own shorter side, at which photos are seen at most
LEAST_REGION = 8.0  # pixels of a region's shorter side: of smaller ones no inside is left beside the rim,
LEAST = 128  # and of a photo's, whatever its regions and the time
SEEN = 2_000  # photos, again or anew, before a larger size teaches more than more of them; in passes
FEWEST_PASSES = 3.0  # at least, and
MOST_PASSES = 30.0  # at most
ENOUGH_PASSES = 120.0  # of which more would only be learned by heart
# Times the steps that there seems to be time for: a run is cut to its time, but not made longer, and the estimate, of a machine
# that nothing was measured on but one convolution, may be several times too low.
ROOM = 8.0
LEAST_STEPS = 200
BATCH = 8  # photos of a step, where there are so many,
FEW_AT_ONCE = 4  # and where every pixel teaches: twice the steps
DECODER_MACS = 1.3e4  # multiply-accumulates a pixel of the head
THIN = 0.25  # of the machine's speed, which convolutions of few channels on many pixels reach
SCALES = (0.75, 1.5)  # of a photo in its view, which is filled up where the photo is smaller,
PIXELS_SCALES = (1.0, 1.5)  # and where filters of the whole view count, which the filling would spoil
RATE = 1e-3  # of the head, and of all weights from scratch,
PIXELS_RATE = 2e-3  # of a head of which every pixel teaches,
BACKBONE_LR = 0.1  # times that of the head, for a start, which half of it spoils (benchmarks/region_rates.py)
# Passes, as they are estimated, from which a transformer is adapted, too: at 2 of them a frozen ViT-S/14 saw the photos half as
# often again, and was better (docs/how-to/regions.md).
ADAPTING = 5.0
START_DECAY = 0.75  # of the learning rate of a start from block to block
QUERIES = "mask-queries"  # the method of queries,
QUERY_RATE = 2e-4  # their learning rate, EoMT's on DINOv3,
QUERY_DECAY = 0.8  # and its decay from block to block
WARMUP = 0.1  # of the updates
OF_QUERIES = (QueryHeadConfig.kind, MaskDecoderConfig.kind)  # the heads that this method teaches
SMOOTHING = "regularization.label_smoothing"  # which only the classes of pixels may have
# Settings about images of a class as a whole.
OF_WHOLE = (
    "mixing.mixup",
    "mixing.cutmix",
    "evaluation.few_shot",
    "sampling",
    "objective.head_bias",
    "objective.class_weights",
    "objective.logit_adjustment",
    "objective.posthoc_adjustment",
    "head.representation",
)


def check_regions(recipe: Recipe, task: DenseTask, *, settings: Collection[str]) -> None:
    """Refuse what regions cannot be learned by, rather than pass it over in silence.

    Args:
        recipe: What was requested.
        task: What is learned.
        settings: The keys that the request sets, all of a named recipe's; what nobody named gives way by itself.

    Raises:
        RecipeError: A method or a setting is about images as a whole, or a head is of another task.
    """
    method, kind = recipe.method, head_kind(recipe, task)
    if not method.learns_regions:
        more = "" if method.uses_labels else "; with unlabelled: before the data it learns from the photos alone"
        raise RecipeError(
            f"The method '{method.name}' learns from images as a whole; these {task.labelled}. Leave it out{more}."
        )
    if kind not in task.heads:
        raise RecipeError(
            f"A head of the kind '{kind}' does not learn images that {task.labelled}; head.kind may be "
            f"{' or '.join(task.heads)}."
        )
    queries = kind in OF_QUERIES
    if (method.name == QUERIES and not queries) or (
        queries and method.name == "supervised" and "method.name" in settings
    ):
        raise RecipeError(
            f"The method '{QUERIES}' and a head of the kind {' or '.join(OF_QUERIES)} need each other; set both."
        )
    if recipe.head.stride is not None and kind != PointsHeadConfig.kind:
        raise RecipeError(
            f"head.stride is for detectors by middles, not for a head of the kind '{kind}'; leave it out."
        )
    own, usual = recipe.leaves, Recipe().leaves
    whole = OF_WHOLE if task.name == "semantic" else (*OF_WHOLE, SMOOTHING)
    if keys := [key for key in whole if key in settings and own[key] != usual[key]]:
        verb, them = ("is", "it") if len(keys) == 1 else ("are", "them")
        raise RecipeError(
            f"{', '.join(keys)} {verb} about images of a class as a whole; these {task.labelled}. Leave {them} out."
        )


def head_kind(recipe: Recipe, task: DenseTask) -> str:
    """Return the kind of the head by which a recipe learns regions: the one that it names, its method's, or the task's."""
    return recipe.head.kind or (QueryHeadConfig.kind if recipe.method.name == QUERIES else task.heads[0])


def fit_regions(
    recipe: Recipe, facts: Facts, task: DenseTask, *, model: str | None, overridden: Collection[str]
) -> tuple[Recipe, list[str]]:
    """Return the recipe by which regions are learned, what becomes of a start's head, and why photos have their size.

    Args:
        recipe: What was chosen for images as a whole.
        facts: Data, weights and machine.
        task: What is learned.
        model: The network's name where it begins from random weights; None for a start.
        overridden: The keys that the request sets, which stay.
    """
    size, why = _size(facts, model)
    trained: HeadConfig | None = facts.known_weights.config.region_head if model is None else None
    goes_on = trained is not None and _goes_on(trained.kind, recipe, task, overridden)
    kind = trained.kind if trained is not None and goes_on else head_kind(recipe, task)
    if "image_size" in overridden and recipe.image_size is not None:
        size, why = recipe.image_size, "as requested"
    by_pixels = issubclass(HEADS[kind][1], DetailHead)
    most = FEW_AT_ONCE if by_pixels else BATCH
    batch = recipe.batch_size if "batch_size" in overridden else max(1, min(most, facts.data.images // 2))
    steps = _steps(facts, model, size, batch)
    augmentation = facts.data.augmentation
    if augmentation.crop == "scale-jitter" and kind not in OF_QUERIES:
        augmentation = replace(augmentation, crop="squash-jitter", scales=PIXELS_SCALES if by_pixels else SCALES)
    changes: dict[str, object] = {
        "image_size": size if model is not None else fitting_size(facts.known_weights.config, size),
        "batch_size": batch,
        "fit_to_data": False,
        **({} if {"steps", "epochs"} & set(overridden) else {"steps": steps, "epochs": None}),
        "optimizer.name": "adamw",
        "optimizer.lr": RATE,
        "optimizer.momentum": 0.9,
        "optimizer.ns_steps": 5,
        "optimizer.betas": (0.9, 0.999),
        "optimizer.weight_decay": 0.05,
        "optimizer.clip_norm": 1.0,
        "optimizer.layer_decay": START_DECAY if model is None else 1.0,
        "schedule.decay": "cosine",
        "schedule.warmup_steps": round(WARMUP * steps),
        "regularization.label_smoothing": 0.0,
        "objective.name": "task",
        "objective.class_weights": "none",
        "objective.posthoc_adjustment": 0.0,
        "mixing.mixup": 0.0,
        "mixing.cutmix": 0.0,
        "augmentation": augmentation,
        "preprocessing.resize": "squash",
        "preprocessing.crop_fraction": 1.0,
    }
    if by_pixels:
        share = BACKBONE_LR if model is None else RATE / PIXELS_RATE
        changes |= {"optimizer.lr": PIXELS_RATE, "optimizer.backbone_lr": share}
        if model is None and facts.known_weights.convolutional:
            changes["optimizer.layer_decay"] = 1.0
    if kind in OF_QUERIES:
        changes |= {"method.name": QUERIES, "optimizer.lr": QUERY_RATE, "optimizer.layer_decay": QUERY_DECAY}
    frozen = _stays(facts, model, size, kind, overridden)
    if frozen:
        changes["adaptation.method"] = "probe"
    if goes_on:
        changes["head.kind"] = kind
    elif kind == PointsHeadConfig.kind and facts.data.small_regions is not None:
        changes["head.stride"] = stride_for(size * facts.data.small_regions)
    kept = {key: value for key, value in changes.items() if key not in overridden}
    reasons = [*_of_head(trained, kind), f"Photos are seen at {size} pixels: {why}."]
    return recipe.with_changes(kept), [*reasons, *([f"The backbone stays as it is: {frozen}."] if frozen else [])]


def _stays(facts: Facts, model: str | None, size: int, kind: str, overridden: Collection[str]) -> str:
    """Return why a start's backbone is not adapted; empty where it is."""
    if model is not None or any(key.startswith("adaptation.") for key in overridden):
        return ""
    if kind == MaskDecoderConfig.kind:
        return "its decoder was made for that"
    slow = issubclass(HEADS[kind][1], DetailHead) and not facts.known_weights.convolutional
    return "there is time for few passes over the photos" if slow and _passes(facts, model, size) < ADAPTING else ""


def _goes_on(kind: str, recipe: Recipe, task: DenseTask, overridden: Collection[str]) -> bool:
    """Tell whether a start's head of a kind learns a task on: no other is named, and no method that needs another."""
    fits = "method.name" not in overridden or (kind in OF_QUERIES) == (recipe.method.name == QUERIES)
    return kind in task.heads and fits and recipe.head.kind in (None, kind)


def _of_head(trained: HeadConfig | None, kind: str) -> list[str]:
    """Return in a line what becomes of a start's head, where it has one."""
    if trained is None:
        return []
    if trained.kind == kind:
        return [f"The start's head, {trained.title}, learns on; the layer that tells its classes begins anew."]
    return [f"The start's head, {trained.title}, gives way to {HEADS[kind][0].title}."]


def _macs(facts: Facts, model: str | None, size: int) -> float:
    """Return the multiply-accumulates of a photo of a size, head included."""
    if model is None:
        weights = facts.known_weights
        own = min(weights.config.image_size)
        return weights.macs * (size / own) ** 2 + DECODER_MACS * size**2
    return COSTS[model].macs * (size / min(VARIANTS[model].image_size)) ** 2 + DECODER_MACS * size**2


def _passes(facts: Facts, model: str | None, size: int) -> float:
    """Return for how many passes over the photos there is time at a size, before the network itself was measured."""
    seconds = PATIENCE_SECONDS if facts.budget_seconds is None else TRAINING_SHARE * facts.budget_seconds
    return seconds * THIN * facts.machine.known_speed / _macs(facts, model, size) / max(facts.data.an_epoch, 1)


def _size(facts: Facts, model: str | None) -> tuple[int, str]:
    """Return the size, and the reason: the largest for which there is time, but none at which small regions vanish."""
    side, most = facts.data.known_side, SIZES[-1] if facts.machine.has_gpu else LARGEST_ON_CPU
    fitting = [size for size in SIZES if size <= min(ENLARGED * side, most)] or [SIZES[0]]
    needed = min(max(SEEN / max(facts.data.an_epoch, 1), FEWEST_PASSES), MOST_PASSES)
    in_time = [size for size in fitting if _passes(facts, model, size) >= needed]
    least = max(LEAST, LEAST_REGION / (facts.data.small_regions or 1.0))
    enough = next((size for size in fitting if size >= least), fitting[-1])
    if not in_time or in_time[-1] < enough:
        return enough, "at a smaller size the smallest objects would vanish"
    if in_time[-1] < fitting[-1]:
        return in_time[-1], "larger would take too long here"
    return in_time[-1], "about their own size" if in_time[
        -1
    ] >= side / ENLARGED else "the largest that is worth its time"


def _steps(facts: Facts, model: str | None, size: int, batch: int) -> int:
    passes = _passes(facts, model, size)
    if facts.budget_seconds is not None:
        passes *= ROOM
    elif facts.measured is not None:
        passes = PATIENCE_SECONDS * facts.measured.images_per_second / max(facts.data.an_epoch, 1)
    passes = min(passes, ENOUGH_PASSES)
    return max(LEAST_STEPS, round(passes * facts.data.an_epoch / batch))
