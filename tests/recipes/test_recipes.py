"""The recipes that come with Vitral: their headers against the command line and the paper's results, their settings whole."""

import shlex
from importlib import resources

import pytest
import torch

from vitral.cli.main import app
from vitral.models.catalog import VARIANTS, build
from vitral.training.length import fit_length
from vitral.training.network import network_config
from vitral.training.optimizers import build_optimizer
from vitral.training.recipe import Recipe, list_recipes, load_recipe

HEADER = ("Command", "Expected", "Run time", "Source")
# Table 3: model, epochs, base learning rate, weight decay, dropout; then what the header must quote: ImageNet in Table 6
# (JFT-300M) or Table 5, and the TPUv3-core-days of Table 2. Two names share a row that prints two lengths.
TABLE_3 = {
    "vit-b16-jft300m": ("vit-b16", 7, 8e-4, 0.1, 0.0, "84.15", None),
    "vit-b32-jft300m": ("vit-b32", 7, 8e-4, 0.1, 0.0, "80.73", None),
    "vit-l32-jft300m": ("vit-l32", 7, 6e-4, 0.1, 0.0, "84.37", None),
    "vit-l16-jft300m-7ep": ("vit-l16", 7, 4e-4, 0.1, 0.0, "86.30", None),
    "vit-l16-jft300m": ("vit-l16", 14, 4e-4, 0.1, 0.0, "87.12", "680"),
    "vit-h14-jft300m": ("vit-h14", 14, 3e-4, 0.1, 0.0, "88.08", "2,500"),
    "r50x1-jft300m": ("bit-r50x1", 7, 1e-3, 0.1, 0.0, "77.54", None),
    "r50x2-jft300m": ("bit-r50x2", 7, 1e-3, 0.1, 0.0, "82.12", None),
    "r101x1-jft300m": ("bit-r101x1", 7, 8e-4, 0.1, 0.0, "80.67", None),
    "r152x1-jft300m": ("bit-r152x1", 7, 6e-4, 0.1, 0.0, "81.88", None),
    "r152x2-jft300m": ("bit-r152x2", 7, 6e-4, 0.1, 0.0, "84.97", None),
    "r50-vit-b16-jft300m": ("r50-vit-b16", 7, 8e-4, 0.1, 0.0, "85.58", None),
    "r50-vit-b32-jft300m": ("r50-vit-b32", 7, 8e-4, 0.1, 0.0, "84.90", None),
    "r50-vit-l32-jft300m": ("r50-vit-l32", 7, 2e-4, 0.1, 0.0, "85.68", None),
    "r50-vit-l16-jft300m-7ep": ("r50-vit-l16", 7, 4e-4, 0.1, 0.0, "86.60", None),
    "r50-vit-l16-jft300m": ("r50-vit-l16", 14, 4e-4, 0.1, 0.0, "87.12", None),
    "vit-b16-imagenet21k": ("vit-b16", 90, 1e-3, 0.03, 0.1, "83.97", None),
    "vit-b32-imagenet21k": ("vit-b32", 90, 1e-3, 0.03, 0.1, "81.28", None),
    "vit-l16-imagenet21k-30ep": ("vit-l16", 30, 1e-3, 0.03, 0.1, "not published", None),
    "vit-l16-imagenet21k": ("vit-l16", 90, 1e-3, 0.03, 0.1, "85.15", "230"),
    "vit-l32-imagenet21k-30ep": ("vit-l32", 30, 1e-3, 0.03, 0.1, "not published", None),
    "vit-l32-imagenet21k": ("vit-l32", 90, 1e-3, 0.03, 0.1, "80.99", None),
    "vit-b16-imagenet": ("vit-b16", 300, 3e-3, 0.3, 0.1, "77.91", None),
    "vit-b32-imagenet": ("vit-b32", 300, 3e-3, 0.3, 0.1, "73.38", None),
    "vit-l16-imagenet": ("vit-l16", 300, 3e-3, 0.3, 0.1, "76.53", None),
    "vit-l32-imagenet": ("vit-l32", 300, 3e-3, 0.3, 0.1, "71.16", None),
}
# Table 4: steps, the learning rates tried, warm-up (the original code's; AugReg's for short runs), Table 5 or 2's result.
SWEEP = (0.001, 0.003, 0.01, 0.03)
TABLE_4 = {
    "finetune-imagenet": (20_000, (0.003, 0.01, 0.03, 0.06), 500, "83.97"),
    "finetune-cifar100": (10_000, SWEEP, 500, "91.67"),
    "finetune-cifar10": (10_000, SWEEP, 500, "98.95"),
    "finetune-pets": (500, SWEEP, 100, "94.43"),
    "finetune-flowers": (500, SWEEP, 100, "99.38"),
    "finetune-vtab": (2_500, (0.01,), 200, "72.72"),
}
# Pictures to train on (paper section 4.1; ImageNet's 1 % held out while settings are chosen), and updates of a whole run.
IMAGENET, IMAGENET_DEV, JFT = 1_281_167, 1_268_355, 303_000_000


