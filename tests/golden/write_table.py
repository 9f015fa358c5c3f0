"""Measure every golden case and write docs/golden.md: `python -m tests.golden.write_table`."""

import platform
import tempfile
from pathlib import Path

import numpy as np
import torch

from tests.golden.reference import CASES, weights
from tests.golden.test_golden import deviation, tolerance
from vitral.models.families import variant_name
from vitral.weights.load import read_weights

DOCS = Path(__file__).parents[2] / "docs" / "golden.md"
HEADER = """# Our logits beside the originals'

Each case is a checkpoint in the original's own names, drawn from a generator, and the logits that the original code
computed from it in float32. The deviation is the largest difference of a logit over the standard deviation of all.
Measured with torch {torch} on {machine}; `tests/golden` holds every case to its limit in each run of the suite, and
this page is written by `python -m tests.golden.write_table`.

| case | read as | original code | deviation | limit |
|---|---|---|---|---|
"""
ORIGINALS = {
    "BiT": "google-research/big_transfer",
    "R": "google-research/vision_transformer",
    "ViT": "google-research/vision_transformer",
    "testing": "google-research/vision_transformer",
    "bv": "google-research/big_vision",
    "cvt": "microsoft/CvT",
    "efficientnet": "lukemelas/EfficientNet-PyTorch (efficientnet-lite-pytorch 0.1.0)",
    "t2t": "yitu-opensource/T2T-ViT",
    "vmoe": "google-research/vmoe",
}
FOOTER = """
The names of the cases are the originals': `@` stands before the pixels, `-rep768` has the tanh layer of pre-training
before the head, `-gap` average pooling, `-map` attention pooling, `-sincos` the fixed position table; `vmoe-tiny` are
small mixtures of experts at three capacities (`cf`; `bpr`: with Batch Prioritized Routing), whose auxiliary loss is
held to 1e-5 as well.

Beside these, `make peers` holds the networks against timm and transformers on shared random weights, logits to 1e-4 of
their standard deviation and probabilities of the same photo to 1e-4, and the suite holds ResNet 18 to 152 against
torchvision's.
"""


def main() -> None:
    """Write the page."""
    rows = []
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "weights.npz"
            np.savez(path, **weights(name))  # type: ignore[arg-type]
            read_as = variant_name(read_weights(path).model.config) or "a small ViT of its own"
            found = deviation(path, name)
        original = next(code for start, code in ORIGINALS.items() if name.startswith(start))
        rows.append(f"| `{name}` | {read_as} | {original} | {found:.1e} | {tolerance(name):.0e} |\n")
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads"
    DOCS.write_text(HEADER.format(torch=torch.__version__.split("+")[0], machine=machine) + "".join(rows) + FOOTER)


if __name__ == "__main__":
    main()
