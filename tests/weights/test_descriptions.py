"""What stands next to a weights file is compared with its tensors, and what nothing says is said to be assumed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitral
from tests.cases import every_case
from tests.models.test_contract import CONFIGS, VIT, images
from vitral.errors import WeightsError
from vitral.images.preprocessing import CLIP_MEAN, PHOTOS
from vitral.models.families import build, replace
from vitral.weights.save import write_weights

SMALL = {"embed_dim": 32, "num_heads": 2, "depth": 2}
TIMM = "vit_tiny_patch16_224"


def network(size: tuple[int, int] = (32, 32), **fields: Any) -> Any:  # noqa: ANN401  # a ViT, whose parts are modules without types
    model = build(replace(VIT, image_size=size, gelu="exact", **fields), seed=3)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)))
    return model


def bare(model: Any, folder: Path, **config: Any) -> Path:  # noqa: ANN401
    """Write a network in timm's names without our own description, and a config.json if there is something to say."""
    path = write_weights(
        model, PHOTOS.with_size(model.image_size), ("a", "b", "c"), folder / "weights.safetensors", "timm"
    ).path
    save_file(load_file(path), path)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return path


def same(classifier: vitral.Classifier, model: Any) -> None:  # noqa: ANN401
    assert classifier.model.image_size == model.image_size
    with torch.inference_mode():
        torch.testing.assert_close(classifier(images(model)), model(images(model)), atol=1e-5, rtol=1e-5)


def assumed(classifier: vitral.Classifier) -> str:
    return " ".join(
        note for note in classifier.provenance.notes if "assumed: " in note and "images were prepared" not in note
    )


def test_of_a_bare_file_is_said_what_its_tensors_do_not_tell(tmp_path: Path) -> None:
    path = bare(network(num_heads=1), tmp_path)
    read = vitral.load(path)
    same(read, network(num_heads=1))
    for fact in ("pooling=token", "num_heads=1", "gelu=exact", "image_size=32x32"):
        assert fact in assumed(read)
    more = vitral.load(path, architecture={"num_heads": 4, "gelu": "tanh"})
    assert (more.model.config.num_heads, more.model.config.gelu) == (4, "tanh")
    assert not any(fact in assumed(more) for fact in ("num_heads", "gelu"))
    assert "pooling=token" in assumed(more)


def test_another_pooling_can_be_given_where_its_tensors_allow_it(tmp_path: Path) -> None:
    path = bare(network(num_heads=1), tmp_path)
    mean = vitral.load(path, architecture={"pooling": "gap"})
    tokens = network(num_heads=1)
    with torch.inference_mode():
        batch = images(tokens)
        expected = tokens.head(tokens.encode(batch).tokens[:, 1:].mean(dim=1))
        torch.testing.assert_close(mean(batch), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(WeightsError, match="pooling is said to be 'map'"):
        vitral.load(path, architecture={"pooling": "map"})


def test_an_oblong_grid_is_read_by_what_says_its_shape(tmp_path: Path) -> None:
    """Of 2 x 8 patches, which are also 4 x 4."""
    model = network((16, 64), num_heads=1)
    path = bare(model, tmp_path)
    square = vitral.load(path)
    assert square.model.image_size == (32, 32)
    assert "image_size=32x32" in assumed(square)
    same(vitral.load(path, architecture={"image_size": [16, 64]}), model)
    prepared = {"input_size": [3, 16, 64], "mean": [0.5] * 3, "std": [0.5] * 3}
    for shape in ({"img_size": [16, 64]}, {}):
        arguments = {**SMALL, "num_heads": 1, **shape}
        read = vitral.load(bare(model, tmp_path, architecture=TIMM, model_args=arguments, pretrained_cfg=prepared))
        same(read, model)
        assert read.preprocessing.image_size == (16, 64)
        assert assumed(read) == ""


def test_a_grid_that_is_no_square_is_refused_until_something_says_its_shape(tmp_path: Path) -> None:
    model = network((16, 48), num_heads=1)
    path = bare(model, tmp_path)
    with pytest.raises(WeightsError, match="12 rows|13 rows") as refused:
        vitral.load(path)
    assert "image_size=[HEIGHT,WIDTH]" in str(refused.value)
    same(vitral.load(path, architecture={"image_size": [16, 48]}), model)
    with pytest.raises(WeightsError, match="16x40 pixels, 2 x 5 patches.* 13 rows"):
        vitral.load(path, architecture={"image_size": [16, 40]})


@every_case(
    ("said", "what"),
    [
        ({"architecture": "vit_small_of_tomorrow"}, "'vit_small_of_tomorrow'"),
        ({"architecture": TIMM}, "embed_dim=192.*32"),
        ({"architecture": TIMM, "num_features": 64}, "embed_dim=64.*32"),
        ({"architecture": TIMM, "model_args": {**SMALL, "depth": 12}}, "depth=12.*2"),
        ({"architecture": TIMM, "model_args": {**SMALL, "patch_size": 16}}, "patch_size=16"),
        ({"architecture": TIMM, "model_args": {**SMALL, "img_size": 224}}, "224x224 pixels"),
        ({"architecture": TIMM, "model_args": {**SMALL, "block_fn": "post"}}, "block_fn=post"),
        ({"architecture": TIMM, "model_args": SMALL, "global_pool": "max"}, "global_pool 'max'"),
        (
            {"architecture": TIMM, "model_args": {**SMALL, "global_pool": "avg"}, "global_pool": "token"},
            "'avg' and 'token'",
        ),
        ({"architecture": TIMM, "model_args": ["depth"]}, "config.json"),
    ],
)
def test_a_description_of_another_network_is_refused_by_what_it_says(
    said: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=what) as refused:
        vitral.load(bare(network(), tmp_path, **said))
    assert "\n" not in str(refused.value)


def test_what_timm_leaves_open_is_its_default_and_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    images = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5], "crop_pct": None, "interpolation": ""}
    file = bare(network(num_classes=3), tmp_path, pretrained_cfg=images, label_names=["crane", "bee", "crane"])
    classifier = vitral.load(file)
    assert classifier.class_names == ("crane (0)", "bee", "crane (2)")
    prepared = classifier.preprocessing
    assert (prepared.crop_fraction, prepared.interpolation, prepared.mean) == (0.875, "bicubic", (0.1, 0.2, 0.3))


