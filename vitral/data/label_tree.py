"""A tree of labels: a text file with a line for each label, the one above it behind a tab, or the label alone at the top."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.data.names import one_spelling
from vitral.errors import DataError, did_you_mean, one_line
from vitral.files import text_of
from vitral.paths import from_home, refuse_endless

SEPARATOR = "\t"
BYTE_ORDER_MARK = "\ufeff"
SHOWN = 5  # labels that a message names


@dataclass(frozen=True)
class Levels:
    """Labels by their depth in a tree.

    Attributes:
        nodes: The names of each level's labels, the top level first; levels of one label are left out, as in the original.
        places: For each class, in its order, and each of these levels the index there of the class itself or of the label
            above it; None below the class.
        left_out: The number of labels of the deepest level, if that was left out.
    """

    nodes: tuple[tuple[str, ...], ...]
    places: tuple[tuple[int | None, ...], ...]
    left_out: int = 0


def read_tree(path: str | Path) -> dict[str, str | None]:
    """Return what stands above each label; None where nothing does.

    Raises:
        DataError: the file cannot be read, a line has another form, or a label has two above it.
    """
    source = from_home(str(path))
    refuse_endless(source, DataError)
    try:
        text = text_of(source)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The label tree '{path}' cannot be read ({one_line(error)}).") from error
    above: dict[str, str | None] = {}
    for number, line in enumerate(text.removeprefix(BYTE_ORDER_MARK).split("\n"), 1):
        if not line.strip():
            continue
        label, *parents = (part.strip() for part in line.split(SEPARATOR))
        if len(parents) > 1 or not all((label, *parents)):
            raise DataError(f"'{path}', line {number}, is not a label, a tab, and the label above it: '{line:.80}'.")
        parent = parents[0] if parents else None
        if above.setdefault(label, parent) != parent:
            raise DataError(
                f"'{path}', line {number}: '{label}' is below {_quoted(parent)} and below {_quoted(above[label])}; choose one."
            )
    return above


def levels(above: Mapping[str, str | None], class_names: Sequence[str], title: str, *, deepest: bool = True) -> Levels:
    """Return the levels of a tree that some classes have a part in, from the label above each label.

    Unless `deepest`, the deepest level is left out, as in semantics.py of ImageNet-21K-P's code.

    Raises:
        DataError: a class is not in the tree, labels stand above each other, there is no level with two labels, or every class
            stands on the level that is left out.
    """
    above = _spelled(above, class_names)
    known = {*above, *(label for label in above.values() if label is not None)}
    if unknown := [name for name in class_names if name not in known]:
        listed = ", ".join(unknown[:SHOWN]) + (f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else "")
        raise DataError(
            f"The label tree '{title}' does not have {len(unknown)} of the {len(class_names)} classes: {listed}."
            f"{did_you_mean(unknown[0], known)}"
        )
    chains = [tuple(reversed(list(_upwards(name, above, title)))) for name in class_names]
    by_depth: list[dict[str, None]] = [{} for _ in range(max(map(len, chains)))]
    for chain in chains:
        for depth, node in enumerate(chain):
            by_depth[depth].setdefault(node)
    left_out = 0 if deepest else len(by_depth[-1])
    if left_out == len(class_names):
        raise DataError(f"All classes stand on the deepest level of the label tree '{title}'; it cannot be left out.")
    depths = [depth for depth, nodes in enumerate(by_depth[: None if deepest else -1]) if len(nodes) > 1]
    if not depths:
        raise DataError(f"The label tree '{title}' has no level that tells two of the classes apart.")
    own = {name: len(chain) - 1 for name, chain in zip(class_names, chains, strict=True)}
    if single := [
        name for name, depth in own.items() if len(by_depth[depth]) == 1 and (deepest or depth < max(own.values()))
    ]:
        raise DataError(
            f"The label tree '{title}' has the class '{single[0]}' alone on its level, so that nothing tells it from others; "
            "put labels beside it, or a label below it in its place."
        )
    place = [{node: index for index, node in enumerate(by_depth[depth])} for depth in depths]
    return Levels(
        tuple(tuple(by_depth[depth]) for depth in depths),
        tuple(
            tuple(place[row][chain[depth]] if depth < len(chain) else None for row, depth in enumerate(depths))
            for chain in chains
        ),
        left_out,
    )


def _spelled(above: Mapping[str, str | None], class_names: Sequence[str]) -> dict[str, str | None]:
    """Return a tree with classes spelled as theirs, where only the Unicode form differs."""
    labels = [*above, *(label for label in above.values() if label is not None), *class_names]
    spelled = one_spelling(Counter(labels), class_names)
    return {spelled.get(label, label): parent and spelled.get(parent, parent) for label, parent in above.items()}


def _quoted(label: str | None) -> str:
    return "nothing" if label is None else f"'{label}'"


def _upwards(name: str, above: Mapping[str, str | None], title: str) -> Iterator[str]:
    seen = {name}
    yield name
    while (parent := above.get(name)) is not None:
        name = parent
        if name in seen:
            raise DataError(
                f"In the label tree '{title}' '{name}' stands above itself; remove one of the lines between."
            )
        seen.add(name)
        yield name
