"""What a run from trained weights tries, and how much of its time each attempt gets: a function of facts.

What an update costs and which attempt pays first is measured: benchmarks/attempts.py makes the table, docs/decisions.md has it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from vitral.images.augment import Augmentation
from vitral.tasks.metrics import wilson_reach
from vitral.training.choose.network import SEEN, WARMUP_FRACTION, batch_of, suited, views
from vitral.training.choose.recipe import LORA_LR, fitting_size, only_method, own_size, rates
from vitral.training.clock import FRESH_CHECKED, LEAST_PASSES, LEAST_UPDATES, PATIENCE_SECONDS
from vitral.training.facts import Facts, WeightsFacts
from vitral.training.plan import ALL, ANEW, FINER, LAST, LORA, SEVERAL, Attempt, Cost
from vitral.training.settings.recipe import Recipe, load_recipe

FINER_SIDE = 1.5  # times the side of the images, for which the network's patches are finer: 336 pixels in place of 224
# Seconds of an update beside one of all weights.
COST = {LAST: 0.55, LORA: 0.85, ALL: 1.0, ANEW: 1.2, FINER: FINER_SIDE**2}
# What is tried where there is time for a single attempt; the second, too, where there is time for two.
FIRST_TO_PAY = (ANEW, LORA, LAST, ALL, FINER)
# Of convolutions, in passes over the images at the least size. EfficientNet-Lite0, a minute of two cores: letters of 90 kinds
# have 90 % after 9 passes of all weights and 77 % after 9 of the last blocks, the probe 62 and 67 %; flowers of 12 kinds 96 and
# 97.5 %; litter of 6 kinds 82 % after 2, the probe 85 %; clothes of 10 kinds 88 % after 4, and 90 % after 3 of the last blocks
# in half of the time, the probe 85 %.
ALL_PASSES = 9.0
# Right answers of a linear model on pixels for each of a head's on the start's features, fewer than which say that photos are
# to be seen as a start sees them. EfficientNet-Lite0, one minute: coins 0.9, pollen, hands and letters 0.8, where a network
# from scratch has 72, 98, 98 and 95 % of test photos, and the start 83, 93, 93 and 87; clothes and butterflies 0.4, groceries,
# ants and bees 0.3, where it has 59, 88, 53 and 77, and the start 87, 100, 73 and 94.
SIMPLE_PHOTOS = 0.6
# Fewer would be too few for each of both: coins, three minutes, 19 passes: shared, 98 and 76 of 102 validation photos.
BOTH_PASSES = 30.0
# For which an attempt with convolutions has time. The last blocks of EfficientNet-Lite0, on validation photos beside the head
# that they begin with: after 13 to 50 updates no better on six sets of six, after 91 of pollen better, after 120 of hands 99
# and 87 %, after 150 of clothes 87 and 81 %, after 248 of groceries 76 and 65 %.
CONVOLUTIONS_UPDATES = 80
LAST_LR = 1e-4  # and ten times that below the head; docs/decisions.md has the table
# Shares of the side of the images at which a network learns: the largest at which there is time for so many passes over them.
SIDES = (1.0, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7)
SIDE_PASSES = 4.0
# Of the last blocks of convolutions, whose images look the same each time: what the other blocks make of one is computed once,
# and takes this share of an image with all weights; learning takes the second share each time.
FROZEN_COST = 0.22
LAST_COST = 0.26
# Passes over the images: fewer lose to the head that they begin with, more were not tried; the larger the images the better,
# and much smaller ones lose, too. docs/decisions.md has the tables.
FEWEST_PASSES = 1.5
MOST_PASSES = 6.0
LAST_SIDE = 5 / 7
LEAST_SIDE = 96  # pixels, and
LEAST_OF_SMALL = 64  # of smaller images
# What the end leaves of the mistakes that a network from scratch makes on its way: this at first, later twice the share of its
# time that is gone, less one. Letters of 90 kinds, two minutes: 34 % right after a quarter of the time, 37 % after 0.36, 73 %
# after 0.45, 86 % after 0.75, 87 % at the end. Road signs of 16 kinds, three minutes: 95.9 % after 0.28, 100 % at the end.
# Tiles of 6 kinds: 86.2 % after 0.52, 93.6 % at the end. Hands, 31 updates: 12 % after 0.35, 87 % at the end; pollen, 57: 52 %
# after 0.45, 95 % at the end.
LEFT_AT_END = 0.1
LEARNING_FRACTION = 1 / 3  # of the blocks, where the last ones learn
# Weights, below which a start is worth little where there is time to learn them anew: ours have fewer, the published ones of
# the catalog more (T2T-ViT-7 four million).
SMALL_NETWORK = 3_500_000
LEARNED_ANEW = 10_000  # images, from which that is far ahead of the other attempts
SCRATCH = load_recipe("scratch")  # what the default from random weights begins with
KEYS = ("adaptation.", "optimizer.", "steps", "epochs")  # of a recipe: who sets one of them wants a single attempt


@dataclass(frozen=True)
class Option:
    """What one of several attempts would be: see `Attempt`; `changes` are in the run's recipe, by key."""

    name: str
    changes: Mapping[str, object]
    share: float
    reason: str
    relative_cost: float = 1.0

    @property
    def from_probe(self) -> bool:
        """Whether its head begins as the linear probe: at the rates of training from scratch that holds the network back."""
        return self.name != ANEW

    def attempt(self, recipe: Recipe) -> Attempt:
        """Return the attempt, with the recipe that it makes of the run's."""
        own = recipe.with_changes(self.changes)
        cost = self.relative_cost
        return Attempt(self.name, own, self.reason, self.share, self.from_probe, relative_cost=cost)


