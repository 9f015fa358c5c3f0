"""The few calls that every network answers, whatever its family, and what every config says."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.attention import Mask
from vitral.models.blocks import new_head
from vitral.models.layers import BatchPart, FeatureMaps, TokenGrid, seeded

Images = Float[Tensor, "batch 3 height width"]
Features = Float[Tensor, "batch features"]
Logits = Float[Tensor, "batch classes"]
Grid = tuple[int, int]  # rows and columns

HEADS = ("head.", "distillation_head.")  # what the names of the layers that give logits begin with
SIZE_STEP = 32  # pixels: what the strides of most networks divide
# Beyond what anyone builds; a description from elsewhere must not keep us busy for hours.
LARGEST = 16_384  # pixels of a side
DEEPEST = 1_000  # blocks

# What else than classifying a network may serve for: its attention is followed from the answer to the image ("rollout"); other
# tokens stand in the place of its patches ("replacing"); some patches are hidden and rebuilt, in the blocks ("masking") or by
# leaving them out ("dropping"); others join them between blocks ("appending"); tokens become one there ("merging"); images of
# several sizes share one sequence ("packing"); it becomes one graph for all images ("export").
Use = Literal["rollout", "replacing", "masking", "dropping", "appending", "merging", "packing", "export"]
# What explains an answer best: the attention; the last maps and their gradients; or the weights, where the logits are a linear
# layer on the last maps.
ExplainedBy = Literal["attention", "gradients", "weights"]
NO_ATTENTION = "it has no attention"
NO_TOKENS = "it is no Vision Transformer"


@dataclass(frozen=True)
class PatchGrid:
    """Where the tokens of a network lie, the same in all of its blocks.

    Attributes:
        sides: Rows and columns of patches.
        stride: Step between patches, (height, width) in pixels.
        prefix: Number of tokens before the patches: class token, distillation token and registers.
        dim: Width of a token.
    """

    sides: Grid
    stride: tuple[int, int]
    prefix: int
    dim: int


@dataclass(frozen=True)
class Positions:
    """The position embedding of a network.

    Attributes:
        table: What is added to each patch, in raster order.
        kind: "learned" or "fixed".
        tables: Number of different tables: one, or one a block, of which `table` is the first block's.
    """

    table: Float[Tensor, "patches dim"]
    kind: Literal["learned", "fixed"]
    tables: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """What the config of every family says.

    Attributes:
        image_size: Height and width of the images, pixels.
        num_classes: Logits (K).
        head_bias: Initial bias of the head: -10 with the sigmoid loss of the original's large sets, else 0.
        dropout: Rate, where the family's paper has it.
        attention_dropout: Rate on the attention probabilities; 0 in every published model.
        stochastic_depth: Rate of leaving out a residual branch in the last block, growing linearly from 0 in the first.
    """

    image_size: tuple[int, int] = (224, 224)
    num_classes: int = 1000
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise ModelError(f"image_size must be a height and a width of at least 1, not {self.image_size}.")
        if max(self.image_size) > LARGEST:
            raise ModelError(f"image_size must be at most {LARGEST} pixels, not {self.image_size}.")
        if self.num_classes < 1:
            raise ModelError(f"num_classes must be at least 1, not {self.num_classes}.")
        blocks = getattr(self, "depth", 0), *getattr(self, "depths", ()), *getattr(self, "stages", ())
        if max(blocks) > DEEPEST:
            raise ModelError(f"A network has at most {DEEPEST} blocks, not {max(blocks)}.")
        for rate in ("dropout", "attention_dropout", "stochastic_depth"):
            if not 0.0 <= getattr(self, rate) < 1.0:
                raise ModelError(f"{rate} must be at least 0 and below 1, not {getattr(self, rate)}.")

    def obstacle_to(self, use: Use) -> str:
        """Return what keeps the network from a use, as part of a sentence; empty if nothing does."""
        return {"rollout": NO_ATTENTION, "export": ""}.get(use, NO_TOKENS)

    @property
    def patch_grid(self) -> PatchGrid | None:
        """Where the tokens of all blocks lie; None where there are no patches, or blocks differ."""
        return None

    @property
    def size_step(self) -> int:
        """A number of pixels of which the sides of an image may be any multiple."""
        return SIZE_STEP

    @property
    def finer(self) -> tuple[tuple[int, int], ...]:
        """Stride, in pixels, and channels of each of `FeatureMaps.finer`, as far as the network gives any."""
        return ()

    @property
    def region_head(self) -> Any:  # noqa: ANN401  # a HeadConfig, which stands above
        """The config of the head whose answer is about regions of the image; None where images are classified."""
        return None

    @property
    def known_macs(self) -> int | None:
        """Multiply-accumulates of one image, by a formula; None where the network must be built to be counted."""
        return None


@dataclass(frozen=True)
class Outputs:
    """What a network gives while it trains.

    Attributes:
        logits: The classification head's logits, (batch, classes).
        distillation_logits: The distillation head's, (batch, classes), where there is one.
        auxiliary: Auxiliary losses by name, scalars.
    """

    logits: Tensor
    distillation_logits: Tensor | None = None
    auxiliary: dict[str, Tensor] = field(default_factory=dict)


torch.export.register_dataclass(Outputs)  # torch's sharding looks for the tensors in what a network returns


class Model(nn.Module, ABC):
    """An image classifier network: images (batch, 3, height, width) in, logits (batch, classes) out.

    Its weights are undefined until `init_weights` or a checkpoint.
    """

    config: Any  # the family's own ModelConfig
    head: nn.Linear
    explained_by: ClassVar[ExplainedBy] = "gradients"
    undecayed: ClassVar[tuple[str, ...]] = ()  # endings of parameters' names that weight decay leaves alone, besides

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that it takes, in pixels.

        Without tables of positions (BiT, ResNet, CvT, EfficientNet) it takes others as well.
        """
        return self.config.image_size

    @property
    def num_classes(self) -> int:
        """The number of logits."""
        return self.config.num_classes

    @property
    def num_features(self) -> int:
        """The width of what `features` returns."""
        return self.head.in_features

    @property
    def channels(self) -> int:
        """The width of the maps that `encode` gives; where they are pooled by their mean, that of `features`."""
        return self.num_features

    def drop_head(self) -> None:
        """Drop what stands behind `encode`, because another head takes its place; logits are no more."""
        self.head = NoHead(self.head.in_features)

    @property
    def weights_bytes(self) -> int:
        """The size of all tensors that a checkpoint holds."""
        return sum(tensor.nbytes for tensor in self.state_dict().values())

    @abstractmethod
    def encode(self, images: Images, part: BatchPart | None = None) -> TokenGrid | FeatureMaps:
        """Return what the backbone makes of the images, for a head of whatever kind.

        Args:
            images: Images at the network's size.
            part: Which examples of a batch these are, while training with stochastic depth; None for all.
        """

    def features(self, images: Images, part: BatchPart | None = None) -> Features:
        """Return the pooled representation, the head's input."""
        return self.pool(self.encode(images, part))

    def pool(self, encoded: TokenGrid | FeatureMaps) -> Features:
        """Return the pooled representation of what `encode` gave: what `features` returns, where a caller needs both.

        Raises:
            ModelError: The network does not say how.
        """
        raise ModelError(f"{type(self).__name__} does not say how it pools what its backbone gives.")

    def forward(self, images: Images) -> Logits:
        """Return the logits."""
        return self.head(self.features(images))

    def answers(self, images: Images) -> tuple[Logits, Features]:
        """Return the logits and what `features` returns, in one pass."""
        features = self.features(images)
        return self.head(features), features

    def outputs(self, images: Images, part: BatchPart | None = None) -> Outputs:
        """Return the logits and whatever else the training losses need."""
        return Outputs(logits=self.head(self.features(images, part)))

    def replace_head(self, num_classes: int, *, seed: int = 0) -> None:
        """Replace the head by a linear layer of `num_classes` outputs, drawn from `seed` as a new network's is."""
        self.config = dataclasses.replace(self.config, num_classes=num_classes, head_bias=0.0)
        self.head = new_head(self.head.in_features, num_classes, self.head.weight)
        self.init_head(seeded(self, seed))

    @torch.no_grad()
    def init_head(self, generator: torch.Generator) -> None:
        """Draw the head as the family's source does: weights of 0 and a bias of `head_bias`, unless a family says otherwise."""
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, self.config.head_bias)

    def take_head(self, fitted: "Model") -> bool:
        """Begin with the head that was fitted in closed form on another network's features; return whether it fits."""
        weights = {name: tensor for name, tensor in fitted.state_dict().items() if name.startswith(HEADS)}
        self.load_state_dict(weights, strict=False)
        return True

    def without_region_head(self) -> "Model":
        """Return the network itself, or the backbone that its head of regions stands on."""
        return self

    def resize(self, image_size: int | tuple[int, int]) -> None:
        """Make the network take images of another size, an int or (height, width), in pixels.

        Raises:
            ModelError: The network cannot take that size.
        """
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.config = dataclasses.replace(self.config, image_size=size)

    def set_rates(self, *, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        """Change the regularisation in place, as fine-tuning does; the weights stay.

        Raises:
            ModelError: A rate above 0 that the family has no place for.
        """
        self.config = dataclasses.replace(
            self.config, dropout=dropout, attention_dropout=attention_dropout, stochastic_depth=stochastic_depth
        )
        self.apply_rates()

    @abstractmethod
    def apply_rates(self) -> None:
        """Hand the config's rates to the layers."""

    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """Return the repeated blocks in order: the unit of compiling, checkpointing and layer-wise decay."""

    def no_weight_decay(self) -> set[str]:
        """Return the names of the parameters that weight decay leaves alone: biases and norms, at the least."""
        named = self.named_parameters()
        return {name for name, parameter in named if parameter.ndim <= 1 or name.endswith(self.undecayed)}

    @abstractmethod
    def init_weights(self, seed: int) -> None:
        """Draw every parameter, as a pure function of `seed`."""

    def fixed_tensors(self) -> dict[str, Tensor]:
        """Return tensors that are computed, not learned, and that some checkpoints leave out; none for most families."""
        return {}

    @property
    def maps_at(self) -> str:
        """The name by which `record` finds the last feature maps, or tokens that lie on a grid."""
        return f"blocks.{len(self.blocks()) - 1}"

    def attention_grids(self, block: int, image_size: tuple[int, int]) -> tuple[Grid, Grid] | None:
        """Return where the queries and the keys of a block's attention lie, a class token aside; None for on no grid."""
        grid: PatchGrid | None = self.config.patch_grid
        return None if grid is None else (grid.sides, grid.sides)

    def token_shares(
        self, tokens: Float[Tensor, "batch outputs dim"], num_tokens: int
    ) -> Float[Tensor, "batch tokens"]:
        """Return the share that each token has in what `features` returns, summing to 1: all is the class token's.

        Args:
            tokens: The tokens behind the last norm that were computed.
            num_tokens: Number of tokens of the last block.
        """
        shares = torch.zeros(len(tokens), num_tokens, device=tokens.device)
        shares[:, 0] = 1.0
        return shares

    def patch_filters(self) -> Float[Tensor, "dim 3 height width"] | None:
        """Return the filters that make tokens of an image's patches; None where none are applied to the image itself."""
        return None

    def positions(self) -> Positions | None:
        """Return the position embedding; None where there is none."""
        return None

    def check_size(self, images: Images) -> None:
        """Refuse images of another size than the network's, where its tables are of that size.

        Raises:
            ModelError: Both sizes are named.
        """
        if images.shape[-2:] != self.image_size:
            raise ModelError(
                f"The network takes images of {self.image_size[0]}x{self.image_size[1]} pixels, "
                f"not {images.shape[-2]}x{images.shape[-1]}; resize them, or call resize() on the network."
            )


class NoHead(nn.Linear):
    """Stands where a backbone had its head: it can be drawn, but has no parameters, and no checkpoint holds it."""

    def __init__(self, in_features: int) -> None:
        super().__init__(in_features, 1)
        for name, shape in (("weight", (1, in_features)), ("bias", (1,))):
            delattr(self, name)
            # Never on the meta device, from which only a checkpoint would bring it.
            self.register_buffer(name, torch.zeros(shape, device="cpu"), persistent=False)


class TokenModel(Model):
    """A network of tokens, with a forward pass that can be taken step by step.

    What lies between two steps (dropped, masked or further tokens) is the caller's, as far as `obstacle_to` says nothing
    against it.
    """

    @abstractmethod
    def patches(self, images: Images) -> TokenGrid:
        """Cut images into patches and project each to a token."""

    @abstractmethod
    def embed(self, patches: TokenGrid) -> TokenGrid:
        """Put the further tokens before the patches and add the positions.

        Args:
            patches: One token for every patch of the grid, as `patches` gives them or changed; what drops some does so later.
        """

    @abstractmethod
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
        """Return the tokens after the blocks, or after some of them.

        Args:
            z: The tokens, as `embed` gives them, or with some dropped, merged or appended.
            start: The first block, counted from 0.
            stop: The block before which to stop; None for all.
            num_queries: How many tokens, from the first on, the last of these blocks computes; all if None.
            mask: Which tokens each token may attend to; all if None.
            part: Which examples of a batch these are; all if None.
        """

    @abstractmethod
    def normalize(self, z: TokenGrid) -> TokenGrid:
        """Return the tokens after the norm behind the blocks."""

    def classify(self, encoded: TokenGrid) -> Logits:
        """Return the logits that the network reads from normalised tokens."""
        return self.head(self.pool(encoded))


def token_model(network: nn.Module, use: Use, needs: str) -> TokenModel:
    """Return a network as one of tokens.

    Args:
        network: The network.
        use: What it is to serve for.
        needs: The beginning of the message where it cannot, before a colon and the reason.

    Raises:
        ModelError: The network cannot serve for that.
    """
    reason = network.config.obstacle_to(use) if isinstance(network, Model) else NO_TOKENS
    if reason or not isinstance(network, TokenModel):
        raise ModelError(f"{needs}: {reason or NO_TOKENS}.")
    return network


def refuse_heads(widths: Sequence[int], heads: Sequence[int]) -> None:
    """Refuse numbers of attention heads that cannot share out the widths of their stages, by a ModelError."""
    if any(width % count for width, count in zip(widths, heads, strict=True)):
        raise ModelError(f"The widths {tuple(widths)} cannot be shared out to {tuple(heads)} heads evenly.")


def refuse_rates(config: ModelConfig, family: str, *names: str) -> None:
    """Refuse rates above 0 that a family has no place for, by a ModelError."""
    for name in names:
        if getattr(config, name):
            raise ModelError(f"{family} has no place for {name}; set it to 0.")
