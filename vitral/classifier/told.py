"""What an exported file says of its classifier, and reading it; without torch."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from vitral.classifier.calibration import Calibration
from vitral.classifier.names import read_class_names
from vitral.classifier.needs import KEY, check_needs
from vitral.classifier.provenance import Provenance, read_provenance
from vitral.errors import VitralError, WeightsError
from vitral.inference.exported.graph import IMAGES, Graph

# Entries of the metadata, each of which is JSON.
CLASSES, PREPROCESSING, PROVENANCE, CALIBRATION = "class_names", "preprocessing", "provenance", "calibration"


@dataclass(frozen=True)
class Told:
    """What does not depend on how the file is computed.

    Attributes:
        class_names: in order.
        provenance: where the classifier came from.
        calibration: what its probabilities were fitted to; None for the network's own.
    """

    class_names: list[str]
    provenance: Provenance
    calibration: Calibration | None


def read_told(graph: Graph) -> Told:
    """Return what a file of Vitral's says.

    Raises:
        WeightsError: it takes no decoded images, or its metadata are damaged; the message names it.
        PluginError: it needs a plugin that was not loaded.
    """
    told = graph.metadata
    if [(port.name, port.dtype, port.shape[3:]) for port in graph.inputs] != [(IMAGES, "uint8", (3,))]:
        raise WeightsError(
            f"'{graph.path}' does not take decoded images, as Vitral's files do; export the classifier again."
        )
    with naming_damage(graph):
        needed = json.loads(told.get(KEY, "[]"))
    check_needs({KEY: needed}, graph.path)
    with naming_damage(graph):
        return Told(
            read_class_names(json.loads(told[CLASSES])),
            read_provenance(json.loads(told[PROVENANCE])),
            Calibration.from_json(json.loads(told.get(CALIBRATION, "null"))),
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
