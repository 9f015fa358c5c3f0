"""`vitral check` of photos with regions: every trap is named with a photo and a count, and none where nothing is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from vitral.checks.check_data import check_data
from vitral.checks.findings import DataCheck
from vitral.checks.marked import has_hole
from vitral.cli.check import facts
from vitral.cli.main import main
from vitral.data.annotations.marked import Trap, said
from vitral.report.pages import write_check_page

HEIGHT, WIDTH = 48, 64


def _save(path: Path, seed: int, *, turned: int = 1) -> None:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = turned
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(path, exif=exif)


class Coco:
    """A file of COCO's in the making."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._values: dict[str, list[dict[str, Any]]] = {
            "images": [],
            "annotations": [],
            "categories": [{"id": number, "name": name} for number, name in enumerate(("cell", "dust", "hair"), 1)],
        }

    def add(self, name: str, *marks: tuple[int, object], seed: int, turned: int = 1, size: object = (48, 64)) -> None:
        """Add a photo with regions, each by its class and its box or segmentation."""
        assert isinstance(size, tuple)
        number = len(self._values["images"]) + 1
        _save(self._folder / name, seed, turned=turned)
        self._values["images"].append({"id": number, "file_name": name, "height": size[0], "width": size[1]})
        for kind, shape in marks:
            key = (
                "bbox"
                if isinstance(shape, list) and len(shape) == 4 and not isinstance(shape[0], list)
                else "segmentation"
            )
            self._values["annotations"].append(
                {"id": len(self._values["annotations"]), "image_id": number, "category_id": kind, key: shape}
            )

    def write(self) -> Path:
        """Write the file."""
        (self._folder / "_annotations.coco.json").write_text(json.dumps(self._values))
        return self._folder.parent


def _square(left: int, top: int, side: int) -> list[float]:
    return [left, top, left + side, top, left + side, top + side, left, top + side]


