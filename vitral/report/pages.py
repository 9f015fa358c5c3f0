"""The pages of a data check, of a gallery of explanations and of a network's analysis.

A check's page has the dataset's content and what should be fixed; a gallery's has image and map side by side, the answer, its
probability and the nearest images; an analysis is a folder with a page, the drawings one by one, and the arrays for a program.
"""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitral.advice import counted
from vitral.checks.corrections import COLUMNS
from vitral.checks.doubtful import DoubtfulLabels
from vitral.checks.findings import NO_CLASS, DataCheck
from vitral.explanation.gallery import Gallery, GalleryEntry
from vitral.explanation.network import AttentionDistance, NetworkAnalysis
from vitral.files import new_folder, write_file, write_through
from vitral.images.drawing import encode
from vitral.outputs import check_file, check_folder, has_mark
from vitral.report.page import (
    LARGEST_IMAGE,
    LARGEST_SHEET,
    TRUST,
    drawing_file,
    filter_sheet,
    inline,
)
from vitral.report.plots import distance_plot, position_plot
from vitral.report.template import mark, render_page, scale

MOST_LISTED = 200  # groups or images in a table; all are in the JSON
MOST_OF_GROUP = 12  # names per group of duplicates
LARGEST_THUMBNAIL = 112  # pixels of the longer side
LARGEST_CHOICE = 200  # pixels of the longer side of an image whose class is chosen
LARGEST_NEIGHBOUR = 64  # pixels of the longer side
PAGE = "index.html"
FIGURES = "network.json"
ARRAYS = "network.npz"
FILTERS = "filters.png"
POSITIONS = "positions.svg"
DISTANCES = "distances.svg"
FILES = (PAGE, FIGURES, ARRAYS, FILTERS, POSITIONS, DISTANCES)


def write_check_page(
    check: DataCheck, facts: Sequence[tuple[str, str]], path: Path, *, overwrite: bool = False
) -> None:
    """Write a data check as one HTML file.

    Raises:
        StorageError: The file cannot be written, or exists and is not such a page.
    """
    check_file(path, mark=mark("check"), overwrite=overwrite)
    page = render_page(
        "check.html",
        "check",
        check=check,
        counted=counted,
        facts=facts,
        problems=check.problems(),
        total=check.total,
        no_class=NO_CLASS,
        sheet=inline(check.sheet, largest=LARGEST_SHEET) if check.sheet else None,
        most=MOST_LISTED,
        most_of_group=MOST_OF_GROUP,
        thumbnails={key: inline(image, largest=LARGEST_THUMBNAIL) for key, image in check.thumbnails.items()},
    )
    write_file(path, page)


def write_fix_page(found: DoubtfulLabels, command: str, path: Path, *, overwrite: bool = False) -> None:
    """Write the labels to look at as one HTML file, on which each is corrected by a click, and which saves a table of that.

    Raises:
        StorageError: The file cannot be written, or exists and is not such a page.
    """
    check_file(path, mark=mark("fix"), overwrite=overwrite)
    images = [None if image is None else inline(image, largest=LARGEST_CHOICE) for image in found.thumbnails]
    page = render_page("fix.html", "fix", found=found, images=images, command=command, columns=COLUMNS)
    write_file(path, page)


def write_gallery(gallery: Gallery, path: Path, *, title: str, classifier: str, overwrite: bool = False) -> None:
    """Write a gallery as one HTML file.

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
        counted=counted,
        scale=scale(),
        trust=TRUST,
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


def write_network(analysis: NetworkAnalysis, folder: Path, *, classifier: str, overwrite: bool = False) -> None:
    """Write a network's analysis: index.html, network.json, network.npz, and each drawing as a file.

    Raises:
        StorageError: The folder cannot be written, or holds something else.
    """
    check_network(folder, overwrite=overwrite)
    positions = None if analysis.position_similarity is None else position_plot(analysis.position_similarity)
    distance = analysis.attention_distance
    distances = None if distance is None else distance_plot(distance)
    sheet = None if analysis.patch_filters is None else filter_sheet(analysis.patch_filters)
    page = render_page(
        "network.html",
        "network",
        analysis=analysis,
        classifier=classifier,
        filters=None if sheet is None else inline(sheet, largest=LARGEST_SHEET),
        positions=positions,
        distances=distances,
        panels=_panels(analysis),
        reach=None if distance is None else reach(distance),
    )
    files = {PAGE: page.encode(), FIGURES: json.dumps(analysis.to_json(), indent=1).encode()}
    files[ARRAYS] = _packed(analysis)
    if sheet is not None:
        files[FILTERS] = encode(sheet, "PNG")
    for name, drawing in ((POSITIONS, positions), (DISTANCES, distances)):
        if drawing is not None:
            files[name] = drawing_file(drawing).encode()
    with new_folder(folder, own=FILES) as partial:
        for name, content in files.items():
            write_through(partial / name, content)


def _panels(analysis: NetworkAnalysis) -> str:
    """Return what there is to see, as the subject of a sentence; empty if there is nothing."""
    parts = (
        ("patch filters", analysis.patch_filters),
        ("position embeddings", analysis.position_similarity),
        ("attention distances", analysis.attention_distance),
    )
    names = [name for name, part in parts if part is not None]
    listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
    return listed.capitalize()


def check_network(folder: Path, *, inputs: Iterable[str | Path] = (), overwrite: bool = False) -> None:
    """Check that a network's analysis may be written to a folder: a new one, an empty one, or one that holds another.

    The page in the folder tells whether it holds an analysis, because anything may have a file index.html.

    Raises:
        StorageError: It may not be written; what is there is untouched.
    """
    ours = has_mark(folder / PAGE, mark("network"))
    check_folder(folder, own=FILES, inputs=inputs, replace=ours, overwrite=overwrite)


def reach(distance: AttentionDistance) -> str:
    """Return in a sentence how far the heads of the first and of the last layer look."""
    first, last = distance.pixels[0], distance.pixels[-1]
    return (
        f"the heads of the first layer look {min(first):.1f} to {max(first):.1f} pixels far, those of the last "
        f"{min(last):.1f} to {max(last):.1f}"
    )


def _packed(analysis: NetworkAnalysis) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **analysis.arrays())  # type: ignore[arg-type]  # numpy takes arrays by any name
    return buffer.getvalue()
