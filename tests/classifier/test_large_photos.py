"""JPEGs of more pixels than are decoded at once: what is marked and found in them stays in pixels of the whole photo."""

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from tests.regions import DRAWN, finding, scene
from vitral.checks.check_data import check_data
from vitral.classifier.find_regions import find_in
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.evaluation.region_baselines import score_region_baselines
from vitral.evaluation.region_scores import tally_source
from vitral.events import ignore
from vitral.images.photo import Photo
from vitral.serving.served import find_together, prepare_photo
from vitral.tasks.dense import dense_task
from vitral.tasks.regions import FoundRegions, Regions

HEIGHT, WIDTH = 180, 240
SCENES = dict(list(drawn.SCENES.items())[:12])


@pytest.fixture(autouse=True)
def _halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let photos of the sizes here be decoded at half of their sides."""
    monkeypatch.setenv("VITRAL_MAX_PIXELS", str(12_000))


def _jpeg(path: Path, height: int, width: int) -> Path:
    Image.fromarray(scene(0, height, width)).save(path, quality=95)
    return path


@every_case("name", DRAWN)
@every_case(("height", "width"), [(144, 192), (70, 280)])
def test_regions_are_in_pixels_of_the_file(tmp_path: Path, name: str, height: int, width: int) -> None:
    classifier, path = finding(name), _jpeg(tmp_path / "a.jpg", height, width)
    found = classifier.find_regions(path, listener=ignore)[0]
    assert found.size == (height, width)
    assert found.pixels is not None
    assert found.pixels().shape[:2] == (height // 2, width // 2)
    assert found.overlay().size > 0
    if name == "digit-scenes-boxes":  # what is found in the small photo, twice as large
        small = find_in(classifier, Photo(found.pixels(), (height // 2, width // 2)))
        large = find_in(classifier, Photo(found.pixels(), (height, width)))
        assert large.regions.boxes == pytest.approx(2 * small.regions.boxes, abs=1e-6)
        assert large.regions.boxes[:, 2].max() > width // 2
    if found.class_map is not None:
        assert found.class_map.shape == (height, width)


@every_case("name", DRAWN)
@every_case(("height", "width"), [(144, 192), (70, 280)])
def test_a_server_answers_in_the_same_pixels(tmp_path: Path, name: str, height: int, width: int) -> None:
    classifier, content = finding(name), _jpeg(tmp_path / "a.jpg", height, width).read_bytes()
    own = classifier.find_regions(content, listener=ignore)[0]
    (answer,) = find_together(classifier, [prepare_photo(classifier, content)])
    assert isinstance(answer, FoundRegions)
    assert answer.regions.size == own.size == (height, width)


def _marked(folder: Path) -> Path:
    """Write photos of rectangles, enlarged to what is decoded at half its sides, with their outlines."""
    factor = HEIGHT // drawn.HEIGHT
    scenes = {
        name: [(kind, *(factor * side for side in sides)) for kind, *sides in boxes] for name, boxes in SCENES.items()
    }
    for name, boxes in scenes.items():
        drawn.draw(folder / f"{name}.jpg", boxes, size=(HEIGHT, WIDTH))  # type: ignore[arg-type]
    values = drawn.coco(scenes, masks=True, suffix=".jpg")  # type: ignore[arg-type]
    for image in values["images"]:
        image["height"], image["width"] = HEIGHT, WIDTH
    (folder / "marks.json").write_text(json.dumps(values))
    return folder


@every_case("prefix", ["instances", "semantic"])
def test_they_are_scored_beside_simple_rules_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    spec, pixels = f"{prefix}:{_marked(tmp_path)}", prefix == "semantic"
    data = open_data(spec)
    source = data.splits["train"]
    truth = source.label(0)
    assert isinstance(truth, Regions)
    assert (source.image(0).shape[:2], truth.size) == ((HEIGHT // 2, WIDTH // 2), (HEIGHT, WIDTH))
    classifier = finding("digit-scenes" if not pixels else "digit-scenes-semantic")
    tally_source(classifier, source).figures()
    assert check_data(spec, listener=ignore).sheet
    scores = score_region_baselines(dense_task(data.task), data, pixels=pixels, seconds=60)
    assert max(scores.values()) > 0.1
    if pixels:  # with objects it matters that there is less noise in the small photo
        monkeypatch.delenv("VITRAL_MAX_PIXELS")
        assert scores == pytest.approx(
            score_region_baselines(dense_task(data.task), data, pixels=True, seconds=60), abs=0.05
        )


def test_a_network_learns_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("--from", "vit-nano4", "--set", "image_size=32", "--set", "batch_size=4", "--set", "steps=2")
    run = tmp_path / "run"
    assert main(["finetune", str(_marked(tmp_path / "photos")), "--out", str(run), *tiny]) == 0, capsys.readouterr().err
    assert (run / "report.html").is_file()


def test_predictions_are_files_of_the_whole_size(tmp_path: Path) -> None:
    save(finding("digit-scenes"), tmp_path / "classifier")
    photo = _jpeg(tmp_path / "a.jpg", 144, 192)
    out = tmp_path / "found"
    assert main(["predict", str(photo), "--classifier", str(tmp_path / "classifier"), "--out", str(out)]) == 0
    written = json.loads((out / "predictions.json").read_text())
    assert (written["images"][0]["height"], written["images"][0]["width"]) == (144, 192)
    with Image.open(out / "instances" / "a.png") as numbers:
        assert numbers.size == (192, 144)
