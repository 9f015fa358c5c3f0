"""The table of published weights: one row a file, read from the TOML files next to this module; found by name.

A file is a list of `[[weights]]`, each a group of `rows` that share what the group says; a row's own value goes before its
group's, and both's `unverified` count. A name is MODEL@TRAINING: width and patch, and what it was trained on or by. Which rows'
files are on this machine is told here, too; whether others can be fetched now depends on the network being there, and on being
allowed to use it.
"""

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

from vitral import paths
from vitral.advice import argument, function
from vitral.errors import WeightsError
from vitral.transfers import bound_requests

TABLES = ("google.toml", "facebook.toml", "towers.toml", "others.toml", "regions.toml")
SEPARATOR = "@"  # between model and training
NAME = re.compile(r"[a-z0-9][\w.-]*@[a-z0-9][\w.-]*", re.ASCII)
MEGABYTE = 10**6  # bytes
SHA256_DIGITS = 64

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
OFFERED = 4  # names in a line
# Well-known families whose networks are not here, by the beginnings of the names that people know them by.
ELSEWHERE = {
    "beit": "BEiT",
    "convnext": "ConvNeXt",
    "densenet": "DenseNet",
    "dpn": "DPN",
    "eupe": "EUPE",
    "hiera": "Hiera",
    "ijepa": "I-JEPA",
    "levit": "LeViT",
    "maxvit": "MaxViT",
    "mixer": "MLP-Mixer",
    "mlp-mixer": "MLP-Mixer",
    "mobileclip": "MobileCLIP",
    "mobilenet": "MobileNet",
    "mobilevit": "MobileViT",
    "pe-core": "Perception Encoder",
    "pvt": "PVT",
    "regnet": "RegNet",
    "sam-": "Segment Anything",
    "swin": "Swin",
    "tips": "TIPS",
    "vgg": "VGG",
}
ANSWER_SECONDS = 3.0  # that a server may take to answer before it counts as out of reach


@dataclass(frozen=True)
class Licence:
    """A licence's own terms in short."""

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
class Package:
    """A Python package that carries a weights file; where it is installed, nothing needs to be fetched.

    Attributes:
        name: Its name at the registry.
        file: The file's path below the folder that it is installed in.
        sha256: The file's hash in hexadecimal digits.
    """

    name: str
    file: str
    sha256: str


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
        variant: the model in the catalog, where the name does not begin with it; of networks of regions the backbone.
        backbone: The row of the network that the file's head stands on, where the file holds nothing else; or empty.
        address: the address of its folder on the authors' server, with a slash at the end; empty for a file on the Hub.
        repository: the Hub's repository, owner/name; empty for a file at an address.
        revision: the commit in the repository, or the branch.
        sha256: The file's hash in hexadecimal digits; its beginning where no more is published; empty where nothing is.
        image_size: Side of the images that the network takes by default, pixels.
        score: The score on ImageNet, percent; None where none is published.
        metric: what the score measures, a key of `METRICS`.
        score_size: Side of the images of which the score was measured, pixels; `image_size` if None.
        architecture: fields of the network's config that the file does not tell.
        package: a package with another file of the same weights, which is taken first; None where there is none.
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
    backbone: str = ""
    address: str = ""
    repository: str = ""
    revision: str = "main"
    sha256: str = ""
    image_size: int = 224
    score: float | None = None
    metric: str = ""
    score_size: int | None = None
    architecture: Mapping[str, Any] = field(default_factory=dict)
    package: Package | None = None
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
    package = Package(**own["package"]) if "package" in own else None
    row = PublishedWeights(**{**shared, **own, "package": package, "unverified": tuple(unverified)})
    # A mistake in the table is ours, not the user's.
    assert NAME.fullmatch(row.name), row.name
    assert row.licence in LICENCES, row.name
    assert row.score is None or row.metric in METRICS, row.name
    assert bool(row.address) != bool(row.repository), row.name
    assert set(row.unverified) <= FIELDS, row.name
    return row


def is_named(name: str) -> bool:
    """Tell whether a text has the form of a name of published weights, MODEL@TRAINING."""
    return NAME.fullmatch(name.lower()) is not None


def find(name: str) -> PublishedWeights:
    """Return the row of a name.

    Raises:
        WeightsError: there is none; the nearest names are proposed, or the family is named that is not here.
    """
    row = rows().get(name)
    if row is None:
        raise WeightsError(f"There are no published weights '{name}'.{_advice(name)}")
    return row


def of_model(model: str) -> list[str]:
    """Return the names of a model's published weights: those of the catalog's model, and those that are called by its name."""
    return [row.name for row in rows().values() if model in (row.model, row.name.partition(SEPARATOR)[0])]


def offer(model: str) -> str:
    """Return in one sentence which published weights a model has; empty where there are none."""
    names = of_model(model)
    if not names:
        return ""
    more = f", and {len(names) - OFFERED} more" if len(names) > OFFERED else ""
    return f"Published weights of {model}: {', '.join(names[:OFFERED])}{more}."


