"""`vitral check`: what is wrong with a dataset is found, and nothing is found where nothing is wrong."""

import io
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitral.checks.check_data import check_data
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.check import facts
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.data.subset import Joined, Subset
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import create_model
from vitral.report.pages import write_check_page


def photo(seed: int, side: int = 96) -> Image.Image:
    """An image with large structures, as photos have."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return small.resize((side, side + 16), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for place, (split, name) in enumerate(itertools.product(("train", "val"), ("cat", "dog"))):
        (root / split / name).mkdir(parents=True)
        for number in range(6):
            photo(100 * place + number).save(root / split / name / f"{number}.png")
    return root


def test_a_clean_dataset_has_nothing_to_fix(folder: Path) -> None:
    found = check_data(folder)
    assert found.problems() == []
    assert found.counts == {"train": {"cat": 6, "dog": 6}, "validation": {"cat": 6, "dog": 6}}
    assert (found.widths, found.heights) == ((96, 96, 96), (112, 112, 112))
    assert found.formats == {"PNG RGB": 24}
    assert found.imbalance == 1.0
    assert 0.3 < found.mean[0] < 0.7


def test_images_of_several_classes_are_counted_as_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["image,labels,split"]
    for number in range(31):
        photo(number, 40).save(tmp_path / f"{number}.png")
        labels = "" if number % 10 == 0 else "sea|sky" if number == 1 else "sky"
        rows.append(f"{number}.png,{labels},{'val' if number >= 20 else 'train'}")
    table = tmp_path / "photos.csv"
    table.write_text("\n".join(rows) + "\n")
    found = check_data(table)
    assert found.images == {"train": 20, "validation": 11}
    assert found.unlabelled == {"train": 2, "validation": 2}
    assert found.counts["train"] == {"sea": 1, "sky": 18}
    assert "31 images" in repr(found)
    write_check_page(found, [], tmp_path / "page.html")
    assert "<b>31</b><span>photos" in (tmp_path / "page.html").read_text()
    main(["check", str(table)])
    printed = capsys.readouterr().out
    assert "31 images" in printed
    assert ["2", "2"] in [line.split()[-2:] for line in printed.splitlines() if "no class" in line]
    assert "1 (sea) to 18 (sky)" in printed
    main(["check", str(table), "--json"])
    values = json.loads(capsys.readouterr().out)
    assert (values["imbalance"], values["imbalance_of"]) == (18.0, "train")
    assert values["images"] == {"train": 20, "validation": 11}


def test_the_imbalance_is_of_the_training_images_and_said(folder: Path, tmp_path: Path) -> None:
    (folder / "test").mkdir()
    for name, count in (("cat", 5), ("dog", 1)):
        (folder / "test" / name).mkdir()
        for number in range(count):
            photo(7000 + number + 10 * count).save(folder / "test" / name / f"{number}.png")
    found = check_data(folder)
    assert found.imbalance == 1.0
    assert "unequal" not in " ".join(found.notes)
    for number in range(60):
        photo(5000 + number, 40).save(folder / "train" / "dog" / f"more-{number}.png")
    found = check_data(folder)
    assert found.imbalance == 66 / 6
    assert found.class_sizes() == "6 (cat) to 66 (dog) of the training images, 1 : 11.0; rare: cat (6)"
    (note,) = (note for note in found.notes if "unequal" in note)
    assert "66 training images of dog, 6 of cat" in note
    write_check_page(found, facts(found), tmp_path / "page.html")
    assert "6 (cat) to 66 (dog)" in (tmp_path / "page.html").read_text()
    assert open_data(folder).notes[-1] == note  # as every command that trains has it
    judged = open_data(folder, class_names=("cat", "dog"))
    assert note not in judged.notes


def test_what_is_wrong_is_found(folder: Path) -> None:
    train, val = folder / "train", folder / "val"
    shutil.copy(train / "cat" / "0.png", val / "dog" / "leak.png")  # across splits, with another class
    shutil.copy(train / "dog" / "1.png", train / "dog" / "again.png")
    Image.open(train / "cat" / "2.png").resize((90, 105)).save(val / "cat" / "near.jpg", quality=80)
    (train / "cat" / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    Image.new("RGB", (64, 64), (9, 9, 9)).save(train / "dog" / "flat.png")
    photo(999).save(train / "dog" / "wrong.jpg", format="PNG")
    photo(998).resize((12, 12)).save(train / "cat" / "tiny.png")
    photo(997).resize((400, 40)).save(train / "cat" / "long.png")
    frames = [photo(seed) for seed in (505, 506)]
    frames[0].save(train / "cat" / "moving.gif", save_all=True, append_images=frames[1:])
    found = check_data(folder)
    assert [Path(bad.path).name for bad in found.bad] == ["broken.jpg"]
    exact = [group for group in found.duplicates if group.kind == "exact"]
    near = [group for group in found.duplicates if group.kind == "near"]
    assert {tuple(sorted(Path(name).name for name in group.names)) for group in exact} == {
        ("0.png", "leak.png"),
        ("1.png", "again.png"),
    }
    assert [sorted(Path(name).name for name in group.names) for group in near] == [["2.png", "near.jpg"]]
    assert found.duplicates[0].leaks
    assert found.leaks == 2
    odd = {(Path(finding.name).name, finding.reason.split(":")[0]) for finding in found.suspicious}
    assert odd == {
        ("flat.png", "one colour only"),
        ("wrong.jpg", "named .jpg, but it is PNG"),
        ("tiny.png", "only 12x12 pixels, where most are larger"),
        ("long.png", "400x40 pixels"),
        ("moving.gif", "animated"),
    }
    assert found.problems()[0].startswith("1 group of equal images stands in several splits")
    assert found.problems()[1].startswith("1 group of images that look alike stands in several splits")
    json.dumps(found.to_json())


def test_a_cameras_jpeg_with_a_preview_behind_it_is_no_mistake(folder: Path) -> None:
    several = photo(505)
    several.save(folder / "train" / "cat" / "camera.jpg", format="MPO", save_all=True, append_images=[photo(506)])
    with Image.open(folder / "train" / "cat" / "camera.jpg") as image:
        assert image.format == "MPO"
    found = check_data(folder)
    assert found.suspicious == ()
    assert found.problems() == []
    assert found.formats == {"JPEG RGB": 1, "PNG RGB": 24}


def test_an_image_with_several_oddities_is_counted_once(folder: Path) -> None:
    Image.new("RGB", (400, 20), (9, 9, 9)).save(folder / "train" / "dog" / "odd.jpg", format="PNG")
    found = check_data(folder)
    assert len(found.suspicious) == 4
    assert found.problems() == ["1 image looks like a mistake"]


def test_a_classifier_doubts_a_wrong_label(tmp_path: Path) -> None:
    root = tmp_path / "colours"
    for name, colour in (("black", 0), ("white", 255)):
        (root / "train" / name).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (32, 32), (abs(colour - 2 * number),) * 3).save(root / "train" / name / f"{number}.png")
    Image.new("RGB", (32, 32), (250,) * 3).save(root / "train" / "black" / "wrong.png")
    model = create_model("vit-mu16-gap", num_classes=2, image_size=32).eval()
    black_and_white = torch.tensor([0.0, 255.0])[:, None, None, None].expand(2, 3, 32, 32)
    with torch.no_grad():
        features = model.features(PHOTOS.normalize(black_and_white))
        direction = features[1] - features[0]
        middle = (features[1] + features[0]) / 2
        model.head.weight[1] = 20 * direction / direction.norm() ** 2
        model.head.bias[1] = -20 * float(middle @ direction) / float(direction.norm() ** 2)
    found = check_data(root, classifier=Classifier(model, PHOTOS.with_size(32), ["black", "white"]))
    assert [(Path(one.name).name, one.label, one.predicted) for one in found.suspects] == [
        ("wrong.png", "black", "white")
    ]


def test_the_command_prints_json_and_writes_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(folder / "train" / "cat" / "0.png", folder / "val" / "dog" / "<b>leak.png")
    page = tmp_path / "check.html"
    assert main(["check", str(folder), "--json", "--report", str(page)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["leaks"] == 1
    html = page.read_text()
    assert "&lt;b&gt;leak.png" in html
    assert "<b>leak.png" not in html
    assert "<script" not in html
    assert main(["check", str(folder)]) == 0
    assert "exact duplicates across splits" in capsys.readouterr().out
    assert main(["check", str(folder), "--strict", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"]
    assert "has something to fix" in err.splitlines()[-1]
    assert main(["check", str(tmp_path / "missing")]) == 1


def test_duplicates_and_doubtful_labels_are_shown_as_images(folder: Path, tmp_path: Path) -> None:
    evil = "שם<script>alert(1)<b>.png"
    shutil.copy(folder / "train/cat/0.png", folder / "val/dog/leak.png")
    shutil.copy(folder / "train/cat/1.png", folder / "train/cat" / evil)
    for number in range(20):
        shutil.copy(folder / "train/dog/2.png", folder / f"train/dog/many{number}.png")
    found = check_data(folder)
    shown = {name for _, name in found.thumbnails}
    assert str(folder / "val/dog/leak.png") in shown
    assert str(folder / "train/cat" / evil) in shown
    assert len(shown) == 2 + 2 + 6
    assert "thumbnails" not in found.to_json()
    write_check_page(found, [], tmp_path / "check.html")
    page = (tmp_path / "check.html").read_text(encoding="utf-8")
    assert page.count("<img") == 1 + len(shown)  # and the contact sheet
    assert "and 9 more" in page  # twelve names of the group of twenty-one
    assert "<script" not in page
    assert "validation, <bdi>dog</bdi>" in page


def test_built_in_sets_are_checked_too(tmp_path: Path) -> None:
    found = check_data("digits")
    assert sum(sum(counts.values()) for counts in found.counts.values()) == 1797
    write_check_page(found, [], tmp_path / "digits.html")
    assert Image.open(io.BytesIO(found.sheet)).size[0] > 500
    model = create_model("vit-mu4", num_classes=10, image_size=32)
    save(Classifier(model, PHOTOS.with_size(32), [str(digit) for digit in range(10)]), tmp_path / "untrained")
    assert main(["check", "digits", "--classifier", str(tmp_path / "untrained"), "--json"]) == 0


def test_a_class_without_a_readable_image_and_cut_lists_are_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train" / "blue").mkdir()
    for number in range(13):
        (folder / "train" / "blue" / f"{number}.png").write_bytes(b"no image")
    assert main(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "No readable image of 1 of the 3 classes: blue." in out
    assert out.count("cannot be read:") == 10
    assert "... and 3 more" in out
    table = "".join(f"train/cat/{number}.png,cat\ntrain/dog/{number}.png,dog\n" for number in range(3))
    (folder / "all.csv").write_text(table + "".join(f"train/red/{number}.png,red\n" for number in range(11)))
    assert main(["check", str(folder / "all.csv")]) == 0
    out = capsys.readouterr().out
    assert "No readable image of 1 of the 3 classes: red." in out
    assert "... and 1 more" in out


def test_formats_are_those_of_the_files_however_the_splits_came_about(folder: Path) -> None:
    shutil.rmtree(folder / "val")
    for name in ("cat", "dog"):
        shutil.move(folder / "train" / name, folder / name)
    (folder / "train").rmdir()
    assert check_data(folder).formats == {"PNG RGB": 12}
    assert set(check_data("digits").formats) == {"pixels"}
    photos, digits = open_data(folder), open_data("digits").splits["train"]
    part = Joined([Subset(source, [len(source) - 1]) for source in photos.splits.values()])
    assert [part.encoded(index) for index in range(len(part))] == [
        Path(part.describe(index)) for index in range(len(part))
    ]
    assert Subset(digits, [0]).encoded(0) is None


def test_an_image_that_cannot_be_read_is_bad_and_its_label_is_not_doubted(folder: Path, tmp_path: Path) -> None:
    model = create_model("vit-mu16-gap", num_classes=2, image_size=32).eval()
    with torch.no_grad():
        model.head.bias[1] = 50.0  # sure that everything is a dog
    save(Classifier(model, PHOTOS.with_size(32), ["cat", "dog"]), tmp_path / "dogs")
    (folder / "train" / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = check_data(folder, classifier=tmp_path / "dogs")
    assert [Path(bad.path).name for bad in found.bad] == ["broken.png"]
    assert found.doubts is not None
    assert found.doubts.images == sum(sum(counts.values()) for counts in found.counts.values()) == 24
    assert "broken.png" not in {Path(one.name).name for one in found.suspects}
