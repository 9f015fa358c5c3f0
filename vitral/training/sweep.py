"""The learning rates that a sweep tries, the images it chooses by, and which rate was best (paper Table 4, appendix B.1.1)."""

from dataclasses import replace

from vitral.data.source import DataSet
from vitral.data.splits import stratified
from vitral.data.subset import Joined, Subset
from vitral.training.settings.recipe import Recipe

# Training images below which so large a share is held out to choose by: the paper's 10 % of Pets and Flowers, 2 % of CIFAR.
HELD_OUT = ((10_000, 0.10), (200_000, 0.02))
HELD_OUT_OF_MORE = 0.01  # of ImageNet
SPLIT_SEED = 0  # every rate is judged by the same images

FACTORS = (1 / 3, 1.0, 3.0, 10.0)  # of the recipe's own rate, where it names none to sweep: the paper's distances


def sweep_rates(recipe: Recipe) -> tuple[float, ...]:
    """Return the rates to try with a recipe, ascending."""
    named = recipe.optimizer.sweep
    return named or tuple(float(f"{recipe.optimizer.lr * factor:.2g}") for factor in FACTORS)


def to_choose_by(data: DataSet) -> tuple[DataSet, str]:
    """Return the data that rates are tried on, its validation split the images that decide; and that in one line.

    What the result is to be scored on is not in it: the test split; or, without one, the validation split, in whose place
    training images are held out.
    """
    if "test" in data.splits and "validation" in data.splits:
        splits = {name: data.splits[name] for name in ("train", "validation")}
        return replace(data, splits=splits), f"the {len(splits['validation'])} validation images"
    train = data.splits["train"]
    share = held_out_share(len(train))
    rest, held = stratified(train.labels(), [share], seed=SPLIT_SEED, purpose="sweep")
    splits = {"train": Subset(train, rest), "validation": Subset(train, held)}
    return replace(data, splits=splits), f"{len(held)} training images ({share:.0%}) held out"


def held_out_share(images: int) -> float:
    """Return the share of so many training images that is held out."""
    return next((share for below, share in HELD_OUT if images < below), HELD_OUT_OF_MORE)


def to_train_on(data: DataSet) -> DataSet:
    """Return the data for the rate that was chosen: all but what the result is scored on is there to learn from."""
    if "test" not in data.splits or "validation" not in data.splits:
        return data
    train = Joined([data.splits["train"], data.splits["validation"]])
    return replace(data, splits={"train": train, "test": data.splits["test"]})


def best_rate(figures: dict[float, float]) -> float:
    """Return the rate with the best validation figure, the smallest among equals."""
    return max(sorted(figures), key=lambda rate: figures[rate])
