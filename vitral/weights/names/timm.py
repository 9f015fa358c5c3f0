"""What timm says of a model beside its weights: the config.json of its Hub repositories (timm/models/_hub.py)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vitral.errors import VitralError
from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.weights.dialect import Stored

# timm's default for its Vision Transformers, and DeiT's own evaluation (deit/main.py).
CROP_BICUBIC = Preprocessing(
    resize="crop", crop_fraction=0.9, interpolation="bicubic", antialias=True, resampler="pillow"
)
DEIT = dataclasses.replace(CROP_BICUBIC, crop_fraction=0.875, mean=IMAGENET_MEAN, std=IMAGENET_STD)

RESIZES = {"center": "crop", "squash": "squash"}


def timm_preprocessing(stored: Stored, default: Preprocessing) -> tuple[Preprocessing, tuple[str, ...]]:
    """Return what the file's neighbour says of its pictures, or `default` with a note that says so."""
    settings = stored.config.get("pretrained_cfg", stored.config)
    if not isinstance(settings, Mapping) or "mean" not in settings:
        note = (
            "The file does not say how its pictures were prepared; taken: its source's default "
            f"({default.resize} {default.crop_fraction}, {default.interpolation}, mean {default.mean[0]}). "
            "Its config.json beside it would say."
        )
        return default, (note,)
    mode = settings.get("crop_mode") or "center"
    if mode not in RESIZES:
        raise ValueError(f"its pictures are prepared by crop_mode '{mode}', which is not known")
    size = settings.get("input_size", (3, 224, 224))
    try:
        return (
            Preprocessing(
                image_size=(int(size[1]), int(size[2])),
                resize=RESIZES[mode],  # type: ignore[arg-type]
                crop_fraction=float(settings.get("crop_pct", 0.875)),
                interpolation=settings.get("interpolation", "bicubic"),
                antialias=True,
                mean=tuple(settings["mean"]),
                std=tuple(settings["std"]),
                resampler="pillow",
            ),
            (),
        )
    except (TypeError, ValueError, KeyError, IndexError, VitralError) as error:
        raise ValueError(f"its config.json cannot be understood ({error})") from error


def timm_classes(stored: Stored) -> tuple[str, ...] | None:
    """Return the class names, where the file's neighbour says them."""
    config: Mapping[str, Any] = stored.config
    names = config.get("label_names")
    if not isinstance(names, list) or not names:
        return None
    described = config.get("label_descriptions")
    described = described if isinstance(described, Mapping) else {}
    return tuple(str(described.get(name, name)) for name in names)
