"""The sections of a recipe: each setting with its meaning, unit and limits."""

import dataclasses
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vitral import plugins
from vitral.errors import VitralError
from vitral.images.preprocessing import Interpolation, Preprocessing, Resampler, Resize
from vitral.models.dense.dense_model import HEADS
from vitral.objectives.unequal import ClassWeights
from vitral.tasks.registry import task_named

# Marks a setting that may change when a run is resumed: a new length extends or shortens the run, and where and how the run is
# computed and saved does not change what it learns.
MAY_CHANGE: dict[str, JsonValue] = {"may_change": True}
FACTORED_FROM = 32  # big_vision's; see `factored_axes`


Precision = Literal["auto", "bf16", "fp32"]
DecayOn = Literal["kernels", "kernels-and-tokens", "all"]
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


def _known_head(kind: str) -> str:
    if kind not in HEADS:
        raise ValueError(f"there is no head '{kind}'; there are {', '.join(HEADS)}")
    return kind


TaskName = Annotated[str, AfterValidator(_known_task)]
HeadKind = Annotated[str, AfterValidator(_known_head)]
OptimizerName = Annotated[str, AfterValidator(_known_optimizer)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Strength = Annotated[float, Field(ge=0)]
Spread = Annotated[float, Field(gt=0, le=1)]
# TOML has no null, so None is written as a word where it does not mean "left out".
NoLimit = Annotated[
    Annotated[float, Field(gt=0)] | None,
    BeforeValidator(lambda value: None if value == "none" else value),
    PlainSerializer(lambda value: "none" if value is None else value),
]


class Section(BaseModel):
    """A part of a recipe: immutable, with no room for unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401  # of any setting
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            raise ValueError(f"{str(value).lower()} is a switch, which this setting is not")
        return value


def _momentum(before: dict[str, Any]) -> float:
    return 0.95 if before.get("name") == "muon" else 0.9


def _nesterov(before: dict[str, Any]) -> bool:
    return before.get("name") == "muon"


class OptimizerSettings(Section):
    """Optimizer and clipping.

    Attributes:
        name: "adamw" (and "adam", which is the same, see `build_optimizer`), "sgd", "lamb", "adafactor", "muon" (for the
            hidden matrices, with AdamW for the rest, see `hidden_matrices`), or the name of a plugin's optimizer.
        lr: The learning rate at the peak.
        sweep: The learning rates that a sweep tries, ascending; empty for four rates around `lr`.
        weight_decay: The weight decay, decoupled and multiplied by the learning rate; SGD adds it to the gradient.
        decay_on: The parameters with weight decay, of the network and of what a method trains besides it: "kernels" (matrices
            and convolutions: no biases, norms, tokens or position tables), "kernels-and-tokens", as in MAE's pre-training, or
            "all", as in the V-MoE paper, SAM, LeJEPA and T2T-ViT's transfer.
        head_weight_decay: The head's weight decay; None for `weight_decay`.
        betas: The decays of the moments in Adam, LAMB, Adafactor and Muon's AdamW.
        eps: The number added to the root of the second moment in Adam, LAMB and Muon's AdamW.
        momentum: The momentum of SGD and Muon; by default 0.9 for SGD and 0.95 for Muon, as in its original.
        nesterov: Whether SGD's or Muon's momentum is Nesterov's; by default only Muon's is, as in its original.
        ns_steps: The steps of Muon's iteration that makes an update orthogonal: 5 in the original, 3 in airbench94_muon.
        momentum_dtype: The type in which SGD's momentum and Adam's first moment are stored between updates; an update uses
            the value before rounding. "bfloat16" in vision_transformer's fine-tuning and in big_vision. Adafactor always
            stores bfloat16, LAMB and Muon always float32.
        factored_from: The least size at which Adafactor factors the second moment: the smaller of a tensor's two largest axes
            must reach it. 32 in big_vision; in V-MoE the number of experts plus 1, so that their axis is never factored.
        clip_norm: The limit of the global gradient norm; None, in TOML "none", for no clipping.
        layer_decay: The factor of the learning rate from each block to the block below.
        backbone_lr: The peak learning rate of all but the head, in multiples of `lr`; 0.01 in T2T-ViT's transfer. The curve
            leads from it to `schedule.final_lr`, as the head's does.
        sam_rho: The radius of sharpness-aware minimisation; None for plain gradients.
        sam_images: The number of images that share a climb of SAM (the paper's m), taken from each process's share of the
            batch; in the original the images of an accelerator. None for the whole batch.
        sam_final_rho: The radius at the learning rate `schedule.final_lr`; `sam_rho` is the radius at the peak, and between
            them the radius follows the rate (GSAM, arXiv 2203.08065). None for the same radius throughout.
        gsam_alpha: The weight of GSAM's surrogate gap: the part of the gradient before the climb that is orthogonal to the
            gradient from the climb, and that is subtracted. 0 for SAM.
    """

    name: OptimizerName = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    sweep: tuple[Annotated[float, Field(gt=0)], ...] = ()
    weight_decay: float = Field(default=0.0, ge=0)
    decay_on: DecayOn = "kernels"
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
    backbone_lr: float = Field(default=1.0, gt=0)
    sam_rho: float | None = Field(default=None, gt=0)
    sam_images: int | None = Field(default=None, ge=1)
    sam_final_rho: float | None = Field(default=None, gt=0)
    gsam_alpha: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _no_idle_settings(self) -> "OptimizerSettings":
        """Refuse settings that the optimizer would silently ignore."""
        if self.nesterov and self.name not in ("sgd", "muon"):
            raise ValueError("nesterov belongs to 'sgd' and 'muon'")
        if self.momentum_dtype != "float32" and self.name in ("lamb", "adafactor", "muon"):
            raise ValueError("momentum_dtype belongs to 'sgd', 'adam' and 'adamw'")
        if self.factored_from != FACTORED_FROM and self.name != "adafactor":
            raise ValueError("factored_from belongs to 'adafactor'")
        for name, is_set in (
            ("sam_images", self.sam_images is not None),
            ("sam_final_rho", self.sam_final_rho is not None),
            ("gsam_alpha", self.gsam_alpha > 0),
        ):
            if is_set and self.sam_rho is None:
                raise ValueError(f"{name} belongs to SAM; set sam_rho, too")
        return self


class RegularizationSettings(Section):
    """Regularisation inside the network and in the labels; rates from 0 to 1.

    Attributes:
        dropout: The dropout after the position embedding and after every dense layer, except query, key and value.
        attention_dropout: The dropout of attention probabilities.
        stochastic_depth: The rate at which the last block's residual branches are dropped; earlier blocks have less.
        label_smoothing: The share of a label that is spread over all classes.
    """

    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0
    label_smoothing: Rate = 0.0


class ObjectiveSettings(Section):
    """The loss of labels, with the method "supervised".

    Attributes:
        name: "softmax" or "sigmoid" cross-entropy, or "task" for the loss that fits the task. A cross-entropy that does not
            fit the task is replaced by the task's loss.
        head_bias: The head's bias at the start; -10 with "sigmoid" on the original's large sets.
        binary_targets: Whether "sigmoid" counts mixed labels in full for both images' classes (DeiT III).
        mean_over_classes: Whether "sigmoid" averages the losses of the classes (torch, DeiT III) instead of adding them
            (vit_jax, big_vision); it matters for clipping.
        class_weights: "balanced" for weights of the classes in "softmax" in inverse proportion to their numbers of images, 1
            on average, and in the linear model in closed form; "auto" for weights there alone, of unequal classes, unless
            images that are left out of the fit refute them; "none" for none.
        logit_adjustment: The strength (tau) of logit adjustment in "softmax": so many times the logarithm of the classes'
            shares is added to the logits in the loss, so that the logits themselves are for classes of equal shares
            (arXiv 2007.07314, equation 10); 0 for none.
        posthoc_adjustment: The strength (tau) of logit adjustment after training (equation 9), in the head's bias; "auto" for
            what the validation images show to pay, 0 for none. Of a run that is finished it may be changed.
    """

    name: Literal["softmax", "sigmoid", "task"] = "softmax"
    head_bias: float = 0.0
    binary_targets: bool = False
    mean_over_classes: bool = False
    class_weights: ClassWeights = "none"
    logit_adjustment: float = Field(default=0.0, ge=0)
    posthoc_adjustment: Strength | Literal["auto"] = Field(default=0.0, json_schema_extra=MAY_CHANGE)

    @property
    def needs_class_images(self) -> bool:
        """Whether something that was named depends on the number of training images of each class."""
        after = self.posthoc_adjustment not in ("auto", 0)
        return self.class_weights == "balanced" or self.logit_adjustment > 0 or after


class HeadSettings(Section):
    """The head of a network that starts from random weights.

    Attributes:
        representation: Whether the pre-training head has its tanh layer, as wide as a token (paper section 3.1).
        kind: The head over a backbone where regions are learned, such as "linear"; None for the task's own.
        stride: The step between the places of a detector by middles, pixels: 4 or 8; None for what suits the data.
    """

    representation: bool = False
    kind: HeadKind | None = None
    stride: Literal[4, 8] | None = None


class ExpertsSettings(Section):
    """The experts of a V-MoE, if they differ from the named network's.

    Attributes:
        number: The number of experts in a layer, for a network from random weights or an upcycled network; None for the
            network's own number, or 8.
        upcycle: The blocks of a trained dense network in which experts replace the MLP; each expert starts as that MLP.
            "every-2" for every second block, "last-2" for the last two of those; None for no block.
        capacity_factor: The size of the experts' buffers, relative to an even distribution; None for the network's own.
        evaluation_capacity_factor: The capacity factor outside of training; None for the network's own.
        dropout: The dropout inside the experts; None for `regularization.dropout`, as in all other MLPs.
    """

    number: int | None = Field(default=None, ge=1)
    upcycle: str | None = None
    capacity_factor: float | None = Field(default=None, gt=0)
    evaluation_capacity_factor: float | None = Field(default=None, gt=0)
    dropout: Rate | None = None


class PreprocessingSettings(Section):
    """The preprocessing of images in validation and prediction; None for the network's own.

    The mean and the standard deviation hold for training, too. See `vitral.images.preprocessing.Preprocessing`, which is stored
    in the classifier folder.

    Attributes:
        resize: "squash" resizes the whole image to the network's size, "crop" takes its middle, "pad" shows the whole image
            in its aspect ratio.
        crop_fraction: The share of the resized image's side that the crop keeps.
        interpolation: "bilinear", "bicubic" or "nearest".
        antialias: Whether shrinking averages over all pixels that it covers; the resamplers in 8 bits always do.
        mean: The means of the channels red, green, blue, on the scale 0 to 1.
        std: The standard deviations, in the same order and scale.
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
        """Return a network's own preprocessing with the recipe's changes."""
        return dataclasses.replace(own, **self.model_dump(exclude_none=True))


class MixingSettings(Section):
    """Images and labels mixed in pairs; if both kinds are on, each batch takes either at random.

    Attributes:
        mixup: The alpha of MixUp's Beta distribution (arXiv 1710.09412); 0 for none.
        cutmix: The alpha of CutMix (arXiv 1905.04899); 0 for none.
    """

    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)


def mixes(settings: MixingSettings) -> bool:
    """Tell whether images are mixed."""
    return bool(settings.mixup or settings.cutmix)


class AdaptationSettings(Section):
    """Which weights learn.

    Attributes:
        method: "full" for all, "probe" for only the head, "lora" for the head and low-rank changes of every linear layer in
            the blocks (arXiv 2106.09685).
        frozen_blocks: The number of first blocks that keep their weights, like everything before them.
        keep_frozen: Whether what these make of an image is computed once, in bfloat16, and kept: of stages of convolutions, on
            a CPU, where images look the same each time.
        frozen_statistics: Whether batch norms normalise by the statistics that they came with, as in use, and not by those of
            the batch; their scales learn.
        lora_rank: The rank of the low-rank changes.
        lora_alpha: The scale of the low-rank changes, times the rank.
    """

    method: Literal["full", "probe", "lora"] = "full"
    frozen_blocks: int = Field(default=0, ge=0)
    keep_frozen: bool = False
    frozen_statistics: bool = False
    lora_rank: int = Field(default=8, ge=1)
    lora_alpha: float = Field(default=16.0, gt=0)


class AveragingSettings(Section):
    """Polyak averaging.

    Attributes:
        decay: The share of the average that stays at an update; 0.9999 in the paper, None for no averaging.
    """

    decay: float | None = Field(default=None, gt=0, lt=1)


class CheckpointSettings(Section):
    """When a run is saved.

    Attributes:
        every_steps: The number of updates between checkpoints.
        keep: The number of newest checkpoints that stay, besides the best.
        archive_steps: The number of updates between checkpoints that stay for good; None for none.
    """

    every_steps: int = Field(default=500, ge=1, json_schema_extra=MAY_CHANGE)
    keep: int = Field(default=2, ge=2, json_schema_extra=MAY_CHANGE)
    archive_steps: int | None = Field(default=None, ge=1, json_schema_extra=MAY_CHANGE)


class EvaluationSettings(Section):
    """When a run is validated, and how.

    Attributes:
        every_steps: The number of updates between validations; None for about a tenth of the run.
        few_shot: The numbers of training images a class, such as 1, 5, 10, 25, for ridge regression on frozen features at
            each validation, three draws each; none by default, because it takes time.
        data: The labelled data that score the features, few-shot and by nearest neighbours; a data name as elsewhere. None
            for the training data.
    """

    every_steps: int | None = Field(default=None, ge=1)
    few_shot: tuple[Annotated[int, Field(ge=1)], ...] = ()
    data: str | None = Field(default=None, min_length=1)


class FaultSettings(Section):
    """The faults that a run tolerates.

    Attributes:
        max_skipped: The number of batches without a finite loss that are skipped before the run stops.
    """

    max_skipped: int = Field(default=3, ge=0, json_schema_extra=MAY_CHANGE)


class ComputeSettings(Section):
    """The layout of the work; nothing here changes what is learned, except the order of sums.

    Attributes:
        accumulation: The number of parts of a process's share of a batch, which go through the network in sequence; None for
            as few as fit the memory.
        checkpointing: Whether blocks compute their activations again in the backward pass, instead of storing them.
        compile: Whether the blocks go through torch.compile.
        sharding: The distribution over processes: "none" for the whole network in each (DDP), "full" for weights, gradients
            and optimizer sharded over all (FSDP2), "hybrid" for shards within a node and a copy in each node.
        expert_parallel: Whether each process has its own share of a V-MoE's experts.
    """

    accumulation: int | None = Field(default=None, ge=1, json_schema_extra=MAY_CHANGE)
    checkpointing: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
    compile: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
    sharding: Literal["none", "full", "hybrid"] = Field(default="none", json_schema_extra=MAY_CHANGE)
    expert_parallel: bool = Field(default=False, json_schema_extra=MAY_CHANGE)
