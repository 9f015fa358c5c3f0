"""Whatever names a classifier is loaded as one, at the size asked for, or refused in a line that helps."""

from pathlib import Path

import pytest
import torch

import vitral
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.load import as_classifier, load
from vitral.errors import ModelError, WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit import ViT
from vitral.models.vit_config import ViTConfig

NAMES = ("10", "2", "fox")


@pytest.fixture
def saved(tiny_config: ViTConfig, tmp_path: Path) -> Path:
    """A folder of a classifier of three classes and 16 pixels."""
    return save(Classifier(build(tiny_config, seed=0), PHOTOS.with_size(16), NAMES), tmp_path / "run" / "classifier")


def test_a_folder_and_the_run_around_it_are_the_same_classifier(saved: Path) -> None:
    for source in (saved, str(saved), saved.parent, f"{saved.parent}/"):
        loaded = load(source)
        assert loaded.class_names == NAMES
        assert not loaded.training


@pytest.mark.parametrize(("size", "expected"), [(32, (32, 32)), ((16, 32), (16, 32)), (None, (16, 16))])
def test_network_and_preprocessing_have_the_size_asked_for(
    saved: Path, size: int | tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    loaded = load(saved, image_size=size)
    assert loaded.model.image_size == loaded.preprocessing.image_size == loaded.predictor.image_size == expected
    assert loaded.probabilities(torch.zeros(1, 3, *expected)).shape == (1, 3)
    assert loaded.preprocessing.with_size((16, 16)) == PHOTOS.with_size(16)


def test_a_size_that_the_network_cannot_take_is_refused(saved: Path) -> None:
    with pytest.raises(ModelError, match="18"):
        load(saved, image_size=18)


def test_a_name_gives_random_weights_and_says_so() -> None:
    loaded = load("vit-mu16")
    assert loaded.provenance.source == "random weights (vit-mu16)"
    assert loaded.provenance.notes == (loaded.doubt(),)
    assert loaded.doubt().startswith("The weights are random")
    assert loaded.class_names[:2] == ("class 0", "class 1")
    assert loaded.preprocessing == PHOTOS.with_size(loaded.model.image_size)


def test_fields_of_the_architecture_are_changed_where_nothing_else_says_them(saved: Path) -> None:
    changed = load("vit-mu16", architecture={"depth": 1, "registers": 2})
    assert isinstance(changed.model, ViT)
    assert (changed.model.config.depth, changed.model.config.registers) == (1, 2)
    for source in (saved, saved.parent):
        with pytest.raises(WeightsError, match="says its own architecture"):
            load(source, architecture={"depth": 1})
    with pytest.raises(ModelError, match="Did you mean 'depth'"):
        load("vit-mu16", architecture={"dept": 1})


def test_a_classifier_is_taken_as_it_is(saved: Path) -> None:
    loaded = load(saved)
    assert as_classifier(loaded) is loaded
    assert as_classifier(saved).class_names == NAMES


def test_weights_alone_in_a_folder_are_loaded_and_two_are_not_guessed_between(tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "one" / "ViT.npz", format="original", image_size=32)
    for source in (written.path, written.path.parent):
        loaded = load(source)
        assert loaded.model.image_size == (32, 32)
        assert "ViT.npz" in loaded.provenance.source
    (tmp_path / "one" / "other.npz").write_bytes(written.path.read_bytes())
    with pytest.raises(WeightsError, match=r"no classifier\.json, and no single weights file; .*ViT\.npz, other\.npz"):
        load(tmp_path / "one")


def test_a_run_without_a_classifier_is_called_so_and_how_to_continue_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"made no classifier yet; `vitral\.finetune\(resume=True, out='.*'\)`"):
        load(tmp_path)
    with pytest.raises(ModelError, match="not '32'"):
        load("vit-mu16", image_size="32")  # type: ignore[arg-type]


def test_a_folder_of_one_checkpoint_is_read_whatever_its_ending_and_whatever_a_training_left_beside_it(
    tmp_path: Path,
) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "ViT.pth", format="timm", image_size=32)
    for name in ("best.pt", "model_best.pth.tar", "pytorch_model_fsdp.bin"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(written.path.read_bytes())
        for beside in ("optimizer.pt", "training_args.bin", "rng_state.pth"):
            (folder / beside).write_bytes(b"")
        assert load(folder).model.image_size == (32, 32)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vit-b61", "Did you mean 'vit-b16'"),
        ("nothing", "no file, no classifier folder, no model name and no Hub id"),
        ("./nothing", "There is no file or folder './nothing'"),
        ("run/clasifier", r"no file or folder 'run/clasifier'; for a Hub id write hf:run/clasifier\. Did you mean"),
        ("weights.npz", "no file, no classifier folder"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest_name(
    saved: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.chdir(saved.parents[1])
    with pytest.raises(WeightsError, match=said):
        load(name)


def test_a_network_that_is_no_longer_listed_opens_from_its_folder(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="It is 'vit-mu16-gap' with patch_size=32"):
        vitral.load("vit-mu32-gap")
    unlisted = vitral.create_model("vit-mu16-gap", patch_size=32, num_classes=3)
    save(Classifier(unlisted, PHOTOS, NAMES), tmp_path / "one")
    again = vitral.load(tmp_path / "one")
    assert again.model.config == unlisted.config
    assert "vit-mu16-gap with patch_size 32x32" in (tmp_path / "one" / "README.md").read_text()
