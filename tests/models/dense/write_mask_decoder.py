"""Write mask_decoder.npz: what the authors' code of PMT answers on tiny networks whose weights are drawn by name.

    python -m tests.models.dense.write_mask_decoder PMT

PMT is a checkout of tue-mps/pmt at 54d73c96, MIT; it needs transformers and timm, here 5.23 and 1.0.31. Backbones are
transformers' DINOv3 and timm's ViT with registers, as its own ViT builds them; images come normalised.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tests.peers.compare import pixels, scramble

TARGET = Path(__file__).with_name("mask_decoder.npz")
SIDE, PATCH, DIM, DEPTH, HEADS = 48, 16, 16, 4, 2
CLASSES, QUERIES, BLOCKS = 3, 5, 2
SEED = 7  # of what is drawn in training


class Encoder(nn.Module):
    """What their PMT asks of its encoder: an untouched backbone, frozen."""

    is_frozen = True
    image_size = (SIDE, SIDE)
    pixel_mean, pixel_std = 0.0, 1.0

    def __init__(self, backbone: nn.Module, *, dinov3: bool) -> None:
        super().__init__()
        self.backbone = backbone.eval().requires_grad_(False)
        self.is_dinov3 = dinov3


def dinov3(adapted: Any) -> nn.Module:  # noqa: ANN401  # their ViT.transformers_to_timm
    """Return transformers' DINOv3, whose blocks have moved since the version that their code is for."""
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    sizes: dict[str, Any] = {
        "hidden_size": DIM,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * DIM,
    }
    model = DINOv3ViTModel(DINOv3ViTConfig(image_size=SIDE, patch_size=PATCH, num_register_tokens=2, **sizes))
    scramble(model)
    model.layer = model.model.layer
    del model.model
    backbone: nn.Module = adapted(None, model, (SIDE, SIDE))
    for block in backbone.blocks:  # type: ignore[union-attr]  # of modules
        block.attention.num_heads = HEADS
    return backbone


def dinov2() -> nn.Module:
    """Return timm's ViT as DINOv2 has it, with registers."""
    from timm.models.vision_transformer import VisionTransformer

    sizes: dict[str, Any] = {"embed_dim": DIM, "depth": DEPTH, "num_heads": HEADS, "mlp_ratio": 2.0, "num_classes": 0}
    model = VisionTransformer(SIDE, PATCH, reg_tokens=2, no_embed_class=True, init_values=1.0, **sizes)
    scramble(model)
    return model


def answers(network: Any, prefix: str) -> dict[str, np.ndarray]:  # noqa: ANN401  # a PMT
    """Return answers in use and in training, and after it the norms of all gradients, sorted by name, and the statistics."""
    images = pixels((SIDE, SIDE), batch=2)
    network.eval()
    network.decoder.masked_attn_enabled = False
    with torch.no_grad():
        masks, classes = network(images)
    found = {"masks": masks[-1], "classes": classes[-1]}
    network.train()
    network.encoder.backbone.eval()
    network.decoder.masked_attn_enabled = True
    network.decoder.attn_mask_probs.fill_(1.0)
    torch.manual_seed(SEED)
    masks, classes = network(images)
    found |= {"training_masks": torch.stack(masks), "training_classes": torch.stack(classes)}
    (found["training_masks"].square().mean() + found["training_classes"].square().mean()).backward()
    learned = sorted((name, value.grad) for name, value in network.named_parameters() if value.requires_grad)
    found["gradients"] = torch.stack([torch.linalg.vector_norm(gradient) for _, gradient in learned])
    found["statistics"] = torch.stack([level.running_var for level in network.bn])
    return {f"{prefix}/{name}": value.detach().numpy() for name, value in found.items()}


def main(checkout: str) -> None:
    """Write the file."""
    sys.path.insert(0, str(Path(checkout) / "image"))
    from models.pmt import PMT  # type: ignore[import-not-found]
    from models.vit import ViT  # type: ignore[import-not-found]

    encoders = {
        "dinov3": Encoder(dinov3(ViT.transformers_to_timm), dinov3=True),
        "dinov2": Encoder(dinov2(), dinov3=False),
    }
    written: dict[str, np.ndarray] = {}
    for name, encoder in encoders.items():
        settings = {"num_q": QUERIES, "num_blocks": BLOCKS, "interaction_indices": [0, 1, 2, 3], "hidden_dim": DIM}
        network = nn.Module()
        network.network = PMT(encoder, CLASSES, **settings)
        kept = {key: value.clone() for key, value in encoder.state_dict().items()}
        scramble(network)
        encoder.load_state_dict(kept)
        written |= answers(network.network, name)
    np.savez_compressed(TARGET, **written)  # type: ignore[arg-type]  # of numpy 2.4


if __name__ == "__main__":
    main(sys.argv[1])
