"""The options of the training commands, which are one request."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from vitral.cli.options import MORE, USUAL, Count, More, Positive, SkipBad, Start, Usual
from vitral.cli.wording import flag
from vitral.data.classes import Reading
from vitral.errors import UsageError
from vitral.training.request import Request

Hidden = Parameter(parse=False)
Json = Annotated[bool, Usual]


@dataclass(frozen=True)
class First:
    """The field that needs no flag: it comes before those of the request, because no other may come before it."""

    data: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Request, First):
    """The options of a training command.

    Attributes:
        data: class folders (in train/ val/ test/ or not), .zip, .tar, .csv, .parquet, shards, hf:OWNER/NAME, "digits";
            part:10%:SOURCE is a share of the training images of any of these, columns:image=NAME,label=NAME:SOURCE
            chooses where several columns could be meant.
        recipe: a recipe's name or a TOML file; if left out, one that fits images, classes and machine.
        overrides: KEY=VALUE changes to the recipe, such as optimizer.lr=0.01; may be repeated.
        image_size: pixels; if left out, what suits images, weights, machine and time.
        time: a budget such as 10m, 90s or 1h30m for the whole command, from its start to the report; if left out, training
            takes up to about 25 minutes without trained weights, an hour with them.
        seed: for every random choice.
        classes: in nested folders, whether the innermost, the outermost or the whole path names the class; detected if
            left out.
        group: what tells images that belong together (a patient, a video), which no split parts: a column of a table or Hub
            dataset; of folders "folder" (folder:2 is the one around it) or "series" (names but for their last number).
        skip_bad_images: train without however many images cannot be read, or stop at any (--strict); if neither is given, a
            few are left out and named: up to a tenth of the images, and no whole class.
        out: the run folder; runs/NAME if left out.
        resume: continue with the run in --out, to the same bits; what it was given first need not be repeated.
        data_changed: continue although the data have changed since the run began, and note that.
        overwrite: start in --out although it holds a run, which is deleted, or other files; those of the same names are lost.
        offline: fetch no weights: only those count that are on this machine.
    """

    data: Annotated[str | None, Usual] = field(default=None, kw_only=False)
    kind: Annotated[str, Hidden] = "fine-tune"
    source: Annotated[str | None, Hidden] = None
    model: Annotated[str | None, Hidden] = None
    sweep: Annotated[bool, Hidden] = False
    quick: Annotated[bool, Hidden] = False
    recipe: Annotated[str | None, More] = None
    overrides: Annotated[tuple[str, ...], Parameter("--set", group=MORE)] = ()
    image_size: Annotated[Positive | None, More] = None
    time: Annotated[str | None, Usual] = None
    seed: Annotated[Count | None, More] = None
    classes: Annotated[Reading | None, More] = None
    group: Annotated[str | None, More] = None
    skip_bad_images: Annotated[SkipBad, More] = None
    out: Annotated[Path | None, Usual] = None
    resume: Annotated[bool, Usual] = False
    overwrite: Annotated[bool, More] = False
    data_changed: Annotated[bool, More] = False
    offline: Annotated[bool, More] = False
    exact: Annotated[bool, Hidden] = False
    baselines: Annotated[bool, Hidden] = True
    where: Annotated[str, Hidden] = field(default_factory=lambda: str(Path.cwd()))
    plugins: Annotated[tuple[str, ...], Hidden] = ()

    def request(self) -> Request:
        """Return the request."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(Request) if entry.name != "plugins"}
        return Request(**given)

    def refuse(self, command: str, *names: str) -> None:
        """Refuse options that a command has no use for.

        Args:
            command: What the command does, as a sentence begins.
            names: Those of the request.

        Raises:
            UsageError: One of them was given.
        """
        plain = type(self)()
        for name in (name for name in names if getattr(self, name) != getattr(plain, name)):
            raise UsageError(f"{command}, so {flag(name)} cannot go with it.")


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
    model: Annotated[str | None, Usual] = None
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
        quick: stop after the first classifier, a linear layer in closed form; --resume without it continues with training.
    """

    source: Annotated[Start, Usual] = None
    no_baselines: Annotated[bool, More] = False
    quick: Annotated[bool, Usual] = False

    def request(self) -> Request:
        """Return the request."""
        return replace(super().request(), baselines=not self.no_baselines)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DistillOptions(TrainingOptions):
    """The options of a distillation.

    Attributes:
        data: the images: what 'finetune' takes, or a folder of images in whatever sub-folders.
        source: a model's name ('vitral models' lists them), or trained weights; vit-ti16 if left out.
        recipe: a recipe's name or a TOML file; distill if left out.
        overrides: KEY=VALUE changes to the recipe, such as method.answers=0; may be repeated.
        image_size: the size of the student's images in pixels; the teacher's if left out and the student can take it.
        time: a budget such as 10m, 90s or 8h for training, scores and report; scoring the teacher, too, comes on top.
        resume: continue with the run in --out, to the same bits; but for the teacher, what it was given first need not be
            repeated.
    """

    source: Annotated[str | None, Parameter("--student", group=USUAL)] = None
    offline: Annotated[bool, Hidden] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StartsOptions(FinetuneOptions):
    """The options of a comparison of starts, which trains nothing.

    Attributes:
        data: class folders (in train/ val/ or not), or whatever else 'finetune' takes.
        image_size: pixels; if left out, each start's own.
        time: a budget such as 10m or 90s for the whole command; if left out, as long as it needs.
        out: the folder for starts.json and starts.md; if left out, the table is printed only.
        overwrite: replace files of those names in --out.
    """

    source: Annotated[str | None, Hidden] = None
    recipe: Annotated[str | None, Hidden] = None
    overrides: Annotated[tuple[str, ...], Hidden] = ()
    resume: Annotated[bool, Hidden] = False
    data_changed: Annotated[bool, Hidden] = False
    no_baselines: Annotated[bool, Hidden] = False
    quick: Annotated[bool, Hidden] = False
