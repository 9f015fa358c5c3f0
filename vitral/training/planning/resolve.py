"""From a request and the facts to the plan: a pure function, which reads nothing and builds nothing."""

from collections.abc import Mapping
from dataclasses import replace

from vitral.advice import argument
from vitral.training.planning import from_scratch
from vitral.training.planning.attempts import COST, Attempt, finer_size, plan_attempts
from vitral.training.planning.automatic import (
    PATIENCE_SECONDS,
    Situation,
    choose_recipe,
    fitting_size,
    only_method,
    situation_of,
)
from vitral.training.planning.cost import Cost, fit_machine
from vitral.training.planning.durations import rounded
from vitral.training.planning.facts import Facts, Measured, WeightsFacts
from vitral.training.planning.length import fit_length
from vitral.training.planning.plan import Origin, Plan
from vitral.training.planning.request import Request
from vitral.training.settings.recipe import Recipe

USUAL_SECONDS = 10.0  # that a command takes until its data are read, in what is measured of whole commands
UNJUDGED = "Nothing is to be trained, for there are no validation images to tell whether that would be better."
TRIED = "Tried one after the other from the same start, the best by the validation images kept:"


def resolve(request: Request, facts: Facts) -> Plan:
    """Decide everything of a run: network, recipe, length and layout, each with its reason.

    Called again with what the network was measured to take, it decides the same, and the layout and the cost with it.

    Args:
        request: what was asked for.
        facts: data, weights and machine as they are.

    Raises:
        RecipeError: a value that was said does not go with what was chosen, or without a time budget the run would take years.
    """
    plan = _before_measured(request, facts)
    return plan if facts.measured is None else _with_cost(plan, request, facts, facts.measured)


def _before_measured(request: Request, facts: Facts, way: Mapping[str, object] | None = None) -> Plan:
    """Return the plan as far as it does not depend on what the network was measured to take.

    Args:
        request: what was asked for.
        facts: data, weights and machine as they are.
        way: what the one way to learn changes in the recipe; no line speaks of what it replaces.
    """
    network = _network(request, facts) if needs_network(request) else None
    start, origin, reasons = _start(request, network)
    recipe, why = _recipe(request, facts, network, way or {})
    images, processes = facts.data.an_epoch, facts.machine.processes
    recipe, why_length = fit_length(recipe, images, processes, settled=request.settled)
    return Plan(
        start=start,
        origin=origin,
        recipe=recipe,
        augmentation=recipe.augmentation or facts.data.augmentation,
        reasons=(*reasons, *why, *why_length),
    )


def _with_cost(plan: Plan, request: Request, facts: Facts, measured: Measured) -> Plan:
    """Return a plan with its layout on the machine, what is tried in the time that there is, and what that costs."""
    budget = request.asked.budget_seconds
    plan, cost = _laid_out(replace(plan, from_probe=request.automatic), facts, measured, budget)
    if request.asked.quick:
        return plan
    if _judges_nothing(request, facts):
        return replace(plan, why_none=UNJUDGED, reasons=(*plan.reasons, UNJUDGED))
    if _tries_several(request, facts):
        plan = _with_attempts(plan, request, facts, measured, cost)
    assert plan.cost is not None, "what training costs was just told"
    said = [] if plan.why_none else [plan.cost.sentence(budget, facts.data.reading_seconds)]
    return replace(plan, reasons=(*plan.reasons, *said))


def _judges_nothing(request: Request, facts: Facts) -> bool:
    """Tell whether a run that has a first classifier, see `Run.why_no_first`, has no images to compare a trained network by."""
    asked, data, method = request.asked, facts.data, request.in_full.method
    unnamed = asked.kind == "fine-tune" and not (request.recipe_named or request.begun)
    return unnamed and asked.baselines and data.task.closed_form and method.uses_labels and not data.judged


def _laid_out(plan: Plan, facts: Facts, measured: Measured, budget_seconds: float | None) -> tuple[Plan, Cost]:
    recipe, cost, why = fit_machine(plan.recipe, measured, facts.machine, budget_seconds)
    return replace(plan, recipe=recipe, cost=cost, reasons=(*plan.reasons, *why)), cost