def row_of(source: str) -> PublishedWeights | None:
    """Return the row of the weights that a classifier started from, by its provenance; None for any others."""
    return rows().get(source.partition(" ")[0])


def licence_of(source: str) -> str:
    """Return in one sentence the licence of the weights that a classifier started from; empty for any others."""
    row = row_of(source)
    return (
        f"{row.name}, from {row.link}, is licensed under {row.licence} ({LICENCES[row.licence].link})." if row else ""
    )


def _advice(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), list(rows()), n=3)
    model, _, training = name.lower().partition(SEPARATOR)
    elsewhere = {title for start, title in ELSEWHERE.items() if model.startswith(start) or training.startswith(start)}
    if elsewhere:
        return f" {elsewhere.pop()} is a family that Vitral does not have."
    if names := of_model(model):
        near = list(dict.fromkeys([*(name for name in near if name in names), *names]))[:OFFERED]
        return f" Of {model} there are: {', '.join(near)}."
    if near:
        return f" Did you mean {' or '.join(map(repr, near))}?"
    return f" {function('list_models')} lists the models, with the names of their weights."


def kept(row: PublishedWeights) -> Path | None:
    """Return a row's file if it is on this machine; the network is not asked.

    A file of the Hub that the client keeps under another hash than the table's is another one. That of a package is
    compared where it is fetched.
    """
    if (file := packaged(row)) is not None:
        return file
    if row.address:
        target = target_of(row)
        return target if target.is_file() else None
    path = try_to_load_from_cache(row.repository, row.file, revision=row.revision)
    if not isinstance(path, str):
        return None
    blob = Path(path).readlink().name if Path(path).is_symlink() else ""
    return Path(path) if len(blob) != SHA256_DIGITS or blob.lower().startswith(row.sha256.lower()) else None


def packaged(row: PublishedWeights) -> Path | None:
    """Return the file in a row's package, if that is installed; none of its code is run."""
    installed = distribution_of(row)
    if row.package is None or installed is None:
        return None
    path = Path(str(installed.locate_file(row.package.file)))
    return path if path.is_file() else None


def distribution_of(row: PublishedWeights) -> Distribution | None:
    """Return a row's package, if that is installed."""
    with suppress(PackageNotFoundError):
        return distribution(row.package.name) if row.package else None
    return None


def target_of(row: PublishedWeights) -> Path:
    """Return where a file from an address is kept: under its own name, which tells some readers what it is."""
    folder = hashlib.sha256(row.link.encode()).hexdigest()[:16]
    return paths.cache("weights") / folder / unquote(row.file).rpartition("/")[2]


def switched_off() -> str:
    """Return what a message says where nothing may be fetched."""
    return f"fetching is switched off (by {argument('offline', True)} or HF_HUB_OFFLINE)"


def host(row: PublishedWeights) -> str:
    """Return the name of the server that a row's file comes from: the authors', the Hub or its mirror."""
    return str(urlsplit(row.address or constants.ENDPOINT).hostname)


def may_fetch() -> bool:
    """Tell whether anything may be fetched: HF_HUB_OFFLINE forbids it."""
    return not constants.HF_HUB_OFFLINE


class _Switch:
    """Holds the Hub's client offline while anyone wants it so; several threads may."""

    def __init__(self) -> None:
        self._lock, self._wanted, self._before = Lock(), 0, False

    def off(self) -> None:
        with self._lock:
            if not self._wanted:
                self._before = constants.HF_HUB_OFFLINE
            self._wanted += 1
            constants.HF_HUB_OFFLINE = True

    def on(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                constants.HF_HUB_OFFLINE = self._before


_switch = _Switch()


@contextmanager
def without_network(offline: bool) -> Iterator[None]:
    """Forbid, while the block lasts, to fetch weights and anything else from the Hub, as HF_HUB_OFFLINE does.

    It holds for the whole process: other threads fetch nothing meanwhile either. Unless `offline` nothing is touched.
    """
    if not offline:
        yield
        return
    _switch.off()
    try:
        yield
    finally:
        _switch.on()


def answering(listed: Iterable[PublishedWeights]) -> frozenset[str]:
    """Return which of the servers of some rows answer, whatever they say; each is asked once, all at the same time.

    A name that cannot be resolved is known in milliseconds; whatever is slower than `ANSWER_SECONDS` counts as out of reach.
    Nobody waits longer, also where looking up a name hangs, which no time limit of a request covers.
    """
    if not may_fetch():
        return frozenset()
    addresses = {host(row): row.link if row.address else constants.ENDPOINT for row in listed}
    answered: set[str] = set()
    bound_requests()
    asking = [Thread(target=_ask, args=(name, address, answered), daemon=True) for name, address in addresses.items()]
    for thread in asking:
        thread.start()
    ends = monotonic() + ANSWER_SECONDS
    for thread in asking:
        thread.join(max(ends - monotonic(), 0.0))
    return frozenset(answered)


def _ask(name: str, address: str, answered: set[str]) -> None:
    try:
        get_session().head(address, timeout=ANSWER_SECONDS, follow_redirects=False)
    except Exception:  # whatever keeps an answer from coming
        return
    answered.add(name)
