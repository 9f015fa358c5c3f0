"""Command lines: of a request, and those that a user would want next."""

import dataclasses
import shlex
from pathlib import Path

from vitral.cli.commands import COMMANDS, PLUGIN
from vitral.cli.wording import flag
from vitral.paths import RECIPE_FILE
from vitral.studies.speech import Speech
from vitral.training.candidates.result import RunResult
from vitral.training.records.run_folder import kept_remarks, stored_request
from vitral.training.request import FUNCTIONS, Request
from vitral.training.settings.durations import written


def command_of(request: Request, *, recipe: str | None = None) -> str:
    """Return the command line of a request, with `recipe` instead of its settings."""
    pairs: list[tuple[str, str | int | None]] = [
        ("source", request.source),
        ("model", request.model),
        ("classes", request.classes),
        ("recipe", recipe or request.recipe),
    ]
    if recipe is None:
        pairs += [("overrides", change) for change in request.overrides]
        pairs += [
            ("image_size", request.image_size),
            ("time", None if request.budget_seconds is None else written(request.budget_seconds)),
            ("seed", request.seed),
        ]
    words = ["vitral", "sweep" if request.sweep else FUNCTIONS[request.kind]]
    words += [part for path in request.plugins for part in (PLUGIN, path)]
    words += [] if request.data is None else [request.data]
    words += [part for name, value in pairs if value is not None for part in (flag(name), str(value))]
    switches = {
        "skip_bad_images": bool(request.skip_bad_images),
        "strict": request.skip_bad_images is False,
        "baselines": request.kind == "fine-tune" and not request.baselines,
        "quick": request.quick,
    }
    return shlex.join([*words, *(flag(name) for name, on in switches.items() if on)])


def commands_of(result: RunResult) -> str:
    """Return the command of the last request, and the one that runs its recipe again with what that gives, one line each.

    If the run delivers a classifier that no recipe trained, return the first alone.
    """
    run = result.run
    command = run.command
    request = dataclasses.replace(stored_request(run.folder) or command, quick=command.quick)
    if not result.trained:
        return command_of(request)
    start = None if run.kind == "pre-train" else run.plan.start
    again = dataclasses.replace(command, source=start, model=None, sweep=False)
    remarks = kept_remarks(run.folder)
    gives = f"not the same weights again: {'; '.join(remarks)}" if remarks else "the same weights again"
    return f"{command_of(request)}\n{command_of(again, recipe=str(run.folder / RECIPE_FILE))}  # {gives}"


def next_commands(result: RunResult) -> list[str]:
    """Return the commands that a user would want next, ready to paste."""
    run = result.run
    known = run.data
    example = known.splits[result.split].describe(0)
    image = shlex.quote(example if Path(example).is_file() else "IMAGE.jpg")
    data, folder = shlex.quote(run.request.required_data()), shlex.quote(str(run.folder))
    if not known.task.scored:
        return [f"vitral finetune LABELLED --from {folder}"]
    scores = f"vitral evaluate {folder} {data}"
    if known.bad_images and run.request.skip_bad_images:
        scores += f" {flag('skip_bad_images')}"
    if result.failed:
        remedies = dict.fromkeys(finding.remedy for finding in result.diagnosis if finding.remedy is not None)
        return [*map(command_of, remedies), scores]
    scores += " --split train" if result.split == "train" else ""
    if known.task.dense:
        return [scores, f"vitral predict {image} --classifier {folder} --out found"]
    return [
        scores,
        f"vitral predict {image} --classifier {folder}",
        f"vitral explain {image} --classifier {folder}",
        *_more_images(result),
    ]


def _more_images(result: RunResult) -> list[str]:
    """Return the command that also learns from images in no class, if these are at least as many as the labelled ones.

    It repeats the run by a method that beat the labels alone in as many updates, with this run as the teacher
    (docs/methods/pseudo-labels.md). The images must lie in a folder of their own, without those that are scored.
    """
    run = result.run
    data, method = run.data, run.recipe.method
    outside, labelled = data.outside, len(data.splits["train"])
    plain = method.name == "supervised" and not data.multi_label
    if not (run.kind == "fine-tune" and result.trained and plain and outside >= labelled):
        return []
    again = dataclasses.replace(run.command, source=run.plan.start, model=None, sweep=False)
    changes = ("method.name=noisy-student", f"method.teacher={run.folder}", "method.unlabelled=unlabelled:OTHERS")
    words = [part for change in changes for part in (flag("overrides"), change)]
    command = f"{command_of(again, recipe=str(run.folder / RECIPE_FILE))} {shlex.join(words)}"
    return [f"{command}  # the {outside:,} images in no class teach, too, once they lie in a folder OTHERS"]


def following(result: RunResult) -> list[tuple[str, str]]:
    """Return the commands that a user would want next, each with its purpose, for a page that has room for it."""
    run, commands = result.run, next_commands(result)
    task = run.data.task
    if result.evaluation.mistakes and task.comparable and not result.failed:
        words = ["vitral", "fix", run.request.required_data(), flag("classifier"), str(run.folder)]
        commands.append(shlex.join(words))
    return [(command, COMMANDS[command.split()[1]].line) for command in commands]


SPEECH = Speech(ask=command_of, again=commands_of, following=following)
