"""`vitral bench`: how fast does a classifier's network compute here?"""

from pathlib import Path

from vitral.cli.options import WHOLE, Count, Positive
from vitral.cli.process import importing
from vitral.errors import VitralError

MOST_DIGITS = 10  # of a number of images
ROUNDS = 5  # as in Python


def bench(
    classifier: str | None = None,
    *,
    batch_sizes: str = "1,8",
    image_size: Positive | None = None,
    merge: Count | None = None,
    compile: bool = False,
    rounds: Positive = ROUNDS,
    plot: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Measure how fast a classifier's network computes here, by every runtime that is installed.

    Args:
        classifier: A classifier folder, run folder, weights file, name or model name; the newest run in runs/ if left out.
        batch_sizes: The numbers of images computed at once, with commas.
        image_size: The pixels of an image's side; the network's own if left out, or what 'tune' has set.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), to measure this too; if left out, as 'tune'
            has set it.
        compile: Measure what torch.compile makes, too, which takes minutes to make.
        rounds: The turns that each contender has.
        plot: An SVG file for images/s by batch size.
        overwrite: Replace any file that is there.
        json: Print JSON for programs.
    """
    with importing():
        from vitral.classifier.load import load
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener, print_lines, print_result
        from vitral.deployment.bench import bench as measure
        from vitral.report.speed_charts import BENCH_MARK, check_drawing, speed_chart, write_chart

    sizes = _sizes(batch_sizes)
    if plot is not None:
        check_drawing(plot, BENCH_MARK, inputs=[] if classifier is None else [classifier], overwrite=overwrite)
    with ConsoleListener() as listener:
        source = load(name_of(classifier, listener), image_size=image_size, listener=listener)
        if merge is None:
            merge = source.setting.merge if source.setting is not None else 0
        found = measure(source, batch_sizes=sizes, merge=merge, compile=compile, rounds=rounds, listener=listener)
    print_result(found, json=json)
    if plot is not None:  # last: a full disk must not cost the figures
        write_chart(speed_chart(found), plot, BENCH_MARK)
        if not json:
            print_lines(f"Plot  {plot}")


def _sizes(text: str) -> list[int]:
    parts = text.split(",")
    if not all(WHOLE.fullmatch(part) and len(part) < MOST_DIGITS and int(part) >= 1 for part in parts):
        raise VitralError(f"--batch-sizes are whole numbers from 1 with commas, such as 1,8; not '{text:.40}'.")
    return list(map(int, parts))