def _with_attempts(plan: Plan, request: Request, facts: Facts, measured: Measured, cost: Cost) -> Plan:
    situation, weights, finer = _of_weights(request, facts), _weights(facts), None
    if not _size_said(request):
        finer = finer_size(situation, weights.config, plan.recipe, cost, facts.machine.usable_bytes)
    attempts = request.begun or plan_attempts(
        situation, weights, plan.recipe, cost.images_per_second, finer=finer, told=request.told
    )
    if not attempts:
        why = _why_none(request.asked.budget_seconds, cost)
        return replace(plan, why_none=why, reasons=(*plan.reasons, why))
    if len(attempts) == 1:
        return _with_one(attempts[0], request, facts, measured)
    lines = (TRIED, *(attempt.line() for attempt in attempts))
    return replace(
        plan,
        attempts=attempts,
        cost=replace(cost, seconds=sum(COST[attempt.name] for attempt in attempts) * cost.seconds),
        from_probe=True,
        reasons=(*plan.reasons, *lines),
    )


def _why_none(budget_seconds: float | None, cost: Cost) -> str:
    if budget_seconds is not None:
        return f"Too few updates could be made in {rounded(budget_seconds)} to learn anything."
    return (
        f"All weights would learn for about {rounded(cost.seconds)} here, which is longer than the {rounded(PATIENCE_SECONDS)} "
        f"that a run takes unasked: {argument('time')} says how long it may take."
    )


def _with_one(attempt: Attempt, request: Request, facts: Facts, measured: Measured) -> Plan:
    """Return the plan of a run that learns in one way: it is that way's from the beginning, in its lines, too."""
    budget = request.asked.budget_seconds
    plan, cost = _laid_out(_before_measured(request, facts, attempt.changes), facts, measured, budget)
    return replace(
        plan,
        cost=replace(cost, seconds=COST[attempt.name] * cost.seconds),
        from_probe=attempt.from_probe,
        reasons=(*plan.reasons, _why_one(attempt, budget)),
    )


def _why_one(attempt: Attempt, budget_seconds: float | None) -> str:
    one = f"{attempt.name} ({attempt.reason})"
    if budget_seconds is not None:
        return f"There is time for one way to learn: {one}."
    patience = rounded(PATIENCE_SECONDS)
    why = f"for several would train for more than {patience}; with {argument('time')} more are tried where it has room for them"
    return f"One way to learn is tried, {why}: {one}."


def _tries_several(request: Request, facts: Facts) -> bool:
    """Tell whether several ways to learn may be tried: the data and, without a budget, patience leave more than one."""
    if not request.several or facts.weights is None or not facts.data.task.closed_form:
        return False
    situation = _of_weights(request, facts)
    return bool(request.begun) or only_method(situation) is None


def needs_side(request: Request) -> bool:
    """Tell whether the images' size decides anything: only then they are looked at."""
    return request.automatic or needs_network(request)


def needs_network(request: Request) -> bool:
    """Tell whether the network is to be chosen: neither weights nor a network nor a recipe that has one were named."""
    return request.source is None and not request.from_recipe


def _start(request: Request, network: from_scratch.Choice | None) -> tuple[str, Origin, list[str]]:
    """Return what the network begins from, and why; `network` is the one that was chosen, where it was to be."""
    source, model = request.source, request.recipe.model
    if request.from_recipe and model is not None:
        named = f"{model} learns from scratch, as you said." if request.asked.model else ""
        return model, "recipe", [named or f"The recipe's {model} learns from scratch."]
    if source is not None and request.from_name:
        return source, "model", ["No trained weights were given, so the network learns from scratch."]
    why = [] if request.start is None else list(request.start.lines)
    if source is not None:
        return source, "weights", why
    assert network is not None, "no network was chosen"
    return network.model, "model", [*why, network.why_model]


