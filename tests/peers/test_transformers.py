"""Our networks against transformers' on shared random weights, and its image processors on the same photo, both ways."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.peers.compare import gap, pixels, scramble
from vitral.classifier.folder import save
from vitral.images.decode import read_image
from vitral.images.preprocessing import ORIGINAL, PHOTOS, Preprocessing

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCE = 1e-4


def vit(**settings: Any) -> Any:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(num_hidden_layers=3, num_labels=12, **settings)
    )


def deit(kind: str) -> Any:
    config = transformers.DeiTConfig(
        hidden_size=192, num_hidden_layers=3, num_attention_heads=3, intermediate_size=768, num_labels=12
    )
    return getattr(transformers, kind)(config)


NETWORKS: dict[str, tuple[Any, Any]] = {
    "vit": (vit, lambda: transformers.ViTImageProcessor()),
    "vit-384": (
        lambda: vit(image_size=384),
        lambda: transformers.ViTImageProcessor(size={"height": 384, "width": 384}),
    ),
    "vit-tanh": (lambda: vit(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6), transformers.ViTImageProcessor),
    "vit-odd-heads": (lambda: vit(num_attention_heads=8), transformers.ViTImageProcessor),
    "deit": (lambda: deit("DeiTForImageClassification"), transformers.DeiTImageProcessor),
    "deit-teacher": (lambda: deit("DeiTForImageClassificationWithTeacher"), transformers.DeiTImageProcessor),
    "bit": (
        lambda: transformers.BitForImageClassification(transformers.BitConfig(num_labels=12)),
        transformers.BitImageProcessor,
    ),
    "cvt": (
        lambda: transformers.CvtForImageClassification(transformers.CvtConfig(num_labels=12)),
        lambda: transformers.ConvNextImageProcessor(size={"shortest_edge": 224}),
    ),
}


@pytest.fixture(scope="module", params=list(NETWORKS))
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """A network with its processor, and the folder that they were saved to."""
    make, process = NETWORKS[request.param]
    model, processor = make().eval(), process()
    scramble(model)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor, folder


def test_the_same_logits(published: tuple[Any, Any, Path]) -> None:
    model, _, folder = published
    classifier = vitral.load(folder)
    images = pixels(classifier.model.image_size)
    with torch.inference_mode():
        assert gap(classifier(images), model(images).logits) < TOLERANCE


def test_the_same_photo_gives_the_same_probabilities(published: tuple[Any, Any, Path], photo: Path) -> None:
    model, processor, folder = published
    classifier = vitral.load(folder)
    prepared = processor(Image.open(photo), return_tensors="pt")["pixel_values"]
    ours = classifier.preprocessing(read_image(photo))[None]
    assert float((ours - prepared).abs().max()) < 1e-5
    with torch.inference_mode():
        theirs = model(prepared).logits.softmax(dim=-1)
    assert float((classifier.probabilities(ours) - theirs).abs().max()) < TOLERANCE


def test_a_bin_file_of_names_in_memory_is_read_too(tmp_path: Path) -> None:
    model = vit().eval()
    scramble(model)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path)
    images = pixels((224, 224))
    with torch.inference_mode():
        assert gap(vitral.load(tmp_path)(images), model(images).logits) < TOLERANCE


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    model = vit().eval()
    scramble(model)
    model.save_pretrained(tmp_path, max_shard_size="30MB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    images = pixels((224, 224))
    with torch.inference_mode():
        assert gap(vitral.load(tmp_path)(images), model(images).logits) < TOLERANCE


def test_a_headless_network_keeps_its_pooler(tmp_path: Path) -> None:
    config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=1, intermediate_size=96)
    model = transformers.ViTModel(config).eval()
    scramble(model)
    model.save_pretrained(tmp_path)
    classifier = vitral.load(tmp_path)
    assert any("no head" in note for note in classifier.provenance.notes)
    images = pixels((224, 224))
    with torch.inference_mode():
        assert gap(classifier.features(images), model(images).pooler_output) < TOLERANCE


SQUASHED = Preprocessing(resampler="torch", crop_fraction=0.875, interpolation="bicubic", antialias=True)
CUT = Preprocessing(resampler="torch", resize="crop", crop_fraction=0.9, antialias=True)


@pytest.mark.parametrize(
    ("variant", "changes", "preprocessing"),
    [
        ("vit-ti16", {}, ORIGINAL),
        ("vit-ti16", {}, PHOTOS),
        ("vit-ti16", {"image_size": 192, "patch_size": (32, 32)}, CUT),
        ("deit-ti16", {}, SQUASHED),
        ("deit-ti16-distilled", {}, SQUASHED),
        ("bit-r50x1", {}, ORIGINAL),
        ("cvt-13", {"gelu": "exact"}, CUT),
    ],
)
def test_transformers_opens_what_we_write_with_our_probabilities(
    variant: str, changes: dict[str, Any], preprocessing: Preprocessing, tmp_path: Path, photo: Path
) -> None:
    from vitral.models.catalog import variant as config_of
    from vitral.models.families import build, replace

    size = changes.pop("image_size", 224)
    model = build(replace(config_of(variant), num_classes=5, image_size=(size, size), **changes))
    scramble(model)
    names = ["ape", "bee", "cat", "dog", "elk"]
    save(vitral.Classifier(model, preprocessing.with_size(size), names), tmp_path / "ours")
    written = vitral.convert(tmp_path / "ours", tmp_path / "theirs", format="transformers")
    opened = eval(written.how, {"transformers": transformers}).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(written.path)
    with torch.inference_mode():
        inputs = processor(Image.open(photo), return_tensors="pt")
        theirs = opened(**inputs).logits.softmax(dim=-1)[0]
    ours = vitral.load(tmp_path / "ours").predict(photo, top=5)[0]
    labels = opened.config.id2label
    assert dict(ours.top) == pytest.approx(
        {labels[index]: float(value) for index, value in enumerate(theirs)}, abs=TOLERANCE
    )
    back = vitral.load(written.path)
    assert back.class_names == tuple(names)
    assert dict(back.predict(photo, top=5)[0].top) == pytest.approx(dict(ours.top), abs=TOLERANCE)


def test_cvts_own_weights_are_not_written_as_another_network(tmp_path: Path) -> None:
    with pytest.raises(vitral.VitralError, match="GELU 'quick'"):
        vitral.convert("cvt-13", tmp_path / "cvt", format="transformers")


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 3}
MLP = {"intermediate_size": 128}
OBLONG: list[tuple[str, str, dict[str, Any]]] = [
    ("ViTForImageClassification", "ViTConfig", {**MLP, "image_size": [128, 512]}),
    ("ViTForImageClassification", "ViTConfig", {**MLP, "image_size": [224, 448]}),
    ("ViTForImageClassification", "ViTConfig", {**MLP, "image_size": [96, 96], "patch_size": [16, 8]}),
    ("DeiTForImageClassificationWithTeacher", "DeiTConfig", {**MLP, "image_size": [128, 512]}),
    ("Dinov2ForImageClassification", "Dinov2Config", {"image_size": [112, 448]}),
    ("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig", {"image_size": [128, 512]}),
]


@pytest.mark.parametrize(("kind", "config", "settings"), OBLONG)
def test_oblong_images_give_the_same_logits(kind: str, config: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = getattr(transformers, kind)(getattr(transformers, config)(**SMALL, **settings)).eval()
    scramble(model)
    model.save_pretrained(tmp_path)
    classifier = vitral.load(tmp_path)
    images = pixels(tuple(settings["image_size"]))
    with torch.inference_mode():
        assert gap(classifier(images), model(images).logits) < TOLERANCE


DINOV3 = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_register_tokens": 4, **MLP}
OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    ("ViTForImageClassification", "ViTConfig", {**SMALL, **MLP, "hidden_act": "relu"}, "relu"),
    ("ViTModel", "ViTConfig", {**SMALL, **MLP, "pooler_act": "gelu"}, "pooler_act gelu"),
    ("YolosModel", "YolosConfig", {**SMALL, **MLP, "image_size": [128, 512]}, "yolos"),
    ("IJepaModel", "IJepaConfig", {**SMALL, **MLP}, "ijepa"),
    ("DINOv3ViTModel", "DINOv3ViTConfig", {**DINOV3, "rope_theta": 1000.0}, "rope_theta 1000.0"),
    ("DINOv3ViTModel", "DINOv3ViTConfig", {**DINOV3, "use_gated_mlp": True}, "hidden_act gelu"),
    ("BitForImageClassification", "BitConfig", {"depths": [1, 1, 1, 1], "output_stride": 16}, "output_stride 16"),
    ("CvtForImageClassification", "CvtConfig", {"stride_kv": [1, 1, 1]}, "stride_kv"),
]


@pytest.mark.parametrize(("kind", "config", "settings", "what"), OTHERS)
def test_a_setting_that_is_not_computed_is_refused_by_name(
    kind: str, config: str, settings: dict[str, Any], what: str, tmp_path: Path
) -> None:
    getattr(transformers, kind)(getattr(transformers, config)(**settings)).save_pretrained(tmp_path)
    with pytest.raises(vitral.VitralError, match=what) as refused:
        vitral.load(tmp_path)
    assert "\n" not in str(refused.value)
