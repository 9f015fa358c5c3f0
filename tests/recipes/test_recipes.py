"""The recipes that come with Vitral: their headers against the command line, their networks, their lengths.

What each setting is, test_ledger.py holds against its source.
"""

import shlex
from importlib import resources

import torch

from tests.cases import every_case
from vitral.cli.main import app
from vitral.models.catalog import VARIANTS
from vitral.models.families import build
from vitral.training.choose.layout import fit_length
from vitral.training.optimization.optimizers import build_optimizer
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import load_recipe, network_config

HEADER = ("Command", "Expected", "Run time", "Source")
# Images to train on (paper section 4.1; ImageNet's 1 % held out while settings are chosen), and updates of a whole run.
IMAGENET, IMAGENET_DEV, JFT = 1_281_167, 1_268_355, 303_000_000


def text(name: str) -> str:
    return (resources.files("vitral.recipes") / f"{name}.toml").read_text()


def header(name: str) -> dict[str, str]:
    """Return the labelled lines of a recipe's comment, in their order."""
    comment = text(name).split("\n#\n", 1)[1]
    lines = [line for line in comment.splitlines() if line.startswith("# ")]
    return {line[2:12].strip(): line[12:] for line in lines}


@every_case("name", list_recipes())
def test_a_file_is_called_what_it_is(name: str) -> None:
    assert load_recipe(name).name == name
    model = load_recipe(name).model
    assert model is None or model in VARIANTS


@every_case("name", list_recipes())
def test_the_header_has_its_four_lines_and_a_command_that_parses(name: str) -> None:
    assert text(name).startswith("# ")
    lines = header(name)
    assert tuple(lines)[:4] == HEADER
    assert all(lines[label].strip() for label in HEADER)
    program, *tokens = shlex.split(lines["Command"])
    assert program == "vitral"
    function, arguments, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    assert function.__name__ == tokens[0]
    given = arguments.arguments
    options = given.get("options")
    asked = given.get("recipe") if options is None else options.recipe
    # The defaults are what a command takes when no recipe is named.
    assert asked == name or (asked is None and name in ("finetune", "finetune-paper", "scratch", "pretrain", "distill"))


@every_case("name", [name for name in list_recipes() if load_recipe(name).model])
def test_every_network_of_a_recipe_can_be_made(name: str) -> None:
    recipe = load_recipe(name)
    with torch.device("meta"):
        config = network_config(recipe, num_classes=1000)
        network = build(config, seed=None)
        build_optimizer(network, network, recipe.optimizer)
    assert network.num_classes == 1000
    assert config.head_bias == recipe.objective.head_bias


@every_case(
    ("name", "images", "steps"),
    [
        ("vit-b16-imagenet", IMAGENET, 93_835),
        ("vit-b16-imagenet", IMAGENET_DEV, 92_897),
        ("vit-b16-jft300m", JFT, 517_822),
        ("vit-h14-jft300m", JFT, 1_035_645),
    ],
)
def test_on_the_papers_data_a_recipe_keeps_its_batch_and_warm_up(name: str, images: int, steps: int) -> None:
    fitted, _ = fit_length(load_recipe(name), images)
    assert (fitted.steps, fitted.batch_size, fitted.schedule.warmup_steps) == (steps, 4096, 10_000)


def test_no_clipping_survives_being_written() -> None:
    assert load_recipe("vit-b16-jft300m").optimizer.clip_norm is None
    assert 'clip_norm = "none"' in load_recipe("vit-b16-jft300m").to_toml()
    assert load_recipe("vit-b16-imagenet", ["optimizer.clip_norm=none"]).optimizer.clip_norm is None
