"""`vitral evaluate`: how good is a classifier on labelled images?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_json, print_line, print_table
from vitral.data.classes import Reading
from vitral.evaluation.evaluate import evaluate as score
from vitral.evaluation.metrics import Evaluation
from vitral.evaluation.multilabel import MultiLabelEvaluation
from vitral.outputs import check_file
from vitral.report.page import RunReport, mark, write_report
from vitral.report.results import Verdict


def evaluate(
    *,
    data: str,
    classifier: str | None = None,
    split: str | None = None,
    classes: Reading | None = None,
    skip_bad_images: Annotated[bool, Parameter(negative="")] = False,
    report: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Score a classifier on labelled images: accuracy, every class, confusion, calibration.

    Args:
        data: class folders, .zip, .tar, .csv, .parquet, shards, hf:OWNER/NAME, "digits", as 'finetune' takes them.
        classifier: a classifier folder, run folder, weights file or Hub id; the newest run below runs/ if left out.
        split: "test", "validation" or "train"; test if left out, or validation where there is no test.
        classes: of nested folders, which names the class: innermost, outermost, whole path; what fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, in place of stopping.
        report: write the scores as one HTML page there.
        overwrite: let --report replace a file that is no such report.
        json: print JSON for a program.
    """
    if report is not None:
        check_file(
            report, inputs=[data, *([classifier] if classifier else [])], mark=mark("scores"), overwrite=overwrite
        )
    with ConsoleListener() as listener:
        name, source = choose(classifier, listener)
        evaluation = score(
            source, data, split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
        )
    if report is not None:
        facts = (("Classifier", name), ("Data", data), ("Split", split or "test"))
        labels = evaluation if isinstance(evaluation, MultiLabelEvaluation) else None
        single = evaluation if isinstance(evaluation, Evaluation) else None
        page = RunReport(
            title=f"Scores on {data}",
            facts=facts,
            verdict=_verdict(single, split or ""),
            evaluation=single,
            multi_label=labels,
        )
        write_report(page, report, overwrite=overwrite)
    if json:
        print_json(evaluation.to_json())
    elif isinstance(evaluation, MultiLabelEvaluation):
        show_labels(evaluation)
    else:
        show(evaluation)


def show_labels(evaluation: MultiLabelEvaluation) -> None:
    """Print a multi-label evaluation as a table."""
    print_line(f"{evaluation.num_examples} images, {len(evaluation.class_names)} labels")
    print_line(f"mean average precision  {evaluation.mean_average_precision:.2%}")
    print_line(f"F1  {evaluation.f1_micro:.2%} over all decisions, {evaluation.f1_macro:.2%} the labels' mean")
    print_line(f"exactly the right labels  {evaluation.exact_match:.2%}")
    rows = [
        [name, _percent(precision), str(support)]
        for name, precision, support in zip(
            evaluation.class_names, evaluation.average_precision, evaluation.support, strict=True
        )
    ]
    print_table(["label", "average precision", "images"], rows)


def show(evaluation: Evaluation) -> None:
    """Print an evaluation as tables."""
    low, high = evaluation.top1_interval
    print_line(f"{evaluation.num_examples} images, {len(evaluation.class_names)} classes")
    print_line(f"top-1 accuracy  {evaluation.top1:.2%}  (95 % interval {low:.2%} to {high:.2%})")
    if evaluation.top5 is not None:
        print_line(f"top-5 accuracy  {evaluation.top5:.2%}")
    print_line(f"calibration error  {evaluation.ece:.4f}   negative log-likelihood  {evaluation.nll:.4f}")
    rows = [
        [name, _percent(precision), _percent(recall), str(support)]
        for name, precision, recall, support in zip(
            evaluation.class_names, evaluation.precision, evaluation.recall, evaluation.support, strict=True
        )
        if support or precision is not None
    ]
    print_table(["class", "precision", "recall", "images"], rows)
    for mistake in evaluation.mistakes[:5]:
        print_line(f"{mistake.description}: {mistake.predicted} {mistake.probability:.1%}, but it is {mistake.truth}")


def _verdict(evaluation: Evaluation | None, split: str) -> tuple[Verdict, ...]:
    said = "" if evaluation is None else evaluation.standing.sentence(split)
    return (Verdict(said),) if said else ()


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
