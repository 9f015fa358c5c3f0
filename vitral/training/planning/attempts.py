"""Which ways to learn a run from trained weights tries, and how much of its time each gets: a function of facts.

What an update costs and which way pays first is measured: benchmarks/attempts.py makes the table, docs/decisions.md has it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.training.planning.automatic import (
    FULL_LR,
    LAYER_DECAY,
    LORA_LR,
    PATIENCE_SECONDS,
    Situation,
    fitting_size,
    only_method,
)
from vitral.training.planning.cost import Cost
from vitral.training.planning.facts import WeightsFacts
from vitral.training.planning.from_scratch import SEEN, WARMUP_SHARE, batch_of, views_of
from vitral.training.settings.recipe import Recipe, load_recipe

LAST, LORA, ALL, ANEW, FINER = "last blocks", "LoRA", "all weights", "as from scratch", "larger images"
FINER_SIDE = 1.5  # times the side of the images, for which the network's patches are finer: 336 pixels in place of 224
# Seconds of an update beside one of all weights; the cheapest first.
COST = {LAST: 0.55, LORA: 0.85, ALL: 1.0, ANEW: 1.2, FINER: FINER_SIDE**2}
# The way that is tried where there is time for one, the second where for two.
FIRST_TO_PAY = (ANEW, LORA, LAST, ALL, FINER)
LEARNING_SHARE = 1 / 3  # of the blocks, where the last ones learn
# Weights, below which a start is worth little where there is time to learn them anew: ours have fewer, the published ones of
# the catalog more (T2T-ViT-7 four million).
SMALL_NETWORK = 3_500_000
LEARNED_ANEW = 10_000  # images, from which that is far ahead of the other ways
SCRATCH = load_recipe("scratch")  # what the default from random weights begins with
TRAINING_SHARE = (
    0.6  # of a time budget, which is left for training: the rest is for reading, the probe, scores and report
)
LEAST_PASSES = 3  # over the images, that each of several attempts should have time for; of many images one
LEAST_UPDATES = (
    8  # that an attempt should have time for, even if it is the only one, by a measurement of few images, which is slow
)
KEYS = ("adaptation.", "optimizer.", "steps", "epochs")  # of a recipe: who says one of them means one way to learn


@dataclass(frozen=True)
class Attempt:
    """One way to learn, which a run tries.

    Attributes:
        name: what it is called: "LoRA".
        changes: to the run's recipe, by key.
        share: of the time for training, 0 to 1; those of a run's attempts add up to 1.
        reason: what learns.
    """

    name: str
    changes: Mapping[str, object]
    share: float
    reason: str

    @property
    def folder(self) -> str:
        """The name of its folder below the run's attempts."""
        return folder_of(self.name)

    @property
    def an_image(self) -> float:
        """How many times longer an image takes than in the run's own size."""
        return COST[FINER] if self.name == FINER else 1.0

    @property
    def from_probe(self) -> bool:
        """Whether its head begins as the linear probe: at the rates of training from scratch that holds the network back."""
        return self.name != ANEW

    def line(self) -> str:
        """Return it as one line for people."""
        return f"  {self.name}, {self.share:.0%} of the time: {self.reason}."


def first_to_pay(attempts: Sequence[Attempt]) -> Attempt:
    """Return the attempt that is made where one alone is."""
    return min(attempts, key=lambda attempt: FIRST_TO_PAY.index(attempt.name))


def folder_of(name: str) -> str:
    """Return the folder's name of the attempt of a name."""
    return name.lower().replace(" ", "-")


def says_one(told: Mapping[str, str]) -> bool:
    """Tell whether what a user said of the recipe means one way to learn, and not several."""
    return any(key.startswith(KEYS) for key in told)


def plan_attempts(
    situation: Situation,
    weights: WeightsFacts,
    recipe: Recipe,
    images_per_second: float,
    *,
    finer: int | None = None,
    told: Collection[str] = (),
) -> tuple[Attempt, ...]:
    """Return what is tried, the cheapest first: as many ways as there is time for; none where there is time for none.

    Without a time budget each has the recipe's whole length: all ways where together they take no longer than patience lasts,
    whatever the device, else those at the run's own size, else all weights alone, for what pays first counts only where the
    time ends soon. Where these take a CPU longer, it is the one of the others that does not, if there is one. A small network
    learns as from scratch, and other ways have only what its whole length leaves of the time.

    Args:
        situation: what the choice depends on.
        weights: what the run starts from.
        recipe: of all weights, its length in steps.
        images_per_second: that learn with all weights, as measured.
        finer: side of larger images that may be tried, pixels; None for none.
        told: keys of the recipe that the user set, which no way changes.
    """
    if only_method(situation) is not None:
        return ()
    tried = _tried(situation, weights, recipe, images_per_second, finer)
    whole, blocks = sum(COST[way] for way in tried), weights.blocks
    reasons = {
        LAST: f"the last {blocks - frozen_blocks(blocks)} of {blocks} blocks and the head learn",
        LORA: "the head and low-rank changes of all blocks learn",
        ALL: "everything learns, early features at lower rates",
        ANEW: "everything learns by the recipe of training without weights, its optimizer and views in place "
        "of these, for a network as small as this",
        FINER: f"everything learns, of images at {finer} pixels, as the paper fine-tunes",
    }
    changes = {way: changes_of(way, blocks, finer) for way in tried}
    if ANEW in tried:
        anew = _anew(situation, recipe, own_batches=len(tried) == 1 and "batch_size" not in told)
        changes[ANEW] = {key: value for key, value in anew.items() if key not in told}
    return tuple(Attempt(way, changes[way], COST[way] / whole, reasons[way]) for way in tried)


