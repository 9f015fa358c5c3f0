"""EoMT over DINOv2 and DINOv3 in transformers (models/eomt and models/eomt_dinov3, of tue-mps/eomt)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from vitral.images.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.dense.upscale import doublings
from vitral.models.position import DINOV3_BASE
from vitral.models.vit_config import ViTConfig
from vitral.tasks.dense import DenseTask
from vitral.tasks.instances import INSTANCES
from vitral.tasks.panoptic import Panoptic
from vitral.tasks.semantic import SEMANTIC
from vitral.weights.dialect import Dialect, NotComputed, Reading, Stored, Usage, cannot_hold, keyless, our_names
from vitral.weights.layouts import CLASS_ROW, SAME, Layout, Renames, Rule, Tensors, renamed, zeros
from vitral.weights.names import transformers
from vitral.weights.names.vit_torch import heads_of_width

SIZE = 640  # pixels, for a file without positions and without a config
IMAGES = Preprocessing(antialias=True, mean=IMAGENET_MEAN, std=IMAGENET_STD, resampler="torch")
NO_OBJECT = 0.1  # the weight of "no object" in the loss, which transformers' files hold
TABLE = "embeddings.position_embeddings.weight"
CLASS = "embeddings.cls_token"
REGISTERS = "embeddings.register_tokens"
# Whole rows of positions (patches, dim), of which ours are (1, patches, dim).
ROWS = Layout(lambda theirs: [theirs[0][None]], lambda ours: [ours[0][0]])
NAMES: Renames = (
    (r"^backbone\.class_token$", CLASS),
    (r"^backbone\.registers$", REGISTERS),
    (r"^backbone\.position\.embedding$", TABLE),
    (r"^backbone\.norm\.", "layernorm."),
    (r"^backbone\.encoder\.", "layers."),
    (r"\.scale([12])\.scale$", r".layer_scale\1.lambda1"),
    (r"^head\.queries$", "query.weight"),
    (r"^head\.classifier\.", "class_predictor."),
    (r"^head\.mask_mlp\.", "mask_head."),
    (r"^head\.upscale\.(\d+)\.doubling\.", r"upscale_block.block.\1.conv1."),
    (r"^head\.upscale\.(\d+)\.depthwise\.", r"upscale_block.block.\1.conv2."),
    (r"^head\.upscale\.(\d+)\.norm\.", r"upscale_block.block.\1.layernorm2d."),
    (r"^head\.masking$", "attn_mask_probs"),
)
COCO_THINGS = 80
COCO_CLASSES = 133
WINDOWED = "Its source cuts a photo into windows; here it is resized to a square."
PADDED = "Its source pads photos with black; here with the mean colour."
DINOV2: Renames = (
    (r"^backbone\.patch_embedding\.", "embeddings.patch_embeddings.projection."),
    (r"\.attention\.qkv\.", ".attention.{q,k,v}_proj."),
    (r"\.attention\.out\.", ".attention.out_proj."),
)
BLOCKS: Renames = (
    (r"\.attention\.qkv\.bias$", ".attention.{q,v}_proj.bias"),
    (r"\.attention\.qkv\.", ".attention.{q,k,v}_proj."),
    (r"\.attention\.out\.", ".attention.o_proj."),
)
DINOV3: Renames = ((r"^backbone\.patch_embedding\.", "embeddings.patch_embeddings."), *BLOCKS)


def _class_row() -> Layout:
    """A class token with a position of its own, of which transformers has none."""

    def read(theirs: Tensors) -> Tensors:
        return CLASS_ROW.read([theirs[0], theirs[1][None]])

    def write(ours: Tensors) -> Tensors:
        token, table = CLASS_ROW.write(ours)
        return [token, table[0]]

    return Layout(read, write)


def _weights_of_classes(num_classes: int) -> Layout:
    """The weights of the classes in the loss, which no answer needs."""
    weights = torch.tensor([1.0] * num_classes + [NO_OBJECT])
    return Layout(lambda _: [], lambda _: [weights])


def _table(config: DenseConfig) -> list[Rule]:
    backbone: Any = config.backbone
    rotary = backbone.rotary == "dinov3"
    names = [*NAMES, *(DINOV3 if rotary else DINOV2)]
    if backbone.mlp == "swiglu" or rotary:
        first = "up_proj" if rotary else "{gate_proj,up_proj}"
        names += [(r"\.mlp\.fc1\.", f".mlp.{first}."), (r"\.mlp\.fc2\.", ".mlp.down_proj.")]
    special = [Rule((), ("criterion.empty_weight",), _weights_of_classes(config.num_classes))]
    if not backbone.registers:
        special.append(Rule((), (REGISTERS,), zeros(1, 0, backbone.dim)))
    if backbone.class_position and not rotary:
        special.append(Rule(("backbone.class_token", "backbone.position.embedding"), (CLASS, TABLE), _class_row()))
    biases = keyless("transformers", "biases of DINOv3's keys, which fine-tuning has made")

    def layout(name: str) -> Layout:
        if rotary and name.endswith(".qkv.bias"):
            return biases
        return ROWS if name == "backbone.position.embedding" else SAME

    return renamed(our_names(config), names, layout, special)


def read(stored: Stored) -> Reading:
    """Read a file of Eomt or of EomtDinov3, told apart by the table of positions."""
    rotary = TABLE not in stored.shapes
    backbone = _dinov3(stored) if rotary else _dinov2(stored)
    steps = stored.count(r"upscale_block\.block\.(\d+)\.")
    head = QueryHeadConfig(
        queries=stored.shapes["query.weight"][0],
        joint_blocks=stored.shapes["attn_mask_probs"][0],
        doublings=None if steps == doublings(max(backbone.stride)) else steps,
    )
    config = DenseConfig(
        backbone=backbone,
        head=head,
        image_size=backbone.image_size,
        num_classes=stored.shapes["class_predictor.bias"][0] - 1,
    )
    transformers.check(stored, {"hidden_act": ("gelu", "gelu_python")})
    usage = _usage(stored, backbone.image_size)
    rules = [rule for rule in _table(config) if rule.ours or rule.theirs[0] in stored.shapes]
    return Reading(
        config,
        rules,
        usage.preprocessing,
        usage.class_names,
        notes=usage.notes,
        task=_task(stored, config.num_classes),
        assumed=transformers.assumed(stored),
    )


def _task(stored: Stored, classes: int) -> DenseTask:
    """Return the task, of which a file says nothing itself: windows are for classes of pixels, 80 classes are COCO's objects.

    Of COCO's 133 panoptic classes the first 80 are objects.
    """
    if stored.preprocessor.get("do_split_image"):
        return SEMANTIC
    return INSTANCES if classes == COCO_THINGS else Panoptic(tuple(range(min(classes, COCO_THINGS))))


def _usage(stored: Stored, size: tuple[int, int]) -> Usage:
    """Return how images are prepared: the whole photo, padded to a square, or squashed where theirs are windows."""
    settings = stored.preprocessor
    own = IMAGES.with_size(size)
    if not settings:
        return transformers.usage(stored, own)
    names = transformers.class_names(stored)
    if transformers.OWN in settings:
        return Usage(Preprocessing.from_json(settings[transformers.OWN]), names)
    own = dataclasses.replace(own, mean=tuple(settings["image_mean"]), std=tuple(settings["image_std"]))
    if settings.get("do_split_image"):
        return Usage(own, names, (WINDOWED,))
    return Usage(dataclasses.replace(own, resize="pad"), names, (PADDED,))


def task_of_classes(classes: int) -> DenseTask:
    """Return the task of a file that says nothing of it: COCO's objects, COCO's panoptic classes, or classes of pixels."""
    if classes == COCO_CLASSES:
        return Panoptic(tuple(range(COCO_THINGS)))
    return INSTANCES if classes == COCO_THINGS else SEMANTIC


def prepare(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return a model's preprocessor_config.json, whose processor pads with black; ours stands in it, too."""
    side = preprocessing.image_size[0]
    return {
        "image_processor_type": "EomtImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": side, "longest_edge": side},
        "resample": next(code for code, name in transformers.RESAMPLING.items() if name == preprocessing.interpolation),
        "do_pad": True,
        "do_split_image": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(preprocessing.mean),
        "image_std": list(preprocessing.std),
        transformers.OWN: preprocessing.to_json(),
    }


