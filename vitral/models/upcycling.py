"""From a dense Vision Transformer to one with experts, each of which begins as the MLP that it stands for.

The idea is sparse upcycling's (arXiv 2212.05055). There the gates of a token are scaled to a sum of 1; V-MoE leaves them as the
softmax gives them, about 1/E each while the router knows nothing. So the experts' second layers are multiplied by E/k instead:
the network begins as the dense one, but for tokens that find every buffer full.
"""

import dataclasses
import re

import torch

from vitral.errors import ModelError
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.models.layers import seeded
from vitral.models.model import Model
from vitral.models.vit import ViT

NUMBER = 8  # experts of the released networks
CAPACITY = 1.5  # in fine-tuning
ROUTER_STD = 1e-3  # of the router's weights: gates nearly even, and yet no token goes where all others go
PLACES = re.compile(r"(every|last)-(\d{1,3})", re.ASCII)


def expert_blocks(places: str, depth: int) -> tuple[int, ...]:
    """Return the blocks that get experts, counted from 0: of "every-2" every second, of "last-2" the last two of those.

    Raises:
        ModelError: It has another form, or there are no such blocks.
    """
    match = PLACES.fullmatch(places)
    number = int(match[2]) if match else 0
    if match is None or not number:
        raise ModelError(f"'{places:.40}' does not say which blocks get experts; write every-2 or last-2.")
    every = tuple(range(number - 1, depth, number)) if match[1] == "every" else tuple(range(1, depth, 2))[-number:]
    if not every:
        raise ModelError(f"'{places}' are no blocks of a network of {depth}.")
    return every


def upcycle(network: Model, places: str, *, number: int = NUMBER, seed: int) -> ViT:
    """Return a network with so many experts in some blocks, see `expert_blocks`, that answers as a dense one.

    Raises:
        ModelError: It is no plain Vision Transformer, or has experts already.
    """
    if not isinstance(network, ViT) or network.config.experts is not None or network.config.mlp != "plain":
        raise ModelError(
            "Experts take the place of a Vision Transformer's plain MLPs, and this network has none to give."
        )
    blocks = expert_blocks(places, network.config.depth)
    experts = ExpertsConfig(blocks=blocks, num_experts=number, capacity_factor=CAPACITY)
    made = build(dataclasses.replace(network.config, experts=experts))
    weights, generator = network.state_dict(), seeded(network, seed)
    for index in blocks:
        prefix = f"encoder.{index}.mlp"
        router = torch.empty(number, network.config.dim, device=generator.device)
        weights[f"{prefix}.router.weight"] = router.normal_(std=ROUTER_STD, generator=generator)
        for layer, scale in (("fc1", 1.0), ("fc2", number / experts.num_selected)):
            weight, bias = (weights[f"{prefix}.{layer}.{part}"] * scale for part in ("weight", "bias"))
            weights[f"{prefix}.{layer}.weight"] = weight.T.expand(number, -1, -1)
            weights[f"{prefix}.{layer}.bias"] = bias.expand(number, -1)
    made.load_state_dict(weights)
    assert isinstance(made, ViT), "a config of its family"
    return made.to(next(network.parameters()).device).train(network.training)
