"""`vitral explain`: where did the network look?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.classifier.load import load, newest_run
from vitral.cli.console import print_json, print_line
from vitral.explanation.explain import explain as explain_picture


def explain(
    picture: Path,
    /,
    *,
    classifier: str | None = None,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show where the network looked in an image.

    Args:
        picture: a file.
        classifier: a classifier folder, run folder, weights file or Hub id; the newest run below runs/ if left out.
        out: where the drawing goes, a PNG; PICTURE-attention.png in this folder if left out.
        json: print JSON for a program, the grid of relevances included.
    """
    target = out or Path(f"{picture.stem}-attention.png")
    explanation = explain_picture(load(classifier or newest_run()), picture)
    explanation.save(target)
    if json:
        print_json({"source": str(picture), "drawing": str(target), **explanation.to_json()})
    else:
        print_line(f"{picture}: {explanation.label} {explanation.probability:.1%}; attention drawn in {target}")
