"""Images whose classes no pixel alone tells, and small starts for them: one trained a moment on such images, others not."""

import shutil
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch.nn import functional

from tests.conftest import TINY
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import save
from vitral.classifier.metadata import Provenance
from vitral.images.preprocessing import Preprocessing
from vitral.models.families import build
from vitral.models.model import Model
from vitral.models.vit import ViT
from vitral.weights.save import write_weights

SIZE, CLASSES = 16, 4
NAMES = [f"turned {turn}" for turn in range(CLASSES)]
PREPROCESSING = Preprocessing(image_size=(SIZE, SIZE))


def grating(turn: int, rng: np.random.Generator) -> UInt8[np.ndarray, "16 16 3"]:
    """Draw stripes in a direction, at any phase."""
    angle = np.pi * turn / CLASSES + rng.normal(0, 0.12)
    down, right = np.mgrid[:SIZE, :SIZE]
    wave = np.sin(1.4 * (down * np.sin(angle) + right * np.cos(angle)) + rng.uniform(0, 2 * np.pi))
    noisy = 128 + 50 * wave[:, :, None] + rng.normal(0, 30, (SIZE, SIZE, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def write_gratings(root: Path, count: int, seed: int) -> Path:
    """Write so many images a class."""
    rng = np.random.default_rng(seed)
    for turn, name in enumerate(NAMES):
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(grating(turn, rng)).save(root / name / f"{number}.png")
    return root


def trained_network(seed: int = 7, steps: int = 150) -> ViT:
    """Return a tiny network that saw such images, but none of those that are written."""
    rng = np.random.default_rng(seed)
    model = ViT(TINY)
    model.init_weights(0)
    model.replace_head(CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        turns = rng.integers(0, CLASSES, 32)
        images = np.stack([grating(int(turn), rng) for turn in turns])
        batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        loss = functional.cross_entropy(model(batch), torch.from_numpy(turns))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return model.eval()


def make_starts(folder: Path) -> None:
    """Write photos/, and starts: good/ and good.npz of the trained network, poor/ of a random one, and a damaged folder."""
    write_gratings(folder / "photos" / "train", 40, seed=1)
    write_gratings(folder / "photos" / "val", 30, seed=2)
    network = trained_network()
    save(_begun_from_a_file(network), folder / "good")
    write_weights(network, PREPROCESSING, NAMES, folder / "good.npz", "original")
    save(_begun_from_a_file(build(TINY, seed=3)), folder / "poor")
    shutil.copytree(folder / "good", folder / "damaged")
    weights = folder / "damaged" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _begun_from_a_file(network: Model) -> Classifier:
    return Classifier(network, PREPROCESSING, provenance=Provenance("a file"))
