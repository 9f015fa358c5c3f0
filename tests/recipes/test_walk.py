"""Every recipe through its own command, as its header prints it: a few steps on a small stand-in of its network and data."""

import dataclasses
import json
import os
import shlex
import signal
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.regions import FEW
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.console import ConsoleListener
from vitral.cli.main import main
from vitral.data.digit_scenes import COUNTS
from vitral.events import Event, Progress
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import VARIANTS
from vitral.models.convolution import WhitenedStemConfig
from vitral.models.families import build
from vitral.training import measuring
from vitral.training.settings.durations import YEAR
from vitral.training.settings.headers import list_recipes
from vitral.training.settings.recipe import Recipe, load_recipe

pytestmark = pytest.mark.long

STEPS = 2
CLASSES = ("dress", "hat", "shoes")
# What a stand-in leaves of a network: every part of its architecture, once, and narrow.
NARROW: dict[str, dict[str, Any]] = {
    "ViTConfig": {"dim": 32, "depth": 2, "mlp_dim": 48, "num_heads": 2},
    "T2TConfig": {"dim": 32, "depth": 2, "mlp_dim": 48, "num_heads": 2},
    "CvTConfig": {"dims": (16, 24, 32), "depths": (1, 1, 1), "num_heads": (1, 1, 2)},
    "CoAtNetConfig": {
        "stem_dim": 8,
        "dims": (8, 12, 32, 32),
        "depths": (1, 1, 1, 1),
        "head_dim": 16,
        "representation_size": 32,
    },
    "BiTConfig": {"stages": (1,), "width_factor": 1},
    "ResNetConfig": {"stages": (1,)},
    "EfficientNetConfig": {"width": 0.25, "depth": 0.25},
    "TinyViTConfig": {"dims": (8, 8, 8, 8), "depths": (1, 1, 1, 1), "num_heads": (1, 1, 1)},
    "PixelsConfig": {},
    "RFDetrConfig": {"dim": 32, "depth": 2, "mlp_dim": 48, "num_heads": 2, "taps": (1, 2)},
}
# Which network a fine-tuning starts from, by how its recipe's name begins; a ViT-B/16 for all others.
STARTS = {
    "bit": "bit-r50x1",
    "coatnet": "coatnet-0",
    "cvt": "cvt-13",
    "deit3": "deit3-s16",
    "deit": "deit-b16",
    "digits": "vit-nano4",
    "eomt": "dinov2-l14-registers",
    "finetune-imagenet-518": "vit-h14",
    "pmt": "dinov3-l16",
    "sam-finetune-efficientnet": "efficientnet-b0",
    "scaling-vit-finetune-518": "vit-g14-map",
    "scaling": "vit-b16-map",
    "t2t": "t2t-vit-14",
    "visualatom": "deit-ti16",
    "vmoe": "vmoe-s32-last2",
}
GENERATED = ("digits", "visualatom", "visualatom-21k", "visualatom-mini")
# What the data, the machine and the stand-ins decide; the rest of the recipe must come out as it went in.
DECIDED = {
    "steps",
    "epochs",
    "batch_size",
    "workers",
    "model",
    "compute",
    "image_size",
    "name",
    "schedule",
    "precision",
}


def narrow(config: Any) -> Any:  # noqa: ANN401  # a family's own config
    """Return the config of a network small enough to make steps in no time."""
    changes = dict(NARROW[type(config).__name__])
    stem = getattr(config, "stem", None)
    if isinstance(stem, WhitenedStemConfig):
        changes["stem"] = dataclasses.replace(stem, widths=(8,) * len(stem.widths))
    elif stem is not None:
        changes["stem"] = dataclasses.replace(stem, stages=(1,) * len(stem.stages), width_factor=1)
    if getattr(config, "experts", None) is not None:
        changes["experts"] = dataclasses.replace(config.experts, blocks=(1,))
    return dataclasses.replace(config, **changes)


def command(name: str) -> list[str]:
    """Return the command that a recipe's header prints."""
    text = (resources.files("vitral.recipes") / f"{name}.toml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("# Command"))
    return shlex.split(line.removeprefix("# Command"))[1:]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of several shapes in train/ and val/."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 1)):
        for place, name in enumerate(CLASSES):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 120, (60 + 9 * number, 90 - 5 * number, 3), dtype=np.uint8)
                pixels[:, :, place] += 100
                Image.fromarray(pixels).save(root / split / name / f"{number}.jpg")
    return root


