"""The sizes of the Vision Transformer by name."""

from dataclasses import dataclass


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
