"""The recipe that fine-tuning picks by itself for trained weights: each choice with its reason.

The length, the resolution and MixUp begin from BiT-HyperRule (arXiv 1912.11370, section 3.3 and bit_hyperrule.py), which
depends only on how many images there are and how large; the rest is ours.
"""

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from vitral.advice import argument
from vitral.errors import ModelError
from vitral.training.choose.draft import Draft
from vitral.training.choose.network import MILD_AREA, tried_views
from vitral.training.clock import CPU_SPEED, CUT, PATIENCE_SECONDS
from vitral.training.facts import STATE_BYTES, Facts, WeightsFacts
from vitral.training.plan import ChosenStart
from vitral.training.settings.recipe import Recipe

SMALL_SET = 20_000  # images, HyperRule's bounds
LARGE_SET = 500_000
STEPS = (500, 10_000, 20_000)  # HyperRule's, for a small, medium and large set
RULE_BATCH = 512
RULE_SMALL = 96  # pixels, HyperRule's: an image below this is trained on at
SMALL_SIZE = 128
LARGE_SIZE = 384
MIXUP = 0.1
FEW_A_CLASS = 5  # images, below which all weights would learn the images by heart
LARGE_NETWORK = 200_000_000  # parameters, for which
FEW_FOR_LARGE = 50  # images a class are few
CPU_BATCH = 64
CPU_PASSES = 30
GPU_PASSES = 100
LEAST_STEPS = 300
MEMORY_FRACTION = 0.6  # of a GPU's that weights and optimizer may take
FULL_LR = 3e-4
PROBE_LR = 3e-3
LORA_LR = 1e-3
LAYER_DECAY = 0.75
# Of convolutions with batch norms: at the statistics of few images the linear probe's head is wrong from the first update on
# (EfficientNet-Lite0, letters of 90 kinds: 87 % with its own statistics, 46 % with those of the batch, the probe 67 %). At a
# rate of 1e-3 some sets lose all that the weights knew, and at that of the other weights the head, whose 1,280 maps are none of
# them negative, loses in ten updates what the probe knew; docs/decisions.md has the tables.
CONVOLUTIONS: dict[str, object] = {
    "optimizer.lr": 3e-5,
    "optimizer.backbone_lr": 10.0,
    "optimizer.layer_decay": 1.0,
    "adaptation.frozen_statistics": True,
    "regularization.stochastic_depth": 0.0,
}
CONVOLUTIONS_BATCH = 32  # of which that was measured

METHODS = {
    "full": "all weights are trained",
    "probe": "the last layer alone is trained",
    "lora": "the head and low-rank changes are trained (LoRA)",
}


