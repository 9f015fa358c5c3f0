"""What a config.json of timm's says of a network: every network of timm's gives timm's logits or is refused by its name."""

import csv
import dataclasses
import functools
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import vitral
from tests.peers.compare import gap, pixels, scramble
from vitral.errors import VitralError, WeightsError
from vitral.images.decode import read_image
from vitral.weights.containers import COUNTER
from vitral.weights.dialect import Stored
from vitral.weights.recognize import DIALECTS

timm = pytest.importorskip("timm")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

TOLERANCE = 3e-5  # of which the tanh form of GELU is ten times as far from the exact one
STEM_TOLERANCE = 3e-4  # behind the many layers of a hybrid's stem
HEAVY = 50e6  # parameters of convolutions, which cannot be made narrower
HEAD_DIM = 8
DEPTH = {"depth": 2}
TAKEN = 378  # pixels of 384 that patches of 14 fill


@functools.cache
def known() -> dict[str, dict[str, str]]:
    with (files("vitral.weights.names") / "timm_networks.csv").open() as file:
        return {name: row for row in csv.DictReader(file) for name in row["names"].split()}


def small(name: str) -> dict[str, Any]:
    """Return the arguments that make a network small, its own number of heads among them."""
    heads = known()[name]["heads"]
    return {"num_classes": 3, **({**DEPTH, "embed_dim": HEAD_DIM * int(heads)} if heads else {})}


def made(name: str, **arguments: Any) -> Any:
    model = timm.create_model(name, **arguments).eval()
    scramble(model)
    return model


def saved(model: Any, folder: Path) -> Path:
    timm.models.save_for_hf(model, folder, safe_serialization=True)
    return folder


def same(model: Any, classifier: vitral.Classifier, size: tuple[int, int]) -> None:
    images = pixels(size, batch=1)
    rows, columns = classifier.model.image_size
    tolerance = STEM_TOLERANCE if getattr(classifier.model.config, "stem", None) else TOLERANCE
    with torch.inference_mode():
        assert gap(classifier(images[..., :rows, :columns]), model(images)) < tolerance


def size_of(model: Any) -> tuple[int, int]:
    patches = getattr(model, "patch_embed", None)
    height, width = getattr(patches, "img_size", None) or images_of(model)["input_size"][1:]
    return height, width


def images_of(model: Any) -> dict[str, Any]:
    """Return how timm prepares images for a network as it stands."""
    from timm.data.model_config import resolve_input_data_config

    config: dict[str, Any] = resolve_input_data_config(model, pretrained_cfg=model.pretrained_cfg)
    return config


NAMES = sorted(set(known()) & set(timm.list_models()))


@pytest.mark.parametrize("name", NAMES)
def test_a_known_network_gives_timms_logits(name: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        whole = timm.create_model(name, **small(name))
    if sum(parameter.numel() for parameter in whole.parameters()) > HEAVY:
        assert reading_of(name, whole)
        return
    model = made(name, **small(name))
    classifier = vitral.load(saved(model, tmp_path))
    size = size_of(model)
    assert not any("assumed" in note for note in classifier.provenance.notes)
    if classifier.model.image_size != size:
        assert classifier.model.image_size == (TAKEN, TAKEN)
        assert any("384x384" in note and "378x378" in note for note in classifier.provenance.notes)
    same(model, classifier, size)


def reading_of(name: str, model: Any) -> bool:
    """Tell whether a network's names and shapes, with its config.json, are read as a whole network's."""
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items() if not key.endswith(COUNTER)}
    config = {"architecture": name, "num_features": model.num_features, "pretrained_cfg": model.pretrained_cfg}
    stored = Stored(name, "model.safetensors", shapes, config)
    dialect = next((dialect for dialect in DIALECTS if dialect.matches(stored)), None)
    if dialect is None:
        return False
    try:
        return {key for rule in dialect.read(stored).rules for key in rule.theirs} == shapes.keys()
    except (ValueError, KeyError, IndexError, TypeError, VitralError):
        return False


@pytest.mark.long
def test_every_other_network_of_timms_is_refused() -> None:
    read = []
    for name in sorted(set(timm.list_models()) - set(known())):
        for arguments in (DEPTH, {}):
            try:
                with torch.device("meta"):
                    model = timm.create_model(name, **arguments)
            except (TypeError, RuntimeError, ValueError, AssertionError, NotImplementedError, AttributeError):
                continue
            read += [name] if reading_of(name, model) else []
            break
    assert read == []


@pytest.mark.parametrize("name", ["vit_base_patch16_rpn_224", "vit_small_patch16_rope_ape_224", "resnetblur18"])
def test_a_network_with_the_tensors_of_another_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    model = made(name, **({} if name.startswith("resnet") else {**DEPTH, "embed_dim": 96}))
    with pytest.raises(WeightsError, match=f"'{name}'"):
        vitral.load(saved(model, tmp_path))


