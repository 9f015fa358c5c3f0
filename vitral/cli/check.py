"""`vitral check`: what is in a dataset, or the proof that a killed run resumes to the same bits."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

from vitral.cli.console import ConsoleListener, print_json, print_lines, print_result, print_table
from vitral.cli.options import Start
from vitral.cli.process import importing
from vitral.data.classes import Reading
from vitral.errors import DataError, VitralError
from vitral.outputs import check_file

if TYPE_CHECKING:
    from vitral.checks.findings import DataCheck

RESUME = "resume"
SHOWN = 10


def check(
    what: str | None = None,
    /,
    *,
    data: str | None = None,
    source: Start = None,
    classifier: str | None = None,
    classes: Reading | None = None,
    group: str | None = None,
    report: Path | None = None,
    strict: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Check every image of a dataset, or prove that a killed run resumes to the same bits.

    Args:
        what: the data, as 'finetune' takes them; or the word "resume" (a folder of that name is ./resume).
        data: the data, if they are not named first; with "resume" those to train on, "digits" if left out.
        source: the model or weights to start from, with "resume".
        classifier: the network whose features find wrong labels: a classifier or run folder, a weights file or name, a Hub id.
        classes: the part of the path that names the class in nested folders: the innermost, the outermost or the whole path.
        group: what tells images that belong together, as for 'finetune'; groups in several splits are said.
        report: write the findings to this HTML page.
        strict: exit with status 1 if there is something to fix.
        overwrite: let --report replace a file that is not such a page.
        json: print JSON for programs.
    """
    if what == RESUME:
        _resume(data or "digits", source, json=json)
        return
    name = _one_name(what, data)
    with importing():
        from vitral.checks.check_data import check_data
        from vitral.data.open import path_in
        from vitral.report.pages import write_check_page
        from vitral.report.template import mark

    if report is not None:
        inputs = [path_in(name), *([classifier] if classifier else [])]
        check_file(report, inputs=inputs, mark=mark("check"), overwrite=overwrite)
    with ConsoleListener() as listener:
        found = check_data(name, classes=classes, group=group, classifier=classifier, listener=listener)
    if report is not None:
        write_check_page(found, facts(found), report, overwrite=overwrite)
    if json:
        print_json(found.to_json())
    else:
        show(found, report)
    if strict and (problems := found.problems()):
        raise DataError(f"'{name}' has something to fix: {'; '.join(problems)}.")


def _one_name(what: str | None, data: str | None) -> str:
    """Return the data's name, given without a flag or with one."""
    if (what is None) == (data is None):
        raise CycloptsError(msg="Which data? Name a folder, file, address or built-in set once, such as 'photos/'.")
    return what or data or ""


def facts(found: "DataCheck") -> list[tuple[str, str]]:
    """Return sizes, formats and statistics as pairs of name and value."""
    mean, std = (", ".join(f"{value:.3f}" for value in values) for values in (found.mean, found.std))
    sizes = found.class_sizes()
    return [
        *([] if sizes is None else [("Images of a class", sizes)]),
        ("Widths", f"{found.widths[0]} to {found.widths[2]} pixels, the middle one {found.widths[1]}"),
        ("Heights", f"{found.heights[0]} to {found.heights[2]} pixels, the middle one {found.heights[1]}"),
        ("Formats", ", ".join(f"{kind} {count:,}" for kind, count in found.formats.items())),
        ("Size", f"{found.size / 1e6:,.1f} MB"),
        ("Mean of red, green, blue", mean),
        ("Standard deviation", std),
    ]


def show(found: "DataCheck", report: Path | None) -> None:
    """Print a data check."""
    from vitral.checks.findings import NO_CLASS

    splits = list(found.counts)
    print_lines(f"{found.name}: {found.contents}", *found.notes)
    rows = [[name, *(f"{found.counts[split][name]:,}" for split in splits)] for name in found.class_names]
    if any(found.unlabelled.values()):
        rows.append([NO_CLASS, *(f"{found.unlabelled[split]:,}" for split in splits)])
    if found.regions is None:
        print_table(["class", *splits], rows)
    else:
        marked = found.regions.counts
        regions = [[name, *(f"{marked[split][name]:,}" for split in splits)] for name in found.class_names]
        print_table(["regions of class", *splits], regions)
        print_table(["photos with class", *splits], rows)
        print_lines(*found.regions.lines())
    print_lines(*(f"{name}: {value}" for name, value in facts(found)))
    _print_first(
        f"{group.kind} duplicates{' across splits' if group.leaks else ''}: {', '.join(group.names)}"
        for group in found.duplicates
    )
    _print_first(f"{bad.fault}: {bad.reason}" for bad in found.bad)
    _print_first(f"odd: {finding.name}: {finding.reason}" for finding in found.suspicious)
    if found.doubts is not None:
        print_lines(found.doubts.sentence())
    _print_first(
        f"doubtful: {suspect.name}: labelled {suspect.label}, but {suspect.predicted} {suspect.probability:.1%}"
        for suspect in found.suspects
    )
    problems = found.problems()
    print_lines("To fix: " + "; ".join(problems) + "." if problems else "Nothing to fix.")
    if report is not None:
        print_lines(f"Report  {report}")


def _print_first(lines: Iterable[str]) -> None:
    """Print the first lines of many, and how many more there are."""
    every = list(lines)
    print_lines(*every[:SHOWN])
    if len(every) > SHOWN:
        print_lines(f"... and {len(every) - SHOWN:,} more")


def _resume(data: str, source: str | None, *, json: bool) -> None:
    with importing():
        from vitral.checks.check_resume import check_resume

    with ConsoleListener() as listener:
        outcome = check_resume(data, source=source, listener=listener)
    print_result(outcome, json=json)
    if not outcome.equal:
        raise VitralError(
            f"The killed run ended differently from the uninterrupted one; both are in '{outcome.folder}'. Please report it."
        )
