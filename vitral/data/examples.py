"""The examples of WebDataset shards: which files belong together, which holds the image, which the classes, and what it says.

An example's name ends at the first dot, as in WebDataset. Where that gives no image, but the last dot gives images with labels,
the names themselves have dots.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from vitral.data.archive import Member
from vitral.data.chosen import PREFIX, choose, chosen
from vitral.data.stored import UNREAD
from vitral.data.table_cells import UNKNOWN_NUMBER
from vitral.errors import DataError

LABELS = (".cls", ".txt", ".json")
CLASS = "cls"
TEXT = "txt"
OBJECT = "json"
FILES = "files in an example"  # what messages call them
MOST_CLASSES = 1_000_000
FEW = 10  # texts, of fewer than which nothing can be said
SHOWN = 40  # characters of a text that a message shows
BOX = re.compile(r"\d+(\s+-?\d*\.\d+(e-?\d+)?){4,}")  # a class's number and coordinates between 0 and 1


@dataclass(frozen=True)
class Example:
    """The files of an example by extension, without the dot before it: offset and size of images, the text of labels."""

    name: str
    images: dict[str, tuple[int, int]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


def grouped(files: Iterable[tuple[str, tuple[int, int] | str]], shard: str) -> list[Example]:
    """Return the examples that have an image, from the name of each file with an image's place or a label's text.

    Raises:
        DataError: a file is there twice.
    """
    found: dict[str, Example] = {}
    for name, content in files:
        folder, slash, base = name.rpartition("/")
        stem, _, extension = base.partition(".")
        example = found.setdefault(folder + slash + stem, Example(folder + slash + stem))
        kind = extension.lower()
        if kind in example.images or kind in example.labels:
            raise DataError(f"The shard '{shard}' holds '{name}' twice; make it again.")
        if isinstance(content, str):
            example.labels[kind] = content
        else:
            example.images[kind] = content
    return [inner for example in found.values() for inner in _divided(example) if inner.images]


def _divided(example: Example) -> Iterator[Example]:
    """Give an example, or those that its files are by the last dot of their names where that is meant."""
    inner: dict[str, Example] = {}
    for kinds, kept in ((example.images, "images"), (example.labels, "labels")):
        for kind, content in kinds.items():
            stem, dot, last = kind.rpartition(".")
            name = f"{example.name}.{stem}" if dot else example.name
            getattr(inner.setdefault(name, Example(name)), kept)[last] = content
    complete = any(each.images and each.labels for each in inner.values())
    if all("." in kind for kind in example.images) and (complete or not example.labels):
        yield from inner.values()
    else:
        yield example


def image_members(title: str, shards: Sequence[str], examples: Sequence[Sequence[Example]]) -> list[list[Member]]:
    """Return the image of each example of each shard.

    Raises:
        DataError: an example has several that could be meant, or not the chosen one.
    """
    decided: dict[tuple[str, ...], str] = {}
    members: list[list[Member]] = []
    for shard, listed in zip(shards, examples, strict=True):
        members.append([])
        for example in listed:
            kind = _decide(title, "image", example.images, decided, _plain)
            if kind not in example.images:
                raise DataError(f"'{shard}:{example.name}' has no image .{kind}, only {_dotted(example.images)}.")
            offset, size = example.images[kind]
            members[-1].append(Member(example.name, size, offset))
    return members


def _decide(
    title: str,
    what: str,
    kinds: Iterable[str],
    decided: dict[tuple[str, ...], str],
    meant: Callable[[Sequence[str]], Sequence[str]],
) -> str:
    """Return which of an example's files is meant; equal ones are decided once."""
    key = tuple(kinds)
    if key not in decided:
        decided[key] = choose(title, what, key, meant(key), FILES) or ""
    return decided[key]


def _plain(kinds: Sequence[str]) -> Sequence[str]:
    """Return the extensions without a dot within."""
    return [kind for kind in kinds if "." not in kind]


def _dotted(kinds: Iterable[str]) -> str:
    return ", ".join(f".{kind}" for kind in kinds) or "none"


