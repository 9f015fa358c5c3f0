"""`vitral demo`: a classifier from the photos that are shipped."""

from pathlib import Path

from vitral.cli.process import importing
from vitral.paths import RUNS


def demo(*, out: Path = RUNS / "demo", json: bool = False) -> None:
    """Try 'finetune' on 340 photos of clothes that come with the package, in under two minutes.

    Args:
        out: the run folder, with the photos in OUT-photos; an earlier demo there is replaced, an interrupted one continues.
        json: print JSON for programs.
    """
    with importing():
        from vitral.cli.training import train_and_report
        from vitral.studies.demo import demo_request
        from vitral.studies.finetune import finetune_request

    train_and_report(finetune_request, demo_request(out), json=json)
