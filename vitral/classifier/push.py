"""From any classifier to the Hugging Face Hub."""

import tempfile
from pathlib import Path

from vitral.classifier.classifier import Classifier
from vitral.classifier.convert import VITRAL, convert
from vitral.errors import WeightsError
from vitral.events import Listener, Message
from vitral.progress import show
from vitral.weights.hub import upload

HUB_FORMATS = (VITRAL, "transformers")


def push(
    source: Classifier | str | Path,
    name: str,
    *,
    format: str = VITRAL,
    private: bool = False,
    listener: Listener = show,
) -> str:
    """Put a classifier on the Hub and return its address; `load("hf:owner/name")` fetches it again.

    Args:
        source: The classifier, or whatever `load` takes.
        name: "owner/name" or "hf:owner/name"; made if it is not there.
        format: "vitral", the classifier folder with its card, or "transformers", which its own library opens.
        private: whether a new repository is for its owner's eyes alone.
        listener: receives what is fetched, if the source is, and what the format does not keep, as warnings; they are written
            to the screen if left out.

    Raises:
        WeightsError: the source cannot be read, the format cannot hold it, or the Hub refuses.
    """
    if format not in HUB_FORMATS:
        raise WeightsError(f"The Hub takes the formats {' and '.join(HUB_FORMATS)}, not '{format}'.")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / name.rpartition("/")[2]
        for note in convert(source, place, format=format, listener=listener).notes:
            listener(Message(note, warning=True))
        return upload(place, name, private=private)
