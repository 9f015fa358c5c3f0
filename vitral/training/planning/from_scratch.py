"""The network, the size, the length, the views and the mixing of a run that begins from random weights, and why.

All of it follows from the images' size, their number, the time and how fast the machine trains, as a pure function. What was
measured: networks on CIFAR-10 (docs/decisions.md), and at which size photos teach most for the same arithmetic
(docs/sizes.csv, made by benchmarks/sizes.py; a test holds the choice against it).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from vitral.advice import argument, function
from vitral.images.augment import Augmentation
from vitral.models.catalog import variant
from vitral.models.costs import COSTS
from vitral.training.methods.mixing import mixes
from vitral.training.planning.durations import rounded
from vitral.training.planning.facts import DataFacts, MachineFacts
from vitral.training.planning.length import fit_length
from vitral.training.settings.recipe import Recipe

FINE, COARSE = "conv-vit-8", "conv-vit-16"
NARROW = {FINE: "conv-vit-ti8", COARSE: "conv-vit-ti16"}  # with a seventh of the arithmetic
WIDE_PASSES, FEW_WIDE_PASSES = (
    2.5,
    5.0,
)  # over many and over few images, that the wide one must have time for to be better
FINE_BELOW = 48  # pixels: smaller images are seen as they are by a network of finer tokens
LEAST, UNIT = 24, 4  # pixels: smaller images are enlarged; sizes are multiples
SIZES = (32, 48, 64, 80, 96, 112, 128, 160)  # of the coarse network
ENLARGED = 1.1  # times their own size, that images are seen at most
SEEN = 20_000  # images that a network must see, again or anew, before a larger size pays more than more of them; in passes:
FEWEST_PASSES, MOST_PASSES = 4.0, 60.0  # ours, where more or fewer images were not measured
ENOUGH_PASSES, LONGER = 60.0, 4.0  # and times those of a size, of which more would only be learned by heart
PATIENCE_SECONDS = 1200.0  # that a run without a budget may take, where that decides the size
COMMAND_SECONDS, TRAINING_SHARE = 8.0, 0.8  # of a budget: what the command takes before and after, and training's share
ROOM = 2.5  # times the steps that a budget seems to have room for: a run is cut to its time, but not made longer, and a machine
# that had something else to do for the moment in which it was measured is up to twice as fast afterwards
LEAST_STEPS = 300
BATCH, LARGE_BATCH, LARGE_SET = 128, 256, 10_000
WARMUP_SHARE = 0.2
MIN_AREA = 0.35
SHIFT = 1 / 16  # of the side: two pixels of 32
MIXED_PASSES = 40.0  # from which on images are mixed in pairs: of fewer, some sets gain and some lose
MIXING = {"mixing.mixup": 0.2, "mixing.cutmix": 1.0}


@dataclass(frozen=True)
class Situation:
    """What the choice depends on.

    Attributes:
        images: to train on.
        side: the images' shorter side, pixels, the middle of a sample.
        macs_per_second: multiply-accumulates of forward passes that the machine trains through in a second.
        budget_seconds: what the command may take; None for as long as it needs.
        detail: the shorter side, pixels, at which the images show as much, where they were enlarged; None where they were not.
        one_class: whether every image has one class, as all had that mixing was measured on.
    """

    images: int
    side: float
    macs_per_second: float
    budget_seconds: float | None
    detail: float | None = None
    one_class: bool = True

    @property
    def shown(self) -> float:
        """The shorter side, pixels, of which the images have the detail."""
        return self.side if self.detail is None else self.detail

    @property
    def training_seconds(self) -> float:
        """Seconds for training."""
        if self.budget_seconds is None:
            return PATIENCE_SECONDS
        return max(TRAINING_SHARE * self.budget_seconds - COMMAND_SECONDS, 1.0)

    @property
    def passes(self) -> float:
        """Passes over the data that a size must leave time for."""
        return min(max(SEEN / self.images, FEWEST_PASSES), MOST_PASSES)

    @property
    def wide_passes(self) -> float:
        """Passes over the data that a wide network must have time for."""
        return WIDE_PASSES if self.images >= LARGE_SET else FEW_WIDE_PASSES

    def passes_at(self, model: str, size: int) -> float:
        """Return how many passes over the data there is time for."""
        return self.training_seconds * self.macs_per_second / macs(model, size) / self.images


def situation_of(data: DataFacts, machine: MachineFacts, budget_seconds: float | None) -> Situation:
    """Return the situation that facts describe."""
    assert data.side is not None, "the images' size was not looked at"
    assert machine.macs_per_second is not None, "the machine's speed was not measured"
    one_class = data.task.mixable
    return Situation(data.an_epoch, data.side, machine.macs_per_second, budget_seconds, data.detail, one_class)


def macs(model: str, size: int) -> float:
    """Return the multiply-accumulates of an image of a size."""
    return COSTS[model][1] * (size / variant(model).image_size[0]) ** 2


@dataclass(frozen=True)
class Choice:
    """A network for images of a size.

    Attributes:
        model: its name.
        size: of the images, pixels.
        why_model: one line.
        why_size: likewise.
    """

    model: str
    size: int
    why_model: str
    why_size: str


def choose_network(situation: Situation, size: int | None = None) -> Choice:
    """Return the network, and the size of the images: the largest at which there is time to learn them, up to all they show.

    The network is a narrow one where a wide one would see even the least images too seldom.

    Args:
        situation: what the choice depends on.
        size: the only one that the images may have, pixels; None where it is to be chosen.
    """
    wide = _suited(situation.shown)
    fitting = _sizes(situation.shown) if size is None else [size]
    is_wide = situation.passes_at(wide, fitting[0]) >= situation.wide_passes
    model = wide if is_wide else NARROW[wide]
    in_time = [one for one in fitting if situation.passes_at(model, one) >= situation.passes]
    chosen = in_time[-1] if in_time else fitting[0]
    why_size = f"Images at {chosen} pixels: {_why_size(situation, model, chosen, fitting)}."
    return Choice(model, chosen, _why_network(situation, model), why_size)


def _sizes(side: float) -> list[int]:
    """Return the sizes, pixels, at which images of a shorter side may be seen: small ones as they are."""
    if _suited(side) == FINE:
        return [max(LEAST, int(side) // UNIT * UNIT)]
    return [size for size in SIZES if size <= ENLARGED * side]


def _why_size(situation: Situation, model: str, size: int, fitting: list[int]) -> str:
    if situation.side < LEAST:
        return f"they are only {situation.side:.0f} themselves"
    own = "about their own size" if situation.detail is None else "larger they show no more"
    if len(fitting) == 1:
        return own
    time = _time(situation)
    seen = situation.passes_at(model, size)
    if seen < situation.passes:
        return f"the least, and even so {time} room for only {seen:.2g} passes over {situation.images:,} images"
    if size == fitting[-1]:
        return "the largest that pays from scratch" if size == SIZES[-1] else own
    return f"of larger ones {time} no room for the {situation.passes:.0f} passes that so many images need"


def _time(situation: Situation) -> str:
    """Return the time that decides, and that it has, for what it has room for or not."""
    return f"{rounded(PATIENCE_SECONDS)} have" if situation.budget_seconds is None else f"{argument('time')} has"


def _why_network(situation: Situation, model: str) -> str:
    kind = "small" if _suited(situation.shown) == FINE else "of this size"
    enlarged = "" if situation.detail is None else f", with the detail of {situation.detail:.0f}"
    hurry = f", and so few passes over them as {_time(situation)} room for," if model in NARROW.values() else ""
    return (
        f"No weights were given ({argument('source')}), so a {model} learns from scratch, for images {kind} "
        f"({situation.side:.0f} pixels{enlarged}){hurry} the best that was measured; pre-trained weights do better on few "
        f"images: published ones by name, such as {argument('source', 'vit-s14@dinov2')}, or a run of {function('pretrain')}."
    )


def fit_recipe(
    recipe: Recipe, situation: Situation, choice: Choice, augmentation: Augmentation, *, told: Collection[str]
) -> Recipe:
    """Return the recipe for a network that the choice knows, but for what the user said of it.

    How images vary is left as it suits the data and the network: what was said of it is to be laid over it.

    Args:
        recipe: with what was said.
        situation: what the choice depends on.
        choice: network and size, also where the user said the size.
        augmentation: what suits the data.
        told: the keys that the user set.
    """
    batch = recipe.batch_size if "batch_size" in told else batch_of(situation.images)
    changes: dict[str, object] = {
        "image_size": choice.size,
        "batch_size": batch,
        "augmentation": views(augmentation, choice.model),
    }
    if not {"steps", "epochs"} & set(told):
        # A schedule that nearly fits the time from its first step is bent to it before it has got far.
        room = 1 / TRAINING_SHARE if situation.budget_seconds is None else ROOM
        in_time = room * situation.passes_at(choice.model, choice.size) * situation.images / batch
        enough = max(max(LONGER * situation.passes, ENOUGH_PASSES) * situation.images / batch, LEAST_STEPS)
        changes |= {"steps": max(1, round(min(enough, in_time))), "epochs": None}
    recipe = recipe.with_changes(changes)
    fitted = fit_length(recipe, situation.images)[0]
    steps = fitted.steps or 0
    if "schedule.warmup_steps" not in told:
        recipe = recipe.with_changes({"schedule.warmup_steps": round(WARMUP_SHARE * steps)})
    passes = steps * fitted.batch_size / situation.images
    if situation.budget_seconds is not None:
        passes = min(passes, situation.passes_at(choice.model, choice.size))
    open_to_it = situation.one_class and recipe.method.name == "supervised" and not _mixing_said(told)
    mixed = open_to_it and passes >= MIXED_PASSES
    return recipe.with_changes(MIXING) if mixed else recipe


def why_mixed(recipe: Recipe, told: Collection[str]) -> list[str]:
    """Return the line that says that images are mixed, where they are and the user did not say so."""
    if _mixing_said(told) or not mixes(recipe.mixing):
        return []
    how = f"CutMix {recipe.mixing.cutmix:g} or MixUp {recipe.mixing.mixup:g}"
    return [f"Images are mixed in pairs, by {how}: each is to be seen {MIXED_PASSES:.0f} times and more."]


def _mixing_said(told: Collection[str]) -> bool:
    return any(key.startswith("mixing") for key in told)


def batch_of(images: int) -> int:
    """Return the images of a step, where there are so many to train on."""
    return max(8, min(LARGE_BATCH if images >= LARGE_SET else BATCH, images // 4))


def views_of(augmentation: Augmentation, side: float) -> Augmentation:
    """Return how images of a shorter side, in pixels, vary in a short run, whatever its network."""
    return views(augmentation, _suited(side))


def _suited(side: float) -> str:
    return FINE if side < FINE_BELOW else COARSE


def views(augmentation: Augmentation, model: str) -> Augmentation:
    """Return how images vary in a short run from scratch: photos less than otherwise, other kinds as the data say."""
    if augmentation.crop != "inception":
        return augmentation
    changed = replace(augmentation, flip="alternating" if augmentation.flip else False, decode="kept")
    if model in (FINE, NARROW[FINE]):
        return replace(changed, crop="padded", padding=SHIFT)
    return replace(changed, min_area=MIN_AREA)
