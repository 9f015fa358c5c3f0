"""Photos and a classifier in a folder, as the page on clusters has them."""

from pathlib import Path

import pytest
import torch

import vitral
from tests.conftest import TINY
from tests.docs.world import photos
from vitral.classifier.folder import save
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build

PER_CLASS = 12


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/, of which one is damaged, and the classifier runs/photos."""
    folder = tmp_path_factory.mktemp("cluster")
    photos(folder / "photos", PER_CLASS, seed=0, classes=("a", "b", "c"))
    (folder / "photos" / "a" / "bad.jpg").write_bytes(b"no image")
    model = build(TINY, seed=0)
    torch.nn.init.normal_(model.head.weight, std=2.0, generator=torch.Generator().manual_seed(0))
    save(vitral.Classifier(model, PHOTOS.with_size(16), ("a", "b", "c")), folder / "runs" / "photos")
    return folder
