"""`vitral bench`: how fast does a classifier's network compute here?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.classifier.load import load
from vitral.cli.chosen import name_of
from vitral.cli.console import ConsoleListener, print_json, print_line, print_table
from vitral.deployment.bench import BATCH_SIZES, ROUNDS, Bench
from vitral.deployment.bench import bench as measure
from vitral.errors import VitralError
from vitral.outputs import check_file
from vitral.report.speed_plot import MARK, write_speeds


def bench(
    classifier: str | None = None,
    /,
    *,
    batch_sizes: str = ",".join(map(str, BATCH_SIZES)),
    image_size: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    merge: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    compile: Annotated[bool, Parameter(negative="")] = False,
    zentorch: Path | None = None,
    rounds: Annotated[int, Parameter(validator=Number(gte=1))] = ROUNDS,
    plot: Path | None = None,
    overwrite: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure how fast a classifier's network computes here, beside every peer that is installed.

    Args:
        classifier: a classifier folder, run folder, weights file, name or model name; the newest run in runs/ if left out.
        batch_sizes: images computed at once, several with commas.
        image_size: pixels; the network's own if left out, or what 'tune' has set.
        merge: measure a Vision Transformer that merges so many tokens in each block (ToMe), too; as 'tune' has set it if left
            out.
        compile: measure what torch.compile makes, too; to make it takes minutes.
        zentorch: a Python interpreter that has zentorch and timm, such as zen/bin/python; they are measured in it, too.
        rounds: turns that each contender has.
        plot: an SVG file for images/s by batch size.
        overwrite: replace any file that is there.
        json: print JSON for programs.
    """
    sizes = _sizes(batch_sizes)
    if plot is not None:
        if plot.suffix.lower() != ".svg":
            raise VitralError(f"'{plot}' is no name for a drawing; let it end in .svg.")
        check_file(plot, inputs=[] if classifier is None else [classifier], mark=MARK, overwrite=overwrite)
    with ConsoleListener() as listener:
        source = load(name_of(classifier, listener), image_size=image_size, listener=listener)
        if merge is None:
            merge = source.setting.merge if source.setting is not None else 0
        found = measure(
            source,
            batch_sizes=sizes,
            merge=merge,
            compile=compile,
            zentorch=zentorch,
            rounds=rounds,
            listener=listener,
        )
    if json:
        print_json(found.to_json())
    else:
        _show(found)
    if plot is not None:  # last: a full disk must not cost the figures
        write_speeds(found, plot)
        if not json:
            print_line(f"Plot  {plot}")


def _show(found: Bench) -> None:
    for line in found.lines():
        print_line(line)
    headers, rows = found.table()
    print_table(headers, rows, texts=("dtype",))


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise VitralError(f"--batch-sizes are whole numbers from 1 with commas, such as 1,8; not '{text}'.")
    return sizes
