"""The metadata of an exported file: what it says of its classifier. Read without torch."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vitral.classifier.calibration import Calibration
from vitral.classifier.provenance import Provenance, read_provenance
from vitral.classifier.required_plugins import KEY, check_plugins
from vitral.described import fits
from vitral.errors import VitralError, WeightsError
from vitral.inference.exported.graph import IMAGES, Graph

# Entries of the metadata, each of which is JSON.
CLASSES = "class_names"
PREPROCESSING = "preprocessing"
PROVENANCE = "provenance"
CALIBRATION = "calibration"


@dataclass(frozen=True)
class FileMetadata:
    """What does not depend on the runtime of the file.

    Attributes:
        class_names: The class names, in order.
        provenance: Where the classifier came from.
        calibration: The temperature and threshold of its probabilities; None for the network's own.
    """

    class_names: list[str]
    provenance: Provenance
    calibration: Calibration | None


def read_metadata(graph: Graph) -> FileMetadata:
    """Return the metadata of a file that Vitral wrote.

    Raises:
        WeightsError: it takes no decoded images, or its metadata are damaged; the message names it.
        PluginError: it needs a plugin that was not loaded.
    """
    entries = graph.metadata
    if [(port.name, port.dtype, port.shape[3:]) for port in graph.inputs] != [(IMAGES, "uint8", (3,))]:
        raise WeightsError(
            f"'{graph.path}' does not take decoded images, as Vitral's files do; export the classifier again."
        )
    with naming_damage(graph):
        needed = json.loads(entries.get(KEY, "[]"))
    check_plugins({KEY: needed}, graph.path)
    with naming_damage(graph):
        return FileMetadata(
            read_class_names(json.loads(entries[CLASSES])),
            read_provenance(json.loads(entries[PROVENANCE])),
            Calibration.from_json(json.loads(entries.get(CALIBRATION, "null"))),
        )


@contextlib.contextmanager
def naming_damage(graph: Graph) -> Iterator[None]:
    """Name the file where an entry of its metadata is missing, damaged or does not fit the others.

    Raises:
        WeightsError: that.
    """
    try:
        yield
    except KeyError as error:
        raise WeightsError(
            f"'{graph.path}' lacks the entry {error} in its metadata; export the classifier again."
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise WeightsError(f"'{graph.path}' has damaged metadata ({error}); export the classifier again.") from error
    except WeightsError:
        raise
    except VitralError as error:
        raise WeightsError(f"'{graph.path}' cannot be used: {error}") from error


def read_class_names(described: Any) -> list[str]:  # noqa: ANN401  # a JSON value
    """Return class names in order.

    Raises:
        VitralError: they are no list of texts.
    """
    if not fits(list[str], described):
        raise VitralError("its class_names are no list of names in UTF-8.")
    return list(described)
