"""Optimizers as the papers use them, clipping by the global norm, and the device and precision of a training step."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from vitral import distributed, plugins, torchrun
from vitral.errors import PluginError
from vitral.machine import has_native_bf16
from vitral.models.model import HEADS, Model
from vitral.training.optimization.adafactor import Adafactor
from vitral.training.optimization.muon import Muon, hidden_matrices
from vitral.training.optimization.per_parameter import HalfMomentumAdamW, HalfMomentumSGD, Lamb
from vitral.training.settings.sections import DecayOn, OptimizerSettings, Precision

After = Callable[[int], tuple[float, float]]  # from a number of updates to wait to the rates of head and backbone
TOKENS = ("token", "mask", "registers", "probe")  # endings of the names of parameters that are tokens


def build_optimizer(model: nn.Module, network: Model, settings: OptimizerSettings) -> Optimizer:
    """Return the optimizer of a recipe over the parameters that learn.

    `undecayed` says what weight decay spares. "adam" and "adamw" are the same, because flax's Adam of 2020, which the paper
    used, already decoupled weight decay from the gradient and scaled it by the learning rate. The decay of "sgd", 0 in the
    paper, is added to the gradient; with SAM it is a part of the loss, see `add_penalty`. Each parameter group has a `scale`,
    its share of the learning rate, and a flag `backbone`. What a method trains outside the network, such as a decoder or a
    projector, learns at the head's rate and decays like the body.

    Args:
        model: The module that is trained: the network, or a module around it.
        network: The network; its blocks and its parameters without decay count.
        settings: The optimizer's settings.
    """
    groups = list(_groups(model, network, settings))
    if own := plugins.registered("optimizer").get(settings.name):
        return _checked(own(groups, settings), settings.name)
    half = settings.momentum_dtype == "bfloat16"
    moments: dict[str, Any] = {"lr": settings.lr, "betas": settings.betas, "eps": settings.eps}
    momentum: dict[str, Any] = {"momentum": settings.momentum, "nesterov": settings.nesterov}
    if settings.name == "sgd":
        if half:
            return HalfMomentumSGD(groups, settings.lr, **momentum)
        return SGD(groups, lr=settings.lr, **momentum, fused=True)
    if settings.name == "lamb":
        return Lamb(groups, **moments)
    if settings.name == "muon":
        return Muon(groups, hidden_matrices(network), ns_steps=settings.ns_steps, **moments, **momentum)
    if settings.name == "adafactor":
        beta1, largest_beta2 = settings.betas
        return Adafactor(groups, settings.lr, beta1, largest_beta2, factored_from=settings.factored_from)
    if half:
        return HalfMomentumAdamW(groups, **moments)
    return AdamW(groups, **moments, fused=True)


def _checked(optimizer: object, name: str) -> Optimizer:
    """Refuse a plugin's optimizer that training cannot use."""
    if not isinstance(optimizer, Optimizer):
        raise PluginError(
            f"The optimizer '{name}' returns a {type(optimizer).__name__}; it must return a torch optimizer."
        )
    if not all({"scale", "backbone", "penalty"} <= group.keys() for group in optimizer.param_groups):
        raise PluginError(
            f"The optimizer '{name}' must keep the parameter groups that it is given, with all their keys."
        )
    return optimizer


def _groups(model: nn.Module, network: Model, settings: OptimizerSettings) -> Iterator[dict[str, Any]]:
    names = {parameter: name for name, parameter in network.named_parameters()}
    spared = undecayed(model, network, settings.decay_on)
    depths = layer_depths(network)
    top = max(depths.values(), default=0)
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        name = names.get(parameter, "")  # parameters outside the network, such as a decoder's, have none
        decay = settings.weight_decay
        if name.startswith(HEADS) and settings.head_weight_decay is not None:
            decay = settings.head_weight_decay
        scale = settings.layer_decay ** (top - depths.get(name, top))
        backbone = settings.backbone_lr != 1 and bool(name) and not name.startswith(HEADS)
        groups.setdefault((0.0 if parameter in spared else decay, scale, backbone), []).append(parameter)
    in_loss = settings.name == "sgd" and settings.sam_rho is not None
    for (decay, scale, backbone), parameters in groups.items():
        shared = {"params": parameters, "scale": scale, "backbone": backbone}
        yield {**shared, "weight_decay": 0.0 if in_loss else decay, "penalty": decay if in_loss else 0.0}


