"""`vitral explain`: where did the model look?"""

import itertools
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_json, print_line
from vitral.explanation.drawing import Style
from vitral.explanation.explain import MARK, Explanation
from vitral.explanation.explain import explain as explain_image
from vitral.explanation.methods import Choice
from vitral.images.encode import image_format
from vitral.outputs import check_file, has_mark

LONGEST_STEM = 60  # characters of the image's name in that of the drawing


def explain(
    image: Path,
    /,
    *,
    classifier: str | None = None,
    method: Choice = "auto",
    label: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    out: Path | None = None,
    style: Style = "side",
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show where the model looked in an image.

    Args:
        image: a file.
        classifier: a classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        method: "rollout", all attention from the image to the answer; "attention", that of one layer; "relevance", what of it
            speaks for a class; "grad-cam", what of the last feature map does; "auto", the one that fits the model.
        label: the class to explain, by its name; the most probable if left out.
        layer: the layer whose attention is shown, counted from 1; the last if left out.
        head: the head of that layer, counted from 1; the mean of all if left out.
        out: the drawing, its name ending in .png, .jpg or .webp; IMAGE-explained.jpg in this folder if left out, or
            IMAGE-explained-2.jpg and so on if that is of another image.
        style: "side", image and map side by side; "overlay", the map over the image; "heat", the map alone.
        overwrite: replace a file even if it is not such a drawing.
        json: print JSON for programs, including the relevance map.
    """
    target = out or Path(f"{image.stem[:LONGEST_STEM]}-explained.jpg")
    check_file(target, inputs=[image, *([classifier] if classifier else [])], mark=MARK, overwrite=overwrite)
    image_format(target)  # a name that cannot be written is refused before anything is computed
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        explanation = explain_image(source, image, method=method, label=label, layer=layer, head=head, score=True)
    if out is None:
        target = _own_name(target, explanation.mark)
    explanation.save(target, style=style, overwrite=overwrite)
    if json:
        print_json({"source": str(image), "drawing": str(target), **explanation.to_json()})
    else:
        _show(explanation, image, target)


def _show(explanation: Explanation, image: Path, target: Path) -> None:
    answer = f"{explanation.label} {explanation.probability:.1%}"
    first, probability = explanation.top[0]
    if first != explanation.label:
        answer += f" (the answer is {first} {probability:.1%})"
    because = f" ({explanation.reason})" if explanation.reason else ""
    scores = explanation.faithfulness
    faithful = "" if scores is None else f", deletion {scores.deletion:.3f}, insertion {scores.insertion:.3f},"
    print_line(f"{image}: {answer}; {explanation.described}{because}{faithful} in {target}")


def _own_name(target: Path, mark: bytes) -> Path:
    """Return the name, or the first with a number, that is free or has the drawing of the same image."""
    for number in itertools.count(1):
        name = target if number == 1 else target.with_stem(f"{target.stem}-{number}")
        if not name.exists() or has_mark(name, mark):
            return name
    raise AssertionError("there are names without end")
