"""`vitral export`: a classifier as one file for another runtime."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from vitral.cli.options import Count, Positive
from vitral.cli.process import importing
from vitral.errors import ModelError, UsageError

Format = Literal["onnx", "openvino", "torch"]
WrittenPrecision = Literal["fp32", "int8"]


def export(
    classifier: str | None = None,
    data: str | None = None,
    *,
    format: Format = "onnx",  # shadows the built-in: other tools use this name
    out: Path | None = None,
    page: Path | None = None,
    image_size: Positive | None = None,
    precision: WrittenPrecision | None = None,
    merge: Count | None = None,
    layers: Annotated[bool, Parameter(("--layers", "--verbose"))] = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a classifier as one file that takes decoded images, and check its answers.

    Args:
        classifier: A classifier folder, run folder, weights file, name or model name; the newest run in runs/ if left out.
        data: The images to check it on, as 'predict' takes them; parts of two photographs if left out.
        format: onnx; openvino; or torch, machine code for this processor, which takes minutes.
        out: The folder; NAME-FORMAT if left out.
        page: Write this folder instead: the classifier in a page that computes it in a browser (drop, paste, camera; phone;
            without a network), by onnxruntime-web, which npm fetches once.
        image_size: The pixels of an image's side; the network's own if left out, or what 'tune' has set.
        precision: fp32; or int8, after 'quantize': a quarter of the size, and faster where the processor multiplies integers.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), for speed.
        layers: Compare the values of every layer, too.
        overwrite: Replace an export that is there.
        json: Print JSON for programs.
    """
    if page is not None and (out is not None or format != "onnx" or image_size or precision or merge or data or layers):
        raise UsageError(
            "--page writes its own folder, of the classifier as it is; only --overwrite and --json go with it."
        )
    with importing():
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.exporting.export import export as write
        from vitral.report.browser_page import write_browser_page

    with ConsoleListener() as listener:
        name = name_of(classifier, listener)
        if page is not None:
            shown = write_browser_page(name, page, title=_stem(name), overwrite=overwrite, listener=listener)
            print_result(shown, json=json)
            return
        written = write(
            name,
            out or Path(f"{_stem(name)}-{format}"),
            format=format,
            data=data,
            image_size=image_size,
            precision=precision,
            merge=merge,
            layers=layers,
            overwrite=overwrite,
            listener=listener,
        )
    print_result(written, json=json)
    if not written.holds:
        raise ModelError(written.failure())


def _stem(name: str) -> str:
    """Return what an export of a classifier is called: the run's name, the file's without its ending, or the model's."""
    path = Path(name)
    return (path.resolve().name if path.is_dir() else path.stem).replace("@", "-")
