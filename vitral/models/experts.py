"""Sparse mixture of experts in the MLP's place (V-MoE, arXiv 2106.05974, section 2 and appendix A).

Held against nn/routing.py and moe.py of google-research/vmoe. A token's work is that of its k chosen experts, whatever
their number; a token that finds every buffer full passes by on the residual path alone.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional

from vitral.described import LATER
from vitral.errors import ModelError
from vitral.models.layers import Gelu, Losses, Tokens, full_precision, gelu_layer, lecun_normal_

CAPACITY_MULTIPLE = 4  # an expert's buffer is rounded up to a multiple of it


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsConfig:
    """Which blocks have experts, and how tokens find them.

    Attributes:
        blocks: The numbers, counted from 0, of the blocks that have experts in place of an MLP.
        num_experts: Experts in each (E).
        num_selected: Experts that a token goes to (k).
        capacity_factor: Size of the experts' buffers over what an even share-out would need (C); 1.05 in pre-training,
            1.5 in fine-tuning.
        batch_priority: Whether the tokens with the largest gates are placed first (Batch Prioritized Routing).
        group_images: Number of images that are routed together and share the buffers; 8 in the original.
        noise_std: Standard deviation of the noise on the router's logits while training, in units of 1/E.
        evaluation_capacity_factor: The capacity factor outside of training; None for the same.
        dropout: Rate after each of an expert's two layers; None for the network's own rate.
    """

    blocks: tuple[int, ...]
    num_experts: int = 32
    num_selected: int = 2
    capacity_factor: float = 1.05
    batch_priority: bool = False
    group_images: int = 8
    noise_std: float = 1.0
    evaluation_capacity_factor: float | None = field(default=None, metadata=LATER)
    dropout: float | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        if not 1 <= self.num_selected <= self.num_experts:
            raise ModelError(f"num_selected must be 1 to {self.num_experts}, the experts, not {self.num_selected}.")
        evaluation = 1.0 if self.evaluation_capacity_factor is None else self.evaluation_capacity_factor
        if min(self.capacity_factor, evaluation) <= 0 or self.group_images < 1 or self.noise_std < 0:
            raise ModelError("Experts need capacity factors above 0, group_images of at least 1 and no negative noise.")
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise ModelError(f"The experts' dropout must be at least 0 and below 1, not {self.dropout}.")

    def capacity(self, tokens: int, *, training: bool) -> int:
        """Return the size of one expert's buffer for a group of so many tokens."""
        factor = self.capacity_factor
        if not training and self.evaluation_capacity_factor is not None:
            factor = self.evaluation_capacity_factor
        share = math.ceil(tokens * self.num_selected * factor / self.num_experts)
        return math.ceil(share / CAPACITY_MULTIPLE) * CAPACITY_MULTIPLE


class Rows(NamedTuple):
    """Which rows of a tensor a process holds: from `first` up to `end`, of `total`."""

    first: int
    end: int
    total: int


