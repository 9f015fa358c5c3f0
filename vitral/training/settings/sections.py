"""The sections of a recipe: every setting with its meaning, unit and limits."""

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    model_validator,
)

from vitral import plugins
from vitral.errors import VitralError
from vitral.images.preprocessing import Interpolation, Preprocessing, Resampler, Resize
from vitral.tasks.registry import task_named
from vitral.training.settings.schedules import CurveFrom, Decay, learning_rate

# Marks a setting that may be another when a run is resumed: another length extends or shortens it, and where and how it is
# computed and saved does not change what it learns.
MAY_CHANGE: dict[str, JsonValue] = {"may_change": True}
FACTORED_FROM = 32  # big_vision's; see `factored_axes`

Precision = Literal["auto", "bf16", "fp32"]
OPTIMIZERS = ("adam", "adamw", "sgd", "lamb", "adafactor", "muon")


def _known_optimizer(name: str) -> str:
    known = (*OPTIMIZERS, *plugins.registered("optimizer"))
    if name not in known:
        raise ValueError(f"there is no optimizer '{name}'; there are {', '.join(known)}")
    return name


def _known_task(name: str) -> str:
    try:
        return task_named(name).name
    except VitralError as error:
        raise ValueError(str(error).rstrip(".")) from error


TaskName = Annotated[str, AfterValidator(_known_task)]
OptimizerName = Annotated[str, AfterValidator(_known_optimizer)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(gt=0, le=1)]
# TOML has no null; where None means something else than "left out", it is written as a word.
NoLimit = Annotated[
    Annotated[float, Field(gt=0)] | None,
    BeforeValidator(lambda value: None if value == "none" else value),
    PlainSerializer(lambda value: "none" if value is None else value),
]


