"""Time a mixture of experts as their number grows: a token pays for the k experts that it goes to, not for all.

    python benchmarks/experts_speed.py [--rounds 20]

One layer of V-MoE-S/32's shape (width 512, MLP 2,048, k = 2) on 8 groups of 8 images of 50 tokens, float32, forward.
For comparison the same mixture computed densely, every expert on every token, and one plain MLP.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vitral.models.blocks import Mlp
from vitral.models.experts import ExpertsConfig, MixtureOfExperts

DIM, HIDDEN, IMAGES, TOKENS = 512, 2048, 64, 50


def median_ms(step: Callable[[], object], rounds: int) -> float:
    step()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def gigamacs(step: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops() / 2e9


def dense(layer: MixtureOfExperts, tokens: Tensor) -> Tensor:
    flat = tokens.flatten(0, 1)
    gates = layer.router(flat).softmax(dim=-1)
    hidden = layer.gelu(torch.matmul(flat, layer.fc1.weight) + layer.fc1.bias[:, None])
    outputs = torch.matmul(hidden, layer.fc2.weight) + layer.fc2.bias[:, None]
    return (gates.T[:, :, None] * outputs).sum(dim=0)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(IMAGES, TOKENS, DIM, generator=generator)
    mlp = Mlp(DIM, HIDDEN, gelu="tanh").eval()
    mlp.init_weights(generator)
    report("one MLP", lambda: mlp(tokens), rounds)
    for experts in (2, 4, 8, 16, 32):
        config = ExpertsConfig(blocks=(0,), num_experts=experts, capacity_factor=1.0)
        layer = MixtureOfExperts(DIM, HIDDEN, config, gelu="tanh", dropout=0.0).eval()
        layer.init_weights(generator)
        report(f"{experts} experts, 2 a token", partial(layer, tokens), rounds)
        report(f"{experts} experts, all a token", partial(dense, layer, tokens), max(1, rounds // 10))


def report(label: str, step: Callable[[], object], rounds: int) -> None:
    print(f"{label:<24} {gigamacs(step):7.2f} GMACs {median_ms(step, rounds):8.1f} ms")


if __name__ == "__main__":
    main()
