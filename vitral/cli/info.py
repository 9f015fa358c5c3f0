"""`vitral info`: what is this classifier, run, model, set of weights or recipe?"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.cli.console import print_json, print_lines
from vitral.cli.models import described_model, described_weights
from vitral.cli.options import Details
from vitral.cli.runs import listed
from vitral.described import mapping, read_object
from vitral.errors import WeightsError
from vitral.models.costs import COSTS
from vitral.paths import CLASSIFIER, DESCRIPTION, RUN_FILE, nearest_path
from vitral.training.records.overview import read_state, scores_of
from vitral.training.settings.headers import list_headers
from vitral.weights.named.table import rows

NAMED = 6  # classes that are named
MACHINE = ("data_fingerprint", "sha256", "best", "progress", "steps", "planned_steps")  # facts for programs alone


def info(name: str, /, *, verbose: Details = False, json: bool = False) -> None:
    """Say what something is: a classifier folder, a run, a model, published weights or a recipe.

    Args:
        name: A classifier or run folder, or the name of a model, of published weights or of a recipe.
        verbose: Show every setting of its network, its preparation of photos and its training.
        json: Print JSON for programs.
    """
    kind, facts = _of_folder(Path(name)) if Path(name).is_dir() else _of_name(name)
    if json:
        print_json({"what": kind, **facts})
        return
    plain = facts if verbose or not Path(name).is_dir() else _summary(facts)
    shown = ((key.replace("_", " "), _text(value)) for key, value in plain.items() if value and key not in MACHINE)
    print_lines(f"{name}: {kind}", *(f"  {key}: {text}" for key, text in shown))
    if plain is not facts:
        print_lines("--verbose shows every setting.")


def _summary(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a user wants to know first of a classifier or a run."""
    size, classes = mapping(facts.get("preprocessing")).get("image_size"), facts.get("classes")
    scores = scores_of({"scores": facts.get("scores")})
    return {
        "classes": f"{len(classes):,} ({_text(classes)})" if isinstance(classes, list) else "",
        "photos": f"seen at {' x '.join(map(str, size))} pixels" if isinstance(size, list) else "",
        "started from": facts.get("source"),
        "trained on": mapping(facts.get("training")).get("data") or facts.get("data"),
        **{split: score.text() for split, score in scores.items()},
        **{key: facts.get(key) for key in ("notes", "state", "changed", "next")},
    }


def _of_folder(path: Path) -> tuple[str, dict[str, Any]]:
    """Return what a folder is, and what is known of it.

    Raises:
        WeightsError: It is neither a classifier nor a run.
    """
    run = dataclasses.asdict(listed(read_state(path))) if (path / RUN_FILE).is_file() else {}
    folder = next((each for each in (path, path / CLASSIFIER) if (each / DESCRIPTION).is_file()), None)
    if folder is None and not run:
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
