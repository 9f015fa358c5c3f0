"""`vitral models`: every variant with its cost and the formats of its published weights, or those weights by name."""

from dataclasses import asdict
from typing import Any

from vitral import plugins
from vitral.cli.console import print_json, print_lines, print_table
from vitral.errors import ModelError, WeightsError, did_you_mean
from vitral.models.costs import COSTS, ModelCost
from vitral.weights.named.table import LICENCES, PublishedWeights, kept
from vitral.weights.named.table import rows as all_weights
from vitral.weights.published import published_formats

WIDTH = 100  # characters of the list of weights
HERE = "here"  # in place of where weights are from, if they are on this machine
MARKS = {"with terms": "t", "unclear": "?", "no": "n"}  # after a licence that is not simply free
LEGEND = (
    "Licences: n, not for products; t, with terms of its own; ?, see its card.",
    "tuned@384: after fine-tuning at 384 pixels. Figures of different kinds cannot be compared;",
    "--json says where each is from, and what could not be confirmed; 'here' is on this machine.",
)
DATASETS = (
    ("ImageNet-21k, then ImageNet", "IN-21k+1k"),
    ("ImageNet-21k", "IN-21k"),
    ("ImageNet", "IN-1k"),
    ("DINOv2's, COCO, then ", "COCO+"),
    ("DINOv2's, then ", ""),  # the name of the model says the same
    ("LVD-1689M, then ", ""),
)
PUBLISHERS = {
    "storage.googleapis.com": "Google",
    "dl.fbaipublicfiles.com": "Meta",
    "download.pytorch.org": "PyTorch",
    "github.com": "GitHub",
}


def models(filter: str | None = None, /, *, weights: bool = False, json: bool = False) -> None:
    """List the models: size, cost, formats of published weights.

    Args:
        filter: a word; only models with it in their name, family or formats are listed, or weights with it in theirs.
        weights: list the published weights by name instead, as --from and --classifier take them.
        json: print JSON for programs.
    """
    if weights:
        _list_weights(filter or "", json=json)
        return
    word = (filter or "").lower()
    costs = COSTS | _plugged()
    listed = [described_model(name, cost) for name, cost in costs.items()]
    rows = [row for row in listed if word in f"{row['name']} {row['family']} {' '.join(row['published'])}"]
    if not rows:
        hint = did_you_mean(filter or "", costs)
        raise ModelError(
            f"No model has '{filter}' in its name, family or formats.{hint} 'vitral models' lists them all."
        )
    if json:
        print_json(rows)
        return
    cells = [
        [
            row["name"],
            str(row["image_size"][0]),
            f"{row['parameters']:,}",
            f"{row['macs'] / 1e9:.2f}",
            ", ".join(row["published"]) or "none",
        ]
        for row in rows
    ]
    print_table(["model", "pixels", "parameters", "GMACs", "published weights"], cells)


def described_model(name: str, cost: ModelCost) -> dict[str, Any]:
    """Return a model as JSON values: sizes in pixels, costs for 1,000 classes."""
    return {"name": name, **cost._asdict(), "published": published_formats(name)}


def _plugged() -> dict[str, ModelCost]:
    """Return the networks of plugins, which have imported torch already."""
    if not any(kind == "network" for plugin in plugins.loaded() for kind, _ in plugin.registered):
        return {}
    from vitral.models.catalog import list_models, variant
    from vitral.models.families import count_macs, family, parameters_of

    networks = {name: variant(name) for name in list_models() if name not in COSTS}
    return {
        name: ModelCost(family(config), config.image_size, parameters_of(config), count_macs(config))
        for name, config in networks.items()
    }


def _list_weights(filter: str, *, json: bool) -> None:
    known = all_weights().values()
    listed = [row for row in known if filter.lower() in f"{row.name} {row.dataset} {row.licence}".lower()]
    if not listed:
        raise WeightsError(
            f"No published weights have '{filter}' in name, dataset or licence; 'vitral models --weights' lists them all."
        )
    if json:
        print_json([described_weights(row) for row in listed])
        return
    columns = ["weights", "trained on", "licence", "MB", "px", "ImageNet %", "from"]
    print_table(columns, list(map(_cells, listed)), texts=set(columns) - {"MB", "px"}, least_width=WIDTH)
    print_lines(*LEGEND)


def _cells(row: PublishedWeights) -> list[str]:
    dataset = row.dataset.removesuffix(" without labels")
    for long, short in DATASETS:
        dataset = dataset.replace(long, short)
    host = HERE if kept(row) is not None else row.repository.partition("/")[0] or row.address.split("/")[2]
    return [
        row.name,
        dataset,
        f"{row.licence} {MARKS.get(row.products, '')}".strip(),
        str(row.megabytes),
        str(row.image_size),
        row.described_score().replace("fine-tuned", "tuned"),
        PUBLISHERS.get(host, host),
    ]


def described_weights(row: PublishedWeights) -> dict[str, Any]:
    """Return published weights as JSON values, with where they are on this machine."""
    own = {key: value for key, value in asdict(row).items() if value not in ("", None)}
    here = kept(row)
    return own | {
        "model": row.model,
        "products": row.products,
        "licence_link": LICENCES[row.licence].link,
        "link": row.link,
        "path": None if here is None else str(here),
    }
