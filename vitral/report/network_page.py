"""The folder of a network's analysis: a page, the drawings one by one, and the arrays for a program."""

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from vitral.explanation.network import AttentionDistance, NetworkAnalysis
from vitral.files import new_folder, write_through
from vitral.images.encode import encode
from vitral.outputs import check_folder, has_mark
from vitral.report.images import filter_sheet, inline
from vitral.report.page import LARGEST_SHEET, drawing_file, mark, render_page
from vitral.report.plots import distance_plot, position_plot

PAGE = "index.html"
FIGURES = "network.json"
ARRAYS = "network.npz"
FILTERS = "filters.png"
POSITIONS = "positions.svg"
DISTANCES = "distances.svg"
FILES = (PAGE, FIGURES, ARRAYS, FILTERS, POSITIONS, DISTANCES)


def write_network(analysis: NetworkAnalysis, folder: Path, *, classifier: str, overwrite: bool = False) -> None:
    """Write a network's analysis: index.html, network.json, network.npz, and each drawing as a file.

    Args:
        analysis: The analysis of the network.
        folder: The folder to write; an earlier analysis there is replaced.
        classifier: The name that the user gave it.
        overwrite: Whether to replace other files of these names; see `check_network`.

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

    Args:
        folder: The folder; its page tells whether it holds an analysis, because anything may have a file index.html.
        inputs: The paths that the command reads.
        overwrite: Whether the user allowed replacing files of these names that are not of an analysis.

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
