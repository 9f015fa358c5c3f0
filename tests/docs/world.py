"""A folder with all that the pages name: small photos, weights, a finished run; and the rules that shorten commands."""

import json
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.conftest import TINY
from tests.docs.pages import ROOT
from tests.forks import type_command
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.weights.save import write_weights

CLASSES = ("dress", "hat", "shoes")
SIDE = 48  # pixels of a photo
PER_CLASS = 24
MOST_SIDE = 7100  # pixels: more than 50 million in all
RUNS = (
    "earlier",
    "from-start",
    "photos-2",
    "start",
    "teacher",
    "big",
    "warm",
    "visualatom",
)  # named by the pages, as runs/NAME
SECONDS = "20s"  # in place of every longer time
NETWORK = r"vit-(s|ti)[0-9]+|efficientnet-b0"
TRAINS = ("finetune", "pretrain", "distill")
SMALL = "vit-mu16"  # in place of every network that is named to be trained
FEW_STEPS = ("--image-size", "32", "--set", "steps=2", "--set", "batch_size=4", "--set", "workers=0")


def make_world(folder: Path) -> None:
    """Write the files that the pages name."""
    photos(folder / "photos", PER_CLASS, seed=0)
    photos(folder / "new", 6, seed=1)
    photos(folder / "tigers", 8, seed=2, classes=("tiger",))
    for number, name in enumerate(("holiday", "more", "more-photos", "unlabelled")):
        loose(folder / name, 12, seed=3 + number)
    for name in ("holiday.jpg", "photo.jpg", "IMAGE.jpg"):
        shutil.copy(folder / "holiday" / "0.jpg", folder / name)
    tagged(folder / "tagged.csv", folder / "photos")
    cells(folder / "cells", 30)
    mistakes(folder)
    shutil.copy(ROOT / "docs" / "plugins" / "optimizer.py", folder / "my_ideas.py")
    (folder / "tree.tsv").write_text("dress\tclothes\nhat\tclothes\nshoes\tfootwear\nclothes\nfootwear\n")
    network = build(TINY, seed=0)
    write_weights(
        network, Preprocessing(image_size=TINY.image_size), list(CLASSES), folder / "ViT-B_16.npz", "original"
    )
    save(Classifier(network, Preprocessing(image_size=TINY.image_size), class_names=list(CLASSES)), folder / "start")
    for name in RUNS:
        shutil.copytree(folder / "start", folder / "runs" / name)
    done = type_command(folder, "finetune", "--data", "photos", "--quick", "--out", "runs/photos", "--offline")
    assert done.returncode == 0, done.stderr


def photos(folder: Path, count: int, seed: int, classes: Sequence[str] = CLASSES) -> None:
    """Write so many photos a class, whose classes differ in the brightness of one half."""
    rng = np.random.default_rng(seed)
    for place, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8)
            pixels[:, : SIDE // 2, place % 3] += 120
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")


def loose(folder: Path, count: int, seed: int) -> None:
    """Write photos of all classes without their folders."""
    photos(folder / "of-classes", -(-count // len(CLASSES)), seed)
    for number, path in enumerate(sorted((folder / "of-classes").rglob("*.jpg"))):
        path.rename(folder / f"{number}.jpg")
    shutil.rmtree(folder / "of-classes")


def cells(folder: Path, count: int) -> None:
    """Write photos of bright discs with their outlines, as COCO has them."""
    folder.mkdir()
    rng = np.random.default_rng(9)
    annotations = []
    for number in range(count):
        pixels = rng.integers(20, 70, (SIDE, SIDE, 3), dtype=np.uint8)
        left, top, side = (int(value) for value in rng.integers(4, 16, 3))
        pixels[top : top + side, left : left + side] += 120
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
        outline = [left, top, left + side, top, left + side, top + side, left, top + side]
        row = {"id": number, "image_id": number, "category_id": 1, "bbox": [left, top, side, side]}
        annotations.append({**row, "area": side**2, "iscrowd": 0, "segmentation": [outline]})
    images = [{"id": number, "file_name": f"{number}.jpg", "height": SIDE, "width": SIDE} for number in range(count)]
    marked = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cell"}]}
    (folder / "annotations.json").write_text(json.dumps(marked))


def mistakes(folder: Path) -> None:
    """Write what the messages of the troubleshooting page are about."""
    (folder / "note.jpg").write_text("<html>Not found</html>")
    (folder / "empty.jpg").touch()
    Image.new("1", (MOST_SIDE, MOST_SIDE)).save(folder / "huge.png")
    (folder / "whole.pth").write_bytes(pickle.dumps(Path("not tensors")))


def tagged(table: Path, folder: Path) -> None:
    """Write a table with several labels for a photo."""
    rows = [
        f"{path.relative_to(table.parent).as_posix()},{path.parent.name}{'|bright' if number % 2 else ''}"
        for number, path in enumerate(sorted(folder.rglob("*.jpg")))
    ]
    table.write_text("\n".join(["image,labels", *rows]) + "\n")


def shortened(words: Sequence[str]) -> list[str]:
    """Return a command that does the same on small data, in seconds.

    - Published weights, NAME@DATA, are the small classifier in start/, so that nothing is fetched; `starts` compares it alone.
    - A time becomes twenty seconds; a `finetune` without a time ends with its first classifier (--quick).
    - What trains by a recipe or a method, and what trains without labels, makes two updates of a small network on small images.
    - Repeated runs are two.
    """
    line = [re.sub(r"[\w-]+@[\w-]+", "start", word) for word in words]
    if line[1] == "starts" and "--from" not in line:
        return [*line, "--from", "start"]
    for flag in ("--model", "--from", "--student"):
        if flag in line and re.fullmatch(NETWORK, line[line.index(flag) + 1]):
            replace(line, flag, SMALL)
    if "--plan" in line or line[1] not in TRAINS:
        return line
    by_recipe = (
        line[1] != "finetune" or "--recipe" in line or any(word.startswith(("method.", "optimizer.")) for word in line)
    )
    replace(line, "--runs", "2")
    if by_recipe:
        replace(line, "--time", None)
        waiting = ("--set", "method.student_wait=0") if "method.name=meta-pseudo-labels" in line else ()
        return [*line, *FEW_STEPS, *waiting]
    if not replace(line, "--time", SECONDS) and "--quick" not in line:
        line += ["--time", SECONDS] if "--resume" in line else ["--quick"]
    return line


def replace(line: list[str], flag: str, value: str | None) -> bool:
    """Give a flag of a command another value, or take it away; return whether it was there."""
    if flag not in line:
        return False
    place = line.index(flag)
    line[place : place + 2] = [] if value is None else [flag, value]
    return True


def program_shortened(text: str) -> str:
    """Return a program whose times are seconds."""
    return re.sub(r'time="[^"]*"', f'time="{SECONDS}"', text)
