"""Checkpoint dialects: one library's names for one family's tensors, and its preprocessing of images."""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from vitral.errors import VitralError, WeightsError
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build, config_from_json, config_to_json, same_tensors
from vitral.models.model import HEADS, ModelConfig
from vitral.tasks.registry import described_task
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.containers import ARCHITECTURE, COUNTER, Shape
from vitral.weights.layouts import SAME, Layout, Renames, Rule, Tensors, has_values, renamed, zeros

Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Stored:
    """A file before any tensor is read.

    Attributes:
        source: The file's name in messages.
        file_name: The file's name alone, in which some publishers put the model's.
        shapes: The shape of every tensor, by its name without prefix.
        config: the "config.json" next to it that its library wrote; empty if there is none.
        preprocessor: transformers' "preprocessor_config.json"; empty if there is none.
        wrapper: the entry of a torch file that contains the tensors, such as "model"; empty for none.
        given: fields of the network's config that our own description says, or the caller.
        backbone: The config of the network that the file's head stands on; None where none is given.
    """

    source: str
    file_name: str
    shapes: Shapes
    config: Mapping[str, Any] = field(default_factory=dict)
    preprocessor: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    backbone: ModelConfig | None = None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the network's images, pixels, where something says them."""
        return image_size(self.given.get("image_size")) or image_size(self.config.get("image_size"))

    def count(self, pattern: str) -> int:
        """Return how many distinct values the group of `pattern` has over all names: blocks, stages, units."""
        return len({match[1] for name in self.shapes if (match := re.match(pattern, name))})

    def stages(self, pattern: str, first: int = 0) -> tuple[int, ...]:
        """Return `count` for each stage from the first on, whose number takes the place of {} in the pattern."""
        counts: list[int] = []
        while units := self.count(pattern.format(first + len(counts))):
            counts.append(units)
        return tuple(counts)

    def base(self, bases: Sequence[str], *names: str) -> str | None:
        """Return the first beginning below which the file has tensors of all these names; None where there is none."""
        return next((base for base in bases if self.shapes.keys() >= {f"{base}{name}" for name in names}), None)

    def ignored(self, *prefixes: str) -> list[Rule]:
        """Return the rules for tensors that no forward pass needs, by what their names begin with."""
        return [Rule((), (name,), zeros()) for name in self.shapes if name.startswith(prefixes)]

    def classes(self, head: str, axis: int = 0) -> int:
        """Return how many classes the head's weight is of; 1,000 where there is none."""
        return self.shapes[head][axis] if head in self.shapes else 1000

    def patches(self, weight: str) -> tuple[int, tuple[int, int]]:
        """Return the width of a token, and height and width of a patch, from the weight that projects patches."""
        dim, _, height, width = self.shapes[weight]
        return dim, (height, width)

    def image(
        self, rows: int, patch: tuple[int, int], *, others: int = 0, usual: tuple[int, int] | None = None
    ) -> tuple[tuple[int, int], int]:
        """Return the size of the images that a position table is of, and how many of its rows are not of patches.

        The grid is the described one, and else a square.

        Args:
            rows: The table's length.
            patch: Height and width of a patch, pixels.
            others: How many tokens there are before the patches; all of them may have a row, or none.
            usual: Height and width of the images that the source prepares, pixels, whose grid is taken if it fits.

        Raises:
            ValueError: The rows form no such grid.
        """
        counts = (others, 0)
        for size in filter(None, (self.image_size, usual)):
            grid = size[0] // patch[0], size[1] // patch[1]
            if (count := rows - grid[0] * grid[1]) in counts:
                return (grid[0] * patch[0], grid[1] * patch[1]), count
            if size == self.image_size:
                raise NotComputed(
                    f"its images are said to be of {size[0]}x{size[1]} pixels, {grid[0]} x {grid[1]} patches, but its "
                    f"position embedding has {rows} rows"
                )
        count = next((count for count in counts if rows > count and math.isqrt(rows - count) ** 2 == rows - count), 0)
        side = square_side(rows - count)
        return (side * patch[0], side * patch[1]), count


