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


def swapped(tensors: Tensors, swaps: dict[str, str]) -> Tensors:
    """Return tensors under names of which parts are replaced, one after the other."""
    renamed = {}
    for name, tensor in tensors.items():
        for old, new in swaps.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def dinov2(tensors: Tensors) -> Tensors:
    """Return timm's tensors under DINOv2's names: the class token's position apart, the gated MLP as w12 and w3."""
    gated = tensors["blocks.0.mlp.fc1.weight"].shape[0] == 2 * tensors["blocks.0.mlp.fc2.weight"].shape[1]
    swaps = {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"} if gated else {}
    renamed = swapped(tensors, swaps | {"reg_token": "register_tokens"})
    dim = tensors["cls_token"].shape[-1]
    renamed["mask_token"] = torch.zeros(1, dim)
    if "reg_token" in tensors:
        row = torch.randn(1, 1, dim, generator=torch.Generator().manual_seed(1))
        renamed["cls_token"] = tensors["cls_token"] - row
        renamed["pos_embed"] = torch.cat([row, tensors["pos_embed"]], dim=1)
    return renamed


def open_clip(tensors: Tensors) -> Tensors:
    """Return timm's tensors under OpenCLIP's names, with a text tower's beside them."""
    swaps = {
        "patch_embed.proj.": "conv1.",
        "norm_pre": "ln_pre",
        "blocks.": "transformer.resblocks.",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attn.qkv.": "attn.in_proj_",
        "attn.proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    }
    renamed = {"logit_scale": torch.ones(()), "transformer.resblocks.0.ln_1.weight": torch.ones(16)}
    for name, tensor in swapped(tensors, swaps).items():
        name = "ln_post" + name[4:] if name.startswith("norm.") else name
        renamed[f"visual.{name}"] = tensor
    renamed["visual.class_embedding"] = renamed.pop("visual.cls_token")[0, 0]
    renamed["visual.positional_embedding"] = renamed.pop("visual.pos_embed")[0]
    renamed["visual.proj"] = renamed.pop("visual.head.weight").T.contiguous()
    del renamed["visual.head.bias"]
    return renamed


def dinov3(tensors: Tensors) -> Tensors:
    """Return timm's tensors under DINOv3's names, with a mask over the biases of the keys."""
    swaps = {
        "reg_token": "storage_tokens",
        "gamma_1": "ls1.gamma",
        "gamma_2": "ls2.gamma",
        "fc1_g": "w1",
        "fc1_x": "w2",
    }
    gated = any("fc1_g" in name for name in tensors)
    swaps |= {"mlp.fc2": "mlp.w3"} if gated else {}
    renamed = {"mask_token": torch.zeros(1, 128), "rope_embed.periods": torch.ones(16)}
    for name, tensor in swapped(tensors, swaps).items():
        if name.endswith("q_bias"):
            key = torch.randn(len(tensor), generator=torch.Generator().manual_seed(2))  # which the mask takes out
            stem = name.removesuffix("q_bias")
            renamed[f"{stem}qkv.bias"] = torch.cat([tensor, key, tensors[name.replace("q_bias", "v_bias")]])
            renamed[f"{stem}qkv.bias_mask"] = torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(len(tensor))
        elif not name.endswith("v_bias"):
            renamed[name] = tensor
    return renamed


def same(tensors: Tensors) -> Tensors:
    return tensors


PATCH_14: dict[str, Any] = {"native": (112, 112), "other": (168, 140)}
TIMM: dict[str, TimmStart] = {
    "dinov2": TimmStart("vit_small_patch14_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-g": TimmStart("vit_giant_patch14_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-registers": TimmStart("vit_small_patch14_reg4_dinov2", SMALL, original=dinov2, **PATCH_14),
    "dinov2-g-registers": TimmStart("vit_giant_patch14_reg4_dinov2", SMALL, original=dinov2, **PATCH_14),
}
# Of these the authors' way of resizing positions is kept, which is not timm's.
ANTIALIASED = {"position_resize": "bicubic-antialias"}
PATCH_16: dict[str, Any] = {"native": (96, 96), "other": (128, 80)}
TOKEN = {**SMALL, "global_pool": "token"}  # as DINOv3's authors pool; timm by itself takes the mean
MEAN = {**SMALL, "global_pool": "avg"}
TANH = {**SMALL, "act_layer": "gelu_tanh"}  # which SigLIP's weights were trained with, and some of timm's networks lack
TIMM |= {
    "clip": TimmStart("vit_base_patch16_clip_quickgelu_224", {**SMALL, "num_classes": 40}, tag="openai", **PATCH_16),
    "clip-plain": TimmStart(
        "vit_base_patch16_clip_224", {**SMALL, "num_classes": 40, "act_layer": "quick_gelu"}, tag="openai", **PATCH_16
    ),
    "openclip": TimmStart(
        "vit_base_patch16_clip_224", {**SMALL, "num_classes": 40}, tag="datacompxl", original=open_clip, **PATCH_16
    ),
    "siglip": TimmStart("vit_base_patch16_siglip_224", TANH, tag="webli", **PATCH_16),
    "siglip2": TimmStart("vit_base_patch32_siglip_256", SMALL, tag="v2_webli", native=(192, 192), other=(256, 160)),
    "siglip-so400m": TimmStart("vit_so400m_patch14_siglip_224", {**TANH, "mlp_ratio": 3.5}, tag="v2_webli", **PATCH_14),
    "siglip-gap": TimmStart("vit_base_patch16_siglip_gap_224", TANH, tag="webli", **PATCH_16),
    "dinov3": TimmStart("vit_small_patch16_dinov3", TOKEN, **PATCH_16),
    "dinov3-biases": TimmStart("vit_small_patch16_dinov3_qkvb", TOKEN, original=dinov3, **PATCH_16),
    "dinov3-plus": TimmStart("vit_small_plus_patch16_dinov3", TOKEN, original=dinov3, **PATCH_16),
    "dinov3-plus-biases": TimmStart("vit_small_plus_patch16_dinov3_qkvb", TOKEN, original=dinov3, **PATCH_16),
    "eva02": TimmStart("eva02_tiny_patch14_224", {**SMALL, "mlp_ratio": 2.75}, tag="mim_in22k", **PATCH_14),
    "eva02-b": TimmStart(
        "eva02_base_patch14_224", {**SMALL, "mlp_ratio": 2.75, "num_classes": 7}, tag="mim_in22k", **PATCH_14
    ),
    "mae": TimmStart("vit_base_patch16_224", SMALL, tag="mae", changes=ANTIALIASED, original=same, **PATCH_16),
    "mae-finetuned": TimmStart(
        "vit_base_patch16_224", {**SMALL, "global_pool": "avg"}, tag="mae", changes=ANTIALIASED, **PATCH_16
    ),
    "deit3": TimmStart("deit3_small_patch16_224", SMALL, tag="fb_in22k_ft_in1k", changes=ANTIALIASED, **PATCH_16),
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


def normed(model: Any, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return CLIP's tokens after the norm, which transformers takes of the class token alone."""
    given = model(images, interpolate_pos_encoding=True)
    return model.post_layernorm(given.last_hidden_state), given.pooler_output


def resized(model: Any, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return hidden_and_pooled(lambda values: model(values, interpolate_pos_encoding=True), images)


def unmasked(model: Any, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return MAE's tokens with nothing masked, in the images' order."""
    patches = (images.shape[2] // 16) * (images.shape[3] // 16)
    noise = torch.arange(patches)[None].expand(len(images), -1).float()
    tokens = model(images, noise=noise, interpolate_pos_encoding=True).last_hidden_state
    return tokens, tokens[:, 0]


def _dinov3_hf(**settings: Any) -> TransformersStart:
    return TransformersStart(
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**SMALL_HF, "intermediate_size": 512, "image_size": 96, "num_register_tokens": 4, **settings},
        "DINOv3ViTImageProcessor",
        {"size": {"height": 96, "width": 96}},
        tokens=hidden_and_pooled,
        **PATCH_16,
    )


CLIP_PROCESSING = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
TRANSFORMERS: dict[str, TransformersStart] = {
    "clip": TransformersStart(
        "CLIPVisionModel",
        "CLIPVisionConfig",
        {**SMALL_HF, "intermediate_size": 256, "image_size": 96, "patch_size": 16},
        "CLIPImageProcessor",
        {"size": {"shortest_edge": 96}, "crop_size": {"height": 96, "width": 96}, **CLIP_PROCESSING},
        tokens=normed,
        **PATCH_16,
    ),
    "siglip": TransformersStart(
        "SiglipVisionModel",
        "SiglipVisionConfig",
        {**SMALL_HF, "intermediate_size": 256, "image_size": 96, "patch_size": 16},
        "SiglipImageProcessor",
        {"size": {"height": 96, "width": 96}},
        tokens=resized,
        **PATCH_16,
    ),
    "dinov3": _dinov3_hf(),
    "dinov3-plus": _dinov3_hf(use_gated_mlp=True, hidden_act="silu"),
    "dinov3-unbiased": _dinov3_hf(query_bias=False, value_bias=False),
    "mae": TransformersStart(
        "ViTMAEModel",
        "ViTMAEConfig",
        {**SMALL_HF, "intermediate_size": 256, "image_size": 96, "patch_size": 16, "mask_ratio": 0.0},
        "ViTImageProcessor",
        {"size": {"height": 96, "width": 96}, **IMAGENET},
        tokens=unmasked,
        **PATCH_16,
    ),
    "dinov2": _dinov2_hf("Dinov2"),
    "dinov2-g": _dinov2_hf("Dinov2", use_swiglu_ffn=True),
    "dinov2-registers": _dinov2_hf("Dinov2WithRegisters"),
    "dinov2-g-registers": _dinov2_hf("Dinov2WithRegisters", use_swiglu_ffn=True),
}
