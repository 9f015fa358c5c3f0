"""`vitral evaluate`: how good is a classifier on labelled images?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitral.cli.chosen import choose
from vitral.cli.console import ConsoleListener, print_json, print_line, print_table
from vitral.data.classes import Reading
from vitral.data.open import path_in
from vitral.errors import VitralError
from vitral.evaluation.evaluate import evaluate as score
from vitral.evaluation.frozen import FrozenScores, parse_ways, score_frozen
from vitral.evaluation.looks import opened
from vitral.evaluation.slices import slices
from vitral.outputs import check_file
from vitral.report.page import RunReport, mark, write_report
from vitral.report.results import Verdict
from vitral.tasks.shown import THIN_SPACE, Table
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
        by: a column of a .csv or .tsv, or "folder", "folder:2" for those that the images lie in: accuracy of each part of the
            images, the worst first.
        classes: in nested folders, which names the class: innermost, outermost, whole path; the one that fits if left out.
        skip_bad_images: leave out images that cannot be read, naming each, instead of stopping.
        report: write the scores to this HTML page.
        overwrite: let --report replace a file that is not such a report.
        json: print JSON for programs.
    """
    if by is not None:
        _refuse_beside_by(report, frozen)
        asked = {"split": split, "classes": classes, "skip_bad_images": skip_bad_images}
        _print_slices(classifier, data, by, asked, json=json)
        return
    if frozen is not None:
        _refuse_report(report)
        with ConsoleListener() as listener:
            _, source = choose(classifier, listener)
            scores = score_frozen(
                source,
                data,
                ways=parse_ways(frozen),
                split=split,
                classes=classes,
                skip_bad_images=skip_bad_images,
                listener=listener,
            )
        _print_frozen(scores, json=json)
        return
    if report is not None:
        check_file(
            report,
            inputs=[path_in(data), *([classifier] if classifier else [])],
            mark=mark("scores"),
            overwrite=overwrite,
        )
    with ConsoleListener() as listener:
        name, source = choose(classifier, listener)
        evaluation = score(
            source, data, split=split, classes=classes, skip_bad_images=skip_bad_images, listener=listener
        )
    if report is not None:
        facts = (("Classifier", name), ("Data", data), ("Split", split or "test"), *opened(source))
        page = RunReport(
            title=f"Scores on {data}",
            facts=facts,
            verdict=_verdict(evaluation, split or ""),
            evaluation=evaluation,
        )
        write_report(page, report, overwrite=overwrite)
    if json:
        print_json(evaluation.to_json())
    else:
        show(evaluation)


def _refuse_report(report: Path | None) -> None:
    if report is not None:
        raise VitralError(
            "--report shows what a classifier's own head answers; leave it out with --frozen, or take --json."
        )


def _refuse_beside_by(report: Path | None, frozen: str | None) -> None:
    for name, value in {"--report": report, "--frozen": frozen}.items():
        if value is not None:
            raise VitralError(f"{name} cannot go with --by, which scores parts of the images; leave one of them out.")


def _print_slices(classifier: str | None, data: str, by: str, asked: Mapping[str, Any], *, json: bool) -> None:
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener)
        parts = slices(source, data, by, **asked, listener=listener)
    if json:
        print_json(parts.to_json())
        return
    for line in parts.lines():
        print_line(line)
    for table in parts.tables():
        show_table(table)


def _print_frozen(scores: FrozenScores, *, json: bool) -> None:
    if json:
        print_json(scores.to_json())
        return
    for line in scores.lines():
        print_line(line)
    show_table(scores.table())


def show(evaluation: Result) -> None:
    """Print an evaluation: figures, tables, the most confident mistakes."""
    for line in evaluation.lines():
        print_line(line)
    for table in evaluation.tables():
        show_table(table)
    for mistake in evaluation.mistakes[:SHOWN_MISTAKES]:
        print_line(f"{mistake.description}: {mistake.predicted} {mistake.probability:.1%}, but it is {mistake.truth}")


def show_table(table: Table) -> None:
    """Print a table with its title and its note."""
    print_line(table.title)
    rows = [[cell.replace(THIN_SPACE, "") for cell in row] for row in table.rows]
    print_table([column.lower() for column in table.columns], rows)
    if table.note:
        print_line(table.note)


def _verdict(evaluation: Result, split: str) -> tuple[Verdict, ...]:
    sentence = evaluation.standing.sentence(split) if evaluation.standing else ""
    return (Verdict(sentence),) if sentence else ()