def undecayed(model: nn.Module, network: Model, decay_on: DecayOn) -> set[nn.Parameter]:
    """Return the parameters of a module that weight decay spares.

    "kernels" decays matrices and convolutions: of the network all but `no_weight_decay`, of what the module has besides it all
    but biases, norms and tokens, as the authors of MAE, ImageNet-21K-P and the Vision Transformer do. "kernels-and-tokens"
    decays tokens, too, of the network and outside of it: so does timm's `add_weight_decay`, to which MAE's pre-training gives
    no list of what to skip. "all" spares nothing.
    """
    if decay_on == "all":
        return set()
    listed, inside = network.no_weight_decay(), {parameter: name for name, parameter in network.named_parameters()}
    spared = set()
    for name, parameter in model.named_parameters():
        token = parameter.ndim > 1 and name.endswith(TOKENS)
        spares = inside[parameter] in listed if parameter in inside else token or parameter.ndim <= 1
        if spares and not (token and decay_on == "kernels-and-tokens"):
            spared.add(parameter)
    return spared


def layer_depths(network: Model) -> dict[str, int]:
    """Return each parameter's depth: 0 before the first block, 1 in it, and so on; parameters after all blocks are deepest.

    Parameters between two blocks, such as the embedding of a later stage, belong to the block that follows. Of a Vision
    Transformer these are the layers of BEiT and of MAE's fine-tuning (util/lr_decay.py).
    """
    inside = {
        id(parameter): number for number, block in enumerate(network.blocks()) for parameter in block.parameters()
    }
    last = len(network.blocks()) - 1
    depths: dict[str, int] = {}
    passed = -1
    for name, parameter in network.named_parameters():
        passed = max(passed, inside.get(id(parameter), passed))
        outside = 0 if passed < 0 else passed + 2
        depths[name] = inside[id(parameter)] + 1 if id(parameter) in inside else min(outside, last + 2)
    return depths


def set_learning_rate(optimizer: Optimizer, rate: float, backbone_rate: float, after: After | None = None) -> None:
    """Set the learning rate of all groups, times each group's scale; the backbone's groups have a rate of their own.

    A group may begin later, by "wait" updates; then `after` gives its two rates.
    """
    for group in optimizer.param_groups:
        rates = after(group["wait"]) if after and group.get("wait") else (rate, backbone_rate)
        group["lr"] = rates[group.get("backbone", False)] * group.get("scale", 1.0)


@torch.no_grad()
def add_penalty(optimizers: Iterable[Optimizer], share: float = 1.0) -> None:
    """Add `share` times the gradient of the weight decay that is a part of the loss; call this before a backward pass.

    SAM's original treats the decay of SGD in this way (sam_jax, flax_training.py): it is part of the gradient that climbs, of
    the gradient at the top, and of the norm that is clipped.
    """
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if not group.get("penalty"):
            continue
        for parameter in group["params"]:
            gradient = parameter.detach() * (share * group["penalty"])
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


@torch.no_grad()
def clip_by_global_norm(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Scale all gradients so that their joint norm is at most `limit`, and return their norm before.

    A norm below the limit changes nothing, and no epsilon is added, as in optax (torch adds 1e-6). None only measures.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = global_norm(gradients)
    if limit is not None:
        torch._foreach_mul_(gradients, torch.clamp(limit / norm, max=1.0))
    return norm


def global_norm(tensors: list[Tensor]) -> Tensor:
    """Return the joint norm of tensors, even if each process holds a part of each."""
    if not tensors:
        return torch.zeros(())
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm.full_tensor() if distributed.is_sharded(norm) else norm


def training_device() -> torch.device:
    """Return the device on which runs train: torch's current GPU, a Mac's, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    alone = torchrun.world() < 2  # processes of a job exchange tensors of a CPU or of CUDA
    return torch.device("mps" if torch.backends.mps.is_available() and alone else "cpu")


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the context of a forward pass; weights stay float32, and so does everything outside of the context.

    "auto" is bfloat16 where the hardware has it, and float32 elsewhere. Float16 is not offered, because the loss overflows its
    range.
    """
    if computes_in_bf16(device, precision):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def autocast_here() -> contextlib.AbstractContextManager[object]:
    """Return the context of a forward pass on the training device, in bfloat16 where the hardware has it."""
    return autocast(training_device(), "auto")


def computes_in_bf16(device: torch.device, precision: Precision) -> bool:
    """Tell whether a precision means bfloat16 on a device."""
    return precision == "bf16" or (precision == "auto" and has_native_bf16(device))