def _shape(stored: Stored, patches: str, last: str) -> dict[str, Any]:
    """Return the fields of a backbone that both kinds tell in the same way."""
    dim, patch = stored.patches(patches)
    return {
        "patch_size": patch,
        "dim": dim,
        "depth": stored.count(r"layers\.(\d+)\."),
        "mlp_dim": stored.shapes[f"layers.0.mlp.{last}.weight"][1],
        "mlp": "swiglu" if "layers.0.mlp.gate_proj.weight" in stored.shapes else "plain",
        "num_heads": int(stored.config.get("num_attention_heads") or heads_of_width(dim)),
        "gelu": "exact",
        "registers": stored.shapes[REGISTERS][1],
        "layer_scale": float(stored.config.get("layerscale_value", 1.0)),
        "norm_eps": float(stored.config.get("layer_norm_eps", 1e-6)),
        "initialization": "deit",
    }


def _dinov2(stored: Stored) -> ViTConfig:
    last = "down_proj" if "layers.0.mlp.down_proj.weight" in stored.shapes else "fc2"
    shape = _shape(stored, "embeddings.patch_embeddings.projection.weight", last)
    size, _ = stored.image(stored.shapes[TABLE][0], shape["patch_size"])
    return ViTConfig(image_size=size, class_position=False, position_resize="bicubic-antialias", **shape)


