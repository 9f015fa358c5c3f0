"""`vitral explain`: where did the network look?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.classifier.load import load, newest_run
from vitral.cli.console import print_json, print_line
from vitral.explanation.explain import MARK
from vitral.explanation.explain import explain as explain_picture
from vitral.outputs import check_file

LONGEST_STEM = 60  # letters of the picture's name in the drawing's


def explain(
    picture: Path,
    /,
    *,
    classifier: str | None = None,
    out: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show where the network looked in an image.

    Args:
        picture: a file.
        classifier: a classifier folder, run folder, weights file or Hub id; the newest run below runs/ if left out.
        out: where the drawing goes, a PNG; PICTURE-attention.png in this folder if left out.
        overwrite: replace a file there that is no such drawing.
        json: print JSON for a program, the grid of relevances included.
    """
    target = out or Path(f"{picture.stem[:LONGEST_STEM]}-attention.png")
    check_file(target, inputs=[picture, *([classifier] if classifier else [])], mark=MARK, overwrite=overwrite)
    explanation = explain_picture(load(classifier or newest_run()), picture)
    explanation.save(target, overwrite=overwrite)
    if json:
        print_json({"source": str(picture), "drawing": str(target), **explanation.to_json()})
    else:
        print_line(f"{picture}: {explanation.label} {explanation.probability:.1%}; attention drawn in {target}")