def text(name: str) -> str:
    return (resources.files("vitral.recipes") / f"{name}.toml").read_text()


def header(name: str) -> dict[str, str]:
    """Return the labelled lines of a recipe's comment, in their order."""
    comment = text(name).split("\n#\n", 1)[1]
    lines = [line for line in comment.splitlines() if line.startswith("# ")]
    return {line[2:12].strip(): line[12:] for line in lines}


def test_every_row_of_both_tables_has_its_recipe() -> None:
    assert set(TABLE_3) | set(TABLE_4) <= set(list_recipes())


@pytest.mark.parametrize("name", list_recipes())
def test_a_file_is_called_what_it_is(name: str) -> None:
    assert load_recipe(name).name == name
    model = load_recipe(name).model
    assert model is None or model in VARIANTS


@pytest.mark.parametrize("name", list_recipes())
def test_the_header_has_its_four_lines_and_a_command_that_parses(name: str) -> None:
    assert text(name).startswith("# ")
    lines = header(name)
    assert tuple(lines)[:4] == HEADER
    assert all(lines[label].strip() for label in HEADER)
    program, *tokens = shlex.split(lines["Command"])
    assert program == "vitral"
    function, arguments, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    assert function.__name__ == tokens[0]
    asked = arguments.kwargs.get("recipe")
    # The defaults are what a command takes when no recipe is named.
    assert asked == name or (asked is None and name in ("finetune", "finetune-paper", "scratch", "pretrain"))


@pytest.mark.parametrize("name", TABLE_3)
def test_a_network_can_be_made_as_the_recipe_says(name: str) -> None:
    recipe = load_recipe(name)
    config = network_config(recipe, num_classes=18_291)
    assert build(config, seed=None).num_classes == 18_291
    assert config.head_bias == recipe.objective.head_bias


@pytest.mark.parametrize("name", TABLE_3)
def test_table_3_whole(name: str) -> None:
    model, epochs, rate, decay, dropout, score, days = TABLE_3[name]
    imagenet = name.endswith("-imagenet")
    expected = {
        "name": name,
        "model": model,
        "image_size": 224,
        "epochs": epochs,
        "batch_size": 4096,
        "optimizer": {
            "name": "adam",
            "lr": rate,
            "betas": (0.9, 0.999),
            "eps": 1e-8,
            "weight_decay": decay,
            "clip_norm": 1.0 if imagenet else "none",
        },
        "schedule": {
            "decay": "cosine" if imagenet else "linear",
            "warmup_steps": 10_000,
            "final_lr": 0.0 if imagenet else 1e-5,
        },
        "regularization": {"dropout": dropout},
        "objective": {"name": "softmax"} if imagenet else {"name": "sigmoid", "head_bias": -10.0},
        "head": {"representation": not model.startswith("bit-")},
        "augmentation": {"crop": "inception", "min_area": 0.05, "flip": True},
        "workers": 16,
    }
    assert load_recipe(name) == Recipe.model_validate(expected)
    lines = header(name)
    assert score in lines["Expected"]
    assert lines["Run time"] == (f"{days} TPUv3-core-days in the paper" if days else "not published")
    assert "Table 3" in lines["Source"]


@pytest.mark.parametrize("name", TABLE_4)
def test_table_4_whole(name: str) -> None:
    steps, rates, warmup, score = TABLE_4[name]
    recipe = load_recipe(name)
    expected = {
        "name": name,
        "image_size": 384,
        "steps": steps,
        "batch_size": 512,
        "optimizer": {
            "name": "sgd",
            "lr": recipe.optimizer.lr,
            "sweep": rates if len(rates) > 1 else (),
            "momentum": 0.9,
            "momentum_dtype": "bfloat16",
            "weight_decay": 0.0,
            "clip_norm": 1.0,
        },
        "schedule": {"decay": "cosine", "warmup_steps": warmup},
        "augmentation": {"crop": "inception", "min_area": 0.05, "flip": True},
        "workers": 4,
    }
    assert recipe == Recipe.model_validate(expected)
    assert recipe.optimizer.lr in rates
    assert ", ".join(f"{rate:g}" for rate in rates) in text(name).splitlines()[0]
    assert score in header(name)["Expected"]
    assert "Table 4" in header(name)["Source"]


