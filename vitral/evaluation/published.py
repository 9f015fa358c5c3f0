"""What the ViT paper reports of models on datasets (Tables 2, 5 and 6), and which datasets are its own."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

FILE = "published.toml"
HUB = ("hf", "hf-stream")  # before the name of a dataset on the Hub
CITATION = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021"


@dataclass(frozen=True)
class PaperDataset:
    """A dataset of the paper: its name here, such as "cifar10", and in the paper, its classes, and the split that is scored."""

    name: str
    title: str
    classes: int
    split: str
    images: int


@dataclass(frozen=True)
class PaperResult:
    """What the paper reports of one model.

    Attributes:
        table: The number of the table in the paper.
        model: The variant's name here.
        title: The paper's name.
        pretraining: The data that it was pre-trained on.
        scores: By dataset, the mean accuracy, 0 to 1, and its standard deviation; None for a single fine-tuning.
    """

    table: int
    model: str
    title: str
    pretraining: str
    scores: Mapping[str, tuple[float, float | None]]


def paper_dataset(data: str, classes: int) -> PaperDataset | None:
    """Return the paper's dataset that data are by their name and their number of classes; None for other data.

    Args:
        data: The name that a command is given: "cifar10:FOLDER", "datasets/oxford-iiit-pet/", "hf:uoft-cs/cifar100".
        classes: The number of the data's classes: a folder that is only called "pets" is not the paper's.
    """
    named, sign, rest = data.partition(":")
    elsewhere = not sign or "/" in named or named in HUB or rest.startswith("//")
    stem = (PurePosixPath(data.rstrip("/")).name.rpartition(":")[2] if elsewhere else named).lower()
    name = re.sub(r"[^a-z0-9]", "", re.sub(r"\.(zip|tar|tar\.gz|tgz|csv|parquet)$", "", stem))
    for entry in _content()["datasets"]:
        if name in (re.sub(r"[^a-z0-9]", "", entry["name"]), *entry["aliases"]) and entry["classes"] == classes:
            return PaperDataset(**{key: value for key, value in entry.items() if key != "aliases"})
    return None


def paper_results(model: str) -> tuple[PaperResult, ...]:
    """Return what the paper reports of a variant, one entry for each pre-training: of Table 2 where it is in several."""
    found: dict[str, PaperResult] = {}
    for entry in _content()["results"]:
        if entry["model"] == model and entry["table"] != 6:
            found.setdefault(entry["pretraining"], _result(entry))
    longest = [entry for entry in _content()["results"] if entry["model"] == model]
    return tuple(found.values()) or tuple(_result(entry) for entry in longest[-1:])


def _result(entry: Mapping[str, Any]) -> PaperResult:
    scores = {
        name: (score[0] / 100, score[1] / 100 if len(score) > 1 else None) for name, score in entry["scores"].items()
    }
    return PaperResult(entry["table"], entry["model"], entry["title"], entry["pretraining"], scores)


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / FILE).read_text(encoding="utf-8"))
