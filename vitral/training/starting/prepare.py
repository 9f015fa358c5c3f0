"""From a session to a run that is ready to begin: its plan, and the network in its starting state."""

import contextlib
from dataclasses import replace
from typing import Any

from vitral import distributed
from vitral.advice import argument
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import load
from vitral.classifier.metadata import Provenance
from vitral.data.source import DataSet, drawn, same_data
from vitral.errors import ModelError, TrainingError
from vitral.events import Listener, Message
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import list_models
from vitral.models.dense.dense_model import HEADS, with_region_head
from vitral.models.dense.head import HeadConfig
from vitral.models.dense.queries import OBJECT_QUERIES, MaskHeadConfig
from vitral.models.experts import change_experts
from vitral.models.families import build, configure
from vitral.models.families import replace as replace_config
from vitral.models.model import Model
from vitral.models.upcycling import NUMBER, upcycle
from vitral.seeds import derive
from vitral.tasks.dense import DenseTask
from vitral.training.choose.decide import decide, fresh_attempt
from vitral.training.choose.draft import Draft
from vitral.training.choose.fit_regions import head_kind
from vitral.training.choose.network import COARSE, FINE, detail, doubts, suited, views
from vitral.training.clock import SCRATCH_PATIENCE_SECONDS, TRIAL_SHARE, Allowance, Schedule, schedule
from vitral.training.facts import ClosedForms, Compared, Facts, Measured, look, look_at_weights
from vitral.training.measuring import measure
from vitral.training.methods.method import method_of
from vitral.training.optimization.frozen_front import is_still
from vitral.training.optimization.optimizers import training_device
from vitral.training.plan import Plan
from vitral.training.scoring.live import open_judging
from vitral.training.session import Run, Session
from vitral.training.settings.recipe import DEFAULT_MODEL, SHAPE, Recipe, network_config, routing, shape_changes
from vitral.training.starting.view_trials import try_views
from vitral.weights.dialect import UNTRAINED
from vitral.weights.named.table import is_named, offer


def load_start(draft: Draft, listener: Listener) -> Classifier | None:
    """Return the classifier that training starts from; None if it starts from random weights.

    It is loaded, and the size that the request sets is tried on it, before the data are read: a slip of the hand must not cost
    the reading of a single image.

    Raises:
        WeightsError: The source cannot be loaded.
        ModelError: The network cannot take the size.
    """
    if draft.from_recipe:
        return None
    recipe = draft.in_full
    if draft.source is None:
        _check_unnamed(recipe)
        return None
    if draft.from_name:
        _named_config(draft.source, recipe)
    start = load(draft.source, tuned=False, listener=listener)
    if not (draft.from_name or is_named(draft.source)):
        for note in start.provenance.notes:
            if not note.endswith(UNTRAINED):  # the head is replaced
                listener(Message(note, warning=True))
    if recipe.image_size is not None and not draft.from_name:
        replace_config(start.model.config, image_size=(recipe.image_size, recipe.image_size))
    return start


def random_start(draft: Draft) -> str:
    """Return in one line that a model's name alone means random weights, and which are published; empty for other starts."""
    source = draft.request.source
    offered = offer(source) if source in list_models() else ""
    return f"{source} starts from random weights. {offered}" if offered else ""


def _check_unnamed(recipe: Recipe) -> None:
    """Refuse a size or a shape that none of the networks can take which are chosen where none is named."""
    with contextlib.suppress(ModelError):
        _named_config(FINE, recipe)
        return
    try:
        _named_config(COARSE, recipe)
    except ModelError as error:
        if not any(getattr(recipe, key) is not None for key in SHAPE):
            raise
        named = argument("overrides", [f"model={DEFAULT_MODEL}"])
        raise ModelError(
            f"{error} This is said of {COARSE}, which is trained where no network is named; name one, such as {named}."
        ) from error


def _named_config(name: str, recipe: Recipe) -> Any:  # noqa: ANN401  # the family's own ModelConfig
    """Return the config of a network that is named beside a recipe, in the recipe's shape and for images of its size."""
    size = {} if recipe.image_size is None else {"image_size": recipe.image_size}
    return configure(name, {**size, **shape_changes(recipe, name)})


def prepare(session: Session) -> Run:
    """Return the run of a session, decided, built, tried and measured; where it continues its plan is read.

    Raises:
        VitralError: What was requested does not go together, or not with the data or the machine.
    """
    return complete(begin(session))


