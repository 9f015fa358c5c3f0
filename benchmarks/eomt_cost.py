"""What an epoch of EoMT-L on COCO panoptic at 640 pixels costs on one GPU: counted, not measured.

    python benchmarks/eomt_cost.py

`vitral plan` times steps where it runs, so that it says nothing of another machine. Here the products of a step's forward pass
are counted on the meta device, with the answers before and after each joint block; what learns costs twice that again in the
backward pass. (Torch's own count of that pass takes convolutions of each channel alone for whole ones.) Left out are the
losses, below 1 percent of the products, the optimizer and whatever memory bounds. Hours follow from a share of an H100's peak.
Beside them stands the authors' figure (tue-mps/eomt, README: 12 epochs in about 6 hours on 4 H100, 26 GB each at a batch of 4),
which says what share their training reaches; ours was not measured. PMT-L, whose backbone is frozen, is counted beside it.
"""

import dataclasses

import torch
from torch.utils.flop_counter import FlopCounterMode

from vitral.models.catalog import variant
from vitral.models.dense.dense_model import DenseConfig
from vitral.models.dense.head import HeadConfig
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.families import build, count_parameters
from vitral.training.optimization.adaptation import adapt, training_mode
from vitral.training.settings.sections import AdaptationSettings

PHOTOS = 118_287  # of COCO's train2017
BATCH, BATCH_OF_GPU, SIDE, CLASSES = 16, 4, 640, 133
PEAK = 989e12  # FLOP/s of an H100 SXM in bfloat16 without sparsity (NVIDIA's data sheet)
SHARES = (0.3, 0.4, 0.5)  # of it that training reaches
PUBLISHED_HOURS = 6 * 4 / 12  # of one GPU for an epoch
STATE_BYTES = 16  # a learned value: itself, gradient and AdamW's two moments, in float32
NETWORKS: dict[str, tuple[str, HeadConfig, AdaptationSettings]] = {
    "EoMT-L": ("dinov2-l14-registers", QueryHeadConfig(queries=200, joint_blocks=4), AdaptationSettings()),
    "PMT-L": ("dinov3-l16", MaskDecoderConfig(queries=200), AdaptationSettings(method="probe")),
}


def count(name: str, batch: int) -> tuple[int, int, int, int]:
    """Return the FLOP of a step, what it keeps for its backward pass (values), and the values that learn and that there are."""
    backbone, head, settings = NETWORKS[name]
    below = dataclasses.replace(variant(backbone), patch_size=(16, 16), image_size=(SIDE, SIDE))
    model = build(DenseConfig(backbone=below, head=head, num_classes=CLASSES, image_size=(SIDE, SIDE)), seed=None)
    model.to("meta")
    adapt(model, settings, seed=0)
    training_mode(model, settings)
    kept: dict[int, int] = {}
    weights = {value.untyped_storage()._cdata for value in model.parameters()}
    tokens = SIDE**2 // 256

    def keep(value: torch.Tensor) -> torch.Tensor:
        probabilities = value.ndim > 2 and min(value.shape[-2:]) >= tokens  # fused attention keeps none
        if value.is_floating_point() and not probabilities and value.untyped_storage()._cdata not in weights:
            kept[value.untyped_storage()._cdata] = value.untyped_storage().nbytes() // value.element_size()
        return value

    images = torch.empty(batch, 3, SIDE, SIDE, device="meta")
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        model.outputs(images)
    with FlopCounterMode(display=False) as below_counter, torch.no_grad():
        model.encode(images)
    forward = counter.get_total_flops()
    still = below_counter.get_total_flops() if settings.method == "probe" else 0
    learned = sum(value.numel() for value in model.parameters() if value.requires_grad)
    return forward + 2 * (forward - still), sum(kept.values()), learned, count_parameters(model)


def main() -> None:
    """Print both networks' costs."""
    steps = PHOTOS // BATCH
    for name in NETWORKS:
        flop, kept, learned, values = count(name, BATCH_OF_GPU)
        epoch = flop / BATCH_OF_GPU * BATCH * steps
        print(f"{name} at {SIDE} pixels: {flop / BATCH_OF_GPU / 1e12:.2f} TFLOP a photo, forward and backward;")
        print(f"  an epoch is {steps:,} steps of {BATCH}, {epoch / 1e18:.2f} EFLOP")
        hours = [f"{epoch / (share * PEAK) / 3600:.2f} h at {share:.0%}" for share in SHARES]
        print(f"  one H100 ({PEAK / 1e12:.0f} TFLOP/s in bfloat16): {', '.join(hours)} of its peak")
        state = STATE_BYTES * learned + 4 * (values - learned)
        low, high = (state + width * kept for width in (2, 4))
        print(
            f"  memory at a batch of {BATCH_OF_GPU}: {low / 1e9:.0f} to {high / 1e9:.0f} GB, by 2 or 4 bytes an activation"
        )
        if name == "EoMT-L":
            share = epoch / (PUBLISHED_HOURS * 3600 * PEAK)
            print(
                f"  published: {PUBLISHED_HOURS:.1f} h of one H100 for an epoch, which is {share:.0%} of its peak; 26 GB"
            )


if __name__ == "__main__":
    main()
