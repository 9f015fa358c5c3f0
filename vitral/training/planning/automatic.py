"""The recipe that fine-tuning picks by itself, from the images, the classes, the network and the hardware, and why.

The length, the resolution and MixUp begin from BiT-HyperRule (arXiv 1912.11370, section 3.3 and bit_hyperrule.py), which asks
only how many images there are and how large; the rest is ours, and each choice is told in one line.
"""

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from vitral.advice import argument
from vitral.errors import ModelError
from vitral.images.augment import Augmentation
from vitral.training.planning.facts import DataFacts, MachineFacts, WeightsFacts
from vitral.training.planning.memory import STATE_BYTES
from vitral.training.settings.recipe import Recipe

SMALL_SET, LARGE_SET = 20_000, 500_000  # images, HyperRule's bounds
STEPS = (500, 10_000, 20_000)  # HyperRule's, for a small, medium and large set
RULE_BATCH = 512
RULE_SMALL, SMALL_SIZE, LARGE_SIZE = (
    96,
    128,
    384,
)  # pixels, HyperRule's: an image below the first is trained on at the second
MIXUP = 0.1
FEW_A_CLASS = 5  # images, below which all weights would learn the images by heart
LARGE_NETWORK, FEW_FOR_LARGE = 200_000_000, 50  # parameters; images per class
CPU_BATCH, CPU_PASSES, GPU_PASSES, LEAST_STEPS = 64, 30, 100, 300
CPU_MACS_A_SECOND = 2.5e11  # multiply-accumulates in training: a guess, which the estimate before the run replaces
PATIENCE_SECONDS = 3600.0  # that training may take unasked: no CPU trains longer, and no device tries several ways
CUT = 4.0  # times a budget: what is expected to take longer would be cut too short to adapt all weights
MEMORY_SHARE = 0.6  # of a GPU's that weights and optimizer may take
FULL_LR, PROBE_LR, LORA_LR = 3e-4, 3e-3, 1e-3
LAYER_DECAY = 0.75


@dataclass(frozen=True)
class Situation:
    """What the choice depends on.

    Attributes:
        images: to train on.
        classes: how many there are.
        side: the images' shorter side, pixels, the middle of a sample.
        parameters: of the network.
        macs: multiply-accumulates of the network at its own size.
        low_rank: whether the network has linear layers, which LoRA changes.
        own_size: the network's own size, pixels.
        one_size: whether the network takes images of that size alone.
        gpu_bytes: memory of the GPU; None without one.
        budget_seconds: what the run may take; None for as long as it needs.
    """

    images: int
    classes: int
    side: float
    parameters: int
    macs: int
    low_rank: bool
    own_size: int
    one_size: bool
    gpu_bytes: int | None
    budget_seconds: float | None


def situation_of(
    data: DataFacts, weights: WeightsFacts, machine: MachineFacts, budget_seconds: float | None
) -> Situation:
    """Return the situation that facts describe."""
    assert data.side is not None, "the images' size was not looked at"
    return Situation(
        images=data.images,
        classes=data.classes,
        side=data.side,
        parameters=weights.parameters,
        macs=weights.macs,
        low_rank=weights.low_rank,
        own_size=min(weights.config.image_size),
        one_size=has_one_size(weights.config),
        gpu_bytes=machine.gpu_bytes,
        budget_seconds=budget_seconds,
    )


