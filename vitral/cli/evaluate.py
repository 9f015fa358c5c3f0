"""`vitral evaluate`: how good is a classifier on labelled images?"""

from pathlib import Path
from typing import TYPE_CHECKING

from vitral.cli.options import Count, SplitImages, settle
from vitral.cli.process import importing
from vitral.errors import UsageError
from vitral.inference.engines import EngineChoice, PrecisionChoice
from vitral.outputs import check_file
from vitral.tasks.shown import Presentable

if TYPE_CHECKING:
    from vitral.evaluation.evaluate import Scored
    from vitral.report.results import RunReport

SHOWN_MISTAKES = 5


def evaluate(
    classifier: str | None = None,
    images: SplitImages | None = None,
    *,
    frozen: str | None = None,
    by: str | None = None,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    merge: Count | None = None,
    report: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Score a classifier on labelled images: accuracy, every class, confusion, calibration.

    Args:
        classifier: A classifier folder, run folder, weights file or name, or Hub id; the newest run in runs/ if left out.
        images: The images.
        frozen: "few-shot", "knn", "linear" or several with commas: score the network's frozen features in place of its head:
            ridge regression on 1, 5, 10 and 25 images a class (3 draws), 20 nearest neighbours, a linear probe; any classes.
        by: A column of a .csv, .tsv or .parquet, or "folder", "folder:2" for the folders that the images lie in: accuracy of
            each part of the images, the worst first.
        engine: The runtime: torch, packed (for the CPU), compiled (takes minutes), openvino, onnxruntime (extras), or auto,
            the fastest; if left out, the network itself in fp32, else auto. A classifier that 'tune' has set is computed by
            that setting where neither this nor a precision nor merging is given.
        precision: fp32, exactly; bf16; int8, after 'quantize'; or auto, bf16 where it is faster. Any other than fp32 reports
            how far answers differ.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), for speed; what that costs is reported.
        report: Write the scores to this HTML page.
        overwrite: Let --report replace a file that is not such a report.
        json: Print JSON for programs.
    """
    classifier, given = settle(classifier, images or SplitImages())
    with importing():
        from vitral.cli.chosen import choose
        from vitral.cli.console import ConsoleListener, print_result
        from vitral.data.open import path_in
        from vitral.evaluation.evaluate import score
        from vitral.evaluation.frozen import parse_ways, score_frozen
        from vitral.evaluation.opening import open_split, opened
        from vitral.evaluation.slices import slices
        from vitral.report.page import write_report
        from vitral.report.template import mark

    faster = engine is not None or precision not in (None, "fp32") or bool(merge)
    _check_flags(faster, report, by=by, frozen=frozen)
    if by is not None or frozen is not None:
        with ConsoleListener() as listener:
            _, source = choose(classifier, listener, tuned=False)
            if by is not None:
                result: Presentable = slices(source, by=by, **given, listener=listener)
            else:
                result = score_frozen(source, **given, ways=parse_ways(frozen or ""), listener=listener)
        print_result(result, json=json)
        return
    if report is not None:
        inputs = [path_in(given["data"]), *([classifier] if classifier else [])]
        check_file(report, inputs=inputs, mark=mark("scores"), overwrite=overwrite)
    with ConsoleListener() as listener:
        name, source = choose(classifier, listener, engine=engine, precision=precision, merge=merge)
        scored = score(source, *open_split(classifiers=[source], **given, listener=listener), listener=listener)
    if report is not None:
        facts = (("Classifier", name), ("Data", given["data"]), ("Split", scored.split), *opened(source))
        write_report(_page(scored, facts), report, overwrite=overwrite)
    surest = (
        f"{mistake.description}: {mistake.predicted} {mistake.probability:.1%}, but it is {mistake.truth}"
        for mistake in scored.result.mistakes[:SHOWN_MISTAKES]
    )
    print_result(scored, json=json, below=surest)


def _check_flags(faster: bool, report: Path | None, *, by: str | None, frozen: str | None) -> None:
    """Refuse flags that cannot go together."""
    for name, value in {"--by": by, "--frozen": frozen}.items():
        if value is not None and faster:
            raise UsageError(
                f"{name} scores in fp32 by the network itself; leave --engine, --precision and --merge out."
            )
    for name, other in {"--report": report, "--frozen": frozen}.items():
        if by is not None and other is not None:
            raise UsageError(f"{name} cannot go with --by, which scores parts of the images; leave one of them out.")
    if frozen is not None and report is not None:
        raise UsageError(
            "--report shows what a classifier's own head answers; leave it out with --frozen, or take --json."
        )


def _page(scored: "Scored", facts: tuple[tuple[str, str], ...]) -> "RunReport":
    """Return the page of the scores; a computation other than the network's own in fp32 is among its facts."""
    from vitral.report.results import RunReport, Verdict

    if scored.difference is not None:
        facts = (*facts, ("Computation", scored.difference.sentence()))
    standing = scored.result.standing
    sentence = standing.sentence(scored.split) if standing else ""
    return RunReport(
        title=f"Scores on {dict(facts)['Data']}",
        facts=facts,
        verdict=(Verdict(sentence),) if sentence else (),
        evaluation=scored.result,
        split=scored.split,
    )
