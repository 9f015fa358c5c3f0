"""Every family through every format and back, and what a format cannot hold."""

import dataclasses
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import vitral
from tests.cases import every_case
from tests.models.test_contract import CONFIGS, VIT, images, make
from vitral.errors import WeightsError
from vitral.images.preprocessing import ORIGINAL, PHOTOS
from vitral.models.catalog import variant
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build, config_to_json
from vitral.models.model import Model
from vitral.models.resnet import StemConfig
from vitral.weights.proof import formats_of
from vitral.weights.recognize import DIALECTS
from vitral.weights.save import write_weights

NAMES = ("ape", "bee", "cat")

CONVERTED = [
    ("deit", "timm"),
    ("deit", "original"),
    ("deit3", "timm"),
    ("deit3", "original"),
    ("distilled", "timm"),
    ("distilled", "original"),
    ("unbiased", "timm"),
    ("t2t", "original"),
    ("t2t-transformer", "original"),
    ("cvt", "original"),
    ("bit", "original"),
    ("resnet-basic", "original"),
    ("resnet-bottleneck", "original"),
    ("tinyvit", "original"),
    ("experts", "original"),
    ("every-experts", "original"),
    ("hybrid", "original"),
    ("root-hybrid", "original"),
    ("deit", "transformers"),
    ("distilled", "transformers"),
    ("unbiased", "transformers"),
]


def target(format_name: str, family: str) -> str:
    if format_name == "transformers":
        return "folder"
    return "weights.npz" if format_name == "original" and family in ("vit", "bit") else "weights.safetensors"


def written(name: str, format_name: str, folder: Path) -> tuple[Model, Path]:
    model = make(name)
    family = config_to_json(model.config)["family"]
    numpy = target(format_name, "torch" if name in ("deit", "deit3", "distilled") else family)
    preprocessing = PHOTOS.with_size(model.image_size)
    return model, write_weights(model, preprocessing, NAMES, folder / numpy, format_name).path


@every_case(("name", "format_name"), CONVERTED)
def test_what_is_written_is_read_as_it_was(name: str, format_name: str, tmp_path: Path) -> None:
    model, path = written(name, format_name, tmp_path)
    back = vitral.load(path)
    ours, theirs = model.state_dict(), back.model.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    batch = images(model)
    with torch.inference_mode():
        torch.testing.assert_close(back(batch), model(batch), atol=1e-5, rtol=1e-5)


@every_case(("name", "format_name"), CONVERTED)
@every_case("damage", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_belong_is_named(name: str, format_name: str, damage: str, tmp_path: Path) -> None:
    _, path = written(name, format_name, tmp_path)
    file = path / "model.safetensors" if path.is_dir() else path
    tensors = load_file(file) if file.suffix == ".safetensors" else dict(np.load(file))
    keys = sorted(key for key in tensors if "head" in key or "fc" in key or "classifier" in key)
    key = keys[-1] if damage == "missing" else keys[0]  # a head may have no bias
    if damage == "missing":
        del tensors[key]
    elif damage == "extra":
        tensors[f"{key}_more"] = tensors[key] + 1
    else:
        tensors[key] = tensors[key][..., :-1]
    if file.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    else:
        np.savez(file, **tensors)
    with pytest.raises(vitral.VitralError) as refused:
        vitral.load(path)
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)
    if damage == "extra":
        assert f"{key}_more" in str(refused.value)


