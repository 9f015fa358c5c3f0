"""Fine-tuning: from a data set and any starting weights to a classifier (paper section 3.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import NoReturn

import numpy as np
import torch

from vitral import distributed
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.classifier.provenance import Provenance
from vitral.data.classes import Reading, check_reading
from vitral.data.source import DataSet, Source
from vitral.errors import TrainingError
from vitral.events import Listener, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import build, list_models
from vitral.models.experts import change_experts
from vitral.progress import show
from vitral.seeds import derive
from vitral.training.optimization.precision import training_device
from vitral.training.planning.automatic import choose_recipe, fitting_size, look
from vitral.training.planning.durations import asked_seconds
from vitral.training.planning.estimate import fit_machine
from vitral.training.planning.length import fit_length
from vitral.training.planning.network import network_config, routing
from vitral.training.planning.plan import Plan
from vitral.training.planning.request import check_finetuning
from vitral.training.records.asked import Asked, go_on
from vitral.training.records.resume import budget_left, kept_recipe, kept_start
from vitral.training.records.start import folder_and_data, goes_on
from vitral.training.result import RunResult
from vitral.training.run import execute
from vitral.training.settings.recipe import Recipe, load_recipe

SMALL_IMAGE = 48  # pixels: below it a patch of 16 would swallow the image
PAPERS = "finetune-paper"  # the recipe that a sweep takes if none is named: the paper's own


@dataclass(frozen=True)
class Request:
    """What was asked for; see `finetune`."""

    asked: Asked
    data: DataSet
    data_spec: str
    source: str | Path | None
    folder: Path
    recipe: str | Path | None
    overrides: tuple[str, ...]
    image_size: int | None
    budget_seconds: float | None
    seed: int | None
    resume: bool
    further: bool
    data_changed: bool
    baselines: bool
    started: float
    listener: Listener
    validate: bool = True
    start: Classifier | None = None


def refuse_sweep(request: Request) -> NoReturn:
    """Refuse what is many runs.

    Raises:
        TrainingError: always.
    """
    raise TrainingError(
        f"The run in '{request.folder}' is a sweep, which is many runs; begin it, and go on with it, as one."
    )


def finetune(
    data: str | Path | None = None,
    *,
    source: str | Path | None = None,
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
    baselines: bool = True,
    sweep: bool = False,
    started: float | None = None,
    listener: Listener = show,
    sweeping: Callable[[Request], RunResult] = refuse_sweep,
) -> RunResult:
    """Fine-tune a network on labelled images; the run folder holds everything that it made.

    The head becomes a single linear layer, zero as in the paper or as the network's own source draws it, and the position
    embedding is interpolated to the new size. Before training the plan and two baselines on frozen features are told to the
    listener.

    Under torchrun every process calls this; they share the work, and the main one writes.

    Args:
        data: what `vitral.data.open.open_data` takes: "digits", a folder with one sub-folder a class, an archive, a table, ...
        source: a weights file, classifier or run folder, Hub id, or a model's name for random weights; None picks a
            model that fits the images and the hardware, from random weights.
        out: the run folder; runs/NAME if None.
        recipe: a recipe's name or a TOML file; None picks one by the images, classes, network and hardware, and says why.
        overrides: changes to the recipe, such as "optimizer.lr=0.01".
        image_size: pixels; None for the recipe's, or the source's own.
        time: a budget for the whole command, from `started` to the report: "10m", "1h30m", or a number of seconds; the run
            becomes shorter to keep it.
        budget_seconds: the older name of `time`.
        seed: of every random choice; None for the recipe's.
        classes: of nested folders, which one names the class; see `open_data`.
        skip_bad_images: train without unreadable images, and list them, in place of an error.
        resume: go on with the run in `out`, to the same bits; what it was asked first need not be said again. One that is
            finished goes on only with more `time`, or with other steps among the overrides.
        data_changed: go on though the data are not those that the run began with, and note that.
        overwrite: begin in `out` though it holds a run, which is deleted, or other files; those of the same names are lost.
        baselines: whether to score k-nearest-neighbour and a linear probe on the frozen features first.
        sweep: try the paper's learning rates, each in a run of its own, choose by the validation split, and train with
            the best on the training and validation images together (paper appendix B.1.1). Without a test split, which the
            result could be scored on, the choice is by training images held out, and the validation split is scored once.
        started: `time.monotonic()` when the time that counts against the budget began; None for now.
        listener: hears messages and progress; they are written to the screen if left out, and lost with `vitral.events.ignore`.
        sweeping: carries out a request with `sweep`; `vitral.finetune` gives the study that does.

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
        kind="fine-tune",
        data=None if data is None else str(data),
        source=None if source is None else str(source),
        recipe=None if recipe is None else str(recipe),
        overrides=tuple(overrides),
        image_size=image_size,
        budget_seconds=asked_seconds(time, budget_seconds),
        seed=seed,
        classes=check_reading(classes),
        skip_bad_images=skip_bad_images,
        sweep=sweep,
        baselines=baselines,
        where=str(Path.cwd()),
    )
    further = typed and asked.budget_seconds is not None
    if resume and run is not None:
        asked = replace(go_on(run, asked), budget_seconds=budget_left(run, asked))
    asked.required_data()
    kept = run if resume else None
    start = check_finetuning(
        kept_start(kept) if kept is not None and asked.source is None else asked.source,
        recipe=asked.recipe or (PAPERS if asked.sweep else None) or (kept_recipe(kept) if kept is not None else None),
        overrides=asked.overrides,
        image_size=asked.image_size,
        seed=asked.seed,
        defaults=default_models(),
    )
    with folder_and_data(asked, run, resume=resume, overwrite=overwrite, listener=listener) as (folder, found):
        request = Request(
            asked=asked,
            data=found,
            data_spec=asked.required_data(),
            source=asked.source,
            folder=folder,
            recipe=asked.recipe,
            overrides=asked.overrides,
            image_size=asked.image_size,
            budget_seconds=asked.budget_seconds,
            seed=asked.seed,
            resume=resume,
            further=further,
            data_changed=data_changed,
            baselines=asked.baselines,
            started=started,
            listener=listener,
            start=None if asked.sweep else start,
        )
        return sweeping(request) if asked.sweep else run_once(request)