def choose_recipe(
    situation: Situation,
    augmentation: Augmentation,
    begin: Recipe,
    *,
    said: Recipe | None = None,
    told: Collection[str] = (),
    several: bool = False,
) -> tuple[Recipe, list[str]]:
    """Return a recipe for pre-trained weights, and why it is what it is, a line a choice.

    Args:
        situation: what the choice depends on.
        augmentation: what suits the data.
        begin: the recipe whose settings hold where nothing is chosen.
        said: the same with what the user sets: what is chosen goes with the method and the batches that are named there.
        told: keys that the user sets, whose own choice no line speaks of.
        several: whether several ways to learn are tried, so that none is chosen here: the recipe is that of all weights.
    """
    said = said or begin
    method, why = ("full", "") if several else _method_said(said, told) or _method(situation)
    batch, steps = _length(situation, said.batch_size if "batch_size" in told else None)
    choice = _Choice(method, why, batch, steps, several)
    reasons = [line for keys, line in _reasons(situation, choice) if not keys & set(told)]
    large = situation.images >= SMALL_SET
    changes: dict[str, object] = {
        "name": "automatic",
        "image_size": _size(situation)[0],
        "epochs": None,
        "steps": steps,
        "batch_size": batch,
        "optimizer.lr": {"full": FULL_LR, "probe": PROBE_LR, "lora": LORA_LR}[method],
        "optimizer.layer_decay": LAYER_DECAY if method == "full" else 1.0,
        "adaptation.method": method,
        "augmentation": replace(augmentation, min_area=_min_area(situation)),
        "mixing.mixup": MIXUP if large and method == "full" else 0.0,
        "schedule.warmup_steps": steps // 10,
    }
    if method == "probe":
        changes["regularization.stochastic_depth"] = 0.0
    return begin.with_changes(changes), reasons


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


@dataclass(frozen=True)
class _Choice:
    """What of a recipe is chosen first: the method and why, images a step, steps, and whether several ways are tried."""

    method: str
    why: str
    batch: int
    steps: int
    several: bool


def _reasons(situation: Situation, choice: _Choice) -> Iterator[tuple[set[str], str]]:
    """Give each choice in a line, with the recipe's keys that the line is about."""
    method, batch, steps, several = choice.method, choice.batch, choice.steps, choice.several
    size, why_size = _size(situation)
    passes = steps * batch / situation.images
    machine = "a GPU" if situation.gpu_bytes else "a CPU"
    few = situation.images < SMALL_SET
    why_area = "few images must be seen in many ways" if few else "many images vary by themselves"
    yield (
        set(),
        f"Chosen for {situation.images:,} images of {situation.classes} classes, {situation.parameters / 1e6:.0f} M "
        f"weights and {machine}:",
    )
    if not several:
        yield {"adaptation.method"}, f"  {METHODS[method]}: {choice.why}."
    yield {"image_size"}, f"  images at {size} pixels: {why_size}."
    yield (
        {"steps", "epochs"},
        f"  {steps} steps of {batch} images, {passes:.0f} passes: {_why_length(situation)}.",
    )
    if method == "full" and not several:
        yield (
            {"adaptation.method", "optimizer.lr", "optimizer.layer_decay"},
            f"  learning rate {FULL_LR:g} at the head, times {LAYER_DECAY} a block below it: early features are kept longest.",
        )
    yield (
        {"augmentation.crop", "augmentation.min_area"},
        f"  crops of at least {_min_area(situation):.0%} of an image: {why_area}.",
    )
    if not few and (several or method == "full"):
        yield {"mixing.mixup"}, f"  MixUp {MIXUP}: BiT-HyperRule's for {SMALL_SET:,} images and more."


METHODS = {
    "full": "all weights learn",
    "probe": "the head alone learns (linear probe)",
    "lora": "the head and low-rank changes learn (LoRA)",
}


def only_method(situation: Situation) -> tuple[str, str] | None:
    """Return the one method that data and memory leave, and why; None where several may be better."""
    a_class = situation.images / situation.classes
    if a_class < FEW_A_CLASS:
        return "probe", f"{a_class:.1f} images a class would be learned by heart"
    gpu, few = situation.gpu_bytes, "lora" if situation.low_rank else "probe"
    if gpu is not None and situation.parameters * STATE_BYTES > MEMORY_SHARE * gpu:
        return few, f"all weights with their optimizer would not fit the GPU's {gpu / 2**30:.0f} GiB"
    if situation.parameters > LARGE_NETWORK and a_class < FEW_FOR_LARGE:
        return few, f"{a_class:.0f} images a class are few for so many weights"
    return None


