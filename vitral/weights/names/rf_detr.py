"""RF-DETR in transformers' files, whose names are those of roboflow/rf-detr.

A file says neither how many heads and windows there are nor after which blocks maps are taken; the config.json beside it does,
and without one they are as published.
"""

import re
from dataclasses import replace
from typing import Any

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.rf_detr import RFDetrConfig
from vitral.tasks.boxes import BOXES
from vitral.weights.dialect import Dialect, Reading, Stored, having, our_names, reading, square_side
from vitral.weights.layouts import Renames, Rule, renamed, zeros
from vitral.weights.names import transformers

IMAGES = Preprocessing(antialias=True, mean=IMAGENET_MEAN, std=IMAGENET_STD, resampler="torch")
ENCODER = "backbone.0.encoder.encoder"
PATCHES = f"{ENCODER}.embeddings.patch_embeddings.projection.weight"
PROJECTOR = "backbone.0.projector.stages.0"
DECODER = "transformer.decoder"
HEAD_DIM = 64  # of the backbone
PUBLISHED = RFDetrConfig()
BACKBONE = "backbone_config"  # its part of a config.json
FIXED = {  # settings, of which one value is computed here
    "hidden_expansion": 0.5,
    "activation_function": "silu",
    "decoder_activation_function": "relu",
    "attention_bias": True,
    "num_feature_levels": 1,
    "layer_norm_eps": 1e-5,
}
FIXED_BACKBONE = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "qkv_bias": True,
    "use_swiglu_ffn": False,
    "apply_layernorm": True,
}
NAMES: Renames = (
    (r"^backbone\.patch_embedding\.", f"{ENCODER}.embeddings.patch_embeddings.projection."),
    (r"^backbone\.class_token$", f"{ENCODER}.embeddings.cls_token"),
    (r"^backbone\.position\.embedding$", f"{ENCODER}.embeddings.position_embeddings"),
    (r"^backbone\.norm\.", f"{ENCODER}.layernorm."),
    (
        r"^backbone\.encoder\.(\d+)\.attention\.qkv\.",
        rf"{ENCODER}.encoder.layer.\1.attention.attention.{{query,key,value}}.",
    ),
    (r"^backbone\.encoder\.(\d+)\.attention\.out\.", rf"{ENCODER}.encoder.layer.\1.attention.output.dense."),
    (r"^backbone\.encoder\.(\d+)\.scale([12])\.scale$", rf"{ENCODER}.encoder.layer.\1.layer_scale\2.lambda1"),
    (r"^backbone\.encoder\.", f"{ENCODER}.encoder.layer."),
    (r"^projector\.norm\.", f"{PROJECTOR}.1."),
    (r"^projector\.pairs\.(\d+)\.0\.", rf"{PROJECTOR}.0.m.\1.cv1."),
    (r"^projector\.pairs\.(\d+)\.1\.", rf"{PROJECTOR}.0.m.\1.cv2."),
    (r"^projector\.first\.", f"{PROJECTOR}.0.cv1."),
    (r"^projector\.last\.", f"{PROJECTOR}.0.cv2."),
    (r"(\.cv[12])\.norm\.", r"\1.bn."),
    (r"^proposers\.(\d+)\.linear\.", r"transformer.enc_output.\1."),
    (r"^proposers\.(\d+)\.norm\.", r"transformer.enc_output_norm.\1."),
    (r"^proposers\.(\d+)\.head\.", r"transformer.enc_out_class_embed.\1."),
    (r"^proposers\.(\d+)\.boxes\.", r"transformer.enc_out_bbox_embed.\1."),
    (r"^query_features$", "query_feat.weight"),
    (r"^query_boxes$", "refpoint_embed.weight"),
    (r"^decoder\.positions\.", f"{DECODER}.ref_point_head."),
    (r"^decoder\.", f"{DECODER}."),
    (r"\.attention\.qkv\.(weight|bias)$", r".self_attn.in_proj_\1"),
    (r"\.attention\.out\.", ".self_attn.out_proj."),
    (r"\.sampling\.offsets\.", ".cross_attn.sampling_offsets."),
    (r"\.sampling\.weights\.", ".cross_attn.attention_weights."),
    (r"\.sampling\.value\.", ".cross_attn.value_proj."),
    (r"\.sampling\.out\.", ".cross_attn.output_proj."),
    (rf"^({re.escape(DECODER)}\.layers\.\d+)\.fc([12])\.", r"\1.linear\2."),
    (r"^head\.", "class_embed."),
    (r"^boxes\.", "bbox_embed."),
)