def choose_recipe(
    draft: Draft, facts: Facts, option: Collection[str] = (), *, several: bool = False
) -> tuple[Recipe, list[str]]:
    """Return a recipe for pre-trained weights, and why it is what it is, a line a choice.

    The method and the batches that the request sets decide the rest.

    Args:
        draft: The request, and the recipe whose settings hold where nothing is chosen.
        facts: Data, weights and machine.
        option: Keys that are replaced afterwards; as of those that the request sets no line explains the choice.
        several: Whether several attempts follow, so that no method is chosen here: the recipe is that of all weights.
    """
    wanted, overridden, images = draft.in_full, {*draft.request.overridden, *option}, facts.data.images
    size, why_size = _size(facts, draft.chosen)
    set_batch = wanted.batch_size if "batch_size" in overridden else None
    if facts.known_weights.convolutional and not facts.machine.has_gpu:
        set_batch = set_batch or min(CONVOLUTIONS_BATCH, max(8, images // 4))
    batch, steps, why_length = length(images, on_gpu=facts.machine.has_gpu, batch=set_batch)
    method, why_method = ("full", "") if several else _method_set(wanted, overridden) or _method(facts)
    full, few = method == "full", images < SMALL_SET
    area, why_area = (0.25, "few images must be varied much") if few else (0.05, "many images vary by themselves")
    augmentation, why_views = tried_views(replace(facts.data.augmentation, min_area=area), facts)
    if augmentation.crop == "inception" and augmentation.min_area == MILD_AREA:
        # As large as in use, where the middle is cut out: coins, told by their size, 78.7 % in place of 67.7.
        augmentation = replace(augmentation, crop="square")
    changes: dict[str, object] = {
        "name": "automatic",
        "image_size": fitting_size(facts.known_weights.config, size),
        "epochs": None,
        "steps": steps,
        "batch_size": batch,
        "optimizer.lr": {"full": FULL_LR, "probe": PROBE_LR, "lora": LORA_LR}[method],
        "optimizer.layer_decay": 1.0,
        "adaptation.method": method,
        **(rates(facts.known_weights, overridden) if full else {}),
        "augmentation": augmentation,
        # Views of training are averaged where they are shrunk; so are photos in use, which may be far larger.
        **({} if facts.task.dense else {"preprocessing.antialias": True}),
        "mixing.mixup": MIXUP if full and not few else 0.0,
        "schedule.warmup_steps": steps // 10,
    }
    if method == "probe":
        changes["regularization.stochastic_depth"] = 0.0

    def reasons() -> Iterator[tuple[set[str], str]]:
        yield set(), _heading(facts)
        if not several:
            yield {"adaptation.method"}, f"  {METHODS[method]}: {why_method}."
        yield {"image_size"}, f"  photos at {size} pixels: {why_size}."
        passes = steps * batch / images
        yield {"steps", "epochs"}, f"  {steps} steps of {batch} images, {passes:.0f} passes: {why_length}."
        if full and not several and not facts.known_weights.convolutional:
            yield (
                {"adaptation.method", "optimizer.lr", "optimizer.layer_decay"},
                f"  learning rate {FULL_LR:g} at the head, times {LAYER_DECAY} a block below it: "
                "early layers change least.",
            )
        if augmentation.min_area == area:
            yield (
                {"augmentation.crop", "augmentation.min_area"},
                f"  crops of at least {area:.0%} of an image: {why_area}.",
            )
        for line in why_views:
            yield set(), f"  {line}"
        if full and not few:
            yield {"mixing.mixup"}, f"  MixUp {MIXUP}: BiT-HyperRule's for {SMALL_SET:,} images and more."

    return draft.recipe.with_changes(changes), [line for keys, line in reasons() if not keys & overridden]


def _heading(facts: Facts) -> str:
    data, machine = facts.data, "a GPU" if facts.machine.has_gpu else "a CPU"
    weights = f"{facts.known_weights.parameters / 1e6:.0f} M weights"
    return f"Chosen for {data.images:,} images of {data.classes} classes, {weights} and {machine}:"


def has_one_size(config: Any) -> bool:  # noqa: ANN401  # the family's own ModelConfig
    """Return whether a network's positions are of its own size alone; a config of another can be made, `ViT.resize` refuses."""
    return getattr(config, "position", None) == "relative"


def fitting_size(config: Any, size: int) -> int:  # noqa: ANN401  # the family's own ModelConfig
    """Return the size nearest to a wanted one that the network can take."""
    if has_one_size(config):
        return min(config.image_size)
    for candidate in sorted(range(max(8, size - 16), size + 17), key=lambda candidate: abs(candidate - size)):
        try:
            dataclasses.replace(config, image_size=(candidate, candidate))
        except ModelError:
            continue
        return candidate
    return min(config.image_size)


def rates(weights: WeightsFacts, overridden: Collection[str] = ()) -> dict[str, object]:
    """Return the settings by which all of some weights learn; a rate that the user sets is that of the head, too."""
    if not weights.convolutional:
        return {"optimizer.lr": FULL_LR, "optimizer.layer_decay": LAYER_DECAY}
    return CONVOLUTIONS | ({"optimizer.backbone_lr": 1.0} if "optimizer.lr" in overridden else {})


def own_size(facts: Facts) -> int:
    """Return the size of the images that the trained network learned on, pixels."""
    config = facts.known_weights.config
    return min(config.image_size)


def only_method(facts: Facts) -> tuple[str, str] | None:
    """Return the one method that data and memory leave, and why; None where several may be better."""
    data, weights, gpu = facts.data, facts.known_weights, facts.machine.gpu_bytes
    a_class = data.images / data.classes
    if a_class < FEW_A_CLASS:
        return "probe", f"{a_class:.1f} images a class are too few: the network would memorise them"
    few = "lora" if weights.low_rank else "probe"
    if gpu is not None and weights.parameters * STATE_BYTES > MEMORY_FRACTION * gpu:
        return few, f"all weights with their optimizer would not fit the GPU's {gpu / 2**30:.0f} GiB"
    if weights.parameters > LARGE_NETWORK and a_class < FEW_FOR_LARGE:
        return few, f"{a_class:.0f} images a class are few for so many weights"
    return None


def _method_set(wanted: Recipe, overridden: Collection[str]) -> tuple[str, str] | None:
    """Return the method that the user's settings mean, and why; None where they mean none."""
    if "adaptation.method" in overridden:
        return wanted.adaptation.method, "as requested"
    if "adaptation.frozen_blocks" in overridden:
        return "full", f"but for the first {wanted.adaptation.frozen_blocks} blocks, as requested"
    lora = any(key.startswith("adaptation.lora") for key in overridden)
    return ("lora", "as requested") if lora else None


def _method(facts: Facts) -> tuple[str, str]:
    only = only_method(facts)
    if only is not None and only[0] == "probe":
        return only
    seconds, budget = _expected_seconds(facts), facts.budget_seconds
    # A budget cuts training itself; only where little would be left of it another method is better.
    if seconds > (PATIENCE_SECONDS if budget is None else CUT * budget):
        return (
            "probe",
            f"all of them would take a CPU about {seconds / 60:.0f} minutes; "
            f"{argument('recipe', 'finetune')} does it anyway",
        )
    a_class = facts.data.images / facts.data.classes
    return only or ("full", f"{a_class:.0f} images a class are enough to adapt every layer")


def _expected_seconds(facts: Facts) -> float:
    """Return what training all weights would take a CPU, as far as it can be told without a measurement; 0 for a GPU."""
    if facts.machine.has_gpu:
        return 0.0
    batch, steps, _ = length(facts.data.images, on_gpu=False)
    scale = (_size(facts)[0] / own_size(facts)) ** 2
    return 3.0 * facts.known_weights.macs * scale * batch * steps / CPU_SPEED


def _size(facts: Facts, chosen: ChosenStart | None = None) -> tuple[int, str]:
    own = own_size(facts)
    if has_one_size(facts.known_weights.config):
        return own, "the network's own size, the only one that its positions are of"
    size, why = image_size(own, facts.data.known_side, on_gpu=facts.machine.has_gpu)
    if chosen is not None and chosen.image_size is not None and chosen.image_size < size:
        return chosen.image_size, f"at {size} there is no time for the features of all"
    return size, why


def image_size(own: int, side: float, *, on_gpu: bool) -> tuple[int, str]:
    """Return at which size a pre-trained network of its own size is used on images of a shorter side, pixels, and why."""
    if side < RULE_SMALL:
        return min(own, SMALL_SIZE), f"they are only {side:.0f} themselves"
    if not on_gpu:
        return own, "the network's own size; more would take a CPU several times longer"
    if own >= LARGE_SIZE:
        return own, "the network's own size"
    return LARGE_SIZE, "finer patches than in pre-training, as in the paper"


def length(images: int, *, on_gpu: bool, batch: int | None = None) -> tuple[int, int, str]:
    """Return how long training on so many images is: images of a step, which may be given, updates, and why so many."""
    rule = STEPS[0] if images < SMALL_SET else STEPS[1] if images < LARGE_SET else STEPS[2]
    batch = batch or min(RULE_BATCH if on_gpu else CPU_BATCH, max(8, images // 4))
    most = (GPU_PASSES if on_gpu else CPU_PASSES) * images
    steps = max(LEAST_STEPS, min(rule * RULE_BATCH, most) // batch)
    if steps == LEAST_STEPS:
        return batch, steps, "fewer would not train a head"
    if steps * batch >= most - batch:
        return batch, steps, "more would only memorise them"
    return batch, steps, "BiT-HyperRule's number of images"
