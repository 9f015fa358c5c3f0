"""What is served, under which names: classifiers one by one, or all of a folder."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import setting_of
from vitral.classifier.load import holds_classifier, load
from vitral.data.names import some
from vitral.errors import VitralError
from vitral.events import Listener, Message
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.paths import CLASSIFIER, is_folder, is_hidden, look_at
from vitral.serving.served import take_from_disk
from vitral.tasks.unlabelled import check_knows_classes

NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)
NAMED = re.compile(r"([\w.-]+)=(.+)", re.ASCII)


@dataclass(frozen=True)
class NamedClassifier:
    """A classifier as it was named.

    Attributes:
        name: Whatever `load` takes; or a folder of such, which stands for all of them; or NAME=SOURCE, to be served as NAME.
        engine: The runtime, as `load` takes it; None for the fastest in fp32.
        deterministic: Whether the network itself computes, where no engine is named.
    """

    name: str
    engine: EngineChoice | None = None
    precision: PrecisionChoice | None = None
    deterministic: bool = False

    def load(self, listener: Listener) -> Classifier:
        """Return the classifier.

        Raises:
            WeightsError: It cannot be read.
            ModelError: There is no such engine; or it learned without labels, and knows no classes.
        """
        free = self.engine is None and self.precision is None and not self.deterministic
        engine = "auto" if free and setting_of(self.name) is None else self.engine
        classifier = load(self.name, engine=engine, precision=self.precision, listener=listener)
        check_knows_classes(classifier.task)
        take_from_disk(classifier)
        return classifier


def names_of(sources: Sequence[NamedClassifier], listener: Listener) -> dict[str, NamedClassifier]:
    """Return classifiers by the names under which they are served, each with what `load` takes as its own name.

    The listener hears of folders beside classifiers that hold none.

    Raises:
        VitralError: Two have the same name, or a name for one classifier stands before a folder of several.
    """
    named: dict[str, NamedClassifier] = {}
    for source in sources:
        for name, place in _places(source.name, listener):
            if name in named:
                raise VitralError(
                    f"'{named[name].name}' and '{place}' would both be served as '{name}'; write OTHER={place} for one."
                )
            named[name] = replace(source, name=place)
    return named


def _places(text: str, listener: Listener) -> list[tuple[str, str]]:
    """Return what a user's text stands for: names, each with its source."""
    match = None if look_at(text) is not None else NAMED.fullmatch(text)
    name, source = match.groups() if match else ("", text)
    several = _classifiers_in(Path(source), listener)
    if not name:
        return [(name_of(place), place) for place in several or [source]]
    if len(several) > 1:
        raise VitralError(
            f"'{name}' names one classifier, and '{source}' holds {len(several)}: {some(several)}; leave '{name}=' out."
        )
    return [(name, several[0] if several else source)]


def _classifiers_in(folder: Path, listener: Listener) -> list[str]:
    """Return the classifiers in the folders of a folder; none of one that is a classifier itself."""
    if not is_folder(folder) or holds_classifier(folder):
        return []
    inside: list[Path] = []
    with contextlib.suppress(OSError):  # what cannot be read is said where it is loaded
        inside = sorted(path for path in folder.iterdir() if is_folder(path) and not is_hidden(path.name))
    found = [str(path) for path in inside if holds_classifier(path)]
    if found and len(found) < len(inside):
        rest = [path.name for path in inside if str(path) not in found]
        listener(Message(f"Not served, since they hold no classifier: {some(rest)}", warning=True))
    return found


def name_of(source: str) -> str:
    """Return the name under which a classifier is served: that of its folder or file, in characters that an address holds."""
    path = Path(source)
    if path.is_dir():
        path = path.resolve()
        name = path.parent.name if path.name == CLASSIFIER else path.name
    else:
        name = path.stem if path.is_file() else source.rpartition("/")[2]
    return NOT_IN_NAMES.sub("-", name).strip("-.") or "classifier"
