"""`vitral predict`: what is in these images?

What imports torch is imported where it is needed: an exported file answers by its own runtime, before torch would be there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.advice import counted, none_readable
from vitral.cli.console import ConsoleListener, print_json, print_lines, print_result
from vitral.cli.options import Count, Details, Positive, SkipBad, is_classifier
from vitral.cli.process import importing
from vitral.cli.wording import flag
from vitral.errors import DataError, ImageError, UsageError
from vitral.events import Message
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.paths import expanded

if TYPE_CHECKING:
    from vitral.classifier.bulk.predict_to_file import WrittenPredictions
    from vitral.classifier.bulk.write_regions import WrittenRegions
    from vitral.classifier.predicted_regions import PredictedRegions
    from vitral.classifier.prediction import Prediction
    from vitral.data.image_files import LazyImage

Given = dict[str, list["LazyImage"]]  # the images of each input


@dataclass(frozen=True)
class PredictJob:
    """What the command line asks for; `computing` is engine, precision and merging, as `choose` takes them."""

    images: list[str]
    classifier: str | None
    computing: dict[str, Any]
    top: int
    skip_bad_images: bool | None
    overwrite: bool
    native_aspect: bool
    verbose: bool
    json: bool


def predict(
    images: list[str],
    /,
    *,
    classifier: str | None = None,
    top: Positive = 3,
    skip_bad_images: SkipBad = None,
    out: Path | None = None,
    sort_into: Path | None = None,
    overwrite: bool = False,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: Count | None = None,
    native_aspect: bool = False,
    verbose: Details = False,
    json: bool = False,
) -> None:
    """Say what is in images, with probabilities.

    Args:
        images: Files, folders, .zip, .tar, the http(s) address of a photo, and whatever 'finetune' takes as --data; labels are
            ignored.
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        top: The number of classes to name for each image.
        skip_bad_images: Succeed although some inputs cannot be read, or stop at any image that cannot (--strict). If neither
            is given, the others are answered, each that cannot be read is named, and the exit status is 1 if an input has no
            answer at all. With --out and --sort-into, --strict writes what can be read and exits with status 1.
        out: Write a row for each image to this .parquet, .csv or .jsonl file, for any number of images; an image that cannot be
            read is a row with its error, and a job that was killed continues when it is typed again. In .csv, a name that a
            spreadsheet would take for a formula begins with an apostrophe.
        sort_into: Copy each photo into a folder of its class in this folder, those that are not sure or of none of the classes
            apart. Nothing is overwritten, the originals are unchanged, and what was interrupted continues.
        overwrite: Let --out replace a file, or the parts of another job.
        engine: The runtime: torch, packed (for the CPU), compiled (takes minutes), openvino, onnxruntime (extras), or auto,
            the fastest; if left out, the network itself in fp32, else auto. A classifier that 'tune' has set is computed by
            that setting where neither this nor a precision nor merging is given.
        precision: fp32, exactly; bf16; int8, after 'quantize'; or auto, bf16 where it is faster, which is reported; if left
            out, fp32, and auto with --out.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), for speed; 'evaluate' shows what that costs.
        native_aspect: Show a Vision Transformer each image whole and at its own shape, images of all shapes at once, by the
            network itself in fp32; 'aspects' shows whether that is more accurate.
        verbose: Name every image that cannot be read, and how fast the runtimes are here.
        json: Print JSON for programs.
    """
    _check_flags(out, sort_into, overwrite=overwrite)
    if classifier is None and is_classifier(Path(images[0])):
        raise UsageError(f"'{images[0]}' is no image but a classifier; name it by {flag('classifier')} {images[0]}.")
    plain = engine is None and not merge and precision in (None, "fp32")
    if native_aspect and not (out is None and sort_into is None and plain):
        raise UsageError(
            "--native-aspect computes by the network itself in fp32, and prints; leave --out, --sort-into, --engine, "
            "--precision and --merge out."
        )
    computing = {"engine": engine, "precision": "fp32" if native_aspect else precision, "merge": merge}
    job = PredictJob(
        expanded(images), classifier, computing, top, skip_bad_images, overwrite, native_aspect, verbose, json
    )
    if sort_into is not None:
        _sort(job, sort_into)
    elif out is not None and out.suffix:
        _to_file(job, out)
    elif out is not None:
        _regions(job, out)
    else:
        _show(job)


def _check_flags(out: Path | None, sort_into: Path | None, *, overwrite: bool) -> None:
    if out is not None and sort_into is not None:
        raise UsageError("--out writes a table, --sort-into copies photos; name one of them.")
    if out is None and overwrite:
        raise UsageError("--overwrite is about the file that --out names; leave it out.")


def _refuse_unread(count: int, where: str) -> None:
    """Raise an error for images that cannot be read, where --strict wants that; the others are written."""
    if count:
        raise ImageError(f"{counted(count, 'image')} cannot be read; {where} has the others.")


def _sort(job: PredictJob, out: Path) -> None:
    with importing():
        from vitral.classifier.bulk.sort_into import check_sorted, sort_into
        from vitral.cli.chosen import choose

    check_sorted(out, job.images)
    with ConsoleListener(verbose=job.verbose) as listener:
        _, source = choose(job.classifier, listener, **job.computing, otherwise="auto")
        result = sort_into(source, job.images, out, listener=listener)
    print_result(result, json=job.json)
    if job.skip_bad_images is False:
        _refuse_unread(len(result.unread), str(out))


def _show(job: PredictJob) -> None:
    """Print the predictions."""
    with ConsoleListener(verbose=job.verbose) as listener:
        given, predictions = _alone(job, listener) or _answered(job, listener)
    if not predictions:
        raise ImageError(f"{none_readable(len(_all(given)))}.")
    if job.json:
        print_json([prediction.to_json() for prediction in predictions])
    else:
        print_lines(*(f"{prediction.source}: {prediction.summary()}" for prediction in predictions))
    if not job.skip_bad_images:
        _refuse_unanswered(given, predictions)


def _alone(
    job: PredictJob, listener: ConsoleListener
) -> "tuple[Given, Sequence[Prediction | PredictedRegions]] | None":
    """Return an exported file's predictions of image files; None for another classifier, or other images."""
    if job.classifier is None or job.native_aspect or job.computing["merge"]:
        return None
    with importing():
        from vitral.classifier.without_torch import all_plain, exported_file

    file = exported_file(job.classifier, job.computing["engine"], job.computing["precision"])
    if file is None or (given := all_plain(job.images, listener)) is None:
        return None
    listener.note(file.metadata.provenance)
    skip = _skips(given, job.skip_bad_images)
    return given, file.predict(_all(given), top=job.top, skip_bad_images=skip, listener=listener)


