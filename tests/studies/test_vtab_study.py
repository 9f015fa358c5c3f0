"""A network on VTAB-1k: what is scored, what is missing, and the table beside the published numbers."""

import json
import math
import statistics
import sys
from pathlib import Path

import pytest
import torch

import vitral
from tests.data.vtab.test_tasks import ROWS, written
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.data.open import open_data
from vitral.data.vtab.task_data import Spec, task_named
from vitral.data.vtab.tasks import TASKS
from vitral.errors import DataError, StorageError, StudyError
from vitral.evaluation.probes import fit_probe
from vitral.events import Event, Message
from vitral.models.families import build, configure
from vitral.report.vtab import PUBLISHED, TaskScore, VtabTable, unscored
from vitral.studies.vtab_study import SharedNetwork, paper_work
from vitral.training.request import Request
from vitral.training.settings.recipe import load_recipe

NETWORK = "vit-mu4"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the datasets of clevr, dmlab and smallnorb, and a damaged one of kitti."""
    folder = tmp_path_factory.mktemp("vtab")
    for row in ROWS:
        if row[0] in ("clevr-count", "dmlab", "smallnorb-azimuth", "kitti-distance"):
            written(folder, row)
    (folder / "kitti" / "3.1.0" / "kitti-validation.tfrecord-00000-of-00002").unlink()
    return folder


def test_a_task_is_scored_by_the_probe_on_a_thousand_images(root: Path, tmp_path: Path) -> None:
    table = vitral.vtab(NETWORK, root, tasks="smallnorb-azimuth", out=tmp_path / "out", test_images=50)
    (score,) = table.scores
    assert score.images == 50
    data = open_data(f"vtab:{root}:smallnorb-azimuth:train800val200")
    classifier = vitral.load(NETWORK)

    def features(split: str, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        source = data.splits[split]
        images = torch.stack([classifier.preprocessing(source.image(index)) for index in indices])
        return classifier.predictor.features(images), torch.tensor([source.label(index) for index in indices])

    train, labels = features("train", list(range(1_000)))
    test, truth = features("test", [int(205 * number / 49) for number in range(50)])
    exact = fit_probe(train, labels, classes=18).accuracy(test, truth)
    assert score.accuracies[0] == pytest.approx(exact, abs=0.06)  # the product computes in bfloat16
    assert score.text() == f"{100 * score.accuracies[0]:.1f}"


def test_opening_a_test_split_is_logged_in_the_run(root: Path, tmp_path: Path) -> None:
    save(vitral.load(NETWORK), tmp_path / "run/classifier")
    (tmp_path / "run/run.json").write_text("{}")
    vitral.vtab(tmp_path / "run", root, tasks="dmlab,clevr-count", out=tmp_path / "out", test_images=20)
    looks = json.loads((tmp_path / "run/run.json").read_text())["test_opened"]
    assert {(look["by"], look["data"]) for look in looks} == {("vtab", "vtab-dmlab"), ("vtab", "vtab-clevr-count")}
    assert all(0 < look["images"] <= 20 for look in looks)


def test_files_that_are_there_and_cannot_be_read_in_order_are_explained(tmp_path: Path) -> None:
    archive = tmp_path / "caltech101" / "caltech-101" / "101_ObjectCategories.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.touch()
    with pytest.raises(StudyError, match="which 30 images a class TFDS trains on depends on the order"):
        vitral.vtab(NETWORK, tmp_path, tasks="caltech101", out=tmp_path / "out")


def test_the_package_that_reads_what_is_there_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLEVR_v1.0", "dsprites_.hdf5"):
        (tmp_path / name.partition("_")[0].lower() / name).mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "vitral_vtab", None)  # as where it is not installed
    with pytest.raises(StudyError, match=r"\(clevr, dsprites\)") as caught:
        vitral.vtab(NETWORK, tmp_path, out=tmp_path / "out")
    assert str(caught.value).count("package vitral-vtab") == 1


def test_a_missing_or_damaged_dataset_does_not_stop_the_others(root: Path, tmp_path: Path) -> None:
    said: list[Event] = []
    out = tmp_path / "out"
    asked = {"tasks": ["kitti-distance", "pets", "dmlab"], "out": out}
    table = vitral.vtab(NETWORK, root, **asked, listener=said.append)  # type: ignore[arg-type]
    lines = [event.text for event in said if isinstance(event, Message)]
    assert any(line.startswith("No images of 1 task in") and line.endswith(": pets.") for line in lines)
    assert f"'{NETWORK}' has random weights" in " ".join(lines)
    scores = {score.name: score for score in table.scores}
    assert scores["dmlab"].accuracies
    assert not scores["pets"].accuracies
    assert "lacks 1 of the 2 files of validation" in scores["kitti-distance"].problem
    assert scores["pets"].problem == "its images are not there."
    text = (out / "vtab.md").read_text()
    assert "| DMLab | " in text
    assert "dmlab: official images, from TFDS dmlab 2.0.1." in text
    assert json.loads((out / "vtab.json").read_text())["scores"][0]["name"] == "pets"


def test_what_was_scored_is_not_scored_again(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    vitral.vtab(NETWORK, root, tasks="dmlab", out=out)
    row = out / "cells" / "dmlab" / "row.json"
    before = row.read_bytes()
    table = vitral.vtab(NETWORK, root, tasks="dmlab,clevr-count", out=out)
    assert row.read_bytes() == before
    assert [score.name for score in table.scores if score.accuracies] == ["clevr-count", "dmlab"]
    with pytest.raises(StudyError, match="began with another 'dmlab'"):
        vitral.vtab(NETWORK, root, tasks="dmlab", out=out, test_images=3)


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"tasks": "dmlabs"}, DataError, r"VTAB has no task 'dmlabs'.*Did you mean 'dmlab'"),
        ({"tasks": "pets"}, StudyError, "has no dataset of pets: none as TFDS prepares it"),
        ({"runs": 3}, StudyError, "has no random choice: one run is all"),
        ({"runs": 0, "protocol": "paper"}, StudyError, "at least one run, and on at least one image"),
        ({"test_images": 0}, StudyError, "at least one run, and on at least one image"),
        ({"test_images": -3}, StudyError, "at least one run, and on at least one image"),
        ({"data": "nowhere"}, StudyError, "There is no folder 'nowhere'; name the one with VTAB's datasets by `data`"),
    ],
)
def test_what_cannot_be_done_is_told_first(
    root: Path, tmp_path: Path, asked: dict[str, object], error: type[Exception], said: str
) -> None:
    given = {"data": root, "out": tmp_path / "out", **asked}
    with pytest.raises(error, match=said):
        vitral.vtab(NETWORK, **given)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_left_alone(root: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"holds something else \('thesis\.txt'\)"):
        vitral.vtab(NETWORK, root, tasks="dmlab", out=tmp_path)
    (tmp_path / "thesis.txt").rename(tmp_path / "vtab.md")
    with pytest.raises(StorageError, match="already exists"):
        vitral.vtab(NETWORK, root, tasks="dmlab", out=tmp_path)
    assert (tmp_path / "vtab.md").read_text() == "mine"


def test_the_command_prints_the_table(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["vtab", NETWORK, "--data", str(root), "--tasks", "dmlab", "--out", str(tmp_path / "out")]
    assert main([*command, "--test-images", "all"]) == 0
    out = capsys.readouterr().out
    assert f"{NETWORK}: 1 of VTAB-1k's 19 tasks, light protocol" in out
    assert "DMLab" in out
    assert "41.9" in out
    assert main([*command, "--test-images", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["means"]["structured"] is None


def test_the_published_columns_have_the_published_means() -> None:
    groups = {
        "natural": (86.69, 85.56, 83.27),
        "specialised": (87.00, 86.72, 84.65),
        "structured": (65.03, 62.96, 57.50),
    }
    for group, expected in groups.items():
        numbers = [number for number, task in enumerate(TASKS) if task.group == group]
        means = [statistics.fmean(row[number] for number in numbers) for row in PUBLISHED.values()]
        assert means == pytest.approx(expected, abs=0.006)
    assert [round(statistics.fmean(row), 1) for row in PUBLISHED.values()] == [77.6, 76.3, 72.7]


def test_a_mean_is_given_only_of_all_of_a_groups_tasks() -> None:
    scores = [TaskScore(one.name, one.title, one.group, (0.5, 0.7)) for one in unscored([task.name for task in TASKS])]
    whole = VtabTable("x", "paper", tuple(scores))
    assert whole.mean() == pytest.approx(0.6)
    assert scores[0].text() == "60.0 ± 14.1"
    part = VtabTable("x", "paper", tuple(scores[1:]))
    assert math.isnan(part.mean("natural"))
    assert part.mean("structured") == pytest.approx(0.6)
    assert math.isnan(part.mean())


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("pets", ()),
        ("dsprites-orientation", ("augmentation.flip=false",)),
        ("kitti-distance", ('augmentation.crop="none"',)),
        ("dsprites-location", ("augmentation.flip=false", 'augmentation.crop="none"')),
    ],
)
def test_the_papers_protocol_is_its_recipe_on_all_thousand_images(
    root: Path, task: str, changes: tuple[str, ...]
) -> None:
    work = paper_work(SharedNetwork(NETWORK), Spec(root, task_named(task), both=True))
    assert work.request == Request(
        "fine-tune",
        f"vtab:{root}:{task}:train800val200",
        NETWORK,
        recipe="finetune-vtab",
        overrides=changes,
        baselines=False,
    )
    recipe = load_recipe("finetune-vtab", changes)
    assert (recipe.steps, recipe.batch_size, recipe.optimizer.lr, recipe.image_size) == (2_500, 512, 0.01, 384)


def test_other_weights_under_the_same_name_are_another_study(root: Path, tmp_path: Path) -> None:
    network, out = tmp_path / "network", tmp_path / "out"
    for seed in (0, 1):
        model = build(configure(NETWORK, {"num_classes": 2}), seed=seed)
        preprocessing = vitral.load(NETWORK).preprocessing
        save(Classifier(model, preprocessing, ("a", "b")), network)
        if not seed:
            vitral.vtab(network, root, tasks="dmlab", out=out)
    with pytest.raises(StudyError, match="began with another 'dmlab'"):
        vitral.vtab(network, root, tasks="dmlab", out=out)


def test_fewer_images_than_vtab_has_are_told(root: Path, tmp_path: Path) -> None:
    table = vitral.vtab(NETWORK, root, tasks="dmlab,smallnorb-azimuth", out=tmp_path / "out", test_images=100)
    told = [line for line in table.remarks() if "VTAB has" in line]
    assert len(told) == 1
    assert all(fact in told[0] for fact in ("dmlab", "6 images", "22,735")), told
