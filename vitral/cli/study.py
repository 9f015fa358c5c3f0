"""`vitral study`: an experiment of the paper on one's own data, beside the paper's figure."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vitral.cli.options import SkipBad
from vitral.cli.process import importing
from vitral.errors import UsageError
from vitral.torchrun import is_main

if TYPE_CHECKING:
    from vitral.studies.paper.paper_study import PaperStudy

RUNS_EACH = 3  # as in Python
Budget = Literal["laptop", "h200", "cluster"]


def study(
    name: str | None = None,
    /,
    data: str | None = None,
    *,
    transfer: str | None = None,
    budget: Budget = "laptop",
    runs: int = RUNS_EACH,
    time: str | None = None,
    skip_bad_images: SkipBad = None,
    out: Path | None = None,
    plan: bool = False,
    json: bool = False,
) -> None:
    """Repeat an experiment of the paper on your data; the paper's figure and yours on one page.

    Args:
        name: data-size, scaling, shapes, patches, position, head, optimizer, resolution, self-supervision or starts; the list
            with the questions if left out.
        data: the data to learn from: a folder, file, address or built-in set.
        transfer: other data: five images a class of it then say how good the features are, as in the paper's ablations.
        budget: the networks and the length: "laptop", "h200" or "cluster".
        runs: the number of seeds of every arm, at least two.
        time: the time of the whole study, such as 40m; the budget "laptop" takes less than an hour if left out.
        skip_bad_images: continue without however many images cannot be read, or stop at any (--strict); a few are left out and
            named if neither is given.
        out: the folder; runs/study-NAME if left out. What began there continues.
        plan: print what would be done and what it costs, here and on a GPU, and stop.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.console import ConsoleListener, print_json
        from vitral.studies.paper.run import study as carry_out

    if name is None:
        _list(json=json)
        return
    if data is None:
        raise UsageError(
            f"Which data? Name a folder, file, address or built-in set, such as 'vitral study {name} photos/'."
        )
    with ConsoleListener() as listener:
        result = carry_out(
            name,
            data,
            transfer=transfer,
            budget=budget,
            runs=runs,
            time=time,
            skip_bad_images=skip_bad_images,
            out=out,
            plan=plan,
            listener=listener,
        )
    if not is_main():
        return
    if json:
        print_json(result.to_json())
    else:
        _show(result)


def _list(*, json: bool) -> None:
    from vitral.cli.console import print_json, print_table
    from vitral.studies.paper.run import EXPERIMENTS

    listed = {each.name: each.question for each in EXPERIMENTS.values()}
    if json:
        print_json([{"name": name, "question": question} for name, question in listed.items()])
        return
    print_table(["study", "question"], [list(row) for row in listed.items()], texts=("question",))


def _show(result: "PaperStudy") -> None:
    from vitral.cli.console import print_lines, print_table
    from vitral.report.study import table_rows
    from vitral.studies.paper.pages import PAGE

    if result.study is None:
        print_lines(*result.plan())
        return
    headline = result.study.headline
    heading, *rows = table_rows(result.study, [headline.name])
    print_table(heading, rows)
    print_lines(result.conclusion(), *result.study.remarks(), f"Page  {result.folder / PAGE}")
