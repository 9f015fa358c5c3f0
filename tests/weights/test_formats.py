"""Every family through every format and back, and what a format cannot hold."""

import dataclasses
import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import vitral
from tests.forks import Fork
from tests.models.test_contract import CONFIGS, VIT, images, make
from vitral.classifier.classifier import Classifier
from vitral.classifier.convert import settings
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.errors import StorageError, WeightsError
from vitral.images.preprocessing import ORIGINAL, PHOTOS
from vitral.models.catalog import variant
from vitral.models.codec import config_to_json
from vitral.models.experts import ExpertsConfig
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.stem import StemConfig
from vitral.weights.dialect import Stored
from vitral.weights.names.transformers import preprocessing
from vitral.weights.recognize import DIALECTS
from vitral.weights.save import formats_of, write_weights

NAMES = ("ape", "bee", "cat")


def on_a_full_disk(line: tuple[str, ...]) -> int:
    """Type a command where no file can be larger than 20 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return main(line)


# What a file of a small model does not tell: heads of another width than any published, numerics, routing.
UNSAID: dict[tuple[str, str], dict[str, Any]] = {
    ("deit", "timm"): {"num_heads": 2},
    ("deit", "original"): {"num_heads": 2},
    ("deit3", "timm"): {"num_heads": 2},
    ("deit3", "original"): {"num_heads": 2},
    ("distilled", "timm"): {"num_heads": 2},
    ("distilled", "original"): {"num_heads": 2},
    ("unbiased", "timm"): {"num_heads": 2, "gelu": "tanh", "norm_eps": 1e-5},
    ("t2t", "original"): {"num_heads": 2},
    ("t2t-transformer", "original"): {"num_heads": 2},
    ("cvt", "original"): {"num_heads": [1, 2, 4], "image_size": [64, 64]},
    ("bit", "original"): {"image_size": [64, 64]},
    ("resnet-basic", "original"): {"image_size": [64, 64]},
    ("resnet-bottleneck", "original"): {"image_size": [64, 64]},
    ("experts", "original"): {},
    ("every-experts", "original"): {"experts": {"batch_priority": True}},
}
CONVERTED = [
    *UNSAID,
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


@pytest.mark.parametrize(("name", "format_name"), CONVERTED)
def test_what_is_written_is_read_as_it_was(name: str, format_name: str, tmp_path: Path) -> None:
    model, path = written(name, format_name, tmp_path)
    back = vitral.load(path, architecture=UNSAID.get((name, format_name), {}))
    ours, theirs = model.state_dict(), back.model.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    batch = images(model)
    with torch.inference_mode():
        torch.testing.assert_close(back(batch), model(batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "format_name"), CONVERTED)
@pytest.mark.parametrize("damage", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_belong_is_named(name: str, format_name: str, damage: str, tmp_path: Path) -> None:
    _, path = written(name, format_name, tmp_path)
    file = path / "model.safetensors" if path.is_dir() else path
    tensors = load_file(file) if file.suffix == ".safetensors" else dict(np.load(file))
    key = sorted(key for key in tensors if "head" in key or "fc" in key or "classifier" in key)[0]
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
        vitral.load(path, architecture=UNSAID.get((name, format_name), {}))
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
    formats = {name: formats_of(build(CONFIGS[name], seed=None)) for name in CONFIGS}
    assert formats["hybrid"] == ["big_vision", "original", "timm", "transformers"]
    assert formats["t2t"] == ["original"]
    assert formats["coatnet"] == ["timm"]
    assert formats["efficientnet"] == ["timm"]
    assert formats["cvt"] == ["original", "transformers"]


@pytest.mark.parametrize(
    ("changes", "format_name", "file", "message"),
    [
        ({"pooling": "map"}, "original", "a.npz", "attention pooling"),
        ({"distilled": True}, "big_vision", "a.npz", "distillation token"),
        ({"registers": 2}, "original", "a.npz", "registers"),
        ({"position": "learned-2d"}, "original", "a.npz", "position embedding 'learned-2d'"),
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


def test_coatnet_of_the_paper_is_not_timms() -> None:
    with pytest.raises(WeightsError, match="paper's own convention"):
        write_weights(make("coatnet"), PHOTOS.with_size(64), NAMES, "a.pth", "timm")


class TestConvert:
    @pytest.fixture
    def classifier(self, tmp_path: Path) -> Path:
        model = build(dataclasses.replace(VIT, num_classes=3))
        return save(Classifier(model, ORIGINAL.with_size(32), NAMES), tmp_path / "ours")

    def test_to_a_classifier_folder(self, classifier: Path, tmp_path: Path) -> None:
        written = vitral.convert(classifier, tmp_path / "again", format="vitral", image_size=64)
        assert vitral.load(written.path).model.image_size == (64, 64)
        assert vitral.load(written.path).class_names == NAMES

    def test_preprocessing_and_names_travel_to_transformers_and_back(self, classifier: Path, tmp_path: Path) -> None:
        written = vitral.convert(classifier, tmp_path / "theirs", format="transformers")
        back = vitral.load(written.path)
        assert back.preprocessing == ORIGINAL.with_size(32)
        assert back.class_names == NAMES
        config = json.loads((written.path / "config.json").read_text())
        assert (config["hidden_act"], config["layer_norm_eps"]) == ("gelu_pytorch_tanh", 1e-6)

    def test_a_safetensors_file_in_timms_names_describes_itself(self, classifier: Path, tmp_path: Path) -> None:
        written = vitral.convert(classifier, tmp_path / "theirs.safetensors", format="timm")
        back, ours = vitral.load(written.path), vitral.load(classifier)
        assert back.model.config == ours.model.config  # its GELU and heads, which timm's names do not say
        assert (back.preprocessing, back.class_names) == (ours.preprocessing, NAMES)
        assert not any("does not say" in note for note in back.provenance.notes)

    @pytest.mark.parametrize(
        "said",
        [
            "",
            "[]",
            "{}",
            "[" * 9999,
            '{"architecture": {"family": "bit"}, "preprocessing": {}, "class_names": []}',
            "\ud7ff",
        ],
    )
    def test_a_files_description_is_not_trusted(self, classifier: Path, tmp_path: Path, said: str) -> None:
        written = vitral.convert(classifier, tmp_path / "theirs.safetensors", format="timm")
        save_file(load_file(written.path), written.path, metadata={"vitral": said})
        with pytest.raises(WeightsError, match="theirs.safetensors") as refused:
            vitral.load(written.path)
        assert "\n" not in str(refused.value)

    def test_a_files_description_must_fit_its_tensors(self, classifier: Path, tmp_path: Path) -> None:
        written = vitral.convert(classifier, tmp_path / "theirs.safetensors", format="timm")
        with safe_open(written.path, "pt") as file:
            said = json.loads(file.metadata()["vitral"])
        tensors = load_file(written.path)
        for change, message in (
            ({"mlp_dim": 10**6}, "another model than its tensors"),
            ({"num_classes": 10**9}, "another model than its tensors"),
            ({"depth": 10**9}, "more than any network has"),
            ({"image_size": [10**9, 10**9]}, "at most 16384 pixels"),
            ({"image_size": [64, 64]}, "does not fit the model"),
        ):
            text = json.dumps({**said, "architecture": {**said["architecture"], **change}})
            save_file(tensors, written.path, metadata={"vitral": text})
            with pytest.raises(WeightsError, match=message):
                vitral.load(written.path)

    @pytest.mark.parametrize(
        ("target", "format_name", "message"),
        [
            ("x", "onyx", "There is no format 'onyx'"),
            ("x", "tim", "Did you mean 'timm'"),
            ("ours", "vitral", "is an input"),
            (".", "vitral", "is an input"),
            ("full", "vitral", "holds something else \\('novel.txt'\\)"),
            ("full", "transformers", "holds something else \\('novel.txt'\\)"),
            ("file.txt", "vitral", "is a file, not a folder"),
            ("file.txt", "transformers", "is a file"),
            ("file.npz", "transformers", "must be a folder"),
            ("full", "original", "is a folder, not a file"),
        ],
    )
    def test_a_bad_target_is_refused(
        self, classifier: Path, tmp_path: Path, target: str, format_name: str, message: str
    ) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "novel.txt").write_text("once")
        (tmp_path / "file.txt").write_text("once")
        with pytest.raises(vitral.VitralError, match=message):
            vitral.convert(classifier, tmp_path / target, format=format_name)
        assert (tmp_path / "full" / "novel.txt").read_text() == "once"
        assert (tmp_path / "file.txt").read_text() == "once"
        assert vitral.load(classifier).class_names == NAMES

    @pytest.mark.parametrize("format_name", ["vitral", "transformers"])
    def test_its_own_kind_of_folder_is_replaced_if_allowed_and_it_holds_nothing_else(
        self, classifier: Path, tmp_path: Path, format_name: str
    ) -> None:
        for size in (32, 64):
            vitral.convert(classifier, tmp_path / "out", format=format_name, image_size=size, overwrite=True)
            assert vitral.load(tmp_path / "out").model.image_size == (size, size)
        with pytest.raises(StorageError, match="already exists"):
            vitral.convert(classifier, tmp_path / "out", format=format_name)
        (tmp_path / "out" / "notes.txt").write_text("mine")
        with pytest.raises(StorageError, match="notes.txt"):
            vitral.convert(classifier, tmp_path / "out", format=format_name, overwrite=True)
        assert (tmp_path / "out" / "notes.txt").read_text() == "mine"

    def test_a_failed_write_leaves_what_was_there(
        self, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "weights.npz"
        path.write_text("the old one")

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(np, "savez", full)
        with pytest.raises(vitral.VitralError, match="disk is full"):
            vitral.convert(classifier, path, format="original", overwrite=True)
        assert path.read_text() == "the old one"
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ours", "weights.npz"]

    @pytest.mark.parametrize(
        ("target", "format_name"),
        [
            ("out.npz", "original"),
            ("out.safetensors", "timm"),
            ("out.pth", "timm"),
            ("out", "transformers"),
            ("out", "vitral"),
        ],
    )
    @pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
    def test_a_full_disk_is_one_line(self, classifier: Path, tmp_path: Path, target: str, format_name: str) -> None:
        line = ("convert", str(classifier), str(tmp_path / target), "--format", format_name)
        done = Fork(on_a_full_disk, line).ended()
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("vitral: Cannot write")
        assert len(done.stderr.splitlines()) == 1
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ours"]

    def test_an_architecture_is_not_forced_on_a_classifier(self, classifier: Path) -> None:
        with pytest.raises(WeightsError, match="says its own architecture"):
            vitral.load(classifier, architecture={"num_heads": 4})

    def test_settings_are_json_or_text(self) -> None:
        given = ["num_heads=8", "gelu=tanh", "experts.capacity_factor=4.0", "experts.batch_priority=true"]
        assert settings(given) == {
            "num_heads": 8,
            "gelu": "tanh",
            "experts": {"capacity_factor": 4.0, "batch_priority": True},
        }
        with pytest.raises(WeightsError, match="write KEY=VALUE"):
            settings(["num_heads"])
        with pytest.raises(WeightsError, match="names no setting"):
            settings(["stem=3", "stem.norm_eps=1"])


class TestNeighbours:
    """The JSON files next to a weights file."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        model = build(dataclasses.replace(VIT, num_classes=3, gelu="exact"))
        write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / "theirs", "transformers")
        return tmp_path / "theirs"

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("config.json", "{", "cannot be read as JSON"),
            ("config.json", "[]", "not a JSON object"),
            ("config.json", '{"model_type": "vit", "hidden_act": "relu"}', "activation 'relu' is unknown"),
            ("config.json", '{"model_type": "vit", "num_attention_heads": 5}', "5 heads"),
            ("config.json", '{"model_type": "vit", "num_attention_heads": "many"}', "not hold a whole model"),
            ("preprocessor_config.json", '{"size": 32, "resample": 1}', "resample 1 is not known"),
            ("preprocessor_config.json", '{"size": {"longest_edge": 3}}', "is not valid"),
            ("preprocessor_config.json", '{"size": 32, "image_std": [0, 1, 1]}', "std above 0"),
        ],
    )
    def test_a_bad_one_is_refused_in_a_line(self, folder: Path, file: str, content: str, message: str) -> None:
        (folder / file).write_text(content)
        with pytest.raises(WeightsError, match=message) as refused:
            vitral.load(folder)
        assert "\n" not in str(refused.value)

    @pytest.mark.parametrize(
        ("settings", "resize", "fraction", "size"),
        [
            ({"feature_extractor_type": "ViTFeatureExtractor", "size": 224}, "squash", 1.0, 224),
            ({"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3}, "squash", 0.875, 224),
            (
                {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 224, "crop_pct": 0.875},
                "crop",
                0.875,
                224,
            ),
            (
                {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 384, "crop_pct": 0.875},
                "squash",
                1.0,
                384,
            ),
            ({"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 448}}, "crop", 1.0, 448),
            (
                {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True},
                "crop",
                0.875,
                224,
            ),
        ],
    )
    def test_the_forms_of_published_ones(
        self, settings: dict[str, Any], resize: str, fraction: float, size: int
    ) -> None:
        stored = Stored("source", "model.safetensors", {}, preprocessor=settings)
        read, notes = preprocessing(stored, ORIGINAL)
        assert (read.resize, read.crop_fraction, read.image_size, notes) == (resize, fraction, (size, size), ())

    def test_numbered_labels_are_not_names_and_repeated_ones_are_told_apart(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["id2label"] = {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
        (folder / "config.json").write_text(json.dumps(config))
        assert vitral.load(folder).class_names == ("class 0", "class 1", "class 2")
        config["id2label"] = {"0": "crane", "1": "bee", "2": "crane"}
        (folder / "config.json").write_text(json.dumps(config))
        assert vitral.load(folder).class_names == ("crane (0)", "bee", "crane (2)")

    def test_without_them_the_defaults_are_noted(self, folder: Path) -> None:
        (folder / "preprocessor_config.json").unlink()
        assert any("preprocessor_config.json" in note for note in vitral.load(folder).provenance.notes)

    def test_another_programs_config_is_not_about_the_weights(self, tmp_path: Path) -> None:
        vitral.convert("vit-mu16", tmp_path / "weights.npz", format="original")
        (tmp_path / "config.json").write_text('{"theme": "dark"}')
        assert vitral.load(tmp_path).model.num_classes == 1000

    @pytest.mark.parametrize("part", ["../../secret.safetensors", "/etc/passwd", "missing.safetensors"])
    def test_an_index_names_only_files_of_its_folder(self, folder: Path, part: str) -> None:
        (folder / "model.safetensors").unlink()
        index = {"weight_map": {"classifier.bias": part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(WeightsError, match=part.rsplit("/", maxsplit=1)[-1] if "miss" in part else "outside"):
            vitral.load(folder)


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


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_wrappers_of_training_are_seen_through(prefix: str, tmp_path: Path) -> None:
    written = vitral.convert("vit-mu16", tmp_path / "plain.pth", format="timm")
    tensors = torch.load(written.path, weights_only=True)
    torch.save({prefix + name: tensor for name, tensor in tensors.items()}, tmp_path / "wrapped.pth")
    plain, wrapped = (vitral.load(tmp_path / f"{name}.pth").model.state_dict() for name in ("plain", "wrapped"))
    assert all(torch.equal(plain[name], wrapped[name]) for name in plain)


def test_big_vision_and_back(tmp_path: Path) -> None:
    config = dataclasses.replace(variant("vit-mu16"), num_classes=5)
    model = build(config)
    with torch.no_grad():
        model.position.embedding[:, 0].zero_()  # type: ignore[union-attr,index]
    written = write_weights(model, ORIGINAL.with_size(224), list("abcde"), tmp_path / "bv.npz", "big_vision")
    with np.load(written.path) as arrays:
        assert arrays["pos_embedding"].shape == (1, 196, 32)
        assert "Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel" in arrays
    back = vitral.load(written.path).model.state_dict()
    assert all(torch.equal(back[name], tensor) for name, tensor in model.state_dict().items())
