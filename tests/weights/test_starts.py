"""The families of published starts through their files and back, without the libraries that publish them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitral
from tests.models.test_contract import images, make
from vitral.errors import WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.weights.save import write_weights

NAMES = ("ape", "bee", "cat")
# What a file of a small network does not tell.
UNSAID: dict[tuple[str, str], dict[str, Any]] = {
    ("dinov2", "original"): {"num_heads": 2},
    ("dinov2-registers", "original"): {"num_heads": 2},
    ("dinov2", "timm"): {},
    ("dinov2-registers", "timm"): {},
    ("dinov2-classifier", "transformers"): {},
    ("dinov2-registers", "transformers"): {"pooling": "token"},
}


def written(name: str, format_name: str, folder: Path) -> tuple[Any, Path]:
    model = make(name)
    target = {"transformers": "folder", "timm": "weights.safetensors"}.get(format_name, "weights.pth")
    return model, write_weights(model, PHOTOS.with_size(32), NAMES, folder / target, format_name).path


@pytest.mark.parametrize(("name", "format_name"), UNSAID)
def test_what_is_written_gives_the_same_logits_when_read(name: str, format_name: str, tmp_path: Path) -> None:
    model, path = written(name, format_name, tmp_path)
    unsaid = {key: value for key, value in UNSAID[name, format_name].items() if key != "pooling"}
    back = vitral.load(path, architecture=unsaid)
    batch = images(model)
    with torch.inference_mode():
        torch.testing.assert_close(back(batch), model(batch), atol=1e-5, rtol=1e-5)
    ours, theirs = model.state_dict(), back.model.state_dict()
    same = [key for key in ours if ours[key].shape == theirs[key].shape]
    assert all(torch.equal(ours[key], theirs[key]) for key in same)
    assert set(ours) - set(same) <= {"head.weight"}


@pytest.mark.parametrize(("name", "format_name"), UNSAID)
@pytest.mark.parametrize("damage", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_belong_is_named(name: str, format_name: str, damage: str, tmp_path: Path) -> None:
    _, path = written(name, format_name, tmp_path)
    file = path / "model.safetensors" if path.is_dir() else path
    torch_file = file.suffix == ".pth"
    tensors = torch.load(file, weights_only=True) if torch_file else load_file(file)
    key = sorted(key for key in tensors if "norm2" in key)[0]
    if damage == "missing":
        del tensors[key]
    elif damage == "extra":
        tensors[f"{key}_more"] = tensors[key] + 1
    else:
        tensors[key] = tensors[key][..., :-1].clone()
    torch.save(tensors, file) if torch_file else save_file(tensors, file)
    with pytest.raises(WeightsError, match=key) as refused:
        vitral.load(path, architecture={"num_heads": 2})
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_dinov2s_own_files_hold_what_its_code_asks_for(tmp_path: Path) -> None:
    model, path = written("dinov2-registers", "original", tmp_path)
    tensors = torch.load(path, weights_only=True)
    assert tensors["mask_token"].shape == (1, 32)
    assert tensors["register_tokens"].shape == (1, 2, 32)
    assert tensors["pos_embed"].shape == (1, 17, 32)
    assert not tensors["pos_embed"][:, 0].any()  # the class token's position is part of the token
    assert tensors["blocks.0.mlp.w12.weight"].shape == (96, 32)
    config = vitral.load(path, architecture={"num_heads": 2}).model.config
    assert (config.mlp, config.registers, config.class_position) == ("swiglu", 2, False)
    assert config.position_resize == "bicubic-antialias"


def test_dinov2_is_read_at_the_size_that_its_authors_use_and_says_so(tmp_path: Path) -> None:
    model = vitral.create_model("dinov2-s14", num_classes=3)
    path = write_weights(model, PHOTOS.with_size(518), NAMES, tmp_path / "weights.pth", "original").path
    (tmp_path / "weights.pth.vitral.json").unlink()
    read = vitral.load(path)
    assert (read.model.image_size, read.preprocessing.image_size) == ((224, 224), (224, 224))
    assert (read.preprocessing.resize, read.preprocessing.crop_fraction) == ("crop", 0.875)
    assert any("image_size=518 keeps them" in note for note in read.provenance.notes)
    assert read.provenance.source.endswith("(dinov2-s14)")
    native = vitral.load(path, image_size=518)
    assert torch.equal(native.model.position.embedding, model.position.embedding)  # type: ignore[union-attr,arg-type]
    assert not any("keeps them" in note for note in native.provenance.notes)


def test_each_source_of_dinov2_keeps_its_own_way_of_resizing(tmp_path: Path) -> None:
    for format_name, method in (
        ("original", "bicubic-dinov2"),
        ("timm", "bicubic-antialias"),
        ("transformers", "bicubic"),
    ):
        _, path = written("dinov2", format_name, tmp_path / format_name)
        if format_name == "transformers":
            config = json.loads((path / "config.json").read_text())
            assert (config["model_type"], config["architectures"]) == ("dinov2", ["Dinov2ForImageClassification"])
        elif format_name == "timm":
            save_file(load_file(path), path)  # without our own description
        else:
            path.with_name(f"{path.name}.vitral.json").unlink()
        assert vitral.load(path, architecture={"num_heads": 2}).model.config.position_resize == method
