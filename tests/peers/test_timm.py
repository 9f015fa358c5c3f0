"""Our networks against timm's on shared random weights: the same logits from the same pixels, the same probabilities from
the same file, in both directions.
"""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.peers.compare import gap, pixels, scramble
from vitral.images.decode import read_image

timm = pytest.importorskip("timm")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOLERANCE = 1e-4
# The published architectures, and options of timm's that a checkpoint of its may have been trained with.
MODELS: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {},
    "vit_small_patch16_384": {},
    "vit_small_patch32_224": {},
    "vit_base_patch16_224": {"depth": 3},
    "vit_base_patch8_224": {"depth": 1},
    "vit_large_patch16_224": {"depth": 2},
    "vit_huge_patch14_224": {"depth": 2, "num_classes": 7},
    "vit_giant_patch14_224": {"depth": 1},
    "vit_gigantic_patch14_224": {"depth": 1},
    "vit_tiny_r_s16_p8_224": {},
    "vit_small_r26_s32_224": {"depth": 2},
    "vit_base_r50_s16_224": {"depth": 2, "num_classes": 7},
    # SigLIP's weights were trained with the tanh form, which these two of timm's networks do not have by themselves.
    "vit_base_patch16_siglip_gap_224": {"depth": 2, "num_classes": 7, "act_layer": "gelu_tanh"},
    "vit_base_patch16_siglip_224": {"depth": 2, "num_classes": 7, "act_layer": "gelu_tanh"},
    "vit_small_patch14_reg4_dinov2": {"depth": 2, "num_classes": 7, "img_size": 224},
    "deit_tiny_patch16_224": {},
    "deit_small_patch16_224": {"depth": 3},
    "deit_base_patch16_384": {"depth": 2},
    "deit_tiny_distilled_patch16_224": {},
    "deit_base_distilled_patch16_384": {"depth": 2},
    "deit3_small_patch16_224": {"depth": 3},
    "deit3_small_patch16_384": {"depth": 2},
    "deit3_medium_patch16_224": {"depth": 2},
    "deit3_base_patch16_384": {"depth": 1},
    "deit3_large_patch16_224": {"depth": 1},
    "deit3_huge_patch14_224": {"depth": 1},
    "resnetv2_50x1_bit": {},
    "resnetv2_50x3_bit": {},
    "resnetv2_101x1_bit": {},
    "tf_efficientnet_b0": {},
    "tf_efficientnet_b1": {},
    "tf_efficientnet_b4": {},
    "tf_efficientnet_b7": {},
    **{f"tf_efficientnet_lite{size}": {} for size in range(5)},
    **{f"tiny_vit_{size}": {} for size in ("5m_224", "11m_224", "21m_224", "21m_384", "21m_512")},
    "coatnet_0_224": {},
    "coatnet_1_224": {},
    "coatnet_2_224": {},
    "resnet18": {},
    "resnet34": {},
    "resnet50": {},
}


def peer(name: str) -> Any:
    model = timm.create_model(name, **MODELS[name]).eval()
    scramble(model)
    return model


def saved(model: Any, folder: Path) -> Path:
    """Write a timm model as timm does: weights and config.json."""
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return folder / "model.safetensors"


@pytest.mark.parametrize("name", MODELS)
def test_the_same_logits(name: str, tmp_path: Path) -> None:
    model = peer(name)
    classifier = vitral.load(saved(model, tmp_path))
    images = pixels(classifier.model.image_size)
    with torch.inference_mode():
        assert gap(classifier(images), model(images)) < TOLERANCE


@pytest.mark.parametrize(
    "name",
    ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "tf_efficientnet_b1", "tiny_vit_5m_224", "resnet18"],
)
def test_the_same_photo_gives_the_same_probabilities(name: str, tmp_path: Path, photo: Path) -> None:
    model = peer(name)
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model=model))
    classifier = vitral.load(saved(model, tmp_path))
    prepared = transform(Image.open(photo))
    ours = classifier.preprocessing(read_image(photo))
    with torch.inference_mode():
        theirs = model(prepared[None]).softmax(dim=-1)
    assert float((ours - prepared).abs().max()) < 1e-5
    assert float((classifier.probabilities(ours[None]) - theirs).abs().max()) < TOLERANCE


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("vit-ti16", {}),
        ("vit-mu16", {}),
        ("vit-ti16", {"image_size": 160}),
        ("vit-nano4", {}),
        ("vit-ti16", {"pooling": "gap"}),
        ("vit-ti16", {"pooling": "map", "patch_size": 32}),
        ("deit-ti16", {}),
        ("deit-ti16-distilled", {}),
        ("deit3-s16", {}),
        ("bit-r50x1", {}),
        ("resnet-18", {}),
        ("resnet-50", {}),
        ("efficientnet-b0", {}),
        ("efficientnet-lite1", {}),
        ("tinyvit-5m", {}),
    ],
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm_opens_what_we_write_with_our_logits(
    variant: str, settings: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    model = vitral.create_model(variant, num_classes=11, **settings)
    scramble(model)
    classifier = vitral.Classifier(model, vitral.load("vit-mu16").preprocessing.with_size(model.image_size))
    from vitral.classifier.folder import save

    save(classifier, tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / f"theirs{suffix}", format="timm")
    opened = eval(written.how, {"timm": timm, "functools": functools, "torch": torch}).eval()
    images = pixels(model.image_size)
    with torch.inference_mode():
        assert gap(opened(images), model(images)) < TOLERANCE
        assert gap(vitral.load(written.path, architecture=_unsaid(variant))(images), model(images)) < TOLERANCE


def _unsaid(variant: str) -> dict[str, Any]:
    """Return what a file of timm's cannot say of a network of ours."""
    if not variant.startswith("vit-"):
        return {}
    heads = vitral.create_model(variant).config.num_heads
    return {"gelu": "tanh", "num_heads": heads}


def test_the_original_hybrid_is_said_to_compute_otherwise_in_timm(tmp_path: Path) -> None:
    written = vitral.convert("r-vit-ti16", tmp_path / "hybrid.safetensors", format="timm")
    assert "stem" in written.notes[0]


@pytest.mark.parametrize("name", ["vit_small_patch16_384", "coatnet_0_224", "resnetv2_50x1_bit", "tf_efficientnet_b0"])
def test_timm_to_us_and_back_is_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = peer(name)
    written = vitral.convert(saved(model, tmp_path), tmp_path / "back.pth", format="timm")
    back = torch.load(written.path, weights_only=True)
    assert set(back) == set(model.state_dict())
    counters = {key for key in back if key.endswith("num_batches_tracked")}
    assert all(torch.equal(back[key], value) for key, value in model.state_dict().items() if key not in counters)
