"""The first answer on regions, in closed form, beside answers without a network and a ridge regression on coarse maps.

    python benchmarks/first_regions.py DATA... [--from START...] [--fit 80] [--score 40] [--size 256] [--seconds 60] [--seed 0]

DATA are folders of annotated photos, or what `open_data` takes, such as semantic:nuclei/ or instances:nuclei/. From all of
their photos as many are drawn to fit on and to score, kind by kind: grey or coloured, dark or bright. The figure is the task's
headline on the scored photos; the seconds are of fitting alone and of finding regions in all scored photos, with one thread.
Each START (a name, a folder or a file) gives a row of a ridge regression on its coarse maps, where pixels have classes, and
one of filters joined with its maps; filters alone are always there.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

import vitral
from vitral.data.open import open_data
from vitral.data.source import DataSet, Source
from vitral.data.subset import Joined, Subset
from vitral.evaluation.probes import fit_probe
from vitral.evaluation.region_baselines import score_region_baselines
from vitral.evaluation.region_probe import fit_regions
from vitral.images.geometry import Geometry, Resize
from vitral.images.preprocessing import PHOTOS, Preprocessing
from vitral.models.dense.dense_model import DenseConfig, DenseModel
from vitral.models.dense.linear import LinearHead, LinearHeadConfig
from vitral.models.dense.ridge import RidgeHeadConfig
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.pixels import PixelsConfig
from vitral.seeds import generator
from vitral.tasks.dense import DenseTask
from vitral.tasks.regions import VOID

DIRECTIONS = 16
COLOURED, BRIGHT = 4, 110  # mean difference from grey, and mean, of 255
MOST_PLACES = 20_000  # that the coarse ridge is fitted on

Row = tuple[str, float | None, float, float]  # what, figure, seconds of the fit, seconds of finding


def drawn(data: DataSet, fit: int, score: int, seed: int) -> DataSet:
    """Return data of so many photos to fit on and to score, in the same shares of every kind."""
    every: Source = Joined(list(data.splits.values()))
    kinds: dict[tuple[bool, bool], list[int]] = defaultdict(list)
    for index in range(len(every)):
        photo = every.image(index).astype(np.float32)
        coloured = float(np.abs(photo - photo.mean(axis=2, keepdims=True)).mean()) > COLOURED
        kinds[coloured, float(photo.mean()) > BRIGHT].append(index)
    parts: dict[str, list[int]] = {"train": [], "test": []}
    for kind, indices in sorted(kinds.items()):
        share = min(1.0, (fit + score) / len(every)) * len(indices)
        some = generator(seed, "kind", *map(int, kind)).permutation(indices)[: max(2, round(share))].tolist()
        scored = max(1, round(len(some) * score / (fit + score)))
        parts["test"] += some[:scored]
        parts["train"] += some[scored:]
    return replace(data, splits={name: Subset(every, sorted(indices)) for name, indices in parts.items()})


def scored(task: DenseTask, data: DataSet, model: Model, preprocessing: Preprocessing) -> tuple[float, float]:
    """Return the headline of a network on the scored photos, and the seconds that it took to find regions in them."""
    tally, source, seconds = task.tally_regions(data.class_names), data.splits["test"], 0.0
    for index in range(len(source)):
        photo, truth = source.image(index), source.label(index)
        began = time.perf_counter()
        with torch.no_grad():
            found = task.find(model(preprocessing(photo)[None]), [preprocessing.geometry(*photo.shape[:2])])
        seconds += time.perf_counter() - began
        tally.add(found, [truth], [source.describe(index)])
    return next(iter(tally.figures().values())), seconds


def coarse_ridge(data: DataSet, backbone: Model, preprocessing: Preprocessing) -> DenseModel:
    """Return a linear head in closed form on the places of a backbone's last maps."""
    values, labels = [], []
    for index in range(len(data.splits["train"])):
        photo, truth = data.splits["train"].image(index), data.splits["train"].label(index)
        maps = backbone.encode(preprocessing(photo)[None]).maps[0]
        steps = (*preprocessing.geometry(*photo.shape[:2]).steps, Resize(*maps.shape[1:]))
        values.append(maps.flatten(1).T)
        labels.append(torch.from_numpy(Geometry(photo.shape[:2], steps).mask(truth.class_map(), fill=VOID)).flatten())
    features, classes = torch.cat(values), torch.cat(labels)
    known = torch.nonzero(classes != VOID)[:, 0]
    some = known[torch.from_numpy(generator(0, "places").permutation(len(known))[:MOST_PLACES])]
    probe = fit_probe(features[some], classes[some], classes=len(data.class_names))
    size = preprocessing.image_size
    config = DenseConfig(
        backbone=backbone.config, head=LinearHeadConfig(), num_classes=len(data.class_names), image_size=size
    )
    model = DenseModel(config, backbone).eval()
    assert isinstance(model.head, LinearHead)
    model.head.norm.reset_parameters()
    model.head.norm.eps = 0.0
    model.head.classifier.weight.copy_(probe.weight[..., None, None])
    assert model.head.classifier.bias is not None
    model.head.classifier.bias.copy_(probe.bias)
    return model