TINY = "vit_tiny_patch16_224"
DINOV3 = "vit_small_patch16_dinov3"
CLIP = "vit_base_patch16_clip_224"
WIDTH = {"embed_dim": 96}
COMPUTED: list[tuple[str, dict[str, Any]]] = [
    (DINOV3, {}),
    (DINOV3, {"global_pool": "token"}),
    (DINOV3, {"num_heads": 3, "img_size": 128}),
    (DINOV3, {"img_size": (128, 192)}),
    (TINY, {"global_pool": "avg", "fc_norm": False}),
    (TINY, {"global_pool": "avg"}),
    (TINY, {"global_pool": "avg", "class_token": False}),
    (TINY, {"global_pool": "map", "class_token": False}),
    (TINY, {"global_pool": "map"}),
    (TINY, {"fc_norm": True}),
    (TINY, {"reg_tokens": 3}),
    (TINY, {"reg_tokens": 3, "no_embed_class": True}),
    (TINY, {"reg_tokens": 3, "global_pool": "avg"}),
    (TINY, {"reg_tokens": 1, "global_pool": "avg", "fc_norm": False, "no_embed_class": True}),
    (TINY, {"no_embed_class": True}),
    (TINY, {"num_heads": 6}),
    (TINY, {"num_heads": 3, "embed_dim": 384}),
    (TINY, {"act_layer": "gelu_tanh"}),
    (TINY, {"act_layer": "quick_gelu"}),
    (TINY, {"init_values": 0.1}),
    (TINY, {"qkv_bias": False}),
    (TINY, {"pre_norm": True}),
    (TINY, {"norm_layer": "layernorm"}),
    (TINY, {"drop_path_rate": 0.1, "dynamic_img_size": True, "weight_init": "jax"}),
    (TINY, {"img_size": (128, 512)}),
    (TINY, {"img_size": (224, 448)}),
    (TINY, {"img_size": (448, 64), "patch_size": 32}),
    (TINY, {"img_size": (96, 96), "patch_size": (16, 8)}),
    (f"{CLIP}.openai", {}),
    (CLIP, {"norm_layer": "layernorm"}),
    ("vit_base_patch16_clip_quickgelu_224.openai", {}),
    ("vit_base_patch16_gap_224", {"img_size": (128, 512)}),
    ("deit_tiny_distilled_patch16_224", {"img_size": (128, 512)}),
    ("eva02_tiny_patch14_224", {"img_size": (112, 448)}),
    ("vit_tiny_r_s16_p8_224", {"img_size": (128, 512)}),
]


@pytest.mark.parametrize(("name", "arguments"), COMPUTED)
def test_arguments_that_the_tensors_do_not_tell_are_read(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    model = made(name, num_classes=3, **{**DEPTH, **WIDTH, **arguments})
    same(model, vitral.load(saved(model, tmp_path)), size_of(model))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (TINY, {"global_pool": "max"}, "global_pool 'max'"),
    (TINY, {"global_pool": "avgmax"}, "global_pool 'avgmax'"),
    (TINY, {"global_pool": ""}, "global_pool ''"),
    (TINY, {"global_pool": "prr"}, "global_pool 'prr'"),
    (TINY, {"global_pool": "avg", "pool_include_prefix": True}, "pool_include_prefix=True"),
    (TINY, {"act_layer": "relu"}, "act_layer=relu"),
    (TINY, {"norm_layer": "rmsnorm"}, "norm_layer=rmsnorm"),
    (TINY, {"qk_norm": True}, "qk_norm=True"),
    (TINY, {"final_norm": False}, "norm"),
    (DINOV3, {"global_pool": "max"}, "global_pool 'max'"),
    (DINOV3, {"rope_temperature": 50.0}, "rope_temperature=50.0"),
    ("eva02_tiny_patch14_224", {"global_pool": "token", "use_fc_norm": True}, "pooling"),
    ("resnet18", {"global_pool": "max"}, "global_pool 'max'"),
    ("resnet18", {"output_stride": 16}, "output_stride=16"),
    ("resnet18", {"act_layer": "silu"}, "act_layer=silu"),
    ("tf_efficientnet_b0", {"act_layer": "relu"}, "act_layer=relu"),
]


@pytest.mark.parametrize(("name", "arguments", "what"), REFUSED)
def test_arguments_that_are_not_computed_are_refused_by_name(
    name: str, arguments: dict[str, Any], what: str, tmp_path: Path
) -> None:
    vit = {} if name.startswith(("resnet", "tf_")) else {**DEPTH, **WIDTH}
    model = made(name, num_classes=3, **vit, **arguments)
    with pytest.raises(WeightsError) as refused:
        vitral.load(saved(model, tmp_path))
    assert what in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_photo_is_prepared_for_an_oblong_network_as_timm_does(tmp_path: Path, photo: Path) -> None:
    model = made(TINY, num_classes=3, img_size=(128, 512), **DEPTH, **WIDTH)
    transform = timm.data.create_transform(**images_of(model))
    classifier = vitral.load(saved(model, tmp_path))
    prepared = transform(Image.open(photo))
    ours = classifier.preprocessing(read_image(photo))
    assert ours.shape == prepared.shape == (3, 128, 512)
    assert float((ours - prepared).abs().max()) < 1e-5
    with torch.inference_mode():
        theirs = model(prepared[None]).softmax(dim=-1)[0]
    assert [score for _, score in sorted(classifier.predict(photo, top=3)[0].top)] == pytest.approx(
        theirs.tolist(), abs=1e-5
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(TINY, {"img_size": (128, 512)}), (DINOV3, {}), (TINY, {"reg_tokens": 3, "global_pool": "avg"})],
)
def test_what_was_read_is_kept_and_written_so_that_timm_opens_it(
    name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    model = made(name, num_classes=3, **{**DEPTH, **WIDTH, **arguments})
    classifier = vitral.load(saved(model, tmp_path / "theirs"))
    written = vitral.convert(tmp_path / "theirs", tmp_path / "back.safetensors", format="timm")
    opened = eval(written.how, {"timm": timm, "functools": functools, "torch": torch}).eval()
    images = pixels(size_of(model), batch=1)
    with torch.inference_mode():
        assert gap(opened(images), model(images)) < TOLERANCE
        assert gap(vitral.load(written.path)(images), model(images)) < TOLERANCE
    assert dataclasses.asdict(vitral.load(written.path).model.config) == dataclasses.asdict(classifier.model.config)