def is_behind(accuracy: float, gone: float, best: float, images: int) -> bool:
    """Tell whether a network from scratch is expected to end behind the start that it is tried beside, and surely so.

    That training the start's weights further improves on the best so far is not counted on.

    Args:
        accuracy: Its figure on the validation images by now, 0 to 1.
        gone: The share of its time that is gone.
        best: The best figure so far, of the first classifier or of the start's attempts.
        images: The validation images that this figure is of.
    """
    if gone < FRESH_CHECKED:
        return False
    left = min(max(2 * gone - 1, LEFT_AT_END), 1.0)
    return left * (1 - accuracy) > 1 - best + wilson_reach(best, images)


def is_ahead(accuracy: float, gone: float, best: float, images: int) -> bool:
    """Tell whether a network from scratch is surely better already than the best so far; arguments as of `is_behind`."""
    return gone >= FRESH_CHECKED and accuracy > best + wilson_reach(best, images)


def wants_one(overridden: Collection[str]) -> bool:
    """Tell whether what a user sets of the recipe leaves a single attempt."""
    return any(key.startswith(KEYS) for key in overridden)


def choose_attempts(
    facts: Facts,
    recipe: Recipe,
    images_per_second: float,
    *,
    finer: int | None = None,
    overridden: Collection[str] = (),
) -> tuple[Option, ...]:
    """Return what is tried, the cheapest first: as many attempts as there is time for; none where there is time for none.

    Without a time budget each has the recipe's whole length: all of them where together they take no longer than patience
    lasts, whatever the device, else those at the run's own size, else all weights alone, because what pays first counts only
    where the time ends soon. Where these take a CPU longer, it is the one of the others that does not, if there is one. A small
    network learns as from scratch, and others have only what its whole length leaves of the time.

    Args:
        facts: Data, weights, machine and budget.
        recipe: The recipe of all weights, its length in steps.
        images_per_second: Images that learn with all weights, as measured.
        finer: Side of larger images that may be tried, pixels; None for none.
        overridden: Keys of the recipe that the user set, which no attempt changes.
    """
    if only_method(facts) is not None:
        return ()
    names = _names(facts, recipe, images_per_second, finer)
    options: list[Option] = []
    convolutional = facts.known_weights.convolutional
    for name, share in _shares(facts, recipe, images_per_second, names).items():
        changes, reason = changes_of(name, facts.known_weights, finer)
        cost = COST[FINER] if name == FINER else 1.0
        if name == ANEW:
            changes |= _anew(facts, recipe, own_batches=len(names) == 1 and "batch_size" not in overridden)
        if name == LAST and convolutional and not facts.machine.has_gpu:
            changes |= _still(facts, recipe)
        changes = {key: value for key, value in changes.items() if key not in overridden}
        sized = name == ALL or (name == LAST and convolutional)
        if sized and "image_size" not in overridden and facts.training_seconds is not None:
            size, cost = learning_size(facts, recipe, name, share * facts.training_seconds * images_per_second)
            if cost < 1:
                changes |= {"image_size": size}
                reason += f", on photos at {size} pixels, for which there is time"
        options.append(Option(name, changes, share, reason, cost))
    return tuple(options)


