"""`vitral demo`: the whole pipeline on real data, in minutes."""

from pathlib import Path

from vitral.cli.command_line import COMMANDS
from vitral.cli.console import ConsoleListener, print_json, print_line
from vitral.studies.demo import demo as run_demo


def demo(
    *,
    out: Path = Path("runs/demo"),
    json: bool = False,
) -> None:
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
    for arm in result.arms:
        mean, deviation = (f"{figure(result.study.headline.name):.2%}" for figure in (arm.mean, arm.deviation))
        print_line(f"{arm.name:32} {mean} ± {deviation}   ({len(arm.runs)} seeds)")
    print_line(f"Report      {result.report}")
    print_line(f"Classifier  {result.classifier}")
    print_line(f"Try         vitral explain IMAGE --classifier {result.classifier}")
