"""The families that are published as starts against timm's and transformers' own networks on shared random weights: the same
tokens and the same pooled vector, at the network's size and at another, the same input from the same photo, both ways.
"""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.peers.compare import gap, pixels, scramble
from tests.peers.starts import TIMM, TRANSFORMERS, TimmStart
from vitral.classifier.folder import save
from vitral.images.decode import read_image

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCE = 1e-4
ORIGINALS = [name for name, start in TIMM.items() if start.original is not None]


def timm_network(start: TimmStart) -> Any:
    size = start.native[0] if start.native[0] == start.native[1] else start.native
    settings = {"num_classes": 0, "img_size": size, "dynamic_img_size": True, **start.settings}
    name = f"{start.name}.{start.tag}" if start.tag else start.name
    model = timm.create_model(name, **settings).eval()
    scramble(model)
    return model


def timm_folder(model: Any, folder: Path) -> Path:
    """Save a network as timm's repositories have it."""
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return folder


def same_as_timm(ours: Any, theirs: Any, size: tuple[int, int]) -> None:
    images = pixels(size)
    with torch.inference_mode():
        tokens = theirs.forward_features(images)
        pooled = theirs.forward_head(tokens, pre_logits=True)
        assert gap(ours.model.encode(images).tokens, tokens) < TOLERANCE
        assert gap(ours.features(images), pooled) < TOLERANCE


@pytest.mark.parametrize("name", TIMM)
def test_timms_files_give_timms_tokens_at_two_sizes(name: str, tmp_path: Path) -> None:
    start = TIMM[name]
    model = timm_network(start)
    folder = timm_folder(model, tmp_path)
    for size in (start.native, start.other):
        ours = vitral.load(folder, image_size=size, architecture=start.changes)
        same_as_timm(ours, model, size)


@pytest.mark.parametrize("name", TIMM)
def test_timms_files_give_timms_input_and_features_for_a_photo(name: str, tmp_path: Path, photo: Path) -> None:
    start = TIMM[name]
    model = timm_network(start)
    ours = vitral.load(timm_folder(model, tmp_path), image_size=start.native, architecture=start.changes)
    config = {**timm.data.resolve_data_config(model=model), "input_size": (3, *start.native)}
    prepared = timm.data.create_transform(**config)(Image.open(photo))
    given = ours.preprocessing(read_image(photo))
    assert float((given - prepared).abs().max()) < 1e-5
    with torch.inference_mode():
        theirs = model.forward_head(model.forward_features(prepared[None]), pre_logits=True)
        assert gap(ours.features(given[None]), theirs) < TOLERANCE


@pytest.mark.parametrize("name", TIMM)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm_opens_what_we_write(name: str, suffix: str, tmp_path: Path) -> None:
    start = TIMM[name]
    model = timm_network(start)
    ours = vitral.load(timm_folder(model, tmp_path), image_size=start.native, architecture=start.changes)
    ours.model.replace_head(5)
    scramble(ours.model.head)
    save(vitral.Classifier(ours.model, ours.preprocessing, list("abcde")), tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / f"theirs{suffix}", format="timm")
    opened = eval(written.how, {"timm": timm, "functools": functools, "torch": torch}).eval()
    images = pixels(start.native)
    with torch.inference_mode():
        assert gap(opened(images), ours(images)) < TOLERANCE
        assert gap(vitral.load(written.path)(images), ours(images)) < TOLERANCE


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_originals_files_give_the_tokens_of_the_network_that_timm_makes_of_them(name: str, tmp_path: Path) -> None:
    start = TIMM[name]
    model = timm_network(start)
    assert start.original is not None
    tensors = start.original({key: value.clone() for key, value in model.state_dict().items()})
    torch.save({"model": tensors} if name.startswith("mae") else tensors, tmp_path / "original.pth")
    room = timm.models.eva if name.startswith("dinov3") else timm.models.vision_transformer
    model.load_state_dict(room.checkpoint_filter_fn(dict(tensors), model), strict=True)
    ours = vitral.load(tmp_path / "original.pth", image_size=start.native, architecture=start.changes)
    same_as_timm(ours, model, start.native)
    save(ours, tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / "back.pth", format="original")
    back = torch.load(written.path, weights_only=True)
    back = back.get("model", back)
    visual = {key for key in tensors if not key.startswith(("logit_scale", "transformer."))}
    assert visual == {key for key in back if not key.startswith("head.")}
    model.load_state_dict(
        room.checkpoint_filter_fn({key: value for key, value in back.items() if not key.startswith("head.")}, model)
    )
    same_as_timm(ours, model, start.native)


def transformers_network(name: str) -> Any:
    start = TRANSFORMERS[name]
    model = getattr(transformers, start.model)(getattr(transformers, start.config)(**start.settings)).eval()
    scramble(model)
    return model


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("how", ["saved", "in memory"])
def test_transformers_files_give_its_tokens_at_two_sizes(name: str, how: str, tmp_path: Path) -> None:
    start, model = TRANSFORMERS[name], transformers_network(name)
    if how == "saved":
        model.save_pretrained(tmp_path)
    else:
        model.config.save_pretrained(tmp_path)
        torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    for size in (start.native, start.other):
        ours: Any = vitral.load(tmp_path, image_size=size)
        images = pixels(size)
        with torch.inference_mode():
            tokens, pooled = start.tokens(model, images)
            assert gap(ours.model.encode(images).tokens, tokens) < TOLERANCE
            assert gap(ours.features(images), pooled) < TOLERANCE


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_folder_gives_its_input_and_features_for_a_photo(name: str, tmp_path: Path, photo: Path) -> None:
    start, model = TRANSFORMERS[name], transformers_network(name)
    processor = getattr(transformers, start.processor)(**start.processing)
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    ours = vitral.load(tmp_path)
    prepared = processor(Image.open(photo), return_tensors="pt")["pixel_values"]
    given = ours.preprocessing(read_image(photo))[None]
    assert float((given - prepared).abs().max()) < 1e-5
    with torch.inference_mode():
        assert gap(ours.features(given), start.tokens(model, prepared)[1]) < TOLERANCE