def test_what_hides_patches_in_pretraining_is_not_needed(tmp_path: Path) -> None:
    model = network(num_heads=1)
    file = bare(model, tmp_path)
    hiding = {"mask_token": torch.ones(1, 1, 32), "decoder_embed.weight": torch.ones(8, 32)}
    encoder = {name: tensor for name, tensor in load_file(file).items() if not name.startswith("head.")}
    save_file({**encoder, **hiding}, file)
    theirs = write_weights(model, PHOTOS.with_size(32), ("a", "b", "c"), tmp_path / "hf", "transformers").path
    tensors = load_file(theirs / "model.safetensors")
    save_file({**tensors, "vit.embeddings.mask_token": torch.ones(1, 1, 32)}, theirs / "model.safetensors")
    for source in (file, theirs):
        with torch.inference_mode():
            read, right = (
                vitral.load(source).features(images(model)),
                vitral.Classifier(model, PHOTOS.with_size(32)).features(images(model)),
            )
        torch.testing.assert_close(read, right, atol=1e-5, rtol=1e-5)


@every_case(
    ("images", "model", "expected"),
    [
        (
            {"mean": [0.5, 0.5, 0.5], "std": [0.1, 0.2, 0.3], "interpolation": "bilinear", "resize_mode": "squash"},
            {"quick_gelu": True, "vision_cfg": {"image_size": 32}},
            ("quick", "squash", "bilinear", (0.5, 0.5, 0.5)),
        ),
        ({}, {"vision_cfg": {"image_size": 32}}, ("exact", "crop", "bicubic", CLIP_MEAN)),
    ],
)
def test_what_openclip_says_of_its_file_is_read(
    images: dict[str, Any], model: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path
) -> None:
    network = build(replace(CONFIGS["clip"], image_size=(32, 32)))
    names = tuple(map(str, range(network.num_classes)))
    file = tmp_path / "open_clip_model.safetensors"
    write_weights(network, PHOTOS.with_size(32), names, file, "original")
    save_file(load_file(file), file)
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"preprocess_cfg": images, "model_cfg": model}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip"}))  # of the other file in its repository
    classifier = vitral.load(file)
    prepared = classifier.preprocessing
    read = (classifier.model.config.gelu, prepared.resize, prepared.interpolation, prepared.mean)
    assert read == expected
    assert "GELU" not in " ".join(classifier.provenance.notes)


def test_what_vitral_wrote_of_a_file_is_taken_before_a_config_next_to_it(tmp_path: Path) -> None:
    model = network((16, 64))
    path = write_weights(model, PHOTOS.with_size((16, 64)), ("a", "b", "c"), tmp_path / "w.safetensors", "timm").path
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_base_patch16_rpn_224"}))
    read = vitral.load(path)
    same(read, model)
    assert read.provenance.notes == ()


def test_transformers_tensors_alone_are_read_with_what_is_assumed(tmp_path: Path) -> None:
    model = network((16, 64))
    folder = write_weights(model, PHOTOS.with_size((16, 64)), ("a", "b", "c"), tmp_path / "theirs", "transformers").path
    same(vitral.load(folder), model)
    (folder / "config.json").unlink()
    read = vitral.load(folder)
    for fact in ("num_heads=1", "gelu=exact", "norm_eps=1e-12", "image_size=32x32"):
        assert fact in assumed(read)
    given = {"image_size": [16, 64], "num_heads": model.config.num_heads, "norm_eps": model.config.norm_eps}
    same(vitral.load(folder, architecture=given), model)
