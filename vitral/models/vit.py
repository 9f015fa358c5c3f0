"""The Vision Transformer ("An Image Is Worth 16x16 Words", arXiv 2010.11929, section 3).

Held against models_vit.py of google-research/vision_transformer and models/vit.py of google-research/big_vision. The class
opens with its parts and the forward pass, in the order of the paper's equations 1 to 4; what changes a network and how its
weights are drawn come after.
"""

import dataclasses
import math
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.attention import Attention, Mask
from vitral.models.blocks import Block, LayerScale, MapHead, TanhLayer, new_head
from vitral.models.convolution import WhitenedStem, WhitenedStemConfig, whitening_filters
from vitral.models.experts import MixtureOfExperts
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    TokenGrid,
    depth_rate,
    init_linear_deit,
    init_norms,
    init_torch_default,
    lecun_normal_,
    seeded,
)
from vitral.models.model import ExplainedBy, Features, Images, Logits, Outputs, Positions, TokenModel
from vitral.models.position import PositionEmbedding, RotaryPosition, Rotation
from vitral.models.resnet import ResNetStem, StemConfig
from vitral.models.vit_config import ViTConfig


class ViT(TokenModel):
    """The Vision Transformer of one `ViTConfig`; weights are undefined until `init_weights` or a checkpoint.

    Each step of the forward pass is a function of its arguments alone, and may be taken on its own; see `TokenModel`.
    """

    config: ViTConfig
    explained_by: ClassVar[ExplainedBy] = "attention"
    undecayed: ClassVar[tuple[str, ...]] = (
        *("class_token", "distillation_token", "registers", "map_head.probe"),
        *(".embedding", ".rows", ".columns", ".relative", ".relative_grid.table"),  # of positions
        *(".mlp.fc1.bias", ".mlp.fc2.bias"),  # of experts
    )

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.stem = None if config.stem is None else build_stem(config.stem)
        channels = config.stem.channels if config.stem else 3
        self.patch_embedding = nn.Conv2d(channels, dim, config.patch_size, config.stride_on_map, bias=config.patch_bias)
        if config.class_token:
            self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        if config.distilled:
            self.distillation_token = nn.Parameter(torch.empty(1, 1, dim))
        if config.registers:
            self.registers = nn.Parameter(torch.empty(1, config.registers, dim))
        self.position = _position(config)
        if config.norm_before:
            self.norm_before = nn.LayerNorm(dim, eps=config.norm_eps)
        if config.rotary != "none":
            moves = {"shift": config.rotary_shift, "jitter": config.rotary_jitter, "rescale": config.rotary_rescale}
            self.rotary = RotaryPosition(config.rotary, config.grid, dim // config.num_heads, **moves)
        self.dropout = nn.Dropout(0.0)
        if config.position_at == "layers":
            self.later_positions = nn.ModuleList(_position(config) for _ in range(config.depth - 1))
        self.encoder = nn.ModuleList(_block(config, index) for index in range(config.depth))
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        if config.pooling == "map":
            self.map_head = MapHead(dim, config.num_heads, config.mlp_dim, gelu=config.gelu)
        representation = config.representation_size
        self.pre_logits = TanhLayer(config.num_features, representation) if representation else None
        self.head = nn.Linear(representation or config.num_features, config.num_classes)
        self.distillation_head = nn.Linear(dim, config.num_classes) if config.distilled else None
        self.apply_rates()

    def forward(self, images: Images) -> Logits:
        """Return the logits; of a distilled network the mean of both heads', as DeiT's code has it (models.py)."""
        return self.classify(self.encode(images, num_queries=self._num_read))

    def answers(self, images: Images) -> tuple[Logits, Features]:
        """Return the logits and the pooled representation, in one pass."""
        encoded = self.encode(images, num_queries=self._num_read)
        return self.classify(encoded), self.pool(encoded)

    def classify(self, encoded: TokenGrid) -> Logits:
        """Return the logits that the network reads from normalised tokens; the mean of both heads', if distilled."""
        logits = self.head(self.pool(encoded))
        if self.distillation_head is None:
            return logits
        return (logits + self.distillation_head(encoded.tokens[:, 1])) / 2

    def outputs(self, images: Images, part: BatchPart | None = None) -> Outputs:
        """Return the logits of each head, and the experts' auxiliary losses, each summed over the blocks."""
        encoded = self.encode(images, part, num_queries=self._num_read)
        logits = self.head(self.pool(encoded))
        distilled = None if self.distillation_head is None else self.distillation_head(encoded.tokens[:, 1])
        return Outputs(logits=logits, distillation_logits=distilled, auxiliary=dict(encoded.losses))

    def features(self, images: Images, part: BatchPart | None = None) -> Features:
        """Return the pooled representation, the head's input (paper equation 4); of the class token if distilled."""
        return self.pool(self.encode(images, part, num_queries=self._num_read))

    def encode(self, images: Images, part: BatchPart | None = None, *, num_queries: int | None = None) -> TokenGrid:
        """Return the tokens after the encoder and its norm; only the first `num_queries` where that is given."""
        z = self.embed(self.patches(images))  # equation 1
        z = self.transform(z, num_queries=num_queries, part=part)  # equations 2 and 3
        return self.normalize(z)  # the norm of equation 4

    def patches(self, images: Images) -> TokenGrid:
        """Cut images into patches and project each to a token: the x_p E of equation 1."""
        self.check_size(images)
        maps = images if self.stem is None else self.stem(images)
        return TokenGrid(self.patch_embedding(maps).flatten(2).transpose(1, 2), self.config.grid)

    def embed(self, patches: TokenGrid) -> TokenGrid:
        """Put the class token before the patches and add the positions (equation 1): [x_class; x_p E] + E_pos.

        Registers come after the positions, which they have none of; where the config has a norm before the encoder, it comes
        last.
        """
        tokens = patches.tokens
        pooled = [self.class_token] if self.config.class_token else []
        pooled += [self.distillation_token] if self.config.distilled else []
        if pooled:
            tokens = torch.cat([*(_repeated(token, tokens) for token in pooled), tokens], dim=1)
        # Under autocast the sum would turn float32 and every block would cast it down again.
        if self.config.position_at == "input":
            tokens = self.position(tokens).to(tokens.dtype)
        tokens = self.dropout(tokens)
        if self.config.registers:
            prefix = len(pooled)
            tokens = torch.cat([tokens[:, :prefix], _repeated(self.registers, tokens), tokens[:, prefix:]], dim=1)
        if self.config.norm_before:
            tokens = self.norm_before(tokens).to(tokens.dtype)
        rotation = None if self.config.rotary == "none" else self.rotary()
        return TokenGrid(tokens, patches.grid, prefix=self.config.num_prefix_tokens, rotation=rotation)

    def transform(
        self,
        z: TokenGrid,
        *,
        start: int = 0,
        stop: int | None = None,
        num_queries: int | None = None,
        mask: Mask | None = None,
        part: BatchPart | None = None,
    ) -> TokenGrid:
        """Return the tokens after the encoder's blocks (equations 2 and 3), or after some of them; see `TokenModel`."""
        tokens, losses = z.tokens, dict(z.losses)
        rotation = self._rotation(z)
        blocks = self.blocks()[start:stop]
        for index, block in enumerate(blocks, start):
            queries = num_queries if block is blocks[-1] else None
            if self.config.position_at != "input":
                tokens = self._position_of(index, z)(tokens).to(tokens.dtype)
            tokens, auxiliary = block(tokens, num_queries=queries, mask=mask, rotation=rotation, part=part)
            losses |= {name: losses[name] + loss if name in losses else loss for name, loss in auxiliary.items()}
        if num_queries is not None:
            return TokenGrid(tokens, grid=None, prefix=num_queries, losses=losses)
        return TokenGrid(tokens, z.grid, z.prefix, z.suffix, losses, z.rotation)

    def _position_of(self, block: int, z: TokenGrid) -> nn.Module:
        """Return what adds the positions at the beginning of a block."""
        if z.grid is None or z.suffix:
            raise ModelError(
                "Positions in every block need the patches of the grid alone: none dropped, merged or added."
            )
        return self.later_positions[block - 1] if block and self.config.position_at == "layers" else self.position

    def _rotation(self, z: TokenGrid) -> Rotation | None:
        if self.config.rotary == "none":
            return None
        if z.rotation is None:
            raise ModelError("Rotary positions need every patch of the grid: none can be dropped or merged.")
        return z.rotation.among(z.prefix, z.suffix)

    def normalize(self, z: TokenGrid) -> TokenGrid:
        """Return the tokens after the encoder's norm (the LN of equation 4); as they are, if that norm comes later."""
        return z if self.config.norm_pooled else z.with_tokens(self.norm(z.tokens))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return one vector an image, the head's input: y of equation 4, or another pooling, through the tanh layer."""
        assert isinstance(encoded, TokenGrid), "it is not what this network gives"
        if self.config.pooling == "token":
            pooled = encoded.tokens[:, 0]
        elif self.config.pooling == "map":
            pooled = self.map_head(encoded.patches)
        elif self.config.pooling == "token-gap":
            pooled = torch.cat([encoded.tokens[:, 0], encoded.patches.mean(dim=1)], dim=1)
        else:
            pooled = encoded.patches.mean(dim=1)
            pooled = self.norm(pooled) if self.config.norm_pooled else pooled
        return pooled if self.pre_logits is None else self.pre_logits(pooled)

    @property
    def maps_at(self) -> str:
        """The stem of a hybrid, which is its feature map; else where the tokens enter the last attention, as of T2T-ViT."""
        return f"blocks.{self.config.depth - 1}.norm1" if self.stem is None else "stem"

    def token_shares(
        self, tokens: Float[Tensor, "batch outputs dim"], num_tokens: int
    ) -> Float[Tensor, "batch tokens"]:
        """Return the share that each token has in the pooled representation, summing to 1.

        With a distillation token both heads count the same; of attention pooling it is the mean over its heads; of a class
        token beside the mean over the patches both halves of what the head reads count the same.
        """
        prefix, pooling = self.config.num_prefix_tokens, self.config.pooling
        shares = torch.zeros(len(tokens), num_tokens, device=tokens.device)
        if pooling == "token":
            read = self.config.num_pooled_tokens
            shares[:, :read] = 1.0 / read
        elif pooling == "map":
            shares[:, prefix:] = self.map_head.shares(tokens[:, prefix:])
        else:
            shares[:, prefix:] = 1.0 / (num_tokens - prefix)
            if self.config.class_token:
                shares /= 2
                shares[:, 0] = 0.5
        return shares

    def patch_filters(self) -> Float[Tensor, "dim 3 height width"] | None:
        """Return the filters of the patch embedding; None for a hybrid, because it cuts patches from a feature map."""
        return None if self.stem is not None else self.patch_embedding.weight

    def positions(self) -> Positions | None:
        """Return the position embedding of the patches; None where it is relative or there is none."""
        table = self.position.patch_embedding()
        if table is None:
            return None
        learned = self.config.position.startswith("learned")
        several = learned and self.config.position_at == "layers"
        return Positions(table[0], "learned" if learned else "fixed", self.config.depth if several else 1)

    @property
    def _num_read(self) -> int | None:
        """How many of the last block's tokens the head reads; None for all."""
        # Nothing of the last block but the pooled tokens is ever read, so no other query is computed there; but experts
        # give out their slots among all tokens.
        experts = self.config.experts
        if self.config.pooling != "token" or (experts and self.config.depth - 1 in experts.blocks):
            return None
        return self.config.num_pooled_tokens

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.config.representation_size or self.config.num_features

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace the head and its tanh layer by a single linear layer (paper section 3.2); zero, but for DeiT's."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, representation_size=None, head_bias=0.0)
        self.pre_logits = None
        like = self.head.weight
        self.head = new_head(self.config.num_features, num_classes, like)
        if self.config.distilled:
            self.distillation_head = new_head(self.config.dim, num_classes, like)
        self.init_head(seeded(self, seed))

    @property
    def channels(self) -> int:
        """The width of a token."""
        return self.config.dim

    def drop_head(self) -> None:
        """Drop both heads, their tanh layer and the pooling attention, because another head takes their place."""
        super().drop_head()
        self.pre_logits = self.distillation_head = None
        if "map_head" in self._modules:
            del self.map_head

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size: the position embedding is interpolated (paper section 3.2).

        Raises:
            ModelError: The patches do not divide that size, or positions are relative, of which only one grid is known.
        """
        if self.config.position == "relative" and _other_grid(self.config, image_size):
            raise ModelError(
                "Relative positions are of one image size; take the network at the size that it was trained at."
            )
        super().resize(image_size)
        for position in self._positions():
            position.resize(self.config.grid)
        for block in cast(list[Block], self.blocks()):
            if (relative := block.attention.relative_grid) is not None:
                relative.resize(self.config.grid)
        if self.config.rotary != "none":
            self.rotary.resize(self.config.grid)

    def _positions(self) -> list[PositionEmbedding]:
        """Return what adds positions: one, or one for every block."""
        later = list(self.later_positions) if self.config.position_at == "layers" else []
        return [self.position, *cast(list[PositionEmbedding], later)]

    def apply_rates(self) -> None:
        """Hand the config's rates to the layers."""
        config = self.config
        self.dropout.p = config.dropout
        for index, block in enumerate(cast(list[Block], self.blocks())):
            rate = config.stochastic_depth
            block.set_rates(
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                stochastic_depth=rate if config.even_depth else depth_rate(rate, index, config.depth),
            )
            if isinstance(block.mlp, MixtureOfExperts):
                block.mlp.take_rate(config.dropout)

    def blocks(self) -> list[nn.Module]:
        """Return the encoder blocks in order."""
        return list(self.encoder)

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
        bias is `head_bias`, registers are normal with 1e-6 (DINOv2); stem, experts, pooling head and relative positions: see
        their own files. "whitened" is as vit_jax, but that the projection of the patches begins with the filters that whiten
        them, those of the largest variances first (see `whitening_filters`); what they do not fill is drawn.
        """
        generator = seeded(self, seed)
        init_norms(self)
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
        if self.config.initialization == "whitened":
            filters = whitening_filters(self.config.patch_size[0])[: self.config.dim]
            self.patch_embedding.weight[: len(filters)] = filters
        if self.patch_embedding.bias is not None:
            nn.init.zeros_(self.patch_embedding.bias)
        if self.config.class_token:
            nn.init.zeros_(self.class_token)
        std = self.config.dim**-0.5 if self.config.initialization == "big_vision" else 0.02
        for position in self._positions():
            position.init_weights(generator, std=std)
        for block in cast(list[Block], self.blocks()):
            block.init_weights(generator)
        if self.config.pooling == "map":
            self.map_head.init_weights(generator)
        if self.pre_logits is not None:
            lecun_normal_(self.pre_logits.weight, generator)
            nn.init.zeros_(self.pre_logits.bias)
        if self.config.distilled:
            nn.init.trunc_normal_(self.distillation_token, std=0.02, generator=generator)

    def _init_as_deit(self, generator: torch.Generator) -> None:
        if self.config.class_token:
            nn.init.trunc_normal_(self.class_token, std=0.02, generator=generator)
        if self.config.distilled:
            nn.init.trunc_normal_(self.distillation_token, std=0.02, generator=generator)
        for position in self._positions():
            position.init_weights(generator, std=0.02)
        init_torch_default(self.patch_embedding, generator)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module not in (self.head, self.distillation_head):
                init_linear_deit(module, generator)
            elif isinstance(module, LayerScale):
                nn.init.constant_(module.scale, module.initial)
            elif isinstance(module, Attention):
                module.init_relative(generator)

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


def build_stem(config: StemConfig | WhitenedStemConfig) -> ResNetStem | WhitenedStem:
    """Return the convolutions of a hybrid, without weights."""
    return WhitenedStem(config) if isinstance(config, WhitenedStemConfig) else ResNetStem(config)


def _repeated(token: Tensor, like: Tensor) -> Tensor:
    """Return learned tokens (1, tokens, dim) once for each image of `like`, in its precision."""
    return token.to(like.dtype).expand(like.shape[0], -1, -1)


def _position(config: ViTConfig) -> PositionEmbedding:
    return PositionEmbedding(
        config.position,
        config.grid,
        config.dim,
        prefix=config.num_pooled_tokens,
        prefix_rows=config.class_position,
        method=config.position_resize,
    )


def _other_grid(config: ViTConfig, image_size: int | tuple[int, int]) -> bool:
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    return dataclasses.replace(config, image_size=size).grid != config.grid


def _block(config: ViTConfig, index: int) -> Block:
    experts = config.experts if config.experts and index in config.experts.blocks else None
    mixture = MixtureOfExperts(config.dim, config.mlp_dim, experts, gelu=config.gelu) if experts else None
    return Block(
        config.dim,
        config.num_heads,
        config.mlp_dim,
        mlp=config.mlp,
        gelu=config.gelu,
        norm_eps=config.norm_eps,
        qkv_bias=config.qkv_bias,
        layer_scale=config.layer_scale,
        experts=mixture,
        relative=math.prod(config.grid) + config.num_prefix_tokens if config.position == "relative" else None,
        grid=config.grid if config.position == "relative-2d" else None,
        prefix=config.num_prefix_tokens,
    )
