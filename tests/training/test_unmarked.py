"""Photos on which nothing is marked count, and never end a run; splits of such photos alone are named."""

import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.discs import Discs, discs
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.data.scorable import chosen_marked, first_marked
from vitral.evaluation.region_baselines import score_region_baselines
from vitral.tasks.instances import INSTANCES
from vitral.tasks.regions import Regions
from vitral.training.scoring.validation import limited

SIDE = 48
COUNTS = {"train": 8, "valid": 2, "test": 2}
FAST = ("--set", "image_size=32", "--set", "steps=2", "--set", "batch_size=4")


def coco(folder: Path, *, bare: Collection[str], marked: Collection[int] = range(8)) -> str:
    """Write 12 photos of squares in Roboflow's form; none is marked in the splits `bare`, elsewhere in the photos `marked`."""
    rng = np.random.default_rng(0)
    for split, count in COUNTS.items():
        (folder / split).mkdir(parents=True)
        images, annotations = [], []
        for number in range(count):
            pixels = rng.integers(0, 90, (SIDE, SIDE, 3), dtype=np.uint8)
            name, left, top = f"{split}-{number}.png", int(rng.integers(2, 20)), int(rng.integers(2, 20))
            pixels[top : top + 16, left : left + 20] += 130
            Image.fromarray(pixels).save(folder / split / name)
            images.append({"id": number, "file_name": name, "width": SIDE, "height": SIDE})
            if split not in bare and number in marked:
                corners = [left, top, left + 20, top, left + 20, top + 16, left, top + 16]
                box = {"bbox": [left, top, 20, 16], "area": 320, "segmentation": [corners], "iscrowd": 0}
                annotations.append({"id": number + 1, "image_id": number, "category_id": 1, **box})
        form = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "square"}]}
        (folder / split / "_annotations.coco.json").write_text(json.dumps(form))
    return str(folder)


@pytest.mark.long
@every_case(
    ("task", "bare"),
    [
        ("instances", ("valid",)),
        ("boxes", ("test",)),
        ("boxes", ("valid", "test")),
    ],
)
def test_a_run_ends_well_whatever_split_has_nothing_marked(
    task: str, bare: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = coco(tmp_path / "cells", bare=bare), tmp_path / "run"
    capsys.readouterr()
    assert main(["finetune", f"{task}:{data}", "--from", "vit-nano4", "--out", str(run), *FAST]) == 0
    said = "".join(capsys.readouterr())
    for split in ("valid", "test"):
        assert (f"Nothing is marked in the 2 {split}" in said) == (split in bare)
    if "valid" in bare:
        assert load(run).provenance.training["steps"] == 2
    if "test" in bare:
        assert main(["evaluate", str(run), f"{task}:{data}"]) == 1
        (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("vitral: ")]
        assert "Nothing is marked in 2 photos to score by" in line
    assert main(["finetune", "--out", str(run), "--resume"]) == 0


def test_with_little_time_one_of_the_photos_that_judge_has_something_marked(tmp_path: Path) -> None:
    for split in ("valid", "test"):
        folder = tmp_path / split
        data = open_data(f"boxes:{coco(folder, bare=(), marked=(1, 5))}")
        assert first_marked(data.splits["train"], range(8)) == 1
        for seed in range(4):
            few = limited(data, {"valid": "validation"}.get(split, split), 1, seed=seed)
            assert [few.describe(index)[-5] for index in range(len(few))] == ["1"]
        train = data.splits["train"]
        names = [chosen_marked(train, [2, 3]).describe(index)[-5] for index in range(2)]
        assert names == ["1", "2"]
        assert [chosen_marked(train, [0, 5]).describe(index)[-5] for index in range(2)] == ["0", "5"]


def test_a_first_answer_is_judged_on_the_held_out_photos_of_which_one_is_marked(tmp_path: Path) -> None:
    data, run = coco(tmp_path / "cells", bare=("valid", "test"), marked=(5, 6, 7)), tmp_path / "run"
    assert main(["finetune", data, "--from", "vit-nano4", "--out", str(run), *FAST, "--quick"]) == 0
    first = json.loads((run / "first.json").read_text())
    assert (first["split"], first["images"]) == ("training", 2)


class Empty(Discs):
    """The same photos, on which nothing is marked."""

    def label(self, index: int) -> Regions:
        """Return no regions."""
        return Regions.of_masks(super().label(index).size, [], [])


def test_simple_rules_have_no_figure_where_they_met_nothing_marked() -> None:
    data = discs(INSTANCES, colours=1)
    assert data.scored_split() == "validation"
    data.splits["validation"] = Empty(4, objects=True, first=1000, colours=1)  # type: ignore[index]
    assert score_region_baselines(INSTANCES, data, pixels=False, seconds=60) == {}