class ExpertLinear(nn.Module):
    """A linear layer an expert."""

    def __init__(self, num_experts: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, in_features, out_features))
        self.bias = nn.Parameter(torch.empty(num_experts, out_features))

    def forward(self, buffers: Float[Tensor, "experts slots in"]) -> Float[Tensor, "experts slots out"]:
        """Return each expert's buffer through its own layer."""
        product = torch.bmm(buffers, self.weight)
        return product + self.bias[:, None].to(product.dtype)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Xavier-uniform weights and biases of standard deviation 1e-6, the same for all experts, as in the original."""
        _, in_features, out_features = self.weight.shape
        limit = math.sqrt(6.0 / (in_features + out_features))
        weight = torch.empty(in_features, out_features, device=self.weight.device)
        self.weight.copy_(weight.uniform_(-limit, limit, generator=generator).expand_as(self.weight))
        bias = torch.empty(out_features, device=self.bias.device).normal_(std=1e-6, generator=generator)
        self.bias.copy_(bias.expand_as(self.bias))


class MixtureOfExperts(nn.Module):
    """A router, and an MLP an expert."""

    def __init__(self, dim: int, hidden_dim: int, config: ExpertsConfig, *, gelu: Gelu) -> None:
        super().__init__()
        self.config = config
        self.router = nn.Linear(dim, config.num_experts, bias=False)
        self.fc1 = ExpertLinear(config.num_experts, dim, hidden_dim)
        self.gelu = gelu_layer(gelu)
        self.fc2 = ExpertLinear(config.num_experts, hidden_dim, dim)
        self.dropout = nn.Dropout(0.0)
        self.group: dist.ProcessGroup | None = None
        self.rows: Rows | None = None

    def take_rate(self, dropout: float) -> None:
        """Take the network's rate of dropout, unless the experts have one of their own."""
        own = self.config.dropout
        self.dropout.p = dropout if own is None else own

    def share_out(self, group: dist.ProcessGroup) -> None:
        """Keep this process's part of the experts only; from now on tokens travel to where their experts are.

        Which part that is says `rows`, and of a whole network `shared_rows`.

        Raises:
            ModelError: The processes cannot share the experts evenly.
        """
        experts, world = self.config.num_experts, dist.get_world_size(group)
        if experts % world:
            raise ModelError(f"{experts} experts cannot be shared by {world} processes evenly.")
        each = experts // world
        first = dist.get_rank(group) * each
        self.group, self.rows = group, Rows(first, first + each, experts)
        for layer in (self.fc1, self.fc2):
            for name in ("weight", "bias"):
                whole = getattr(layer, name)
                setattr(layer, name, nn.Parameter(whole.detach()[first : first + each].clone()))

    def forward(self, tokens: Tokens) -> tuple[Tokens, Losses]:
        """Return each token's experts' outputs, weighted by their gates (zero for a dropped token), and auxiliary losses.

        Images are routed in groups of `group_images`; a last group may be smaller. The losses are means over the groups:
        "importance" always, "load" where there was noise.
        """
        groups = torch.split(tokens, self.config.group_images)
        routed = [self._group(group.flatten(0, 1)) for group in groups]
        for _ in range(self._most(len(groups)) - len(groups)):
            # The others have more groups, and their tokens need this process's experts.
            self._experts(tokens.new_zeros(self.config.num_experts, 0, tokens.shape[-1]))
        weights = torch.tensor([len(group) / len(tokens) for group in groups], device=tokens.device)
        names = routed[0][1].keys()
        losses = {name: (torch.stack([losses[name] for _, losses in routed]) * weights).sum() for name in names}
        return torch.cat([mixed for mixed, _ in routed]).view_as(tokens), losses

    def _group(self, tokens: Float[Tensor, "tokens dim"]) -> tuple[Float[Tensor, "tokens dim"], Losses]:
        gates, losses = self._gates(tokens)
        experts, slots, values = self.assign(gates)
        count, dim = tokens.shape
        capacity = self.config.capacity(count, training=self.training)
        order = torch.arange(count, device=tokens.device).repeat(self.config.num_selected)
        # One slot past the end of the buffers takes the tokens that no buffer has room for, and is not computed.
        position = torch.where(slots < capacity, experts * capacity + slots, self.config.num_experts * capacity)
        buffers = tokens.new_zeros(self.config.num_experts * capacity + 1, dim)
        buffers = buffers.index_copy(0, position, tokens[order])[:-1].view(self.config.num_experts, capacity, dim)
        outputs = self._experts(buffers).flatten(0, 1)
        gates = torch.where(slots < capacity, values, 0.0)
        weighted = outputs[position.clamp(max=len(outputs) - 1)] * gates[:, None].to(outputs.dtype)
        return weighted.view(self.config.num_selected, count, dim).sum(dim=0), losses

    def _experts(self, buffers: Float[Tensor, "experts slots dim"]) -> Float[Tensor, "experts slots dim"]:
        """Return every expert's outputs for its slots, by way of the processes that have the experts."""
        if self.group is None:
            return self.dropout(self.fc2(self.dropout(self.gelu(self.fc1(buffers)))))
        slots = buffers.shape[1]
        most = self._most(slots)
        buffers = functional.pad(buffers, (0, 0, 0, most - slots))
        world, dim = dist.get_world_size(self.group), buffers.shape[-1]
        arrived = self._exchange(buffers).view(world, -1, most, dim)  # (from whom, own experts, slots, dim)
        mine = arrived.transpose(0, 1).flatten(1, 2)
        hidden = self.dropout(self.gelu(self.fc1(mine)))
        outputs = self.dropout(self.fc2(hidden)).unflatten(1, (world, most)).transpose(0, 1)
        return self._exchange(outputs.flatten(0, 1))[:, :slots]

    def _exchange(self, blocks: Float[Tensor, "experts slots dim"]) -> Float[Tensor, "experts slots dim"]:
        """Send each process its share of the first axis, and return what they sent, by sender."""
        assert self.group is not None
        return all_to_all_single_autograd(blocks.contiguous(), None, None, self.group)

    def _most(self, count: int) -> int:
        """Return the largest of the processes' counts; while training all have the same."""
        if self.group is None or self.training:
            return count
        most = torch.tensor(count)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.group)
        return int(most)

    def _gates(self, tokens: Float[Tensor, "tokens dim"]) -> tuple[Float[Tensor, "tokens experts"], Losses]:
        with full_precision(tokens.device):
            clean = functional.linear(tokens.float(), self.router.weight.float())
        importance = clean.softmax(dim=-1).sum(dim=0)
        losses = {"importance": squared_variation(importance)}
        if not self.training or not self.config.noise_std:
            return clean.softmax(dim=-1), losses
        std = self.config.noise_std / self.config.num_experts
        noisy = clean + std * torch.randn_like(clean)
        losses["load"] = squared_variation(self._load(clean, noisy, std))
        return noisy.softmax(dim=-1), losses

    def _load(
        self, clean: Float[Tensor, "tokens experts"], noisy: Float[Tensor, "tokens experts"], std: float
    ) -> Float[Tensor, " experts"]:
        """Return the probability that each expert is chosen if only its own noise were drawn again."""
        threshold = noisy.topk(self.config.num_selected, dim=-1).values[:, -1:]
        return (1.0 - torch.special.ndtr((threshold - clean) / std)).mean(dim=0)

    def assign(
        self, gates: Float[Tensor, "tokens experts"]
    ) -> tuple[Int64[Tensor, " choices"], Int64[Tensor, " choices"], Float[Tensor, " choices"]]:
        """Return expert, slot in its buffer and gate of every choice: all first choices, then all second ones.

        A slot at or above the capacity means that the buffer is full for that token.
        """
        values, experts = gates.topk(self.config.num_selected, dim=-1)
        order = torch.arange(len(gates), device=gates.device)
        if self.config.batch_priority:
            order = values[:, 0].argsort(descending=True, stable=True)
        ranked = experts[order].transpose(0, 1).flatten()  # in the order in which slots are given out
        taken = functional.one_hot(ranked, self.config.num_experts).cumsum(dim=0) - 1
        slots = taken.gather(1, ranked[:, None])[:, 0].view(self.config.num_selected, -1)
        unranked = torch.empty_like(slots).index_copy(1, order, slots)
        return experts.transpose(0, 1).flatten(), unranked.flatten(), values.transpose(0, 1).flatten()

    def init_weights(self, generator: torch.Generator) -> None:
        """LeCun-normal router, truncated at 2 standard deviations, flax's default for a dense layer; experts all alike."""
        lecun_normal_(self.router.weight, generator)
        self.fc1.init_weights(generator)
        self.fc2.init_weights(generator)


