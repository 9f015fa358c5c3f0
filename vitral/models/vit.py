"""The Vision Transformer ("An Image Is Worth 16x16 Words", arXiv 2010.11929, section 3).

Held against models_vit.py of google-research/vision_transformer and models/vit.py of google-research/big_vision.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.experts import ExpertsConfig, MixtureOfExperts
from vitral.models.layers import (
    LAYER_NORM_EPS,
    Block,
    Gelu,
    LayerScale,
    MapHead,
    Tokens,
    init_linear_deit,
    init_norm,
    init_torch_default,
    lecun_normal_,
)
from vitral.models.model import (
    LATER,
    Features,
    Images,
    Logits,
    Model,
    ModelConfig,
    Outputs,
    depth_rate,
    new_head,
    seeded,
)
from vitral.models.position import PositionEmbedding, PositionKind, PositionResize
from vitral.models.stem import ResNetStem, StemConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig(ModelConfig):
    """Everything that makes one Vision Transformer, beside what `ModelConfig` says.

    Dropout comes after the position embedding and every dense layer but query, key and value.

    Attributes:
        patch_size: height and width of a patch, pixels (P); with a stem, positions of its feature map.
        patch_stride: step between patches, likewise; smaller than the patch, they overlap. None: the patch size.
        dim: width of a token (D).
        depth: number of encoder blocks (L).
        mlp_dim: width inside the MLP.
        num_heads: attention heads (k).
        position: position embedding: "learned" (1-D, the paper's), "learned-2d", "sincos-2d" or "none".
        pooling: "token" (the class token, the paper's), "gap" (mean over the patches) or "map" (attention pooling).
        representation_size: width of the tanh layer before the head, the pre-training MLP head; None for none.
        gelu: "tanh", the original's form, "exact" (DeiT, timm and transformers) or "quick".
        registers: extra learned tokens that hold no patch (arXiv 2309.16588).
        layer_scale: initial factor on residual branches (arXiv 2103.17239); None for none.
        stem: the ResNet of a hybrid; None for none.
        distilled: whether there is a distillation token with a head of its own (DeiT, arXiv 2012.12877, section 4).
        experts: the blocks with a mixture of experts (V-MoE, arXiv 2106.05974); None for none.
        norm_eps: epsilon of the layer norms.
        qkv_bias: whether the query, key and value projections have biases.
        position_resize: how the position embedding goes to another grid: "bilinear" (the paper's) or "bicubic" (DeiT's).
        class_position: whether the class and distillation tokens have positions, too; DeiT III's and big_vision's have none.
        even_depth: whether stochastic depth has the same rate in all blocks (DeiT III), in place of one that grows from 0.
        initialization: how weights are drawn: as in "vit" (vision_transformer), "big_vision" or "deit"; see `init_weights`.
    """

    patch_size: tuple[int, int] = (16, 16)
    patch_stride: tuple[int, int] | None = None
    dim: int = 768
    depth: int = 12
    mlp_dim: int = 3072
    num_heads: int = 12
    position: PositionKind = "learned"
    pooling: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    gelu: Gelu = "tanh"
    registers: int = 0
    layer_scale: float | None = None
    stem: StemConfig | None = field(default=None, metadata=LATER)
    distilled: bool = field(default=False, metadata=LATER)
    experts: ExpertsConfig | None = field(default=None, metadata=LATER)
    norm_eps: float = field(default=LAYER_NORM_EPS, metadata=LATER)
    qkv_bias: bool = field(default=True, metadata=LATER)
    position_resize: PositionResize = field(default="bilinear", metadata=LATER)
    class_position: bool = field(default=True, metadata=LATER)
    even_depth: bool = field(default=False, metadata=LATER)
    initialization: Literal["vit", "big_vision", "deit"] = field(default="vit", metadata=LATER)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        _check_widths(self)
        _check_extras(self)
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
        unit = self.stem.stride if self.stem else 1
        height, width = (
            (math.ceil(size / unit) - patch) // step + 1
            for size, patch, step in zip(self.image_size, self.patch_size, self.stride_on_map, strict=True)
        )
        return height, width

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: the class token, the distillation token, then the registers."""
        return self.num_pooled_tokens + self.registers

    @property
    def num_pooled_tokens(self) -> int:
        """Tokens that a head reads: the class token and the distillation token."""
        return (self.pooling == "token") + self.distilled


def _check_widths(config: ViTConfig) -> None:
    positive = ("dim", "depth", "mlp_dim", "num_heads")
    for name in positive:
        if getattr(config, name) < 1:
            raise ModelError(f"{name} must be at least 1, not {getattr(config, name)}.")
    if config.dim % config.num_heads:
        raise ModelError(f"The width {config.dim} cannot be shared out to {config.num_heads} heads evenly.")
    if config.registers < 0:
        raise ModelError(f"registers must be 0 or more, not {config.registers}.")
    parts = {"learned-2d": 2, "sincos-2d": 4}.get(config.position, 1)
    if config.dim % parts:
        raise ModelError(
            f"Position embedding '{config.position}' needs a width that {parts} divides, not {config.dim}."
        )


def _check_extras(config: ViTConfig) -> None:
    if config.distilled and config.pooling != "token":
        raise ModelError(f"A distillation token needs a class token beside it, not pooling '{config.pooling}'.")
    if config.distilled and config.representation_size:
        raise ModelError("A network with a distillation head has no representation layer before its heads.")
    if config.experts and not all(0 <= block < config.depth for block in config.experts.blocks):
        raise ModelError(f"Experts stand in blocks {config.experts.blocks}, but there are only {config.depth} blocks.")
    if config.initialization not in ("vit", "big_vision", "deit"):
        raise ModelError(f"initialization must be 'vit', 'big_vision' or 'deit', not '{config.initialization}'.")
    if config.initialization == "deit" and (config.stem or config.experts or config.pooling == "map"):
        raise ModelError("DeiT has no stem, experts or attention pooling to draw weights for.")
    if config.layer_scale is not None and config.experts:
        raise ModelError("Experts and LayerScale do not go together.")


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


class ViT(Model):
    """The Vision Transformer of one `ViTConfig`; weights are undefined until `init_weights` or a checkpoint."""

    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.stem = ResNetStem(config.stem) if config.stem else None
        channels = config.stem.channels if config.stem else 3
        self.patch_embedding = nn.Conv2d(channels, dim, config.patch_size, config.stride_on_map)
        if config.pooling == "token":
            self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        if config.distilled:
            self.distillation_token = nn.Parameter(torch.empty(1, 1, dim))
        if config.registers:
            self.registers = nn.Parameter(torch.empty(1, config.registers, dim))
        self.position = PositionEmbedding(
            config.position,
            config.grid,
            dim,
            prefix=config.num_pooled_tokens,
            prefix_rows=config.class_position,
            method=config.position_resize,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_block(config, index) for index in range(config.depth))
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        if config.pooling == "map":
            self.map_head = MapHead(dim, config.num_heads, config.mlp_dim, gelu=config.gelu)
        representation = config.representation_size
        self.pre_logits = nn.Linear(dim, representation) if representation else None
        self.head = nn.Linear(representation or dim, config.num_classes)
        self.distillation_head = nn.Linear(dim, config.num_classes) if config.distilled else None

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.config.representation_size or self.config.dim

    def embed(self, images: Images, change: Callable[[Tokens], Tokens] | None = None) -> Tokens:
        """Cut images into patches and return the tokens with their positions (paper equation 1).

        `change` is given the patches' embeddings, (batch, patches, dim), and returns what stands in their place.
        """
        self.check_size(images)
        maps = images if self.stem is None else self.stem(images)
        tokens = self.patch_embedding(maps).flatten(2).transpose(1, 2)  # (batch, patches, dim)
        if change is not None:
            tokens = change(tokens)
        pooled = [self.class_token] if self.config.pooling == "token" else []
        pooled += [self.distillation_token] if self.config.distilled else []
        if pooled:
            tokens = torch.cat(
                [*(token.to(tokens.dtype).expand(len(tokens), -1, -1) for token in pooled), tokens], dim=1
            )
        # Under autocast the sum would turn float32 and every block would cast it down again.
        tokens = self.dropout(self.position(tokens).to(tokens.dtype))
        if self.config.registers:
            prefix = self.config.num_pooled_tokens
            registers = self.registers.to(tokens.dtype).expand(len(tokens), -1, -1)
            tokens = torch.cat([tokens[:, :prefix], registers, tokens[:, prefix:]], dim=1)
        return tokens

    def encode(self, images: Images) -> Tokens:
        """Return the tokens after the encoder and its norm; only those that a head reads, where it reads no patch."""
        tokens = self.embed(images)
        for block in self.encoder[:-1]:
            tokens = block(tokens)
        return self.norm(self.encoder[-1](tokens, self._num_queries()))

    def _num_queries(self) -> int | None:
        # Nothing of the last block but the pooled tokens is ever read, so no other query is computed there; but experts
        # give out their places to all tokens.
        experts = self.config.experts
        if self.config.pooling != "token" or (experts and self.config.depth - 1 in experts.blocks):
            return None
        return self.config.num_pooled_tokens

    def features(self, images: Images) -> Features:
        """Return the pooled representation, the head's input (paper equation 4); of the class token if distilled."""
        features = self._features(self.encode(images))
        self._auxiliary()
        return features

    def _features(self, tokens: Tokens) -> Features:
        pooled = self._pool(tokens)
        return pooled if self.pre_logits is None else torch.tanh(self.pre_logits(pooled))

    def _pool(self, tokens: Tokens) -> Float[Tensor, "batch dim"]:
        if self.config.pooling == "token":
            return tokens[:, 0]
        patches = tokens[:, self.config.num_prefix_tokens :]
        return self.map_head(patches) if self.config.pooling == "map" else patches.mean(dim=1)

    def forward(self, images: Images) -> Logits:
        """Return the logits; of a distilled network the mean of both heads', as DeiT's code has it (models.py)."""
        outputs = self.outputs(images)
        if outputs.distillation_logits is None:
            return outputs.logits
        return (outputs.logits + outputs.distillation_logits) / 2

    def outputs(self, images: Images) -> Outputs:
        """Return the logits of each head, and the experts' auxiliary losses, each summed over the blocks."""
        tokens = self.encode(images)
        logits = self.head(self._features(tokens))
        distilled = None if self.distillation_head is None else self.distillation_head(tokens[:, 1])
        return Outputs(logits=logits, distillation_logits=distilled, auxiliary=self._auxiliary())

    def _auxiliary(self) -> dict[str, Tensor]:
        """Take the experts' losses of the last pass, summed over the blocks; none stay behind to keep their graph alive."""
        auxiliary: dict[str, Tensor] = {}
        for block in self._encoder():
            if isinstance(block.mlp, MixtureOfExperts):
                for name, loss in block.mlp.losses.items():
                    auxiliary[name] = auxiliary[name] + loss if name in auxiliary else loss
                block.mlp.losses = {}
        return auxiliary

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Put a single linear layer in place of the head and its tanh layer (paper section 3.2); zero, but for DeiT's."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, representation_size=None, head_bias=0.0)
        self.pre_logits = None
        like = self.head.weight
        self.head = new_head(self.config.dim, num_classes, like)
        if self.config.distilled:
            self.distillation_head = new_head(self.config.dim, num_classes, like)
        self.init_head(seeded(self, seed))

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size: the position embedding is interpolated (paper section 3.2).

        Raises:
            ModelError: the patches do not divide that size.
        """
        super().resize(image_size)
        self.position.resize(self.config.grid)

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers."""
        config = self.config
        self.dropout.p = config.dropout
        for index, block in enumerate(self._encoder()):
            block.set_rates(
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                stochastic_depth=_depth_rate(config, index),
            )
            if isinstance(block.mlp, MixtureOfExperts):
                block.mlp.dropout.p = _expert_dropout(config)

    def blocks(self) -> list[nn.Module]:
        """Return the encoder blocks in order."""
        return list(self.encoder)

    def _encoder(self) -> list[Block]:
        return cast(list[Block], list(self.encoder))

    def no_weight_decay(self) -> set[str]:
        """Return the class and distillation tokens, registers, probe, position embeddings, biases and norms."""
        tables = ("class_token", "distillation_token", "registers", "map_head.probe", "position.")
        expert_biases = (".mlp.fc1.bias", ".mlp.fc2.bias")
        return {
            name
            for name, parameter in self.named_parameters()
            if parameter.ndim <= 1 or name.startswith(tables) or name.endswith(expert_biases)
        }

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw every parameter as the source does that `initialization` names, a pure function of `seed`.

        | parameter | vit_jax and big_vision | DeiT (timm 0.3.2) |
        |---|---|---|
        | patch embedding | LeCun normal, truncated at 2 standard deviations; bias 0 | both uniform, 1/sqrt(fan_in) |
        | class and distillation token | 0 | normal, standard deviation 0.02 |
        | position embedding | normal, 0.02; big_vision 1/sqrt(dim) | normal, 0.02 |
        | query, key, value, output | Xavier uniform, each alone; bias 0 | normal, 0.02; bias 0 |
        | MLP | Xavier uniform; bias normal, 1e-6 | normal, 0.02; bias 0 |
        | tanh layer | LeCun normal; bias 0 | normal, 0.02; bias 0 |
        | heads | 0 | normal, 0.02 |

        DeiT's normal distributions are cut at +-2, not at 2 standard deviations. Norms have scale 1 and bias 0, the head's
        bias is `head_bias`, registers are normal with 1e-6 (DINOv2); stem, experts and pooling head: see their own files.
        """
        generator = seeded(self, seed)
        if self.stem is not None:
            self.stem.init_weights(generator)
        if self.config.registers:
            self.registers.normal_(std=1e-6, generator=generator)
        if self.config.initialization == "deit":
            self._init_as_deit(generator)
        else:
            self._init_as_original(generator)
        self.init_head(generator)

    def _init_as_original(self, generator: torch.Generator) -> None:
        lecun_normal_(self.patch_embedding.weight, generator)
        assert self.patch_embedding.bias is not None
        nn.init.zeros_(self.patch_embedding.bias)
        if self.config.pooling == "token":
            nn.init.zeros_(self.class_token)
        std = self.config.dim**-0.5 if self.config.initialization == "big_vision" else 0.02
        self.position.init_weights(generator, std=std)
        for block in self._encoder():
            block.init_weights(generator)
        init_norm(self.norm)
        if self.config.pooling == "map":
            self.map_head.init_weights(generator)
        if self.pre_logits is not None:
            lecun_normal_(self.pre_logits.weight, generator)
            nn.init.zeros_(self.pre_logits.bias)
        if self.config.distilled:
            nn.init.trunc_normal_(self.distillation_token, std=0.02, generator=generator)

    def _init_as_deit(self, generator: torch.Generator) -> None:
        if self.config.pooling == "token":
            nn.init.trunc_normal_(self.class_token, std=0.02, generator=generator)
        if self.config.distilled:
            nn.init.trunc_normal_(self.distillation_token, std=0.02, generator=generator)
        self.position.init_weights(generator, std=0.02)
        init_torch_default(self.patch_embedding, generator)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module not in (self.head, self.distillation_head):
                init_linear_deit(module, generator)
            elif isinstance(module, nn.LayerNorm):
                init_norm(module)
            elif isinstance(module, LayerScale):
                nn.init.constant_(module.scale, module.initial)

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head: 0, or as DeiT draws every layer; the distillation head is DeiT's in any case."""
        if self.config.initialization == "deit":
            init_linear_deit(self.head, generator)
            nn.init.constant_(self.head.bias, self.config.head_bias)
        else:
            super().init_head(generator)
        if self.distillation_head is not None:
            init_linear_deit(self.distillation_head, generator)


def _depth_rate(config: ViTConfig, index: int) -> float:
    rate = config.stochastic_depth
    return rate if config.even_depth else depth_rate(rate, index, config.depth)


def _expert_dropout(config: ViTConfig) -> float:
    own = None if config.experts is None else config.experts.dropout
    return config.dropout if own is None else own


def _block(config: ViTConfig, index: int) -> Block:
    experts = config.experts if config.experts and index in config.experts.blocks else None
    mixture = None
    if experts is not None:
        rate = _expert_dropout(config)
        mixture = MixtureOfExperts(config.dim, config.mlp_dim, experts, gelu=config.gelu, dropout=rate)
    return Block(
        config.dim,
        config.num_heads,
        config.mlp_dim,
        gelu=config.gelu,
        norm_eps=config.norm_eps,
        qkv_bias=config.qkv_bias,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        stochastic_depth=_depth_rate(config, index),
        layer_scale=config.layer_scale,
        mlp=mixture,
    )
