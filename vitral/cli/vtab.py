"""`vitral vtab`: a network on the 19 tasks of VTAB-1k."""

from pathlib import Path
from typing import Literal

from vitral.cli.process import began, importing

Protocol = Literal["light", "paper"]
TEST_IMAGES = 2_000  # as in Python


def vtab(
    classifier: str,
    data: str,
    *,
    protocol: Protocol = "light",
    tasks: str | None = None,
    test_images: int | Literal["all"] = TEST_IMAGES,
    runs: int = 1,
    out: Path | None = None,
    time: str | None = None,
    json: bool = False,
) -> None:
    """Score a network on VTAB-1k's 19 tasks, beside the paper's numbers.

    Args:
        classifier: a classifier folder, run folder, weights file or name, or Hub id.
        data: the folder with the datasets as TFDS prepared them, vtab-1k's folders, the files of the datasets' authors
            (with the package vitral-vtab installed), or wds_vtab-* shards.
        protocol: "light", a linear probe, minutes on a CPU; "paper", fine-tuning at 384 pixels.
        tasks: the names of some tasks, with commas between them; all 19 if left out.
        test_images: the most test images of each task in the light protocol, or "all".
        runs: the number of seeds of the paper's protocol.
        out: the folder; runs/vtab-CLASSIFIER-PROTOCOL if left out. What began there continues.
        time: the budget, such as 30m; no task begins that is expected to end after it.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.console import ConsoleListener, print_json, print_lines, print_table
        from vitral.report.vtab import COLUMNS
        from vitral.studies.vtab_study import vtab as score

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
            started=began(),
            listener=listener,
        )
    if json:
        print_json(table.to_json())
        return
    print_lines(f"{table.classifier}: {table.title()}", table.how())
    print_table(list(COLUMNS), table.cells())
    print_lines(*table.remarks())
