"""`vitral fix`: labels that are probably wrong, corrected by a click or in a table."""

import shlex
from pathlib import Path

from vitral.advice import counted
from vitral.cli.process import importing
from vitral.data.classes import Reading
from vitral.errors import UsageError

PAGE = Path("fix.html")
TABLE = Path("corrections.csv")


def fix(
    data: str,
    *,
    classifier: str | None = None,
    classes: Reading | None = None,
    report: Path = PAGE,
    out: Path = TABLE,
    apply: Path | None = None,
    table: Path | None = None,
    undo: bool = False,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Find labels that are probably wrong, and correct them by a click or in a table.

    Args:
        data: The labelled images, as 'finetune' takes them; files are moved in a folder of class folders.
        classifier: The classifier whose features find wrong labels; the newest run in runs/ if left out.
        classes: The folder that names the class where folders are nested: innermost, outermost, whole path; that which fits
            if left out.
        report: The HTML page, on which labels are corrected by a click; it saves a table for --apply.
        out: The same as a .csv table, whose column "correction" may be filled in by hand; what is filled in already stays.
        apply: Move the files that this table corrects into the folders of their classes.
        table: With --apply, write all images with their corrected classes to this .csv file instead of moving files.
        undo: Put back the files that the last --apply moved.
        overwrite: Replace another file, or a table with what was filled in.
        json: Print JSON for programs.
    """
    if undo and apply is not None:
        raise UsageError("--undo puts back what --apply moved; name one of them.")
    if table is not None and apply is None:
        raise UsageError(
            "--table writes the classes that --apply corrects; name the table of corrections by --apply, too."
        )
    with importing():
        from vitral.checks.corrections import apply_corrections, read_corrections, undo_corrections, write_table
        from vitral.cli.console import print_result

    if undo:
        print_result(undo_corrections(data), json=json)
    elif apply is not None:
        corrections = read_corrections(apply)
        if table is not None:
            result = write_table(data, corrections, table, classes=classes, overwrite=overwrite)
        else:
            result = apply_corrections(data, corrections, classes=classes)
        print_result(result, json=json)
    else:
        _find(data, classifier, classes, report, out, overwrite=overwrite, json=json)


def _find(
    data: str,
    classifier: str | None,
    classes: Reading | None,
    report: Path,
    out: Path,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    with importing():
        from vitral.checks.doubtful import check_corrections, find_doubtful, write_corrections
        from vitral.cli.chosen import choose
        from vitral.cli.console import ConsoleListener, print_lines, print_result
        from vitral.data.open import path_in
        from vitral.outputs import check_file
        from vitral.report.pages import write_fix_page
        from vitral.report.template import mark

    inputs = [path_in(data), *([classifier] if classifier else [])]
    check_file(report, inputs=inputs, mark=mark("fix"), overwrite=overwrite)
    check_corrections(data, out, inputs=inputs, overwrite=overwrite)
    with ConsoleListener() as listener:
        _, source = choose(classifier, listener, tuned=False)
        found = find_doubtful(data, source, classes=classes, listener=listener)
    command = f"vitral fix {shlex.quote(data)} --apply"
    stay = 0
    if found.labels:
        stay = write_corrections(found, out, overwrite=overwrite)
        write_fix_page(found, f"{command} {TABLE}", report, overwrite=overwrite)  # which the page saves by that name
    print_result(found, json=json)
    if found.labels and not json:
        kept = f", with the {counted(stay, 'correction')} that it had" if stay else ""
        print_lines(f"Page   {report}", f"Table  {out}{kept}", "Next:", f"  {command} {shlex.quote(str(out))}")
