"""EoMT in its authors' own files, of which those on DINOv3 hold what is added to Meta's weights (tue-mps/eomt).

None of the published files was at hand: names and shapes follow from the code that reads them (models/eomt.py, models/vit.py).
"""

import dataclasses
import re
from typing import Any

from vitral.errors import WeightsError
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.dense.upscale import doublings
from vitral.tasks.semantic import SEMANTIC
from vitral.weights.dialect import Dialect, NotComputed, Reading, Stored, cannot_hold, having, keyless, our_names
from vitral.weights.layouts import SAME, Layout, Renames, Rule, Tensors, regrouped, renamed
from vitral.weights.names.eomt import BLOCKS, IMAGES, PADDED, SIZE, WINDOWED, task_of_classes

BACKBONE = "network.encoder.backbone."
CLASS_DIFFERENCE = f"{BACKBONE}patch_embed.cls_token"
REGISTERS_DIFFERENCE = f"{BACKBONE}patch_embed.register_tokens"
DIFFERENCES: Renames = (
    (r"^backbone\.class_token$", CLASS_DIFFERENCE),
    (r"^backbone\.registers$", REGISTERS_DIFFERENCE),
    (r"^backbone\.patch_embedding\.", f"{BACKBONE}patch_embed.patch_embeddings."),
    (r"^backbone\.encoder\.", f"{BACKBONE}blocks."),
    (r"^backbone\.", BACKBONE),
    *BLOCKS,
    (r"\.scale([12])\.scale$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"^head\.queries$", "network.q.weight"),
    (r"^head\.classifier\.", "network.class_head."),
    (r"^head\.mask_mlp\.fc(\d)\.", lambda match: f"network.mask_head.{2 * int(match[1]) - 2}."),
    (r"^head\.upscale\.(\d+)\.doubling\.", r"network.upscale.\1.conv1."),
    (r"^head\.upscale\.(\d+)\.depthwise\.", r"network.upscale.\1.conv2."),
    (r"^head\.", "network."),
)
THEIRS = "transformers' form is read, such as eomt-l16@coco-panoptic and eomt-l16@dinov3-coco-panoptic"
ALONE = (
    "it holds but differences to Meta's DINOv3 weights, which have a licence of their own; load it with backbone= and the "
    "name, folder or file of these, such as vit-l16@dinov3"
)
WHOLE = f"The file of EoMT's own code holds whole weights, no differences to DINOv3's; {THEIRS}."


def _masking() -> Layout:
    """Their masking, which is added to the ones of a new head; the mean of pixels tells differences from whole weights."""

    def read(theirs: Tensors) -> Tensors:
        probabilities, mean = theirs
        if bool(mean.any()):
            raise WeightsError(WHOLE)
        return [1 + probabilities]

    return Layout(read, lambda ours: ours)


def _read(stored: Stored) -> Reading:
    """Read what is added to a DINOv3 network's weights (tue-mps/eomt, training/lightning_module.py, `_add_state_dicts`)."""
    if CLASS_DIFFERENCE not in stored.shapes:
        raise NotComputed(f"it is in the form of EoMT's own code; {THEIRS}")
    given: Any = stored.backbone
    if given is None:
        raise NotComputed(ALONE)
    dim, depth = stored.shapes[f"{BACKBONE}norm.weight"][0], stored.count(rf"{re.escape(BACKBONE)}blocks\.(\d+)\.")
    own = (given.dim, given.depth) if getattr(given, "rotary", "none") == "dinov3" else None
    if own != (dim, depth):
        raise NotComputed(
            f"it holds differences to a DINOv3 of {depth} blocks of {dim} channels, and the backbone that is given is none"
        )
    size = stored.image_size or (SIZE, SIZE)
    steps = stored.count(r"network\.upscale\.(\d+)\.")
    head = QueryHeadConfig(
        queries=stored.shapes["network.q.weight"][0],
        joint_blocks=stored.shapes["network.attn_mask_probs"][0],
        doublings=None if steps == doublings(max(given.stride)) else steps,
    )
    classes = stored.shapes["network.class_head.bias"][0] - 1
    backbone = dataclasses.replace(given, image_size=size)
    config = DenseConfig(backbone=backbone, head=head, image_size=size, num_classes=classes)
    special = [Rule(("head.masking",), ("network.attn_mask_probs", "network.encoder.pixel_mean"), _masking())]
    if given.pooling == "gap":  # timm's, whose class token is a register here
        tokens = regrouped([given.registers], [1, given.registers - 1])
        special.append(Rule(("backbone.registers",), (CLASS_DIFFERENCE, REGISTERS_DIFFERENCE), tokens))
    biases = keyless("original", "biases of DINOv3's keys")
    rules = renamed(
        our_names(config), DIFFERENCES, lambda name: biases if name.endswith(".qkv.bias") else SAME, special
    )
    task = task_of_classes(classes)
    images = IMAGES.with_size(size)
    return Reading(
        config,
        [*rules, *stored.ignored("network.encoder.pixel_std", "criterion.")],
        images if task == SEMANTIC else dataclasses.replace(images, resize="pad"),
        notes=(WINDOWED if task == SEMANTIC else PADDED,),
        task=task,
    )


def _rules(config: DenseConfig) -> list[Rule]:
    raise cannot_hold("original", f"{config.head.title} on this backbone")


DIALECTS = (
    Dialect(
        "original",
        "dense",
        having("network.q.weight", "network.attn_mask_probs"),
        _read,
        _rules,
        wrapper="state_dict",
        on_backbone=True,
    ),
)