def started(start: str, size: int) -> tuple[Model, Preprocessing]:
    """Return the backbone of a start, and how it sees whole photos of about a size."""
    classifier = vitral.load(start)
    step = classifier.model.config.size_step
    side = size // step * step
    classifier.model.resize(side)
    return classifier.model.eval(), classifier.preprocessing.whole().with_size(side)


@torch.no_grad()
def rows(data: DataSet, starts: list[str], size: int, seconds: float) -> Iterator[Row]:
    """Give every row of the table."""
    task = data.task
    assert isinstance(task, DenseTask), "photos of regions"
    pixels, classes, train = task.name == "semantic", len(data.class_names), data.splits["train"]
    began = time.perf_counter()
    plain = score_region_baselines(task, data, pixels=pixels, seconds=seconds)
    took = time.perf_counter() - began
    for name, figure in plain.items():
        yield name, figure, 0.0, took
    for start in (None, *starts):
        name = f"filters{'' if start is None else ' and maps of ' + start}"
        backbone, preprocessing = (None, PHOTOS.with_size(size)) if start is None else started(start, size)
        if start is not None and pixels:
            began = time.perf_counter()
            model = coarse_ridge(data, backbone, preprocessing)
            took = time.perf_counter() - began
            yield f"coarse ridge, {start}", *_around(scored(task, data, model, preprocessing), took)
            backbone = model.backbone
        config = DenseConfig(
            backbone=PixelsConfig() if backbone is None else backbone.config,
            head=RidgeHeadConfig(directions=0 if backbone is None else DIRECTIONS, objects=not pixels),
            num_classes=classes,
            image_size=preprocessing.image_size,
        )
        model = build(config) if backbone is None else DenseModel(config, backbone).eval()
        began = time.perf_counter()
        fit_regions(model, train, preprocessing, seconds=seconds)
        took = time.perf_counter() - began
        yield name, *_around(scored(task, data, model, preprocessing), took)


def _around(result: tuple[float, float], fit: float) -> tuple[float, float, float]:
    return result[0], fit, result[1]


def main() -> None:
    """Print a table for each of the data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--from", dest="starts", nargs="*", default=[])
    parser.add_argument("--fit", type=int, default=80)
    parser.add_argument("--score", type=int, default=40)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.data:
        data = drawn(open_data(name), arguments.fit, arguments.score, arguments.seed)
        print_table(data, arguments.starts, arguments.size, arguments.seconds)


def print_table(data: DataSet, starts: list[str], size: int, seconds: float) -> None:
    """Print the table of one of the data."""
    counts = ", ".join(f"{count} to {name}" for name, count in data.counts().items())
    print(f"{data.name}: {', '.join(data.class_names)}; {counts}; {data.task.headline.title}")
    for what, figure, fitting, finding in rows(data, starts, size, seconds):
        print(
            f"  {what:44} {'-' if figure is None else f'{figure:.3f}':>6} {fitting:7.1f} s {finding:7.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
