"""`vitral demo`: the whole pipeline on real data, in minutes."""

from pathlib import Path

from vitral.cli.command_line import COMMANDS
from vitral.cli.console import ConsoleListener, print_json, print_lines
from vitral.studies.demo import demo as run_demo


def demo(*, out: Path = Path("runs/demo"), json: bool = False) -> None:
    """Run the whole pipeline on real data in minutes: pre-train, fine-tune, compare.

    Args:
        out: the folder of the result; an earlier demo there is replaced, an interrupted one is resumed.
        json: print JSON for programs.
    """
    with ConsoleListener() as listener:
        result = run_demo(out, command="vitral demo", speech=COMMANDS, listener=listener)
    if json:
        print_json(result.to_json())
        return
    headline = result.study.headline
    for arm in result.arms:
        mean, deviation = arm.mean(headline.name), arm.deviation(headline.name)
        print_lines(f"{arm.name:32} {mean:.2%} ± {deviation:.2%}   ({len(arm.runs)} seeds)")
    print_lines(
        f"Report      {result.report}",
        f"Classifier  {result.classifier}",
        f"Try         vitral explain IMAGE --classifier {result.classifier}",
    )
