"""Small networks of the families that are published as starts, as timm and transformers build them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Size = tuple[int, int]
Tensors = dict[str, torch.Tensor]
SMALL = {
    "embed_dim": 128,
    "depth": 2,
    "num_heads": 2,
}  # timm's names; heads of 64 channels, as a file cannot say otherwise
SMALL_HF = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}


@dataclass(frozen=True)
class TimmStart:
    """A network of timm's.

    Attributes:
        name: timm's.
        settings: what makes it small.
        native: height and width, pixels.
        other: another size that it takes.
        tag: of the published weights, whose preprocessing its config.json has; the first if empty.
        changes: what the test must say because timm computes otherwise than the weights were trained, as fields of ours.
        original: its tensors under the original files' names; None where no such file is read.
    """

    name: str
    settings: dict[str, Any]
    native: Size
    other: Size
    tag: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    original: Callable[[Tensors], Tensors] | None = None


@dataclass(frozen=True)
class TransformersStart:
    """A network of transformers'.

    Attributes:
        model: its class.
        config: the class of its config.
        settings: of the config.
        processor: the class of its image processor.
        processing: settings of the processor, as its published files have them.
        native: height and width, pixels.
        other: another size that it takes.
        tokens: the normed tokens and the pooled vector of a network on prepared images.
    """

    model: str
    config: str
    settings: dict[str, Any]
    processor: str
    processing: dict[str, Any]
    native: Size
    other: Size
    tokens: Callable[[Any, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def hidden_and_pooled(model: Any, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = model(images)
    return given.last_hidden_state, given.pooler_output


def dinov2(tensors: Tensors) -> Tensors:
    """Return timm's tensors under DINOv2's names: the class token's position apart, the gated MLP as w12 and w3."""
    renamed = {}
    gated = tensors["blocks.0.mlp.fc1.weight"].shape[0] == 2 * tensors["blocks.0.mlp.fc2.weight"].shape[1]
    for name, tensor in tensors.items():
        if gated:
            name = name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3")
        renamed[name.replace("reg_token", "register_tokens")] = tensor
    dim = tensors["cls_token"].shape[-1]
    renamed["mask_token"] = torch.zeros(1, dim)
    if "reg_token" in tensors:
        row = torch.randn(1, 1, dim, generator=torch.Generator().manual_seed(1))
        renamed["cls_token"] = tensors["cls_token"] - row
        renamed["pos_embed"] = torch.cat([row, tensors["pos_embed"]], dim=1)
    return renamed


PATCH_14: dict[str, Any] = {"native": (112, 112), "other": (168, 140)}
TIMM: dict[str, TimmStart] = {
    "dinov2": TimmStart("vit_small_patch14_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-g": TimmStart("vit_giant_patch14_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-registers": TimmStart("vit_small_patch14_reg4_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-g-registers": TimmStart("vit_giant_patch14_reg4_dinov2", SMALL, original=dinov2, **PATCH_14),
}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
DINOV2 = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3, **IMAGENET}


def _dinov2_hf(kind: str, **settings: Any) -> TransformersStart:
    return TransformersStart(
        f"{kind}Model",
        f"{kind}Config",
        {**SMALL_HF, "image_size": 112, "patch_size": 14, **settings},
        "BitImageProcessor",
        DINOV2,
        tokens=hidden_and_pooled,
        **PATCH_14,
    )


TRANSFORMERS: dict[str, TransformersStart] = {
    "dinov2": _dinov2_hf("Dinov2"),
    "dinov2-g": _dinov2_hf("Dinov2", use_swiglu_ffn=True),
    "dinov2-registers": _dinov2_hf("Dinov2WithRegisters"),
    "dinov2-g-registers": _dinov2_hf("Dinov2WithRegisters", use_swiglu_ffn=True),
}