@dataclass
class Labels:
    """What the label files of shards say.

    Attributes:
        title: The data's name in messages.
        class_names: The classes in order: those next to the shards, else numbers if all are numbers; None otherwise.
        classes: The classes of each example, in order.
        several: Whether an image may have several classes.
    """

    title: str
    class_names: tuple[str, ...] | None
    classes: list[tuple[str, ...]] = field(default_factory=list)
    several: bool = False
    _numbers: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)

    def of(self, shards: Sequence[str], examples: Sequence[Sequence[Example]]) -> "Labels":
        """Read the labels of every example.

        Raises:
            DataError: an example has no class, or a label file holds something else, or several could be meant.
        """
        decided: dict[tuple[str, ...], str] = {}
        for shard, listed in zip(shards, examples, strict=True):
            for example in listed:
                where = f"{shard}:{example.name}"
                if not example.labels:
                    raise DataError(f"'{where}' has an image without a class ({', '.join(LABELS)}).")
                kind = _decide(self.title, "label", _candidates(example), decided, _meant)
                if kind not in example.labels:
                    raise DataError(f"'{where}' has no label .{kind}, only {_dotted(example.labels)}.")
                self.classes.append(self._read(example.labels[kind], kind, f"{where}.{kind}"))
        if chosen("label") is None:
            _refuse_captions(self.title, self._texts)
        if self._numbers and self._names and self.class_names is None:
            raise DataError(
                f"The .cls files of '{self.title}' hold numbers, such as {self._numbers[0]}, and names, such as "
                f"'{self._names[0][:SHOWN]}'; give one or the other."
            )
        if self.class_names is None and 0 < len(self._numbers) == sum(each != UNREAD for each in self.classes):
            if (most := max(self._numbers)) >= MOST_CLASSES:
                raise DataError(
                    f"'{self.title}' has a class of the number {most:,}, and so as many classes; number them from 0, or give "
                    "their names."
                )
            self.class_names = tuple(str(number) for number in range(most + 1))
        return self

    def _read(self, text: str, kind: str, where: str) -> tuple[str, ...]:
        last = kind.rpartition(".")[2]
        if last == TEXT:
            self._texts.append(text.strip())
            return (text.strip(),)
        return (self._of_class if last == CLASS else self._of_object)(text, where)

    def _of_class(self, text: str, where: str) -> tuple[str, ...]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            value = text.strip()
            if len(value.splitlines()) != 1 or value.isdecimal() or value[0] in "[{":
                raise DataError(f"'{where}' cannot be read as the number or the name of a class ({error}).") from error
        names = self.class_names
        if value == UNKNOWN_NUMBER:
            return UNREAD
        if isinstance(value, str) and value.strip() and (names is None or value in names):
            self._names.append(value.strip())
            return (value.strip(),)
        if type(value) is not int or value < 0 or (names is not None and value >= len(names)):
            raise DataError(f"'{where}' must hold the number of a class or its name, not '{text.strip()[:SHOWN]}'.")
        self._numbers.append(value)
        return (names[value] if names else str(value),)

    def _of_object(self, text: str, where: str) -> tuple[str, ...]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"'{where}' cannot be read ({error}).") from error
        if isinstance(value, Mapping) and _are_names(value.get("labels")):
            self.several = True
            return tuple(self._named(label) for label in value["labels"])
        if isinstance(value, Mapping) and isinstance(value.get("label"), str | int | float):
            return UNREAD if value["label"] == UNKNOWN_NUMBER else (self._named(value["label"]),)
        raise DataError(f'\'{where}\' has neither "label" nor "labels".')

    def _named(self, value: object) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if self.class_names is not None and isinstance(value, int) and 0 <= value < len(self.class_names):
            return self.class_names[value]
        return str(value).strip()


def _candidates(example: Example) -> tuple[str, ...]:
    """Return the label files that could hold an example's classes: among several no object without any."""
    kinds = tuple(example.labels)
    if len(kinds) == 1 or CLASS in kinds:
        return kinds
    return tuple(kind for kind in kinds if not kind.endswith(OBJECT) or _has_label(example.labels[kind])) or kinds


def _are_names(value: object) -> TypeGuard[list[str | int]]:
    return isinstance(value, list) and all(isinstance(label, str | int) for label in value)


def _has_label(text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, Mapping) and ("label" in value or "labels" in value)


def _meant(kinds: Sequence[str]) -> Sequence[str]:
    return [CLASS] if CLASS in kinds else _plain(kinds)


def _refuse_captions(title: str, texts: Sequence[str]) -> None:
    """Refuse texts that are no classes: boxes, several lines, or mostly another one for every image."""
    odd = next((text for text in texts if len(text.splitlines()) != 1 or BOX.fullmatch(text)), None)
    if odd is None and len(texts) >= FEW and 2 * len(set(texts)) > len(texts):
        odd = texts[0]
    if odd is not None:
        raise DataError(
            f"The .txt files of '{title}' hold captions or boxes, such as '{' '.join(odd.split())[:SHOWN]}', not classes; give "
            f"the classes in .cls files, or write {PREFIX}label=txt: before the name of the data if they are the classes."
        )