@dataclass(frozen=True)
class Usage:
    """How a network's source uses it, as far as its names do not say; see `Reading`."""

    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A file's content, as a dialect reads it.

    Attributes:
        config: the architecture.
        rules: The rules that make our tensors from its own.
        preprocessing: The source's preprocessing of images.
        class_names: The class names in order, where the source has them.
        absent: Our tensors that the file lacks, which become zeros: those of a head that was never released.
        image_size: Height and width of the images that its source takes, pixels, where its positions are of another size.
        assumed: Fields of the config that nothing says, each with a note of its own on what was assumed, or with none.
        notes: what a user should know, one line each.
        task: what a label is.
        calibration: The calibration of the classifier that was written, as JSON values; None where there is none.
    """

    config: ModelConfig
    rules: Sequence[Rule]
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task: Task = SINGLE_LABEL
    image_size: tuple[int, int] | None = None
    calibration: object = None
    assumed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dialect:
    """One library's way to store one family.

    Attributes:
        name: the library or format: "original", "big_vision", "timm" or "transformers".
        family: the architecture's family in the catalog.
        matches: whether a file's names are this dialect's.
        read: reads a file whose names match; any KeyError, ValueError, IndexError or VitralError means that it is
            broken or incomplete.
        rules: Gives the rules for writing a config's model. Raises WeightsError where the library cannot compute the model.
        external: fields of the config that neither its names nor its config.json say, because the library's user gives them;
            a dotted one is a field of a part, such as "stem.norm_eps". Our description says them.
        folded: fields that are written exactly as another value of theirs: a class token's position as part of the token.
        numpy: whether a written file is .npz; else it is torch's or safetensors.
        wrapper: the entry under which a torch file keeps the tensors; empty for none.
        describe: the config.json of a model, for "transformers".
        prepare: the preprocessor_config.json of a model of regions there; None for that of a classifier.
        on_backbone: Whether its files hold a head alone, which stands on a network from elsewhere.
    """

    name: str
    family: str
    matches: Callable[[Stored], bool]
    read: Callable[[Stored], Reading]
    rules: Callable[[Any], list[Rule]]
    external: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    numpy: bool = False
    wrapper: str = ""
    describe: Callable[[Any], dict[str, Any]] | None = None
    prepare: Callable[[Preprocessing], dict[str, Any]] | None = None
    on_backbone: bool = False


def having(*names: str) -> Callable[[Stored], bool]:
    """Return what tells whether a file has tensors of all these names."""
    return lambda stored: stored.shapes.keys() >= set(names)


UNTRAINED = "its predictions mean nothing until it is fine-tuned."  # how the notes on a file without a head end
NO_BIAS = "Its head has no bias."
NO_HEAD = f"The file has no head: {UNTRAINED}"


def reading(
    stored: Stored, config: ModelConfig, rules: Sequence[Rule], usage: Usage, assumed: Mapping[str, str] | None = None
) -> Reading:
    """Return a file's content; without a head its rules are left out, and a note says what that means."""
    head = [name for rule in rules if rule.ours[:1] == ("head.weight",) for name in rule.theirs]
    notes = (*usage.notes, *_left_out(stored, config, usage.preprocessing))
    content = Reading(config, rules, usage.preprocessing, usage.class_names, (), notes, assumed=assumed or {})
    if head and head[0] in stored.shapes:
        return _without_bias(stored, content)
    absent = tuple(name for name in our_names(config) if name.startswith(HEADS))
    backbone = [rule for rule in rules if not "".join(rule.ours[:1]).startswith(HEADS)]
    return dataclasses.replace(content, rules=backbone, absent=absent, notes=(*notes, NO_HEAD))


def _without_bias(stored: Stored, content: Reading) -> Reading:
    """Return a file's content with a bias of zeros where a head of torch's has none; what is described is whole."""
    of_head = {rule.ours[0]: rule for rule in content.rules if rule.ours in (("head.weight",), ("head.bias",))}
    if len(of_head) < 2 or stored.config or "num_classes" in stored.given:
        return content
    weight, (bias,) = of_head["head.weight"], of_head["head.bias"].theirs
    if bias in stored.shapes or not bias.endswith(".bias"):
        return content

    def read(theirs: Tensors) -> Tensors:
        (made,) = weight.layout.read(theirs)
        return [made, torch.zeros(len(made))]

    both = Rule(("head.weight", "head.bias"), weight.theirs, Layout(read, list))
    others = [rule for rule in content.rules if rule not in of_head.values()]
    return dataclasses.replace(content, rules=[*others, both], notes=(*content.notes, NO_BIAS))


def _left_out(stored: Stored, config: ModelConfig, prepared: Preprocessing) -> list[str]:
    """Return a note where the source's images are larger than its whole patches, so that it leaves out the rest."""
    step, taken, given = getattr(config, "stride", (0, 0)), config.image_size, prepared.image_size
    rest = [outer - inner for outer, inner in zip(given, taken, strict=True)]
    if not stored.config or not any(rest) or not all(0 <= left < side for left, side in zip(rest, step, strict=True)):
        return []
    return [
        f"Its source takes images of {given[0]}x{given[1]} pixels and leaves out {rest[0]} rows and {rest[1]} columns, which "
        f"fill no patch; here images are resized to {taken[0]}x{taken[1]}."
    ]


def our_names(config: ModelConfig) -> list[str]:
    """Return the names of a model's tensors, without batch norms' counters."""
    return [name for name in meta_state(config) if not name.endswith(COUNTER)]