def _method_said(said: Recipe, told: Collection[str]) -> tuple[str, str] | None:
    """Return the method that what the user sets means, and why; None where nothing does."""
    if "adaptation.method" in told:
        return said.adaptation.method, "as you said"
    if "adaptation.frozen_blocks" in told:
        return "full", f"but for the first {said.adaptation.frozen_blocks} blocks, as you said"
    lora = any(key.startswith("adaptation.lora") for key in told)
    return ("lora", "as you said") if lora else None


def _method(situation: Situation) -> tuple[str, str]:
    only = only_method(situation)
    if only is not None and only[0] == "probe":
        return only
    seconds, budget = _expected_seconds(situation), situation.budget_seconds
    # A budget cuts training itself; only where little would be left of it another method is better.
    if seconds > (PATIENCE_SECONDS if budget is None else CUT * budget):
        return (
            "probe",
            f"all of them would take a CPU about {seconds / 60:.0f} minutes; "
            f"{argument('recipe', 'finetune')} does it anyway",
        )
    a_class = situation.images / situation.classes
    return only or ("full", f"{a_class:.0f} images a class are enough to adapt every layer")


def _expected_seconds(situation: Situation) -> float:
    """Return what training all weights would take a CPU, as far as it can be told without a measurement; 0 for a GPU."""
    if situation.gpu_bytes is not None:
        return 0.0
    batch, steps = _length(situation)
    return 3.0 * situation.macs * (_size(situation)[0] / situation.own_size) ** 2 * batch * steps / CPU_MACS_A_SECOND


def _size(situation: Situation) -> tuple[int, str]:
    if situation.one_size:
        return situation.own_size, "the network's own size, the only one that its positions are of"
    return image_size(situation.own_size, situation.side, on_gpu=situation.gpu_bytes is not None)


def image_size(own: int, side: float, *, on_gpu: bool) -> tuple[int, str]:
    """Return the size of the images that a pre-trained network is used on, pixels, and why.

    Args:
        own: the network's own size, pixels.
        side: the images' shorter side, pixels.
        on_gpu: whether it learns on a GPU.
    """
    if side < RULE_SMALL:
        return min(own, SMALL_SIZE), f"they are only {side:.0f} themselves"
    if not on_gpu:
        return own, "the network's own size; more would take a CPU several times longer"
    if own >= LARGE_SIZE:
        return own, "the network's own size"
    return LARGE_SIZE, "finer patches than in pre-training, as in the paper"


def _length(situation: Situation, batch: int | None = None) -> tuple[int, int]:
    return length(situation.images, on_gpu=situation.gpu_bytes is not None, batch=batch)


def length(images: int, *, on_gpu: bool, batch: int | None = None) -> tuple[int, int]:
    """Return the images of a step, and how many steps there are, of training on so many images.

    Args:
        images: to train on.
        on_gpu: whether it learns on a GPU.
        batch: images of a step, if they are given.
    """
    rule = STEPS[0] if images < SMALL_SET else STEPS[1] if images < LARGE_SET else STEPS[2]
    batch = batch or min(RULE_BATCH if on_gpu else CPU_BATCH, max(8, images // 4))
    seen = min(rule * RULE_BATCH, (GPU_PASSES if on_gpu else CPU_PASSES) * images)
    return batch, max(LEAST_STEPS, seen // batch)


def _why_length(situation: Situation) -> str:
    batch, steps = _length(situation)
    if steps == LEAST_STEPS:
        return "fewer would not train a head"
    passes = GPU_PASSES if situation.gpu_bytes is not None else CPU_PASSES
    if steps * batch >= passes * situation.images - batch:
        return "more would only be learned by heart"
    return "BiT-HyperRule's number of images"


def _min_area(situation: Situation) -> float:
    return 0.25 if situation.images < SMALL_SET else 0.05