def learning_size(facts: Facts, recipe: Recipe, name: str, seen: float) -> tuple[int, float]:
    """Return the side of the images of which an attempt learns, pixels, and what one costs beside one of the recipe's size.

    `name` is the attempt's, `seen` how many images of the recipe's size all weights would see in its time.
    """
    costs = _learning_sizes(facts, recipe, name)
    needed = _needed(facts, recipe, name, SIDE_PASSES if name == ALL else FEWEST_PASSES)
    in_time = (size for size, cost in costs.items() if seen >= needed * cost)
    size = next(in_time, min(costs))
    return size, costs[size]


def _needed(facts: Facts, recipe: Recipe, name: str, passes: float) -> float:
    """Return for how many images of all weights there must be time, for so many passes over the images of an attempt."""
    images, convolutional = facts.data.images, facts.known_weights.convolutional
    seen = max(passes * images, CONVOLUTIONS_UPDATES * recipe.batch_size) if convolutional else passes * images
    return FROZEN_COST * images + LAST_COST * seen if name == LAST else seen


def _shares(facts: Facts, recipe: Recipe, images_per_second: float, names: Sequence[str]) -> dict[str, float]:
    """Return the share of the time of each attempt: by its cost, but for the last blocks of convolutions what they need."""
    costs = {name: COST[name] for name in names}
    others = sum(costs.values()) - costs.get(LAST, 0.0)
    if facts.known_weights.convolutional and facts.training_seconds is not None and LAST in costs and others:
        needed = _needed(facts, recipe, LAST, MOST_PASSES) / (facts.training_seconds * images_per_second)
        costs[LAST] = others * needed / (1 - needed) if needed < 0.5 else others
    return {name: cost / sum(costs.values()) for name, cost in costs.items()}


