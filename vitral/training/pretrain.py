"""Pre-training: from random weights to a network worth fine-tuning (paper section 3.2, appendix B.1)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.classifier.provenance import Provenance
from vitral.data.classes import Reading, check_reading
from vitral.data.source import DataSet
from vitral.events import Listener, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import build
from vitral.progress import show
from vitral.seeds import derive
from vitral.training.optimization.precision import training_device
from vitral.training.planning.durations import asked_seconds
from vitral.training.planning.estimate import fit_machine
from vitral.training.planning.length import fit_length
from vitral.training.planning.network import DEFAULT_MODEL, network_config
from vitral.training.planning.plan import Plan
from vitral.training.planning.request import ANY_CLASSES, asked_recipe
from vitral.training.records.asked import Asked, go_on
from vitral.training.records.resume import budget_left, kept_recipe
from vitral.training.records.start import folder_and_data, goes_on
from vitral.training.result import RunResult
from vitral.training.run import execute
from vitral.training.settings.recipe import Recipe

DEFAULT_RECIPE = "pretrain"
DEFAULT_DATA = "visualatom"


def pretrain(
    data: str | Path | None = None,
    *,
    model: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    budget_seconds: float | None = None,
    seed: int | None = None,
    classes: Reading | None = None,
    skip_bad_images: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    data_changed: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> RunResult:
    """Pre-train a network from random weights; the run folder holds everything that it made.

    Args:
        data: "visualatom", the endless source of generated images (taken if None), or what `open_data` takes: a folder
            with one sub-folder a class, an archive, a table, shards, ...
        model: a model's name; None for the recipe's.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; "pretrain" if None.
        overrides: changes to the recipe, such as "optimizer.lr=0.001".
        image_size: pixels; None for the recipe's, or the model's own.
        time: a budget for the whole command, from `started` to the report: "10m", "8h", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: the older name of `time`.
        seed: of every random choice, the weights included; None for the recipe's.
        classes: of nested folders, which one names the class; see `open_data`.
        skip_bad_images: train without unreadable images, and list them, in place of an error.
        resume: go on with the run in `out`, to the same bits; what it was asked first need not be said again. One that is
            finished goes on only with more `time`, or with other steps among the overrides.
        data_changed: go on though the data are not those that the run began with, and note that.
        overwrite: begin in `out` though it holds a run, which is deleted, or other files; those of the same names are lost.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    started = monotonic() if started is None else started
    distributed.join()
    listener = listener if distributed.is_main() else ignore
    typed, resume = resume, goes_on(out, resume=resume, data_changed=data_changed)
    overwrite = overwrite and (typed or not resume)  # a restarted job goes on with what its first start began anew
    run = None if out is None else Path(out)
    asked = Asked(
        kind="pre-train",
        data=None if data is None else str(data),
        model=model,
        recipe=None if recipe is None else str(recipe),
        overrides=tuple(overrides),
        image_size=image_size,
        budget_seconds=asked_seconds(time, budget_seconds),
        seed=seed,
        classes=check_reading(classes),
        skip_bad_images=skip_bad_images,
        where=str(Path.cwd()),
    )
    further = typed and asked.budget_seconds is not None
    if resume and run is not None:
        asked = replace(go_on(run, asked), budget_seconds=budget_left(run, asked))
    asked = replace(asked, data=asked.data or DEFAULT_DATA)
    kept = kept_recipe(run) if resume and run is not None else None
    settings = asked_recipe(
        asked.recipe or kept or DEFAULT_RECIPE, asked.overrides, image_size=asked.image_size, seed=asked.seed
    )
    settings = settings.model_copy(update={"model": asked.model or settings.model or DEFAULT_MODEL})
    network_config(settings, ANY_CLASSES)
    with folder_and_data(asked, run, resume=resume, overwrite=overwrite, listener=listener) as (folder, found):
        plan = _plan(asked, found, folder, settings, started)
        plan = replace(plan, resume=resume, further=further, data_changed=data_changed)
        return execute(plan, listener)


def _plan(asked: Asked, found: DataSet, folder: Path, settings: Recipe, started: float) -> Plan:
    settings, why_length = fit_length(settings, found.images_an_epoch())
    if found.multi_label and settings.objective.name == "softmax":
        objective = settings.objective.model_copy(update={"name": "sigmoid"})
        settings = settings.model_copy(update={"objective": objective})
    classifier = _random_network(settings, found)
    settings, cost, why_cost = fit_machine(classifier, settings, asked.budget_seconds)
    return Plan(
        kind="pre-train",
        folder=folder,
        data=found,
        data_spec=asked.required_data(),
        start=None,
        classifier=classifier,
        recipe=settings,
        augmentation=settings.augmentation or found.augmentation,
        reasons=(f"Recipe: {settings.name} ({settings.summary()}).", *why_length, *why_cost),
        budget_seconds=asked.budget_seconds,
        started=started,
        cost=cost,
        resume=False,
        asked=asked,
        baselines=False,
    )


def _random_network(recipe: Recipe, data: DataSet) -> Classifier:
    config = network_config(recipe, len(data.class_names))
    network = build(config, seed=derive(recipe.seed, "weights"))
    provenance = Provenance(source=f"random weights ({recipe.model or DEFAULT_MODEL})")
    classifier = Classifier(
        network,
        recipe.preprocessing.over(PHOTOS.with_size(config.image_size)),
        data.class_names,
        provenance=provenance,
        multi_label=data.multi_label,
    )
    return classifier.to(training_device())
