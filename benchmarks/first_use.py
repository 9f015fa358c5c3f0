"""What a new user gets: the default command on photo folders, against beginners' scripts in the same minutes.

    python benchmarks/first_use.py FOLDER... [--time 3m] [--seeds 3] [--arms finetune small-cnn] [--json results.json]

FOLDER is what `open_data` takes. All learn from the product's training split and are scored on its whole test split (its
validation split where there is no test split). Each run is a process of its own with all cores, one after another in turns.
Its time runs from the start of the process to its end: starting up, reading the images, training, scoring.

    finetune      vitral finetune --data FOLDER --time T --seed S: no other option
    raw-pixels    a linear model on pixels in closed form, at 32 or 16 pixels, whichever is better on the training images
    probe         the same on frozen features: the catalog's resnet-18 with random weights at 64 pixels, all that is offline
    resnet-18     torchvision's ResNet-18 from random weights at 64 pixels, AdamW, one cycle, flips and crops
    small-cnn     four convolutions with batch norm at 64 pixels, trained likewise

Exit status 1 if the default command failed, is below another arm, at chance or over its time: said first, then the table.
What --json holds already, of the same versions, images, minutes and seed, is not run again.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import product
from kept import Kept, Run
from peers import Images, Settings, linear_accuracy, pixels_accuracy, read, small_cnn, train

DEFAULT = "finetune"
SIZE = 64
PIXEL_SIZES = (32, 16)
PROBED, PROBED_AT_ONCE = "resnet-18", 256
RECIPE = Settings("adamw", lr=2e-3, weight_decay=0.05, batch_size=64)


@dataclass(frozen=True)
class Folder:
    """What is known of one dataset.

    Attributes:
        data: what --data takes.
        fingerprint: of its images.
        classes: how many.
        learned: images to train on.
        scored: images to score on.
        commonest: the share of the commonest class among them.
    """

    data: str
    fingerprint: str
    classes: int
    learned: int
    scored: int
    commonest: float

    @property
    def name(self) -> str:
        """The folder's own name."""
        return Path(self.data).name


def look_at(data: str) -> Folder:
    """Return what is known of a dataset before anything is trained."""
    from vitral.data.open import open_data

    opened = open_data(data, verify=False)
    labels = opened.splits[opened.scored_split()].labels().tolist()
    commonest = max(labels.count(label) for label in set(labels)) / len(labels)
    learned = len(opened.splits["train"])
    return Folder(data, opened.fingerprint, len(opened.class_names), learned, len(labels), commonest)


def raw_pixels(learn: Images, score: Images) -> tuple[float, str]:
    accuracy, size = pixels_accuracy(learn, score, PIXEL_SIZES)
    return accuracy, f"pixels at {size} px"


def probe(learn: Images, score: Images, seed: int) -> tuple[float, str]:
    import torch

    import vitral

    model = vitral.create_model(PROBED, image_size=SIZE, seed=seed)

    def features(images: Images) -> torch.Tensor:
        parts = images.pixels.permute(0, 3, 1, 2).split(PROBED_AT_ONCE)
        with torch.inference_mode():
            return torch.cat([model.features(part.float() / 127.5 - 1.0).float() for part in parts])

    found = features(learn), features(score)
    scale = found[0].std(0) + 1e-6
    accuracy, _ = linear_accuracy(found[0] / scale, learn.labels, found[1] / scale, score.labels)
    return accuracy, f"{PROBED} at {SIZE} px"


def trained(arm: str, learn: Images, score: Images, classes: int, flip: bool, seconds: float) -> tuple[float, str]:
    from torchvision.models import resnet18

    network = resnet18(weights=None, num_classes=classes) if arm == "resnet-18" else small_cnn(classes)
    plain, steps = train(network, learn, RECIPE, seconds, flip=flip, to_score=len(score))
    return plain.accuracy(score), f"at {SIZE} px, {steps:,} steps"


def peer(arm: str, data: str, seconds: float, seed: int, begun: float) -> Run:
    """Make one run of a peer in this process, which began at `begun` of the monotonic clock."""
    import torch

    from vitral.data.open import open_data

    torch.manual_seed(seed)
    opened = open_data(data, verify=False)
    size = max(PIXEL_SIZES) if arm == "raw-pixels" else SIZE
    learn, score = (read(opened.splits[split], size) for split in ("train", opened.scored_split()))
    if arm == "raw-pixels":
        accuracy, chose = raw_pixels(learn, score)
    elif arm == "probe":
        accuracy, chose = probe(learn, score, seed)
    else:
        left = begun + seconds - time.monotonic()
        accuracy, chose = trained(arm, learn, score, len(opened.class_names), opened.augmentation.flip, left)
    return {"accuracy": accuracy, "seconds": time.monotonic() - begun, "chose": chose}