def shared_rows(network: nn.Module) -> dict[Tensor, Rows]:
    """Return the parameters of which this process holds some experts' rows only, and which; empty where nothing is shared."""
    layers = [layer for layer in network.modules() if isinstance(layer, MixtureOfExperts)]
    return {
        parameter: layer.rows
        for layer in layers
        if layer.rows is not None
        for part in (layer.fc1, layer.fc2)
        for parameter in part.parameters()
    }


def change_experts(network: nn.Module, **changes: Any) -> None:  # noqa: ANN401  # fields of ExpertsConfig
    """Change how the experts of a network work, such as their `capacity_factor`, as fine-tuning does; the weights stay.

    Raises:
        ModelError: It has no experts, or an impossible value.
    """
    layers = [layer for layer in network.modules() if isinstance(layer, MixtureOfExperts)]
    if not layers:
        raise ModelError(f"The recipe sets {next(iter(changes))} of experts, and the network has none.")
    config: Any = network.config
    experts = dataclasses.replace(config.experts, **changes)
    network.config = dataclasses.replace(config, experts=experts)
    for layer in layers:
        layer.config = experts
        layer.take_rate(config.dropout)


def squared_variation(shares: Float[Tensor, " experts"]) -> Float[Tensor, ""]:
    """Return the squared coefficient of variation, zero where all experts have as much."""
    return shares.var(correction=0) / shares.mean().square()
