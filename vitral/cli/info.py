"""`vitral info`: what is this classifier, run, exported file, model, set of weights or recipe?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.cli.console import ConsoleListener, print_json, print_lines
from vitral.cli.models import described_model, described_weights
from vitral.cli.options import Details
from vitral.cli.process import importing
from vitral.cli.runs import listed
from vitral.described import mapping, read_object
from vitral.errors import WeightsError
from vitral.models.costs import COSTS
from vitral.paths import CLASSIFIER, DESCRIPTION, RUN_FILE, is_folder, look_at, nearest_path
from vitral.training.records.overview import read_state, scores_of
from vitral.training.settings.headers import list_headers
from vitral.weights.named.table import rows

NAMED = 6  # classes that are named
# What a classifier says of a photo, by its task.
GIVES = {
    "single-label": "one class a photo",
    "any-right-label": "one class a photo",
    "multi-label": "any number of classes a photo",
    "semantic": "a class for every pixel",
    "instances": "objects with their outlines",
    "boxes": "boxes around objects",
    "panoptic": "a class for every pixel, and objects with their outlines",
}
MACHINE = ("data_fingerprint", "sha256", "best", "progress", "steps", "planned_steps")  # facts for programs alone


def info(name: str, /, *, verbose: Details = False, json: bool = False) -> None:
    """Say what something is: a classifier, a run, an exported file, a model, published weights or a recipe.

    Args:
        name: A classifier or run folder, an exported file or one of weights, or the name of a model, of published weights
            or of a recipe.
        verbose: Show every setting of its network, its preparation of photos and its training.
        json: Print JSON for programs.
    """
    is_there = look_at(name) is not None
    kind, facts = _of_path(Path(name)) if is_there else _of_name(name)
    if json:
        print_json({"what": kind, **facts})
        return
    plain = facts if verbose or not is_there else _summary(facts)
    shown = ((key.replace("_", " "), _text(value)) for key, value in plain.items() if value and key not in MACHINE)
    print_lines(f"{name}: {kind}", *(f"  {key}: {text}" for key, text in shown))
    if plain is not facts:
        print_lines("--verbose shows every setting.")


def _summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user wants to know first of a classifier or a run."""
    size, classes = mapping(facts.get("preprocessing")).get("image_size"), facts.get("classes")
    task = str(facts.get("task") or "")
    scores = scores_of({"scores": facts.get("scores")})
    return {
        "classes": f"{len(classes):,} ({_text(classes)})" if isinstance(classes, list) else "",
        "gives": GIVES.get(task, task),
        "photos": f"seen at {' x '.join(map(str, size))} pixels" if isinstance(size, list | tuple) else "",
        "started from": facts.get("source"),
        "trained on": mapping(facts.get("training")).get("data") or facts.get("data"),
        **{split: score.text() for split, score in scores.items()},
        **{key: facts.get(key) for key in ("notes", "state", "changed", "next")},
    }


def _of_path(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what a folder or a file is, and what is known of it.

    Raises:
        WeightsError: It is neither a classifier nor a run, nor anything that a classifier is read from.
    """
    if not is_folder(path):
        return _loaded(path)
    run = dataclasses.asdict(listed(read_state(path))) if (path / RUN_FILE).is_file() else {}
    folder = next((each for each in (path, path / CLASSIFIER) if (each / DESCRIPTION).is_file()), None)
    if folder is None and not run:
        with importing():
            from vitral.classifier.load import holds_classifier
        if holds_classifier(path):
            return _loaded(path)
        raise WeightsError(f"'{path}' is neither a classifier folder nor a run folder; 'vitral runs' lists the runs.")
    return "run" if run else "classifier", {**({} if folder is None else _of_classifier(folder)), **run}


def _of_classifier(folder: Path) -> dict[str, Any]:
    description = read_object(folder / DESCRIPTION)
    known = mapping(description.get("provenance"))
    return {
        "classes": description.get("class_names", []),
        "task": description.get("task"),
        "network": description.get("architecture", {}),
        "preprocessing": description.get("preprocessing", {}),
        "source": known.get("source"),
        "training": known.get("training", {}),
        "scores": known.get("scores", {}),
        "notes": known.get("notes", []),
    }


def _loaded(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what a file of weights or an exported one is, or a folder of such, and what is known of it.

    Raises:
        WeightsError: It cannot be read.
    """
    with importing():
        from vitral.classifier.load import load
        from vitral.inference.exported.predictor import ExportedPredictor

    with ConsoleListener() as listener:
        classifier = load(path, listener=listener)
    predictor = classifier.predictor
    facts: dict[str, Any] = {
        "classes": list(classifier.class_names),
        "task": classifier.task.name,
        "network": predictor.describe(),
        "parameters": predictor.num_parameters,
        "preprocessing": classifier.preprocessing.to_json(),
        **dataclasses.asdict(classifier.provenance),
    }
    if not isinstance(predictor, ExportedPredictor):
        return "weights", facts
    return "exported file", {**facts, "outputs": [port.name for port in predictor.graph.outputs]}


def _of_name(name: str) -> tuple[str, dict[str, Any]]:
    """Return what a name is, and what is known of it.

    Raises:
        WeightsError: Nothing has that name.
    """
    recipes = {header.name: header for header in list_headers()}
    weights = {row.name: row for row in rows().values()}
    if name in COSTS:
        return "model", described_model(name, COSTS[name])
    if name in weights:
        return "published weights", described_weights(weights[name])
    if name in recipes:
        return "recipe", dataclasses.asdict(recipes[name])
    hint = nearest_path(name, [*COSTS, *weights, *recipes])
    raise WeightsError(f"Nothing is called '{name}': no folder, model, published weights or recipe.{hint}")


def _text(value: object) -> str:
    """Return a fact for people: of many names the first, of figures each with its name."""
    if isinstance(value, Mapping):
        plain = [key for key, each in value.items() if each is not None and not isinstance(each, dict | list | tuple)]
        return ", ".join(f"{key} {_text(value[key])}" for key in plain if key not in MACHINE)
    if isinstance(value, list | tuple):
        more = f" and {len(value) - NAMED} more" if len(value) > NAMED else ""
        return ", ".join(map(_text, value[:NAMED])) + more
    return f"{value:.4g}" if isinstance(value, float) else str(value)
