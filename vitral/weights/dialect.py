"""What a checkpoint dialect is: one library's names for one family's tensors, and what it does with an image."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitral.errors import VitralError, WeightsError
from vitral.images.preprocessing import Preprocessing
from vitral.models.codec import config_from_json, config_to_json
from vitral.models.families import build
from vitral.models.model import HEADS, ModelConfig
from vitral.models.naming import same_tensors
from vitral.tasks.registry import described_task
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task
from vitral.weights.containers import COUNTER, Shape
from vitral.weights.layouts import Rule

Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Stored:
    """What is known of a file before a tensor is read.

    Attributes:
        source: what to call it in a message.
        file_name: its name, which some publishers put the model in.
        shapes: of every tensor, without prefix.
        config: the JSON beside it that its library wrote ("config.json"); empty if there is none.
        preprocessor: transformers' "preprocessor_config.json"; empty if there is none.
        wrapper: the entry that the tensors lay under in a torch file, such as "model"; empty for none.
    """

    source: str
    file_name: str
    shapes: Shapes
    config: Mapping[str, Any] = field(default_factory=dict)
    preprocessor: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str = ""

    def count(self, pattern: str) -> int:
        """Return how many numbers the group of `pattern` takes over all names: blocks, stages, units."""
        return len({found[1] for name in self.shapes if (found := re.match(pattern, name))})


@dataclass(frozen=True)
class Reading:
    """What a file holds, as a dialect understands it.

    Attributes:
        config: the architecture.
        rules: from its tensors to ours.
        preprocessing: what the source does with an image.
        class_names: in order, where the source says them.
        absent: our tensors that it has none of, which become zeros: a head that was never released.
        notes: what a user should know, one line each.
        task: what a label is.
    """

    config: ModelConfig
    rules: Sequence[Rule]
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task: Task = SINGLE_LABEL


@dataclass(frozen=True)
class Dialect:
    """One library's way to store one family.

    Attributes:
        name: of the library or format: "original", "big_vision", "timm" or "transformers".
        family: of the architecture, as the catalog calls it.
        matches: whether the names are its own.
        read: understands a file whose names match; any KeyError, ValueError, IndexError or VitralError means that it is
            broken or not whole.
        rules: for writing a network of a config. Raises WeightsError where the format cannot hold it.
    """

    name: str
    family: str
    matches: Callable[[Stored], bool]
    read: Callable[[Stored], Reading]
    rules: Callable[[Any], list[Rule]]


NO_HEAD = "The file has no head: its predictions mean nothing until it is fine-tuned."


def reading(
    config: ModelConfig,
    rules: Sequence[Rule],
    preprocessing: Preprocessing,
    *,
    head: bool,
    class_names: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
) -> Reading:
    """Return what a file holds; without a head its rules are left out, and a note says what that means."""
    if head:
        return Reading(config, rules, preprocessing, class_names, (), notes)
    absent = tuple(name for name in our_names(config) if name.startswith(HEADS))
    kept = [rule for rule in rules if not rule.ours[0].startswith(HEADS)]
    return Reading(config, kept, preprocessing, class_names, absent, (*notes, NO_HEAD))


def our_names(config: ModelConfig) -> list[str]:
    """Return the names of a network's tensors, batch norms' counters left out."""
    return [name for name in build(config, seed=None).state_dict() if not name.endswith(COUNTER)]


def square_side(tokens: int) -> int:
    """Return the side of a square grid of tokens.

    Raises:
        ValueError: they make no square.
    """
    if math.isqrt(tokens) ** 2 != tokens:
        raise ValueError(f"its position embedding has {tokens} rows, which is no square grid")
    return math.isqrt(tokens)


def cannot_hold(dialect: str, what: str) -> WeightsError:
    """Return the error of a format that has no place for something."""
    return WeightsError(f"The format '{dialect}' cannot hold {what}.")


def broken(stored: Stored, error: Exception) -> WeightsError:
    """Return the error of a file that begins like an architecture and is not whole."""
    reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
    return WeightsError(f"'{stored.source}' holds no whole network of its kind: {reason}.")


# Where a safetensors file of ours, in whosever names, keeps what those names cannot say: see `self_description`.
DESCRIPTION = "vitral"


def self_description(
    config: ModelConfig, preprocessing: Preprocessing, class_names: Sequence[str], *, task: Task = SINGLE_LABEL
) -> str:
    """Return what a file of another library's names has no place for, as the text that goes beside its tensors."""
    said = {
        "architecture": config_to_json(config),
        "preprocessing": preprocessing.to_json(),
        "class_names": list(class_names),
        "task": task.name,
    }
    return json.dumps(said)


def described(found: Reading, text: str) -> Reading:
    """Return what a file holds by what it says of itself.

    Raises:
        ValueError, KeyError, TypeError, VitralError: it is no such text, or about another network.
    """
    said = json.loads(text)
    config = config_from_json(said["architecture"])
    if not same_tensors(config, found.config):
        raise ValueError("what it says of itself is about another network than its tensors are")
    names = tuple(str(name) for name in said["class_names"])
    return dataclasses.replace(
        found,
        config=config,
        preprocessing=Preprocessing.from_json(said["preprocessing"]),
        class_names=names,
        notes=(),
        task=described_task(said),
    )


BROKEN = (KeyError, ValueError, IndexError, TypeError, AttributeError, VitralError)
