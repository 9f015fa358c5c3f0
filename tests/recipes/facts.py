"""The ledger: what the source of each recipe says of each setting, read from the tables in tests/recipes/ledger/.

A file of the ledger holds one family of recipes:

    [source]             short names of papers' tables and repositories' files
    [rows.NAME]          facts that several recipes share: setting = [value, "SOURCE: how it is read there"]
    [recipe.NAME]        a recipe: `of`, the rows that it shares, later ones over earlier; then facts of its own
    [table.NAME]         recipes in columns: `of`, `columns`, their `source`, `sources` of columns from elsewhere, and
                         `recipes.NAME = [values]`

A setting is a dotted key of a recipe; "none" stands for None, and "= 475 / (475 + 32)" for what it gives. What the source
leaves open has "ours: REASON" in the place of its source. Besides the settings a fact may give `expected`, which the header's
Expected must quote, and `run_time` likewise.
"""

import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitral.images.augment import Augmentation
from vitral.training.settings.recipe import Recipe

FOLDER = Path(__file__).parent / "ledger"
HEADER = ("expected", "run_time")
WITHOUT_MEANING = ("name", "schedule.bends")  # what a recipe is called; what became of a run
SOURCE = re.compile(r"\(arXiv \d{4}\.\d{5}\)|^[\w-]+/[\w-]+( [\d.]+)?, ")
ROUNDING = 1.2e-6  # recipes write thirds and logarithms with six digits


@dataclass(frozen=True)
class Fact:
    """A value and where it is from."""

    value: object
    source: str

    @property
    def ours(self) -> bool:
        return self.source.startswith("ours: ")


@dataclass
class Ledger:
    """All facts by recipe, and what is wrong with the tables themselves."""

    recipes: dict[str, dict[str, Fact]] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)


def read_ledger(folder: Path = FOLDER) -> Ledger:
    """Return the ledger, `common.toml` first, whose rows and sources all files share."""
    ledger = Ledger()
    common = tomllib.loads((folder / "common.toml").read_text())
    used: set[str] = set()
    for path in sorted(set(folder.glob("*.toml")) - {folder / "common.toml"}):
        tree = tomllib.loads(path.read_text())
        rows = {name: dict(_facts(row)) for name, row in (common["rows"] | tree.get("rows", {})).items()}
        _Family(path.stem, common["source"] | tree.get("source", {}), rows, used, ledger).read(tree)
    for name in set(common["rows"]) - used:
        ledger.mistakes.append(f"common: the rows '{name}' belong to no recipe")
    return ledger


@dataclass
class _Family:
    name: str
    sources: dict[str, str]
    rows: dict[str, dict[str, Fact]]
    used: set[str]
    ledger: Ledger
    cited: set[str] = field(default_factory=set)

    def read(self, tree: dict[str, Any]) -> None:
        for name, recipe in tree.get("recipe", {}).items():
            self._add(name, recipe.pop("of", []), dict(_facts(recipe)))
        for table in tree.get("table", {}).values():
            for name, values in table["recipes"].items():
                cells = dict(zip(table["columns"], values, strict=True))
                sources = dict.fromkeys(cells, table["source"]) | table.get("sources", {})
                self._add(
                    name, table["of"], {key: Fact(_computed(value), sources[key]) for key, value in cells.items()}
                )
        for name in set(tree.get("rows", {})) - self.used:
            self._mistake(f"the rows '{name}' belong to no recipe")
        for name, text in tree.get("source", {}).items():
            if name not in self.cited:
                self._mistake(f"nothing is from the source '{name}'")
            if not SOURCE.search(text):
                self._mistake(f"the source '{name}' is neither a paper on arXiv nor a place in a repository")

    def _add(self, name: str, of: list[str], own: dict[str, Fact]) -> None:
        facts: dict[str, Fact] = {}
        for row in of:
            facts |= self.rows[row]
            self.used.add(row)
        if name in self.ledger.recipes:
            self._mistake(f"'{name}' stands here twice")
        self.ledger.recipes[name] = facts | own
        for key, fact in self.ledger.recipes[name].items():
            self._check(f"{name}, {key}", fact)

    def _check(self, place: str, fact: Fact) -> None:
        if fact.ours:
            if len(fact.source.split()) < 3:
                self._mistake(f"{place}: ours, but why?")
            return
        name = fact.source.partition(":")[0]
        self.cited.add(name)
        if name not in self.sources:
            self._mistake(f"{place}: '{fact.source}' begins with none of the sources {', '.join(self.sources)}")

    def _mistake(self, text: str) -> None:
        self.ledger.mistakes.append(f"{self.name}: {text}")


def _facts(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Fact]]:
    for name, entry in tree.items():
        if isinstance(entry, dict):
            yield from _facts(entry, f"{prefix}{name}.")
        else:
            value, source = entry
            yield f"{prefix}{name}", Fact(_computed(value), source)


def _computed(value: object) -> object:
    """Return a value, and of "= 5e-4 * 1024 / 512" its result, so that a row shows how its source gives it."""
    if isinstance(value, list):
        return [_computed(one) for one in value]
    if isinstance(value, str) and value.startswith("= "):
        return float(eval(value[2:], {"__builtins__": {}}, {"log": math.log}))
    return value