def _network(request: Request, facts: Facts) -> from_scratch.Choice:
    """Return the network for the images and the time, at the size that was said, if one was."""
    said = request.recipe.image_size
    choice = from_scratch.choose_network(_situation(request, facts), said)
    return choice if said is None else replace(choice, why_size=_why_size(request))


def _situation(request: Request, facts: Facts) -> from_scratch.Situation:
    size = request.recipe.image_size
    data = facts.data if size is None else replace(facts.data, side=float(size), detail=None)
    return from_scratch.situation_of(data, facts.machine, _seconds(request, facts))


def _from_scratch(request: Request, facts: Facts, network: from_scratch.Choice | None) -> tuple[Recipe, list[str]]:
    """Return the recipe of a run from random weights, and why; one that was named stays as it is, what was said aside."""
    recipe, augmentation = request.recipe, facts.data.augmentation
    if request.recipe_named or network is None:
        if request.views_said:
            recipe = recipe.with_changes({"augmentation": augmentation}).changed(request.views_said)
        return recipe, [_why_size(request)]
    situation = _situation(request, facts)
    recipe = from_scratch.fit_recipe(recipe, situation, network, augmentation, told=request.told)
    recipe = recipe.changed(request.views_said)
    return recipe, [network.why_size, *from_scratch.why_mixed(recipe, request.told)]


def _recipe(
    request: Request, facts: Facts, network: from_scratch.Choice | None, way: Mapping[str, object]
) -> tuple[Recipe, list[str]]:
    """Return the recipe with everything that was said of it, and why it is what it is."""
    recipe, reasons = _chosen(request, facts, way) if request.automatic else _from_scratch(request, facts, network)
    task = facts.data.task
    fitting = task.objective(recipe.objective.name)
    if recipe.method.uses_labels and fitting != recipe.objective.name:
        recipe = recipe.with_changes({"objective.name": fitting})
        reasons = [*reasons, f"Objective: {fitting}, since the images {task.labelled}."]
    return recipe, [*reasons, f"Recipe: {recipe.name} ({recipe.summary()})."]


def _size_said(request: Request) -> bool:
    return request.asked.image_size is not None or "image_size" in request.told


def _why_size(request: Request) -> str:
    if _size_said(request):
        return f"Images at {request.recipe.image_size} pixels, as you said."
    if request.recipe.image_size is not None:
        return f"Images at {request.recipe.image_size} pixels, the recipe's."
    return "Images at the network's own size."


def _chosen(request: Request, facts: Facts, way: Mapping[str, object]) -> tuple[Recipe, list[str]]:
    situation, told = _of_weights(request, facts), request.told
    recipe, reasons = choose_recipe(
        situation,
        facts.data.augmentation,
        request.recipe,
        said=request.in_full,
        told={*told, *way},
        several=_tries_several(request, facts),
    )
    size = fitting_size(_weights(facts).config, recipe.image_size or situation.own_size)
    recipe = recipe.with_changes({"image_size": size}).changed(request.said).with_changes(way)
    if "steps" in way:
        passes = (recipe.steps or 0) * recipe.batch_size / situation.images
        reasons.append(
            f"  {recipe.steps} steps of {recipe.batch_size} images, {passes:.0f} passes: as many as any other way."
        )
    as_said = [f"  as you said: {', '.join(f'{key} {value}' for key, value in told.items())}."] if told else []
    return recipe, [*reasons, *as_said]


def _weights(facts: Facts) -> WeightsFacts:
    assert facts.weights is not None, "the weights were not looked at"
    return facts.weights


def _seconds(request: Request, facts: Facts) -> float | None:
    """Return what the command may take, less what reading the data took beyond what is usual; None for as long as it needs."""
    budget = request.asked.budget_seconds
    return None if budget is None else budget - max(facts.data.reading_seconds - USUAL_SECONDS, 0.0)


def _of_weights(request: Request, facts: Facts) -> Situation:
    return situation_of(facts.data, _weights(facts), facts.machine, _seconds(request, facts))
