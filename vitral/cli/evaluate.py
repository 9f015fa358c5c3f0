"""`vitral evaluate`: how good is a classifier on labelled images?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_result
from vitral.data.classes import Reading
from vitral.data.open import path_in
from vitral.errors import VitralError
from vitral.evaluation.evaluate import Scored, score
from vitral.evaluation.frozen import parse_ways, score_frozen
from vitral.evaluation.looks import opened
from vitral.evaluation.slices import slices
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.outputs import check_file
from vitral.report.page import RunReport, mark, write_report
from vitral.report.results import Verdict
from vitral.tasks.task import Result

SHOWN_MISTAKES = 5


def evaluate(
    *,
    data: str,
    classifier: str | None = None,
    split: str | None = None,
    frozen: str | None = None,
    by: str | None = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    report: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Score a classifier on labelled images: accuracy, every class, confusion, calibration.

    Args:
        data: what 'finetune' takes: class folders, .zip, .csv, .parquet, shards, hf:OWNER/NAME; imagenet:FOLDER,
            imagenet-real:, imagenet-v2:, cifar10:, cifar100:, pets:, flowers102: in their authors' form.
        classifier: a classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        split: "test", "validation" or "train"; test if left out, or validation if there is no test.
        frozen: "few-shot", "knn", "linear" or several with commas: score the network's frozen features in place of its head:
            ridge regression on 1, 5, 10 and 25 images a class (3 draws), 20 nearest neighbours, a linear probe; any classes.
        by: a column of a .csv, .tsv or .parquet, or "folder", "folder:2" for those that the images lie in: accuracy of each
            part of the images, the worst first.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        engine: what computes: torch, packed (for the CPU), compiled (takes minutes), openvino, onnxruntime (extras), or auto,
            the fastest; if left out, the network itself in fp32, else auto. A classifier that 'tune' has set is computed so
            where neither this nor a precision nor merging is given.
        precision: fp32, exactly; bf16; int8, after 'quantize'; or auto, bf16 where it is faster. Of others than fp32 it is said
            how far answers differ.
        merge: tokens that each block of a Vision Transformer merges (ToMe), for speed; what that costs is said.
        report: write the scores to this HTML page.
        overwrite: let --report replace a file that is not such a report.
        json: print JSON for programs.
    """
    _refuse_faster(
        engine is not None or precision not in (None, "fp32") or bool(merge), {"--by": by, "--frozen": frozen}
    )
    asked: dict[str, Any] = {"split": split, "classes": classes, "skip_bad_images": skip_bad_images}
    if by is not None:
        _refuse_beside_by(report, frozen)
        _print_slices(classifier, data, by, asked, json=json)
        return
    if frozen is not None:
        _refuse_report(report)
        with ConsoleListener() as listener:
            _, source = choose(classifier, listener)
            scores = score_frozen(source, data, ways=parse_ways(frozen), **asked, listener=listener)
        print_result(scores, json=json)
        return
    if report is not None:
        check_file(
            report,
            inputs=[path_in(data), *([classifier] if classifier else [])],
            mark=mark("scores"),
            overwrite=overwrite,
        )
    with ConsoleListener() as listener:
        name, source = choose(classifier, listener, engine=engine, precision=precision, merge=merge)
        scored = score(source, data, **asked, listener=listener)
    evaluation = scored.result
    if report is not None:
        facts = (("Classifier", name), ("Data", data), ("Split", scored.split), *opened(source), *_computed(scored))
        page = RunReport(
            title=f"Scores on {data}",
            facts=facts,
            verdict=_verdict(evaluation, scored.split),
            evaluation=evaluation,
            split=scored.split,
        )
        write_report(page, report, overwrite=overwrite)
    print_result(scored, json=json, below=_mistakes(evaluation))


def _computed(scored: Scored) -> tuple[tuple[str, str], ...]:
    """Return what a page says of a computation other than the network's own in fp32."""
    return () if scored.difference is None else (("Computation", scored.difference.sentence()),)


def _refuse_report(report: Path | None) -> None:
    if report is not None:
        raise VitralError(
            "--report shows what a classifier's own head answers; leave it out with --frozen, or take --json."
        )


def _refuse_faster(asked: bool, others: Mapping[str, str | None]) -> None:
    for name, value in others.items():
        if value is not None and asked:
            raise VitralError(
                f"{name} scores in fp32 by the network itself; leave --engine, --precision and --merge out."
            )


def _refuse_beside_by(report: Path | None, frozen: str | None) -> None:
    for name, value in {"--report": report, "--frozen": frozen}.items():
        if value is not None:
            raise VitralError(f"{name} cannot go with --by, which scores parts of the images; leave one of them out.")


def _print_slices(classifier: str | None, data: str, by: str, asked: Mapping[str, Any], *, json: bool) -> None:
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        parts = slices(source, data, by, **asked, listener=listener)
    print_result(parts, json=json)


def _mistakes(evaluation: Result) -> list[str]:
    """Return the most confident mistakes, one line each."""
    return [
        f"{mistake.description}: {mistake.predicted} {mistake.probability:.1%}, but it is {mistake.truth}"
        for mistake in evaluation.mistakes[:SHOWN_MISTAKES]
    ]


def _verdict(evaluation: Result, split: str) -> tuple[Verdict, ...]:
    sentence = evaluation.standing.sentence(split) if evaluation.standing else ""
    return (Verdict(sentence),) if sentence else ()
