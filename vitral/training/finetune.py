"""Fine-tuning: from a data set and any starting weights to a classifier (paper section 3.2)."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from vitral.classifier.classifier import Classifier, Provenance
from vitral.classifier.load import load
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.errors import TrainingError
from vitral.events import Listener, ignore
from vitral.models.catalog import list_models
from vitral.seeds import derive
from vitral.training.estimate import estimate
from vitral.training.loop import RECIPE_FILE
from vitral.training.precision import training_device
from vitral.training.recipe import Recipe, load_recipe
from vitral.training.run import RUN_FILE, Plan, RunResult, execute, free_folder

SMALL_PICTURE = 48  # pixels: below it a patch of 16 would swallow the picture
MIN_STEPS = 300  # what a very small set still needs to learn its head and adapt its features


def finetune(
    data: str | Path,
    *,
    source: str | Path | None = None,
    out: str | Path | None = None,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    image_size: int | None = None,
    budget_seconds: float | None = None,
    seed: int | None = None,
    skip_bad_images: bool = False,
    resume: bool = False,
    baselines: bool = True,
    listener: Listener = ignore,
) -> RunResult:
    """Fine-tune a network on labelled pictures; the run folder holds everything that it made.

    The head becomes a single zero-initialised linear layer and the position embedding is interpolated to the new size, as
    in the paper. Before training the plan and two baselines on frozen features are told to the listener.

    Args:
        data: "digits", or a folder with one sub-folder a class.
        source: a weights file, classifier or run folder, Hub id, or a model's name for random weights; None picks a
            model that fits the pictures and the hardware, from random weights.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; None picks one by the source.
        overrides: changes to the recipe, such as "optimizer.lr=0.01".
        image_size: pixels; None for the source's own.
        budget_seconds: a time budget that the run keeps, evaluation included.
        seed: of every random choice; None for the recipe's.
        skip_bad_images: train without unreadable pictures, and list them, in place of an error.
        resume: go on with the run in `out`, to the same bits.
        baselines: whether to score k-nearest-neighbour and a linear probe on the frozen features first.
        listener: hears messages and progress.

    Raises:
        VitralError: bad input, by kind; one line that names the thing.
    """
    started = time.monotonic()
    found = open_data(data, skip_bad_images=skip_bad_images, listener=listener)
    folder = run_folder(out, found, resume=resume)
    source = kept_start(folder) if resume and source is None else source
    start, why_source = _start(source, found)
    kept = kept_recipe(folder) if resume else None
    from_scratch = source is None or str(source) in list_models()
    chosen = recipe or kept or ("scratch" if from_scratch else "finetune")
    settings = load_recipe(chosen, overrides)
    settings = settings if seed is None else settings.model_copy(update={"seed": seed})
    if from_scratch:
        start.model.init_weights(derive(settings.seed, "weights"))
    settings = settings if image_size is None else settings.model_copy(update={"image_size": image_size})
    classifier = prepare(start, found, settings.image_size, settings)
    settings, why_length = fit_length(settings, found.splits["train"])
    reasons = [*why_source, f"Recipe: {settings.name} ({settings.summary()}).", *why_length]
    reasons.append(estimate(classifier, settings).sentence())
    plan = Plan(
        kind="fine-tune",
        folder=folder,
        data=found,
        data_spec=str(data),
        start=str(source) if source is not None else default_model(found.splits["train"]),
        classifier=classifier,
        recipe=settings,
        augmentation=settings.augmentation or found.augmentation,
        reasons=tuple(reasons),
        budget_seconds=budget_seconds,
        started=started,
        resume=resume,
        baselines=baselines,
    )
    return execute(plan, listener)


def prepare(start: Classifier, data: DataSet, image_size: int | None, recipe: Recipe) -> Classifier:
    """Return the classifier in its starting state: new head, new size, the data's class names, the recipe's rates."""
    model = start.model
    model.replace_head(len(data.class_names))
    if image_size is not None:
        model.resize(image_size)
    rates = recipe.regularization
    model.set_rates(
        dropout=rates.dropout, attention_dropout=rates.attention_dropout, stochastic_depth=rates.stochastic_depth
    )
    preprocessing = start.preprocessing.with_size(model.image_size)
    provenance = Provenance(source=start.provenance.source)
    return Classifier(model, preprocessing, data.class_names, provenance=provenance).to(training_device())


def fit_length(recipe: Recipe, train: Source) -> tuple[Recipe, list[str]]:
    """Return the recipe with a batch that the data can fill and a number of steps, and why."""
    batch = min(recipe.batch_size, max(8, len(train) // 4)) if not train.endless else recipe.batch_size
    if recipe.steps is not None:
        why = [f"Batch: {batch} pictures in place of {recipe.batch_size}, for there are only {len(train)} to train on."]
        return recipe.model_copy(update={"batch_size": batch}), why if batch < recipe.batch_size else []
    epochs = recipe.epochs if recipe.epochs is not None else 30.0
    steps = max(MIN_STEPS, round(epochs * len(train) / batch))
    seen = steps * batch / len(train)
    warmup = recipe.schedule.warmup_steps
    warmup = warmup if warmup <= steps // 5 else steps // 10  # 10.7 % of the paper's 300 epochs of ImageNet
    schedule = recipe.schedule.model_copy(update={"warmup_steps": warmup})
    reason = f"Length: {steps} steps of {batch} pictures, each picture seen about {seen:.0f} times."
    settings = {"batch_size": batch, "steps": steps, "epochs": None, "schedule": schedule}
    return recipe.model_copy(update=settings), [reason]


def _start(source: str | Path | None, data: DataSet) -> tuple[Classifier, list[str]]:
    if source is not None:
        start = load(source)
        if str(source) in list_models():
            return start, ["No trained weights were given, so the network learns from scratch."]
        start.provenance = Provenance(source=str(source))
        return start, []
    name = default_model(data.splits["train"])
    reason = (
        f"No weights were given (--from), so a {name} learns from scratch; pre-trained weights would do better on few "
        "pictures: a published file such as ViT-B_16.npz, or a run of 'vitral pretrain'."
    )
    return load(name), [reason]


def default_model(train: Source) -> str:
    """Return the model that fits the pictures' size and the hardware."""
    indices = np.linspace(0, len(train) - 1, min(len(train), 16)).astype(int)
    side = float(np.median([min(train.image(int(index)).shape[:2]) for index in indices]))
    if side < SMALL_PICTURE:
        return "vit-ti4"
    return "vit-s16" if torch.cuda.is_available() else "vit-ti16"


def run_folder(out: str | Path | None, data: DataSet, *, resume: bool) -> Path:
    """Return where a run goes.

    Raises:
        TrainingError: a run is to go on, and no folder was named; or a new one is to begin where there is one.
    """
    if resume and out is None:
        raise TrainingError("Which run should go on? Name its folder with --out.")
    if out is not None and not resume and kept_recipe(Path(out)) is not None:
        # Said here too, before anything of the new run is written over the old one's.
        raise TrainingError(f"'{out}' already holds a run; go on with it by --resume, or choose another --out.")
    return free_folder(data.name) if out is None else Path(out)


def kept_start(folder: Path) -> str | None:
    """Return what the run in a folder started from, if there is one that says it."""
    try:
        start = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))["from"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return start if isinstance(start, str) else None


def kept_recipe(folder: Path) -> Path | None:
    """Return the resolved recipe of the run in a folder, if there is one."""
    path = folder / RECIPE_FILE
    return path if path.is_file() else None
