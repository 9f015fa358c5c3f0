"""Pre-training: from random weights to a network worth fine-tuning (paper section 3.2, appendix B.1)."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from vitral import distributed
from vitral.classifier.classifier import Classifier, Provenance
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.events import Listener, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import build
from vitral.progress import show
from vitral.seeds import derive
from vitral.training.durations import asked_seconds
from vitral.training.estimate import fit_machine
from vitral.training.length import fit_length
from vitral.training.network import DEFAULT_MODEL, network_config
from vitral.training.precision import training_device
from vitral.training.recipe import Recipe
from vitral.training.request import ANY_CLASSES, asked_recipe
from vitral.training.resume import goes_on, kept_recipe, run_folder
from vitral.training.run import Plan, RunResult, execute
from vitral.training.run_folder import claim_folder

DEFAULT_RECIPE = "pretrain"


def pretrain(
    data: str | Path = "visualatom",
    *,
    model: str | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    time: str | float | None = None,
    budget_seconds: float | None = None,
    seed: int | None = None,
    skip_bad_images: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    started: float | None = None,
    listener: Listener = show,
) -> RunResult:
    """Pre-train a network from random weights; the run folder holds everything that it made.

    Args:
        data: "visualatom", the endless source of generated pictures, or what `open_data` takes: a folder with one
            sub-folder a class, an archive, a table, shards, ...
        model: a model's name; None for the recipe's.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; "pretrain" if None.
        overrides: changes to the recipe, such as "optimizer.lr=0.001".
        image_size: pixels; None for the recipe's, or the model's own.
        time: a budget for the whole command, from `started` to the report: "10m", "8h", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: the older name of `time`.
        seed: of every random choice, the weights included; None for the recipe's.
        skip_bad_images: train without unreadable pictures, and list them, in place of an error.
        resume: go on with the run in `out`, to the same bits.
        overwrite: begin in `out` though it holds a run, which is deleted, or something else, which stays.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    started = monotonic() if started is None else started
    budget_seconds = asked_seconds(time, budget_seconds)
    distributed.join()
    listener = listener if distributed.is_main() else ignore
    resume = goes_on(out, resume=resume)
    kept = kept_recipe(Path(out)) if resume and out is not None else None
    settings = asked_recipe(recipe or kept or DEFAULT_RECIPE, overrides, image_size=image_size, seed=seed)
    settings = settings.model_copy(update={"model": model or settings.model or DEFAULT_MODEL})
    network_config(settings, ANY_CLASSES)
    if out is not None:
        claim_folder(Path(out), (data,), resume=resume, overwrite=overwrite)
    found = open_data(data, skip_bad_images=skip_bad_images, listener=listener)
    folder = run_folder(out, found)
    settings, why_length = fit_length(settings, found.images_an_epoch())
    if found.multi_label and settings.objective.name == "softmax":
        objective = settings.objective.model_copy(update={"name": "sigmoid"})
        settings = settings.model_copy(update={"objective": objective})
    classifier = _random_network(settings, found)
    settings, cost, why_cost = fit_machine(classifier, settings, budget_seconds)
    plan = Plan(
        kind="pre-train",
        folder=folder,
        data=found,
        data_spec=str(data),
        start=None,
        classifier=classifier,
        recipe=settings,
        augmentation=settings.augmentation or found.augmentation,
        reasons=(
            f"Recipe: {settings.name} ({settings.summary()}).",
            *why_length,
            *why_cost,
        ),
        budget_seconds=budget_seconds,
        started=started,
        cost=cost,
        resume=resume,
        baselines=False,
    )
    return execute(plan, listener)


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
