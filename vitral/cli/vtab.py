"""`vitral vtab`: a network on the 19 tasks of VTAB-1k."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from vitral.cli import started
from vitral.cli.console import ConsoleListener, print_json, print_line, print_table
from vitral.report.vtab import COLUMNS
from vitral.studies.vtab import TEST_IMAGES, Protocol
from vitral.studies.vtab import vtab as score


def vtab(
    classifier: str,
    /,
    *,
    data: str,
    protocol: Protocol = "light",
    tasks: str | None = None,
    test_images: int | Literal["all"] = TEST_IMAGES,
    runs: int = 1,
    out: Path | None = None,
    time: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Score a network on VTAB-1k's 19 tasks, beside the paper's numbers.

    Args:
        classifier: a classifier folder, run folder, weights file or name, or Hub id.
        data: the folder with the datasets as TFDS prepared them, vtab-1k's folders, the files of the datasets' authors, or
            wds_vtab-* shards.
        protocol: "light", a linear probe, minutes on a CPU; "paper", fine-tuning at 384 pixels.
        tasks: some of the 19, with commas between them; all if left out.
        test_images: of the light protocol, images of each task that are scored, or "all".
        runs: seeds of the paper's protocol.
        out: the folder; runs/vtab-CLASSIFIER-PROTOCOL if left out. What was begun there goes on.
        time: begin no task that would not be done by then, such as 30m.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        table = score(
            classifier,
            data,
            protocol=protocol,
            tasks=tasks,
            test_images=None if isinstance(test_images, str) else test_images,
            runs=runs,
            out=out,
            time=time,
            started=started.began(),
            listener=listener,
        )
    if json:
        print_json(table.to_json())
        return
    print_line(f"{table.classifier}: {table.title()}")
    print_line(table.how())
    print_table(list(COLUMNS), table.cells())
    for line in table.remarks():
        print_line(line)