def _dinov3(stored: Stored) -> ViTConfig:
    # A gate there is a GELU, or the whole head is of SiLU; neither was published.
    transformers.check(stored, {"key_bias": False, "proj_bias": True, "mlp_bias": True, "use_gated_mlp": False})
    rope = stored.config.get("rope_parameters")
    theta = rope.get("rope_theta", DINOV3_BASE) if isinstance(rope, Mapping) else DINOV3_BASE
    if theta != DINOV3_BASE:
        raise NotComputed(f"its config.json says rope_theta {theta}, which is not computed here")
    shape = _shape(stored, "embeddings.patch_embeddings.weight", "down_proj")
    return ViTConfig(
        image_size=stored.image_size or (SIZE, SIZE),
        position="none",
        rotary="dinov3",
        **transformers.moves_of(stored),
        qkv_bias="layers.0.attention.q_proj.bias" in stored.shapes,
        **shape,
    )


def _rules(config: DenseConfig) -> list[Rule]:
    """Return the rules for writing, or raise NotHeld if it is no EoMT of transformers."""
    backbone: Any = config.backbone  # a ViTConfig: queries stand on no other
    if not isinstance(config.head, QueryHeadConfig):
        raise cannot_hold("transformers", f"{config.head.title} on this backbone")
    if backbone.rotary == "dinov3" and backbone.mlp != "plain":
        raise cannot_hold("transformers", "queries on DINOv3's networks with a gated MLP")
    if backbone.layer_scale is None:
        raise cannot_hold("transformers", "queries on a network without LayerScale")
    if backbone.image_size[0] != backbone.image_size[1]:
        raise cannot_hold("transformers", "queries on images that are not square")
    return _table(config)


def describe(config: DenseConfig) -> dict[str, Any]:
    """Return a model's config.json."""
    backbone: Any = config.backbone
    head: Any = config.head
    rotary = backbone.rotary == "dinov3"
    steps = doublings(max(backbone.stride)) if head.doublings is None else head.doublings
    gated = backbone.mlp == "swiglu"
    shape = {"mlp_ratio": round(backbone.mlp_dim * (1.5 if gated else 1) / backbone.dim), "use_swiglu_ffn": gated}
    if rotary:
        rope = {"rope_parameters": {"rope_theta": DINOV3_BASE, "rope_type": "default"}}
        biases = {f"{name}_bias": backbone.qkv_bias for name in ("query", "value")}
        shape = {"intermediate_size": backbone.mlp_dim, **biases, **rope, **transformers.moves(backbone)}
    return {
        "architectures": ["EomtDinov3ForUniversalSegmentation" if rotary else "EomtForUniversalSegmentation"],
        "model_type": "eomt_dinov3" if rotary else "eomt",
        **transformers.vit_settings(backbone),
        **shape,
        "hidden_act": "gelu",
        "layerscale_value": backbone.layer_scale,
        "num_register_tokens": backbone.registers,
        "num_queries": head.queries,
        "num_blocks": head.joint_blocks,
        "num_upscale_blocks": steps,
        "no_object_weight": NO_OBJECT,
    }


def _matches(stored: Stored) -> bool:
    return stored.shapes.keys() >= {
        "query.weight",
        "attn_mask_probs",
        "class_predictor.weight",
        "layers.0.norm1.weight",
    }


DIALECTS = (
    Dialect(
        "transformers",
        "dense",
        _matches,
        read,
        _rules,
        external=("backbone.layer_scale",),
        folded=("backbone.class_position", "head.doublings"),
        describe=describe,
        prepare=prepare,
    ),
)
