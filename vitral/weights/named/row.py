"""The table of published weights: one row a file, read from the TOML files next to this module.

A file is a list of `[[weights]]`, each a group of `rows` that share what the group says; a row's own value goes before its
group's, and both's `unverified` count. A name is MODEL@TRAINING: width and patch, and what it was trained on or by.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, Literal

TABLES = ("google.toml", "facebook.toml", "towers.toml", "others.toml")
SEPARATOR = "@"  # between model and training
NAME = re.compile(r"[a-z0-9][\w.-]*@[a-z0-9][\w.-]*", re.ASCII)
MEGABYTE = 10**6  # bytes

Products = Literal["yes", "name the source", "with terms", "unclear", "no"]
# What a score measures on ImageNet's 50,000 validation images, in percent; scores of two kinds cannot be compared.
METRICS = {
    "top-1": "accuracy of the file's own head",
    "fine-tuned": "accuracy after fine-tuning on ImageNet",
    "linear": "accuracy of a linear layer on the frozen features",
    "k-NN": "accuracy of nearest neighbours of the frozen features",
    "zero-shot": "accuracy by the names of the classes, with the text tower that is not in the file",
    "ReaL": "accuracy on the ReaL labels, of frozen features",
}


@dataclass(frozen=True)
class Licence:
    """A licence's own terms in short.

    Attributes:
        products: whether weights under it may be used in products.
        link: The address of its text.
    """

    products: Products
    link: str


LICENCES: dict[str, Licence] = {
    "Apache-2.0": Licence("yes", "https://www.apache.org/licenses/LICENSE-2.0"),
    "BSD-3-Clause": Licence("yes", "https://opensource.org/license/bsd-3-clause"),
    "Clear BSD": Licence("yes", "https://spdx.org/licenses/BSD-3-Clause-Clear.html"),
    "MIT": Licence("yes", "https://opensource.org/license/mit"),
    "CC-BY-4.0": Licence("name the source", "https://creativecommons.org/licenses/by/4.0/"),
    "CC-BY-NC-4.0": Licence("no", "https://creativecommons.org/licenses/by-nc/4.0/"),
    "DINOv3": Licence("with terms", "https://ai.meta.com/resources/models-and-libraries/dinov3-license/"),
    "OpenAI CLIP": Licence("unclear", "https://github.com/openai/CLIP/blob/main/model-card.md"),
}


@dataclass(frozen=True)
class PublishedWeights:
    """Published weights.

    Attributes:
        name: MODEL@TRAINING.
        dataset: The data that the weights were trained on.
        licence: a key of `LICENCES`.
        layout: the library whose names the file uses: "original", "big_vision", "timm" or "transformers".
        file: The file's name, at `address` or in `repository`.
        megabytes: The file's size, in units of 10^6 bytes.
        source: The place where these figures are published.
        variant: the model in the catalog, where the name does not begin with it.
        address: the address of its folder on the authors' server, with a slash at the end; empty for a file on the Hub.
        repository: the Hub's repository, owner/name; empty for a file at an address.
        revision: the commit in the repository, or the branch.
        sha256: The file's hash in hexadecimal digits; its beginning where no more is published; empty where nothing is.
        image_size: Side of the images that the network takes by default, pixels.
        score: The score on ImageNet, percent; None where none is published.
        metric: what the score measures, a key of `METRICS`.
        score_size: Side of the images of which the score was measured, pixels; `image_size` if None.
        architecture: fields of the network's config that the file does not tell.
        unverified: the fields that were not confirmed in a source of the authors.
    """

    name: str
    dataset: str
    licence: str
    layout: str
    file: str
    megabytes: int
    source: str
    variant: str = ""
    address: str = ""
    repository: str = ""
    revision: str = "main"
    sha256: str = ""
    image_size: int = 224
    score: float | None = None
    metric: str = ""
    score_size: int | None = None
    architecture: Mapping[str, Any] = field(default_factory=dict)
    unverified: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The model in the catalog."""
        return self.variant or self.name.partition(SEPARATOR)[0]

    @property
    def products(self) -> Products:
        """Whether the weights may be used in products."""
        return LICENCES[self.licence].products

    @property
    def link(self) -> str:
        """The address of the file, or the repository's page."""
        return self.address + self.file if self.address else f"https://huggingface.co/{self.repository}"

    def described_score(self) -> str:
        """Return the score with what it measures, such as "83.7 fine-tuned@384"; empty where none is published."""
        if self.score is None:
            return ""
        at = f"@{self.score_size}" if self.score_size not in (None, self.image_size) else ""
        return f"{self.score:g} {self.metric}{at}"

    def caution(self) -> str:
        """Return in one sentence what keeps the weights out of products; empty for a free licence."""
        sentence = {
            "no": f"does not allow use in products; see {LICENCES[self.licence].link}",
            "with terms": f"has terms of its own, which what is trained from them inherits; see {LICENCES[self.licence].link}",
            "unclear": f"is not clear about products; see {self.link}",
        }.get(self.products)
        return f"The licence of {self.name} ({self.licence}) {sentence}." if sentence else ""


FIELDS = {entry.name for entry in fields(PublishedWeights)}


@cache
def rows() -> Mapping[str, PublishedWeights]:
    """Return all published weights by name."""
    listed = [row for table in TABLES for row in read_table(files(__package__).joinpath(table).read_text("utf-8"))]
    return {row.name: row for row in listed}


def read_table(text: str) -> list[PublishedWeights]:
    """Return the rows of a TOML file."""
    listed = []
    for group in tomllib.loads(text)["weights"]:
        shared = {key: value for key, value in group.items() if key != "rows"}
        listed += [_row(shared, own) for own in group["rows"]]
    return listed


def _row(shared: Mapping[str, Any], own: Mapping[str, Any]) -> PublishedWeights:
    unverified = dict.fromkeys((*shared.get("unverified", ()), *own.get("unverified", ())))
    row = PublishedWeights(**{**shared, **own, "unverified": tuple(unverified)})
    # A mistake in the table is ours, not the user's.
    assert NAME.fullmatch(row.name), row.name
    assert row.licence in LICENCES, row.name
    assert row.score is None or row.metric in METRICS, row.name
    assert bool(row.address) != bool(row.repository), row.name
    assert set(row.unverified) <= FIELDS, row.name
    return row
