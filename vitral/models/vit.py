"""The Vision Transformer ("An Image Is Worth 16x16 Words", arXiv 2010.11929, section 3).

Held against models_vit.py of google-research/vision_transformer and models/vit.py of google-research/big_vision.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.layers import LAYER_NORM_EPS, Block, MapHead, Tokens, init_norm, lecun_normal_
from vitral.models.model import Images, Logits, Model, Outputs
from vitral.models.position import PositionEmbedding, PositionKind


@dataclass(frozen=True, kw_only=True, slots=True)
class ViTConfig:
    """Everything that makes one Vision Transformer.

    Attributes:
        image_size: height and width of the pictures, pixels.
        patch_size: height and width of a patch, pixels (P).
        patch_stride: step between patches, pixels; smaller than the patch, they overlap. None: the patch size.
        dim: width of a token (D).
        depth: number of encoder blocks (L).
        mlp_dim: width inside the MLP.
        num_heads: attention heads (k).
        num_classes: logits (K).
        position: position embedding: "learned" (1-D, the paper's), "learned-2d", "sincos-2d" or "none".
        pooling: "token" (the class token, the paper's), "gap" (mean over the patches) or "map" (attention pooling).
        representation_size: width of the tanh layer before the head, the pre-training MLP head; None for none.
        gelu: "tanh", the original's form, or "exact".
        dropout: rate after the position embedding and every dense layer but query, key and value.
        attention_dropout: rate on the attention probabilities; 0 in every published model.
        stochastic_depth: rate of leaving out a residual branch in the last block, growing linearly from 0 in the first.
        registers: extra learned tokens that hold no patch (arXiv 2309.16588).
        layer_scale: initial factor on residual branches (arXiv 2103.17239); None for none.
        head_bias: initial bias of the head: -10 with the sigmoid loss of the original's large sets, else 0.
    """

    image_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (16, 16)
    patch_stride: tuple[int, int] | None = None
    dim: int = 768
    depth: int = 12
    mlp_dim: int = 3072
    num_heads: int = 12
    num_classes: int = 1000
    position: PositionKind = "learned"
    pooling: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    gelu: Literal["tanh", "exact"] = "tanh"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float = 0.0
    registers: int = 0
    layer_scale: float | None = None
    head_bias: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        _check_widths(self)
        for rate in ("dropout", "attention_dropout", "stochastic_depth"):
            if not 0.0 <= getattr(self, rate) < 1.0:
                raise ModelError(f"{rate} must be at least 0 and below 1, not {getattr(self, rate)}.")
        _check_divisible(self.image_size, self.patch_size, self.stride)

    @property
    def stride(self) -> tuple[int, int]:
        """Step between patches, (height, width) in pixels."""
        return self.patch_stride or self.patch_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        height, width = (
            (size - patch) // step + 1
            for size, patch, step in zip(self.image_size, self.patch_size, self.stride, strict=True)
        )
        return height, width

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patches: the class token, then the registers."""
        return (self.pooling == "token") + self.registers


def _check_widths(config: ViTConfig) -> None:
    positive = ("dim", "depth", "mlp_dim", "num_heads", "num_classes")
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

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.patch_embedding = nn.Conv2d(3, dim, config.patch_size, config.stride)
        if config.pooling == "token":
            self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        if config.registers:
            self.registers = nn.Parameter(torch.empty(1, config.registers, dim))
        covers = config.pooling == "token"
        self.position = PositionEmbedding(config.position, config.grid, dim, covers_class_token=covers)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(_block(config, index) for index in range(config.depth))
        self.norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        if config.pooling == "map":
            self.map_head = MapHead(dim, config.num_heads, config.mlp_dim, gelu=config.gelu)
        representation = config.representation_size
        self.pre_logits = nn.Linear(dim, representation) if representation else None
        self.head = nn.Linear(representation or dim, config.num_classes)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the pictures that it takes, in pixels."""
        return self.config.image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self.config.num_classes

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.config.representation_size or self.config.dim

    def embed(self, images: Images) -> Tokens:
        """Cut images into patches and return the tokens with their positions (paper equation 1)."""
        if images.shape[-2:] != self.image_size:
            raise ModelError(
                f"The network takes images of {self.image_size[0]}x{self.image_size[1]} pixels, "
                f"not {images.shape[-2]}x{images.shape[-1]}; resize them, or call resize() on the network."
            )
        tokens = self.patch_embedding(images).flatten(2).transpose(1, 2)  # (batch, patches, dim)
        if self.config.pooling == "token":
            tokens = torch.cat([self.class_token.to(tokens.dtype).expand(len(tokens), -1, -1), tokens], dim=1)
        # Under autocast the sum would turn float32 and every block would cast it down again.
        tokens = self.dropout(self.position(tokens).to(tokens.dtype))
        if self.config.registers:
            prefix = int(self.config.pooling == "token")
            registers = self.registers.to(tokens.dtype).expand(len(tokens), -1, -1)
            tokens = torch.cat([tokens[:, :prefix], registers, tokens[:, prefix:]], dim=1)
        return tokens

    def features(self, images: Images) -> Float[Tensor, "batch features"]:
        """Return the pooled representation, the head's input (paper equation 4)."""
        tokens = self.embed(images)
        for block in self.encoder[:-1]:
            tokens = block(tokens)
        # Nothing of the last block but the class token is ever read, so no other query is computed there.
        tokens = self.norm(self.encoder[-1](tokens, 1 if self.config.pooling == "token" else None))
        pooled = self._pool(tokens)
        return pooled if self.pre_logits is None else torch.tanh(self.pre_logits(pooled))

    def _pool(self, tokens: Tokens) -> Float[Tensor, "batch dim"]:
        if self.config.pooling == "token":
            return tokens[:, 0]
        patches = tokens[:, self.config.num_prefix_tokens :]
        return self.map_head(patches) if self.config.pooling == "map" else patches.mean(dim=1)

    def forward(self, images: Images) -> Logits:
        """Return the logits."""
        return self.head(self.features(images))

    def outputs(self, images: Images) -> Outputs:
        """Return the logits; the plain ViT has nothing else to train on."""
        return Outputs(logits=self(images))

    def replace_head(self, num_classes: int) -> None:
        """Put a single zero-initialised linear layer in place of the head and its tanh layer (paper section 3.2)."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, representation_size=None, head_bias=0.0)
        weight = self.patch_embedding.weight
        self.pre_logits = None
        self.head = nn.Linear(self.config.dim, num_classes, device=weight.device, dtype=weight.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take pictures of another size: the position embedding is interpolated (paper section 3.2).

        Raises:
            ModelError: the patches do not divide that size.
        """
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.config = dataclasses.replace(self.config, image_size=size)
        self.position.resize(self.config.grid)

    def set_rates(self, *, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        """Change the regularisation in place, as fine-tuning does; the weights stay."""
        self.config = dataclasses.replace(
            self.config,
            dropout=dropout,
            attention_dropout=attention_dropout,
            stochastic_depth=stochastic_depth,
        )
        self.dropout.p = dropout
        for index, block in enumerate(self._encoder()):
            block.attention.attention_dropout = attention_dropout
            block.attention.dropout.p = dropout
            block.mlp.dropout.p = dropout
            block.stochastic_depth.rate = _depth_rate(self.config, index)

    def blocks(self) -> list[nn.Module]:
        """Return the encoder blocks in order."""
        return list(self.encoder)

    def _encoder(self) -> list[Block]:
        return cast(list[Block], list(self.encoder))

    def no_weight_decay(self) -> set[str]:
        """Return the class token, registers, probe, position embeddings, biases and norms."""
        tables = ("class_token", "registers", "map_head.probe", "position.")
        return {name for name, parameter in self.named_parameters() if parameter.ndim <= 1 or name.startswith(tables)}

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw every parameter as vit_jax does, a pure function of `seed`.

        | parameter | distribution |
        |---|---|
        | patch embedding | LeCun normal, truncated at 2 standard deviations; bias 0 |
        | class token, head's weight | 0 |
        | position embedding, registers | normal, standard deviation 0.02 |
        | query, key, value, output | Xavier uniform, each alone; bias 0 |
        | MLP | Xavier uniform; bias normal, standard deviation 1e-6 |
        | tanh layer | LeCun normal; bias 0 |
        | norms | scale 1, bias 0 |
        | head's bias | `head_bias` |
        """
        generator = torch.Generator(device=self.head.weight.device).manual_seed(seed)
        lecun_normal_(self.patch_embedding.weight, generator)
        assert self.patch_embedding.bias is not None
        nn.init.zeros_(self.patch_embedding.bias)
        if self.config.pooling == "token":
            nn.init.zeros_(self.class_token)
        if self.config.registers:
            self.registers.normal_(std=0.02, generator=generator)
        self.position.init_weights(generator)
        for block in self._encoder():
            block.init_weights(generator)
        init_norm(self.norm)
        if self.config.pooling == "map":
            self.map_head.init_weights(generator)
        if self.pre_logits is not None:
            lecun_normal_(self.pre_logits.weight, generator)
            nn.init.zeros_(self.pre_logits.bias)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, self.config.head_bias)


def _block(config: ViTConfig, index: int) -> Block:
    return Block(
        config.dim,
        config.num_heads,
        config.mlp_dim,
        gelu=config.gelu,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        stochastic_depth=_depth_rate(config, index),
        layer_scale=config.layer_scale,
    )


def _depth_rate(config: ViTConfig, index: int) -> float:
    return config.stochastic_depth * index / max(config.depth - 1, 1)
