"""Networks that learn regions go the way of all others: from a name to scores, a folder and an answer, in the same bits."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitral
from tests.cases import every_case
from tests.regions import FEW
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.data.subset import Subset
from vitral.errors import DataError
from vitral.evaluation.compare import compare
from vitral.evaluation.compare_regions import RegionComparison
from vitral.evaluation.evaluate import evaluate
from vitral.events import ignore
from vitral.files import sha256
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import HEADS, DenseConfig, DenseModel
from vitral.models.dense.ridge import RidgeHead
from vitral.models.families import build
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.regions import Regions
from vitral.tasks.registry import task_named

TINY = ("--from", "vit-nano4", "--set", "image_size=32", "--set", "batch_size=8", "--no-baselines")


def trained(data: str, run: Path, steps: int, *more: str) -> int:
    return main(["finetune", "--data", data, "--out", str(run), *TINY, "--set", f"steps={steps}", *more])


@pytest.mark.usefixtures("few_scenes")
def test_from_a_name_to_what_is_in_a_photo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert trained("digit-scenes-semantic", run, 60) == 0
    assert "Mean IoU" in capsys.readouterr().out
    classifier = load(run)
    described = json.loads((run / "classifier" / "classifier.json").read_text())
    assert (described["version"], described["task"]) == (3, "semantic")
    data = open_data("digit-scenes-semantic")
    scores = evaluate(classifier, data, listener=ignore)
    assert classifier.provenance.scores["test/miou"] == pytest.approx(scores.headline())
    ground = dict(zip(scores.class_names, scores.to_json()["iou"], strict=True))["background"]
    assert ground > 0.8  # what is no digit is easily learned; a network that answers by chance has a tenth of it
    found = classifier.find_regions(data.splits["test"].image(0), listener=ignore)[0]
    assert found.class_map is not None
    assert found.class_map.shape == (96, 96)
    out = tmp_path / "found"
    photo = tmp_path / "scene.png"
    Image.fromarray(data.splits["test"].image(0)).save(photo)
    assert main(["predict", str(photo), "--classifier", str(run), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"predictions.json", "counts.csv", "labels", "overlays"}
    labels = np.asarray(Image.open(out / "labels" / "scene.png"))
    assert np.array_equal(labels, found.class_map)
    capsys.readouterr()
    assert main(["status", str(run)]) == 0
    assert f"mean IoU {scores.headline():.1%}" in capsys.readouterr().out


@pytest.mark.usefixtures("few_scenes")
def test_what_the_last_validation_tells_decides_from_where_on_things_are_shown(tmp_path: Path) -> None:
    assert trained("digit-scenes-boxes", tmp_path / "run", 2) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = [row["validation/threshold"] for row in rows if "validation/threshold" in row]
    calibration = load(tmp_path / "run").calibration
    assert calibration is not None
    assert (calibration.threshold, calibration.images) == (told[-1], FEW["validation"])


@pytest.mark.long
def test_training_begins_as_what_is_fitted_on_filters_though_a_start_s_maps_are_better(tmp_path: Path) -> None:
    data, run = "digit-scenes-semantic", tmp_path / "run"
    network = vitral.create_model("vit-nano4", num_classes=3, image_size=32, seed=0)
    start = save(Classifier(network, PHOTOS.with_size((32, 32)), ("a", "b", "c")), tmp_path / "start")
    settings = ("image_size=32", "batch_size=8", "steps=1", "optimizer.lr=1e-9")
    changes = [part for setting in settings for part in ("--set", setting)]
    assert main(["finetune", "--data", data, "--out", str(run), "--from", str(start), *changes]) == 0
    fitted, best = (load(run / folder).model for folder in ("first-probe", "first"))
    assert isinstance(fitted, DenseModel)
    assert isinstance(best, DenseModel)
    assert isinstance(fitted.head, RidgeHead)
    assert isinstance(best.head, RidgeHead)
    assert (fitted.head.project is None, best.head.project is None) == (True, False)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    reached = [row["validation/miou"] for row in rows if "validation/miou" in row][-1]
    opened = open_data(data)
    validation = replace(opened, splits={"test": opened.splits["validation"]})
    expected = evaluate(load(run / "first-probe"), validation, listener=ignore).headline()
    assert reached == pytest.approx(expected, abs=0.005)


@every_case(
    "change", ["mixing.mixup=0.2", "evaluation.few_shot=[5]", "sampling=class-balanced", "method.name=noisy-student"]
)
def test_what_is_about_images_as_a_whole_is_refused_in_one_line(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained("digit-scenes-semantic", tmp_path / "run", 2, "--set", change) != 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("vitral: ")]
    assert "Traceback" not in line


def test_two_networks_of_regions_are_compared_on_the_same_photos(tmp_path: Path) -> None:
    data = open_data("digit-scenes-semantic")
    few = replace(data, splits={"test": Subset(data.splits["test"], range(12))})

    def classifier(seed: int) -> Classifier:
        config = DenseConfig(
            backbone=variant("vit-nano4"), head=HEADS["linear"][0](), num_classes=11, image_size=(32, 32)
        )
        return Classifier(build(config, seed=seed), PHOTOS.with_size((32, 32)), data.class_names, task=data.task)

    same = compare(classifier(1), classifier(1), few, listener=ignore)
    assert isinstance(same, RegionComparison)
    assert (same.difference.difference, same.difference.verdict, same.images) == (0.0, "not decided", 12)
    other = compare(classifier(1), classifier(2), few, listener=ignore)
    assert isinstance(other, RegionComparison)
    assert other.difference.difference == pytest.approx(other.figures[0] - other.figures[1])
    objects = Classifier(
        classifier(1).model, PHOTOS.with_size((32, 32)), data.class_names, task=task_named("instances")
    )
    with pytest.raises(DataError, match="different tasks or classes"):
        compare(classifier(1), objects, few, listener=ignore)


@every_case("kind", list(HEADS))
def test_every_head_is_saved_and_read_in_the_same_bits(kind: str, tmp_path: Path) -> None:
    head = HEADS[kind][0]()
    model = build(DenseConfig(backbone=variant("vit-nano4"), head=head, num_classes=3, image_size=(32, 32)), seed=1)
    name = {"points": "boxes", "queries": "panoptic", "rims": "instances"}.get(kind, "semantic")
    task = Panoptic(things=(1,)) if name == "panoptic" else task_named(name)
    classifier = Classifier(model, PHOTOS.with_size((32, 32)), ("a", "b", "c"), task=task)
    folder = save(classifier, tmp_path / kind)
    again = load(folder)
    assert again.task == task
    assert again.model.config == model.config
    photo = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    first, second = (each.find_regions(photo, listener=ignore)[0].to_json() for each in (classifier, again))
    assert first == second
    assert sha256(save(again, tmp_path / "again") / "weights.safetensors") == sha256(folder / "weights.safetensors")


@every_case("name", ["digit-scenes", "digit-scenes-semantic", "digit-scenes-boxes", "digit-scenes-panoptic"])
def test_scenes_are_marked_exactly(name: str) -> None:
    data = open_data(name)
    source = data.splits["train"]
    label, pixels = source.label(3), source.image(3)
    assert isinstance(label, Regions)
    assert label.size == pixels.shape[:2] == (96, 96)
    if label.masks is None:
        return
    covered = label.bitmaps().sum(axis=0)
    assert covered.max() == 1  # what is in front hides what is behind
    bright = pixels[..., 0].astype(float)
    digits = [number for number, each in enumerate(label.classes.tolist()) if data.class_names[each] != "background"]
    for mask in label.bitmaps()[digits]:
        assert bright[mask].mean() > 120
