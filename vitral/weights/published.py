"""Which variants have published weights that Vitral reads, and in which formats.

Sources: README and models pages of google-research/vision_transformer and big_transfer, facebookresearch/deit,
yitu-opensource/T2T-ViT, microsoft/CvT and Cream, lukemelas/EfficientNet-PyTorch; torchvision's and timm's lists of weights; the
Hugging Face Hub. Two V-MoE models of 8 experts are published as shards of their own library's checkpoints (vmoe_shards.py),
which are read but not fetched by name.
"""

# Those whose weights the original, timm and transformers have alike.
_COMMON = (
    *("deit-ti16", "deit-s16", "deit-b16", "deit-b16-384"),
    *("deit-ti16-distilled", "deit-s16-distilled", "deit-b16-distilled", "deit-b16-distilled-384"),
    *(f"dinov2-{size}14{kind}" for size in ("s", "b", "l", "g") for kind in ("", "-registers")),
    *(f"dinov3-{size}" for size in ("s16", "s16-plus", "b16", "l16", "h16-plus", "7b16")),
    *("clip-b32", "clip-b16", "clip-l14", "clip-l14-336", "openclip-b32", "openclip-b32-256", "openclip-b16"),
    *("openclip-l14", "openclip-h14"),
    *("siglip-b32", "vit-b16-map", "siglip-l16", "siglip-so400m14", "siglip-so400m16", "siglip-g16"),
)
# Those of the original and of timm, besides. The original's own files are npz of vision_transformer (imagenet21k/, augreg/,
# sam/, gsam/) and of BiT; DeiT's, T2T-ViT's, CvT's and torchvision's state_dicts.
_WITH_TIMM = (
    *("vit-ti16", "vit-s16", "vit-s32", "vit-b8", "vit-b16", "vit-b32", "vit-l16", "vit-l32", "vit-h14"),
    *("r-vit-ti16", "r26-vit-s32", "r50-vit-b16", "r50-vit-l32"),
    *("bit-r50x1", "bit-r50x3", "bit-r101x1", "bit-r101x3", "bit-r152x2", "bit-r152x4"),
    *("deit3-s16", "deit3-m16", "deit3-b16", "deit3-l16", "deit3-h14"),
    *("deit3-s16-384", "deit3-b16-384", "deit3-l16-384"),
    *("resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152"),
)
# Those of lukemelas/EfficientNet-PyTorch and of timm.
_EFFICIENTNETS = (*(f"efficientnet-b{size}" for size in range(8)), "efficientnet-lite0")
_TINYVITS = ("tinyvit-5m", "tinyvit-11m", "tinyvit-21m", "tinyvit-21m-384", "tinyvit-21m-512")
PUBLISHED: dict[str, tuple[str, ...]] = {
    "original": (
        *_COMMON,
        *_WITH_TIMM,
        *_EFFICIENTNETS,
        *_TINYVITS,
        *("vit-s16-gap", "vit-s32-gap", "vit-b16-gap", "vit-b32-gap", "r26-vit-b32"),
        *("t2t-vit-7", "t2t-vit-10", "t2t-vit-12", "t2t-vit-14", "t2t-vit-19", "t2t-vit-24"),
        *("t2t-vit-t-14", "t2t-vit-t-19", "t2t-vit-t-24"),
        *("cvt-13", "cvt-21", "cvt-w24"),
    ),
    "timm": (
        *_COMMON,
        *_WITH_TIMM,
        *_TINYVITS,
        *("eva02-ti14", "eva02-s14", "eva02-b14", "eva02-l14"),
        *("efficientnet-l2", *_EFFICIENTNETS, *(f"efficientnet-lite{size}" for size in range(1, 5))),
    ),
    "transformers": (
        *_COMMON,
        *("vit-b16", "vit-b32", "vit-l16", "vit-l32", "vit-h14", "bit-r50x1", "cvt-13", "cvt-21", "cvt-w24"),
        *("rf-detr-nano", "rf-detr-small", "rf-detr-medium", "rf-detr-large"),
    ),
}


def published_formats(name: str) -> tuple[str, ...]:
    """Return the formats in which a variant's trained weights are published; empty where there are none."""
    return tuple(format_name for format_name, variants in PUBLISHED.items() if name in variants)
