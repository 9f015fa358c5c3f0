"""The sizes of the Vision Transformer by name, and the variants that others trained without labels, or with texts."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from vitral.models.layers import Gelu
from vitral.models.vit_config import ViTConfig


@dataclass(frozen=True)
class Width:
    """A size of the family: width, depth, MLP width and heads of the encoder.

    Sources: paper Table 1 (B, L, H); DeiT (Ti, S); Scaling ViT Table 2 (g, G); big_vision, models/vit.py (mu).
    nano and micro are ours, of no paper: small enough to train on a CPU in one minute, and in ten.
    """

    dim: int
    depth: int
    mlp_dim: int
    num_heads: int

    def vit(self, size: int, patch: int, **fields: Any) -> ViTConfig:  # noqa: ANN401  # fields of the config
        """Return a network of this width for square images and patches of so many pixels."""
        return ViTConfig(image_size=(size, size), patch_size=(patch, patch), **dataclasses.asdict(self), **fields)


WIDTHS: dict[str, Width] = {
    "mu": Width(32, 1, 128, 2),
    "nano": Width(128, 4, 512, 4),
    "micro": Width(128, 8, 512, 2),
    "ti": Width(192, 12, 768, 3),
    "s": Width(384, 12, 1536, 6),
    "b": Width(768, 12, 3072, 12),
    "l": Width(1024, 24, 4096, 16),
    "h": Width(1280, 32, 5120, 16),
    "g": Width(1408, 40, 6144, 16),
    "G": Width(1664, 48, 8192, 16),
}

# Published sizes of DINOv2 (dinov2/hub/backbones.py); the largest has a gated MLP.
DINOV2S: dict[str, Width] = {
    "s": WIDTHS["s"],
    "b": WIDTHS["b"],
    "l": WIDTHS["l"],
    "g": Width(1536, 40, 4096, 24),
}
# Published sizes of DINOv3 (dinov3/hub/backbones.py); those with a plus and the largest have a gated MLP, the last no biases.
DINOV3S: dict[str, Width] = {
    "s16": WIDTHS["s"],
    "s16-plus": WIDTHS["s"],
    "b16": WIDTHS["b"],
    "l16": WIDTHS["l"],
    "h16-plus": Width(1280, 32, 5120, 20),
    "7b16": Width(4096, 40, 8192, 32),
}
DINOV3_RESCALE = 2.0  # of their positions in training (ibid., pos_embed_rope_rescale_coords)
DINOV3_GATED = ("s16-plus", "h16-plus", "7b16")
DINOV3_UNBIASED = ("7b16",)
# Published sizes of EVA-02 and their pixels (baaivision/EVA, EVA-02); the MLP of the larger two has a norm.
EVA02S: dict[str, tuple[Width, int]] = {
    "ti": (Width(192, 12, 512, 3), 336),
    "s": (Width(384, 12, 1024, 6), 336),
    "b": (Width(768, 12, 2048, 12), 448),
    "l": (Width(1024, 24, 2730, 16), 448),
}
# Width, patch, pixels and GELU of CLIP's image towers (clip/model.py) and OpenCLIP's (open_clip/model_configs).
CLIPS: dict[str, tuple[str, int, int, Gelu]] = {
    "clip-b32": ("b", 32, 224, "quick"),
    "clip-b16": ("b", 16, 224, "quick"),
    "clip-l14": ("l", 14, 224, "quick"),
    "clip-l14-336": ("l", 14, 336, "quick"),
    "openclip-b32": ("b", 32, 224, "exact"),
    "openclip-b32-256": ("b", 32, 256, "exact"),
    "openclip-b16": ("b", 16, 224, "exact"),
    "openclip-l14": ("l", 14, 224, "exact"),
    "openclip-h14": ("h", 14, 224, "exact"),
}
# Width, patch and pixels of SigLIP's and SigLIP 2's image towers (big_vision, configs/proj/image_text); B/16 is vit-b16-map.
SIGLIPS: dict[str, tuple[Width, int, int]] = {
    "siglip-b32": (WIDTHS["b"], 32, 256),
    "siglip-l16": (WIDTHS["l"], 16, 256),
    "siglip-so400m14": (Width(1152, 27, 4304, 16), 14, 224),
    "siglip-so400m16": (Width(1152, 27, 4304, 16), 16, 256),
    "siglip-g16": (Width(1536, 40, 6144, 16), 16, 256),
}


def _dinov3s() -> dict[str, ViTConfig]:
    return {
        f"dinov3-{name}": width.vit(
            256,
            16,
            position="none",
            rotary="dinov3",
            rotary_rescale=DINOV3_RESCALE,
            registers=4,
            gelu="exact",
            mlp="swiglu" if name in DINOV3_GATED else "plain",
            layer_scale=1e-5,
            norm_eps=1e-5,
            qkv_bias=name not in DINOV3_UNBIASED,
            initialization="deit",
        )
        for name, width in DINOV3S.items()
    }


def _eva02s() -> dict[str, ViTConfig]:
    return {
        f"eva02-{name}14": width.vit(
            size,
            14,
            mlp="swiglu" if name in ("ti", "s") else "swiglu-norm",
            rotary="eva02",
            pooling="gap",
            norm_pooled=True,
            registers=1,  # the class token, which no head reads
            gelu="exact",
            position_resize="bicubic-antialias",
            initialization="deit",
        )
        for name, (width, size) in EVA02S.items()
    }


def _clips() -> dict[str, ViTConfig]:
    return {
        name: WIDTHS[width].vit(
            size,
            patch,
            gelu=gelu,
            norm_eps=1e-5,
            norm_before=True,
            patch_bias=False,
            position_resize="bicubic-antialias",
            initialization="deit",
        )
        for name, (width, patch, size, gelu) in CLIPS.items()
    }


def _siglips() -> dict[str, ViTConfig]:
    return {
        name: width.vit(size, patch, pooling="map", initialization="big_vision")
        for name, (width, patch, size) in SIGLIPS.items()
    }


def _dinov2s() -> dict[str, ViTConfig]:
    return {
        f"dinov2-{name}14" + ("-registers" if registers else ""): width.vit(
            518,
            14,
            gelu="exact",
            mlp="swiglu" if name == "g" else "plain",
            layer_scale=1.0,
            registers=registers,
            class_position=not registers,  # timm's way: the class token's position is part of the token
            position_resize="bicubic-antialias" if registers else "bicubic-dinov2",
            initialization="deit",
        )
        for registers in (0, 4)
        for name, width in DINOV2S.items()
    }


STARTS: dict[str, ViTConfig] = {**_dinov2s(), **_dinov3s(), **_eva02s(), **_clips(), **_siglips()}