def rules(config: RFDetrConfig) -> list[Rule]:
    """Return the rules for its files."""
    mask = Rule((), (f"{ENCODER}.embeddings.mask_token",), zeros(1, config.dim))
    return renamed(our_names(config), NAMES, special=[mask])


def read(stored: Stored) -> Reading:
    """Read a file of RfDetrForObjectDetection."""
    said = stored.config.get(BACKBONE) or {}
    transformers.check(stored, FIXED)
    transformers.check(Stored(stored.source, stored.file_name, {}, said), FIXED_BACKBONE)
    config = _config(stored, said)
    mask = f"{ENCODER}.embeddings.mask_token"
    table = [rule for rule in rules(config) if rule.theirs != (mask,) or mask in stored.shapes]
    usage = transformers.usage(stored, IMAGES if stored.preprocessor else _of_size(config.image_size))
    assumed = {} if said else dict.fromkeys(("num_heads", "windows", "taps", "query_heads", "sampling_heads"), "")
    return replace(reading(stored, config, table, usage, assumed), task=BOXES)


def _of_size(size: tuple[int, int]) -> Preprocessing:
    return Preprocessing.from_json({**IMAGES.to_json(), "image_size": list(size)})


def _config(stored: Stored, said: Any) -> RFDetrConfig:  # noqa: ANN401  # a part of a config.json
    shapes, setting = stored.shapes, stored.config.get
    dim, (patch, _) = stored.patches(PATCHES)
    side = patch * square_side(shapes[f"{ENCODER}.embeddings.position_embeddings"][1] - 1)
    sampling_heads = int(setting("decoder_cross_attention_heads", PUBLISHED.sampling_heads))
    groups = stored.count(r"transformer\.enc_output\.(\d+)\.")
    width = shapes["class_embed.weight"][1]
    return RFDetrConfig(
        image_size=(side, side),
        num_classes=shapes["class_embed.weight"][0],
        patch_size=patch,
        dim=dim,
        depth=stored.count(rf"{re.escape(ENCODER)}\.encoder\.layer\.(\d+)\."),
        mlp_dim=shapes[f"{ENCODER}.encoder.layer.0.mlp.fc1.weight"][0],
        num_heads=int(said.get("num_attention_heads", max(1, dim // HEAD_DIM))),
        windows=int(said.get("num_windows", PUBLISHED.windows)),
        taps=tuple(said.get("out_indices", PUBLISHED.taps)),
        width=width,
        projector_blocks=stored.count(rf"{re.escape(PROJECTOR)}\.0\.m\.(\d+)\."),
        decoder_layers=stored.count(rf"{re.escape(DECODER)}\.layers\.(\d+)\."),
        queries=shapes["query_feat.weight"][0] // groups,
        groups=groups,
        query_heads=int(setting("decoder_self_attention_heads", PUBLISHED.query_heads)),
        sampling_heads=sampling_heads,
        points=shapes[f"{DECODER}.layers.0.cross_attn.attention_weights.weight"][0] // sampling_heads,
        decoder_mlp_dim=shapes[f"{DECODER}.layers.0.linear1.weight"][0],
    )


def describe(config: RFDetrConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    height, width = config.image_size
    stages = [f"stage{tap}" for tap in config.taps]
    backbone = {
        "model_type": "rf_detr_dinov2",
        **FIXED_BACKBONE,
        "hidden_size": config.dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "mlp_ratio": config.mlp_dim // config.dim,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch_size,
        "num_windows": config.windows,
        "out_features": stages,
        "out_indices": list(config.taps),
        "drop_path_rate": config.stochastic_depth,
    }
    return {
        "architectures": ["RfDetrForObjectDetection"],
        "model_type": "rf_detr",
        **FIXED,
        BACKBONE: backbone,
        "c2f_num_blocks": config.projector_blocks,
        "d_model": config.width,
        "decoder_ffn_dim": config.decoder_mlp_dim,
        "decoder_n_points": config.points,
        "decoder_layers": config.decoder_layers,
        "decoder_self_attention_heads": config.query_heads,
        "decoder_cross_attention_heads": config.sampling_heads,
        "num_queries": config.queries,
        "group_detr": config.groups,
        "dropout": config.dropout,
    }


DIALECTS = (
    Dialect(
        "transformers",
        "rf_detr",
        having(PATCHES, "refpoint_embed.weight", "transformer.enc_output.0.weight", "class_embed.weight"),
        read,
        rules,
        describe=describe,
    ),
)