def begin(session: Session) -> Run:
    """Return a run as far as its first classifier needs it: the network, of which nothing was measured, and no attempts.

    Raises:
        VitralError: As of `prepare`.
    """
    if session.plan is not None:
        return _run(session, session.plan, begin_network(session, session.plan, session.loaded))
    draft, loaded = session.draft, session.loaded
    assert draft is not None, "there is a plan or what it is made from"
    if draft.automatic and loaded is None:
        loaded = load(str(draft.source), tuned=False, listener=session.listener)
    if not session.request.resume and (line := may_have_learned(session.data, loaded)):
        session.listener(Message(line, warning=True))
    timed = draft.needs_network or draft.chosen is not None or session.task.dense
    facts = session.facts or look(session.data, sized=draft.automatic or timed, timed=timed)
    facts = facts.at(distributed.broadcast(session.clock.spent()), session.clock.seconds)
    if loaded is not None and draft.automatic:
        facts = replace(facts, weights=look_at_weights(loaded))
    learned = loaded is not None and same_data(loaded.provenance.data_fingerprint, session.data.fingerprint)
    plan = replace(decide(draft, facts), learned=learned)
    return _run(replace(session, facts=facts), plan, begin_network(session, plan, loaded))


def complete(run: Run, *, first: float | None = None, closed_forms: ClosedForms | None = None) -> Run:
    """Return a run that has begun with all that is tried and measured: how images vary, the layout, the attempts, the schedule.

    Args:
        run: What `begin` returns; a run whose plan was read, and one that trains nothing, stay as they are.
        first: Seconds that its first classifier took already; None where it is yet to be made.
        closed_forms: As in the facts.

    Raises:
        TrainingError: It is to stop after the first classifier, and has none.
    """
    if run.request.quick and (why := run.why_no_first):
        raise TrainingError(
            f"{argument('quick', True)} stops after the first classifier, and this run has none: {why}."
        )
    draft, facts, learned = run.draft, run.facts, run.plan.learned
    if draft is None or facts is None or run.request.quick:
        return run
    facts = replace(facts, closed_forms=closed_forms)
    plan = decide(draft, facts)
    measured = measure(run.classifier, plan.recipe, budget_seconds=run.clock.seconds, scored=run.scored_images)
    facts = _by_now(replace(facts, measured=measured), run)
    plan = decide(draft, facts)
    if fresh_attempt(draft, facts) is not None or varies(plan):
        facts = _by_now(replace(facts, views=_views(run, draft, facts)), run)
        plan = decide(draft, replace(facts, fresh=_fresh(run, draft, facts, plan)))
    run = replace(run, plan=replace(plan, learned=learned))
    return replace(run, schedule=_schedule(run, first)) if run.plan.attempts else run


def _by_now(facts: Facts, run: Run) -> Facts:
    """Return the facts with the time that is left."""
    return replace(facts, left_seconds=None if run.clock.seconds is None else distributed.broadcast(run.clock.left()))


def varies(plan: Plan) -> bool:
    """Tell whether images vary in any attempt."""
    recipes = [attempt.recipe for attempt in plan.attempts]
    return not all(is_still(recipe, recipe.augmentation or plan.augmentation) for recipe in recipes)


def _fresh(session: Session, draft: Draft, facts: Facts, plan: Plan) -> Measured | None:
    """Measure the network from scratch that is tried beside a start; None where none is."""
    attempt = fresh_attempt(draft, facts)
    if attempt is None:
        return None
    network = begin_network(session, plan.of_network(attempt), None)
    return measure(network, attempt.recipe, budget_seconds=session.clock.seconds)


def _views(session: Session, draft: Draft, facts: Facts) -> dict[str, Compared]:
    """Return what is tried of how images vary, where the recipe is of our choice."""
    recipe, request = draft.recipe, session.request
    chosen = draft.automatic or (draft.needs_network and not draft.recipe_named)
    if not chosen or request.quick or recipe.method.name != "supervised":
        return {}
    usual = views(facts.data.augmentation, suited(detail(facts)))
    seconds = SCRATCH_PATIENCE_SECONDS if session.clock.seconds is None else session.clock.seconds
    doubted = doubts(usual, request.overridden)
    return try_views(session.data, usual, doubted, TRIAL_SHARE * seconds, seed=recipe.seed)


def _run(session: Session, plan: Plan, classifier: Classifier) -> Run:
    skip, listener = session.request.skip_bad_images, session.listener
    judging = open_judging(plan.recipe, session.data, skip_bad_images=skip, listener=listener)
    return Run(**(vars(session) | {"plan": plan}), classifier=classifier, judging=judging)


def _schedule(run: Run, first: float | None) -> Schedule:
    spent = run.clock.spent()
    allowed = Allowance(0, len(run.scored_images), image_seconds=run.plan.image_seconds or 0.0).within(run.clock.left())
    fitting = 0.0 if run.why_no_first else first
    return schedule(run.clock.seconds, allowed, spent=spent, training=run.cost.seconds, first=fitting)