def renaming(renames: Renames, layouts: Callable[[str], Layout] = lambda _: SAME) -> Callable[[Any], list[Rule]]:
    """Return what gives the rules for a config's tensors where names follow from ours, whatever the config; see `renamed`."""
    return lambda config: renamed(our_names(config), renames, layouts)


@functools.lru_cache(maxsize=16)
def meta_state(config: ModelConfig) -> Mapping[str, Tensor]:
    """Return the tensors of a model on the meta device, where they have shapes but no values."""
    return MappingProxyType(build(config, seed=None).state_dict())


def image_size(value: object) -> tuple[int, int] | None:
    """Return the height and width that a JSON value says, as one number or as two; None for anything else."""
    sides = value if isinstance(value, list | tuple) and len(value) == 2 else (value, value)
    height, width = sides
    return (height, width) if type(height) is int and type(width) is int and min(height, width) > 0 else None


def square_side(tokens: int) -> int:
    """Return the side of a square grid of tokens, or raise ValueError if the tokens do not form a square."""
    if math.isqrt(tokens) ** 2 != tokens:
        raise ValueError(
            f"its position embedding has {tokens} rows, which is not a square grid; a config.json next to it says the size of "
            "its images, or image_size=[HEIGHT,WIDTH]"
        )
    return math.isqrt(tokens)


class NotHeld(WeightsError):
    """A format cannot hold a network.

    Attributes:
        what: The part of the network, as its name stands in a sentence.
    """

    what: str


def cannot_hold(dialect: str, what: str) -> NotHeld:
    """Return the error for a format that cannot hold something."""
    error = NotHeld(f"The format '{dialect}' cannot hold {what}.")
    error.what = what
    return error


def headless(dialect: str, what: str) -> Rule:
    """Return the rule for a format without a head: it refuses to write one, unless that is the zeros of a file without."""

    def write(ours: Tensors) -> Tensors:
        if any(map(has_values, ours)):
            raise cannot_hold(dialect, f"{what}; take 'timm'")
        return []

    return Rule(("head.weight", "head.bias"), (), Layout(list, write))


def keyless(dialect: str, what: str) -> Layout:
    """Return the layout of a format with biases of query and value, whose key has none: it refuses to write any."""

    def write(ours: Tensors) -> Tensors:
        query, key, value = ours[0].chunk(3)
        if has_values(key):
            raise cannot_hold(dialect, what)
        return [query.contiguous(), value.contiguous()]

    return Layout(lambda theirs: [torch.cat([theirs[0], torch.zeros_like(theirs[0]), theirs[1]])], write)


class NotComputed(ValueError):
    """What a description beside a file says of its network is not computed here, or does not go with its tensors."""


def broken(stored: Stored, error: Exception) -> WeightsError:
    """Return the error for a file that looks like an architecture but is incomplete, or of a network that is not computed."""
    if isinstance(error, NotComputed):
        return WeightsError(f"'{stored.source}' cannot be read: {error}.")
    reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
    return WeightsError(f"'{stored.source}' does not hold a whole model of its kind: {reason}.")


# The metadata key under which our safetensors files, in any library's names, keep what those names cannot express.
DESCRIPTION = "vitral"
CALIBRATION = "calibration"  # its entry where the classifier has one


def self_description(
    config: ModelConfig,
    preprocessing: Preprocessing,
    class_names: Sequence[str],
    *,
    task: Task = SINGLE_LABEL,
    calibration: Mapping[str, Any] | None = None,
) -> str:
    """Return as text what a file in another library's names cannot express, to be stored next to its tensors."""
    description = {
        ARCHITECTURE: config_to_json(config),
        "preprocessing": preprocessing.to_json(),
        "class_names": list(class_names),
        "task": task.name,
        **({} if calibration is None else {CALIBRATION: dict(calibration)}),
    }
    return json.dumps(description)


def described(content: Reading, text: str) -> Reading:
    """Return a file's content completed by its own description, or by that of its network alone.

    Raises:
        ValueError, KeyError, TypeError, VitralError: it is not a description, or describes another model.
    """
    description = json.loads(text)
    config = config_from_json(description[ARCHITECTURE])
    if not same_tensors(config, content.config):
        raise ValueError("its description is of another model than its tensors")
    content = dataclasses.replace(content, config=config)
    if description.keys() == {ARCHITECTURE}:
        return content
    names = tuple(str(name) for name in description["class_names"])
    return dataclasses.replace(
        content,
        preprocessing=Preprocessing.from_json(description["preprocessing"]),
        class_names=names,
        notes=(),
        assumed={},
        image_size=None,
        task=described_task(description),
        calibration=description.get(CALIBRATION),
    )


BROKEN = (KeyError, ValueError, IndexError, TypeError, AttributeError, VitralError)
