"""`vitral predict`: what is in these images?

What imports torch is imported where it is needed: an exported file answers by its own runtime, before torch would be there.
"""

from pathlib import Path
from typing import Any

from vitral.classifier.prediction import Prediction
from vitral.classifier.without_torch import all_plain, exported_file
from vitral.cli.console import ConsoleListener, print_json, print_lines
from vitral.cli.options import Count, Positive
from vitral.cli.process import importing
from vitral.errors import VitralError
from vitral.inference.engines import EngineChoice, PrecisionChoice

Computing = dict[str, Any]  # engine, precision and merging, as `choose` takes them


def predict(
    images: list[str],
    /,
    *,
    classifier: str | None = None,
    top: Positive = 3,
    skip_bad_images: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: Count | None = None,
    native_aspect: bool = False,
    json: bool = False,
) -> None:
    """Say what is in images, with probabilities.

    Args:
        images: Files, folders, .zip, .tar, and whatever 'finetune' takes as --data; labels are ignored.
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        top: The number of classes to name for each image.
        skip_bad_images: Skip images that cannot be read, naming each, instead of stopping.
        out: Write a row for each image to this .parquet, .csv or .jsonl file, for any number of images; an image that cannot be
            read is a row with its error, and a job that was killed continues when it is typed again. In .csv, a name that a
            spreadsheet would take for a formula begins with an apostrophe.
        overwrite: Let --out replace a file, or the parts of another job.
        engine: The runtime: torch, packed (for the CPU), compiled (takes minutes), openvino, onnxruntime (extras), or auto,
            the fastest; if left out, the network itself in fp32, else auto. A classifier that 'tune' has set is computed by
            that setting where neither this nor a precision nor merging is given.
        precision: fp32, exactly; bf16; int8, after 'quantize'; or auto, bf16 where it is faster, which is reported; if left
            out, fp32, and auto with --out.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), for speed; 'evaluate' shows what that costs.
        native_aspect: Show a Vision Transformer each image whole and at its own shape, images of all shapes at once, by the
            network itself in fp32; 'aspects' shows whether that is more accurate.
        json: Print JSON for programs.
    """
    if out is None and overwrite:
        raise VitralError("--overwrite is about the file that --out names; leave it out.")
    if out is not None and skip_bad_images:
        raise VitralError(
            "With --out, an image that cannot be read is a row with its error; leave --skip-bad-images out."
        )
    if native_aspect and (out is not None or engine is not None or merge or precision not in (None, "fp32")):
        raise VitralError(
            "--native-aspect computes by the network itself in fp32, and prints; leave --out, --engine, --precision and "
            "--merge out."
        )
    computing: Computing = {"engine": engine, "precision": "fp32" if native_aspect else precision, "merge": merge}
    if out is not None:
        _to_file(images, classifier, out, top, computing, overwrite=overwrite, json=json)
        return
    with ConsoleListener() as listener:
        predictions = None
        if classifier is not None and not native_aspect and not merge:
            predictions = _alone(images, classifier, top, computing, listener, skip_bad_images=skip_bad_images)
        if predictions is None:
            with importing():
                from vitral.cli.chosen import choose

            _, source = choose(classifier, listener, **computing)
            predictions = source.predict(
                images, top=top, native_aspect=native_aspect, skip_bad_images=skip_bad_images, listener=listener
            )
    if json:
        print_json([prediction.to_json() for prediction in predictions])
    else:
        _print(predictions)


def _alone(
    images: list[str],
    classifier: str,
    top: int,
    computing: Computing,
    listener: ConsoleListener,
    *,
    skip_bad_images: bool,
) -> list[Prediction] | None:
    """Return an exported file's predictions of image files; None for another classifier, or other images."""
    listed = all_plain(images)
    if listed is None or (file := exported_file(classifier, computing["engine"], computing["precision"])) is None:
        return None
    listener.note(file.metadata.provenance)
    return file.predict(listed, top=top, skip_bad_images=skip_bad_images, listener=listener)


def _to_file(
    images: list[str], classifier: str | None, out: Path, top: int, computing: Computing, *, overwrite: bool, json: bool
) -> None:
    with importing():
        from vitral.classifier.bulk.predict_to_file import check_out, predict_to_file
        from vitral.cli.chosen import choose

    check_out(out, images, overwrite=overwrite)
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener, **computing, otherwise="auto")
        written = predict_to_file(source, images, out, top=top, overwrite=overwrite, listener=listener)
    if json:
        print_json(vars(written))
    else:
        print_lines(*written.lines())


def _print(predictions: list[Prediction]) -> None:
    for prediction in predictions:
        ranked = "  ".join(f"{label} {probability:.1%}" for label, probability in prediction.top)
        doubt = "not sure  " if prediction.sure is False else ""
        if prediction.known is False:
            doubt = f"none of these classes? ({prediction.novelty:.2f} of the limit)  {doubt}"
        print_lines(f"{prediction.source}: {doubt}{ranked}")
