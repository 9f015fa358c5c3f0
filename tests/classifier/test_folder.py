"""A classifier is a folder: what goes in comes out to the bit, whatever happens in between."""

import dataclasses
import importlib
import json
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.cases import every_case
from tests.regions import finding, scene
from vitral import tasks
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import is_classifier, read, save, update_provenance
from vitral.classifier.metadata import Provenance
from vitral.errors import StorageError, WeightsError
from vitral.events import ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.efficientnet import EfficientNetConfig
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.tasks.multi_label import MULTI_LABEL
from vitral.tasks.single_label import SINGLE_LABEL
from vitral.tasks.task import Task

NAMES = ("2", "10", "<b>fox|hen</b>")  # not in the order of the alphabet
ODD = dataclasses.replace(PHOTOS, resize="crop", crop_fraction=0.8, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
BEATEN = {"test/top1": 0.5, "test/baseline_knn": 0.75, "test/images": 200, "test/images_of_baselines": 200}
KNOWN = Provenance("nothing", training={"steps": 3, "of": ["a"]}, scores={"test/top1": 0.5}, notes=("one", "two"))


@pytest.fixture
def classifier(tiny_config: ViTConfig) -> Classifier:
    """A classifier none of whose parts is what it would be if it were left out."""
    model = build(tiny_config, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return Classifier(model, ODD.with_size(16), NAMES, provenance=KNOWN)


def change(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change entries of a folder's description."""
    path = folder / "classifier.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_every_part_comes_back(classifier: Classifier, tmp_path: Path) -> None:
    again = read(save(classifier, tmp_path / "fox"))
    before, after = classifier.model.state_dict(), again.model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert again.model.config == classifier.model.config
    assert again.class_names == NAMES
    assert again.preprocessing == ODD.with_size(16)
    assert again.provenance == KNOWN
    assert not again.training


def test_a_classifier_of_every_task_is_read_back(tiny_config: ViTConfig, tmp_path: Path) -> None:
    modules = [importlib.import_module(f"vitral.tasks.{found.name}") for found in pkgutil.iter_modules(tasks.__path__)]
    known = {value for module in modules for value in vars(module).values() if isinstance(value, Task)}
    assert len(known) > 3
    back = {}
    for task in known:
        model = build(dataclasses.replace(tiny_config, num_classes=task.outputs(len(NAMES))), seed=0)
        folder = save(Classifier(model, ODD.with_size(16), NAMES, task=task), tmp_path / task.name)
        back[task] = vitral.load(folder).task
    assert back == {task: task for task in known}


@every_case(
    ("data", "task"), [("digit-scenes-boxes", "object-detection"), ("digit-scenes-semantic", "image-segmentation")]
)
def test_the_card_of_regions_says_the_hub_s_task_and_a_program_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str, task: str
) -> None:
    folder = save(finding(data), tmp_path / data)
    card = (folder / "README.md").read_text()
    assert f"\npipeline_tag: {task}\n" in card
    Image.fromarray(scene()).save(tmp_path / "photo.png")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(program.replace("path/to/this/folder", str(folder)).replace("photo.jpg", str(tmp_path / "photo.png")))
    [found] = finding(data).find_regions(scene(), listener=ignore)
    assert found.labels
    assert capsys.readouterr().out.strip() == str(found.labels)


def test_what_norms_have_counted_comes_back_too(tmp_path: Path) -> None:
    model = build(EfficientNetConfig(width=0.2, depth=0.3, image_size=(32, 32), num_classes=2), seed=0)
    model.train()(torch.randn(4, 3, 32, 32))  # moves the running means
    before = Classifier(model, PHOTOS.with_size(32))
    again = vitral.load(save(before, tmp_path / "fox"))
    # Tensors rather than probabilities, whose last bit hangs on how a file's tensors lie in memory.
    found, expected = again.model.state_dict(), before.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert again.class_names == ("class 0", "class 1")


def test_the_users_own_files_stay_and_the_others_are_replaced(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "fox")
    (folder / "notes.txt").write_text("mine")
    classifier.class_names = ("a", "b", "c")
    assert save(classifier, folder) == folder
    assert read(folder).class_names == ("a", "b", "c")
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fox"]


def test_a_network_that_trains_is_saved_as_it_is_and_goes_on(classifier: Classifier, tmp_path: Path) -> None:
    classifier.train()
    save(classifier, tmp_path / "fox")
    assert classifier.training
    assert classifier.model.training


def test_scores_are_added_without_touching_the_weights(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "fox")
    weights = (folder / "weights.safetensors").stat()
    classifier.provenance = Provenance("nothing", scores={"test/top1": 0.75})
    update_provenance(classifier, folder)
    assert read(folder).provenance == classifier.provenance
    assert "| test/top1 | 0.7500 |" in (folder / "README.md").read_text()
    assert "# fox" in (folder / "README.md").read_text()
    after = (folder / "weights.safetensors").stat()
    assert (after.st_mtime_ns, after.st_ino) == (weights.st_mtime_ns, weights.st_ino)
    with pytest.raises(WeightsError, match="cannot be read"):
        update_provenance(classifier, tmp_path / "nowhere")


def test_a_folder_is_one_by_its_description_alone(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "fox")
    assert is_classifier(folder)
    assert not is_classifier(tmp_path)
    assert not is_classifier(tmp_path / "missing")
    (tmp_path / "odd" / "classifier.json").mkdir(parents=True)
    assert not is_classifier(tmp_path / "odd")


def as_0_2_wrote_it(folder: Path, entries: dict[str, bool]) -> None:
    path = folder / "classifier.json"
    described = json.loads(path.read_text())
    del described["task"]
    path.write_text(json.dumps({**described, "version": 1, **entries}))


@pytest.mark.parametrize(
    ("entries", "task"),
    [({}, SINGLE_LABEL), ({"multi_label": False}, SINGLE_LABEL), ({"multi_label": True}, MULTI_LABEL)],
)
def test_a_folder_of_0_2_gives_the_probabilities_that_it_gave(
    classifier: Classifier, tmp_path: Path, entries: dict[str, bool], task: Task
) -> None:
    folder = save(classifier, tmp_path / "fox")
    as_0_2_wrote_it(folder, entries)
    logits = classifier(torch.randn(2, 3, 16, 16))
    expected = logits.sigmoid() if entries.get("multi_label") else logits.softmax(dim=1)
    old = read(folder)
    assert old.task == task
    torch.testing.assert_close(old.to_probabilities(logits), expected)


@pytest.mark.parametrize(("task", "version"), [(SINGLE_LABEL, 1), (MULTI_LABEL, 2)])
def test_a_task_that_0_2_would_not_know_is_of_a_version_that_it_refuses(
    classifier: Classifier, tmp_path: Path, task: Task, version: int
) -> None:
    classifier.task = task
    described = json.loads((save(classifier, tmp_path / "fox") / "classifier.json").read_text())
    assert (described["task"], described["version"]) == (task.name, version)
    assert read(tmp_path / "fox").task == task


@every_case(
    ("changes", "said"),
    [
        ({"format": "other"}, "does not describe a Vitral classifier"),
        ({"version": 4}, "has format version 4, and this Vitral reads up to 3; update Vitral"),
        ({"task": "counting"}, "no task 'counting', only single-label, multi-label"),
        ({"task": None}, "its task is no name"),
        ({"weights_sha256": "0" * 64}, "damaged or of another classifier"),
        ({"class_names": ["a", "b"]}, "3 classes, but 2 names"),
        ({"class_names": "abc"}, "class_names are no list of names"),
        ({"provenance": {"secret": 1}}, "other entries than source, training, scores, notes"),
        ({"provenance": {"scores": {"test/top1": "high"}}}, "an entry of the wrong type, 'scores'"),
        ({"preprocessing": None}, "cannot be used: .*reprocessing"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(
    classifier: Classifier, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    folder = save(classifier, tmp_path / "fox")
    change(folder, changes)
    with pytest.raises(WeightsError, match=said) as refused:
        read(folder)
    assert str(folder) in str(refused.value)


@pytest.mark.parametrize("entry", ["architecture", "preprocessing", "class_names", "weights_sha256", "provenance"])
def test_a_missing_entry_is_named(classifier: Classifier, tmp_path: Path, entry: str) -> None:
    path = save(classifier, tmp_path / "fox") / "classifier.json"
    described = json.loads(path.read_text())
    del described[entry]
    path.write_text(json.dumps(described))
    with pytest.raises(WeightsError, match=f"lacks the entry '{entry}'"):
        read(path.parent)


def test_an_interrupted_save_leaves_the_older_folder(classifier: Classifier, tmp_path: Path) -> None:
    folder = save(classifier, tmp_path / "fox")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    classifier.provenance = Provenance(training={"x": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        save(classifier, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["fox"]


def test_a_file_in_the_way_is_left_alone(classifier: Classifier, tmp_path: Path) -> None:
    (tmp_path / "fox").write_text("mine")
    with pytest.raises(StorageError, match="fox"):
        save(classifier, tmp_path / "fox")
    assert (tmp_path / "fox").read_text() == "mine"


def test_the_card_says_all_that_the_folder_says(classifier: Classifier, tmp_path: Path) -> None:
    card = (save(classifier, tmp_path / "fox") / "README.md").read_text()
    parameters = sum(parameter.numel() for parameter in classifier.model.parameters())
    assert card.startswith("---\nlibrary_name: vitral\npipeline_tag: image-classification\n")
    assert f"{parameters:,} parameters, images of 16x16 pixels, 3 classes. Started from nothing." in card
    assert "\n0. 2\n1. 10\n2. \\<b\\>fox\\|hen\\</b\\>\n" in card
    assert "| test/top1 | 0.5000 |" in card
    blocks = [json.loads(block.partition("```")[0]) for block in card.split("```json\n")[1:]]
    assert blocks == [json.loads(json.dumps(ODD.with_size(16).to_json())), {"steps": 3, "of": ["a"]}]


@pytest.mark.parametrize(
    ("provenance", "said"),
    [
        (Provenance(), "> **The weights are random"),
        (Provenance("x", scores=BEATEN), "> **Worse than a simple"),
        (Provenance("x", scores=BEATEN), "| test/images | 200 |"),
    ],
)
def test_the_card_says_what_is_to_be_doubted(
    classifier: Classifier, tmp_path: Path, provenance: Provenance, said: str
) -> None:
    classifier.provenance = provenance
    card = (save(classifier, tmp_path / "fox") / "README.md").read_text()
    assert said in card
    classifier.provenance = KNOWN
    assert "> **" not in (save(classifier, tmp_path / "hen") / "README.md").read_text()
