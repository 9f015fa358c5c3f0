"""A network over the processes of a job: copies (DDP), shards (FSDP2), shards within a node, experts of its own in each.

All layouts have the arithmetic of a single process: the gradient is the mean over the whole batch.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from vitral import distributed, torchrun
from vitral.errors import RecipeError
from vitral.models.experts import MixtureOfExperts, Rows, shared_rows
from vitral.models.families import FAMILIES
from vitral.models.model import Model
from vitral.training.methods.method import Method
from vitral.training.optimization.optimizers import clip_by_global_norm, computes_in_bf16, global_norm
from vitral.training.settings.recipe import Recipe
from vitral.training.settings.sections import ComputeSettings, Precision

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


class Engine:
    """Calls a module in training, and keeps the processes' parts of it in step.

    Args:
        method: The method; its network's blocks are the unit of sharding, recomputation and compiling.
        recipe: The settings.

    Raises:
        RecipeError: This job, network or optimizer cannot do what the settings require.
    """

    def __init__(self, method: Method, recipe: Recipe) -> None:
        settings = recipe.compute
        _check(method, recipe)
        self.plain, self.module, self.network, self.settings = method.plain, method.module, method.network, settings
        self.device = next(self.network.parameters()).device
        self._recomputed: list[nn.Module] = []
        self.rows: dict[Tensor, Rows] = {}
        if settings.expert_parallel:
            self._share_experts()
            self.rows = shared_rows(self.module)
        self._apart = set(method.apart())
        self.sharded = settings.sharding != "none" and distributed.world() > 1
        self.call: Callable[..., Any] = self.module
        if settings.checkpointing:
            self._recompute()
        if settings.compile:
            self._compile()
        if self.sharded:
            self._shard(recipe.precision)
        elif distributed.world() > 1:
            self.call = self._copies()

    @property
    def writes_shares(self) -> bool:
        """Whether the processes hold different tensors, so that each process writes its own."""
        return self.sharded or (self.settings.expert_parallel and distributed.world() > 1)

    def accumulating(self, *, last: bool) -> contextlib.AbstractContextManager[None]:
        """Return the context of a part of a batch; only the last part's backward pass averages over the processes."""
        if isinstance(self.call, DistributedDataParallel) and not last:
            return cast(contextlib.AbstractContextManager[None], self.call.no_sync())
        if self.sharded:
            cast("FSDPModule", self.network).set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def clip(self, limit: float | None) -> Tensor:
        """Scale all gradients so that their joint norm, over all processes, is at most `limit`; return the norm before."""
        parameters = [parameter for parameter in self.module.parameters() if parameter.grad is not None]
        own = [parameter for parameter in parameters if parameter in self.rows]
        if not own or distributed.world() == 1:
            return clip_by_global_norm(parameters, limit)
        gradients = [cast(Tensor, parameter.grad) for parameter in own]
        # An expert's gradient is the sum over all processes' images, not yet the mean.
        torch._foreach_div_(gradients, float(distributed.world()))
        copied = [cast(Tensor, parameter.grad) for parameter in parameters if parameter not in self.rows]
        squares = distributed.total(global_norm(gradients).square())
        norm = (squares + global_norm(copied).square()).sqrt()
        if limit is not None:
            torch._foreach_mul_([*copied, *gradients], torch.clamp(limit / norm, max=1.0))
        return norm

    def whole_network(self) -> Model:
        """Return the plain network with all its weights in this process; every process must call this."""
        for block in self._recomputed:
            del block.forward
        for block in self.network.blocks() if self.settings.compile else ():
            block._compiled_call_impl = None  # torch cannot undo it otherwise, and compiled blocks run no hooks
        if not self.writes_shares:
            return self.network
        weights = {name: _whole(tensor, self.rows) for name, tensor in self.network.state_dict(keep_vars=True).items()}
        family = next(family for family in FAMILIES.values() if isinstance(self.network, family.model))
        plain = family.model(self.network.config)
        plain.load_state_dict(weights)
        return plain.to(self.device)

    def _share_experts(self) -> None:
        layers = [layer for layer in self.network.modules() if isinstance(layer, MixtureOfExperts)]
        if not layers:
            raise RecipeError("compute.expert_parallel needs a network with experts, such as vmoe-b16.")
        if distributed.world() > 1:
            for layer in layers:
                layer.share_out(cast(dist.ProcessGroup, dist.group.WORLD))

    def _recompute(self) -> None:
        for block in self.network.blocks():
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
            self._recomputed.append(block)

    def _compile(self) -> None:
        from torch._dynamo import config  # takes seconds, which only compiling needs

        blocks = self.network.blocks()
        # Each rate of stochastic depth is a graph of its own; beyond the limit torch leaves blocks uncompiled without a word.
        config.recompile_limit = max(config.recompile_limit, 2 * len(blocks))
        for block in blocks:
            block.compile()

    def _copies(self) -> DistributedDataParallel:
        own = [
            name
            for name, parameter in self.module.named_parameters()
            if parameter in self.rows or parameter in self._apart
        ]
        if own:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
                self.module, own
            )
        unused = not self.plain  # masked patches leave the head alone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the option's later name is not in all torch that we run on
            return DistributedDataParallel(self.module, find_unused_parameters=unused, broadcast_buffers=False)

    def _shard(self, precision: Precision) -> None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        low = torch.bfloat16 if computes_in_bf16(self.device, precision) else None
        policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32)
        mesh = _mesh(self.device, self.settings)
        for block in self.network.blocks():
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.network, mesh=mesh, mp_policy=policy)
        for method in ("outputs", "features"):
            register_fsdp_forward_method(self.network, method)


def _check(method: Method, recipe: Recipe) -> None:
    settings = recipe.compute
    if recipe.optimizer.sam_rho is not None and settings.expert_parallel:
        raise RecipeError("SAM needs every gradient in each process; leave compute.expert_parallel out.")
    if settings.sharding == "none":
        return
    if recipe.optimizer.sam_images is not None:
        raise RecipeError(
            "optimizer.sam_images needs whole gradients in each process; leave it out, or compute.sharding at 'none'."
        )
    if settings.expert_parallel:
        raise RecipeError(
            "compute.expert_parallel needs compute.sharding 'none', because it shards the experts itself."
        )
    if recipe.optimizer.name == "adafactor":
        raise RecipeError(
            "Adafactor's state has rows and columns that sharding would cut; use adamw, or compute.sharding 'none'."
        )
    if not method.plain or recipe.adaptation.method == "lora":
        trained = f"The method '{recipe.method.name}'" if not method.plain else "LoRA"
        raise RecipeError(f"{trained} needs whole weights in each process; leave compute.sharding at 'none'.")


def _mesh(device: torch.device, settings: ComputeSettings) -> DeviceMesh:
    world = distributed.world()
    if settings.sharding == "full":
        return init_device_mesh(device.type, (world,))
    within = torchrun.number("LOCAL_WORLD_SIZE", world)
    return init_device_mesh(device.type, (world // within, within), mesh_dim_names=("copies", "shares"))


def _whole(tensor: Tensor, rows: Mapping[Tensor, Rows]) -> Tensor:
    if distributed.is_sharded(tensor):
        return cast("DTensor", tensor.detach()).full_tensor().cpu()
    if tensor in rows:
        parts = [torch.empty_like(tensor) for _ in range(distributed.world())]
        dist.all_gather(parts, tensor.detach().contiguous())
        return torch.cat(parts).cpu()
    return tensor.detach().cpu()
