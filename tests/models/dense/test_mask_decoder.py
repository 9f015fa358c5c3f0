"""PMT's decoder against the answers of its authors' code (mask_decoder.npz), and its promise to leave the backbone alone."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import every_case
from tests.conftest import TINY
from tests.models.dense.write_mask_decoder import BLOCKS, CLASSES, DEPTH, DIM, HEADS, PATCH, QUERIES, SEED, SIDE
from tests.peers.compare import gap, pixels, scramble
from vitral.errors import ModelError, WeightsError
from vitral.images.preprocessing import Preprocessing
from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig, with_region_head
from vitral.models.dense.mask_decoder import MaskDecoder, MaskDecoderConfig
from vitral.models.families import build, config_from_json, config_to_json, count_macs
from vitral.models.vit_config import ViTConfig
from vitral.tasks.semantic import SEMANTIC
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.settings.sections import AdaptationSettings
from vitral.weights.dialect import meta_state
from vitral.weights.layouts import Rule, written
from vitral.weights.load import read_weights
from vitral.weights.names import dinov3, vit_torch
from vitral.weights.proof import prove
from vitral.weights.save import write_weights

TOLERANCE = 1e-5  # of the standard deviation
SHAPE: dict[str, Any] = {"dim": DIM, "depth": DEPTH, "mlp_dim": 2 * DIM, "num_heads": HEADS, "registers": 2}
BACKBONE = ViTConfig(
    image_size=(SIDE, SIDE), patch_size=(PATCH, PATCH), gelu="exact", layer_scale=1.0, initialization="deit", **SHAPE
)
BACKBONES = {
    "dinov2": dataclasses.replace(BACKBONE, class_position=False, position_resize="bicubic-antialias"),
    "dinov3": dataclasses.replace(BACKBONE, position="none", rotary="dinov3", rotary_rescale=2.0, norm_eps=1e-5),
}


def config_of(backbone: ViTConfig, **head: int) -> DenseConfig:
    settings = MaskDecoderConfig(**{"queries": QUERIES, "blocks": BLOCKS, **head})
    return DenseConfig(backbone=backbone, head=settings, num_classes=CLASSES, image_size=backbone.image_size)


def network(backbone: ViTConfig) -> Any:  # noqa: ANN401  # any network
    return build(config_of(backbone), seed=0)


def drawn_by_name(rules: list[Rule], config: Any) -> dict[str, Tensor]:  # noqa: ANN401  # any config
    """Return our tensors as they are read from theirs, which are drawn by their names."""
    shapes = {name: tensor.shape for name, tensor in written(rules, meta_state(config)).items()}
    theirs = {name: torch.zeros(shape) for name, shape in shapes.items()}
    scramble(SimpleNamespace(state_dict=lambda: theirs))  # type: ignore[arg-type]  # stands for a network
    made = [(rule.ours, rule.layout.read([theirs[name] for name in rule.theirs])) for rule in rules]
    return {name: tensor for names, tensors in made for name, tensor in zip(names, tensors, strict=True)}


def as_theirs(kind: str) -> Any:  # noqa: ANN401  # a DenseModel
    config, backbone = config_of(BACKBONES[kind]), BACKBONES[kind]
    table = dinov3.table(backbone, "transformers", "model.layer") if kind == "dinov3" else vit_torch.table(backbone)
    rules = [rule for rule in table if not "".join(rule.ours).startswith("head.")]
    model: Any = build(config, seed=0)
    state = {f"backbone.{name}": value for name, value in drawn_by_name(rules, backbone).items()}
    state |= drawn_by_name(prove(config, "original").rules, config)
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert all(name.endswith("num_batches_tracked") for name in missing)
    return model


@every_case("kind", BACKBONES)
def test_the_same_answers_and_gradients_as_the_authors_code(kind: str) -> None:
    with np.load(Path(__file__).with_name("mask_decoder.npz")) as file:
        expected = {
            name.removeprefix(f"{kind}/"): torch.from_numpy(file[name]) for name in file if name.startswith(kind)
        }
    model, images = as_theirs(kind), pixels((SIDE, SIDE))
    model.head.masking.zero_()
    with torch.inference_mode():
        used = model.eval()(images)
    assert gap(used.masks, expected["masks"]) < TOLERANCE
    assert gap(used.classes, expected["classes"]) < TOLERANCE
    settings = AdaptationSettings(method="probe")
    adapt(model, settings, seed=0)
    training_mode(model, settings)
    model.head.masking.fill_(1.0)
    torch.manual_seed(SEED)
    last = model.outputs(images).logits
    layers = (*last.earlier, last)
    masks, classes = torch.stack([one.masks for one in layers]), torch.stack([one.classes for one in layers])
    assert gap(masks.detach(), expected["training_masks"]) < TOLERANCE
    assert gap(classes.detach(), expected["training_classes"]) < TOLERANCE
    (masks.square().mean() + classes.square().mean()).backward()  # type: ignore[no-untyped-call]
    state = dict(model.named_buffers())
    state |= {name: torch.zeros(()) if value.grad is None else value.grad for name, value in model.named_parameters()}
    assert all(value.grad is None for value in model.backbone.parameters())
    theirs = written(prove(model.config, "original").rules, state)
    learned = (name for name in sorted(theirs) if "running" not in name and "probs" not in name)
    norms = [torch.linalg.vector_norm(theirs[name]) for name in learned]
    torch.testing.assert_close(torch.stack(norms), expected["gradients"], rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(
        torch.stack([one.norm.running_var for one in model.head.laterals]), expected["statistics"]
    )


def test_a_written_decoder_is_read_back_onto_its_backbone_alone(tmp_path: Path) -> None:
    model = as_theirs("dinov3")
    path, prepared = tmp_path / "decoder.bin", Preprocessing(image_size=(SIDE, SIDE))
    write_weights(model, prepared, ("a", "b", "c"), path, "original", task=SEMANTIC)
    stored = torch.load(path, weights_only=True)["state_dict"]
    assert all(name.startswith(("network.decoder.", "network.bn.")) for name in stored)
    backbone = build(BACKBONES["dinov3"], seed=1)
    backbone.load_state_dict(model.backbone.state_dict(), strict=False)
    read = read_weights(path, backbone=backbone)
    assert (read.class_names, read.task, read.format) == (("a", "b", "c"), SEMANTIC, "original")
    assert read.model.config == model.config
    images = pixels((SIDE, SIDE))
    with torch.inference_mode():
        assert torch.equal(read.model.eval()(images).masks, model.eval()(images).masks)
    with pytest.raises(WeightsError, match="holds a decoder of masks alone; load it with backbone="):
        read_weights(path)
    with pytest.raises(
        WeightsError, match="its tokens have 16 channels, and those of the backbone that is given have 32"
    ):
        read_weights(path, backbone=build(dataclasses.replace(BACKBONES["dinov3"], dim=32), seed=0))


def test_several_decoders_stand_on_one_backbone_and_take_another_grid() -> None:
    backbone = build(BACKBONES["dinov2"], seed=0)
    before = {name: value.clone() for name, value in backbone.state_dict().items() if not name.startswith("head.")}
    images = pixels((2 * SIDE, SIDE))
    for classes in (2, 5):
        dense = with_region_head(backbone, MaskDecoderConfig(queries=4, blocks=1), classes, seed=classes)
        assert dense.backbone is backbone
        assert dense.eval()(pixels(dense.image_size)).classes.shape == (2, 4, classes + 1)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    dense.resize((2 * SIDE, SIDE))
    assert dense(images).masks.shape == (2, 4, 24, 12)
    assert isinstance(dense.head, MaskDecoder)
    assert dense.head.rotary is not None
    assert dense.head.rotary.grid == (6, 3)


def test_its_products_are_counted_on_any_backbone() -> None:
    patches, tokens = 9, 9 + 3 + QUERIES
    for backbone in BACKBONES.values():
        config = config_of(backbone)
        block = tokens * (4 * DIM * DIM + 2 * DIM * DIM) + 2 * tokens**2 * DIM
        answers = QUERIES * (3 * DIM * DIM + DIM * (CLASSES + 1)) + QUERIES * 16 * patches * DIM
        upscaled = sum(patches * 4**step * (4 * DIM * DIM + 4 * 9 * DIM) for step in range(2))
        laterals = 4 * (patches + 3) * DIM * DIM
        own = dataclasses.replace(backbone, num_classes=1).macs_behind_stem - DIM  # its own head
        assert count_macs(config) == own + laterals + BLOCKS * block + answers + upscaled


def test_its_config_is_read_as_it_was_written() -> None:
    config = config_of(BACKBONE, mlp_dim=24, doublings=3)
    assert config_from_json(config_to_json(config)) == config


REFUSED: dict[str, tuple[Any, dict[str, int], str]] = {
    "no ViT": (variant("bit-r50x1"), {}, "it is no Vision Transformer"),
    "T2T": (variant("t2t-vit-7"), {}, "it is no Vision Transformer"),
    "shallow": (TINY, {}, "reads 4 depths of a network, and this one has 2 blocks"),
    "narrow": (dataclasses.replace(BACKBONE, num_heads=8), {}, "attention heads of a width that 4 divides"),
    "no block": (BACKBONE, {"blocks": 0}, "blocks and mlp_dim must be at least 1, not 0"),
    "no query": (BACKBONE, {"queries": 0}, "queries must be 1 to"),
}


@every_case("name", REFUSED)
def test_what_it_cannot_stand_on_is_refused_in_one_line(name: str) -> None:
    backbone, head, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        config_of(backbone, **head)
