"""What the training commands share at the end: the report and the scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from vitral.cli.command_line import SPEECH, command_of, next_commands
from vitral.cli.console import ConsoleListener, print_json, print_lines, print_styled
from vitral.cli.process import began
from vitral.events import Listener, Message
from vitral.paths import REPORT_FILE
from vitral.torchrun import is_main
from vitral.training.candidates.result import RunResult
from vitral.training.request import Request
from vitral.training.scoring.diagnosis import merged


def train_and_report(train: Callable[..., RunResult], request: Request, *, json: bool, verbose: bool = False) -> None:
    """Carry out a training command: train, write the report, and print the result."""
    with ConsoleListener(verbose=verbose) as listener:
        result = train(request, started=began(), listener=listener)
        if not is_main():
            return  # the main process of the job prints it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)


def write_run_report(result: RunResult, *, listener: Listener) -> Path:
    """Write the run's HTML report into its folder and return its path."""
    from vitral.report.page import write_report  # drawing takes a second to import, and a plan draws nothing
    from vitral.studies.run_report import run_report

    target = result.run.folder / REPORT_FILE
    listener(Message("Drawing the report …", detail=True))
    write_report(run_report(result.at_its_end(), speech=SPEECH), target)  # late already, if it is, and says so
    return target


def result_json(result: RunResult, report: Path) -> dict[str, Any]:
    """Return a run's result as JSON values, with the commands that would help."""
    diagnosis = [
        {
            "problem": finding.problem,
            "reason": finding.reason,
            "command": "" if finding.remedy is None else command_of(finding.remedy),
            "failed": finding.failed,
        }
        for finding in result.diagnosis
    ]
    return {**result.to_json(), "diagnosis": diagnosis, "report": str(report)}


def announce(result: RunResult, report: Path, *, json: bool) -> None:
    """Print the problems, the scores, and the commands that one would want next; or all of it as JSON."""
    result = result.at_its_end()
    if json:
        print_json(result_json(result, report))
        return
    for finding in merged(result.diagnosis):
        title, style = ("Failed", "bold red") if finding.failed else ("Note", "")
        print_styled(f"{title}: {finding.problem}", style)
        print_lines(f"  {finding.reason}")
    if result.late:
        print_lines(f"Note: {result.late}")
    print_styled(result.evaluation.announcement(result.split), "bold")
    print_lines(
        *([rare] if (rare := result.evaluation.rare_sentence(result.split)) else []),
        f"Classifier  {result.classifier_folder}",
    )
    print_styled(f"Report      {report}", f"link {report.resolve().as_uri()}")
    print_lines("Next:", *(f"  {command}" for command in next_commands(result)))
