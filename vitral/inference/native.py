"""Images in their native aspect ratio, several sizes in one sequence (NaViT's packing, arXiv 2307.06304, section 2.1).

A token attends to those of its own image alone, so that each image's logits are those of the network at that image's size,
one by one. Packing is greedy in the images' order; there is no padding. NaViT masks the attention of the whole sequence; here
it is computed image by image, which leaves out what a mask would.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.images.decode import Pixels
from vitral.images.preprocessing import Preprocessing
from vitral.inference.torch_predictor import copy_in, state_of
from vitral.models.attention import Attention, attend
from vitral.models.blocks import Block
from vitral.models.families import describe
from vitral.models.layers import TokenGrid, Tokens
from vitral.models.model import Logits, Model, TokenModel, token_model

LONGEST = 4  # times the network's own number of tokens: of a sequence
THINNEST = 16.0  # times its shorter side that an image's longer side counts as; what is thinner is squashed to it
MOST_SIZES = 64  # of which the network's positions are kept

SizedImage = Float[Tensor, "3 height width"]


class _ByImage(nn.Module):
    """Attention within each image of a sequence."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.images: Sequence[TokenGrid] = ()  # the images in the sequence

    def forward(self, tokens: Tokens, **ignored: object) -> Tokens:
        """Return the mixed tokens; the other arguments of `Attention` have no effect."""
        lengths = [image.tokens.shape[1] for image in self.images]
        parts = (torch.split(part, lengths, dim=2) for part in self.attention.project(tokens, None, None))
        heads = zip(*parts, strict=True)
        mixed = [attend(*part, bias=self._bias(image)) for part, image in zip(heads, self.images, strict=True)]
        return cast(Tensor, self.attention.out(torch.cat(mixed, dim=2).transpose(1, 2).flatten(2)))

    def _bias(self, image: TokenGrid) -> Tensor | None:
        relative = self.attention.relative_grid
        return None if relative is None else relative(image.grid)[None]


class NativeAspect:
    """Computes images at about their own shape and a Vision Transformer's number of pixels, in float32.

    Raises:
        ModelError: The network cannot; it says why.
    """

    def __init__(self, model: Model) -> None:
        self.model = token_model(model, "packing", f"{describe(model.config)} takes images of one shape only")
        self._state: object = None
        self._sized: dict[tuple[int, int], TokenModel] = {}
        self._computing = threading.Lock()

    def prepare(self, image: Pixels, preprocessing: Preprocessing) -> SizedImage:
        """Return a whole image at its own shape, in whole patches; the rest as its network's preprocessing has it."""
        config, shape = self.model.config, min(THINNEST, max(1 / THINNEST, image.shape[0] / image.shape[1]))
        size = size_of_shape(self.model.image_size, shape, config.size_step)
        return preprocessing.whole().with_size(size)(image)

    @torch.no_grad()
    def logits(self, images: Sequence[SizedImage]) -> Logits:
        """Return the logits of prepared images, each of any size in whole patches.

        Raises:
            ModelError: A size that is none.
        """
        with self._computing:  # the layers keep the images of one call
            if (state := state_of(self.model)) != self._state:
                self._sized, self._encoder, self._state = {}, self._by_image(), state
            embedded = [self._embedded(image) for image in images]
            return torch.cat([self._computed(part) for part in self._packed(embedded)]).float().cpu()

    def _embedded(self, image: SizedImage) -> TokenGrid:
        sized = self._at((image.shape[1], image.shape[2]))
        like = next(sized.parameters())
        return sized.embed(sized.patches(image[None].to(like.device, like.dtype)))

    def _at(self, size: tuple[int, int]) -> TokenModel:
        """Return the network at another size: a copy that shares all of its weights but the positions."""
        if len(self._sized) >= MOST_SIZES:
            self._sized.clear()
        if size not in self._sized:
            self._sized[size] = self._copy()
            self._sized[size].resize(size)
        return self._sized[size]

    def _by_image(self) -> tuple[TokenModel, list[_ByImage]]:
        """Return a copy with attention within images, and its layers of attention."""
        network, layers = self._copy(), []
        for block in cast(list[Block], network.blocks()):
            layers.append(_ByImage(block.attention))
            block.attention = layers[-1]  # type: ignore[assignment]
        return network, layers

    def _copy(self) -> TokenModel:
        """Return a copy in evaluation mode that shares the weights."""
        return cast(TokenModel, copy_in(self.model, next(self.model.parameters()).dtype))

    def _packed(self, images: Sequence[TokenGrid]) -> Iterator[list[TokenGrid]]:
        """Give the images of each sequence."""
        config = self.model.config
        grid = config.patch_grid
        most = LONGEST * (math.prod(grid.sides) + grid.prefix)
        sequence: list[TokenGrid] = []
        for image in images:
            if sequence and sum(packed.tokens.shape[1] for packed in (*sequence, image)) > most:
                yield sequence
                sequence = []
            sequence.append(image)
        if sequence:
            yield sequence

    def _computed(self, images: Sequence[TokenGrid]) -> Logits:
        lengths = [image.tokens.shape[1] for image in images]
        tokens = torch.cat([image.tokens for image in images], dim=1)
        network, layers = self._encoder
        for layer in layers:
            layer.images = images
        z = network.normalize(network.transform(TokenGrid(tokens, grid=None)))
        parts = torch.split(z.tokens, lengths, dim=1)
        return torch.cat([network.classify(image.with_tokens(part)) for image, part in zip(images, parts, strict=True)])


def size_of_shape(own: tuple[int, int], shape: float, step: int) -> tuple[int, int]:
    """Return height and width of a shape, height by width, with about as many pixels as the network's own, in whole steps."""
    if shape == 1 and own[0] == own[1]:
        return own
    pixels = own[0] * own[1]
    rows, columns = (max(1, round(math.sqrt(side) / step)) * step for side in (pixels * shape, pixels / shape))
    return rows, columns