def _tried(
    situation: Situation, weights: WeightsFacts, recipe: Recipe, images_per_second: float, finer: int | None
) -> list[str]:
    """Return the ways that are tried, the cheapest first."""
    seconds = PATIENCE_SECONDS if situation.budget_seconds is None else TRAINING_SHARE * situation.budget_seconds
    ways = [way for way in COST if _possible(way, weights, finer)]
    steps = recipe.steps or 0
    small = weights.parameters <= SMALL_NETWORK
    if not small or _updates(seconds, recipe, [ANEW], images_per_second) < min(LEARNED_ANEW / recipe.batch_size, steps):
        ways.remove(ANEW)
    if situation.budget_seconds is None:
        return _unasked(ways, lambda tried: _updates(seconds, recipe, tried, images_per_second) >= steps, situation)
    paying = [way for way in FIRST_TO_PAY if way in ways]
    for count in range(len(paying), 0, -1):
        tried = [way for way in COST if way in paying[:count]]
        enough = steps if ANEW in ways and count > 1 else _enough(situation, recipe, count)
        if _updates(seconds, recipe, tried, images_per_second) >= enough:
            return tried
    return []


def _unasked(ways: Sequence[str], fits: Callable[[Sequence[str]], bool], situation: Situation) -> list[str]:
    """Return the ways that are tried where no time was said, by what takes no longer than patience lasts.

    Who has a GPU, and images that take it longer, came to train; a CPU would be busy for a day with nobody having asked for it.
    """
    whole = ANEW if ANEW in ways else ALL
    several = (list(ways), [way for way in ways if way != FINER])
    if situation.gpu_bytes is not None:
        return next((tried for tried in several if fits(tried)), [whole])
    alone = ([way] for way in (whole, LORA, LAST) if way in ways)
    return next((tried for tried in (*several, *alone) if fits(tried)), [])


def finer_size(situation: Situation, config: Any, recipe: Recipe, cost: Cost, usable: int | None) -> int | None:  # noqa: ANN401
    """Return the side of larger images that are worth a try, pixels; None where they show no more, or there is no room.

    Args:
        situation: what the choice depends on.
        config: of the network, of the family's own kind.
        recipe: of the run, with the size of its images.
        cost: of the run at that size.
        usable: bytes of memory that the run may take; None for any number.
    """
    own = recipe.image_size or situation.own_size
    finer = fitting_size(config, round(FINER_SIDE * own))
    room = usable is None or cost.bytes * COST[FINER] ** 2 <= usable  # attention grows with the square of the tokens
    return finer if room and own < finer <= situation.side else None


def _possible(way: str, weights: WeightsFacts, finer: int | None) -> bool:
    last = weights.blocks - frozen_blocks(weights.blocks) < weights.blocks
    return {LORA: weights.low_rank, LAST: last, FINER: finer is not None}.get(way, True)


def _anew(situation: Situation, recipe: Recipe, *, own_batches: bool) -> dict[str, object]:
    """Return what learning as from scratch changes in the recipe of all weights: rates, how images vary, and if so the batches.

    Where it is one of several ways these share the batches.
    """
    changes, steps = changes_of(ANEW, 0), recipe.steps or 0
    if own_batches:
        batch = batch_of(situation.images)
        steps = max(1, round(steps * recipe.batch_size / batch))
        changes |= {"batch_size": batch, "steps": steps}
    if recipe.augmentation is not None:
        views, before = asdict(views_of(recipe.augmentation, situation.side)), asdict(recipe.augmentation)
        changes |= {f"augmentation.{key}": value for key, value in views.items() if value != before[key]}
    return changes | {"schedule.warmup_steps": round(WARMUP_SHARE * steps)}


def frozen_blocks(blocks: int) -> int:
    """Return how many of a network's blocks stay as they are where the last ones learn."""
    return blocks - max(1, round(LEARNING_SHARE * blocks))


def _updates(seconds: float, recipe: Recipe, ways: Sequence[str], images_per_second: float) -> float:
    """Return how many updates each of several ways has time for, if all make as many."""
    return seconds * images_per_second / (recipe.batch_size * sum(COST[way] for way in ways))


def _enough(situation: Situation, recipe: Recipe, count: int) -> float:
    """Return how many updates each of so many ways must have time for, within a budget."""
    seen = min(LEAST_PASSES * situation.images, max(situation.images, SEEN))
    return min(recipe.steps or 0, LEAST_UPDATES if count == 1 else max(LEAST_UPDATES, seen / recipe.batch_size))


def changes_of(way: str, blocks: int, finer: int | None = None) -> dict[str, object]:
    """Return what a way to learn changes in the recipe of all weights, for a network of so many blocks."""
    if way == LORA:
        return {"adaptation.method": "lora", "optimizer.lr": LORA_LR, "optimizer.layer_decay": 1.0}
    if way == ANEW:
        scratch = SCRATCH.model_dump(mode="json", exclude_unset=True)
        said = {
            f"{section}.{key}": value
            for section in ("optimizer", "schedule", "regularization")
            for key, value in scratch[section].items()
        }
        return {
            "adaptation.method": "full",
            "optimizer.layer_decay": 1.0,
            "regularization.stochastic_depth": 0.0,
            "mixing.mixup": 0.0,
            "mixing.cutmix": 0.0,
            **said,
        }
    decaying = {"adaptation.method": "full", "optimizer.lr": FULL_LR, "optimizer.layer_decay": LAYER_DECAY}
    own: dict[str, dict[str, object]] = {
        LAST: {"adaptation.frozen_blocks": frozen_blocks(blocks)},
        FINER: {"image_size": finer},
    }
    return decaying | own.get(way, {})