# What makes each published set-up what it is: dotted keys of its recipe.
SGD = {"optimizer.name": "sgd", "optimizer.momentum": 0.9}
DEIT = {
    "augmentation.policy": "randaugment",
    "augmentation.magnitude": 9.0,
    "augmentation.magnitude_std": 0.5,
    "augmentation.erasing": 0.25,
    "mixing.mixup": 0.8,
    "mixing.cutmix": 1.0,
    "regularization.label_smoothing": 0.1,
}
PUBLISHED: dict[str, dict[str, object]] = {
    "augreg-vit-b16-imagenet21k": {
        "augmentation.magnitude": 15.0,
        "mixing.mixup": 0.2,
        "optimizer.weight_decay": 0.1,
        "objective.head_bias": -10.0,
        "regularization.dropout": 0.0,
        "schedule.warmup_steps": 10_000,
        "epochs": 300.0,
    },
    "augreg-r50-vit-l32-imagenet21k": {"regularization.dropout": 0.1, "regularization.stochastic_depth": 0.1},
    "augreg-vit-ti16-imagenet21k": {"augmentation.policy": "none", "mixing.mixup": 0.0, "optimizer.weight_decay": 0.03},
    "augreg-vit-s16-imagenet": {"objective.head_bias": -6.9, "augmentation.magnitude": 15.0, "mixing.mixup": 0.5},
    "augreg-finetune-cifar100": {
        **SGD,
        "optimizer.sweep": (0.001, 0.003, 0.01),
        "steps": 2_500,
        "schedule.warmup_steps": 200,
    },
    "bit-r50x1-m": {
        **SGD,
        "optimizer.lr": 0.48,
        "schedule.decay": "steps",
        "objective.name": "sigmoid",
        "epochs": 90.0,
    },
    "bit-r152x4-l": {"epochs": 40.0, "schedule.milestones": (0.25, 0.575, 0.75, 0.925)},
    "bit-hyperrule-small": {**SGD, "optimizer.lr": 0.003, "steps": 500, "mixing.mixup": 0.0, "image_size": 480},
    "bit-hyperrule-medium-pictures": {
        "steps": 10_000,
        "mixing.mixup": 0.1,
        "image_size": 128,
        "augmentation.margin": 1.25,
    },
    "bit-hyperrule-large": {"steps": 20_000, "schedule.milestones": (0.3, 0.6, 0.9), "schedule.warmup_steps": 500},
    "deit-b16": {
        **DEIT,
        "optimizer.lr": 1e-3,
        "augmentation.repeats": 3,
        "optimizer.clip_norm": None,
        "batch_size": 1024,
    },
    "deit-384": {"optimizer.lr": 5e-6, "optimizer.weight_decay": 1e-8, "image_size": 384, "schedule.final_lr": 5e-6},
    "t2t-vit-14": {
        **DEIT,
        "averaging.decay": 0.99996,
        "schedule.cooldown_epochs": 10.0,
        "optimizer.weight_decay": 0.05,
    },
    "t2t-vit-7": {"optimizer.lr": 1e-3, "optimizer.weight_decay": 0.03, "epochs": 310.0, "batch_size": 512},
    "cvt-13": {**DEIT, "optimizer.lr": 2e-3, "batch_size": 2048, "augmentation.repeats": 1},
    "cvt-21": {"augmentation.repeats": 3, "optimizer.weight_decay": 0.1},
    "coatnet-3-imagenet": {"regularization.stochastic_depth": 0.7, "augmentation.magnitude": 15.0, "mixing.mixup": 0.8},
    "coatnet-4-imagenet21k": {
        "schedule.decay": "linear",
        "schedule.warmup_epochs": 5.0,
        "optimizer.weight_decay": 0.01,
    },
    "coatnet-finetune-imagenet": {"schedule.decay": "constant", "averaging.decay": 0.9999, "optimizer.lr": 5e-5},
    "vmoe-h14-jft300m": {
        "optimizer.clip_norm": 10.0,
        "optimizer.lr": 3e-4,
        "optimizer.decay_on": "all",
        "experts.capacity_factor": 1.05,
    },
    "vmoe-15b": {"optimizer.name": "adafactor", "optimizer.factored_from": 33, "optimizer.decay_on": "all"},
    "vmoe-s32-last2-imagenet": {
        "experts.number": 8,
        "experts.dropout": 0.2,
        "experts.capacity_factor": 1.05,
        "experts.evaluation_capacity_factor": 4.0,
        "regularization.dropout": 0.0,
        "optimizer.decay_on": "kernels",
        "batch_size": 8192,
        "optimizer.lr": 3e-3,
        "mixing.mixup": 0.2,
    },
    "t2t-finetune": {
        "batch_size": 64,
        "epochs": 60.0,
        "optimizer.lr": 0.05,
        "optimizer.backbone_lr": 0.01,
        "optimizer.weight_decay": 5e-4,
        "optimizer.decay_on": "all",
        "schedule.final_lr": 2e-4,
        "schedule.warmup_epochs": None,
        "regularization.stochastic_depth": 0.1,
        "regularization.label_smoothing": 0.0,
        "augmentation.crop": "padded",
        "augmentation.policy": "none",
        "augmentation.erasing": 0.0,
    },
    "augreg-vit-l16-imagenet21k": {"optimizer.momentum_dtype": "bfloat16"},
    "augreg-finetune-pets": {"optimizer.momentum_dtype": "bfloat16"},
    "vmoe-finetune": {**SGD, "experts.capacity_factor": 1.5, "optimizer.clip_norm": 10.0, "schedule.final_lr": 1e-5},
    "vit-giant14-jft3b": {
        "optimizer.name": "adafactor",
        "optimizer.weight_decay": 0.03,
        "optimizer.head_weight_decay": 3.0,
        "schedule.decay": "rsqrt",
        "schedule.cooldown_steps": 50_000,
        "schedule.timescale": 10_000,
        "optimizer.lr": 8e-4,
    },
    "sam-resnet-50": {
        **SGD,
        "optimizer.nesterov": True,
        "optimizer.weight_decay": 1e-4,
        "optimizer.decay_on": "all",
        "optimizer.clip_norm": 5.0,
        "optimizer.sam_rho": 0.05,
        "optimizer.lr": 1.0,
        "schedule.warmup_epochs": None,
        "regularization.label_smoothing": 0.1,
    },
    "sam-vit-s16": {"optimizer.sam_rho": 0.1, "optimizer.lr": 3e-3, "augmentation.policy": "none"},
    "visualatom21k-deit-ti16": {**DEIT, "batch_size": 8192, "augmentation.flip": False, "schedule.warmup_steps": 5_000},
    "visualatom1k-deit-ti16": {"batch_size": 256, "epochs": 300.0, "schedule.warmup_epochs": 5.0},
    "visualatom-finetune": {**SGD, "epochs": 1000.0, "batch_size": 768, "optimizer.weight_decay": 1e-4},
    "masked-patches": {"objective.name": "masked-patches", "objective.masked_share": 0.5, "optimizer.lr": 2e-4},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_set_ups(name: str) -> None:
    recipe = load_recipe(name)
    for key, expected in PUBLISHED[name].items():
        value: object = recipe
        for part in key.split("."):
            value = getattr(value, part)
        assert value == expected, key


@pytest.mark.parametrize("name", [name for name in list_recipes() if load_recipe(name).model])
def test_every_network_of_a_recipe_can_be_made(name: str) -> None:
    recipe = load_recipe(name)
    with torch.device("meta"):
        network = build(network_config(recipe, num_classes=1000), seed=None)
        build_optimizer(network, network, recipe.optimizer)
    assert network.num_classes == 1000


@pytest.mark.parametrize(
    ("name", "pictures", "steps"),
    [
        ("vit-b16-imagenet", IMAGENET, 93_835),
        ("vit-b16-imagenet", IMAGENET_DEV, 92_897),
        ("vit-b16-jft300m", JFT, 517_822),
        ("vit-h14-jft300m", JFT, 1_035_645),
    ],
)
def test_on_the_papers_data_a_recipe_keeps_its_batch_and_warm_up(name: str, pictures: int, steps: int) -> None:
    fitted, _ = fit_length(load_recipe(name), pictures)
    assert (fitted.steps, fitted.batch_size, fitted.schedule.warmup_steps) == (steps, 4096, 10_000)


def test_no_clipping_survives_being_written() -> None:
    assert load_recipe("vit-b16-jft300m").optimizer.clip_norm is None
    assert 'clip_norm = "none"' in load_recipe("vit-b16-jft300m").to_toml()
    assert load_recipe("vit-b16-imagenet", ["optimizer.clip_norm=none"]).optimizer.clip_norm is None
