"""Everything that makes one Vision Transformer, checked before it is built."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from vitral.described import LATER
from vitral.errors import ModelError
from vitral.models.blocks import LAYER_NORM_EPS, MlpKind
from vitral.models.convolution import WhitenedStemConfig
from vitral.models.experts import ExpertsConfig
from vitral.models.layers import Gelu
from vitral.models.model import SIZE_STEP, ModelConfig, PatchGrid, Use
from vitral.models.position import PositionAt, PositionKind, PositionResize, RotaryKind
from vitral.models.resnet import StemConfig

Pooling = Literal["token", "gap", "map", "token-gap"]
Initialization = Literal["vit", "big_vision", "deit", "whitened"]
FEWEST_POSITIONS = 2  # of a whitened stem's map, in each direction
RELATIVE = ("relative", "relative-2d")  # positions that stand in the attention of every block


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig(ModelConfig):
    """Everything that makes one Vision Transformer, besides what `ModelConfig` says.

    Dropout comes after the position embedding and every dense layer but query, key and value.

    Attributes:
        patch_size: Height and width of a patch, pixels (P); with a stem, positions of its feature map.
        patch_stride: Step between patches, likewise; smaller than the patch, they overlap. None: the patch size.
        dim: Width of a token (D).
        depth: Number of encoder blocks (L).
        mlp_dim: Width inside the MLP, behind the gate if it has one.
        num_heads: Attention heads (k).
        position: Position embedding: "learned" (1-D, the paper's), "learned-2d", "sincos-2d", "relative" (of one image size),
            "relative-2d" (in rows and columns, of each head alone; see `RelativeGrid`) or "none".
        pooling: "token" (the class token, the paper's), "gap" (mean over the patches), "map" (attention pooling) or "token-gap"
            (class token and mean, one after the other: DINOv2's linear classifiers).
        representation_size: Width of the tanh layer before the head, the pre-training MLP head; None for none.
        gelu: "tanh", the original's form, "exact" (DeiT, timm and transformers) or "quick".
        registers: Extra learned tokens that hold no patch (arXiv 2309.16588).
        layer_scale: Initial factor on residual branches (arXiv 2103.17239); None for none.
        stem: The convolutions of a hybrid, a ResNet or those of a `WhitenedStem`; None for none.
        distilled: Whether there is a distillation token with a head of its own (DeiT, arXiv 2012.12877, section 4).
        experts: The blocks with a mixture of experts (V-MoE, arXiv 2106.05974); None for none.
        norm_eps: Epsilon of the layer norms.
        qkv_bias: Whether the query, key and value projections have biases.
        position_resize: How the position embedding goes to another grid: "bilinear" (the paper's), "bicubic" (DeiT's),
            "bicubic-antialias" (timm's) or "bicubic-dinov2"; see `resize_position_embedding`.
        class_position: Whether the class and distillation tokens have positions, too; DeiT III's and big_vision's have none.
        even_depth: Whether stochastic depth has the same rate in all blocks (DeiT III), instead of one that grows from 0.
        initialization: How weights are drawn: as in "vit" (vision_transformer), "big_vision", "deit" or, ours, "whitened"; see
            `init_weights`.
        mlp: "plain", "swiglu" (a gate of SiLU: the largest of DINOv2) or "swiglu-norm" (with a norm before its last layer).
        rotary: How queries and keys are turned by where their patches lie: "none", as in "dinov3" or as in "eva02".
        rotary_shift: The most by which DINOv3's rows and columns move in training; None for 0. See `RotaryPosition`.
        rotary_jitter: The most by which they are stretched or shrunk there, each on its own; None for 1.
        rotary_rescale: The most by which they are stretched or shrunk there alike, 2 in DINOv3; None for 1.
        norm_before: Whether there is a norm between the positions and the first block (CLIP).
        norm_pooled: Whether the last norm comes after the mean over the patches, not before it (MAE's fine-tuned networks).
        patch_bias: Whether the projection of the patches has a bias; CLIP's has none.
        position_at: Where positions are added (appendix D.4): "input", to the tokens before the encoder; "layers", at the
            beginning of every block, each with its own; "layers-shared", there too, all with the same.
    """

    patch_size: tuple[int, int] = (16, 16)
    patch_stride: tuple[int, int] | None = None
    dim: int = 768
    depth: int = 12
    mlp_dim: int = 3072
    num_heads: int = 12
    position: PositionKind = "learned"
    pooling: Pooling = "token"
    representation_size: int | None = None
    gelu: Gelu = "tanh"
    registers: int = 0
    layer_scale: float | None = None
    stem: StemConfig | WhitenedStemConfig | None = field(default=None, metadata=LATER)
    distilled: bool = field(default=False, metadata=LATER)
    experts: ExpertsConfig | None = field(default=None, metadata=LATER)
    norm_eps: float = field(default=LAYER_NORM_EPS, metadata=LATER)
    qkv_bias: bool = field(default=True, metadata=LATER)
    position_resize: PositionResize = field(default="bilinear", metadata=LATER)
    class_position: bool = field(default=True, metadata=LATER)
    even_depth: bool = field(default=False, metadata=LATER)
    initialization: Initialization = field(default="vit", metadata=LATER)
    mlp: MlpKind = field(default="plain", metadata=LATER)
    rotary: RotaryKind = field(default="none", metadata=LATER)
    rotary_shift: float | None = field(default=None, metadata=LATER)
    rotary_jitter: float | None = field(default=None, metadata=LATER)
    rotary_rescale: float | None = field(default=None, metadata=LATER)
    norm_before: bool = field(default=False, metadata=LATER)
    norm_pooled: bool = field(default=False, metadata=LATER)
    patch_bias: bool = field(default=True, metadata=LATER)
    position_at: PositionAt = field(default="input", metadata=LATER)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        _check_words(self)
        _check_widths(self)
        _check_extras(self)
        _check_positions(self)
        if isinstance(self.stem, WhitenedStemConfig):
            _check_map(self)
            return
        unit = self.stem.stride if self.stem else 1
        patch, stride = (tuple(unit * side for side in sides) for sides in (self.patch_size, self.stride_on_map))
        _check_divisible(self.image_size, patch, stride)  # type: ignore[arg-type]

    @property
    def stride_on_map(self) -> tuple[int, int]:
        """Step between patches, (height, width) in positions of what the patches are cut from."""
        return self.patch_stride or self.patch_size

    @property
    def stride(self) -> tuple[int, int]:
        """Step between patches, (height, width) in pixels."""
        unit = self.stem.stride if self.stem else 1
        return unit * self.stride_on_map[0], unit * self.stride_on_map[1]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        height, width = (
            ((self.stem.positions(size) if self.stem else size) - patch) // step + 1
            for size, patch, step in zip(self.image_size, self.patch_size, self.stride_on_map, strict=True)
        )
        return height, width

    @property
    def patch_grid(self) -> PatchGrid:
        """Where the tokens of all blocks lie."""
        return PatchGrid(self.grid, self.stride, self.num_prefix_tokens, self.dim)

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: the class token, the distillation token, then the registers."""
        return self.num_pooled_tokens + self.registers

    @property
    def num_pooled_tokens(self) -> int:
        """Tokens that a head reads: the class token and the distillation token."""
        return self.class_token + self.distilled

    @property
    def class_token(self) -> bool:
        """Whether there is a class token."""
        return self.pooling in ("token", "token-gap")

    @property
    def places_in_blocks(self) -> bool:
        """Whether blocks know where each token lies, so that none can be dropped, merged or moved before them."""
        return self.rotary != "none" or self.position in RELATIVE or self.position_at != "input"

    @property
    def num_features(self) -> int:
        """The width of what the head reads, before any representation layer."""
        return 2 * self.dim if self.pooling == "token-gap" else self.dim

    @property
    def size_step(self) -> int:
        """A number of pixels of which the sides of an image may be any multiple."""
        return SIZE_STEP if self.stem else max(self.patch_size[0], self.stride_on_map[0])

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use, as part of a sentence; empty if nothing does."""
        return next((reason for found, reason in _obstacles(self, use) if found), "")

    @property
    def known_macs(self) -> int | None:
        """Multiply-accumulates of one image, by a formula; None for a hybrid, because its stem must be built to be counted."""
        return None if self.stem else self.macs_behind_stem

    @property
    def macs_behind_stem(self) -> int:
        """Multiply-accumulates of one image, those of a stem left out; see `count_macs` for what counts."""
        patches, dim = math.prod(self.grid), self.dim
        tokens = patches + self.num_prefix_tokens
        channels = self.stem.channels if self.stem else 3
        embedding = patches * channels * math.prod(self.patch_size) * dim
        attention = 4 * tokens * dim**2 + 2 * tokens**2 * dim
        attention += tokens * (2 * tokens - 1) * dim if self.position == "relative" else 0
        mlp = (2 if self.mlp == "plain" else 3) * tokens * dim * self.mlp_dim
        total = embedding + self.depth * (attention + mlp)
        if self.experts:
            router = tokens * dim * self.experts.num_experts
            total += len(self.experts.blocks) * (router + (self.experts.num_selected - 1) * mlp)
        features = self.representation_size or self.num_features
        total += (2 if self.distilled else 1) * features * self.num_classes
        total += self.num_features * features if self.representation_size else 0
        pooling = 2 * patches * dim**2 + 2 * dim**2 + 2 * dim * self.mlp_dim + 2 * patches * dim
        return total + (pooling if self.pooling == "map" else 0)


def _obstacles(config: ViTConfig, use: Use) -> list[tuple[bool, str]]:
    """Return what may keep a network from a use, and whether it does."""
    plain = config.stem is None and config.stride == config.patch_size
    patches = (not plain, "its patches overlap, or are cut from a feature map")
    slots = (config.experts is not None, "its experts share out their slots among all tokens")
    places = (config.places_in_blocks, "its blocks know where each token lies")
    by_size = config.rotary != "none" or config.position == "relative" or config.position_at != "input"
    return {
        "masking": [patches],
        "dropping": [patches, slots, places],
        "appending": [slots, (config.position in RELATIVE or config.position_at != "input", places[1])],
        "merging": [
            (config.pooling != "token", "it reads other tokens than its class token"),
            (config.registers > 0, "its registers would be merged, too"),
            (config.experts is not None, "its experts would get other tokens"),
            places,
        ],
        "packing": [slots, (by_size, places[1])],
        "export": [(config.experts is not None, "it sends each token to experts of its own")],
    }.get(use, [])


def with_pooling(config: Any, pooling: Pooling) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config of a Vision Transformer with another pooling, drawn as the source of that pooling draws.

    A class token is vit_jax's, mean and attention pooling are big_vision's; DeiT's networks stay DeiT's.
    """
    if config.pooling == pooling:
        return config
    source = {"vit": "big_vision", "big_vision": "vit"}
    other = (config.initialization == "vit") != (pooling in ("token", "token-gap"))
    initialization = source.get(config.initialization, config.initialization) if other else config.initialization
    return dataclasses.replace(config, pooling=pooling, initialization=initialization)


def _check_words(config: ViTConfig) -> None:
    for row in dataclasses.fields(config):
        value, known = getattr(config, row.name), get_args(row.type)
        if get_origin(row.type) is Literal and value not in known:
            raise ModelError(f"{row.name} must be one of {', '.join(known)}, not '{value}'.")


def _check_widths(config: ViTConfig) -> None:
    positive = ("dim", "depth", "mlp_dim", "num_heads")
    for name in positive:
        if getattr(config, name) < 1:
            raise ModelError(f"{name} must be at least 1, not {getattr(config, name)}.")
    if config.dim % config.num_heads:
        raise ModelError(f"The width {config.dim} cannot be shared out to {config.num_heads} heads evenly.")
    if config.registers < 0:
        raise ModelError(f"registers must be 0 or more, not {config.registers}.")
    if config.rotary != "none" and config.dim // config.num_heads % 4:
        raise ModelError(
            f"Rotary positions need heads of a width that 4 divides, not {config.dim // config.num_heads}."
        )
    moves = {name: getattr(config, f"rotary_{name}") for name in ("shift", "jitter", "rescale")}
    if config.rotary != "dinov3" and any(value is not None for value in moves.values()):
        raise ModelError(f"Only rotary positions of the kind 'dinov3' are moved in training, not '{config.rotary}'.")
    for name, value in moves.items():
        if value is not None and value < (least := 0.0 if name == "shift" else 1.0):
            raise ModelError(f"rotary_{name} must be at least {least:g}, not {value}.")
    parts = {"learned-2d": 2, "sincos-2d": 4}.get(config.position, 1)
    if config.dim % parts:
        raise ModelError(
            f"Position embedding '{config.position}' needs a width that {parts} divides, not {config.dim}."
        )


def _check_extras(config: ViTConfig) -> None:
    if config.norm_pooled and config.pooling != "gap":
        raise ModelError(f"A norm after the mean over the patches needs pooling 'gap', not '{config.pooling}'.")
    if config.mlp != "plain" and config.experts:
        raise ModelError("Experts and a gated MLP do not go together.")
    if config.distilled and config.pooling != "token":
        raise ModelError(f"A distillation token needs a class token beside it, not pooling '{config.pooling}'.")
    if config.distilled and config.representation_size:
        raise ModelError("A network with a distillation head has no representation layer before its heads.")
    if config.experts and not all(0 <= block < config.depth for block in config.experts.blocks):
        raise ModelError(
            f"There are experts in blocks {config.experts.blocks}, but there are only {config.depth} blocks."
        )
    if config.initialization == "deit" and (config.stem or config.experts or config.pooling == "map"):
        raise ModelError("DeiT has no stem, experts or attention pooling to draw weights for.")
    square = config.patch_size[0] == config.patch_size[1]
    if config.initialization == "whitened" and (config.stem or not square):
        raise ModelError("Whitened patches are square ones of pixels; leave out the stem, or the initialization.")
    if config.layer_scale is not None and config.experts:
        raise ModelError("Experts and LayerScale do not go together.")


def _check_positions(config: ViTConfig) -> None:
    if config.position in RELATIVE and config.position_at != "input":
        raise ModelError("Relative positions stand in every block by themselves; leave position_at at 'input'.")
    if config.registers and config.position_at != "input":
        raise ModelError("Registers have no positions, so that these are added at the input only.")


def _check_map(config: ViTConfig) -> None:
    """Refuse images of which a stem without padding leaves no patch, or one value a channel, of which no norm can learn."""
    stem = config.stem
    assert isinstance(stem, WhitenedStemConfig)
    for side, size, patch in zip(("height", "width"), config.image_size, config.patch_size, strict=True):
        needed = max(patch, FEWEST_POSITIONS)
        if stem.positions(size) < needed:
            raise ModelError(f"Image {side} {size} is too small for this network; use {stem.least(needed)} or more.")


def _check_divisible(image: tuple[int, int], patch: tuple[int, int], stride: tuple[int, int]) -> None:
    for side, size, length, step in zip(("height", "width"), image, patch, stride, strict=True):
        if min(length, step) < 1:
            raise ModelError(f"Patch size and stride must be at least 1 pixel, not {length} and {step}.")
        if size < length:
            raise ModelError(f"Image {side} {size} is smaller than the patch of {length} pixels.")
        if (size - length) % step:
            below = size - (size - length) % step
            how = f"the patch size {length}" if step == length else f"patches of {length} at a stride of {step}"
            raise ModelError(f"Image {side} {size} is not divided by {how}; use {below} or {below + step}.")