def test_deit3s_own_files_have_its_own_names(tmp_path: Path) -> None:
    model, path = written("deit3", "original", tmp_path)
    block = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    names = {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    names |= {f"{part}.{kind}" for part in ("norm", "head") for kind in ("weight", "bias")}
    for index in range(model.config.depth):
        names |= {f"blocks.{index}.{part}.{kind}" for part in block for kind in ("weight", "bias")}
        names |= {f"blocks.{index}.gamma_{branch}" for branch in (1, 2)}
    tensors = load_file(path)
    assert set(tensors) == names
    assert tensors["pos_embed"].shape == (1, 16, model.config.dim)  # the class token has none
    file = tmp_path / "deit_3_small_224_1k.pth"
    torch.save({"model": tensors}, file)
    read = vitral.load(file, architecture={"num_heads": 2})
    config = read.model.config
    assert (config.class_position, config.even_depth, config.layer_scale) == (False, True, 1e-4)
    assert (config.initialization, config.position_resize, config.gelu) == ("deit", "bicubic", "exact")
    assert (read.preprocessing.crop_fraction, read.preprocessing.interpolation) == (1.0, "bicubic")
    with torch.inference_mode():
        torch.testing.assert_close(read(images(model)), model(images(model)), atol=1e-5, rtol=1e-5)


def test_each_family_lists_its_formats() -> None:
    formats = {name: formats_of(CONFIGS[name]) for name in CONFIGS}
    assert formats["hybrid"] == ["big_vision", "original", "timm", "transformers"]
    assert formats["t2t"] == ["original"]
    assert formats["coatnet"] == ["timm"]
    assert formats["efficientnet"] == ["original", "timm"]
    assert formats["tinyvit"] == ["original", "timm"]
    assert formats["cvt"] == ["original", "transformers"]


@every_case(
    ("changes", "format_name", "file", "message"),
    [
        ({"pooling": "map"}, "original", "a.npz", "attention pooling"),
        ({"distilled": True}, "big_vision", "a.npz", "distillation token"),
        ({"registers": 2}, "original", "a.npz", "registers"),
        ({"position": "learned-2d"}, "original", "a.npz", "position embedding 'learned-2d'"),
        ({"position": "relative"}, "timm", "a.safetensors", "position embedding 'relative'"),
        ({"position_at": "layers-shared"}, "original", "a.npz", "positions in every block"),
        ({"position_at": "layers"}, "timm", "a.safetensors", "positions in every block"),
        ({"position_at": "layers"}, "transformers", "a", "positions in every block"),
        ({"representation_size": 8}, "timm", "a.pth", "representation layer"),
        ({"experts": ExpertsConfig(blocks=(1,))}, "timm", "a.pth", "experts"),
        ({"class_position": False}, "original", "a.npz", "a class token without a position"),
        ({"class_position": False}, "transformers", "folder", "a class token without a position"),
        ({"experts": ExpertsConfig(blocks=(1,))}, "big_vision", "a.npz", "experts"),
        ({"pooling": "gap"}, "transformers", "a", "pooling 'gap'"),
        ({"patch_stride": (4, 4)}, "timm", "a.pth", "overlapping patches"),
        ({}, "original", "a.safetensors", "must end in .npz"),
        ({}, "timm", "a.npz", "must end in .safetensors or .pth"),
        ({}, "transformers", "a.npz", "must be a folder"),
        ({}, "torchvision", "a.pth", "cannot be written as 'torchvision'"),
        ({"patch_size": (1, 1), "stem": StemConfig(stages=(1,))}, "timm", "a.pth", "timm has no such model"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_nothing_written(
    changes: dict[str, Any], format_name: str, file: str, message: str, tmp_path: Path
) -> None:
    model = build(dataclasses.replace(VIT, **changes))
    with pytest.raises(WeightsError, match=message):
        write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / file, format_name)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_for_weights_is_named(tmp_path: Path) -> None:
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(WeightsError, match="git lfs pull"):
        vitral.load(pointer)
    with zipfile.ZipFile(tmp_path / "best.zip", "w") as archive:
        archive.writestr("run/best.pth", b"PK")
    with pytest.raises(WeightsError, match=r"run/best\.pth.*unpack it"):
        vitral.load(tmp_path / "best.zip")
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for name in ("run/classifier/classifier.json", "run/features.npy", "run/data.pkl"):
            archive.writestr(name, b"{}")
    with pytest.raises(WeightsError, match=r"run\.zip' is a packed classifier; unpack it"):
        vitral.load(tmp_path / "run.zip")
    for name, mode in (("run.tar.gz", "w:gz"), ("plain.tar", "w")):
        with tarfile.open(tmp_path / name, mode) as packed:  # type: ignore[call-overload]
            packed.add(tmp_path / "run.zip", "run.zip")
        with pytest.raises(WeightsError, match="is packed; unpack it"):
            vitral.load(tmp_path / name)


@every_case(
    "name",
    [
        "base_model.model.vit.encoder.layer.0.attention.attention.query.lora_A.default.weight",
        "blocks.0.attn.qkv.base_layer.weight",
        "blocks.0.attn.lora_B",
    ],
)
def test_changes_by_lora_are_not_taken_for_a_network(name: str, tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "a.safetensors", format="timm").path
    save_file({**load_file(written), name: torch.zeros(4, 4)}, written)
    with pytest.raises(WeightsError, match="LoRA.*merge"):
        vitral.load(written)


def test_blocks_that_dinov2_trained_in_chunks_are_read(tmp_path: Path) -> None:
    model = build(CONFIGS["dinov2"], seed=1)
    written = write_weights(
        model, PHOTOS.with_size(model.image_size), NAMES, tmp_path / "a.safetensors", "original"
    ).path
    tensors = {name: tensor for name, tensor in load_file(written).items() if not name.startswith("head")}
    chunked = {re.sub(r"^blocks\.(\d+)", r"teacher.backbone.blocks.\1.\1", name): tensors[name] for name in tensors}
    save_file(tensors, written)
    save_file(
        {re.sub(r"^(?!teacher)", "teacher.backbone.", name): chunked[name] for name in chunked},
        tmp_path / "b.safetensors",
    )
    whole, parts = vitral.load(written), vitral.load(tmp_path / "b.safetensors")
    with torch.inference_mode():
        assert torch.equal(whole.features(images(whole.model)), parts.features(images(whole.model)))


def test_coatnet_of_the_paper_is_not_timms() -> None:
    with pytest.raises(WeightsError, match="paper's own convention"):
        write_weights(make("coatnet"), PHOTOS.with_size(64), NAMES, "a.pth", "timm")


def test_timms_own_efficientnets_and_coatnets_are_not_taken_for_the_papers(tmp_path: Path) -> None:
    written = vitral.convert("efficientnet-b0", tmp_path / "model.safetensors", format="timm")
    assert not any("tf_ models" in note for note in vitral.load(written.path).provenance.notes)
    save_file(load_file(written.path), written.path)
    assert any("tf_ models" in note for note in vitral.load(written.path).provenance.notes)
    (tmp_path / "config.json").write_text('{"architecture": "efficientnet_b0"}')
    with pytest.raises(WeightsError, match="pads and normalises differently"):
        vitral.load(written.path)
    (tmp_path / "config.json").write_text('{"architecture": "tf_efficientnet_b0"}')
    assert not any("tf_ models" in note for note in vitral.load(written.path).provenance.notes)
    _, path = _timms_coatnet(tmp_path)
    tensors = load_file(path)
    renamed = {name.replace("head.norm", "norm"): tensor for name, tensor in tensors.items()}
    save_file(renamed, path)
    with pytest.raises(WeightsError, match="timm's own variation of CoAtNet"):
        vitral.load(path)


def _timms_coatnet(folder: Path) -> tuple[Model, Path]:
    config = dataclasses.replace(
        variant("coatnet-0"), convention="timm", depths=(1, 1, 1, 1), dims=(32, 32, 32, 64), representation_size=64
    )
    model = build(config)
    path = folder / "coatnet.safetensors"
    rules = next(dialect for dialect in DIALECTS if dialect.family == "coatnet").rules(config)
    ours = model.state_dict()
    save_file({rule.theirs[0]: rule.layout.write([ours[rule.ours[0]]])[0].contiguous() for rule in rules}, path)
    return model, path


def test_coatnet_of_timm_is_read(tmp_path: Path) -> None:
    model, path = _timms_coatnet(tmp_path)
    back = vitral.load(path, architecture={"stem_dim": 64}).model
    batch = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(back(batch), model(batch))


def test_a_named_model_is_changed_too() -> None:
    model = vitral.load("vit-mu16", architecture={"registers": 2, "num_classes": 5}).model
    assert (model.config.registers, model.num_classes) == (2, 5)
    for changes, message in (
        ({"capacity": 2}, "no setting 'capacity'"),
        ({"stem": {"norm_eps": 1.0}}, "has no stem to change"),
        ({"num_heads": None}, "cannot be built with num_heads=None"),
        ({"image_size": [64, "a"]}, "cannot be built with image_size"),
    ):
        with pytest.raises(vitral.VitralError, match=message):
            vitral.load("vit-mu16", architecture=changes)
    assert vitral.load("vit-mu16", architecture={"image_size": 64}).model.image_size == (64, 64)


def test_a_variant_is_named_for_what_it_is(tmp_path: Path) -> None:
    for name in ("vit-mu16", "r-vit-ti16", "deit-ti16-distilled"):
        suffix = ".safetensors" if name.startswith("deit") else ".npz"
        written = vitral.convert(name, tmp_path / f"{name}{suffix}", format="original")
        assert vitral.load(written.path).provenance.source.endswith(f"({name})")


@every_case("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_wrappers_of_training_are_seen_through(prefix: str, tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "plain.pth", format="timm")
    tensors = torch.load(written.path, weights_only=True)
    torch.save({prefix + name: tensor for name, tensor in tensors.items()}, tmp_path / "wrapped.pth")
    plain, wrapped = (vitral.load(tmp_path / f"{name}.pth").model.state_dict() for name in ("plain", "wrapped"))
    assert all(torch.equal(plain[name], wrapped[name]) for name in plain)


def test_big_vision_and_back(tmp_path: Path) -> None:
    config = dataclasses.replace(variant("vit-mu16"), num_classes=5)
    model = build(config)
    written = write_weights(model, ORIGINAL.with_size(224), list("abcde"), tmp_path / "bv.npz", "big_vision")
    with np.load(written.path) as arrays:
        assert arrays["pos_embedding"].shape == (1, 196, 32)
        assert "Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel" in arrays
    batch = images(model)
    with torch.inference_mode():  # the class token's position is part of the token: the same sum
        assert torch.equal(vitral.load(written.path)(batch), model(batch))