@pytest.fixture(scope="module")
def stand_ins() -> Any:  # noqa: ANN401  # a fixture that yields
    """Put a narrow network in every variant's place, and few scenes in that of many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "PROBE_IMAGES", 2)
        patch.setattr(measuring, "TIMED_STEPS", 1)
        patch.setattr(measuring, "COMPARED_MACS", 0.0)
        patch.setattr(measuring, "COMPARED_TURNS", 1)
        patch.setattr(
            "vitral.training.choose.layout.YEAR", 1000 * YEAR
        )  # how fast a stand-in is says nothing of the recipe
        for split, count in FEW.items():
            patch.setitem(COUNTS, split, count)
        variants: dict[str, Any] = dict(VARIANTS)
        for name, config in variants.items():
            if type(config).__name__ != "CoAtNetConfig" or len(config.dims) == 4:
                patch.setitem(VARIANTS, name, narrow(config))
        yield


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C after a few steps of training."""
    show = ConsoleListener.__call__

    def listen(self: ConsoleListener, event: Event) -> None:
        show(self, event)
        if isinstance(event, Progress) and event.task == "train" and event.done == STEPS:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ConsoleListener, "__call__", listen)


def typed(name: str, photos: Path, folder: Path) -> list[str]:
    """Return a recipe's command with real data, a start and a folder in the places that its header leaves open."""
    data = f"digit-scenes-{name.rpartition('-')[2]}" if name.startswith(("eomt", "pmt")) else str(photos)
    tokens = [data if token in ("FOLDER", "photos/") else token for token in command(name)]
    if "--from" in tokens:
        tokens[tokens.index("--from") + 1] = str(folder / "start")
    if "--from" in tokens:
        start = next((model for prefix, model in STARTS.items() if name.startswith(prefix)), "vit-b16")
        joined: dict[str, Any] = {"depth": 4} if name.startswith(("eomt", "pmt")) else {}  # which they read
        config: Any = dataclasses.replace(VARIANTS[start], num_classes=7, **joined)
        save(Classifier(build(config), PHOTOS.with_size(config.image_size), tuple("abcdefg")), folder / "start")
    taught = next((place for place, token in enumerate(tokens) if token.endswith("TEACHER")), None)
    if taught is not None:
        config = dataclasses.replace(VARIANTS["resnet-10"], num_classes=len(CLASSES))
        save(Classifier(build(config), PHOTOS.with_size(config.image_size), CLASSES), folder / "teacher")
        tokens[taught] = tokens[taught].replace("TEACHER", str(folder / "teacher"))
    return [*tokens, "--out", str(folder / "run"), "--set", "batch_size=4", "--set", "workers=0"]


def kept(recipe: Recipe) -> dict[str, Any]:
    return {key: value for key, value in recipe.model_dump(mode="json").items() if key not in DECIDED}


@pytest.mark.usefixtures("stand_ins", "interrupted")
@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_starts_by_its_own_command(
    name: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Classifiers to compare with cost more than the steps, and are no part of a recipe; a sweep has none.
    plain = ["--no-baselines"] if "finetune" in command(name) else []
    status = main([*typed(name, photos, tmp_path), *plain])
    said = capsys.readouterr().err
    assert status == 130, said
    assert f"saved after step {STEPS} of" in said
    run = next(path.parent for path in sorted((tmp_path / "run").rglob("recipe.toml")))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert np.isfinite([row["loss"] for row in rows if "loss" in row]).all()
    made, written = load_recipe(run / "recipe.toml"), load_recipe(name)
    changes: dict[str, Any] = {"optimizer": made.optimizer} if "sweep" in command(name) else {}
    if any(token.endswith("TEACHER") for token in command(name)):
        changes = {"method": made.method}
    if name == "scratch":  # its command names no recipe, so that views and mixing are chosen, too
        changes = {"augmentation": made.augmentation, "mixing": made.mixing}
    assert kept(made) == kept(written.model_copy(update=changes))


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    "name", ["deit-s16", "deit-384", "t2t-vit-14", "finetune-cifar10", "bit-hyperrule-small", "cvt-13"]
)
def test_the_classifier_folder_keeps_the_preprocessing_of_its_source(name: str, photos: Path, tmp_path: Path) -> None:
    assert main([*typed(name, photos, tmp_path), "--set", "steps=1"]) == 0
    kept = json.loads((tmp_path / "run" / "classifier" / "classifier.json").read_text())["preprocessing"]
    wanted = load_recipe(name).preprocessing.model_dump(mode="json", exclude_none=True)
    assert wanted
    assert {key: kept[key] for key in wanted} == wanted