def run_once(request: Request) -> RunResult:
    """Carry out what was asked for, as one run."""
    found, folder = request.data, request.folder
    source = kept_start(folder) if request.resume and request.source is None else request.source
    named = _named_model(request)
    if named is not None and (source is None or str(source) == named.model):
        start, why_source = _recipes_network(named, request), [f"The recipe's {named.model} learns from scratch."]
        source, from_scratch = named.model, True
    else:
        start, why_source = _start(source, request)
        from_scratch = source is None or str(source) in list_models()
    settings, why_recipe = _settings(request, start, from_scratch=from_scratch)
    if from_scratch:
        start.model.init_weights(derive(settings.seed, "weights"))
    classifier = prepare(start, found, settings.image_size, settings)
    settings, why_length = fit_length(settings, found.images_an_epoch())
    settings, cost, why_cost = fit_machine(classifier, settings, request.budget_seconds)
    reasons = [*why_source, *why_recipe, *why_length, *why_cost]
    plan = Plan(
        kind="fine-tune",
        folder=folder,
        data=found,
        data_spec=request.data_spec,
        start=str(source) if source is not None else default_model(found.splits["train"]),
        classifier=classifier,
        recipe=settings,
        augmentation=settings.augmentation or found.augmentation,
        reasons=tuple(reasons),
        budget_seconds=request.budget_seconds,
        started=request.started,
        cost=cost,
        resume=request.resume,
        further=request.further,
        data_changed=request.data_changed,
        asked=request.asked,
        baselines=request.baselines,
        validate=request.validate,
    )
    return execute(plan, request.listener)


def _named_model(request: Request) -> Recipe | None:
    """Return the recipe if it names a network to train from random weights."""
    chosen = request.recipe or (kept_recipe(request.folder) if request.resume else None)
    recipe = None if chosen is None else load_recipe(chosen, request.overrides)
    return recipe if recipe is not None and recipe.model is not None else None


def _recipes_network(recipe: Recipe, request: Request) -> Classifier:
    config = network_config(recipe, len(request.data.class_names))
    model = build(config, seed=derive(recipe.seed, "weights"))
    provenance = Provenance(source=f"random weights ({recipe.model})")
    return Classifier(model, PHOTOS.with_size(config.image_size), provenance=provenance)