def _still(facts: Facts, recipe: Recipe) -> dict[str, object]:
    """Return what lets the last blocks of convolutions see an image the same each time, as in use, and for how long."""
    margin, images = facts.known_weights.margin, facts.data.images
    steps = max(CONVOLUTIONS_UPDATES, round(MOST_PASSES * images / recipe.batch_size))
    steps = min(recipe.steps or steps, steps)
    still = asdict(Augmentation(crop="none", flip=False, decode="kept"))
    if margin is not None:
        still |= {"crop": "centre", "margin": margin}
    own = {} if recipe.augmentation is None else asdict(recipe.augmentation)
    changes = {f"augmentation.{key}": value for key, value in still.items() if value != own.get(key)}
    changes |= {"adaptation.keep_frozen": True, "mixing.mixup": 0.0}
    return changes | {"steps": steps, "schedule.warmup_steps": steps // 10}


def _learning_sizes(facts: Facts, recipe: Recipe, name: str) -> dict[int, float]:
    """Return the sides of images of which an attempt may learn, pixels, the largest first, and what one costs at each."""
    own, config = recipe.image_size or own_size(facts), facts.known_weights.config
    least = min(own, LEAST_SIDE if facts.data.known_side >= LEAST_SIDE else LEAST_OF_SMALL)
    sizes = (fitting_size(config, round(share * own)) for share in SIDES if name == ALL or share >= LAST_SIDE)
    return {size: (size / own) ** 2 for size in sizes if size >= least}


def first_to_pay(attempts: Sequence[Attempt]) -> Attempt:
    """Return the attempt that is made where one alone is."""
    return min(attempts, key=lambda attempt: FIRST_TO_PAY.index(attempt.name))


def _names(facts: Facts, recipe: Recipe, images_per_second: float, finer: int | None) -> list[str]:
    """Return the attempts by name, the cheapest first."""
    seconds = PATIENCE_SECONDS if facts.training_seconds is None else facts.training_seconds
    possible = [name for name in COST if _is_possible(name, facts, finer)]
    steps = recipe.steps or 0
    small = facts.known_weights.parameters <= SMALL_NETWORK
    if not small or _updates(seconds, recipe, [ANEW], images_per_second) < min(LEARNED_ANEW / recipe.batch_size, steps):
        possible.remove(ANEW)
    if facts.training_seconds is None:
        return _without_budget(
            possible, lambda names: _updates(seconds, recipe, names, images_per_second) >= steps, facts
        )
    if facts.known_weights.convolutional:
        return _of_convolutions(facts, recipe, seconds * images_per_second)
    paying = [name for name in FIRST_TO_PAY if name in possible]
    for count in range(len(paying), 0, -1):
        names = [name for name in SEVERAL if name in paying[:count]]
        enough = steps if ANEW in possible and count > 1 else _enough(facts, recipe, count)
        if _updates(seconds, recipe, names, images_per_second) >= enough:
            return names
    return []


def _of_convolutions(facts: Facts, recipe: Recipe, seen: float) -> list[str]:
    """Return the attempts with convolutions, by the updates and the passes over the images that there is time for.

    `seen` is how many images of the recipe's size all weights would see.
    """
    least = {name: min(_learning_sizes(facts, recipe, name).values()) for name in (LAST, ALL)}
    whole, closed = least[ALL] * _needed(facts, recipe, ALL, ALL_PASSES), facts.closed_forms
    both = _needed(facts, recipe, LAST, MOST_PASSES) + whole
    if simple := closed is not None and closed.pixels >= SIMPLE_PHOTOS:
        both = least[ALL] * _needed(facts, recipe, ALL, BOTH_PASSES)
    if seen >= both:
        return [LAST, ALL]
    last = seen >= least[LAST] * _needed(facts, recipe, LAST, FEWEST_PASSES)
    possible = [name for name, fits in ((ALL, seen >= whole), (LAST, last)) if fits]
    return possible[:1] if simple else possible[-1:]


def _without_budget(possible: Sequence[str], fits: Callable[[Sequence[str]], bool], facts: Facts) -> list[str]:
    """Return what is tried where no time was given, by what takes no longer than patience lasts.

    Who has a GPU, and images that take it longer, came to train; a CPU would be busy for a day although nobody wanted it.
    """
    whole = ANEW if ANEW in possible else ALL
    several = (list(possible), [name for name in possible if name != FINER])
    if facts.machine.has_gpu:
        return next((names for names in several if fits(names)), [whole])
    alone = ([name] for name in (whole, LORA, LAST) if name in possible)
    return next((names for names in (*several, *alone) if fits(names)), [])


def finer_size(facts: Facts, recipe: Recipe, cost: Cost) -> int | None:
    """Return the side of larger images that are worth a try, pixels; None where they show no more, or there is no room.

    `cost` is what the run costs at the recipe's own size.
    """
    own, usable = recipe.image_size or own_size(facts), facts.machine.usable_bytes
    finer = fitting_size(facts.known_weights.config, round(FINER_SIDE * own))
    room = usable is None or cost.bytes * COST[FINER] ** 2 <= usable  # attention grows with the square of the tokens
    return finer if room and own < finer <= facts.data.known_side else None


def _is_possible(name: str, facts: Facts, finer: int | None) -> bool:
    weights = facts.known_weights
    possible = {LORA: weights.low_rank, LAST: frozen_blocks(weights.blocks) > 0, FINER: finer is not None}
    return possible.get(name, True)


def _anew(facts: Facts, recipe: Recipe, *, own_batches: bool) -> dict[str, object]:
    """Return what learning as from scratch changes in the recipe of all weights: rates, how images vary, and if so the batches.

    Where it is one of several attempts these share the batches.
    """
    changes: dict[str, object] = {}
    steps = recipe.steps or 0
    if own_batches:
        batch = batch_of(facts.data.images)
        steps = max(1, round(steps * recipe.batch_size / batch))
        changes |= {"batch_size": batch, "steps": steps}
    if recipe.augmentation is not None:
        before = asdict(recipe.augmentation)
        after = asdict(views(recipe.augmentation, suited(facts.data.known_side)))
        changes |= {f"augmentation.{key}": value for key, value in after.items() if value != before[key]}
    return changes | {"schedule.warmup_steps": round(WARMUP_FRACTION * steps)}


def frozen_blocks(blocks: int) -> int:
    """Return how many of a network's blocks stay as they are where the last ones learn."""
    return blocks - max(1, round(LEARNING_FRACTION * blocks))


def _updates(seconds: float, recipe: Recipe, names: Sequence[str], images_per_second: float) -> float:
    """Return for how many updates each of several attempts has time, if all make as many."""
    return seconds * images_per_second / (recipe.batch_size * sum(COST[name] for name in names))


def _enough(facts: Facts, recipe: Recipe, count: int) -> float:
    """Return for how many updates each of so many attempts must have time, within a budget."""
    images = facts.data.images
    seen = min(LEAST_PASSES * images, max(images, SEEN))
    return min(recipe.steps or 0, LEAST_UPDATES if count == 1 else max(LEAST_UPDATES, seen / recipe.batch_size))


def changes_of(name: str, weights: WeightsFacts, finer: int | None = None) -> tuple[dict[str, object], str]:
    """Return what an attempt changes in the recipe of all weights, and what learns."""
    if name == LORA:
        return (
            {"adaptation.method": "lora", "optimizer.lr": LORA_LR, "optimizer.layer_decay": 1.0},
            "the head and low-rank changes of all blocks are trained",
        )
    if name == ANEW:
        scratch = SCRATCH.model_dump(mode="json", exclude_unset=True)
        settings = {
            f"{section}.{key}": value
            for section in ("optimizer", "schedule", "regularization")
            for key, value in scratch[section].items()
        }
        return (
            {
                "adaptation.method": "full",
                "optimizer.layer_decay": 1.0,
                "regularization.stochastic_depth": 0.0,
                "mixing.mixup": 0.0,
                "mixing.cutmix": 0.0,
                **settings,
            },
            "all weights are trained by the recipe of training from scratch, which suits so small a network",
        )
    changes, blocks = {"adaptation.method": "full", **rates(weights)}, weights.blocks
    if name == LAST:
        frozen = frozen_blocks(blocks)
        reason = f"the last {blocks - frozen} of {blocks} blocks and the head are trained"
        rate = {"optimizer.lr": LAST_LR} if weights.convolutional else {}
        reason += ", by photos that look the same each time" if weights.convolutional else ""
        return changes | rate | {"adaptation.frozen_blocks": frozen}, reason
    if name == FINER:
        reason = f"all weights are trained, on photos at {finer} pixels, as in the paper"
        return changes | {"image_size": finer}, reason
    rated = "" if weights.convolutional else ", early layers at lower learning rates"
    return changes, f"all weights are trained{rated}"