def _ring() -> dict[str, Any]:
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[10:30, 10:30] = True
    mask[15:20, 15:20] = False
    pixels = mask.T.reshape(-1)
    bounds = [0, *(np.flatnonzero(pixels[1:] != pixels[:-1]) + 1), pixels.size]
    return {"size": [HEIGHT, WIDTH], "counts": np.diff(bounds).tolist()}


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    for place, split in enumerate(("train", "valid")):
        coco = Coco(tmp_path / "clean" / split)
        for number in range(4):
            marks = [(kind, [2 + 20 * (kind - 1), 5, 15, 12 + number]) for kind in (1, 2, 3)] * (3 if place else 1)
            moved = [(kind, [box[0], box[1] + 9 * (at // 3), box[2], 8]) for at, (kind, box) in enumerate(marks)]
            coco.add(f"{place}-{number}.jpg", *moved, seed=10 * place + number)
        coco.write()
    return tmp_path / "clean"


def _total(found: DataCheck, words: str) -> int:
    assert found.regions is not None
    return sum(trap.count for trap in found.regions.traps if words in trap.kind)


def test_nothing_is_found_where_nothing_is_wrong(clean: Path) -> None:
    found = check_data(clean)
    assert found.regions is not None
    assert (found.problems(), found.regions.traps) == ([], ())
    assert found.regions.counts == {
        "train": {"cell": 4, "dust": 4, "hair": 4},
        "validation": {"cell": 12, "dust": 12, "hair": 12},
    }
    assert found.counts["validation"] == {"cell": 4, "dust": 4, "hair": 4}
    assert found.regions.most == 9


def test_every_trap_is_named_with_its_photo_and_count(tmp_path: Path) -> None:
    train, valid = Coco(tmp_path / "set" / "train"), Coco(tmp_path / "set" / "valid")
    box = _square(5, 5, 20)
    train.add("beyond.jpg", (1, [box[:]]), (1, [[50, 30, 90, 30, 90, 40, 50, 40]]), seed=0)
    train.add("outside.jpg", (1, [_square(100, 100, 9)]), (1, [box]), seed=1)
    train.add("twice.jpg", (1, [box]), (1, [box]), seed=2)
    train.add("parts.jpg", (1, [_square(2, 2, 9), _square(30, 20, 9)]), (1, _ring()), seed=3)
    train.add("over.jpg", (1, [box]), (2, [_square(10, 10, 20)]), seed=4)
    train.add("tiny.jpg", (2, [_square(10, 10, 2)]), seed=5)
    train.add("nothing.jpg", seed=6)
    train.add("other.jpg", (1, [box]), seed=7, size=(480, 640))
    train.add("turned.jpg", (1, [_square(20, 40, 15)]), seed=8, turned=6, size=(64, 48))
    train.add("stored.jpg", (1, [box]), seed=9, turned=6)
    train.add("many.jpg", *((1, [_square(3 * (at % 20), 3 * (at // 20), 2)]) for at in range(201)), seed=10)
    train.add("leak.jpg", (1, [box]), seed=11)
    valid.add("leaked.jpg", (1, [box]), seed=11)
    train.write()
    found = check_data(valid.write())
    assert found.regions is not None
    expected = {
        "beyond their photo": 1,
        "outside of their photo": 1,
        "marked twice": 1,
        "several parts": 1,
        "with holes": 1,
        "cover parts of others": 2,
        "are of the turned photo": 1,
        "as it is stored": 1,
        "more regions than": 1,
    }
    assert {words: _total(found, words) for words in expected} == expected
    assert found.regions.without == ("hair",)
    assert found.regions.rare == {"dust": 2}
    assert found.unlabelled["train"] == 1
    assert found.leaks == 1
    assert found.regions.most == 201
    assert found.regions.smaller[512] == 0 < found.regions.smaller[224]
    lines = "\n".join(found.regions.lines())
    for name in ("beyond.jpg", "outside.jpg", "twice.jpg", "parts.jpg", "turned.jpg", "stored.jpg"):
        assert name in lines
    problems = "; ".join(found.problems())
    assert any("of another size than their" in note and "other.jpg" in note for note in found.notes)
    for words in ("1 region that reaches", "1 region outside", "1 region marked twice", "1 class "):
        assert words in problems


def test_masks_that_other_programs_read_otherwise_are_named(tmp_path: Path) -> None:
    inside = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    inside[5:20, 5:20] = 1
    numbered = Image.fromarray(inside)
    numbered.putpalette([200, 0, 0, 0, 200, 0])
    grey = Image.fromarray(inside)
    transparent = Image.merge("RGBA", [grey, grey, grey, Image.fromarray(255 - inside)])
    masks = {"black": Image.fromarray(inside * 255), "palette": numbered, "transparent": transparent}
    expected = {"black": "0 and 255", "palette": "palette", "transparent": "transparency"}
    for name, mask in masks.items():
        for number in range(4):
            _save(tmp_path / name / "images" / f"{number}.jpg", number)
            (tmp_path / name / "masks").mkdir(exist_ok=True)
            mask.save(tmp_path / name / "masks" / f"{number}.png")
        found = check_data(tmp_path / name)
        assert {words: _total(found, words) for words in expected.values()} == {
            words: 4 * (words == expected[name]) for words in expected.values()
        }


def test_a_mask_that_cannot_be_read_is_named_with_its_file(clean: Path) -> None:
    path = clean / "train" / "_annotations.coco.json"
    values = json.loads(path.read_text())
    for item in values["annotations"]:
        item["segmentation"] = [_square(5, 5, 9)]
    values["annotations"][0]["segmentation"] = {"size": [HEIGHT, WIDTH], "counts": "no run lengths"}
    path.write_text(json.dumps(values))
    (clean / "valid" / "_annotations.coco.json").unlink()
    found = check_data(clean)
    assert not found.bad
    (note,) = [note for note in found.notes if "run lengths" in note]
    assert "1 in 1 file" in note
    assert "train/_annotations.coco.json" in note


def test_it_is_printed_written_and_given_to_programs(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = check_data(clean)
    write_check_page(found, facts(found), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Regions of class" in page
    assert "with what is marked in them" in page
    main(["check", str(clean), "--json"])
    values = json.loads(capsys.readouterr().out)
    assert values["regions"]["counts"]["validation"]["hair"] == 12
    main(["check", str(clean)])
    printed = capsys.readouterr().out
    assert [line.split()[-2:] for line in printed.splitlines() if line.startswith("hair")] == [["4", "12"], ["4", "4"]]


def test_the_sheet_shows_regions_in_the_colours_of_their_classes(clean: Path, tmp_path: Path) -> None:
    with_regions = check_data(clean).sheet
    (tmp_path / "sheet.png").write_bytes(with_regions)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB")).reshape(-1, 3)
    for colour in ((230, 25, 75), (60, 180, 75), (255, 225, 25)):
        assert (np.abs(sheet.astype(int) - colour).max(axis=1) < 12).any()


@every_case(
    ("rows", "hole"),
    [
        (["###", "# #", "###"], True),
        (["###", "#  ", "###"], False),
        (["###", "# #", "# #"], False),
        (["###", "###"], False),
    ],
)
def test_holes_are_pixels_that_a_mask_surrounds(rows: list[str], *, hole: bool) -> None:
    assert has_hole(np.array([[letter == "#" for letter in row] for row in rows])) == hole


def test_traps_of_a_kind_are_one_line() -> None:
    lines = said([Trap("odd regions", "a.json", 2), Trap("odd regions", "b.json"), Trap("others", "a.json", 1000)])
    assert lines == ["odd regions: 3 in 2 files, such as 'a.json'.", "others: 1,000 in 1 file, such as 'a.json'."]