def _settings(request: Request, start: Classifier, *, from_scratch: bool) -> tuple[Recipe, list[str]]:
    """Return the recipe with everything that the command says of it, and why it is what it is."""
    kept = kept_recipe(request.folder) if request.resume else None
    chosen = request.recipe or kept
    reasons: list[str] = []
    if chosen is None and not from_scratch:
        train = request.data.splits["train"]
        situation = look(
            start.model,
            images=len(train),
            classes=len(request.data.class_names),
            side=median_side(train),
            budget_seconds=request.budget_seconds,
        )
        told = _told(request)
        automatic, reasons = choose_recipe(situation, request.data.augmentation, told=told)
        reasons += [f"  as you said: {', '.join(f'{key} {value}' for key, value in told.items())}."] if told else []
        size = fitting_size(start.model, automatic.image_size or situation.own_size)
        settings = automatic.model_copy(update={"image_size": size}).changed(request.overrides)
    else:
        settings = load_recipe(chosen or "scratch", request.overrides)
    changes = {"seed": request.seed, "image_size": request.image_size}
    settings = settings.model_copy(update={key: value for key, value in changes.items() if value is not None})
    if request.data.multi_label and settings.objective.name == "softmax":
        objective = settings.objective.model_copy(update={"name": "sigmoid"})
        settings = settings.model_copy(update={"objective": objective})
        reasons.append("Objective: sigmoid, since an image may have several labels.")
    return settings, [*reasons, f"Recipe: {settings.name} ({settings.summary()})."]


def _told(request: Request) -> dict[str, str]:
    """Return the settings that the command itself gives, by their keys in the recipe."""
    told = {key.strip(): value for key, _, value in (override.partition("=") for override in request.overrides)}
    return told if request.image_size is None else {**told, "image_size": str(request.image_size)}


def prepare(start: Classifier, data: DataSet, image_size: int | None, recipe: Recipe) -> Classifier:
    """Return the classifier in its starting state: new head, new size, the data's class names, the recipe's rates."""
    model = start.model
    model.replace_head(len(data.class_names), seed=derive(recipe.seed, "head"))
    if image_size is not None:
        model.resize(image_size)
    rates = recipe.regularization
    model.set_rates(
        dropout=rates.dropout, attention_dropout=rates.attention_dropout, stochastic_depth=rates.stochastic_depth
    )
    changes: dict[str, float | None] = dict(routing(recipe))
    if getattr(model.config, "experts", None) is not None:
        changes["dropout"] = (
            recipe.experts.dropout
        )  # a rate like the others: the recipe's, not that of the training before
    if changes:
        change_experts(model, **changes)
    preprocessing = recipe.preprocessing.over(start.preprocessing.with_size(model.image_size))
    provenance = Provenance(source=start.provenance.source)
    classifier = Classifier(model, preprocessing, data.class_names, provenance=provenance, multi_label=data.multi_label)
    return classifier.to(training_device())


def _start(source: str | Path | None, request: Request) -> tuple[Classifier, list[str]]:
    if source is not None:
        start = request.start or load(source)
        if str(source) in list_models():
            return start, ["No trained weights were given, so the network learns from scratch."]
        start.provenance = Provenance(source=str(source))
        return start, []
    name = default_model(request.data.splits["train"])
    reason = (
        f"No weights were given (--from), so a {name} learns from scratch; pre-trained weights would do better on few "
        "images: a published file such as ViT-B_16.npz, or a run of 'vitral pretrain'."
    )
    return load(name), [reason]


def default_model(train: Source) -> str:
    """Return the model that fits the images' size and the hardware."""
    small, large = default_models()
    return small if median_side(train) < SMALL_IMAGE else large


def default_models() -> tuple[str, str]:
    """Return the models that training from scratch takes for small images and for large ones on this hardware."""
    return "vit-ti4", "vit-s16" if torch.cuda.is_available() else "vit-ti16"


def median_side(train: Source) -> float:
    """Return the shorter side, in pixels, of the middle one of some images."""
    indices = np.linspace(0, len(train) - 1, min(len(train), 16)).astype(int)
    return float(np.median([min(train.image(int(index)).shape[:2]) for index in indices]))