def may_have_learned(data: DataSet, start: Classifier | None) -> str:
    """Return a line where a start was trained on data of the same classes, so that images it learned may now be scored.

    Splits are drawn from all images: of data that grew since then others are validation and test images.
    """
    made = [split for split in data.shared_out if split != "train"]
    if start is None or not made or not data.class_names:
        return ""
    before = start.provenance.data_fingerprint
    shared = set(start.class_names) & set(data.class_names)
    if (
        not before
        or drawn(before) == drawn(data.fingerprint)
        or not shared
        or 2 * len(shared) < len(set(start.class_names))
    ):
        return ""
    return (
        "The start was trained on other data, or on these before they or their splits changed, with the same classes. Photos "
        f"that it was trained on may now be {' or '.join(made)} photos, and the scores too good; "
        f"{' and '.join(f'{split}/' for split in made)} of your own, with images that it has never seen, tell."
    )


def begin_network(session: Session, plan: Plan, loaded: Classifier | None) -> Classifier:
    """Return the classifier in its starting state, on the device that it trains on."""
    data, recipe, seed = session.data, plan.recipe, derive(plan.recipe.seed, "weights")
    if plan.origin == "recipe":
        source, config = f"random weights ({plan.start})", network_config(recipe, data.outputs)
        start = Classifier(build(config, seed=seed), PHOTOS.with_size(config.image_size))
    else:
        start = loaded or load(plan.start, tuned=False, listener=session.listener)
        source = start.provenance.source
        if plan.origin == "model":
            if shape_changes(recipe, plan.start):
                start.model = build(_named_config(plan.start, recipe))
            start.model.init_weights(seed)
        elif not (is_named(plan.start) and source.startswith(plan.start)):  # with the commit of published weights
            source = plan.start
    if session.request.kind == "fine-tune" or data.task.dense:
        adapt_network(start, data, recipe)
    model = start.model
    sized = replace(start.preprocessing.with_size(model.image_size), bits=data.bits)
    preprocessing = recipe.preprocessing.over(sized)
    classifier = Classifier(
        model, preprocessing, data.class_names, provenance=Provenance(source=source), task=data.task
    )
    return classifier.to(training_device())


def adapt_network(start: Classifier, data: DataSet, recipe: Recipe) -> None:
    """Give a network a new head for the data's classes, the recipe's size and rates, and experts where it asks for some."""
    if recipe.experts.upcycle is not None:
        number, seed = recipe.experts.number or NUMBER, derive(recipe.seed, "experts")
        start.model = upcycle(start.model, recipe.experts.upcycle, number=number, seed=seed)
    seed = derive(recipe.seed, "head")
    if isinstance(data.task, DenseTask):
        head = _region_head(recipe, data.task, start.model)
        start.model = with_region_head(start.model, head, data.outputs, seed=seed)
    else:
        start.model.replace_head(data.outputs, seed=seed)
    model = start.model
    if recipe.image_size is not None:
        model.resize(recipe.image_size)
    set_rates(model, recipe)
    changes: dict[str, float | None] = dict(routing(recipe))
    if getattr(model.config, "experts", None) is not None:
        # A rate like the others: the recipe's, not that of the training before.
        changes["dropout"] = recipe.experts.dropout
    if changes:
        change_experts(model, **changes)


def _region_head(recipe: Recipe, task: DenseTask, start: Model) -> HeadConfig:
    """Return the head by which a recipe learns regions: the start's, where it is of that kind, or a new one.

    Raises:
        ModelError: The recipe sets what the start's head has otherwise.
    """
    kind = HEADS[head_kind(recipe, task)][0]
    said = {name: value for name, value in method_of(recipe).region_head(recipe).items() if value is not None}
    own = start.config.region_head
    if own is None or own.kind != kind.kind:
        usual = {"queries": OBJECT_QUERIES} if task.counted and issubclass(kind, MaskHeadConfig) else {}
        return kind(**(usual | said))
    for name, value in said.items():
        if (has := getattr(own, name)) != value:
            raise ModelError(
                f"The start has {own.title} whose {name} is {has}, and its weights do not fit {value}; leave that setting out."
            )
    return own


def set_rates(model: Model, recipe: Recipe) -> None:
    """Give a network a recipe's rates of dropout and stochastic depth."""
    rates = recipe.regularization
    model.set_rates(
        dropout=rates.dropout, attention_dropout=rates.attention_dropout, stochastic_depth=rates.stochastic_depth
    )
