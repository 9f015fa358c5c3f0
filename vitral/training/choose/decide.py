"""From a draft and the facts to the plan: pure functions, which read nothing and build nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vitral.advice import argument
from vitral.errors import RecipeError
from vitral.tasks.dense import DenseTask
from vitral.training.choose import network
from vitral.training.choose.attempts import COST, SIMPLE_PHOTOS, Option, choose_attempts, finer_size, wants_one
from vitral.training.choose.draft import Draft, draft_of, why_no_first
from vitral.training.choose.fit_regions import check_regions, fit_regions
from vitral.training.choose.layout import fit_length, fit_machine
from vitral.training.choose.network import ChosenNetwork
from vitral.training.choose.recipe import choose_recipe, only_method
from vitral.training.clock import FRESH_SHARE, FRESH_TIME, PATIENCE_SECONDS, scratch_seconds
from vitral.training.facts import Facts
from vitral.training.plan import FRESH, TRAINED, Attempt, Cost, Origin, Plan
from vitral.training.settings.durations import rounded
from vitral.training.settings.recipe import Recipe

# Of the validation images, that a head on the start's features has right where no network from scratch is tried: it cannot be
# told from such a head by the photos that there are, and 20 s of three minutes go into it. Butterflies have 100 %, coins 97 %;
# pollen, where it is better, 93 %.
BEST_HEAD = 0.95
UNJUDGED = "Nothing is trained, because there are no validation photos to tell whether that would be better."
UNCOMPARED = "There are no validation photos to compare by, so what is trained is delivered."
SEVERAL_TRIED = "Trained one after the other; the best on the validation photos is selected:"


def decide(draft: Draft, facts: Facts) -> Plan:
    """Decide everything of a run: network, recipe, length, layout and attempts, each with its reason.

    Without `facts.measured`, which needs the network, only what does not depend on it: no layout, no attempts.

    Raises:
        RecipeError: A value that was set does not go with what was chosen, or without a time budget the run would take years.
    """
    plan = _before_measured(draft, facts)
    if facts.measured is None:
        return plan
    plan, cost = _laid_out(replace(plan, image_seconds=facts.measured.image_seconds), facts)
    if not facts.data.judged and facts.task.dense:
        plan = plan.with_reasons(UNCOMPARED)
    elif not facts.data.judged and not why_no_first(draft.request, plan, facts.task):
        return replace(plan.with_reasons(UNJUDGED), why_none=UNJUDGED)
    if _may_try_several(draft, facts):
        return _with_attempts(plan, draft, facts, cost)
    return plan.only(Attempt(TRAINED, plan.recipe, from_probe=draft.automatic or facts.task.dense))


def _before_measured(draft: Draft, facts: Facts, option: Mapping[str, object] | None = None) -> Plan:
    """Return the plan as far as it does not depend on what the network was measured to take.

    `option` is what the only attempt changes in the recipe; no line explains what it replaces.
    """
    chosen = _network(draft, facts) if draft.needs_network else None
    start, origin, reasons = _start(draft, chosen)
    recipe, why = _recipe(draft, facts, chosen, option or {})
    recipe, why_length = fit_length(recipe, facts.data.an_epoch, facts.machine.processes)
    return Plan(
        start=start,
        origin=origin,
        recipe=recipe,
        augmentation=recipe.augmentation or facts.data.augmentation,
        reasons=(*reasons, *why, *why_length),
        exactly=draft.request.exactly,
        chosen=draft.chosen,
    )


def _laid_out(plan: Plan, facts: Facts) -> tuple[Plan, Cost]:
    recipe, cost, why = fit_machine(plan.recipe, facts)
    return replace(plan.with_reasons(*why), recipe=recipe, cost=cost), cost


def _may_try_several(draft: Draft, facts: Facts) -> bool:
    """Tell whether several attempts may be made: request, data and memory leave more than one."""
    request = draft.request
    if not draft.automatic or request.exactly or not request.baselines or wants_one(request.overridden):
        return False
    return facts.task.closed_form and not facts.task.dense and only_method(facts) is None


def fresh_attempt(draft: Draft, facts: Facts) -> Attempt | None:
    """Return the attempt from scratch beside a start that was chosen and not named; None where there is none.

    How good a start is for these very images is known once both were tried. It is given up as soon as it is behind.
    """
    budget, training = facts.budget_seconds, facts.training_seconds
    if draft.chosen is None or budget is None or training is None or not _may_try_several(draft, facts):
        return None
    closed, counts = facts.closed_forms, facts.task.headline.counts
    if closed is not None and ((counts and closed.head >= BEST_HEAD) or closed.pixels < SIMPLE_PHOTOS):
        return None
    own = replace(
        facts, budget_seconds=min(FRESH_TIME * budget, scratch_seconds(training)), weights=None, measured=None
    )
    bare = draft_of(draft.request)
    chosen = _network(bare, own)
    if network.passes_at(own, chosen.model, chosen.size) < network.FEWEST_PASSES:
        return None
    recipe = fit_length(_recipe(bare, own, chosen, {})[0], facts.data.an_epoch, facts.machine.processes)[0]
    reason = (
        f"a small network that starts from zero, on photos at {chosen.size} pixels; it is given up once it is behind"
    )
    return Attempt(FRESH, recipe, reason, FRESH_SHARE, network=chosen.model)


def _with_attempts(plan: Plan, draft: Draft, facts: Facts, cost: Cost) -> Plan:
    finer = None if draft.size_set else finer_size(facts, plan.recipe, cost)
    fresh = None if facts.fresh is None else fresh_attempt(draft, facts)
    beside = fresh is not None and facts.known_weights.convolutional  # of whose own time passes are counted
    own = facts.of_time(1 - FRESH_SHARE) if beside else facts
    options = choose_attempts(
        own, plan.recipe, cost.images_per_second, finer=finer, overridden=draft.request.overridden
    )
    if fresh is None and len(options) == 1:
        return _with_one(plan, options[0], draft, facts)
    if fresh is None and not options:
        return _without_training(plan, draft, cost)
    attempts = [option.attempt(plan.recipe) for option in options]
    whole = replace(cost, seconds=sum(COST[option.name] for option in options) * cost.seconds)
    if fresh is not None:
        attempts, whole = _beside(fresh, attempts, whole, facts)
    if len(attempts) == 1:
        (alone,) = attempts
        plan = plan.with_reasons(f"There is time for one training: {alone.name} ({alone.reason}).")
        return replace(plan.only(alone), cost=whole)
    plan = plan.with_reasons(SEVERAL_TRIED, *(attempt.line() for attempt in attempts))
    return replace(plan, attempts=tuple(attempts), cost=whole)


def _beside(fresh: Attempt, attempts: Sequence[Attempt], cost: Cost, facts: Facts) -> tuple[list[Attempt], Cost]:
    """Return an attempt from scratch among those that begin with the start, and what all cost; `cost` is theirs.

    The longest of the start's is made after it, for that has the time that is left where it is given up.
    """
    recipe, own, _ = fit_machine(fresh.recipe, replace(facts, measured=facts.fresh))
    fresh = replace(fresh, recipe=recipe, relative_cost=cost.images_per_second / own.images_per_second)
    if not attempts:
        return [fresh], own
    whole = replace(cost, seconds=own.seconds + cost.seconds)
    *others, longest = [replace(attempt, share=attempt.share * (1 - fresh.share)) for attempt in attempts]
    return [*others, fresh, longest], whole


def _without_training(plan: Plan, draft: Draft, cost: Cost) -> Plan:
    """Return the plan of a run that trains nothing, for there is no time for any attempt."""
    budget = draft.request.budget_seconds
    why = (
        f"Training all weights would take about {rounded(cost.seconds)} here, longer than the {rounded(PATIENCE_SECONDS)} "
        f"that a run takes by default; {argument('time')} sets how long it may take."
        if budget is None
        else f"{rounded(budget)} is too short to train these weights further."
    )
    return replace(plan.with_reasons(why), why_none=why)


def _with_one(plan: Plan, option: Option, draft: Draft, facts: Facts) -> Plan:
    """Return the plan of a run with a single attempt: its recipe is that attempt's from the beginning, in its lines, too.

    The size is the exception, which is the attempt's own: the first classifier sees images as large as there is time for.
    """
    why = (
        f"One training, because several would take more than {rounded(PATIENCE_SECONDS)}; a longer {argument('time')} has "
        f"room for more"
        if draft.request.budget_seconds is None
        else "There is time for one training"
    )
    changes = {key: value for key, value in option.changes.items() if key != "image_size"}
    single, cost = _laid_out(_before_measured(draft, facts, changes), facts)
    own = {key: value for key, value in option.changes.items() if key not in changes}
    single = single.with_reasons(f"{why}: {option.name} ({option.reason}).")
    return replace(
        single.only(replace(option, changes=own).attempt(single.recipe)),
        image_seconds=plan.image_seconds,
        cost=replace(cost, seconds=COST[option.name] * cost.seconds),
    )


def _start(draft: Draft, chosen: ChosenNetwork | None) -> tuple[str, Origin, list[str]]:
    """Return what the network begins from, and why; `chosen` is the network, where it was to be chosen."""
    source, model = draft.source, draft.recipe.model
    if draft.from_recipe and model is not None:
        named = f"{model} is trained from scratch, as requested." if draft.request.model else ""
        return model, "recipe", [named or f"The recipe's {model} is trained from scratch."]
    if source is not None and draft.from_name:
        return source, "model", ["No trained weights were given, so training starts from zero."]
    why = [] if draft.chosen is None else list(draft.chosen.lines)
    if source is not None:
        return source, "weights", why
    assert chosen is not None, "no network was chosen"
    return chosen.model, "model", [*why, chosen.why_model]


def _network(draft: Draft, facts: Facts) -> ChosenNetwork:
    """Return the network for the images and the time, at the size that was set, if one was."""
    size = draft.recipe.image_size
    chosen = network.choose_network(_seen(draft, facts), size)
    return chosen if size is None else replace(chosen, why_size=_why_size(draft))


def _seen(draft: Draft, facts: Facts) -> Facts:
    """Return the facts with the images at the size that was set, if one was."""
    size = draft.recipe.image_size
    return facts if size is None else replace(facts, data=replace(facts.data, side=float(size), detail=None))


def _recipe(
    draft: Draft, facts: Facts, chosen: ChosenNetwork | None, option: Mapping[str, object]
) -> tuple[Recipe, list[str]]:
    """Return the recipe with all of the request's changes, and why it is what it is."""
    recipe, reasons = _adapting(draft, facts, option) if draft.automatic else _from_scratch(draft, facts, chosen)
    task = facts.task
    if isinstance(task, DenseTask):
        return _of_regions(draft, facts, task, chosen, recipe)
    fitting = task.objective(recipe.objective.name)
    if recipe.objective.needs_class_images and not task.exclusive:
        raise RecipeError(
            f"objective.class_weights and adjustments of logits are for images of one class each; these {task.labelled}. Leave "
            "the settings out."
        )
    if recipe.method.uses_labels and fitting != recipe.objective.name:
        recipe = recipe.with_changes({"objective.name": fitting})
        reasons = [*reasons, f"Objective: {fitting}, since the images {task.labelled}."]
    return recipe, [*reasons, f"Recipe: {recipe.name} ({recipe.summary()})."]


