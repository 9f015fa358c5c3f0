"""EoMT: queries that go through a Vision Transformer's last blocks beside its patches (arXiv 2503.19108).

Each query answers with a class, or none, and with a mask: its product with the refined map of the patches. While training,
each joint block lets a query look at the patches of its own mask only, with a probability that falls to 0, so that inference
is plain attention (eomt, models/eomt.py). Their queries stand before all other tokens, ours after them: the same in effect.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vitral.errors import ModelError
from vitral.models.attention import Mask
from vitral.models.dense.answers import QueryAnswers
from vitral.models.dense.head import DenseHead, HeadConfig
from vitral.models.dense.upscale import ScaleBlock, doublings
from vitral.models.layers import BatchPart, TokenGrid, init_torch_default
from vitral.models.model import Images, Model, ModelConfig, TokenModel

MOST_QUERIES = 10_000
OBJECT_QUERIES = 200  # of a new head for what is counted, as EoMT and PMT have it
# What a block makes of tokens, given its number, from 0, and which tokens each may attend to.
Through = Callable[[TokenGrid, int, Mask | None], TokenGrid]


@dataclass(frozen=True, slots=True)
class MaskHeadConfig(HeadConfig):
    """What the config of every head with queries for masks says.

    Attributes:
        queries: How many there are: at most so many regions are found. 200 for objects and 100 for classes in EoMT.
        doublings: How often the patches' map is doubled; None for to a stride of 4.
    """

    queries: int = 100
    doublings: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that nobody means."""
        if not 1 <= self.queries <= MOST_QUERIES:
            raise ModelError(f"queries must be 1 to {MOST_QUERIES}, not {self.queries}.")
        if self.doublings is not None and not 0 <= self.doublings <= 4:
            raise ModelError(f"doublings must be 0 to 4, not {self.doublings}.")


@dataclass(frozen=True, slots=True)
class QueryHeadConfig(MaskHeadConfig):
    """What a head of queries is.

    Attributes:
        joint_blocks: How many of the last blocks they go through: 3 of S and B, 4 of L, 5 of g.
    """

    kind: ClassVar[str] = "queries"
    title: ClassVar[str] = "a head of queries"

    joint_blocks: int = 3

    def check(self, backbone: ModelConfig) -> None:
        """Refuse a backbone that takes no further tokens, or has fewer blocks, by a ModelError that says why."""
        if reason := backbone.obstacle_to("appending"):
            raise ModelError(f"Queries cannot stand beside the network's patches: {reason}.")
        depth = getattr(backbone, "depth", self.joint_blocks)
        if not 1 <= self.joint_blocks <= depth:
            raise ModelError(f"joint_blocks must be 1 to {depth}, the network's blocks, not {self.joint_blocks}.")


