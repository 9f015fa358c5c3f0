"""Every recipe means what its source means: each setting against the ledger, a table of facts with their sources."""

from importlib import resources
from pathlib import Path

import pytest

from tests.cases import every_case
from tests.recipes.facts import HEADER, Fact, differences, idle, read_ledger, settings
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import load_recipe

LEDGER = read_ledger()


def test_every_recipe_has_its_place_in_the_ledger_and_every_entry_its_recipe() -> None:
    assert set(list_recipes()) == set(LEDGER.recipes)


def test_every_fact_has_a_source_or_says_why_it_is_ours() -> None:
    assert LEDGER.mistakes == []


@every_case("name", sorted(LEDGER.recipes))
def test_every_setting_is_what_its_source_says(name: str) -> None:
    assert differences(load_recipe(name), LEDGER.recipes[name]) == []


@every_case("name", sorted(LEDGER.recipes))
def test_the_header_quotes_the_sources_result_and_run_time(name: str) -> None:
    text = (resources.files("vitral.recipes") / f"{name}.toml").read_text()
    for fact, label in zip(HEADER, ("Expected", "Run time"), strict=True):
        if fact in LEDGER.recipes[name]:
            line = next(line for line in text.splitlines() if line.startswith(f"# {label}"))
            assert str(LEDGER.recipes[name][fact].value) in line


@every_case("name", ["deit-b16", "vmoe-s32-last2-imagenet", "bit-hyperrule-large", "vit-giant14-jft3b"])
def test_no_setting_of_a_recipe_can_drift_from_its_fact(name: str) -> None:
    recipe, facts = load_recipe(name), LEDGER.recipes[name]
    active = set(settings(recipe)) - idle(settings(recipe))
    assert len(active) > 50
    for key in active:
        unknown = {other: fact for other, fact in facts.items() if other != key}
        assert differences(recipe, unknown) == [f"{key} = {settings(recipe)[key]} is not in the ledger"]
        drifted = facts | {key: Fact(_other(facts[key].value), facts[key].source)}
        assert [found.split(" = ")[0] for found in differences(recipe, drifted)] == [key]


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 1.01 + 1e-12
    return [*value, 0.5] if isinstance(value, list) else f"not {value}"


def test_a_setting_that_does_nothing_must_not_stand_in_a_recipe() -> None:
    recipe = load_recipe("vit-b16-jft300m", ["augmentation.magnitude=12.0"])
    expected = ["augmentation.magnitude = 12.0 does nothing here; leave it out"]
    assert differences(recipe, LEDGER.recipes["vit-b16-jft300m"]) == expected


def test_a_fact_must_be_of_a_setting() -> None:
    facts = LEDGER.recipes["deit-b16"] | {"optimizer.learning_rate": Fact(1e-3, "Table-9: a slip")}
    assert differences(load_recipe("deit-b16"), facts) == ["optimizer.learning_rate is no setting of a recipe"]


def test_a_row_may_show_how_its_source_gives_a_number(tmp_path: Path) -> None:
    (tmp_path / "common.toml").write_text(COMMON)
    rows = 'a = ["= -log(18291)", "Paper"]\nb = [["= 30 / 90", 1], "Paper"]\nc = ["none", "Paper"]'
    (tmp_path / "family.toml").write_text(f'[recipe.one]\nof = ["shared"]\n{rows}\n')
    facts = read_ledger(tmp_path).recipes["one"]
    assert facts["a"].value == pytest.approx(-9.814164, abs=1e-6)
    assert facts["b"].value == [1 / 3, 1]
    assert facts["c"].value == "none"


COMMON = """
[source]
Paper = "a paper (arXiv 2010.11929), Table 3"
[rows.shared]
seed = [0, "ours: any would do"]
"""


@every_case(
    ("family", "mistake"),
    [
        ('seed = [1, "somewhere"]', "family: one, seed: 'somewhere' begins with none of the sources Paper"),
        ('seed = [1, "ours: so"]', "family: one, seed: ours, but why?"),
        ('seed = [1, "Paper"]\n[rows.idle]\nseed = [2, "Paper"]', "family: the rows 'idle' belong to no recipe"),
        ('seed = [1, "Paper"]\n[source]\nmain = "a/b, main.py"', "family: nothing is from the source 'main'"),
        (
            'seed = [1, "hearsay"]\n[source]\nhearsay = "a friend"',
            "family: the source 'hearsay' is neither a paper on arXiv nor a place in a repository",
        ),
        (
            'seed = [1, "Paper"]\n[table.t]\nof = []\nsource = "Paper"\ncolumns = ["seed"]\nrecipes.one = [1]',
            "family: 'one' stands here twice",
        ),
    ],
)
def test_a_fact_without_a_source_is_a_mistake(tmp_path: Path, family: str, mistake: str) -> None:
    (tmp_path / "common.toml").write_text(COMMON)
    (tmp_path / "family.toml").write_text(f'[recipe.one]\nof = ["shared"]\n{family}\n')
    assert read_ledger(tmp_path).mistakes == [mistake]