PEERS = ("raw-pixels", "probe", "resnet-18", "small-cnn")


def run(arm: str, folder: Folder, seconds: float, seed: int) -> Run:
    if arm == DEFAULT:
        return product.finetune(folder.data, seconds, seed, [])
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        return alone.submit(peer, arm, folder.data, seconds, seed, time.monotonic()).result()


def question(arm: str, folder: Folder, seconds: float, seed: int) -> dict[str, Any]:
    """Return what a kept run must have answered."""
    versions = {name: metadata.version(name) for name in ("torch", "torchvision")}
    if arm in (DEFAULT, "probe"):
        versions["vitral"] = product.version()
    return {"arm": arm, "images": folder.fingerprint, "seconds": seconds, "seed": seed, "versions": versions}


def problems(folder: Folder, seconds: float, runs: dict[str, list[Run]]) -> list[str]:
    """Return what is wrong with the default command on one dataset, a line each."""
    found = []
    ours = runs.get(DEFAULT, [])
    if not ours:
        return []
    for seed, one in enumerate(ours):
        if "failed" in one:
            found.append(f"seed {seed} failed: {one['failed']}")
        elif product.at_chance(one["accuracy"], folder.scored, folder.commonest):
            found.append(f"seed {seed} is at chance: {one['accuracy']:.1%}, the commonest class {folder.commonest:.1%}")
        if product.late(one["seconds"], seconds):
            found.append(f"seed {seed} took {one['seconds']:.0f} s of {seconds:.0f}")
    mean = mean_accuracy(ours)
    for arm, others in runs.items():
        behind = mean_accuracy(others) - mean
        if behind > 1e-9:
            images = behind * folder.scored
            found.append(f"{100 * behind:.1f} points ({images:.1f} of {folder.scored} images) below {arm}")
    return [f"{folder.name}: {line}" for line in found]


def mean_accuracy(runs: list[Run]) -> float:
    return statistics.fmean(run["accuracy"] for run in runs)


def table(folder: Folder, runs: dict[str, list[Run]]) -> list[str]:
    """Return the table of one dataset."""
    lines = [
        f"{folder.name}: {folder.classes} classes, {folder.learned:,} images to learn from, {folder.scored:,} to score, "
        f"the commonest class {folder.commonest:.1%}",
        f"  {'':12}{'mean':>8}{'spread':>8}{'seconds':>9}  what it was",
    ]
    for arm, made in runs.items():
        scores = [one["accuracy"] for one in made]
        taken = statistics.fmean(one["seconds"] for one in made)
        chose = "; ".join(dict.fromkeys(one["chose"] for one in made))
        spread = max(scores) - min(scores)
        lines.append(f"  {arm:12}{mean_accuracy(made):8.1%}{100 * spread:8.1f}{taken:9.0f}  {chose}")
    return lines


def main() -> None:
    """Run every arm on every folder for every seed, and say first what is wrong."""
    from vitral.errors import VitralError
    from vitral.training.settings.durations import seconds as duration

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--time", default="3m", help="as `vitral finetune` takes it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=[DEFAULT, *PEERS], choices=[DEFAULT, *PEERS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds, kept = duration(options.time), Kept(options.json)
    try:
        folders = [look_at(data) for data in options.data]
    except VitralError as error:
        parser.error(str(error))
    runs: dict[Folder, dict[str, list[Run]]] = {folder: {arm: [] for arm in options.arms} for folder in folders}
    for seed in range(options.seeds):
        for folder in folders:
            for arm in options.arms:
                asked = question(arm, folder, seconds, seed)
                one = kept.get(asked, partial(run, arm, folder, seconds, seed))
                runs[folder][arm].append(one)
                print(
                    f"seed {seed}, {folder.name}, {arm}: {one['accuracy']:.2%} in {one['seconds']:.0f} s, {one['chose']}",
                    flush=True,
                )
    wrong = [line for folder in folders for line in problems(folder, seconds, runs[folder])]
    fine = ["The default command is nowhere below another, at chance or late."] if DEFAULT in options.arms else []
    print("\n" + "\n".join(wrong or fine))
    for folder in folders:
        print("\n" + "\n".join(table(folder, runs[folder])))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
