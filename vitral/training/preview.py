"""What a training command would do: everything that it decides before its first step, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vitral.data.classes import Reading
from vitral.events import Listener, show
from vitral.training.request import Kind, Request, request_of
from vitral.training.session import Run
from vitral.training.starting.opening import looked_at
from vitral.training.starting.prepare import prepare
from vitral.weights.named.table import without_network

SWEPT = "This is one run: a sweep makes one for each learning rate that it tries and one with the best, which share the time."


def plan(
    data: str | Path | None = None,
    *,
    kind: Kind = "fine-tune",
    source: str | Path | None = None,
    model: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool | None = None,
    sweep: bool = False,
    baselines: bool = True,
    quick: bool = False,
    resume: bool = False,
    offline: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> Run:
    """Return what `finetune` or `pretrain` would do with these arguments: network, size, recipe, length, cost, and why.

    The data are read, the weights loaded and a few steps of a copy of the network timed; nothing is written. Published weights
    that `finetune` would choose and fetch by itself are not fetched: a network of the same kind stands in for them; two that
    are on this machine are compared by their probes, as there.

    Printed, the result is a line a decision, and how the time would be spent; `to_json` gives the figures, `recipe` the
    settings. The arguments are those of `finetune`, and of kind "pre-train" of `pretrain`: with `resume` the plan is how the
    run in `out` would continue, with `sweep` that of one of a sweep's runs, as if it had all of the time.

    Raises:
        VitralError: Bad input, by kind; one line that names the thing.
    """
    given = {name: value for name, value in locals().items() if name not in ("started", "listener")}
    return plan_request(request_of(**given), started=started, listener=listener)


def plan_request(request: Request, *, started: float | None = None, listener: Listener = show) -> Run:
    """Return what a request would do; see `plan`."""
    with without_network(request.offline):
        run = prepare(looked_at(request, started=started, listener=listener))
    if not request.sweep:
        return run
    return replace(run, plan=run.plan.with_reasons(SWEPT))