def _answered(job: PredictJob, listener: ConsoleListener) -> "tuple[Given, Sequence[Prediction | PredictedRegions]]":
    """Return the images of each input, and a classifier's predictions of them."""
    with importing():
        from vitral.cli.chosen import choose
        from vitral.tasks.unlabelled import check_classifies

    _, source = choose(job.classifier, listener, **job.computing)
    if job.native_aspect:
        check_classifies(source.task, "--native-aspect")
    given = _given(job.images, listener, skip=job.skip_bad_images)
    images, skip = _all(given), _skips(given, job.skip_bad_images)
    if source.task.dense:
        return given, source.find_regions(images, skip_bad_images=skip, listener=listener)
    return given, source.predict(
        images, top=job.top, native_aspect=job.native_aspect, skip_bad_images=skip, listener=listener
    )


def _given(images: list[str], listener: ConsoleListener, *, skip: bool | None) -> Given:
    """Return the images of each input; of several inputs, one that is none is said and has none."""
    from vitral.data.image_stream import list_unlabelled  # imports torch

    given: Given = {}
    for name in images:
        try:
            given[name] = list_unlabelled(name, listener)
        except (DataError, ImageError) as error:
            if skip is False or len(images) == 1:
                raise
            given[name] = []
            listener(Message(f"Skipped: {error}", warning=True))
    return given


def _all(given: Given) -> "list[LazyImage]":
    return [image for own in given.values() for image in own]


def _skips(given: Given, skip: bool | None) -> bool:
    """Tell whether images that cannot be read are passed over; a lone one is an error, as there is nothing else to answer."""
    return bool(skip) or (skip is None and (len(given) > 1 or len(_all(given)) > 1))


def _refuse_unanswered(given: Given, predictions: "Sequence[Prediction | PredictedRegions]") -> None:
    """Raise an error that names the inputs of which no image could be read; the others are answered already."""
    answered = {prediction.source for prediction in predictions}
    failed = [name for name, own in given.items() if not any(image.name in answered for image in own)]
    if failed:
        verb = "has" if len(failed) == 1 else "have"
        raise ImageError(f"{len(failed):,} of {len(given):,} inputs {verb} no answer: {', '.join(failed)}.")


def _to_file(job: PredictJob, out: Path) -> None:
    with importing():
        from vitral.classifier.bulk.predict_to_file import check_out, predict_to_file
        from vitral.cli.chosen import choose

    check_out(out, job.images, overwrite=job.overwrite)
    with ConsoleListener(verbose=job.verbose) as listener:
        _, source = choose(job.classifier, listener, **job.computing, otherwise="auto")
        written = predict_to_file(source, job.images, out, top=job.top, overwrite=job.overwrite, listener=listener)
    _say_written(written, out, job)


def _regions(job: PredictJob, out: Path) -> None:
    """Write what a classifier of regions finds into a folder."""
    with importing():
        from vitral.classifier.bulk.predict_to_file import check_out
        from vitral.classifier.bulk.write_regions import check_regions_out, write_regions
        from vitral.classifier.find_regions import find_in_each
        from vitral.cli.chosen import choose

    with ConsoleListener(verbose=job.verbose) as listener:
        _, source = choose(job.classifier, listener, **job.computing)
        if not source.task.dense:
            check_out(out, job.images, overwrite=job.overwrite)  # which names the kinds of tables
        check_regions_out(out, job.images, overwrite=job.overwrite)
        photos = _all(_given(job.images, listener, skip=None))
        written = write_regions(find_in_each(source, photos, listener), out, source.class_names, inputs=job.images)
    _say_written(written, out, job)


def _say_written(written: "WrittenPredictions | WrittenRegions", out: Path, job: PredictJob) -> None:
    """Print what was written."""
    if job.json:
        print_json(vars(written))
    else:
        print_lines(*written.lines())
    if job.skip_bad_images is False:
        _refuse_unread(written.errors, str(out))