@pytest.mark.parametrize("name", ["dinov2", "dinov2-g", "dinov2-registers"])
@pytest.mark.parametrize("pooling", ["token", "token-gap"])
def test_transformers_opens_the_dinov2_classifiers_that_we_write(name: str, pooling: str, tmp_path: Path) -> None:
    transformers_network(name).save_pretrained(tmp_path / "start")
    ours = vitral.load(tmp_path / "start", image_size=112, architecture={"pooling": pooling})
    ours.model.replace_head(5)
    scramble(ours.model.head)
    save(vitral.Classifier(ours.model, ours.preprocessing, list("abcde")), tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / "theirs", format="transformers")
    opened = eval(written.how, {"transformers": transformers}).eval()
    images = pixels((112, 112))
    with torch.inference_mode():
        assert gap(ours(images), opened(images).logits) < TOLERANCE
        assert gap(vitral.load(written.path)(images), ours(images)) < TOLERANCE


@pytest.mark.parametrize("name", ["clip", "siglip", "dinov3", "dinov3-plus", "dinov3-unbiased"])
def test_transformers_opens_the_towers_that_we_write(name: str, tmp_path: Path) -> None:
    start = TRANSFORMERS[name]
    transformers_network(name).save_pretrained(tmp_path / "start")
    ours: Any = vitral.load(tmp_path / "start", image_size=start.native)
    save(ours, tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / "theirs", format="transformers")
    opened = eval(written.how, {"transformers": transformers}).eval()
    images = pixels(start.native)
    with torch.inference_mode():
        model = opened.vision_model if name == "clip" else opened
        assert gap(ours.model.encode(images).tokens, start.tokens(model, images)[0]) < TOLERANCE
    ours.model.head.bias.data.fill_(1.0)
    save(ours, tmp_path / "other")
    with pytest.raises(vitral.VitralError, match="cannot hold a head .*take 'timm'"):
        vitral.convert(tmp_path / "other", tmp_path / "refused", format="transformers")
    assert not (tmp_path / "refused").exists()


def test_a_whole_clip_is_read_as_its_image_tower_with_its_projection(tmp_path: Path) -> None:
    vision = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    text = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 16,
        "vocab_size": 30,
    }
    config = transformers.CLIPConfig(
        vision_config={**vision, "image_size": 96, "patch_size": 16}, text_config=text, projection_dim=40
    )
    model = transformers.CLIPModel(config).eval()
    scramble(model)
    model.save_pretrained(tmp_path)
    ours = vitral.load(tmp_path)
    images = pixels((96, 96))
    with torch.inference_mode():
        theirs = model.visual_projection(model.vision_model(images).pooler_output)
        assert gap(ours(images), theirs) < TOLERANCE
    assert any("40 numbers, which are no classes" in note for note in ours.provenance.notes)


def test_a_whole_siglip_is_read_as_its_image_tower_and_its_classifier_as_one(tmp_path: Path) -> None:
    vision = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    config = transformers.SiglipConfig(
        vision_config={**vision, "image_size": 96, "patch_size": 16},
        text_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "intermediate_size": 16,
            "vocab_size": 30,
        },
        num_labels=5,
    )
    images = pixels((96, 96))
    for kind in ("SiglipModel", "SiglipForImageClassification"):
        model = getattr(transformers, kind)(config).eval()
        scramble(model)
        model.save_pretrained(tmp_path / kind)
        ours = vitral.load(tmp_path / kind)
        with torch.inference_mode():
            if kind == "SiglipModel":
                assert gap(ours.features(images), model.vision_model(images).pooler_output) < TOLERANCE
            else:
                assert gap(ours(images), model(images).logits) < TOLERANCE


def test_naflex_is_refused_by_name(tmp_path: Path) -> None:
    config = transformers.Siglip2VisionConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=64
    )
    transformers.Siglip2VisionModel(config).save_pretrained(tmp_path)
    with pytest.raises(vitral.VitralError, match="NaFlex"):
        vitral.load(tmp_path)


@pytest.mark.parametrize("name", ["siglip", "siglip-so400m"])
def test_timm_opens_siglip_as_big_vision_publishes_it(name: str, tmp_path: Path) -> None:
    import numpy as np

    start = TIMM[name]
    ours: Any = vitral.load(timm_folder(timm_network(start), tmp_path), image_size=start.native)
    save(ours, tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / "plain.npz", format="big_vision")
    tower = {f"params/img/{key}": value for key, value in np.load(written.path).items() if not key.startswith("head")}
    depth = start.settings["depth"]
    stacked = {key for key in tower if "encoderblock_0/" in key}
    for key in stacked:
        parts = [tower.pop(key.replace("encoderblock_0", f"encoderblock_{index}")) for index in range(depth)]
        tower[key.replace("encoderblock_0", "encoderblock")] = np.stack(parts)
    others: Any = {"params/txt/head/kernel": np.zeros((3, 3)), "params/t": np.zeros(1)}
    np.savez(tmp_path / "siglip.npz", **tower, **others)
    model = timm_network(start)
    model.load_pretrained(str(tmp_path / "siglip.npz"), prefix="params/img/")
    read = vitral.load(tmp_path / "siglip.npz", architecture={"num_heads": 2})
    same_as_timm(read, model, start.native)
    assert read.preprocessing.resize == "squash"