def settings(recipe: Recipe) -> dict[str, object]:
    """Return every setting of a recipe by its dotted key, None as "none"."""
    found = dict(_leaves(recipe.model_dump(mode="json")))
    return {key: value for key, value in found.items() if key not in WITHOUT_MEANING}


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "none" if value is None else value


def idle(values: dict[str, object]) -> set[str]:
    """Return the settings that do nothing in a recipe, for another setting passes them over."""
    optimizer, schedule = values["optimizer.name"], values["schedule.decay"]
    policy, crop = values.get("augmentation.policy"), values.get("augmentation.crop")
    needed = {
        "optimizer.betas": optimizer != "sgd",
        "optimizer.eps": optimizer in ("adam", "adamw", "lamb", "muon"),
        "optimizer.momentum": optimizer in ("sgd", "muon"),
        "optimizer.nesterov": optimizer in ("sgd", "muon"),
        "optimizer.ns_steps": optimizer == "muon",
        "optimizer.momentum_dtype": optimizer in ("sgd", "adam", "adamw"),
        "optimizer.factored_from": optimizer == "adafactor",
        "optimizer.decay_on": values["optimizer.weight_decay"] != 0,
        "optimizer.sam_images": values["optimizer.sam_rho"] != "none",
        "schedule.timescale": schedule == "rsqrt",
        "schedule.milestones": schedule == "steps",
        "schedule.final_lr": schedule in ("cosine", "linear", "poly"),
        "schedule.warmup_steps": values["schedule.warmup_epochs"] == "none",
        "schedule.warmup_epochs": values["schedule.warmup_epochs"] != "none",
        "schedule.cooldown_steps": values["schedule.cooldown_epochs"] == "none",
        "schedule.cooldown_epochs": values["schedule.cooldown_epochs"] != "none",
        "schedule.curve_from": schedule in ("cosine", "linear", "poly"),
        "schedule.hold_steps": values["schedule.hold_epochs"] == "none",
        "schedule.hold_epochs": values["schedule.hold_epochs"] != "none",
        "objective.binary_targets": values["objective.name"] == "sigmoid",
        "objective.mean_over_classes": values["objective.name"] == "sigmoid",
        "objective.class_weights": values["objective.name"] == "softmax",
        "objective.logit_adjustment": values["objective.name"] == "softmax",
        "objective.name": values["method.name"] in ("supervised", "distillation"),
        "method.temperature": values.get("method.answers") == "soft",
        "method.name": values["method.name"] != "supervised",
        "steps": values["epochs"] == "none",
        "epochs": values["steps"] == "none",
        "adaptation.lora_rank": values["adaptation.method"] == "lora",
        "adaptation.lora_alpha": values["adaptation.method"] == "lora",
        "augmentation.min_area": crop in ("inception", "resized"),
        "augmentation.margin": crop in ("square", "centre"),
        "augmentation.padding": crop == "padded",
        "augmentation.border": crop == "padded",
        "augmentation.scales": crop in ("scale-jitter", "squash-jitter"),
        "augmentation.operations": policy in RANDOM_POLICIES,
        "augmentation.magnitude": policy in RANDOM_POLICIES,
        "augmentation.magnitude_std": policy == "timm-randaugment",
        "preprocessing.antialias": values["preprocessing.resampler"] not in ("pillow", "torch"),
    }
    return {key for key, does in needed.items() if key in values and not does}


RANDOM_POLICIES = ("timm-randaugment", "big-vision-randaugment")


def defaults(recipe: Recipe) -> dict[str, object]:
    """Return the settings of a recipe that says nothing, with the sections that this one has."""
    augmentation = None if recipe.augmentation is None else Augmentation()
    teacher = getattr(recipe.method, "teacher", None)
    required = {} if teacher is None else {"teacher": teacher}
    method = type(recipe.method)(name=recipe.method.name, **required)
    return settings(Recipe(augmentation=augmentation, method=method)) | {"method.name": "supervised"}


def differences(recipe: Recipe, facts: dict[str, Fact]) -> list[str]:
    """Return in words where a recipe and its facts disagree."""
    values, unsaid = settings(recipe), defaults(recipe)
    without_effect = idle(values)
    known = {*settings(Recipe()), *settings(Recipe(augmentation=Augmentation())), *values, *HEADER}
    found = [f"{key} is no setting of a recipe" for key in facts if key not in known]
    for key, value in values.items():
        if key in without_effect:
            if value != unsaid[key]:
                found.append(f"{key} = {value} does nothing here; leave it out")
        elif key not in facts:
            found.append(f"{key} = {value} is not in the ledger")
        elif not same(value, facts[key].value):
            found.append(f"{key} = {value}, but {facts[key].value} in {facts[key].source}")
    return found


def same(one: object, other: object) -> bool:
    """Return whether two values are one, but for the rounding of numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return not isinstance(other, bool) and abs(one - other) <= ROUNDING * abs(other)
    return type(one) is type(other) and one == other