class Section(BaseModel):
    """A part of a recipe: immutable, with no room for unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _momentum(before: dict[str, Any]) -> float:
    return 0.95 if before.get("name") == "muon" else 0.9


def _nesterov(before: dict[str, Any]) -> bool:
    return before.get("name") == "muon"


class OptimizerSettings(Section):
    """Optimizer and clipping.

    Attributes:
        name: "adamw" (and "adam", the same: see `build_optimizer`), "sgd", "lamb", "adafactor", "muon" (the hidden
            matrices; with AdamW for the rest, see `hidden_matrices`) or one of a plugin's.
        lr: learning rate at the peak.
        sweep: rates that a sweep tries in its place, ascending; empty for four about it.
        weight_decay: decoupled, times the learning rate; of SGD added to the gradient.
        decay_on: what weight decay applies to: "kernels" (matrices and convolutions: no biases, norms, tokens or position
            tables) or "all" parameters of the network, as in the V-MoE paper, SAM and T2T-ViT's transfer.
        head_weight_decay: the head's own; None for the others'.
        betas: of Adam, LAMB, Adafactor and Muon's AdamW.
        eps: of Adam, LAMB and Muon's AdamW.
        momentum: of SGD and Muon; where a recipe says nothing 0.9 of SGD, 0.95 of Muon, as in its original.
        nesterov: whether SGD's or Muon's momentum is Nesterov's; where a recipe says nothing Muon's is, as in its original.
        ns_steps: of Muon, steps of the iteration that makes an update orthogonal: 5 in the original, 3 in airbench94_muon.
        momentum_dtype: in what SGD's momentum and Adam's first moment are kept from one update to the next; an update itself
            uses the value that is not yet rounded. "bfloat16" in vision_transformer's fine-tuning and in big_vision.
            Adafactor's is always bfloat16, LAMB's and Muon's always float32.
        factored_from: of Adafactor, the smaller of a tensor's two largest axes from which its second moment is factored: 32
            in big_vision; in V-MoE one more than there are experts, so that their axis is never factored.
        clip_norm: limit of the global gradient norm; None, in TOML "none", for no clipping.
        layer_decay: factor of the learning rate from each block to the one below it.
        backbone_lr: the peak learning rate of all but the head, as a share of `lr`; 0.01 in T2T-ViT's transfer. The curve
            leads from it to `schedule.final_lr` as the head's does.
        sam_rho: radius of sharpness-aware minimisation; None for none.
        sam_images: images whose gradient makes one climb of SAM (the paper's m), cut from each process's share of the batch;
            in the original what an accelerator had. None: the whole batch makes one.
        sam_final_rho: the radius where the learning rate is at `schedule.final_lr`, `sam_rho` being that at its peak, and
            between them in proportion to the rate (GSAM, arXiv 2203.08065); None for the same radius throughout.
        gsam_alpha: weight of the surrogate gap in GSAM: of that part of the gradient here which the one from the climb does not
            have, and which is taken away; 0 for SAM.
    """

    name: OptimizerName = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    sweep: tuple[Annotated[float, Field(gt=0)], ...] = ()
    weight_decay: float = Field(default=0.0, ge=0)
    decay_on: Literal["kernels", "all"] = "kernels"
    head_weight_decay: float | None = Field(default=None, ge=0)
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    momentum: float = Field(default_factory=_momentum, ge=0, lt=1)
    nesterov: bool = Field(default_factory=_nesterov)
    ns_steps: int = Field(default=5, ge=1)
    momentum_dtype: Literal["float32", "bfloat16"] = "float32"
    factored_from: int = Field(default=FACTORED_FROM, ge=1)
    clip_norm: NoLimit = 1.0
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    backbone_lr: float = Field(default=1.0, gt=0, le=1)
    sam_rho: float | None = Field(default=None, gt=0)
    sam_images: int | None = Field(default=None, ge=1)
    sam_final_rho: float | None = Field(default=None, gt=0)
    gsam_alpha: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _no_idle_settings(self) -> "OptimizerSettings":
        """Refuse what the named optimizer would pass over in silence."""
        if self.nesterov and self.name not in ("sgd", "muon"):
            raise ValueError("nesterov belongs to 'sgd' and 'muon'")
        if self.momentum_dtype != "float32" and self.name in ("lamb", "adafactor", "muon"):
            raise ValueError("momentum_dtype belongs to 'sgd', 'adam' and 'adamw'")
        if self.factored_from != FACTORED_FROM and self.name != "adafactor":
            raise ValueError("factored_from belongs to 'adafactor'")
        for name, said in (
            ("sam_images", self.sam_images is not None),
            ("sam_final_rho", self.sam_final_rho is not None),
            ("gsam_alpha", self.gsam_alpha > 0),
        ):
            if said and self.sam_rho is None:
                raise ValueError(f"{name} belongs to SAM; set sam_rho, too")
        return self


class ScheduleSettings(Section):
    """The learning rate over time; see `learning_rate`.

    Attributes:
        decay: "cosine", "linear", "constant", "rsqrt" or "steps".
        warmup_steps: updates of linear warm-up.
        warmup_epochs: the same in passes over the data; None to follow `warmup_steps`.
        warmup_lr: rate at which the warm-up begins.
        final_lr: rate at the end of the decay.
        cooldown_steps: updates at the end: down to 0 after "rsqrt", at `final_lr` after the others.
        cooldown_epochs: the same in passes over the data; None to follow `cooldown_steps`.
        timescale: of "rsqrt", updates.
        milestones: of "steps", shares of the run.
        curve_from: where a cosine or linear curve begins: "warmup", at its end, or "start", with the run, as in timm.
        hold_steps: updates for which a rate is held.
        hold_epochs: the same in passes over the data, 1 in timm; None to follow `hold_steps`.
        bends: how a time budget changed the length: after which update, and to how many in all; a run without a budget makes
            the same changes again. None where it changed nothing.
    """

    decay: Decay = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    warmup_epochs: float | None = Field(default=None, ge=0)
    warmup_lr: float = Field(default=0.0, ge=0)
    final_lr: float = Field(default=0.0, ge=0)
    cooldown_steps: int = Field(default=0, ge=0)
    cooldown_epochs: float | None = Field(default=None, ge=0)
    timescale: int = Field(default=10_000, ge=1)
    milestones: tuple[Share, ...] = ()
    curve_from: CurveFrom = "warmup"
    hold_steps: int = Field(default=1, ge=1)
    hold_epochs: float | None = Field(default=None, gt=0)
    bends: tuple[tuple[int, int], ...] | None = Field(default=None, json_schema_extra=MAY_CHANGE)

    def rate(self, position: float, base: float, total_steps: int) -> float:
        """Return the learning rate of one update.

        Warm-up and cool-down take at most half of the run each.

        Args:
            position: updates made so far; between two of them for a run that a time budget made shorter.
            base: the rate at the peak.
            total_steps: updates in all.
        """
        return learning_rate(
            position,
            base=base,
            total_steps=total_steps,
            warmup_steps=min(self.warmup_steps, total_steps // 2),
            decay=self.decay,
            final=self.final_lr,
            warmup_lr=self.warmup_lr,
            cooldown_steps=min(self.cooldown_steps, total_steps // 2),
            timescale=self.timescale,
            milestones=self.milestones,
            curve_from=self.curve_from,
            hold_steps=self.hold_steps,
        )


class RegularizationSettings(Section):
    """Regularisation inside the network and in the labels; rates from 0 to 1.

    Attributes:
        dropout: after every dense layer but query, key and value, and after the position embedding.
        attention_dropout: on attention probabilities.
        stochastic_depth: of the last block's residual branches.
        label_smoothing: share of a label that is spread over all classes.
    """

    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0
    label_smoothing: Rate = 0.0


class ObjectiveSettings(Section):
    """The loss of labels, with the method "supervised".

    Attributes:
        name: "softmax" or "sigmoid" cross-entropy, or "task" for the loss that fits the task. A cross-entropy that does not
            fit the task is replaced by what does.
        head_bias: the head's bias at the start; -10 with "sigmoid" on the original's large sets.
        binary_targets: with "sigmoid", whether mixed labels count in full for both images' classes (DeiT III).
        mean_over_classes: with "sigmoid", whether the losses of the classes are averaged (torch's own, DeiT III), in place of
            summed (vit_jax, big_vision); it matters to clipping.
    """

    name: Literal["softmax", "sigmoid", "task"] = "softmax"
    head_bias: float = 0.0
    binary_targets: bool = False
    mean_over_classes: bool = False


class HeadSettings(Section):
    """The head of a network that starts from random weights.

    Attributes:
        representation: whether the pre-training head has its tanh layer, as wide as a token (paper section 3.1).
    """

    representation: bool = False


class ExpertsSettings(Section):
    """The experts of a V-MoE, where they are not the named network's own.

    Attributes:
        number: in each layer that has them, of a network from random weights, or of one that gets some by `upcycle`; None for
            the network's own, or 8.
        upcycle: which blocks of a dense network that comes trained get experts in their MLP's place, each of which begins as
            that MLP: "every-2" for every second block, "last-2" for the last two of those; None for no block.
        capacity_factor: size of their buffers over an even share-out; None for the network's own.
        evaluation_capacity_factor: the same outside of training; None for the network's own.
        dropout: rate inside the experts alone; None for `regularization.dropout`, as in all other MLPs.
    """

    number: int | None = Field(default=None, ge=1)
    upcycle: str | None = None
    capacity_factor: float | None = Field(default=None, gt=0)
    evaluation_capacity_factor: float | None = Field(default=None, gt=0)
    dropout: Rate | None = None


class PreprocessingSettings(Section):
    """How an image becomes the network's input in validation and ever after; None for what the network already has.

    The mean and the standard deviation are those of training, too. See `vitral.images.preprocessing.Preprocessing`, which the
    classifier folder keeps.

    Attributes:
        resize: "squash" to the network's size whatever the shape, or "crop" its middle.
        crop_fraction: share of the resized image's side that is kept.
        interpolation: "bilinear", "bicubic" or "nearest".
        antialias: whether shrinking averages over all pixels that it covers; the resamplers in 8 bits always do.
        mean: of the channels red, green, blue, on the scale 0 to 1.
        std: likewise.
        resampler: "float32", "pillow" or "torch".
    """

    resize: Resize | None = None
    crop_fraction: float | None = Field(default=None, gt=0, le=1)
    interpolation: Interpolation | None = None
    antialias: bool | None = None
    mean: tuple[Share, Share, Share] | None = None
    std: tuple[Spread, Spread, Spread] | None = None
    resampler: Resampler | None = None

    def over(self, own: Preprocessing) -> Preprocessing:
        """Return a network's own preprocessing with what the recipe says in its place."""
        return dataclasses.replace(own, **self.model_dump(exclude_none=True))


class MixingSettings(Section):
    """Images mixed in pairs, and their labels with them; with both, each batch takes one of the two at random.

    Attributes:
        mixup: alpha of the Beta distribution of MixUp (arXiv 1710.09412); 0 for none.
        cutmix: alpha of CutMix (arXiv 1905.04899); 0 for none.
    """

    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)


class AdaptationSettings(Section):
    """Which weights learn.

    Attributes:
        method: "full" for all, "probe" for the head alone, "lora" for the head and low-rank changes of every linear layer in
            the blocks (arXiv 2106.09685).
        frozen_blocks: how many of the first blocks keep their weights, and with them all that comes before.
        lora_rank: rank of the changes.
        lora_alpha: their factor, times the rank.
    """

    method: Literal["full", "probe", "lora"] = "full"
    frozen_blocks: int = Field(default=0, ge=0)
    lora_rank: int = Field(default=8, ge=1)
    lora_alpha: float = Field(default=16.0, gt=0)


class AveragingSettings(Section):
    """Polyak averaging.

    Attributes:
        decay: what stays of the average at an update; 0.9999 in the paper, None for no averaging.
    """

    decay: float | None = Field(default=None, gt=0, lt=1)


class CheckpointSettings(Section):
    """When a run is saved.

    Attributes:
        every_steps: updates between checkpoints.
        keep: how many of the newest are kept, besides the best.
        archive_steps: those after every so many updates are kept for good; None for none.
    """

    every_steps: int = Field(default=500, ge=1, json_schema_extra=MAY_CHANGE)
    keep: int = Field(default=2, ge=2, json_schema_extra=MAY_CHANGE)
    archive_steps: int | None = Field(default=None, ge=1, json_schema_extra=MAY_CHANGE)


class EvaluationSettings(Section):
    """When a run is validated, and how.

    Attributes:
        every_steps: updates between validations; None for one about every tenth of the run.
        few_shot: at each of them also ridge regression on the frozen features of so many training images a class, three draws
            each, such as 1, 5, 10, 25; of none by default, for that costs the time of those images.
        data: labelled data by which the features are judged, few-shot and by nearest neighbours, as `data` is named elsewhere;
            None for those that are learned from.
    """

    every_steps: int | None = Field(default=None, ge=1)
    few_shot: tuple[Annotated[int, Field(ge=1)], ...] = ()
    data: str | None = Field(default=None, min_length=1)


class FaultSettings(Section):
    """What a run forgives.

    Attributes:
        max_skipped: batches whose loss is no finite number that are skipped before the run stops.
    """

    max_skipped: int = Field(default=3, ge=0, json_schema_extra=MAY_CHANGE)


class ComputeSettings(Section):
    """How the work is laid out; nothing here changes what is learned, but for the order of sums.

    Attributes:
        accumulation: parts into which a process's share of a batch is cut, one after another through the network; None for
            as few as fit the memory.
        checkpointing: whether blocks compute their activations again in the backward pass, in place of keeping them.
        compile: whether the blocks go through torch.compile.
        sharding: over processes: "none" keeps the whole network in each (DDP), "full" shares weights, gradients and
            optimizer out to all (FSDP2), "hybrid" shares them out within a node and keeps a copy in each node.
        expert_parallel: whether each process keeps its own share of a V-MoE's experts.
    """

    accumulation: int | None = Field(default=None, ge=1, json_schema_extra=MAY_CHANGE)
    checkpointing: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
    compile: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
    sharding: Literal["none", "full", "hybrid"] = Field(default="none", json_schema_extra=MAY_CHANGE)
    expert_parallel: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
