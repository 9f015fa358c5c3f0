"""The agent that `torchrun` runs, with processes that are forked off it and so need not import anything."""

import sys
from collections.abc import Callable
from typing import Any

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def main(restarts: int, target: Callable[..., int], *arguments: Any) -> int:  # noqa: ANN401
    """Carry a function out in two processes of one job, and start both again when one of them is lost."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        start_method="fork",
    )
    elastic_launch(config, _process)(target, *arguments)
    return 0


def _process(target: Callable[..., int], *arguments: Any) -> None:  # noqa: ANN401
    if status := target(*arguments):
        sys.exit(status)
