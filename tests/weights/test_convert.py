"""Converting weights: what travels with them, what lies beside them, and what is refused."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import vitral
from tests.cases import every_case
from tests.forks import Fork
from tests.models.test_contract import VIT
from tests.weights.test_formats import NAMES
from vitral.classifier.classifier import Classifier
from vitral.classifier.convert import settings
from vitral.classifier.folder import save
from vitral.cli.main import main
from vitral.errors import StorageError, WeightsError
from vitral.events import Event, Message
from vitral.images.preprocessing import CLIP_MEAN, ORIGINAL, PHOTOS, Preprocessing
from vitral.models.families import build
from vitral.training.choose.draft import draft_of
from vitral.training.request import request_of
from vitral.training.starting.prepare import load_start
from vitral.weights.dialect import Stored
from vitral.weights.names.transformers import usage
from vitral.weights.save import write_weights


def on_a_full_disk(line: tuple[str, ...]) -> int:
    """Type a command where no file can be larger than 20 kB."""
    import resource  # which not every system has
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return main(line)


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
            ({"image_size": [10**9, 10**9]}, "said to be of 1000000000x1000000000 pixels"),
            ({"image_size": [64, 64]}, "said to be of 64x64 pixels"),
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

    def test_another_tools_file_of_the_same_name_is_not_replaced_unasked(self, tmp_path: Path) -> None:
        model = build(dataclasses.replace(VIT, num_classes=3, gelu="exact"))
        written = (model, PHOTOS.with_size(32), NAMES, tmp_path / "theirs", "transformers")
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "config.json").write_text("of something else")
        with pytest.raises(StorageError, match="'.*theirs' already exists; choose another name, or add"):
            write_weights(*written)
        assert (tmp_path / "theirs" / "config.json").read_text() == "of something else"
        write_weights(*written, overwrite=True)
        assert json.loads((tmp_path / "theirs" / "config.json").read_text())["model_type"] == "vit"

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
            ("config.json", '{"model_type": "vit", "id2label": {"cat": 0, "dog": 1}}', "id2label has 'cat'"),
            ("config.json", '{"model_type": "vit", "id2label": {"99999999": "cat"}}', "id2label has '99999999'"),
            ("config.json", '{"model_type": "vit", "num_attention_heads": "many"}', "not hold a whole model"),
            ("preprocessor_config.json", '{"size": 32, "resample": 1}', "resample 1 is not known"),
            ("preprocessor_config.json", '{"size": {"longest_edge": 3}}', "longest_edge"),
            ("preprocessor_config.json", '{"size": 32, "do_flip_channel_order": true}', "says do_flip_channel_order"),
            ("preprocessor_config.json", '{"image_processor_type": "LevitImageProcessor", "size": 32}', "says Levit"),
            (
                "preprocessor_config.json",
                '{"size": {"height": 40, "width": 36}, "do_center_crop": true, "crop_size": 32}',
                "32x32 pixels from 40x36",
            ),
            ("preprocessor_config.json", '{"size": 32, "image_std": [0, 1, 1]}', "std above 0"),
        ],
    )
    def test_a_bad_one_is_refused_in_a_line(self, folder: Path, file: str, content: str, message: str) -> None:
        (folder / file).write_text(content)
        with pytest.raises(WeightsError, match=message) as refused:
            vitral.load(folder)
        assert "\n" not in str(refused.value)

    @every_case(
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
            (
                {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 448}, "crop_size": 448},
                "crop",
                1.0,
                448,
            ),
            ({"feature_extractor_type": "CLIPFeatureExtractor", "size": 224}, "crop", 1.0, 224),
            ({"image_processor_type": "DeiTImageProcessor", "do_resize": True}, "squash", 0.875, 224),
            ({"size": [224, 224], "crop_size": [196, 196], "do_center_crop": True}, "squash", 0.875, 196),
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
        found = usage(stored, ORIGINAL)
        read = found.preprocessing
        assert (read.resize, read.crop_fraction, read.image_size, found.notes) == (resize, fraction, (size, size), ())

    def test_numbered_labels_are_not_names_and_repeated_ones_are_told_apart(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["id2label"] = {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
        (folder / "config.json").write_text(json.dumps(config))
        assert vitral.load(folder).class_names == ("class 0", "class 1", "class 2")
        config["id2label"] = {"0": "crane", "1": "bee", "2": "crane"}
        (folder / "config.json").write_text(json.dumps(config))
        assert vitral.load(folder).class_names == ("crane (0)", "bee", "crane (2)")

    @every_case(
        ("labels", "names", "left_out"),
        [
            ({"0": "ape", "2": "cat"}, ("ape", "class 1", "cat"), False),
            ({"0": "ape", "1": "bee", "3": "dog"}, ("class 0", "class 1", "class 2"), True),
            ({"1": "ape", "2": "bee", "3": "cat"}, ("class 0", "class 1", "class 2"), True),
            ({"0": "ape", "1": "bee"}, ("class 0", "class 1", "class 2"), True),
        ],
    )
    def test_names_belong_to_the_numbers_that_they_are_given_for(
        self, folder: Path, labels: dict[str, str], names: tuple[str, ...], *, left_out: bool
    ) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "id2label": labels}))
        classifier = vitral.load(folder)
        assert classifier.class_names == names
        assert any("are left out: its head has 3" in note for note in classifier.provenance.notes) == left_out

    def test_without_them_the_defaults_are_noted(self, folder: Path) -> None:
        (folder / "preprocessor_config.json").unlink()
        assert any("preprocessor_config.json" in note for note in vitral.load(folder).provenance.notes)

    def test_a_training_that_starts_from_it_says_the_defaults(self, folder: Path) -> None:
        said: list[Event] = []
        draft = draft_of(request_of("fine-tune", data="digits", source=str(folder)))
        load_start(draft, said.append)
        assert not said
        (folder / "preprocessor_config.json").unlink()
        load_start(draft, said.append)
        (message,) = said
        assert isinstance(message, Message)
        assert "preprocessor_config.json" in message.text

    @every_case(
        ("settings", "mean", "std"),
        [
            ({"rescale_factor": 1 / 127.5}, (0.25, 0.25, 0.25), (0.1, 0.1, 0.2)),
            ({"rescale_factor": 1.0, "do_normalize": False}, (0, 0, 0), (1 / 255, 1 / 255, 1 / 255)),
            ({"image_mean": 0.5, "image_std": 0.25}, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ],
    )
    def test_what_white_becomes_before_means_and_deviations(
        self, settings: dict[str, Any], mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        said = {"size": 32, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.2, 0.2, 0.4], **settings}
        read = usage(Stored("source", "model.safetensors", {}, preprocessor=said), ORIGINAL).preprocessing
        assert read.mean == pytest.approx(mean)
        assert read.std == pytest.approx(std)

    def test_what_a_processor_does_by_itself_is_its_kinds_own(self) -> None:
        def read(kind: str) -> Preprocessing:
            said = {"image_processor_type": kind, "do_resize": True}
            return usage(Stored("source", "model.safetensors", {}, preprocessor=said), ORIGINAL).preprocessing

        clip, vit, pillow = read("CLIPImageProcessorFast"), read("ViTImageProcessor"), read("ViTImageProcessorPil")
        assert (clip.resize, clip.interpolation, clip.mean) == ("crop", "bicubic", CLIP_MEAN)
        assert (vit.resize, vit.interpolation, vit.mean) == ("squash", "bilinear", (0.5, 0.5, 0.5))
        assert (vit.resampler, pillow.resampler) == ("torch", "pillow")

    def test_the_processor_of_images_is_read_within_that_of_texts_too(self, folder: Path) -> None:
        within = json.loads((folder / "preprocessor_config.json").read_text())
        (folder / "preprocessor_config.json").unlink()
        within["image_mean"] = [0.1, 0.2, 0.3]
        (folder / "processor_config.json").write_text(json.dumps({"image_processor": within}))
        classifier = vitral.load(folder)
        assert classifier.preprocessing.mean == (0.1, 0.2, 0.3)
        assert not any("preprocessor_config" in note for note in classifier.provenance.notes)

    def test_one_that_says_nothing_is_like_none(self) -> None:
        said = {"image_processor_type": "TheirOwnProcessor", "scale": "weird"}
        found = usage(Stored("source", "model.safetensors", {}, preprocessor=said), PHOTOS)
        assert found.preprocessing == PHOTOS
        (note,) = found.notes
        assert "says nothing" in note

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
