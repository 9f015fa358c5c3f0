"""What the training commands share: their options, which are one request, and at the end the report and the scores."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from vitral.cli.command_line import COMMANDS, command_of, next_commands
from vitral.cli.console import ConsoleListener, print_json, print_lines
from vitral.cli.options import Count, Positive, Settings, Start
from vitral.cli.process import began
from vitral.cli.wording import flag
from vitral.errors import StudyError
from vitral.events import Listener, Message
from vitral.torchrun import is_main
from vitral.training.candidates.result import RunResult
from vitral.training.request import Request
from vitral.training.scoring.diagnosis import merged

Hidden = Parameter(parse=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Request):
    """The options of a training command.

    Attributes:
        data: class folders (in train/ val/ test/ or not), .zip, .tar, .csv, .parquet, shards, hf:OWNER/NAME, "digits";
            part:10%:SOURCE is a share of the training images of any of these, columns:image=NAME,label=NAME:SOURCE
            chooses where several columns could be meant.
        recipe: a recipe's name or a TOML file; if left out, one that fits images, classes and machine.
        overrides: KEY=VALUE changes to the recipe, such as optimizer.lr=0.01; may be repeated.
        image_size: pixels; if left out, what suits images, weights, machine and time.
        time: a budget such as 10m, 90s or 1h30m for the whole command, from its start to the report; if left out, what pays:
            without trained weights up to about 25 minutes of training, with them an hour.
        seed: for every random choice.
        classes: in nested folders, whether the innermost, the outermost or the whole path names the class; detected if
            left out.
        group: what tells images that belong together (a patient, a video), which no split parts: a column of a table or Hub
            dataset; of folders "folder" (folder:2 is the one around it) or "series" (names but for their last number).
        skip_bad_images: train without the images that cannot be read, and report them, instead of stopping.
        out: the run folder; runs/NAME if left out.
        resume: continue with the run in --out, to the same bits; what it was given first need not be repeated.
        data_changed: continue although the data have changed since the run began, and note that.
        overwrite: start in --out although it holds a run, which is deleted, or other files; those of the same names are lost.
        offline: fetch no weights: only those count that are on this machine.
    """

    kind: Annotated[str, Hidden] = "fine-tune"
    overrides: Settings = ()
    image_size: Positive | None = None
    time: str | None = None
    seed: Count | None = None
    exact: Annotated[bool, Hidden] = False
    baselines: Annotated[bool, Hidden] = True
    where: Annotated[str, Hidden] = field(default_factory=lambda: str(Path.cwd()))
    plugins: Annotated[tuple[str, ...], Hidden] = ()

    def request(self) -> Request:
        """Return the request."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(Request) if entry.name != "plugins"}
        return Request(**given)

    def refuse(self, command: str, *names: str, beside: Mapping[str, bool]) -> None:
        """Refuse options that a command has no use for.

        Args:
            command: What the command does, as a sentence begins.
            names: Those of the request.
            beside: Others by name, and whether they were given.

        Raises:
            StudyError: One of them was given.
        """
        plain = type(self)()
        given = dict(beside) | {name: getattr(self, name) != getattr(plain, name) for name in names}
        for name in (name for name, is_given in given.items() if is_given):
            raise StudyError(f"{command}, so {flag(name)} cannot go with it.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PretrainOptions(TrainingOptions):
    """The options of a pre-training.

    Attributes:
        data: "visualatom" (an endless source of generated images; if left out), or what 'finetune' takes.
        model: a model's name ('vitral models' lists them); the recipe's if left out.
        recipe: a recipe's name or a TOML file.
        overrides: KEY=VALUE changes to the recipe, such as optimizer.lr=0.001; may be repeated.
        image_size: pixels; the model's own if left out.
        time: a budget such as 10m, 90s or 8h for the whole command, from its start to the report.
    """

    kind: Annotated[str, Hidden] = "pre-train"
    source: Annotated[str | None, Hidden] = None
    sweep: Annotated[bool, Hidden] = False
    quick: Annotated[bool, Hidden] = False
    offline: Annotated[bool, Hidden] = False

    def request(self) -> Request:
        """Return the request."""
        return replace(super().request(), baselines=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(TrainingOptions):
    """The options of a fine-tuning.

    Attributes:
        source: where to start: published weights (MODEL@TRAINING), a weights file, classifier or run folder, Hub id; a
            model's name alone means random weights. If left out, the published weights that pay for these images, this
            machine and the time, or none.
        no_baselines: skip the simple classifiers before training, and deliver the trained network however good they are.
        quick: stop after the first classifier, a linear layer in closed form; --resume without it goes on with training.
    """

    source: Start = None
    model: Annotated[str | None, Hidden] = None
    sweep: Annotated[bool, Hidden] = False
    no_baselines: bool = False

    def request(self) -> Request:
        """Return the request."""
        return replace(super().request(), baselines=not self.no_baselines)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StartsOptions(FinetuneOptions):
    """The options of a comparison of starts, which trains nothing.

    Attributes:
        data: class folders (in train/ val/ or not), or whatever else 'finetune' takes.
        image_size: pixels; if left out, each start's own.
        time: a budget such as 10m or 90s for the whole command; if left out, as long as it needs.
        out: the folder for starts.json and starts.md; if left out, the table is printed only.
        skip_bad_images: leave out images that cannot be read, instead of stopping.
        overwrite: replace files of those names in --out.
    """

    source: Annotated[str | None, Hidden] = None
    recipe: Annotated[str | None, Hidden] = None
    overrides: Annotated[tuple[str, ...], Hidden] = ()
    resume: Annotated[bool, Hidden] = False
    data_changed: Annotated[bool, Hidden] = False
    no_baselines: Annotated[bool, Hidden] = False
    quick: Annotated[bool, Hidden] = False


def say_moved(flag: str, command: str) -> None:
    """Say on standard error that a flag of 'vitral finetune' has become a command."""
    if is_main():
        sys.stderr.write(f"{flag} has become the command 'vitral {command}'; the flag works for this release.\n")


def train_and_report(train: Callable[..., RunResult], request: Request, *, json: bool) -> None:
    """Carry out a training command: train, write the report, and print the result.

    Args:
        train: `finetune_request` or `run_request`.
        request: What the command was given.
        json: Whether to print JSON for programs.
    """
    with ConsoleListener() as listener:
        result = train(request, started=began(), listener=listener)
        if not is_main():
            return  # the main process of the job prints it for all
        report = write_run_report(result, listener=listener)
    announce(result, report, json=json)


def write_run_report(result: RunResult, *, listener: Listener) -> Path:
    """Write the run's HTML report into its folder and return its path."""
    from vitral.report.page import write_report  # drawing takes a second to import, and a plan draws nothing
    from vitral.studies.run_report import run_report

    target = result.run.folder / "report.html"
    listener(Message("Drawing the report …"))
    write_report(run_report(result.at_its_end(), speech=COMMANDS), target)  # late already, if it is, and says so
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
        print_lines(f"{'Failed' if finding.failed else 'Note'}: {finding.problem}", f"  {finding.reason}")
    print_lines(
        result.evaluation.announcement(result.split),
        *([rare] if (rare := result.evaluation.rare_sentence(result.split)) else []),
        f"Classifier  {result.classifier_folder}",
        f"Report      {report}",
        *next_commands(result),
    )
