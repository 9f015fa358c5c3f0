"""Muon: orthogonal momentum for the hidden matrices (kellerjordan.github.io/posts/muon), AdamW for all the rest.

The scale of an update is that of "Muon is Scalable for LLM Training" (arXiv 2502.16982, section 2.2), so that both kinds of
parameters take one learning rate and one weight decay.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from vitral import distributed
from vitral.machine import has_native_bf16
from vitral.models.experts import ExpertLinear, MixtureOfExperts
from vitral.models.model import HEADS, Model

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration, as in the original
EPS = 1e-7  # the least norm by which a matrix is divided
RMS = 0.2  # of an update in units of the learning rate, about that of AdamW's
PROJECTIONS = ("qkv.weight", "kqv.weight")  # parameters that hold three matrices: query, key and value

Matrices = Float[Tensor, "matrices rows columns"]


class Muon(Optimizer):
    """Muon over the hidden matrices, AdamW over every other parameter, both at the learning rate of the parameter's group.

    The momentum of a matrix with gradient g is m = beta m + (1 - beta) g. The update is `orthogonal` of m, or with Nesterov of
    beta m + (1 - beta) g, times 0.2 sqrt(max(rows, columns)). Weight decay is decoupled and multiplied by the learning rate. If
    processes share a matrix, each makes the whole matrix orthogonal and keeps its own rows.

    Args:
        params: The parameters, or groups of them.
        matrices: The hidden matrices among them, with the number of matrices stacked in each; see `hidden_matrices`.
        lr: The learning rate.
        momentum: The factor beta.
        nesterov: Whether the momentum is Nesterov's.
        ns_steps: The number of Newton-Schulz steps; see `orthogonal`.
        betas: The decays of AdamW's moments.
        eps: The number added to AdamW's root of the second moment.
        weight_decay: The weight decay of groups without their own.
    """

    def __init__(
        self,
        params: Any,  # noqa: ANN401  # torch's own type is as wide
        matrices: Mapping[Tensor, int],
        *,
        lr: float,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.matrices, self.momentum, self.nesterov, self.ns_steps = dict(matrices), momentum, nesterov, ns_steps

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no loss is returned
        """Update every parameter that has a gradient."""
        alike: dict[tuple[int, ...], list[tuple[Tensor, Matrices, dict[str, Any]]]] = {}
        for group in self.param_groups:
            learning = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._adamw([parameter for parameter in learning if parameter not in self.matrices], group)
            for parameter in learning:
                if parameter in self.matrices:
                    direction = self._direction(parameter)
                    alike.setdefault(direction.shape[1:], []).append((parameter, direction, group))
        for parts in alike.values():  # small products are faster together
            made = orthogonal(torch.cat([direction for _, direction, _ in parts]), self.ns_steps)
            updates = torch.split(made, [len(direction) for _, direction, _ in parts])
            for (parameter, _, group), update in zip(parts, updates, strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                scale = RMS * max(update.shape[1:]) ** 0.5
                parameter.add_(_as_shared(update.reshape(parameter.shape), parameter), alpha=-group["lr"] * scale)

    def _direction(self, parameter: Tensor) -> Matrices:
        """Update a parameter's momentum, and return the whole matrices to make orthogonal."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        moment = state["momentum_buffer"].lerp_(gradient, 1 - self.momentum)
        direction = gradient.lerp(moment, self.momentum) if self.nesterov else moment
        whole = direction.full_tensor() if distributed.is_sharded(direction) else direction
        if whole.ndim == 3:  # a matrix for each expert
            return whole
        number = self.matrices[parameter]
        return whole.reshape(number, whole.shape[0] // number, -1)

    def _adamw(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if not parameters:
            return
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["step"] = torch.zeros((), device=parameter.device)
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def hidden_matrices(network: Model) -> dict[Tensor, int]:
    """Return a network's hidden matrices, with the number of matrices stacked in each: 3 for query, key and value.

    They are the weights of its linear layers, of its convolutions (outputs by all inputs of a filter) and of each expert. The
    first layer, which reads the pixels, is not among them, nor are heads, routers, depthwise and grouped convolutions, and
    layers that LoRA changes.
    """
    routers = {layer.router for layer in network.modules() if isinstance(layer, MixtureOfExperts)}
    layers = [
        (f"{name}.weight", layer)
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d | ExpertLinear)
    ]
    return {
        layer.weight: 3 if name.endswith(PROJECTIONS) else 1
        for name, layer in layers[1:]
        if not name.startswith(HEADS) and layer not in routers and not _is_of_another_kind(layer)
    }


def _is_of_another_kind(layer: nn.Module) -> bool:
    """Tell whether a layer's weight is no matrix from all inputs to all outputs, or no parameter."""
    return getattr(layer, "groups", 1) > 1 or parametrize.is_parametrized(layer, "weight")


def orthogonal(matrices: Matrices, steps: int = 5) -> Matrices:
    """Return nearly the nearest matrices with orthonormal rows, or columns if these are fewer.

    Five steps of the Newton-Schulz iteration, as in the original, bring the singular values to between 0.7 and 1.2, except
    those below about a thousandth of the largest. Three steps, as in airbench94_muon, cost less and leave those below about a
    fiftieth. The products are computed in bfloat16 where the hardware has it.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.mT if tall else matrices
    wide = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=EPS)
    wide = wide.to(torch.bfloat16 if has_native_bf16(matrices.device) else torch.float32)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.mT if tall else wide).to(matrices.dtype)


def _as_shared(whole: Tensor, parameter: Tensor) -> Tensor:
    """Return this process's part of a tensor that all processes have whole, sharded like a parameter."""
    if not distributed.is_sharded(parameter):
        return whole
    from torch.distributed.tensor import distribute_tensor  # as of `is_sharded`

    return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
