"""The network, the size, the length, the views and the mixing of a run that begins from random weights, with their reasons.

All of it follows from the images' size, their number, the time and how fast the machine trains, as a pure function. What was
measured: networks on CIFAR-10 (docs/decisions.md), and at which size photos teach most for the same arithmetic
(docs/sizes.csv, made by benchmarks/sizes.py; a test holds the choice against it).
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from vitral.advice import argument, function
from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.models.costs import COSTS
from vitral.training.choose.layout import fit_length
from vitral.training.clock import SCRATCH_COMMAND_SECONDS, SCRATCH_PATIENCE_SECONDS, SCRATCH_ROOM, SCRATCH_SHARE
from vitral.training.facts import SIZES, Facts
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import mixes

FINE = "conv-vit-8"
COARSE = "conv-vit-16"
NARROW = {FINE: "conv-vit-ti8", COARSE: "conv-vit-ti16"}  # with a seventh of the arithmetic
WIDE_PASSES = 2.5  # over many images, for which the wide network needs time to be better,
FEW_WIDE_PASSES = 5.0  # and over few images
FINE_BELOW = 48  # pixels: smaller images are seen as they are by a network of finer tokens
LEAST = 24  # pixels: smaller images are enlarged
UNIT = 4  # pixels: sizes of small images are multiples
ENLARGED = 1.1  # times their own size, at which images are seen at most
# Images that a network must see, again or anew, before a larger size teaches it more than more of them; in passes
SEEN = 20_000
FEWEST_PASSES = 4.0  # at least, and
MOST_PASSES = 60.0  # at most: ours, where more or fewer images were not measured
ENOUGH_PASSES = 60.0  # of which more would only be learned by heart,
PASSES_FACTOR = 4.0  # or so many times the passes that a size must leave time for
LEAST_STEPS = 300
BATCH = 128
LARGE_BATCH = 256
LARGE_SET = 10_000
WARMUP_FRACTION = 0.2
MIN_AREA = 0.35
MILD_AREA = 0.9  # where it was tried and seen that size or place tells classes apart
SURE = 3.0  # standard errors, by which networks must be better without something for it to be left out; letters had 6
CROPS = "crops"  # what is in doubt of how images vary,
MIRRORING = "mirroring"  # by name
SHIFT = 1 / 16  # of the side: two pixels of 32
MIXED_PASSES = 40.0  # from which on images are mixed in pairs: of fewer, some sets gain and some lose
MIXING = {"mixing.mixup": 0.2, "mixing.cutmix": 1.0}


def detail(facts: Facts) -> float:
    """Return the shorter side, pixels, of which the images have the detail."""
    return facts.data.known_side if facts.data.detail is None else facts.data.detail


def training_seconds(facts: Facts) -> float:
    """Return the seconds for training."""
    if facts.budget_seconds is None:
        return SCRATCH_PATIENCE_SECONDS
    return max(SCRATCH_SHARE * facts.budget_seconds - SCRATCH_COMMAND_SECONDS, 1.0)


def passes_needed(facts: Facts) -> float:
    """Return the passes over the data for which a size must leave time."""
    return min(max(SEEN / facts.data.an_epoch, FEWEST_PASSES), MOST_PASSES)


def passes_at(facts: Facts, model: str, size: int) -> float:
    """Return for how many passes over the data there is time with a network at a size."""
    return training_seconds(facts) * facts.machine.known_speed / macs(model, size) / facts.data.an_epoch


def macs(model: str, size: int) -> float:
    """Return the multiply-accumulates of an image of a size."""
    return COSTS[model].macs * (size / variant(model).image_size[0]) ** 2


@dataclass(frozen=True)
class ChosenNetwork:
    """A network by its name, the size of the images in pixels, and the reason for each, one line."""

    model: str
    size: int
    why_model: str
    why_size: str


def choose_network(facts: Facts, size: int | None = None) -> ChosenNetwork:
    """Return the network, and the size of the images in pixels; that is `size`, where one is given."""
    fitting = _sizes(detail(facts)) if size is None else [size]
    model, why_model = _model(facts, fitting[0])
    chosen, why_size = _size(facts, model, fitting)
    return ChosenNetwork(model, chosen, why_model, why_size)


def _sizes(side: float) -> list[int]:
    """Return the sizes, pixels, at which images of a shorter side may be seen: small ones as they are."""
    if suited(side) == FINE:
        return [max(LEAST, int(side) // UNIT * UNIT)]
    return [size for size in SIZES if size <= ENLARGED * side]


def _model(facts: Facts, least: int) -> tuple[str, str]:
    """Return the network, a narrow one where a wide one would see even the least images too seldom, and the reason."""
    data, wide = facts.data, suited(detail(facts))
    model, hurry = wide, ""
    if passes_at(facts, wide, least) < (WIDE_PASSES if data.an_epoch >= LARGE_SET else FEW_WIDE_PASSES):
        model, hurry = NARROW[wide], " and so short a training"
    enlarged = "" if data.detail is None else f", with the detail of {data.detail:.0f}"
    return model, (
        f"Model: {model}, the best that was measured for photos of this size ({data.known_side:.0f} pixels{enlarged})"
        f"{hurry}. Trained weights do better on few photos: published ones, such as "
        f"{argument('source', 'vit-s14@dinov2')}, or those of {function('pretrain')}."
    )


def _size(facts: Facts, model: str, fitting: list[int]) -> tuple[int, str]:
    """Return the largest size at which there is time to learn the images, up to all that they show, and the reason."""
    data, needed = facts.data, passes_needed(facts)
    in_time = [size for size in fitting if passes_at(facts, model, size) >= needed]
    size = in_time[-1] if in_time else fitting[0]
    seen = f"Photos are seen at {size} pixels"
    if data.known_side < LEAST:
        return size, f"{seen}: they are only {data.known_side:.0f} themselves."
    if size == SIZES[-1] and len(fitting) > 1:
        return size, f"{seen}: larger ones do not help a training from scratch."
    if size == fitting[-1]:
        return size, f"{seen}: {'about their own size' if data.detail is None else 'larger they show no more'}."
    if in_time:
        return size, f"Photos are shrunk to {size} pixels (larger would take too long here)."
    passes = f"{passes_at(facts, model, size):.2g} passes over {data.an_epoch:,} images"
    return size, f"Photos are shrunk to {size} pixels, the least, and even so there is time for only {passes}."


def fit_recipe(
    recipe: Recipe, facts: Facts, network: ChosenNetwork, *, overridden: Collection[str]
) -> tuple[Recipe, list[str]]:
    """Return the recipe for a network that was chosen, and the reasons for mixing and for views that are not the usual ones.

    What the user set, by the keys in `overridden`, stays, but for how images vary: that is to be laid over what suits data
    and network.
    """
    images = facts.data.an_epoch
    batch = recipe.batch_size if "batch_size" in overridden else batch_of(images)
    changes: dict[str, object] = {
        "image_size": network.size,
        "batch_size": batch,
    }
    changes["augmentation"], why_views = tried_views(views(facts.data.augmentation, network.model), facts)
    if not {"steps", "epochs"} & set(overridden):
        in_time = _steps_in_time(facts, network, batch)
        enough = max(max(PASSES_FACTOR * passes_needed(facts), ENOUGH_PASSES) * images / batch, LEAST_STEPS)
        changes |= {"steps": max(1, round(min(enough, in_time))), "epochs": None}
    recipe = recipe.with_changes(changes)
    fitted = fit_length(recipe, images)[0]
    steps = fitted.steps or 0
    if "schedule.warmup_steps" not in overridden:
        recipe = recipe.with_changes({"schedule.warmup_steps": round(WARMUP_FRACTION * steps)})
    passes = steps * fitted.batch_size / images
    if facts.budget_seconds is not None:
        passes = min(passes, passes_at(facts, network.model, network.size))
    recipe, why_mixed = _mixed(recipe, facts, passes, overridden)
    return recipe, [*why_views, *why_mixed]


def _steps_in_time(facts: Facts, network: ChosenNetwork, batch: int) -> float:
    """Return for how many updates there is time; without a budget by what the network was measured to take, once it was."""
    # A schedule that nearly fits the time from its first step is bent to it before it has got far.
    room = 1 / SCRATCH_SHARE if facts.budget_seconds is None else SCRATCH_ROOM
    updates = room * passes_at(facts, network.model, network.size) * facts.data.an_epoch / batch
    measured = facts.measured
    if facts.budget_seconds is not None or measured is None:
        return updates
    return min(updates, room * training_seconds(facts) / (batch / measured.images_per_second + measured.update_seconds))


def _mixed(recipe: Recipe, facts: Facts, passes: float, overridden: Collection[str]) -> tuple[Recipe, list[str]]:
    """Return the recipe with images mixed in pairs, and the reason, where each is seen often enough for it."""
    if any(key.startswith("mixing") for key in overridden):
        return recipe, []
    # Mixing was measured on images of one class each.
    if facts.task.mixable and recipe.method.name == "supervised" and passes >= MIXED_PASSES:
        recipe = recipe.with_changes(MIXING)
    if not mixes(recipe.mixing):
        return recipe, []
    how = f"CutMix {recipe.mixing.cutmix:g} or MixUp {recipe.mixing.mixup:g}"
    return recipe, [f"Photos are mixed in pairs ({how}), because each is seen {MIXED_PASSES:.0f} times and more."]


def batch_of(images: int) -> int:
    """Return the images of a step, where there are so many to train on."""
    return max(8, min(LARGE_BATCH if images >= LARGE_SET else BATCH, images // 4))


def suited(side: float) -> str:
    """Return the wide network for images of a shorter side, in pixels."""
    return FINE if side < FINE_BELOW else COARSE


def views(augmentation: Augmentation, model: str) -> Augmentation:
    """Return how images vary in a short run from scratch: photos less than otherwise, other kinds as the data say."""
    if augmentation.crop != "inception":
        return augmentation
    changed = replace(augmentation, flip="alternating" if augmentation.flip else False, decode="kept")
    if model in (FINE, NARROW[FINE]):
        return replace(changed, crop="padded", padding=SHIFT)
    return replace(changed, min_area=MIN_AREA)


def doubts(augmentation: Augmentation, overridden: Collection[str]) -> dict[str, dict[str, object]]:
    """Return what is in doubt of how images vary, with what takes its place.

    What the user set, by the keys in `overridden`, is not.
    """
    found: dict[str, dict[str, object]] = {}
    if augmentation.crop == "inception" and not {"augmentation.crop", "augmentation.min_area"} & set(overridden):
        found[CROPS] = {"min_area": MILD_AREA}
    if augmentation.flip and "augmentation.flip" not in overridden:
        found[MIRRORING] = {"flip": False}
    return found


def tried_views(augmentation: Augmentation, facts: Facts) -> tuple[Augmentation, list[str]]:
    """Return how images vary by what was tried, and the reason for everything that is left out; noise decides nothing."""
    said = {
        CROPS: f"Crops keep at least {MILD_AREA:.0%} of an image: size or place tells classes apart here",
        MIRRORING: "Photos are not mirrored: left and right differ here",
    }
    reasons = []
    for name, changes in doubts(augmentation, ()).items():
        tried = facts.views.get(name)
        if tried is None or tried.left_out - tried.kept < SURE * math.sqrt(max(tried.different, 1)):
            continue
        augmentation = replace(augmentation, **changes)  # type: ignore[arg-type]
        without, usual = tried.left_out / tried.answers, tried.kept / tried.answers
        reasons.append(
            f"{said[name]} (a small network gets {without:.0%} of new photos right so, {usual:.0%} otherwise)."
        )
    return augmentation, reasons