class MaskMLP(nn.Module):
    """Three linear layers with GELU between them, as wide as a token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(dim, dim) for _ in range(3))
        self.activation = nn.GELU()

    def forward(self, queries: Float[Tensor, "batch queries dim"]) -> Float[Tensor, "batch queries dim"]:
        """Return what is multiplied with the map."""
        return self.fc3(self.activation(self.fc2(self.activation(self.fc1(queries)))))


class MaskHead(DenseHead):
    """The class and the mask of each query, wherever queries and patches meet.

    Attributes:
        masking: The probability with which a query sees its own mask's patches alone, in each block that it goes through: 1 in
            a new head, 0 in a trained one. Whoever trains sets it.
    """

    masking: Tensor

    @abstractmethod
    def __init__(
        self, config: MaskHeadConfig, backbone: ModelConfig, channels: int, num_classes: int, *, blocks: int
    ) -> None:
        super().__init__(config, backbone, channels, num_classes)
        self.queries = nn.Parameter(torch.empty(config.queries, channels))
        self.classifier = nn.Linear(channels, num_classes + 1)  # the last is "no object"
        self.mask_mlp = MaskMLP(channels)
        grid = backbone.patch_grid
        assert grid is not None, "a backbone that `check` refuses"
        steps = doublings(max(grid.stride)) if config.doublings is None else config.doublings
        self.upscale = nn.Sequential(*(ScaleBlock(channels) for _ in range(steps)))
        self.register_buffer("masking", torch.ones(blocks))
        self.masked = False  # when last looked at, since what is traced cannot look at values

    def meet(self, z: TokenGrid, through: Through, normalize: Callable[[TokenGrid], TokenGrid]) -> QueryAnswers:
        """Return the answers of queries that go through blocks beside patches; in training with those before each block.

        Args:
            z: The tokens before the first of these blocks, without queries.
            through: What a block makes of tokens.
            normalize: The norm before every answer.
        """
        z = z.append(self.queries.expand(z.tokens.shape[0], -1, -1))
        masked = self.training or self._masks_in_use()
        earlier: list[QueryAnswers] = []
        for number in range(len(self.masking)):
            mask = None
            if masked:
                earlier.append(self.predict(normalize(z)))
                mask = self.visible(z, earlier[-1], number)
            z = through(z, number, mask)
        answers = self.predict(normalize(z))
        return replace(answers, earlier=tuple(earlier)) if self.training else answers

    def predict(self, z: TokenGrid) -> QueryAnswers:
        """Return the answers that normalised tokens give."""
        queries = z.appended
        masks = torch.einsum("bqc,bchw->bqhw", self.mask_mlp(queries), self.upscale(z.maps))
        return QueryAnswers(self.classifier(queries), masks)

    @torch.no_grad()
    def visible(self, z: TokenGrid, answers: QueryAnswers, number: int) -> Mask:
        """Return which tokens each token may attend to in a block: queries the patches in their own mask alone, or all.

        In training the draw is each image's and query's own. In use nothing is left to chance: the likelier of the two holds.

        Args:
            z: The tokens before the block, queries last.
            answers: What they answer by now.
            number: The number of the block, from 0.
        """
        assert z.grid is not None, "every patch is needed"
        assert answers.masks is not None
        seen = functional.interpolate(answers.masks, z.grid, mode="bilinear").flatten(2) > 0
        probability = self.masking[number]
        shape, device = seen.shape[:2], seen.device
        drawn = torch.rand(shape, device=device) if self.training else torch.full(shape, 0.5, device=device)
        seen = seen | (drawn > probability)[:, :, None]
        batch, tokens, _ = z.tokens.shape
        mask = torch.ones(batch, 1, tokens, tokens, dtype=torch.bool, device=seen.device)
        mask[:, 0, tokens - z.suffix :, z.prefix : tokens - z.suffix] = seen
        return mask

    def _masks_in_use(self) -> bool:
        """Tell whether masks hold outside of training: of a network whose training did not come to its end."""
        if not torch.compiler.is_compiling() and not self.masking.is_meta:
            self.masked = bool((self.masking >= 0.5).any())
        return self.masked

    @torch.no_grad()
    def init_answers(self, generator: torch.Generator) -> None:
        """Draw queries from the standard normal distribution, what reads them as torch does; every mask is in use."""
        self.queries.normal_(generator=generator)
        for layer in (self.classifier, self.mask_mlp.fc1, self.mask_mlp.fc2, self.mask_mlp.fc3):
            init_torch_default(layer, generator)
        for block in self.upscale:
            cast(ScaleBlock, block).init_weights(generator)
        self.masking.fill_(1.0)


class QueryHead(MaskHead):
    """Queries in the backbone's own last blocks."""

    def __init__(self, config: QueryHeadConfig, backbone: ModelConfig, channels: int, num_classes: int) -> None:
        super().__init__(config, backbone, channels, num_classes, blocks=config.joint_blocks)

    def answer(self, backbone: Model, images: Images, part: BatchPart | None = None) -> QueryAnswers:
        """Return the queries' answers after the last block; in training with those before each joint block."""
        assert isinstance(backbone, TokenModel), "a backbone that `check` refuses"
        first = len(backbone.blocks()) - len(self.masking)

        def through(z: TokenGrid, number: int, mask: Mask | None) -> TokenGrid:
            block = first + number
            return backbone.transform(z, start=block, stop=block + 1, mask=mask, part=part)

        z = backbone.transform(backbone.embed(backbone.patches(images)), stop=first, part=part)
        return self.meet(z, through, backbone.normalize)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw every parameter; see `init_answers`."""
        self.init_answers(generator)
