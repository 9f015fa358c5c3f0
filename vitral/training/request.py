"""`Request`: what a training command was given, each argument once."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from vitral import plugins
from vitral.advice import argument
from vitral.data.classes import Reading, check_reading
from vitral.described import spelled
from vitral.errors import RecipeError, UsageError
from vitral.training.settings.durations import seconds, written

Kind = Literal["fine-tune", "pre-train"]
FUNCTIONS = {"fine-tune": "finetune", "pre-train": "pretrain"}
PRETRAINING_DATA = "visualatom"

PATHS = ("method.teacher", "method.tree")  # keys of a recipe whose values are paths
DATA_NAMES = ("method.unlabelled", "evaluation.data")  # keys of a recipe whose values name data
EXECUTION = {"execution": True}  # marks a field of how a command is carried out, which its run folder does not keep


@dataclass(frozen=True)
class Request:
    """What a training command was given: the arguments of `finetune` and `pretrain`, which describe them, and some more.

    Attributes:
        kind: "fine-tune" or "pre-train".
        overrides: Changes to the recipe, KEY=VALUE; a path among them is kept in full.
        time: The budget of the whole command: a duration such as "10m" or seconds; kept in seconds. None for no budget.
        exact: Whether what the recipe trains is delivered however it compares with a simple classifier, as studies want it.
        where: The folder in which the command was given, to which its paths are relative.
        plugins: The files of plugins that were loaded.

    Raises:
        RecipeError: The time is no duration.
        UsageError: `quick` goes with an argument that it would leave out.
        DataError: `classes` is no way of reading folders.
    """

    kind: str
    data: str | None = None
    source: str | None = None
    model: str | None = None
    recipe: str | None = None
    overrides: tuple[str, ...] = ()
    image_size: int | None = None
    time: str | float | None = None
    seed: int | None = None
    classes: Reading | None = None
    group: str | None = None
    skip_bad_images: bool | None = None
    sweep: bool = False
    baselines: bool = True
    quick: bool = False
    exact: bool = False
    where: str = field(default_factory=lambda: str(Path.cwd()))
    plugins: tuple[str, ...] = field(default_factory=lambda: tuple(str(plugin.path) for plugin in plugins.loaded()))
    out: Path | None = field(default=None, metadata=EXECUTION)
    resume: bool = field(default=False, metadata=EXECUTION)
    overwrite: bool = field(default=False, metadata=EXECUTION)
    data_changed: bool = field(default=False, metadata=EXECUTION)
    offline: bool = field(default=False, metadata=EXECUTION)

    def __post_init__(self) -> None:
        for name in ("data", "source", "recipe"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, str(value))
        if self.out is not None:
            object.__setattr__(self, "out", Path(self.out) if str(self.out).strip() else self.out)
        if isinstance(self.time, str):
            object.__setattr__(self, "time", seconds(self.time))
        if isinstance(self.overrides, str):
            raise UsageError(
                f"{argument('overrides')} is a list of settings: {argument('overrides', [self.overrides])}."
            )
        if self.kind not in get_args(Kind):
            raise UsageError(f"A run is of the kind {' or '.join(get_args(Kind))}, not {self.kind!r}.")
        object.__setattr__(self, "overrides", tuple(map(_anchored, self.overrides)))
        check_reading(self.classes)
        if self.quick:
            self._check_quick()

    def _check_quick(self) -> None:
        quick, baselines = argument("quick", True), None if self.baselines else False
        if self.sweep:
            raise UsageError(f"A sweep trains; leave out {quick}, which stops after the first simple classifier.")
        for name, value in (("recipe", self.recipe), ("baselines", baselines)):
            if value is not None:
                other = argument(name, value)
                raise UsageError(f"{quick} stops after the first simple classifier, so {other} cannot go with it.")

    @property
    def budget_seconds(self) -> float | None:
        """The time that the whole command may take; None for as long as it needs."""
        return None if self.time is None else float(self.time)

    @property
    def exactly(self) -> bool:
        """Whether the trained network is delivered whatever a simple classifier reaches: a recipe was named."""
        return self.exact or self.sweep or self.recipe is not None

    @property
    def changes(self) -> tuple[str, ...]:
        """The changes to the recipe, image size and seed among them; of a key the last one holds."""
        pairs = (("image_size", self.image_size), ("seed", self.seed))
        return (*self.overrides, *(f"{key}={value}" for key, value in pairs if value is not None))

    @cached_property
    def overridden(self) -> dict[str, str]:
        """The recipe's keys that the command sets, with their values; of a section given as a table, each of its keys."""
        return settings_of(self.changes)

    def required_data(self) -> str:
        """Return the data's name.

        Raises:
            UsageError: None was given, and no run names it.
        """
        if self.data is not None:
            return self.data
        if self.kind == "pre-train":
            return PRETRAINING_DATA
        raise UsageError(
            f"Which data? Name a folder, file, address or built-in set with {argument('data')}, or for "
            f"{argument('resume', True)} the {argument('out')} of a run that began."
        )

    def stored(self) -> dict[str, Any]:
        """Return what a run folder keeps of the request, as JSON values by field."""
        names = (entry.name for entry in fields(self) if not entry.metadata.get("execution"))
        values = {name: getattr(self, name) for name in names}
        if self.group is None:
            del values["group"]  # which studies of earlier versions do not know, and compare
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def call(self) -> str:
        """Return what one would type in Python to ask for this."""
        given: dict[str, object] = {
            "source": self.source,
            "model": self.model,
            "classes": self.classes,
            "group": self.group,
            "recipe": self.recipe,
            "overrides": list(self.overrides) or None,
            "image_size": self.image_size,
            "time": None if self.budget_seconds is None else written(self.budget_seconds),
            "seed": self.seed,
            "skip_bad_images": self.skip_bad_images,
            "sweep": self.sweep or None,
            "baselines": None if self.baselines or self.kind == "pre-train" else False,
            "quick": self.quick or None,
        }
        words = [] if self.data is None else [repr(self.data)]
        words += [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"vitral.{FUNCTIONS[self.kind]}({', '.join(words)})"


def request_of(
    kind: Kind,
    *,
    time: str | float | None = None,
    budget_seconds: float | None = None,
    **given: Any,  # noqa: ANN401  # of each field its own type
) -> Request:
    """Return the request of a call from Python, where names may be paths and the budget may come under its older name.

    Raises:
        RecipeError: The time is no duration, or was given twice.
    """
    if time is not None and budget_seconds is not None:
        raise RecipeError("time and budget_seconds say the same thing; give time alone.")
    budget = budget_seconds if time is None else time
    return Request(kind, time=None if budget is None else seconds(budget), **given)


def settings_of(changes: Iterable[str]) -> dict[str, str]:
    """Return the recipe's keys that changes, KEY=VALUE, set, with their values; of a section given as a table, its keys."""
    pairs = (change.partition("=") for change in changes)
    return {key: value for name, _, text in pairs for key, value in _leaves(name.strip(), text)}


def _anchored(change: str) -> str:
    """Return a change to a recipe with its path in full, because a run may continue from another folder."""
    key, equals, value = change.partition("=")
    if key.strip() in PATHS and value and Path(value).exists():
        return f"{key}{equals}{Path(value).resolve()}"
    if key.strip() in DATA_NAMES and value:
        from vitral.data.open import parts_of_name  # imports torch, which takes a while, and few requests need it

        before, path, after = parts_of_name(value)
        return f"{key}{equals}{before}{Path(path).resolve()}{after}" if path and Path(path).exists() else change
    return change


def _leaves(key: str, text: str) -> Iterator[tuple[str, str]]:
    """Give a setting as it was typed; of a section typed as a table those in it, each with its dotted key."""
    value = spelled(text)
    if not isinstance(value, dict):
        yield key, text
        return
    for name, inner in value.items():
        yield from _leaves(f"{key}.{name}", json.dumps(inner) if isinstance(inner, dict) else str(inner))
