"""RF-DETR: a detector of boxes by queries over a DINOv2 whose blocks mostly attend within windows.

Held against transformers' models/rf_detr and roboflow/rf-detr (Apache-2.0). Maps of four depths become one, the likeliest of
its places become the boxes that the queries of the decoder begin with, and while training several groups of queries learn side
by side (group DETR, arXiv 2207.13085). The decoder is in rf_detr_decoder.py.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.blocks import new_head
from vitral.models.convolution import Maps
from vitral.models.dense.answers import QueryAnswers
from vitral.models.layers import (
    BatchPart,
    FeatureMaps,
    Linear,
    TokenGrid,
    Tokens,
    init_norms,
    init_torch_default,
    seeded,
)
from vitral.models.model import Features, Images, Model, ModelConfig, Outputs, PatchGrid, Use
from vitral.models.rf_detr_decoder import BoxDecoder, BoxMlp, DecoderLayer, Queries, References, refined
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

NORM_EPS = 1e-5  # of the projector's convolutions
LAST_NORM_EPS = 1e-6  # of the norm behind them
PROPOSAL = 0.05  # sides of the box at each place, in shares of the view, that its proposal refines
BORDER = 0.01  # shares of the view: places nearer to its edge propose nothing
PRIOR_BIAS = -math.log(99)  # a probability of 0.01 for every class before training


@dataclass(frozen=True, kw_only=True, slots=True)
class RFDetrConfig(ModelConfig):
    """Everything that makes one RF-DETR, besides what `ModelConfig` says; `dropout` is the decoder's.

    Attributes:
        patch_size: Side of a patch, pixels.
        dim: Width of the backbone's tokens.
        depth: Its blocks.
        mlp_dim: Width inside their MLPs.
        num_heads: Their heads.
        windows: Windows along each side of the image.
        taps: After how many blocks a map is taken; the block after each of them attends to the whole image.
        width: Width of the joint map and of the queries.
        projector_blocks: Pairs of convolutions that make the joint map.
        decoder_layers: Layers of the decoder.
        queries: Regions that can be found in an image.
        groups: Groups of so many queries while training.
        query_heads: Heads among queries.
        sampling_heads: Heads from queries to the map.
        points: Places that each of these looks at.
        decoder_mlp_dim: Width inside the decoder's MLPs.
    """

    image_size: tuple[int, int] = (384, 384)
    patch_size: int = 16
    dim: int = 384
    depth: int = 12
    mlp_dim: int = 1536
    num_heads: int = 6
    windows: int = 2
    taps: tuple[int, ...] = (3, 6, 9, 12)
    width: int = 256
    projector_blocks: int = 3
    decoder_layers: int = 2
    queries: int = 300
    groups: int = 13
    query_heads: int = 8
    sampling_heads: int = 16
    points: int = 2
    decoder_mlp_dim: int = 2048

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        ModelConfig.__post_init__(self)
        counts = ("patch_size", "windows", "width", "decoder_layers", "queries", "groups", "points", "decoder_mlp_dim")
        for name in (*counts, "query_heads", "sampling_heads", "projector_blocks"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.width % 4 or self.width % self.query_heads or self.width % self.sampling_heads:
            raise ModelError(f"A width of {self.width} must be divided by 4 and by the numbers of the decoder's heads.")
        if (
            not self.taps
            or list(self.taps) != sorted(set(self.taps))
            or not 0 < self.taps[0] <= self.taps[-1] <= self.depth
        ):
            raise ModelError(f"taps must be rising numbers of blocks, at most {self.depth}, not {self.taps}.")
        if any(size % self.size_step for size in self.image_size):
            raise ModelError(
                f"The sides of an image must be multiples of {self.size_step} pixels, not {self.image_size}."
            )
        if math.prod(self.grid) < self.queries:
            raise ModelError(
                f"{self.queries} queries need as many patches; {self.image_size} has fewer; use a larger size."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.backbone.grid

    @property
    def backbone(self) -> ViTConfig:
        """What the backbone is."""
        return ViTConfig(
            image_size=self.image_size,
            num_classes=1,
            attention_dropout=self.attention_dropout,
            stochastic_depth=self.stochastic_depth,
            patch_size=(self.patch_size, self.patch_size),
            dim=self.dim,
            depth=self.depth,
            mlp_dim=self.mlp_dim,
            num_heads=self.num_heads,
            gelu="exact",
            layer_scale=1.0,
            position_resize="bicubic-antialias",
            initialization="deit",
        )

    @property
    def patch_grid(self) -> PatchGrid | None:
        """None: the blocks see the tokens by windows."""
        return None

    @property
    def size_step(self) -> int:
        """A number of pixels of which the sides of an image may be any multiple: a patch in every window."""
        return self.patch_size * self.windows

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use of networks that classify; export alone is the same."""
        return "" if use == "export" else "it answers with boxes, not with a class of the image"


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of maps."""

    def forward(self, maps: Maps) -> Maps:
        """Return the normed maps."""
        return super().forward(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ProjectorConvolution(nn.Module):
    """A convolution without a bias, a norm, SiLU."""

    def __init__(self, channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, kernel, padding=kernel // 2, bias=False)
        self.norm = ChannelNorm(out_channels, eps=NORM_EPS)

    def forward(self, maps: Maps) -> Maps:
        """Return the maps after the layer."""
        return functional.silu(self.norm(self.conv(maps)))


class Projector(nn.Module):
    """Makes one map of several of the same size: half of its channels go through pairs of convolutions (C2f)."""

    def __init__(self, channels: int, width: int, count: int) -> None:
        super().__init__()
        half = width // 2
        self.first = ProjectorConvolution(channels, 2 * half, 1)
        self.pairs = nn.ModuleList(
            nn.ModuleList(ProjectorConvolution(half, half, 3) for _ in range(2)) for _ in range(count)
        )
        self.last = ProjectorConvolution((2 + count) * half, width, 1)
        self.norm = ChannelNorm(width, eps=LAST_NORM_EPS)

    def forward(self, maps: Maps) -> Maps:
        """Return the joint map."""
        parts = list(self.first(maps).chunk(2, dim=1))
        for pair in cast(list[nn.ModuleList], list(self.pairs)):
            parts.append(pair[1](pair[0](parts[-1])))
        return self.norm(self.last(torch.cat(parts, dim=1)))


class Proposer(nn.Module):
    """What the places of the map say of themselves to one group of queries: classes and a box."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.linear = Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        self.boxes = BoxMlp(width, width, width, 4)

    def forward(self, places: Tokens, references: References, seen: Tensor, count: int) -> QueryAnswers:
        """Return the answers of the `count` likeliest places; those that are not `seen` come last."""
        values = self.norm(self.linear(places * seen))
        classes = self.head(values)
        likeliest = classes.amax(dim=-1).masked_fill(~seen[..., 0], -math.inf).topk(count, dim=1).indices[..., None]
        boxes = refined(references, self.boxes(values))
        return QueryAnswers(
            classes.gather(1, likeliest.expand(-1, -1, classes.shape[2])),
            boxes=boxes.gather(1, likeliest.expand(-1, -1, 4)),
        )


