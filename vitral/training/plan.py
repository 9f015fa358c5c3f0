"""`Plan`: everything that is decided of a run before its first step; plan.json in its folder, which resuming reads."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from vitral.advice import argument
from vitral.errors import TrainingError, one_line
from vitral.files import text_of, write_file
from vitral.images.augment import Augmentation
from vitral.paths import ATTEMPTS, PLAN_FILE, attempt_folder_name
from vitral.training.settings.recipe import Recipe

# The names of what a run tries: of its only attempt,
TRAINED = "trained network"
# and of several, from trained weights.
LAST = "last blocks"
LORA = "LoRA"
ALL = "all weights"
ANEW = "as from scratch"
FINER = "larger images"
FRESH = "from scratch"  # another network, from random weights
SEVERAL = (FRESH, LAST, LORA, ALL, ANEW, FINER)  # those with the start in this order; FRESH among or after them

Origin = Literal["recipe", "model", "weights"]


@dataclass(frozen=True)
class Cost:
    """What a run's training steps are expected to cost.

    Attributes:
        seconds: Of all steps of all attempts.
        images_per_second: Images that learn, over all processes.
        bytes: Memory in a process, beyond the libraries'.
        update_share: The share of the time for what the optimizer multiplies to make an update.
    """

    seconds: float
    images_per_second: float
    bytes: int
    update_share: float = 0.0

    def sentence(self) -> str:
        """Return speed and memory as one line for people."""
        own = f" ({self.update_share:.0%} of the time is Muon's own products)" if self.update_share else ""
        memory = f"{self.bytes / 2**30:.1f} GiB of memory beyond the libraries'"
        return f"Speed: {self.images_per_second:.3g} images/s in training{own}; {memory}."


@dataclass(frozen=True)
class ChosenStart:
    """What a run that named no start begins with, and why.

    Attributes:
        name: The published weights; empty for random ones.
        lines: The reason and where they come from, for people.
        image_size: Side of the images whose features are had in time, pixels; None for random weights.
    """

    name: str
    lines: tuple[str, ...]
    image_size: int | None = None


@dataclass(frozen=True)
class Attempt:
    """One training of a run.

    Attributes:
        name: What it is called: "LoRA"; "trained network" where it is the only one.
        recipe: All its settings.
        reason: What learns.
        share: Of the time for training, 0 to 1; those of a run's attempts add up to 1.
        from_probe: Whether its head begins as the linear probe, where that is the first classifier.
        relative_cost: How many times longer an image takes than in the run's own size.
        network: The model of the catalog that it trains from random weights; empty for the run's own network.
    """

    name: str
    recipe: Recipe
    reason: str = ""
    share: float = 1.0
    from_probe: bool = False
    relative_cost: float = 1.0
    network: str = ""

    @property
    def title(self) -> str:
        """The name as it begins a sentence."""
        return self.name[0].upper() + self.name[1:]

    def line(self) -> str:
        """Return what it is, and its share of the time, as one line for people."""
        return f"  {self.name}, {self.share:.0%} of the time: {self.reason}."


@dataclass(frozen=True)
class Plan:
    """What is decided of a run.

    Attributes:
        start: Where the weights come from, as `finetune` takes it: a model's name or trained weights.
        origin: Whether the network is the recipe's, one that is named next to it, or comes with trained weights.
        recipe: The settings of the network and of all attempts, but for what each of several changes.
        augmentation: How training images vary where the recipe leaves it open.
        reasons: Why these settings, one line each.
        attempts: What is trained one after the other, the cheapest first; empty where nothing is.
        why_none: Why nothing is trained; empty where something is.
        cost: What training is expected to take; None where nothing is to be trained.
        exactly: Whether the trained network is delivered whatever a simple classifier reaches.
        learned: Whether the trained weights have learned from the same data before.
        chosen: The start that was chosen; None where one was named.
        image_seconds: Seconds of one image read and put through the network; None where it was not measured. It is not written
            down, because the machine that continues may be another, or busier.
    """

    start: str
    origin: Origin
    recipe: Recipe
    augmentation: Augmentation
    reasons: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    why_none: str = ""
    cost: Cost | None = None
    exactly: bool = False
    learned: bool = False
    chosen: ChosenStart | None = None
    image_seconds: float | None = None

    @property
    def several(self) -> bool:
        """Whether there are several attempts, each in a folder of its own."""
        return len(self.attempts) > 1

    @property
    def step_seconds(self) -> float:
        """What an update is expected to take; 0 where nothing is trained."""
        return 0.0 if self.cost is None else self.recipe.batch_size / self.cost.images_per_second

    def folders(self, folder: Path) -> dict[str, Path]:
        """Return where each attempt of the run in a folder keeps what it makes, by name: the only one in the run folder."""
        names = [attempt.name for attempt in self.attempts]
        return {name: folder / ATTEMPTS / attempt_folder_name(name) if self.several else folder for name in names}

    def with_reasons(self, *lines: str) -> "Plan":
        """Return the plan with further reasons."""
        return replace(self, reasons=(*self.reasons, *lines))

    def only(self, attempt: Attempt) -> "Plan":
        """Return the plan with a single attempt, which has all of the time."""
        return replace(self, attempts=(replace(attempt, name=TRAINED, share=1.0),))

    def of_network(self, attempt: Attempt) -> "Plan":
        """Return the plan as an attempt has it that trains a network of its own from random weights."""
        return replace(self, start=attempt.network, origin="model", recipe=attempt.recipe, learned=False)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        values: dict[str, Any] = _PLAN.dump_python(self, mode="json")
        return values


_PLAN = TypeAdapter(Plan)


def write_plan(folder: Path, plan: Plan) -> None:
    """Write a plan into a run folder."""
    write_file(folder / PLAN_FILE, _PLAN.dump_json(replace(plan, image_seconds=None), indent=1))


def read_plan(folder: Path) -> Plan | None:
    """Return the plan of the run in a folder; None where it has none yet.

    Raises:
        TrainingError: It is damaged, or of another version of Vitral.
    """
    path = folder / PLAN_FILE
    if not path.exists():
        return None
    try:
        plan = _PLAN.validate_json(text_of(path))
        _check(plan)
        return plan
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"The plan of the run in '{folder}' cannot be read ({one_line(error):.80}); restore '{path}', "
            f"or begin the run anew with {argument('overwrite', True)}."
        ) from error


def _check(plan: Plan) -> None:
    """Refuse values that no plan has, although they are of the right types.

    Raises:
        ValueError: There are such values.
    """
    names = [attempt.name for attempt in plan.attempts]
    if any(attempt.recipe.steps is None for attempt in plan.attempts):
        raise ValueError("an attempt without a length")
    if plan.cost is not None and not plan.cost.images_per_second > 0:
        raise ValueError("no images per second")
    if plan.several and (len(set(names)) < len(names) or not set(names) <= set(SEVERAL)):
        raise ValueError("the names of the attempts")
