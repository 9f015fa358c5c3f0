"""PMT in its authors' own files, which hold the decoder alone: its backbone comes from elsewhere (tue-mps/pmt, image/).

None of the published files was at hand: names and shapes follow from the code that writes them (pmt.py, pmd.py and
scripts/convert_ckpt.py), and were held against a network of that code.
"""

import re

from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.mask_decoder import LEVELS, MaskDecoderConfig
from vitral.models.dense.upscale import doublings
from vitral.models.model import HEADS
from vitral.weights.dialect import Dialect, NotComputed, Reading, Stored, cannot_hold, having, keyless, our_names
from vitral.weights.layouts import SAME, Renames, Rule, renamed
from vitral.weights.names.eomt import IMAGES, task_of_classes

DECODER = "network.decoder."
NAMES: Renames = (
    (r"^head\.queries$", f"{DECODER}q.weight"),
    (r"^head\.classifier\.", f"{DECODER}class_head."),
    (r"^head\.mask_mlp\.fc(\d)\.", lambda match: f"{DECODER}mask_head.{2 * int(match[1]) - 2}."),
    (r"^head\.upscale\.(\d+)\.doubling\.", rf"{DECODER}upscale.\1.conv1."),
    (r"^head\.upscale\.(\d+)\.depthwise\.", rf"{DECODER}upscale.\1.conv2."),
    (r"^head\.masking$", f"{DECODER}attn_mask_probs"),
    (r"^head\.norm\.", f"{DECODER}decoder_norm."),
    (r"^head\.laterals\.(\d)\.norm\.", r"network.bn.\1."),
    (r"^head\.laterals\.(\d)\.fc1\.", rf"{DECODER}lateral_projections.\1.0."),
    (r"^head\.laterals\.(\d)\.fc2\.", rf"{DECODER}lateral_projections.\1.2."),
    (r"^head\.laterals\.(\d)\.scale\.scale$", rf"{DECODER}scalers.\1"),
    (r"\.attention\.qkv\.bias$", ".attention.{q,v}_proj.bias"),
    (r"\.attention\.qkv\.", ".attention.{q,k,v}_proj."),
    (r"\.attention\.out\.", ".attention.o_proj."),
    (r"\.scale([12])\.scale$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.fc1\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    (r"^head\.", DECODER),
)
KEYLESS = keyless("original", "biases of the decoder's keys")
ALONE = (
    "it holds a decoder of masks alone; load it with backbone= and the name, folder or file of the network that it stands on, "
    "such as vit-l16@dinov3"
)


def _rules(config: DenseConfig) -> list[Rule]:
    """Return the rules for a decoder, or raise NotHeld if the head is another one."""
    if not isinstance(config.head, MaskDecoderConfig):
        raise cannot_hold("original", f"{config.head.title} on this backbone")
    ours = [name for name in our_names(config) if name.startswith(HEADS)]
    return renamed(ours, NAMES, lambda name: KEYLESS if name.endswith(".qkv.bias") else SAME)


def _read(stored: Stored) -> Reading:
    if stored.backbone is None:
        raise NotComputed(ALONE)
    if (levels := stored.count(r"network\.bn\.(\d+)\.")) != LEVELS:
        raise NotComputed(f"its decoder reads {levels} depths of a backbone, of which {LEVELS} are computed here")
    shapes, steps = stored.shapes, stored.count(rf"{re.escape(DECODER)}upscale\.(\d+)\.")
    queries, dim = shapes[f"{DECODER}q.weight"]
    mlp_dim = shapes[f"{DECODER}blocks.0.mlp.up_proj.weight"][0]
    grid = stored.backbone.patch_grid
    if grid is None or grid.dim != dim:
        own = "no grid" if grid is None else str(grid.dim)
        raise NotComputed(f"its tokens have {dim} channels, and those of the backbone that is given have {own}")
    head = MaskDecoderConfig(
        queries=queries,
        blocks=shapes[f"{DECODER}attn_mask_probs"][0],
        mlp_dim=None if mlp_dim == dim else mlp_dim,
        doublings=None if steps == doublings(max(grid.stride)) else steps,
    )
    classes = shapes[f"{DECODER}class_head.bias"][0] - 1
    config = DenseConfig(
        backbone=stored.backbone, head=head, image_size=stored.backbone.image_size, num_classes=classes
    )
    rules = [*_rules(config), *stored.ignored("criterion.")]
    return Reading(config, rules, IMAGES.with_size(config.image_size), task=task_of_classes(classes))


DIALECTS = (
    Dialect(
        "original",
        "dense",
        having(f"{DECODER}q.weight", f"{DECODER}attn_mask_probs", "network.bn.0.weight"),
        _read,
        _rules,
        folded=("head.doublings", "head.mlp_dim"),
        wrapper="state_dict",
        on_backbone=True,
    ),
)
