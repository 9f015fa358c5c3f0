"""Intermediate tensors, one way: named modules watched by forward hooks while a network runs."""

import contextlib
import fnmatch
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from vitral.errors import ModelError
from vitral.models.model import Model


@contextlib.contextmanager
def record(model: Model, pattern: str) -> Iterator[dict[str, Tensor]]:
    """Collect the outputs of the modules with names that match `pattern` while the block runs.

    Blocks are named `blocks.0`, `blocks.1`, ..., and so are their parts: `record(model, "blocks.*.attention")`. Of
    an attention layer, which is a module with a method `probabilities`, the probabilities are recorded, (batch, heads, tokens,
    tokens or keys), rows summing to one, of every token also where the network itself computes the class token's alone; of a
    module that gives auxiliary losses, too, its tokens; of any other its output. Works on the network as
    built, not on a compiled one.

    Raises:
        ModelError: No module matches.
    """
    recorded: dict[str, Tensor] = {}
    names = {module: name for name, module in _named_modules(model) if fnmatch.fnmatchcase(name, pattern)}
    if not names:
        raise ModelError(f"No part of the network is called '{pattern}'.")

    def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:  # noqa: ANN401
        if (probabilities := getattr(module, "probabilities", None)) is not None:
            output = probabilities(*inputs, **{key: value for key, value in named.items() if key == "rotation"})
        recorded[names[module]] = output[0] if isinstance(output, tuple) else output

    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in names]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def _named_modules(model: Model) -> Iterator[tuple[str, nn.Module]]:
    blocks = {block: f"blocks.{index}" for index, block in enumerate(model.blocks())}
    for block, name in blocks.items():
        for part, module in block.named_modules():
            yield (f"{name}.{part}" if part else name), module
    inside = {id(module) for block in blocks for module in block.modules()}
    for name, module in model.named_modules():
        if name and id(module) not in inside:
            yield name, module