class RFDetr(Model):
    """RF-DETR of one `RFDetrConfig`: `QueryAnswers` of boxes; weights are undefined until `init_weights` or a checkpoint."""

    config: RFDetrConfig

    def __init__(self, config: RFDetrConfig) -> None:
        super().__init__()
        self.config = config
        width, count = config.width, config.groups * config.queries
        self.backbone = ViT(config.backbone)
        self.backbone.drop_head()
        self.projector = Projector(len(config.taps) * config.dim, width, config.projector_blocks)
        self.proposers = nn.ModuleList(Proposer(width, config.num_classes) for _ in range(config.groups))
        self.query_features = nn.Parameter(torch.empty(count, width))
        self.query_boxes = nn.Parameter(torch.empty(count, 4))
        heads = config.query_heads, config.sampling_heads
        layers = [
            DecoderLayer(width, *heads, config.points, config.decoder_mlp_dim) for _ in range(config.decoder_layers)
        ]
        self.decoder = BoxDecoder(layers, width)
        self.head = nn.Linear(width, config.num_classes)
        self.boxes = BoxMlp(width, width, width, 4)
        self.apply_rates()

    def forward(self, images: Images) -> QueryAnswers:  # type: ignore[override]  # it does not classify
        """Return the answers; while training those of all groups, and of earlier layers beside."""
        return self.answer(images)

    def outputs(self, images: Images, part: BatchPart | None = None) -> Outputs:
        """Return the answers in training."""
        return Outputs(logits=self.answer(images, part))  # type: ignore[arg-type]

    def answer(self, images: Images, part: BatchPart | None = None) -> QueryAnswers:
        """Return the answers of the last layer; while training with those of the earlier ones, proposals first."""
        maps = self.encode(images, part).maps
        grid = (maps.shape[2], maps.shape[3])
        places = maps.flatten(2).transpose(1, 2)
        groups = self.config.groups if self.training else 1
        proposed = self.proposed(places, grid, groups)
        assert proposed.boxes is not None
        count = groups * self.config.queries
        references = refined(proposed.boxes.detach(), self.query_boxes[:count])
        queries = self.query_features[:count].repeat(len(images), 1, 1)
        after = self.decoder(queries, references, places, grid, groups)
        if not self.training:
            return self._answers(after[-1], references, 1)
        *earlier, last = [self._answers(layer, references, groups) for layer in after]
        return dataclasses.replace(last, earlier=(proposed, *earlier))

    def _answers(self, queries: Queries, references: References, groups: int) -> QueryAnswers:
        return QueryAnswers(self.head(queries), boxes=refined(references, self.boxes(queries)), groups=groups)

    def proposed(self, places: Tokens, grid: tuple[int, int], groups: int) -> QueryAnswers:
        """Return what the likeliest places of the map say of themselves, one group after the other."""
        rows, columns = grid
        y = (torch.arange(rows, device=places.device) + 0.5)[:, None].expand(rows, columns) / rows
        x = (torch.arange(columns, device=places.device) + 0.5).expand(rows, columns) / columns
        side = torch.full_like(x, PROPOSAL)
        references = torch.stack([x, y, side, side], dim=-1).flatten(0, 1)[None].to(places.dtype)
        seen = ((references > BORDER) & (references < 1 - BORDER)).all(dim=-1, keepdim=True)
        proposers = list(self.proposers)[:groups]
        answers = [proposer(places, references * seen, seen, self.config.queries) for proposer in proposers]
        return QueryAnswers(
            torch.cat([answer.classes for answer in answers], dim=1),
            boxes=torch.cat([answer.boxes for answer in answers], dim=1),
            groups=groups,
        )

    def encode(self, images: Images, part: BatchPart | None = None) -> FeatureMaps:
        """Return the joint map of the backbone's blocks."""
        z = self.backbone.embed(self.backbone.patches(images))
        tokens, taps = self._windowed(z), self.config.taps
        count = self.config.windows**2
        windows = None if part is None else BatchPart(part.first * count, part.total * count)
        maps = []
        for index, block in enumerate(self.backbone.blocks()[: taps[-1]]):
            if index in taps:  # the whole image: the tokens of its windows, one after the other
                whole, _ = block(tokens.reshape(len(images), -1, tokens.shape[2]), part=part)
                tokens = whole.reshape(tokens.shape)
            else:
                tokens, _ = block(tokens, part=windows)
            if index + 1 in taps:
                maps.append(self._joined(self.backbone.norm(tokens)))
        return FeatureMaps(self.projector(torch.cat(maps, dim=1)))

    def _windowed(self, z: TokenGrid) -> Tokens:
        """Return the tokens of each window, row by row of windows, with a class token before each, as a batch."""
        windows, (rows, columns) = self.config.windows, self.config.grid
        patches = z.patches.reshape(len(z.tokens), windows, rows // windows, windows, columns // windows, -1)
        patches = patches.transpose(2, 3).flatten(3, 4).flatten(0, 2)
        return torch.cat([z.tokens[:, :1].repeat_interleave(windows**2, dim=0), patches], dim=1)

    def _joined(self, tokens: Tokens) -> Maps:
        """Return the map of an image's windows: the inverse of `_windowed`, without class tokens."""
        windows, (rows, columns) = self.config.windows, self.config.grid
        shape = (-1, windows, windows, rows // windows, columns // windows, tokens.shape[2])
        return tokens[:, 1:].reshape(shape).permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the mean of the joint map."""
        return encoded.maps.mean(dim=(2, 3))

    @property
    def maps_at(self) -> str:
        """The name by which `record` finds the joint map."""
        return "projector"

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace what says the classes of queries and of proposals; what finds boxes stays."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, head_bias=0.0)
        like, generator = self.head.weight, seeded(self, seed)
        for answering in self._answering():
            answering.head = new_head(self.config.width, num_classes, like)
            _init_classes(answering.head, generator)

    def _answering(self) -> list["RFDetr | Proposer"]:
        """Return all that says classes and boxes: of queries, and of each group's proposals."""
        return [self, *cast(list[Proposer], list(self.proposers))]

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Take images of another size: the backbone's positions are interpolated; see `Model.resize`."""
        super().resize(image_size)
        self.backbone.resize(image_size)

    def apply_rates(self) -> None:
        """Hand the rates to the layers: dropout to the decoder's, the others to all."""
        self.backbone.config = self.config.backbone
        self.backbone.apply_rates()
        for layer in cast(list[DecoderLayer], list(self.decoder.layers)):
            layer.dropout.p = self.config.dropout
            layer.attention.attention_dropout = self.config.attention_dropout

    def blocks(self) -> list[nn.Module]:
        """Return the backbone's blocks and the decoder's layers."""
        return [*self.backbone.blocks(), *self.decoder.layers]

    def no_weight_decay(self) -> set[str]:
        """Return biases, norms and the backbone's tokens and positions."""
        return super().no_weight_decay() | {f"backbone.{name}" for name in self.backbone.no_weight_decay()}

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Backbone as DINOv2's, projector as torch draws, decoder Xavier-uniform; boxes begin as proposed, queries normal."""
        generator = seeded(self, seed)
        init_norms(self)
        self.backbone.init_weights(seed)
        for module in self.projector.modules():
            if isinstance(module, nn.Conv2d):
                init_torch_default(module, generator)
        for layer in cast(list[DecoderLayer], list(self.decoder.layers)):
            layer.init_weights(generator)
        self.decoder.positions.init_weights(generator)
        for answering in self._answering():
            _init_classes(answering.head, generator)
            answering.boxes.init_weights(generator, last=False)
            if isinstance(answering, Proposer):
                init_torch_default(answering.linear, generator)
        self.query_features.normal_(generator=generator)
        nn.init.zeros_(self.query_boxes)


def _init_classes(head: nn.Linear, generator: torch.Generator) -> None:
    init_torch_default(head, generator)
    nn.init.constant_(head.bias, PRIOR_BIAS)
