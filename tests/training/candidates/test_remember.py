"""What a run's classifier remembers of its images, whether training delivered it or not, and what the run says of that."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.training.candidates.material import SIZE, shades
from vitral.classifier.classifier import Classifier
from vitral.classifier.folder import read, save
from vitral.classifier.novelty import KnownImages
from vitral.events import Event, Message, ignore
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.models.vit_config import ViTConfig
from vitral.training.candidates.deliver import write_known
from vitral.training.candidates.result import RunResult

QUICK = ("steps=4", "batch_size=8", "workers=0", "precision=fp32")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return shades(tmp_path / "photos", count=80)


def tune(data: Path, out: Path, **asked: Any) -> tuple[RunResult, list[str]]:  # noqa: ANN401
    said: list[Event] = []
    given = {"source": "vit-mu4", "image_size": SIZE, "overrides": QUICK, "listener": said.append, **asked}
    return vitral.finetune(data, out=out, **given), [event.text for event in said if isinstance(event, Message)]


def test_the_first_classifier_remembers_what_it_was_fitted_on(photos: Path, tmp_path: Path) -> None:
    result, lines = tune(photos, tmp_path / "run", quick=True)
    kept = vitral.load(tmp_path / "run", listener=ignore)
    assert kept.novelty == result.classifier.novelty
    assert kept.novelty is not None
    assert not kept.novelty.learned
    assert kept.known_images is not None
    assert len(kept.known_images.labels) == len(result.run.splits["train"])
    assert kept.novelty.sentence() in lines
    assert kept.novelty.sentence() in (tmp_path / "run" / "classifier" / "README.md").read_text()
    chequered = (np.indices((SIZE, SIZE)).sum(axis=0) % 2 * 255).astype(np.uint8)
    odd = np.stack([np.zeros_like(chequered), np.full_like(chequered, 255), np.zeros_like(chequered)], axis=2)
    assert kept.predict(odd, listener=ignore)[0].known is False
    own = kept.predict(photos / "dark", listener=ignore)
    assert sum(one.known is False for one in own) < len(own) / 5


def test_a_network_that_learned_is_judged_by_images_that_it_did_not_learn(photos: Path, tmp_path: Path) -> None:
    result, lines = tune(photos, tmp_path / "run", baselines=False)
    known = read(tmp_path / "run" / "classifier").known_images
    assert known is not None
    splits = result.run.splits
    assert (int((~known.held_out).sum()), int(known.held_out.sum())) == (
        len(splits["train"]),
        len(splits["validation"]),
    )
    prepared = torch.stack([result.classifier.preprocessing(splits["train"].image(index)) for index in range(4)])
    assert torch.allclose(known.features[:4], result.classifier.predictor.features(prepared), atol=0.01)
    assert any("none of" in line for line in lines)  # too few of them, which is said
    assert result.classifier.novelty is None


def test_without_room_for_the_features_the_classifier_is_there_all_the_same(
    tiny_config: ViTConfig, tmp_path: Path
) -> None:
    classifier = Classifier(build(tiny_config, seed=0), PHOTOS.with_size(SIZE), ("a", "b", "c"))
    folder = save(classifier, tmp_path / "kept")
    (folder / "features.safetensors" / "in the way").mkdir(parents=True)
    classifier.remember(KnownImages(torch.zeros(2, 16), torch.arange(2), torch.tensor([False, True])))
    said: list[Event] = []
    write_known(classifier, folder, said.append)
    assert said
    assert read(folder).known_images is None
