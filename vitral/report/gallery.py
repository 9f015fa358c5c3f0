"""The page of a gallery of explanations: image and map side by side, the answer, its probability, the nearest images."""

from pathlib import Path
from typing import Any

from vitral.explanation.gallery import Gallery, GalleryEntry
from vitral.files import write_file
from vitral.outputs import check_file
from vitral.report.images import inline
from vitral.report.page import LARGEST_IMAGE, mark, render_page, scale

LARGEST_NEIGHBOUR = 64  # pixels of the longer side


def write_gallery(gallery: Gallery, path: Path, *, title: str, classifier: str, overwrite: bool = False) -> None:
    """Write a gallery as one HTML file.

    Args:
        gallery: The gallery.
        path: The file.
        title: The name of the images, such as their folder.
        classifier: The name that the user gave it.
        overwrite: Whether to replace a file that is not such a page.

    Raises:
        StorageError: The file cannot be written, or exists and is not such a page.
    """
    check_file(path, mark=mark("gallery"), overwrite=overwrite)
    known = [entry for entry in gallery.entries if entry.truth is not None]
    first = gallery.entries[0].explanation
    page = render_page(
        "gallery.html",
        "gallery",
        gallery=gallery,
        title=title,
        classifier=classifier,
        method=first.described,
        reason=first.reason,
        scores=gallery.faithfulness(),
        nearest_of=first.nearest_of if any(entry.explanation.nearest for entry in gallery.entries) else "",
        known=len(known),
        wrong=sum(entry.explanation.top[0][0] != entry.truth for entry in known),
        cards=[_card(entry) for entry in gallery.entries],
        scale=scale(),
    )
    write_file(path, page)


def _card(entry: GalleryEntry) -> dict[str, Any]:
    explanation = entry.explanation
    answer, probability = explanation.top[0]
    return {
        "name": entry.name,
        "image": inline(explanation.photo, largest=LARGEST_IMAGE),
        "overlay": inline(entry.overlay, largest=LARGEST_IMAGE),
        "answer": answer,
        "probability": probability,
        "truth": entry.truth,
        "asked": None if explanation.label == answer else (explanation.label, explanation.probability),
        "scores": explanation.faithfulness,
        "unscored": explanation.unscored,
        "nearest": [
            (inline(neighbour.image, largest=LARGEST_NEIGHBOUR), neighbour) for neighbour in explanation.nearest
        ],
    }