def _of_regions(
    draft: Draft, facts: Facts, task: DenseTask, chosen: ChosenNetwork | None, recipe: Recipe
) -> tuple[Recipe, list[str]]:
    """Return the recipe by which regions are learned, and why; a named recipe stays as it is but for its loss."""
    why, overridden = [_why_size(draft)], draft.request.overridden
    check_regions(draft.in_full, task, settings=draft.recipe.leaves if draft.recipe_named else overridden)
    if not draft.recipe_named:
        model = None if draft.automatic else draft.source or (recipe.model if chosen is None else chosen.model)
        recipe, why = fit_regions(recipe, facts, task, model=model, overridden=overridden)
    if recipe.method.name == "supervised":
        recipe = recipe.with_changes({"objective.name": task.objective(recipe.objective.name)})
    return recipe, [*why, f"Recipe: {recipe.name} ({recipe.summary()})."]


def _from_scratch(draft: Draft, facts: Facts, chosen: ChosenNetwork | None) -> tuple[Recipe, list[str]]:
    """Return the recipe of a run from random weights, and why; a named recipe stays as it is, the request's changes aside."""
    recipe = draft.recipe
    if draft.recipe_named or chosen is None:
        if draft.views:
            recipe = recipe.with_changes({"augmentation": facts.data.augmentation}).changed(draft.views)
        return recipe, [_why_size(draft)]
    overridden = draft.request.overridden
    recipe, why_mixed = network.fit_recipe(recipe, _seen(draft, facts), chosen, overridden=overridden)
    return recipe.changed(draft.views), [chosen.why_size, *why_mixed]


def _why_size(draft: Draft) -> str:
    if draft.size_set:
        return f"Photos at {draft.recipe.image_size} pixels, as requested."
    if draft.recipe.image_size is not None:
        return f"Photos at {draft.recipe.image_size} pixels, the recipe's."
    return "Photos at the network's own size."


def _adapting(draft: Draft, facts: Facts, option: Mapping[str, object]) -> tuple[Recipe, list[str]]:
    """Return the recipe for trained weights, and why."""
    overridden = draft.request.overridden
    recipe, reasons = choose_recipe(draft, facts, option, several=_may_try_several(draft, facts))
    recipe = recipe.changed(draft.request.changes).with_changes(option)
    if "steps" in option:
        passes = (recipe.steps or 0) * recipe.batch_size / facts.data.images
        reasons.append(
            f"  {recipe.steps} steps of {recipe.batch_size} images, {passes:.0f} passes: as many as in any other training."
        )
    if overridden:
        reasons.append(f"  as requested: {', '.join(f'{key} {value}' for key, value in overridden.items())}.")
    return recipe, reasons
